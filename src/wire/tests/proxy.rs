//! The way through a proxy: what it is asked, what it can do to a request, and whose fault that is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::server::{OK, Server, hold};
use super::tls::Ca;
use super::*;
use crate::rules::proxy::{Credentials, Proxy};

/// A proxy that listens where no target may be, and keeps the heads of what it was asked.
struct Egress {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Egress {
    /// Hands each connection and the target it asks for to `serve`.
    fn start(serve: impl Fn(TcpStream, &str) + Send + Sync + 'static) -> Egress {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&heads);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (log, serve) = (Arc::clone(&log), Arc::clone(&serve));
                thread::spawn(move || {
                    let Some(head) = read_head(&mut stream) else {
                        return;
                    };
                    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    log.lock().unwrap().push(head);
                    serve(stream, &target);
                });
            }
        });
        Egress { address, heads }
    }

    /// One that does what it should, after it has said this.
    fn honest(answer: &'static str) -> Egress {
        Egress::start(move |mut stream, target| {
            let Ok(onward) = TcpStream::connect(target) else {
                let _ = stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
                return;
            };
            let _ = stream.write_all(answer.as_bytes());
            splice(stream, onward);
        })
    }

    fn saying(bytes: impl Into<Vec<u8>>) -> Egress {
        let bytes = bytes.into();
        Egress::start(move |mut stream, _| {
            let _ = stream.write_all(&bytes);
            hold(stream);
        })
    }

    fn proxy(&self) -> Option<Proxy> {
        Some(Proxy {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            credentials: None,
        })
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

fn splice(one: TcpStream, other: TcpStream) {
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        })
    };
    pump(one.try_clone().unwrap(), other.try_clone().unwrap());
    let _ = pump(other, one).join();
}

/// Only 127.0.0.1 and ::1 may be reached, not the proxy.
fn only_the_target() -> Boundary {
    Boundary {
        allow_networks: vec!["127.0.0.1/32".parse().unwrap(), "::1/128".parse().unwrap()],
        ..boundary()
    }
}

fn through(proxy: Option<Proxy>) -> ClientSettings {
    ClientSettings {
        boundary: only_the_target(),
        proxy,
        ..settings()
    }
}

#[track_caller]
fn assert_internal(outcome: &Outcome, says: &str) {
    assert_failure(outcome, Category::Internal, Some(Phase::Connect));
    let Answer::Failure { detail, .. } = &outcome.answer else {
        unreachable!();
    };
    assert!(detail.contains(says), "{detail} instead of {says}");
}

#[test]
fn plain_requests_go_through_a_tunnel_to_the_vetted_address() {
    let server = Server::answering(OK);
    let egress = Egress::honest(ESTABLISHED);
    let client = client_with_names(through(egress.proxy()));
    let port = server.address.port();
    let target = target(&format!("http://hooks.example.com:{port}/hook"));
    for _ in 0..3 {
        assert_status(&post(&client, &target), 200);
    }
    // Once: the connection is kept.
    let asked = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    assert_eq!(egress.heads(), [asked]);
    let host = format!("hooks.example.com:{port}");
    let seen = server.requests();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].header("host"), Some(host.as_str()));
    assert!(seen[0].head.starts_with("POST /hook HTTP/1.1"));
}

#[test]
fn tls_is_spoken_inside_the_tunnel_with_the_name_of_the_url() {
    let ca = Ca::new();
    let egress = Egress::honest(ESTABLISHED);
    let client = client_with_names(ClientSettings {
        ca_pem: Some(ca.pem()),
        ..through(egress.proxy())
    });
    let right = ca.server("hooks.example.com", OK);
    let wrong = ca.server("other.example.com", OK);
    let url = |server: &Server| {
        target(&format!(
            "https://hooks.example.com:{}/hook",
            server.address.port()
        ))
    };
    assert_status(&post(&client, &url(&right)), 200);
    assert_failure(
        &post(&client, &url(&wrong)),
        Category::Tls,
        Some(Phase::Tls),
    );
    assert_eq!(egress.heads().len(), 2);
    assert!(egress.heads().iter().all(|head| !head.contains("example")));
}

#[test]
fn boundary_holds_before_the_proxy_is_asked() {
    let egress = Egress::honest(ESTABLISHED);
    let lookup = |name: &str| {
        Ok(match name {
            "inside.example.com." => vec!["10.0.0.1".parse().unwrap()],
            "mixed.example.com." => {
                vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap()]
            }
            // The proxy itself, which is exempt on the way and not as a target.
            _ => vec!["127.0.0.2".parse().unwrap()],
        })
    };
    let client =
        Client::with_lookups(through(egress.proxy()), Lookups::new(Box::new(lookup))).unwrap();
    for host in [
        "inside.example.com",
        "mixed.example.com",
        "proxy.example.com",
        "127.0.0.2",
    ] {
        let url = format!("http://{host}:{}/hook", egress.address.port());
        let outcome = post(&client, &target(&url));
        assert_failure(&outcome, Category::Blocked, Some(Phase::Resolve));
    }
    assert!(egress.heads().is_empty());
}

#[test]
fn what_the_proxy_does_wrong_is_no_fault_of_the_receiver() {
    let server = Server::answering(OK);
    let answer = |status: &str| format!("HTTP/1.1 {status} evil\r\ncontent-length: 4\r\n\r\nevil");
    let table: [(Vec<u8>, &str); 11] = [
        (answer("403").into(), "(403)"),
        (answer("407").into(), "credentials (407)"),
        (answer("500").into(), "(500)"),
        (answer("502").into(), "(502)"),
        (answer("302").into(), "(302)"),
        ("SSH-2.0-evil\r\n\r\n".into(), "HTTP"),
        ("HTTP/1.1 099 evil\r\n\r\n".into(), "HTTP"),
        (vec![0; 64], "HTTP"),
        // More than an answer, or bytes of somebody who should not have spoken yet.
        (
            format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(20_000)).into(),
            "HTTP",
        ),
        (
            format!("{ESTABLISHED}HTTP/1.1 200 OK\r\n\r\n").into(),
            "HTTP",
        ),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(2_000).into(), "HTTP"),
    ];
    for (bytes, says) in table {
        let egress = Egress::saying(bytes);
        let client = Client::new(through(egress.proxy())).unwrap();
        let outcome = post(&client, &http(server.address));
        assert_internal(&outcome, says);
        let shown = format!("{:?}", outcome.answer);
        assert!(!shown.contains("evil"), "{shown}");
        assert!(outcome.excerpt.is_empty());
    }
    let closing = Egress::start(|stream, _| drop(stream));
    let client = Client::new(through(closing.proxy())).unwrap();
    assert_internal(&post(&client, &http(server.address)), "closed");
    assert_eq!(server.connections(), 0);
}

#[test]
fn proxy_that_is_away_or_silent_costs_the_connect_timeout_at_most() {
    let server = Server::answering(OK);
    let closed = {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        listener.local_addr().unwrap()
    };
    let at = |address: SocketAddr, timeout: u64| {
        Client::new(ClientSettings {
            connect_timeout: Duration::from_millis(timeout),
            ..through(Some(Proxy {
                host: address.ip().to_string(),
                port: address.port(),
                credentials: None,
            }))
        })
        .unwrap()
    };
    assert_internal(&post(&at(closed, 5_000), &http(server.address)), "refused");
    let silent = Egress::saying("");
    let dripping = Egress::start(|mut stream, _| {
        while stream.write_all(b"H").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let started = Instant::now();
    assert_internal(
        &post(&at(silent.address, 300), &http(server.address)),
        "in time",
    );
    let outcome = post(&at(dripping.address, 300), &http(server.address));
    assert_failure(&outcome, Category::Internal, Some(Phase::Connect));
    assert!(started.elapsed() < Duration::from_secs(4));
    assert_eq!(server.connections(), 0);
}

#[test]
fn interim_answers_and_a_length_do_not_disturb_a_tunnel() {
    let server = Server::answering(OK);
    // RFC 9110, 9.3.6: the length in a successful answer to CONNECT is ignored.
    let egress = Egress::honest(
        "HTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.0 299 Yes\r\ncontent-length: 9\r\n\r\n",
    );
    let client = Client::new(through(egress.proxy())).unwrap();
    assert_status(&post(&client, &http(server.address)), 200);
}

#[test]
fn credentials_are_told_to_the_proxy_and_to_nobody_else() {
    let server = Server::answering(OK);
    let egress = Egress::honest(ESTABLISHED);
    let mut proxy = egress.proxy().unwrap();
    proxy.credentials = Some(Credentials::parse(b"Aladdin:open sesame").unwrap());
    assert!(!format!("{proxy:?}").contains("sesame"));
    let client = Client::new(through(Some(proxy))).unwrap();
    assert_status(&post(&client, &http(server.address)), 200);
    assert!(
        egress.heads()[0]
            .contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n")
    );
    assert_eq!(server.requests()[0].header("proxy-authorization"), None);
}

#[test]
fn next_address_is_asked_for_when_the_proxy_cannot_reach_one() {
    let server = Server::answering(OK);
    let port = server.address.port();
    // Nothing listens on ::1.
    let lookup = |_: &str| Ok(vec!["::1".parse().unwrap(), "127.0.0.1".parse().unwrap()]);
    let egress = Egress::honest(ESTABLISHED);
    let client =
        Client::with_lookups(through(egress.proxy()), Lookups::new(Box::new(lookup))).unwrap();
    let url = target(&format!("http://hooks.example.com:{port}/"));
    assert_status(&post(&client, &url), 200);
    let heads = egress.heads();
    assert_eq!(heads.len(), 2);
    assert!(heads[0].starts_with(&format!(
        "CONNECT [::1]:{port} HTTP/1.1\r\nHost: [::1]:{port}\r\n"
    )));
    assert!(heads[1].starts_with(&format!("CONNECT 127.0.0.1:{port} ")));
    // A mapped address is asked for as the IPv4 address that it was judged as.
    let mapped = |_: &str| Ok(vec!["::ffff:127.0.0.1".parse().unwrap()]);
    let client =
        Client::with_lookups(through(egress.proxy()), Lookups::new(Box::new(mapped))).unwrap();
    assert_status(&post(&client, &url), 200);
    assert!(egress.heads()[2].starts_with(&format!("CONNECT 127.0.0.1:{port} ")));
    // A refusal is the proxy's word on all of them.
    let strict = Egress::saying("HTTP/1.1 403 No\r\n\r\n");
    let client =
        Client::with_lookups(through(strict.proxy()), Lookups::new(Box::new(lookup))).unwrap();
    assert_internal(&post(&client, &url), "(403)");
    assert_eq!(strict.heads().len(), 1);
}

#[test]
fn name_of_the_proxy_is_looked_up_as_it_is_written() {
    let server = Server::answering(OK);
    let egress = Egress::honest(ESTABLISHED);
    let lookup = |name: &str| match name {
        "squid" => Ok(vec!["127.0.0.2".parse().unwrap()]),
        _ => Err(std::io::Error::other("no such name")),
    };
    let named = |host: &str| {
        let settings = through(Some(Proxy {
            host: host.to_owned(),
            port: egress.address.port(),
            credentials: None,
        }));
        Client::with_lookups(settings, Lookups::new(Box::new(lookup))).unwrap()
    };
    assert_status(&post(&named("squid"), &http(server.address)), 200);
    assert_internal(&post(&named("octopus"), &http(server.address)), "resolve");
}

#[test]
fn stale_connection_through_a_proxy_costs_no_attempt() {
    let server = Server::start(|mut stream, number| {
        super::server::read_request(&mut stream);
        let _ = stream.write_all(OK.as_bytes());
        if number == 0 {
            let _ = stream.read(&mut [0]);
            return;
        }
        while super::server::read_request(&mut stream).is_some() {
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    let egress = Egress::honest(ESTABLISHED);
    let client = Client::new(through(egress.proxy())).unwrap();
    assert_status(&post(&client, &http(server.address)), 200);
    assert_status(&post(&client, &http(server.address)), 200);
    assert_eq!(egress.heads().len(), 2);
}
