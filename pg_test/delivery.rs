//! What arrives at a receiver: signed requests whose bytes and headers are as promised, on the first attempt, after
//! a failure and after a replay.

use std::{
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE, quoted},
    receiver::{Answer, Receiver, Request},
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "300ms,300ms,300ms")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn both_public_libraries_accept_every_attempt_and_its_bytes_never_change() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    // The first attempt fails, the second arrives, the third is a replay.
    receiver.behave("/hook", |request| match request.header("webhook-attempt") {
        Some("1") => Answer::status(500),
        _ => Answer::status(200),
    });
    let endpoint = shop.endpoint("bytes", &receiver.url("/hook"));

    let mut expected = Vec::new();
    for data in [
        r#"{"name": "Žofie 🐘 \u00e9", "ключ": "значение", "combining": "e\u0301"}"#,
        r#"{"price": 1.10}"#,
        r#"{"large": 12345678901234567890.123456789}"#,
        r#"{"quote": "\"", "backslash": "\\", "control": "\u0001\n\t", "slash": "\/", "html": "<&>", "line": "\u2028"}"#,
        r#"[1, "two", null, true, {}]"#,
        r#""text""#,
        "null",
    ] {
        let event = shop.emit("bytes.jsonb", "bytes", data);
        expected.push((event, shop.text(&format!("select {}::jsonb", quoted(data)))));
    }
    for data in [
        r#"{"huge": 1e400}"#,
        r#"{ "b" : 1.10,  "a":2 , "a" : 3,"e":1E+2 ,"u":"\u00e9\/" }"#,
        &format!(r#"{{"long": "{}"}}"#, "0123456789 äöü ".repeat(10_900)),
    ] {
        let event = shop.text(&format!(
            "select webhook.emit_json('bytes.json', 'bytes', {})",
            quoted(data)
        ));
        expected.push((event, data.to_owned()));
    }
    assert!(expected.iter().any(|(_, data)| data.len() > 195_000));

    for (event, _) in &expected {
        let delivery = shop.wait_for_attempts(event, &endpoint, 2);
        assert_eq!(delivery.state, "delivered");
        shop.run(&format!("select webhook.replay('{event}')"));
    }
    for (event, data) in &expected {
        let delivery = shop.wait_for_attempts(event, &endpoint, 3);
        let requests = of_event(&receiver, event);
        assert_eq!(requests.len(), 3, "{event}");
        for (attempt, request) in shop.attempts(event, &endpoint).iter().zip(&requests) {
            assert_eq!(request.header("webhook-delivery"), Some(&*delivery.id));
            assert_eq!(
                request.header("webhook-attempt"),
                Some(&*attempt.number.to_string())
            );
            // The second of the attempt itself, not that of the event or of the first attempt.
            let second = attempt.started_at.floor();
            assert_eq!(
                request.header("webhook-timestamp"),
                Some(&*second.to_string())
            );
            assert!((seconds(request.wall) - attempt.started_at).abs() < 60.0);
            assert_eq!(request.body, requests[0].body);
        }
        let start = format!(r#"{{"event_id":"{event}","type":"bytes."#);
        assert!(requests[0].text().starts_with(&start));
        assert!(
            requests[0]
                .text()
                .ends_with(&format!(r#","data":{data}}}"#))
        );
    }
    assert_eq!(
        verifier::objections(&endpoint.secret, &receiver.requests()),
        Vec::<String>::new()
    );
}

#[test]
fn envelope_names_what_was_given_in_its_order_and_leaves_out_the_rest() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let live = shop.endpoint("envelope", &receiver.url("/live"));
    let test = shop.endpoint_with("envelope", &receiver.url("/test"), ", test => true");
    // Neither the session's time zone nor its style of dates reaches the wire.
    shop.run("set timezone = 'Asia/Kathmandu'; set datestyle = 'German'");
    let full = shop.emit_with(
        "customer.created",
        "envelope",
        r#"{"n":1}"#,
        ", subject_type => 'customer', subject_id => 'c \"1\"', subject_version => 7, source => 'crm',
           scope => 'eu', occurred_at => '2024-02-29 12:34:56.7+05:45', schema_version => '2',
           correlation_id => 'order-9', causation => 'evt_01ARZ3NDEKTSV4RRFFQ69G5FAV',
           traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'",
    );
    let bare = shop.emit_with("customer.created", "envelope", "{}", ", test => true");
    shop.wait_for_state(&full, &live, "delivered");
    shop.wait_for_state(&bare, &test, "delivered");

    let requests = receiver.requests_for("/live");
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].text(),
        format!(
            r#"{{"event_id":"{full}","type":"customer.created","source":"crm","occurred_at":"2024-02-29T06:49:56.700000Z","partner_id":"envelope","subject":{{"type":"customer","id":"c \"1\"","version":7}},"scope":"eu","schema_version":"2","correlation_id":"order-9","data":{{"n": 1}}}}"#
        )
    );
    assert_eq!(
        requests[0].header("traceparent"),
        Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    );

    let requests = receiver.requests_for("/test");
    assert_eq!(requests.len(), 1);
    let body: Value = serde_json::from_slice(&requests[0].body).expect("JSON");
    let occurred_at = body["occurred_at"].as_str().expect("a time");
    assert_eq!(
        requests[0].text(),
        format!(
            r#"{{"event_id":"{bare}","type":"customer.created","occurred_at":"{occurred_at}","partner_id":"envelope","test":true,"data":{{}}}}"#
        )
    );
    assert!(shop.is(&format!(
        "occurred_at = '{occurred_at}' from webhook.events where event_id = '{bare}'"
    )));
    assert_eq!(requests[0].header("traceparent"), None);
}

#[test]
fn request_names_the_host_first_and_asks_for_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("headers", &receiver.url("/hook?tenant=1&x=%20y"));
    let event = shop.emit("customer.created", "headers", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let request = receiver.wait_for(1, PATIENCE).remove(0);
    let key = shop.text(&format!(
        "select key_ids[1] from webhook.endpoints where endpoint_id = {} and cardinality(key_ids) = 1",
        endpoint.id
    ));

    let head = String::from_utf8(request.head.clone()).expect("text");
    let address = receiver.address();
    assert!(head.starts_with(&format!(
        "POST /hook?tenant=1&x=%20y HTTP/1.1\r\nhost: {address}\r\n"
    )));
    let names: Vec<&str> = request
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
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
        ]
    );
    assert_eq!(request.header("content-type"), Some("application/json"));
    let version = shop.text("select library_version from webhook.stat_worker");
    let agent = format!("webhook_outbox/{version}");
    assert_eq!(request.header("user-agent"), Some(&*agent));
    assert_eq!(request.header("webhook-id"), Some(&*event));
    assert_eq!(request.header("webhook-attempt"), Some("1"));
    assert_eq!(request.header("webhook-key-id"), Some(&*key));
}

#[test]
fn each_endpoint_signs_with_its_own_secret() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let one = shop.endpoint("secrets", &receiver.url("/one"));
    let two = shop.endpoint("secrets", &receiver.url("/two"));
    shop.emit("customer.created", "secrets", "{}");
    receiver.wait_for(2, PATIENCE);
    let (to_one, to_two) = (receiver.requests_for("/one"), receiver.requests_for("/two"));
    assert_eq!(to_one[0].body, to_two[0].body);
    let none = Vec::<String>::new();
    assert_eq!(verifier::objections(&one.secret, &to_one), none);
    assert_eq!(verifier::objections(&two.secret, &to_two), none);
    assert_eq!(verifier::objections(&two.secret, &to_one).len(), 2);
}

#[test]
fn connection_is_kept_for_the_next_request() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("connection", &receiver.url("/hook"));
    for _ in 0..5 {
        let event = shop.emit("customer.created", "connection", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
    assert_eq!((receiver.count(), receiver.connections()), (5, 1));
}

#[test]
fn views_show_what_happened_and_no_payload() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![Answer::status(500).body("try later"), Answer::status(202)],
    );
    let endpoint = shop.endpoint("views", &receiver.url("/hook"));
    let event = shop.emit_with(
        "customer.created",
        "views",
        r#"{"private": "0d9fa7"}"#,
        ", subject_type => 'customer', subject_id => '9', correlation_id => 'views-1'",
    );
    let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!((delivery.attempts, delivery.status), (2, Some(202)));
    assert_eq!((delivery.category, delivery.next_attempt_at), (None, None));

    let attempts = shop.attempts(&event, &endpoint);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].outcome, "retry");
    assert_eq!(attempts[0].status, Some(500));
    assert_eq!(attempts[0].category.as_deref(), Some("server_error"));
    assert_eq!(attempts[1].outcome, "delivered");
    assert!(attempts.iter().all(|attempt| attempt.latency_ms.is_some()));
    let id = &delivery.id;
    assert_eq!(
        shop.text(&format!("select webhook.read_excerpt('{id}', 1)")),
        "try later"
    );
    assert!(shop.is(&format!(
        "published_at > emitted_at and subject_id = '9' from webhook.events where event_id = '{event}'"
    )));
    assert_eq!(
        shop.column(&format!(
            "select delivery_id from webhook.list_deliveries(partner_id => 'views', state => 'delivered')
             where event_id = '{event}'"
        )),
        std::slice::from_ref(id)
    );
    for view in ["events", "deliveries", "attempts", "endpoints", "requests"] {
        let all = shop
            .column(&format!("select v::text from webhook.{view} v"))
            .concat();
        assert!(!all.contains("0d9fa7"), "a payload in {view}");
        assert!(!all.contains(&endpoint.secret[6..]), "a secret in {view}");
    }
}

#[test]
fn an_attempt_tells_which_keys_signed_which_bytes() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("keys", &receiver.url("/hook"));
    let event = shop.emit("customer.created", "keys", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let body = receiver.requests()[0].text().to_owned();
    assert!(shop.is(&format!(
        "a.key_ids = e.key_ids and a.body_sha256 = sha256(convert_to({}, 'UTF8'))
           from webhook.attempts a join webhook.endpoints e using (endpoint_id)
          where a.event_id = '{event}' and e.endpoint_id = {}",
        quoted(&body),
        endpoint.id
    )));
}

/// The requests that carried an event, in the order of their attempts.
fn of_event(receiver: &Receiver, event: &str) -> Vec<Request> {
    let mut requests = receiver.requests();
    requests.retain(|request| request.header("webhook-id") == Some(event));
    requests
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_secs_f64()
}
