//! A receiver well above what any client reaches: one thread, epoll, connections that are kept, and as a rule 204 to
//! everything. It counts, and on request it writes down which event came when.

use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use memchr::memmem;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

const ACCEPTED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
/// The token of the socket that listens.
const LISTENER: u64 = u64::MAX;

/// A request to this path is refused when its event is one of ten and its attempt the first.
pub const FAILS_SOMETIMES: &str = "/fails";

/// The receiver; it ends with this value.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    begun: Instant,
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Microseconds after `begun`; 0 = none yet.
    first: AtomicU64,
    last: AtomicU64,
    recording: AtomicBool,
    arrivals: Mutex<Vec<(String, Instant)>>,
    ended: AtomicBool,
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Sink {
    /// Starts listening on a free port of the loopback interface.
    pub fn start() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            arrivals: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&listener, &for_thread));
        Sink {
            address,
            shared,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests since the last `forget`.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Bytes of bodies since the last `forget`.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// When the first request since the last `forget` came.
    pub fn first(&self) -> Option<Instant> {
        let micros = self.shared.first.load(Ordering::Relaxed);
        (micros > 0).then(|| self.shared.begun + Duration::from_micros(micros))
    }

    /// Begins to count anew.
    pub fn forget(&self) {
        for counter in [
            &self.shared.first,
            &self.shared.last,
            &self.shared.requests,
            &self.shared.bytes,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Whether ids and times are written down.
    pub fn record(&self, on: bool) {
        self.shared.recording.store(on, Ordering::Relaxed);
    }

    /// Event ids and when they came, in the order of arrival.
    pub fn take_arrivals(&self) -> Vec<(String, Instant)> {
        std::mem::take(&mut *self.shared.arrivals.lock().expect("no thread panicked"))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
    let a_while = EpollTimeout::try_from(Duration::from_millis(50)).expect("a short time");
    while !shared.ended.load(Ordering::Relaxed) {
        let count = match epoll.wait(&mut events, a_while) {
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
    let now = Instant::now();
    let micros = u64::try_from((now - shared.begun).as_micros()).unwrap_or(1);
    if shared.requests.fetch_add(1, Ordering::Relaxed) == 0 {
        shared.first.store(micros, Ordering::Relaxed);
    }
    shared.last.store(micros, Ordering::Relaxed);
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
