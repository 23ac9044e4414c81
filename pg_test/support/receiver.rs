//! A receiver that behaves as a test orders, path by path: any status, late, slow, endless, cut off, silent. It
//! records every request exactly as it came and judges nothing. One small thread per connection, so that hundreds
//! may hang at once.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustls::ServerConfig;

use crate::receiver::{
    answer::Body,
    line::{Line, read_request, read_some},
};
pub use crate::receiver::{
    answer::{Answer, Gate, What},
    closed::ClosedPort,
};

mod answer;
mod closed;
mod line;

/// How long a thread may be blind to the end of the receiver.
const TICK: Duration = Duration::from_millis(50);
/// After so long a part of an answer has been read; a reset, for one, could overtake it.
const PART: Duration = Duration::from_millis(200);

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its last byte was read.
    pub at: Instant,
    /// The same by the wall clock.
    pub wall: SystemTime,
    /// The number of the connection, from 1.
    pub connection: u64,
    /// The method.
    pub method: String,
    /// The target: path and query.
    pub target: String,
    /// Names and values of the header lines, in order and as written.
    pub headers: Vec<(String, String)>,
    /// Request line and header lines, byte by byte.
    pub head: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of the first header line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }
}

type Behaviour = Box<dyn FnMut(&Request) -> Answer + Send>;

/// A running receiver.
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
}

struct Shared {
    tls: Option<Arc<ServerConfig>>,
    /// What to do by path; a path without an entry gets 200.
    behaviours: Mutex<HashMap<String, Arc<Mutex<Behaviour>>>>,
    requests: Mutex<Vec<Request>>,
    arrival: Condvar,
    connections: AtomicU64,
    open: AtomicUsize,
    /// Requests being answered, and the most there ever were.
    in_flight: AtomicUsize,
    peak: AtomicUsize,
    stopping: AtomicBool,
}

impl Receiver {
    /// A receiver of plain HTTP on 127.0.0.1.
    pub fn http() -> Receiver {
        Self::on(IpAddr::V4(Ipv4Addr::LOCALHOST), None)
    }

    /// A receiver of HTTPS on 127.0.0.1, with a configuration made by [`crate::tls::Authority`].
    pub fn https(tls: Arc<ServerConfig>) -> Receiver {
        Self::on(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(tls))
    }

    /// A receiver on any address of this machine.
    pub fn on(address: IpAddr, tls: Option<Arc<ServerConfig>>) -> Receiver {
        Self::at(SocketAddr::new(address, 0), tls)
    }

    /// A receiver on any address and port of this machine; port 0 = any.
    pub fn at(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Receiver {
        let listener = TcpListener::bind(address).expect("a port for the receiver");
        let address = listener.local_addr().expect("the address of the receiver");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            tls,
            behaviours: Mutex::default(),
            requests: Mutex::default(),
            arrival: Condvar::new(),
            connections: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Receiver {
            address,
            scheme,
            shared,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path, with the address as host.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// The URL of a path, with a host name that the test lets resolve to this receiver.
    pub fn url_at(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.address.port())
    }

    /// From now on requests for `path` get these answers in turn, and the last one from then on.
    pub fn script(&self, path: &str, answers: Vec<Answer>) {
        assert!(!answers.is_empty(), "a script needs an answer");
        let mut left = answers.into_iter();
        let mut last = Answer::status(200);
        self.behave(path, move |_| {
            if let Some(next) = left.next() {
                last = next;
            }
            last.clone()
        });
    }

    /// From now on `behaviour` decides on every request for `path`. It runs before the answer is sent: what it has
    /// stored when it returns is a durable acceptance.
    pub fn behave(&self, path: &str, behaviour: impl FnMut(&Request) -> Answer + Send + 'static) {
        let behaviour: Behaviour = Box::new(behaviour);
        lock(&self.shared.behaviours).insert(path.to_owned(), Arc::new(Mutex::new(behaviour)));
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// The ids of all events that arrived, each once.
    pub fn ids(&self) -> std::collections::BTreeSet<String> {
        let requests = self.requests();
        let ids = requests
            .iter()
            .filter_map(|request| request.header("webhook-id"));
        ids.map(str::to_owned).collect()
    }

    /// The number of requests so far.
    pub fn count(&self) -> usize {
        lock(&self.shared.requests).len()
    }

    /// Every request for one path.
    pub fn requests_for(&self, path: &str) -> Vec<Request> {
        lock(&self.shared.requests)
            .iter()
            .filter(|request| request.target == path)
            .cloned()
            .collect()
    }

    /// Waits until at least `count` requests have arrived and returns all of them.
    ///
    /// # Panics
    /// When they have not by the deadline.
    #[track_caller]
    pub fn wait_for(&self, count: usize, deadline: Duration) -> Vec<Request> {
        let end = Instant::now() + deadline;
        let mut requests = lock(&self.shared.requests);
        while requests.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{} of {count} requests arrived within {deadline:?}",
                requests.len()
            );
            let waited = self.shared.arrival.wait_timeout(requests, left);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        requests.clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Requests being answered now.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::SeqCst)
    }

    /// The most requests that were ever being answered at once.
    pub fn peak(&self) -> usize {
        self.shared.peak.load(Ordering::SeqCst)
    }

    /// Forgets the requests and the peak.
    pub fn forget(&self) {
        lock(&self.shared.requests).clear();
        self.shared.peak.store(0, Ordering::SeqCst);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; should it fail, the thread ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, most likely: others will be closed.
            thread::sleep(TICK);
            continue;
        };
        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        shared.open.fetch_add(1, Ordering::SeqCst);
        let of_thread = Arc::clone(shared);
        let started = thread::Builder::new().stack_size(256 << 10).spawn(move || {
            // An error is the sender's affair (it closed, it reset): the test looks at the requests.
            let _ = serve(stream, number, &of_thread);
            of_thread.open.fetch_sub(1, Ordering::SeqCst);
        });
        started.expect("a thread for the connection");
    }
}

fn serve(stream: TcpStream, number: u64, shared: &Shared) -> io::Result<()> {
    let mut line = Line::new(stream, shared)?;
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut line, &mut buffer, number, shared)? {
        let under_way = UnderWay::begin(shared);
        let behaviour = {
            let path = request.target.split('?').next().unwrap_or_default();
            lock(&shared.behaviours).get(path).cloned()
        };
        lock(&shared.requests).push(request.clone());
        // It has arrived, however long its answer takes.
        shared.arrival.notify_all();
        let answer = behaviour.map_or_else(
            || Answer::status(200),
            |behaviour| lock(&behaviour)(&request),
        );
        shared.arrival.notify_all();
        if !give(&mut line, answer, under_way, shared)? {
            return Ok(());
        }
    }
    Ok(())
}

/// A request that is being answered, until it is dropped.
struct UnderWay<'a>(&'a Shared);

impl UnderWay<'_> {
    fn begin(shared: &Shared) -> UnderWay<'_> {
        let busy = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.peak.fetch_max(busy, Ordering::SeqCst);
        UnderWay(shared)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Gives the answer; true when another request may follow.
fn give(
    line: &mut Line,
    answer: Answer,
    under_way: UnderWay<'_>,
    shared: &Shared,
) -> io::Result<bool> {
    pause(answer.before, shared);
    while answer.gate.as_ref().is_some_and(|gate| !gate.is_open())
        && !shared.stopping.load(Ordering::SeqCst)
    {
        thread::sleep(Duration::from_millis(2));
    }
    match answer.what {
        What::Hang => {
            let mut ignored = [0; 1024];
            while read_some(line, &mut ignored, shared)? > 0 {}
            Ok(false)
        }
        What::Close => Ok(false),
        What::Reset => reset(line),
        What::Raw(bytes) => {
            line.write_all(&bytes)?;
            line.flush()?;
            Ok(false)
        }
        What::Parts { parts, reset: cut } => {
            for part in parts {
                line.write_all(&part)?;
                line.flush()?;
                pause(PART, shared);
            }
            if cut { reset(line) } else { Ok(false) }
        }
        What::Repeat {
            first,
            again,
            every,
        } => {
            line.write_all(&first)?;
            while !shared.stopping.load(Ordering::SeqCst) {
                line.write_all(&again)?;
                line.flush()?;
                pause(every, shared);
            }
            Ok(false)
        }
        What::Respond {
            status,
            headers,
            body,
        } => {
            respond(line, status, headers, body, under_way, shared)?;
            Ok(!answer.close)
        }
    }
}

fn reset(line: &Line) -> io::Result<bool> {
    // Closing with a linger time of zero sends RST instead of FIN.
    socket2::SockRef::from(line.stream()).set_linger(Some(Duration::ZERO))?;
    Ok(false)
}

fn respond(
    line: &mut Line,
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    under_way: UnderWay<'_>,
    shared: &Shared,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", answer::reason(status));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match body {
        Body::Whole(bytes) => {
            head.push_str(&format!("content-length: {}\r\n\r\n", bytes.len()));
            // Whoever has the answer may send the next request before this thread gets to say that this one is over.
            drop(under_way);
            line.write_all(&[head.as_bytes(), &bytes].concat())?;
            line.flush()
        }
        Body::Slow { bytes, size, wait } => {
            head.push_str(&format!("content-length: {}\r\n\r\n", bytes.len()));
            line.write_all(head.as_bytes())?;
            line.flush()?;
            for piece in bytes.chunks(size.max(1)) {
                pause(wait, shared);
                line.write_all(piece)?;
                line.flush()?;
            }
            Ok(())
        }
        Body::Endless { size, wait } => {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
            line.write_all(head.as_bytes())?;
            let piece = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
            while !shared.stopping.load(Ordering::SeqCst) {
                line.write_all(piece.as_bytes())?;
                line.flush()?;
                pause(wait, shared);
            }
            Ok(())
        }
    }
}

fn pause(time: Duration, shared: &Shared) {
    let end = Instant::now() + time;
    while !shared.stopping.load(Ordering::SeqCst) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
