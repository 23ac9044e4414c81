//! A server that does what a test wants: real sockets on the loopback interface, a thread each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A running server. Its threads end with the test process.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Seen>>>,
}

/// A request as it came in.
#[derive(Clone)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers()
            .into_iter()
            .find_map(|(is, value)| is.eq_ignore_ascii_case(name).then_some(value))
    }

    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .collect()
    }
}

impl Server {
    /// Hands every connection, with its number from 0, to `talk`.
    pub fn start(talk: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let talk = Arc::new(talk);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let talk = Arc::clone(&talk);
                thread::spawn(move || talk(stream, number));
            }
        });
        Server {
            address,
            connections,
            requests: Arc::default(),
        }
    }

    /// Answers every request of every connection with the same bytes.
    pub fn answering(response: impl Into<Vec<u8>>) -> Server {
        let response = response.into();
        let requests: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let mut server = Server::start(move |mut stream, _| {
            while let Some(request) = read_request(&mut stream) {
                seen.lock().unwrap().push(request);
                if stream.write_all(&response).is_err() {
                    return;
                }
            }
        });
        server.requests = requests;
        server
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads one request with its body; `None` when the connection ends first.
pub fn read_request(stream: &mut impl Read) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let mut seen = Seen {
        head: String::from_utf8(head).unwrap(),
        body: Vec::new(),
    };
    let length = seen
        .header("content-length")
        .map_or(0, |n| n.parse().unwrap());
    seen.body.resize(length, 0);
    stream.read_exact(&mut seen.body).ok()?;
    Some(seen)
}

/// Keeps a connection open without a word.
pub fn hold(stream: TcpStream) {
    thread::sleep(Duration::from_secs(60));
    drop(stream);
}

pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
