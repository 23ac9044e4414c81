//! The receiver as a process: one thread, epoll, connections that are kept, and as a rule 204 to everything. It counts,
//! and on request it writes down which event came when. Whoever started it asks over its standard input, a line a
//! question, and it ends with that.

use std::{
    collections::HashMap,
    io::{self, BufRead, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use memchr::memmem;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::{ClockId, clock_gettime};

const ACCEPTED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
/// The token of the socket that listens.
const LISTENER: u64 = u64::MAX;

/// A request to this path is refused when its event is one of ten and its attempt the first.
pub const FAILS_SOMETIMES: &str = "/fails";

/// What a line on standard input asks for. All but `ARRIVALS` are answered with one line.
pub mod ask {
    /// Requests since `FORGET`.
    pub const REQUESTS: &str = "requests";
    /// Bytes of their bodies.
    pub const BYTES: &str = "bytes";
    /// When the first of them came, in nanoseconds of CLOCK_MONOTONIC; 0 = none yet.
    pub const FIRST: &str = "first";
    /// Begin to count anew.
    pub const FORGET: &str = "forget";
    /// Write ids and times down, or no more.
    pub const RECORD: &str = "record";
    /// See `RECORD`.
    pub const REST: &str = "rest";
    /// What was written down: lines of an event id and its time, and an empty one.
    pub const ARRIVALS: &str = "arrivals";
}

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    bytes: AtomicU64,
    first: AtomicU64,
    recording: AtomicBool,
    arrivals: Mutex<Vec<(String, u64)>>,
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// Nanoseconds of the clock that all processes share.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    u64::try_from(Duration::from(now).as_nanos()).expect("a machine that has not run for centuries")
}

/// Listens on a free port of the loopback interface, says which, and answers questions until there are no more.
pub fn run() -> io::Result<()> {
    // Kernels that share the cores between sessions first would count it with the clients of the process that started it,
    // which then had half of what they ask the receiver to do for nothing; a leader has a session of its own as well.
    nix::unistd::setsid()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let mut output = io::stdout().lock();
    writeln!(output, "{}", listener.local_addr()?.port())?;
    let shared = Arc::new(Shared::default());
    let for_thread = Arc::clone(&shared);
    std::thread::spawn(move || serve(&listener, &for_thread));
    for question in io::stdin().lock().lines() {
        output.write_all(shared.answer(&question?).as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

impl Shared {
    fn answer(&self, question: &str) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let value = match question {
            ask::REQUESTS => count(&self.requests),
            ask::BYTES => count(&self.bytes),
            ask::FIRST => count(&self.first),
            ask::FORGET => {
                for counter in [&self.first, &self.requests, &self.bytes] {
                    counter.store(0, Ordering::Relaxed);
                }
                0
            }
            ask::RECORD | ask::REST => {
                let on = question == ask::RECORD;
                self.recording.store(on, Ordering::Relaxed);
                0
            }
            ask::ARRIVALS => {
                let arrivals =
                    std::mem::take(&mut *self.arrivals.lock().expect("no thread panicked"));
                let lines = arrivals.iter().map(|(id, at)| format!("{id} {at}\n"));
                return lines.chain(["\n".to_owned()]).collect();
            }
            other => panic!("nobody asks a receiver for {other}"),
        };
        format!("{value}\n")
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll instance");
    let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
    epoll.add(listener, readable(LISTENER)).expect("a socket");
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut next = 0;
    let mut events = [EpollEvent::empty(); 256];
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => panic!("epoll: {error}"),
        };
        for event in &events[..count] {
            if event.data() == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket");
                    stream.set_nodelay(true).expect("a TCP socket");
                    epoll.add(stream.as_fd(), readable(next)).expect("a socket");
                    let unread = Vec::new();
                    connections.insert(next, Connection { stream, unread });
                    next += 1;
                }
                continue;
            }
            let open = match connections.get_mut(&event.data()) {
                Some(connection) => read(connection, &mut buffer, shared),
                None => continue,
            };
            if !open {
                connections.remove(&event.data());
            }
        }
    }
}

/// Reads what is there and answers what is whole; false = the other side has gone.
fn read(connection: &mut Connection, buffer: &mut [u8], shared: &Shared) -> bool {
    match connection.stream.read(buffer) {
        Ok(0) => return false,
        Ok(n) => connection.unread.extend_from_slice(&buffer[..n]),
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    }
    let mut done = 0;
    let mut answers = Vec::new();
    while let Some((whole, answer)) = request(&connection.unread[done..], shared) {
        done += whole;
        answers.extend_from_slice(answer);
    }
    connection.unread.drain(..done);
    // A few bytes into a socket whose other side waits for them.
    answers.is_empty() || connection.stream.write_all(&answers).is_ok()
}

/// The length of the first request, if it is whole, and the answer to it.
fn request(bytes: &[u8], shared: &Shared) -> Option<(usize, &'static [u8])> {
    let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let length = header(&bytes[..head], b"content-length")
        .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
        .unwrap_or(0);
    let whole = head + length;
    if bytes.len() < whole {
        return None;
    }
    let now = now();
    if shared.requests.fetch_add(1, Ordering::Relaxed) == 0 {
        shared.first.store(now, Ordering::Relaxed);
    }
    shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
    if shared.recording.load(Ordering::Relaxed)
        && let Some(id) = header(&bytes[..head], b"webhook-id")
    {
        let id = String::from_utf8_lossy(id).into_owned();
        shared
            .arrivals
            .lock()
            .expect("no thread panicked")
            .push((id, now));
    }
    Some((whole, answer(&bytes[..head])))
}

fn answer(head: &[u8]) -> &'static [u8] {
    let fails = memmem::find(head, FAILS_SOMETIMES.as_bytes()).is_some_and(|at| at < 8)
        && header(head, b"webhook-attempt") == Some(b"1")
        && header(head, b"webhook-id")
            .and_then(|id| id.last())
            // A tenth of Crockford's alphabet, as nearly as it has one.
            .is_some_and(|last| b"0AK".contains(last));
    if fails { REFUSED } else { ACCEPTED }
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}
