//! What goes out: order, content and refusal of headers.

use std::sync::Arc;

use super::server::{OK, Seen, Server};
use super::*;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::profile::Profile;
use crate::rules::signing::{Secret, SigningKey, sign, signature_header};
use crate::wire::job::{Fault, Job};
use crate::wire::send::{send, wall_clock};

fn key(id: i64, byte: u8) -> SigningKey {
    SigningKey {
        id,
        key: Secret::from_bytes(&[byte; 32]).unwrap().into(),
    }
}

fn job(target: Target) -> Job {
    Job {
        ticket: 1,
        target: Ok(Arc::new(target)),
        pair: Pair {
            event: EventId::new(1_700_000_000_000, 7),
            endpoint: EndpointId(42),
        },
        attempt: 3,
        headers: Arc::new(vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            (
                "traceparent".to_owned(),
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
            ),
        ]),
        extra: Arc::new(vec![("X-Tenant".to_owned(), "7".to_owned())]),
        profile: Profile::V1,
        body: "{\"price\":1.10}".into(),
        keys: Arc::new(vec![key(11, 1), key(12, 2)]),
        fault: None,
        room: 1,
        looked_through: 0,
    }
}

fn only_request(server: &Server) -> Seen {
    let mut requests = server.requests();
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

#[test]
fn request_is_a_post_with_host_first_and_nothing_unasked() {
    let server = Server::answering(OK);
    let outcome = send(&client(), &job(http(server.address)));
    assert_status(&outcome, 200);
    let seen = only_request(&server);
    assert!(seen.head.starts_with("POST /hook HTTP/1.1\r\n"));
    let names: Vec<&str> = seen.headers().iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "host",
            "content-type",
            "user-agent",
            "content-length",
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
            "webhook-delivery",
            "webhook-attempt",
            "webhook-key-id",
            "traceparent",
            "x-tenant",
        ]
    );
    assert_eq!(seen.header("host").unwrap(), server.address.to_string());
    assert_eq!(seen.header("content-type").unwrap(), "application/json");
    assert_eq!(seen.header("user-agent").unwrap(), "webhook_outbox/0.1.0");
    assert_eq!(seen.header("webhook-attempt").unwrap(), "3");
    assert_eq!(seen.body, b"{\"price\":1.10}");
}

#[test]
fn every_key_signs_what_is_sent() {
    let server = Server::answering(OK);
    let job = job(http(server.address));
    let outcome = send(&client(), &job);
    assert_eq!(outcome.key_ids, [11, 12]);
    let seen = only_request(&server);
    let id = job.pair.event.to_string();
    assert_eq!(seen.header("webhook-id").unwrap(), id);
    assert_eq!(
        seen.header("webhook-delivery").unwrap(),
        job.pair.to_string()
    );
    assert_eq!(seen.header("webhook-key-id").unwrap(), "11 12");
    let timestamp: i64 = seen.header("webhook-timestamp").unwrap().parse().unwrap();
    assert_eq!(timestamp, outcome.started_at.div_euclid(1_000_000));
    let expected: Vec<String> = job
        .keys
        .iter()
        .map(|key| sign(&key.key, &id, timestamp, &seen.body))
        .collect();
    assert_eq!(
        seen.header("webhook-signature").unwrap(),
        expected.join(" ")
    );
}

#[test]
fn a_request_that_is_wrong_on_purpose_is_wrong_in_one_way_only() {
    for fault in [
        Fault::Stale,
        Fault::BadSignature,
        Fault::Duplicate,
        Fault::Malformed,
    ] {
        let server = Server::answering(OK);
        let job = Job {
            fault: Some(fault),
            ..job(http(server.address))
        };
        let before = wall_clock() / 1_000_000;
        assert_status(&send(&client(), &job), 200);
        let seen = only_request(&server);
        let timestamp: i64 = seen.header("webhook-timestamp").unwrap().parse().unwrap();
        let id = seen.header("webhook-id").unwrap().to_owned();
        let right = signature_header(&job.keys, &id, timestamp, job.body.as_bytes());
        let sent = seen.header("webhook-signature").unwrap().to_owned();
        assert_eq!(sent == right, fault != Fault::BadSignature, "{fault:?}");
        assert_eq!(sent.len(), right.len(), "{fault:?}");
        assert_eq!(before - timestamp > 300, fault == Fault::Stale, "{fault:?}");
    }
}

#[test]
fn unsigned_event_is_not_sent() {
    let server = Server::answering(OK);
    for profile in Profile::ALL {
        let mut job = job(http(server.address));
        job.keys = Arc::default();
        job.profile = profile;
        let outcome = send(&client(), &job);
        assert_failure(&outcome, Category::Internal, None);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn each_profile_sends_its_own_signature_and_no_other() {
    for profile in Profile::ALL {
        let server = Server::answering(OK);
        let job = Job {
            profile,
            ..job(http(server.address))
        };
        let outcome = send(&client(), &job);
        assert_status(&outcome, 200);
        let seen = only_request(&server);
        for name in Profile::ALL.iter().flat_map(|other| other.names()) {
            let own = profile.names().contains(name);
            assert_eq!(seen.header(name).is_some(), own, "{profile:?}: {name}");
        }
        let ids: Vec<String> = outcome.key_ids.iter().map(i64::to_string).collect();
        assert_eq!(seen.header("webhook-key-id").unwrap(), ids.join(" "));
        assert_eq!(seen.header("content-type").unwrap(), "application/json");
    }
}

#[test]
fn refused_target_is_blocked_without_a_socket() {
    let mut job = job(target("http://127.0.0.1:4444/"));
    job.target = Err(Boundary::default().target("https://10.0.0.1/").unwrap_err());
    assert_failure(&send(&client(), &job), Category::Blocked, None);
}

#[test]
fn header_that_could_start_another_is_not_sent() {
    let server = Server::answering(OK);
    for value in ["a\r\nx-injected: 1", "a\nb", "a\rb", "a\0b", "caf\u{e9}"] {
        let headers = [("traceparent".to_owned(), value.to_owned())];
        let outcome = client().post(&http(server.address), &headers, b"{}", NOW);
        assert_failure(&outcome, Category::Internal, None);
    }
    for name in [
        "a b",
        "a\r\nb",
        "",
        "host",
        "transfer-encoding",
        "connection",
    ] {
        let headers = [(name.to_owned(), "x".to_owned())];
        let outcome = client().post(&http(server.address), &headers, b"{}", NOW);
        assert_failure(&outcome, Category::Internal, None);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn content_type_can_be_replaced_in_place() {
    let server = Server::answering(OK);
    let headers = [(
        "content-type".to_owned(),
        "application/cloudevents+json".to_owned(),
    )];
    client().post(&http(server.address), &headers, b"{}", NOW);
    let seen = only_request(&server);
    assert_eq!(
        seen.headers()[1],
        ("content-type", "application/cloudevents+json")
    );
}

#[test]
fn every_url_that_the_boundary_accepts_can_be_sent() {
    let server = Server::answering(OK);
    for rest in [
        "",
        "/?",
        "/a|b^c`d{e}~!$&'()*+,;=:@[x]",
        "/?q=a|b^c`d{e}[f]'\"<>\\",
        "/caf\u{e9}/%2e%2E/%00",
        "//double//slash",
        "/#fragment",
    ] {
        let Ok(target) = boundary().target(&format!("http://{}{rest}", server.address)) else {
            continue;
        };
        assert_status(&post(&client(), &target), 200);
    }
}

#[test]
fn user_agent_that_no_header_can_hold_is_refused() {
    let broken = ClientSettings {
        user_agent: "a\r\nb".to_owned(),
        ..settings()
    };
    assert!(Client::new(broken).is_err());
}
