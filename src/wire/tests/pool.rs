//! Reuse of connections, and the races that come with it.

use std::io::{Read, Write};
use std::net::TcpStream;

use ureq::unversioned::transport::{Either, Transport};

use super::server::{OK, Server, read_request};
use super::*;
use crate::wire::pool::{Connection, Key, Lease, Pool};
use crate::wire::socket::Socket;

#[test]
fn connection_is_kept_and_used_again() {
    let server = Server::answering(OK);
    let client = client();
    for _ in 0..5 {
        assert_status(&post(&client, &http(server.address)), 200);
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn failed_status_keeps_the_connection() {
    let server = Server::answering("HTTP/1.1 503 No\r\ncontent-length: 3\r\n\r\nno!");
    let client = client();
    for _ in 0..3 {
        assert_status(&post(&client, &http(server.address)), 503);
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn stale_connection_costs_no_attempt() {
    // The first connection answers once and closes when the second request arrives on it, which is
    // after the moment when the client could have noticed.
    let server = Server::start(|mut stream, number| {
        read_request(&mut stream);
        let _ = stream.write_all(OK.as_bytes());
        if number == 0 {
            let _ = stream.read(&mut [0]);
            return;
        }
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    let client = client();
    assert_status(&post(&client, &http(server.address)), 200);
    assert_status(&post(&client, &http(server.address)), 200);
    assert_eq!(server.connections(), 2);
    assert_status(&post(&client, &http(server.address)), 200);
    assert_eq!(server.connections(), 2);
}

#[test]
fn new_connection_that_closes_is_not_tried_again() {
    let server = Server::start(|mut stream, _| {
        read_request(&mut stream);
    });
    let outcome = post(&client(), &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    assert_eq!(server.connections(), 1);
}

#[test]
fn reused_connection_that_breaks_within_a_response_is_not_tried_again() {
    let server = Server::start(|mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(OK.as_bytes());
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 2");
    });
    let client = client();
    assert_status(&post(&client, &http(server.address)), 200);
    let outcome = post(&client, &http(server.address));
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
    assert_eq!(server.connections(), 1);
}

#[test]
fn bytes_after_a_response_do_not_become_the_next_one() {
    let server = Server::answering(format!(
        "{OK}HTTP/1.1 500 Fake\r\ncontent-length: 0\r\n\r\n"
    ));
    let client = client();
    for _ in 0..3 {
        assert_status(&post(&client, &http(server.address)), 200);
    }
    assert_eq!(server.connections(), 3);
}

#[test]
fn connections_of_one_host_do_not_serve_another() {
    let server = Server::answering(OK);
    let client = client_with_names(settings());
    let port = server.address.port();
    for name in ["a.example.com", "b.example.com", "a.example.com"] {
        let outcome = post(&client, &target(&format!("http://{name}:{port}/")));
        assert_status(&outcome, 200);
    }
    assert_eq!(server.connections(), 2);
}

#[test]
fn connection_to_an_address_that_is_not_vetted_any_more_is_not_lent() {
    let server = Server::answering(OK);
    let pool = arc(Pool::new(8, 8));
    shelve(&pool, &server);
    let moved = SocketAddr::from(([127, 0, 0, 2], server.address.port()));
    assert!(pool.take(&key(&server), &[moved]).is_none());
    shelve(&pool, &server);
    assert!(pool.take(&key(&server), &[moved, server.address]).is_some());
    assert!(pool.take(&key(&server), &[server.address]).is_none());
}

#[test]
fn connection_that_the_peer_closed_is_not_lent() {
    let server = Server::start(|stream, _| drop(stream));
    let pool = arc(Pool::new(8, 8));
    shelve(&pool, &server);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(pool.take(&key(&server), &[server.address]).is_none());
}

#[test]
fn idle_connections_stay_within_their_limits() {
    let servers: Vec<Server> = (0..4).map(|_| Server::answering(OK)).collect();
    let pool = arc(Pool::new(3, 2));
    let lent = |server: &Server| {
        let taken: Vec<Connection> =
            std::iter::from_fn(|| pool.take(&key(server), &[server.address])).collect();
        taken.len()
    };
    for _ in 0..5 {
        shelve(&pool, &servers[0]);
    }
    assert_eq!(lent(&servers[0]), 2);
    for server in &servers {
        shelve(&pool, server);
    }
    // The oldest had to go.
    let left: Vec<usize> = servers.iter().map(lent).collect();
    assert_eq!(left, [0, 1, 1, 1]);
}

#[test]
fn pool_of_no_size_keeps_nothing() {
    let server = Server::answering(OK);
    for (max, max_per_host) in [(0, 8), (8, 0)] {
        let pool = arc(Pool::new(max, max_per_host));
        shelve(&pool, &server);
        assert!(pool.take(&key(&server), &[server.address]).is_none());
    }
}

fn key(server: &Server) -> Key {
    Key {
        https: false,
        authority: server.address.to_string().parse().unwrap(),
    }
}

/// Opens a connection and hands it to the pool, as ureq does at the end of a response.
fn shelve(pool: &Arc<Pool>, server: &Server) {
    let socket = Socket::new(TcpStream::connect(server.address).unwrap());
    let connection = Connection::new(Either::A(socket), server.address);
    assert!(!Lease::new(connection, key(server), Arc::clone(pool)).is_open());
}
