//! What a fuzzer calls of this room: the real client over a connection whose other end already said everything,
//! and the URL that the rules accepted as the client reads it. See `rules::fuzz`.
//!
//! One thread and no waiting: the answer is written and the connection half closed before the client reads.

use std::cell::Cell;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Linger};
use ureq::Error;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Either};

use crate::rules::address::{Boundary, Ports};
use crate::rules::delivery::{Answer, Category, Outcome, Phase};
use crate::rules::fuzz::{texts, url_guard as rules_url_guard};
use crate::rules::redaction::redact;
use crate::rules::target::{Host, Target};
use crate::wire::client::{Client, ClientSettings};
use crate::wire::exchange;
use crate::wire::interim;
use crate::wire::pool::{Connection, Key, Lease, Pool};
use crate::wire::proxy;
use crate::wire::reply::{self, Reply};
use crate::wire::socket::Socket;
use crate::wire::threads::lock;

const EXCERPT: usize = 512;
/// The longest answer: as much as a connection takes before anybody reads.
const MAX_ANSWER: usize = 90 * 1024;
/// No exchange may take longer; nothing is waited for.
const LONGEST: Duration = Duration::from_secs(5);

/// The boundary, and then: what it accepted can be sent, to the same host and port.
pub fn url_guard(data: &[u8]) {
    let Some(target) = rules_url_guard::run(data) else {
        return;
    };
    let uri = Uri::try_from(target.url()).expect("what is accepted can be sent");
    let host = uri.host().expect("a target has a host");
    match target.host() {
        Host::Name(name) => assert_eq!(host, name),
        // An IPv6 address has more than one spelling.
        Host::Ip(ip) => assert_eq!(host.trim_matches(['[', ']']).parse(), Ok(*ip)),
    }
    let known = if target.https() { 443 } else { 80 };
    assert_eq!(uri.port_u16().unwrap_or(known), target.port());
    assert_eq!(uri.scheme_str() == Some("https"), target.https());
    assert_eq!(uri.to_string(), target.url(), "no byte is changed");
}

/// An answer to a request, and the same bytes as a proxy's answer to CONNECT.
///
/// Input: a byte for the size of the pieces in which it is read the second time, a byte that says how often what
/// follows the last 0xff is repeated, then the answer.
pub fn response(data: &[u8]) {
    let [piece, times, rest @ ..] = data else {
        return;
    };
    let answer = expanded(rest, *times);
    let started = Instant::now();
    let whole = exchange_with(&answer, usize::MAX);
    let least = answer.len() / 256;
    let size = usize::from(*piece).max(least).max(1);
    let pieces = exchange_with(&answer, size);
    assert!(started.elapsed() < LONGEST);
    check(&whole, &answer);
    check(&pieces, &answer);
    if let Reply::Whole { code, body } = reply::read(&answer) {
        // What the lane takes for an easy answer is the same for ureq.
        let easy = Answer::Status {
            code,
            retry_after: Vec::new(),
        };
        assert_eq!(whole.answer, easy);
        assert_eq!(whole.response_bytes, body.len() as u64);
        assert!(answer[body].starts_with(&whole.excerpt));
    }
    // The limits of all heads together count what came along with them; short of these, pieces do not matter.
    if answer.len() <= 16 * 1024 {
        assert_eq!(whole.answer, pieces.answer);
        // What came before the break is read or not, as it comes.
        if matches!(whole.answer, Answer::Status { .. }) {
            assert_eq!(whole.excerpt, pieces.excerpt);
            assert_eq!(whole.response_bytes, pieces.response_bytes);
        }
    }
    if let Some(length) = interim::length(&answer) {
        // The parser passes over empty lines before a head (RFC 9112 section 2.2).
        let head = answer[..length].trim_ascii_start();
        assert!(answer[..length].ends_with(b"\n") && head.starts_with(b"HTTP/1."));
    }
    texts::verdict(&whole.answer);
    texts::proof(&whole.excerpt);
    let shown = redact(&String::from_utf8_lossy(&whole.excerpt), &[]);
    assert!(shown.len() <= 16 * EXCERPT);
    tunnel(&answer);
}

fn expanded(answer: &[u8], times: u8) -> Vec<u8> {
    let mut expanded = answer.to_vec();
    if let Some(at) = answer.iter().rposition(|byte| *byte == 0xff) {
        let tail = expanded.split_off(at);
        for _ in 0..times {
            expanded.extend_from_slice(&tail[1..]);
        }
    }
    expanded.truncate(MAX_ANSWER);
    expanded
}

fn check(outcome: &Outcome, answer: &[u8]) {
    assert!(outcome.excerpt.len() <= EXCERPT);
    assert!(outcome.excerpt.len() as u64 <= outcome.response_bytes);
    assert!(outcome.response_bytes <= answer.len() as u64);
    match &outcome.answer {
        Answer::Status { code, retry_after } => {
            assert!(answer.windows(7).any(|window| window == b"HTTP/1."));
            assert!((200..1000).contains(code) || *code == 101, "{code}");
            let digits = code.to_string();
            assert!(answer.windows(3).any(|window| window == digits.as_bytes()));
            assert!(retry_after.len() <= 4);
            assert!(retry_after.iter().all(|line| line.len() <= 3 * 128));
        }
        Answer::Failure {
            category,
            phase,
            detail,
        } => {
            assert_eq!(*category, Category::Protocol, "{detail}");
            assert!(matches!(phase, Some(Phase::Headers | Phase::Body)));
            assert!(DETAILS.contains(&detail.as_str()), "{detail}");
        }
    }
}

/// All that can be said of an answer that is none; nothing in it comes from the receiver.
const DETAILS: [&str; 5] = [
    "response is not HTTP",
    "response body is not HTTP",
    "response headers are too large",
    "connection was closed before the response headers",
    "connection was closed within the response body",
];

/// A tunnel is open only when the first final head is a success and nothing follows it.
fn tunnel(answer: &[u8]) {
    let (mut stream, _peer) = said(answer);
    let Ok(status) = proxy::status(&mut stream, Instant::now() + LONGEST) else {
        return;
    };
    assert!(
        answer.starts_with(b"HTTP/1.") || answer.starts_with(b"\n") || answer.starts_with(b"\r")
    );
    assert!((200..1000).contains(&status), "{status}");
    if status < 300 {
        assert!(answer.ends_with(b"\n"), "bytes after the head");
    }
}

fn exchange_with(answer: &[u8], piece: usize) -> Outcome {
    PIECE.set(piece);
    *lock(&SAID) = answer.to_vec();
    let outcome = EDGE.client.post(&EDGE.target, &[], b"{}", 0);
    PIECE.set(usize::MAX);
    outcome
}

/// The part of a buffer that may be filled by one read.
pub(super) fn piece(room: &mut [u8]) -> &mut [u8] {
    let length = room.len().min(PIECE.get());
    &mut room[..length]
}

thread_local! {
    static PIECE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What the next connection has said.
static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Edge {
    client: Client,
    target: Target,
}

static EDGE: LazyLock<Edge> = LazyLock::new(|| {
    let boundary = Boundary {
        allow_http: true,
        ports: Ports::AnyAllowed,
        ..Boundary::default()
    };
    let target = boundary.target("http://192.0.1.1/").expect("a target");
    let settings = ClientSettings {
        boundary,
        proxy: None,
        connect_timeout: LONGEST,
        request_timeout: LONGEST,
        max_excerpt: EXCERPT,
        user_agent: "webhook_outbox/0.1.0".to_owned(),
        ca_pem: None,
        max_idle_per_host: 0,
        max_idle: 0,
    };
    let client = Client::over(settings, Scripted).expect("a client");
    Edge { client, target }
});

/// ureq's connector: every connection leads to what was said.
#[derive(Debug)]
struct Scripted;

impl Connector for Scripted {
    type Out = Lease;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Lease>, Error> {
        exchange::reach(Phase::Connect);
        let Some(authority) = details.uri.authority() else {
            return Ok(None);
        };
        let key = Key {
            https: false,
            authority: authority.clone(),
        };
        let (stream, peer) = said(&lock(&SAID));
        // Kept open until this thread's next connection: a close would throw away what was not read.
        PEER.set(Some(peer));
        let address = stream.peer_addr()?;
        let connection = Connection::new(Either::A(Socket::new(stream)), address);
        Ok(Some(Lease::new(connection, key, Arc::new(Pool::new(0, 0)))))
    }
}

thread_local! {
    static PEER: Cell<Option<TcpStream>> = const { Cell::new(None) };
}

/// A connection on the loopback interface whose other end has said this and will say no more.
fn said(answer: &[u8]) -> (TcpStream, TcpStream) {
    static LISTENER: LazyLock<Mutex<(TcpListener, SocketAddr)>> = LazyLock::new(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
        let address = listener.local_addr().expect("it is bound");
        Mutex::new((listener, address))
    });
    let held = lock(&LISTENER);
    let stream = TcpStream::connect(held.1).expect("it listens");
    let (mut peer, _) = held.0.accept().expect("just connected");
    drop(held);
    // A reset when it is closed: thousands a second would use up the ports otherwise.
    let reset = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, Linger, &reset).expect("an option of every socket");
    peer.write_all(answer).expect("room for the answer");
    peer.shutdown(Shutdown::Write).expect("it is open");
    (stream, peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fuzz::replay;

    #[test]
    fn no_url_of_the_corpus_breaks_a_promise() {
        replay("url_guard", url_guard);
    }

    #[test]
    fn no_answer_of_the_corpus_breaks_a_promise() {
        replay("response", response);
    }
}
