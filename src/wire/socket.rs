//! A TCP connection as ureq's transport. It exists because the deadline must hold for a whole write (a
//! socket timeout counts anew for every partial one, so that a receiver that drains slowly stretches
//! it) and because the pool's probe must see what lies in the buffer. Opens nothing; see `dial`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
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

/// A time-out of the socket may be this much longer than what is left of the deadline.
const SLACK: Duration = Duration::from_millis(5);

/// An open TCP connection with its buffers.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// The time-outs that the socket has: setting one is a system call, and most requests on a connection that is
    /// kept have the same.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Socket {
        Socket {
            stream,
            buffers: LazyBuffers::new(INPUT_BUFFER, OUTPUT_BUFFER),
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// What the socket is.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes what goes out at once; `WouldBlock` when nothing does.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        retried(|| send(self.stream.as_raw_fd(), bytes, flags))
    }

    /// Reads what is there; `WouldBlock` when nothing is, 0 when nothing will be.
    pub(super) fn read_now(&self, room: &mut [u8]) -> io::Result<usize> {
        retried(|| recv(self.stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT))
    }

    /// Writes all of it before the deadline.
    pub(super) fn send(&mut self, bytes: &[u8], until: Until) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = until.left()?;
            if !is_close(self.write_timeout, left) {
                self.stream.set_write_timeout(Some(left))?;
                self.write_timeout = Some(left);
            }
            match (&self.stream).write(rest) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) => pass_if_passing(error)?,
            }
        }
        Ok(())
    }

    /// Reads something before the deadline; 0 when nothing will come.
    pub(super) fn receive(&mut self, room: &mut [u8], until: Until) -> Result<usize, Error> {
        loop {
            let left = until.left()?;
            if !is_close(self.read_timeout, left) {
                self.stream.set_read_timeout(Some(left))?;
                self.read_timeout = Some(left);
            }
            #[cfg(any(test, feature = "fuzz"))]
            let room = crate::wire::fuzz::piece(room);
            match (&self.stream).read(room) {
                Ok(amount) => return Ok(amount),
                Err(error) => pass_if_passing(error)?,
            }
        }
    }

    /// Whether nothing has come in that nobody asked for, and the peer has not closed.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        recv(self.stream.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }
}

/// A moment, and what it is a time-out of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    at: Instant,
    reason: Timeout,
}

impl Until {
    fn left(self) -> Result<Duration, Error> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Timeout(self.reason));
        }
        // A socket timeout is rounded down to microseconds, and zero would mean "wait for ever".
        Ok(left.max(Duration::from_millis(1)))
    }
}

impl From<NextTimeout> for Until {
    fn from(timeout: NextTimeout) -> Until {
        Until {
            at: Instant::now() + (*timeout.after).min(LONGEST),
            reason: timeout.reason,
        }
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = self.buffers.output();
        let output = output.get(..amount).unwrap_or(output).to_vec();
        self.send(&output, timeout.into())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // Taken out, so that the socket may be borrowed beside its buffers.
        let mut buffers = std::mem::replace(&mut self.buffers, LazyBuffers::new(1, 1));
        let read = self.receive(buffers.input_append_buf(), timeout.into());
        self.buffers = buffers;
        let amount = read?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Open means: nothing to read yet, neither in the socket nor, under TLS, in the buffer. Bytes
    /// nobody asked for would be taken for the start of the next response.
    fn is_open(&mut self) -> bool {
        self.buffers.input().is_empty() && self.is_quiet()
    }
}

/// A socket that never waits.
pub(super) struct Now<'a>(pub &'a Socket);

impl Read for Now<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read_now(room)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_now(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn retried(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// Whether a time-out that the socket has will do: at most a little longer than `left`. A shorter one ends a call
/// early, and the call is made again.
fn is_close(set: Option<Duration>, left: Duration) -> bool {
    set.is_some_and(|set| set <= left + SLACK && set >= left / 2)
}

/// An interrupted call is made again, and so is one that the time-out of the socket ended: the deadline decides.
fn pass_if_passing(error: io::Error) -> Result<(), Error> {
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
        _ => Err(error.into()),
    }
}
