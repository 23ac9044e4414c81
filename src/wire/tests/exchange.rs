//! What a well-behaved receiver, or none, makes of an exchange.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
};

use super::server::{OK, Server};
use super::*;

#[test]
fn a_success_is_recorded_with_its_response() {
    let server = Server::answering(OK);
    let outcome = post(&client(), &http(server.address));
    assert_status(&outcome, 200);
    assert_eq!(outcome.started_at, NOW);
    assert_eq!(outcome.excerpt, b"ok");
    assert_eq!(outcome.response_bytes, 2);
    assert!(outcome.latency_us > 0 && outcome.key_ids.is_empty());
}

#[test]
fn redirect_is_recorded_and_not_followed() {
    let elsewhere = Server::answering(OK);
    for code in [301, 302, 303, 307, 308] {
        let server = Server::answering(format!(
            "HTTP/1.1 {code} Elsewhere\r\nlocation: http://{}/\r\ncontent-length: 4\r\n\r\ngone",
            elsewhere.address
        ));
        let outcome = post(&client(), &http(server.address));
        assert_status(&outcome, code);
        assert_eq!(outcome.excerpt, b"gone");
        assert_eq!(server.connections(), 1);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn any_status_is_data() {
    for code in [204, 226, 304, 400, 404, 410, 418, 500, 503, 599, 600, 999] {
        let server = Server::answering(format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\n\r\n"));
        assert_status(&post(&client(), &http(server.address)), code);
    }
}

#[test]
fn retry_after_lines_are_collected_raw() {
    let server = Server::answering(
        b"HTTP/1.1 429 Slow\r\nretry-after: 120\r\nRetry-After: b\xffd\r\ncontent-length: 0\r\n\r\n"
            .to_vec(),
    );
    let outcome = post(&client(), &http(server.address));
    assert_eq!(
        outcome.answer,
        Answer::Status {
            code: 429,
            retry_after: vec!["120".to_owned(), "b\u{fffd}d".to_owned()],
        }
    );
}

#[test]
fn refused_connection_is_told_apart() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let outcome = post(&client(), &http(address));
    assert_failure(&outcome, Category::ConnectRefused, Some(Phase::Connect));
}

#[test]
fn silent_host_is_a_connect_timeout() {
    // A listener whose backlog is full drops further connections without a word.
    let listener = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    use std::os::fd::AsRawFd;
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let bound: SockaddrIn = getsockname(listener.as_raw_fd()).unwrap();
    let address = SocketAddr::from((bound.ip(), bound.port()));
    let mut waiting = Vec::new();
    while let Ok(stream) =
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
    {
        waiting.push(stream);
    }

    let client = Client::new(ClientSettings {
        connect_timeout: Duration::from_millis(300),
        ..settings()
    })
    .unwrap();
    let started = Instant::now();
    let outcome = post(&client, &http(address));
    assert_failure(&outcome, Category::ConnectTimeout, Some(Phase::Connect));
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn blocked_address_opens_no_socket() {
    let server = Server::answering(OK);
    let strict = Client::new(ClientSettings {
        boundary: Boundary::default(),
        ..settings()
    })
    .unwrap();
    // The target passed under another boundary, as after a change of the settings.
    let outcome = post(&strict, &http(server.address));
    assert_failure(&outcome, Category::Blocked, Some(Phase::Resolve));
    assert_eq!(server.connections(), 0);
}

#[test]
fn name_that_resolves_to_a_blocked_address_opens_no_socket() {
    let server = Server::answering(OK);
    let strict = client_with_names(ClientSettings {
        boundary: Boundary::default(),
        ..settings()
    });
    let url = format!("http://hooks.example.com:{}/", server.address.port());
    let outcome = post(&strict, &target(&url));
    assert_failure(&outcome, Category::Blocked, Some(Phase::Resolve));
    assert_eq!(server.connections(), 0);
}

#[test]
fn proxy_variables_of_the_environment_are_ignored() {
    // The variables must be there before the first client is made, so the test is run again, in a
    // process of its own. Nothing listens on port 9: whoever heeds the variables fails.
    let mut child = Command::new(std::env::current_exe().unwrap());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        child.env(name, "http://127.0.0.1:9");
        child.env(name.to_lowercase(), "http://127.0.0.1:9");
    }
    let output = child
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .args([
            "--exact",
            "wire::tests::exchange::a_success_is_recorded_with_its_response",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
