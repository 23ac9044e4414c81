//! Tests of the room against real sockets on the loopback interface.

mod crew;
mod exchange;
mod headers;
mod hostile;
mod lane;
mod pool;
mod proxy;
mod queue;
mod resolver;
mod server;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::rules::address::{Boundary, Ports};
use crate::rules::delivery::{Answer, Category, Outcome, Phase};
use crate::rules::target::Target;
use crate::wire::client::{Client, ClientSettings};
use crate::wire::lookup::Lookups;

const NOW: i64 = 1_700_000_000_123_456;

fn boundary() -> Boundary {
    Boundary {
        allow_http: true,
        ports: Ports::AnyAllowed,
        allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
        ..Boundary::default()
    }
}

fn settings() -> ClientSettings {
    ClientSettings {
        boundary: boundary(),
        proxy: None,
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(20),
        max_excerpt: 4096,
        user_agent: "webhook_outbox/0.1.0".to_owned(),
        ca_pem: None,
        max_idle_per_host: 8,
        max_idle: 64,
    }
}

fn impatient(request_timeout: Duration) -> ClientSettings {
    ClientSettings {
        request_timeout,
        ..settings()
    }
}

fn client() -> Client {
    Client::new(settings()).unwrap()
}

/// A client for which every name stands for the loopback address.
fn client_with_names(settings: ClientSettings) -> Client {
    let lookup = |_: &str| Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    Client::with_lookups(settings, Lookups::new(Box::new(lookup))).unwrap()
}

fn target(url: &str) -> Target {
    boundary().target(url).unwrap()
}

fn http(address: SocketAddr) -> Target {
    target(&format!("http://{address}/hook"))
}

fn post(client: &Client, target: &Target) -> Outcome {
    client.post(target, &[], b"{}", NOW)
}

#[track_caller]
fn assert_status(outcome: &Outcome, expected: u16) {
    match &outcome.answer {
        Answer::Status { code, .. } if *code == expected => {}
        other => panic!("expected status {expected}, got {other:?}"),
    }
}

#[track_caller]
fn assert_failure(outcome: &Outcome, category: Category, phase: Option<Phase>) {
    match &outcome.answer {
        Answer::Failure {
            category: is,
            phase: at,
            detail,
        } if *is == category && *at == phase => {
            assert!(!detail.is_empty() && detail.len() < 200);
        }
        other => panic!("expected {category:?} at {phase:?}, got {other:?}"),
    }
}

fn arc<T>(value: T) -> Arc<T> {
    Arc::new(value)
}
