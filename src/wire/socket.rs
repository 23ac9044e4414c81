//! A TCP connection as ureq's transport. It exists because the deadline must hold for a whole write (a
//! socket timeout counts anew for every partial one, so that a receiver that drains slowly stretches
//! it) and because the pool's probe must see what lies in the buffer. Opens nothing; see `dial`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use ureq::unversioned::transport::{Buffers, LazyBuffers, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Room for the input of one connection: more than the largest head, so that an oversized head is
/// seen as such (a full buffer would read as the end of the stream).
pub(super) const INPUT_BUFFER: usize = 32 * 1024;
/// Room for the output of one connection: longer than any header line or request line we send.
pub(super) const OUTPUT_BUFFER: usize = 16 * 1024;

/// ureq's "never" is a duration that overflows the clock. The client always sets a deadline; if that
/// should ever be forgotten, this one holds.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// An open TCP connection with its buffers.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Socket {
        Socket {
            stream,
            buffers: LazyBuffers::new(INPUT_BUFFER, OUTPUT_BUFFER),
        }
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let deadline = deadline(timeout);
        let output = self.buffers.output();
        let mut rest = output.get(..amount).unwrap_or(output);
        while !rest.is_empty() {
            let left = left(deadline, timeout.reason)?;
            self.stream.set_write_timeout(Some(left))?;
            match (&self.stream).write(rest) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) => pass_unless_passing(error, timeout.reason)?,
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let deadline = deadline(timeout);
        loop {
            let left = left(deadline, timeout.reason)?;
            self.stream.set_read_timeout(Some(left))?;
            let room = self.buffers.input_append_buf();
            #[cfg(any(test, feature = "fuzz"))]
            let room = crate::wire::fuzz::piece(room);
            match (&self.stream).read(room) {
                Ok(amount) => {
                    self.buffers.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(error) => pass_unless_passing(error, timeout.reason)?,
            }
        }
    }

    /// Open means: nothing to read yet, neither in the socket nor, under TLS, in the buffer. Bytes
    /// nobody asked for would be taken for the start of the next response.
    fn is_open(&mut self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        self.buffers.input().is_empty()
            && recv(self.stream.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }
}

fn deadline(timeout: NextTimeout) -> Instant {
    Instant::now() + (*timeout.after).min(LONGEST)
}

fn left(deadline: Instant, reason: Timeout) -> Result<Duration, Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::Timeout(reason));
    }
    // A socket timeout is rounded down to microseconds, and zero would mean "wait for ever".
    Ok(left.max(Duration::from_millis(1)))
}

/// An interrupted call is made again; a socket timeout becomes ureq's.
fn pass_unless_passing(error: std::io::Error, reason: Timeout) -> Result<(), Error> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(Error::Timeout(reason)),
        _ => Err(error.into()),
    }
}
