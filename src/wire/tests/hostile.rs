//! Receivers that are slow, broken or malicious: every one of them costs at most the deadline.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::server::{OK, Server, hold, read_request};
use super::*;

const DEADLINE: Duration = Duration::from_millis(500);
/// How much longer than its deadline an exchange may take on a busy machine.
const GRACE: Duration = Duration::from_secs(3);

/// A server that reads the request, then says this and keeps the connection open.
fn saying(bytes: impl Into<Vec<u8>>) -> Server {
    let bytes = bytes.into();
    Server::start(move |mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(&bytes);
        hold(stream);
    })
}

/// A server that reads the request, then says this and closes.
fn closing_after(bytes: impl Into<Vec<u8>>) -> Server {
    let bytes = bytes.into();
    Server::start(move |mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(&bytes);
    })
}

/// A server that says something again and again.
fn repeating(first: &'static str, again: &'static str, every: Duration) -> Server {
    Server::start(move |mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(first.as_bytes());
        while stream.write_all(again.as_bytes()).is_ok() {
            thread::sleep(every);
        }
    })
}

fn within_deadline(server: &Server) -> Outcome {
    let client = Client::new(impatient(DEADLINE)).unwrap();
    let started = Instant::now();
    let outcome = post(&client, &http(server.address));
    assert!(started.elapsed() < DEADLINE + GRACE);
    outcome
}

#[test]
fn silence_instead_of_headers_is_a_timeout_of_the_headers() {
    let outcome = within_deadline(&saying(""));
    assert_failure(&outcome, Category::Timeout, Some(Phase::Headers));
}

#[test]
fn dripping_headers_are_a_timeout_of_the_headers() {
    let server = repeating("HTTP/1.1 200 OK\r\n", "x: y\r\n", Duration::from_millis(50));
    let outcome = within_deadline(&server);
    assert_failure(&outcome, Category::Timeout, Some(Phase::Headers));
}

#[test]
fn dripping_body_is_a_timeout_of_the_body() {
    let server = repeating(
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
        "x",
        Duration::from_millis(50),
    );
    let outcome = within_deadline(&server);
    assert_failure(&outcome, Category::Timeout, Some(Phase::Body));
    assert!(outcome.response_bytes > 0);
    assert_eq!(outcome.excerpt.len() as u64, outcome.response_bytes);
}

#[test]
fn request_that_is_drained_byte_by_byte_is_a_timeout_of_sending() {
    let server = Server::start(|mut stream, _| {
        while stream.read_exact(&mut [0; 4096]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let client = Client::new(impatient(DEADLINE)).unwrap();
    let body = vec![b'x'; 64 * 1024 * 1024];
    let started = Instant::now();
    let outcome = client.post(&http(server.address), &[], &body, NOW);
    assert_failure(&outcome, Category::Timeout, Some(Phase::Send));
    assert!(started.elapsed() < DEADLINE + GRACE);
}

#[test]
fn endless_body_is_cut_and_the_status_counts() {
    let server = Server::start(|mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n");
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
    });
    let outcome = post(&client(), &http(server.address));
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt.len(), 4096);
    assert!(outcome.response_bytes < 128 * 1024);
}

#[test]
fn excerpt_keeps_bytes_that_are_no_text() {
    let server =
        Server::answering(b"HTTP/1.1 500 Oops\r\ncontent-length: 5\r\n\r\na\0\xff\xfeb".to_vec());
    let outcome = post(&client(), &http(server.address));
    assert_status(&outcome, 500);
    assert_eq!(outcome.excerpt, b"a\0\xff\xfeb");
}

#[test]
fn what_is_not_http_is_a_protocol_failure_of_the_headers() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "220 mail.example.com ESMTP\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        "\0\0\0\0\0\0\0\0",
    ] {
        let outcome = post(&client(), &http(saying(garbage).address));
        assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    }
}

#[test]
fn details_never_quote_the_receiver() {
    let outcome = post(&client(), &http(saying("EVIL<script>\r\n\r\n").address));
    let Answer::Failure { detail, .. } = outcome.answer else {
        panic!("expected a failure");
    };
    assert!(!detail.contains("EVIL"));
}

#[test]
fn oversized_headers_are_a_protocol_failure() {
    let line = format!("x-filler: {}\r\n", "y".repeat(1000));
    let server = saying(format!("HTTP/1.1 200 OK\r\n{}\r\n", line.repeat(40)));
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    let server = saying(format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(100_000)));
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
}

#[test]
fn too_many_headers_are_a_protocol_failure() {
    let server = saying(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(500)));
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
}

#[test]
fn informational_responses_are_skipped() {
    let server = Server::answering(format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n{OK}"
    ));
    assert_status(&post(&client(), &http(server.address)), 200);
}

#[test]
fn informational_responses_may_have_header_lines_and_come_in_any_pieces() {
    let all = "HTTP/1.1 100 Continue\r\nserver: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
               HTTP/1.1 102 Processing\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let whole = post(&client(), &http(saying(all).address));
    assert_status(&whole, 200);
    let slow = Server::start(move |mut stream, _| {
        read_request(&mut stream);
        for byte in all.as_bytes() {
            let _ = stream.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(1));
        }
        hold(stream);
    });
    let outcome = post(&client(), &http(slow.address));
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt, b"ok");
    // A body may look like one.
    let body = "HTTP/1.1 100 Continue\r\n\r\n";
    let server = closing_after(format!("HTTP/1.1 200 OK\r\n\r\n{body}"));
    let outcome = post(&client(), &http(server.address));
    assert_eq!(outcome.excerpt, body.as_bytes());
}

#[test]
fn body_without_a_length_ends_with_the_connection_but_not_with_a_broken_one() {
    let head = "HTTP/1.1 200 OK\r\n\r\nhalf";
    let outcome = post(&client(), &http(closing_after(head).address));
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt, b"half");
    let reset = Server::start(move |mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(head.as_bytes());
        thread::sleep(Duration::from_millis(100));
        // Closing with a linger time of zero sends RST instead of FIN.
        let zero = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &zero).unwrap();
    });
    let outcome = post(&client(), &http(reset.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Body));
    assert_eq!(outcome.excerpt, b"half");
}

#[test]
fn more_informational_responses_than_anybody_needs_are_no_http() {
    for (count, works) in [(100, true), (101, false)] {
        let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(count);
        let server = saying(format!("{flood}{OK}"));
        let outcome = post(&client(), &http(server.address));
        if works {
            assert_status(&outcome, 200);
        } else {
            assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
        }
    }
}

#[test]
fn informational_response_that_is_no_http_is_not_skipped() {
    let server = saying(format!("HTTP/1.1 100 Continue\r\nnonsense\r\n\r\n{OK}"));
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
}

#[test]
fn flood_of_informational_responses_ends_before_the_deadline() {
    // Paced, so that each is read by itself: ureq alone would go on for ever.
    let hint = format!(
        "HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n",
        "x".repeat(1000)
    );
    let server = Server::start(move |mut stream, _| {
        read_request(&mut stream);
        while stream.write_all(hint.as_bytes()).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let started = Instant::now();
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn switching_protocols_is_a_status_and_not_a_switch() {
    let server = saying("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n");
    let outcome = within_deadline(&server);
    assert_status(&outcome, 101);
}

#[test]
fn early_close_names_the_phase() {
    let outcome = post(&client(), &http(closing_after("").address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    let outcome = post(
        &client(),
        &http(closing_after("HTTP/1.1 200 OK\r\nx").address),
    );
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    let server = closing_after("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Body));
    assert_eq!(outcome.excerpt, b"half");
}

#[test]
fn broken_chunks_are_a_protocol_failure_of_the_body() {
    let server = saying("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhalf\r\n");
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Body));
}

#[test]
fn body_that_ends_with_the_connection_is_complete() {
    let server = closing_after("HTTP/1.0 200 OK\r\n\r\nto the end");
    let outcome = post(&client(), &http(server.address));
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt, b"to the end");
}
