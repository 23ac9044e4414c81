//! Requests that a receiver asks for to test itself: a good one, and ones that it must recognise as repeated, stale,
//! badly signed or malformed. The public Standard Webhooks libraries judge them, as a receiver would.

use std::{
    sync::LazyLock,
    thread::sleep,
    time::{Duration, UNIX_EPOCH},
};

use webhook_outbox_test::{
    arrivals::json,
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver, Request},
    verifier::{by_python, by_rust, objections},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "200ms")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// What a receiver accepts as the age of a timestamp, in seconds.
const TOLERANCE: u64 = 300;

#[test]
fn a_normal_test_is_signed_like_any_event_and_says_that_it_is_a_test() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let only = ", event_types => '{nothing.of_this}'";
    let endpoint = shop.endpoint_with("normal", &receiver.url("/hook"), only);
    let (event, delivery) = send(&mut shop, &endpoint, "");
    let delivered = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(
        (delivered.id.as_str(), delivered.attempts),
        (delivery.as_str(), 1)
    );
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        objections(&endpoint.secret, &requests),
        Vec::<String>::new()
    );
    assert_eq!(requests[0].header("webhook-id"), Some(&*event));
    assert_eq!(requests[0].header("webhook-delivery"), Some(&*delivery));
    let body = json(&requests[0]);
    assert_eq!(body["event_id"], event.as_str());
    assert_eq!(body["type"], "webhook.test");
    assert_eq!(body["partner_id"], "normal");
    assert_eq!(body["test"], true);
    assert_eq!(body["data"]["kind"], "normal");
    assert_eq!(body["data"]["endpoint_id"], endpoint.id.to_string());
    assert_eq!(body["subject"]["id"], endpoint.id.to_string());
}

#[test]
fn a_test_goes_to_its_endpoint_alone() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("alone", &receiver.url("/hook"));
    let others = [
        shop.endpoint("alone", &receiver.url("/star")),
        shop.endpoint_with(
            "alone",
            &receiver.url("/tests"),
            ", event_types => '{webhook.*}'",
        ),
        shop.endpoint_with(
            "alone",
            &receiver.url("/test"),
            ", event_types => '{*,webhook.test}', test => true",
        ),
        shop.endpoint("alone.other", &receiver.url("/other")),
    ];
    let (event, _) = send(&mut shop, &endpoint, ", 'normal'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    // Whatever was to come has come.
    let live = shop.emit("order.paid", "alone", "{}");
    shop.wait_for_state(&live, &others[0], "delivered");
    sleep(Duration::from_millis(300));
    for other in &others {
        assert_eq!(shop.delivery(&event, other), None);
    }
    let tests = |path: &str| {
        let requests = receiver.requests_for(path);
        requests
            .iter()
            .filter(|r| json(r)["type"] == "webhook.test")
            .count()
    };
    assert_eq!(
        ["/hook", "/star", "/tests", "/test", "/other"].map(tests),
        [1, 0, 0, 0, 0]
    );
}

#[test]
fn a_duplicate_arrives_twice_with_the_same_id_and_both_verify() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("duplicate", &receiver.url("/hook"));
    let (event, _) = send(&mut shop, &endpoint, ", 'duplicate'");
    let requests = receiver.wait_for(2, PATIENCE);
    assert_eq!(
        objections(&endpoint.secret, &requests),
        Vec::<String>::new()
    );
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(&*event));
        assert_eq!(request.body, requests[0].body);
    }
    shop.wait_for_state(&event, &endpoint, "delivered");
    sleep(Duration::from_millis(500));
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_stale_test_is_refused_for_its_timestamp_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("stale", &receiver.url("/hook"));
    let (event, _) = send(&mut shop, &endpoint, ", 'stale'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let age = now(&requests[0]) - timestamp(&requests[0]);
    assert!(age > TOLERANCE, "{age} s");
    let refusal = by_rust(&endpoint.secret, &requests)
        .remove(0)
        .expect_err("a refusal");
    assert!(refusal.contains("too old"), "{refusal}");
    let refusal = by_python(&endpoint.secret, &requests)
        .remove(0)
        .expect_err("a refusal");
    assert!(refusal.contains("too old"), "{refusal}");
    // What it signs is that very timestamp.
    let signature = signature(&endpoint.secret, &requests[0]);
    let sent = requests[0]
        .header("webhook-signature")
        .expect("a signature");
    assert!(sent.split(' ').any(|one| one == signature), "{sent}");
}

#[test]
fn a_badly_signed_test_is_refused_for_its_signature() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("bad", &receiver.url("/hook"));
    let (event, _) = send(&mut shop, &endpoint, ", 'bad_signature'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert!(now(&requests[0]).abs_diff(timestamp(&requests[0])) < TOLERANCE);
    let refusal = by_rust(&endpoint.secret, &requests)
        .remove(0)
        .expect_err("a refusal");
    assert_eq!(refusal, "signature invalid");
    assert!(by_python(&endpoint.secret, &requests)[0].is_err());
    // In the right form: the receiver that only looks for one is the one to be found out.
    let sent = requests[0]
        .header("webhook-signature")
        .expect("a signature");
    assert!(
        sent.starts_with("v1,") && sent.len() == signature(&endpoint.secret, &requests[0]).len(),
        "{sent}"
    );
    assert_eq!(json(&requests[0])["data"]["kind"], "bad_signature");
}

#[test]
fn a_malformed_test_verifies_and_is_no_json() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("malformed", &receiver.url("/hook"));
    let (event, _) = send(&mut shop, &endpoint, ", 'malformed'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(by_rust(&endpoint.secret, &requests), [Ok(())]);
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&requests[0].body);
    assert!(parsed.is_err(), "{}", requests[0].text());
    assert!(!requests[0].body.is_empty());
}

#[test]
fn a_faulty_test_is_tried_once_again_when_asked_and_harms_no_health() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let endpoint = shop.endpoint("failing", &receiver.url("/hook"));
    let (event, delivery) = send(&mut shop, &endpoint, ", 'bad_signature'");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    assert_eq!(dead.attempts, 1);
    // Asked for, it comes again as it was: the fault is part of the event.
    shop.have_done(&format!("retry('{delivery}', 'look again')"));
    shop.wait_for_attempts(&event, &endpoint, 2);
    let requests = receiver.requests();
    assert_eq!(requests[0].body, requests[1].body);
    for verdict in by_rust(&endpoint.secret, &requests) {
        assert!(verdict.is_err());
    }
    assert_eq!(shop.health(&endpoint, "coalesce(failures, 0)"), "0");
    assert!(shop.alerts(&endpoint).is_empty());
}

#[test]
fn a_test_endpoint_can_be_tested_and_a_closed_one_cannot() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let test = shop.endpoint_with("modes", &receiver.url("/test"), ", test => true");
    let (event, _) = send(&mut shop, &test, "");
    shop.wait_for_state(&event, &test, "delivered");
    let endpoint = shop.endpoint("modes", &receiver.url("/hook"));
    let id = endpoint.id;
    // A paused one gets it when it is resumed.
    shop.have_done(&format!("pause('endpoint', '{id}', 'later')"));
    let (held, _) = send(&mut shop, &endpoint, "");
    shop.wait_for_state(&held, &endpoint, "pending");
    shop.have_done(&format!("resume('endpoint', '{id}')"));
    shop.wait_for_state(&held, &endpoint, "delivered");
    shop.run(&format!("select webhook.disable_endpoint({id}, 'off')"));
    for (arguments, code) in [
        (id.to_string(), "55000"),
        (format!("{}, 'polite'", test.id), "22023"),
        (format!("{}, null", test.id), "22004"),
        ("1".to_owned(), "42704"),
        ("null".to_owned(), "22004"),
    ] {
        let (found, message) = shop.refusal(&format!("select webhook.send_test({arguments})"));
        assert_eq!(found, code, "{arguments}: {message}");
    }
    // Nobody else can pass for it.
    let (code, _) = shop.refusal("select webhook.emit('webhook.test', 'modes', '{}')");
    assert_eq!(code, "22023");
    assert_eq!(receiver.count(), 2);
}

/// Asks for a test; returns the event and the delivery.
#[track_caller]
fn send(shop: &mut Outbox, endpoint: &Endpoint, kind: &str) -> (String, String) {
    let rows = shop.rows(&format!(
        "select event_id, delivery_id from webhook.send_test({}{kind})",
        endpoint.id
    ));
    let of = |column: usize| rows[0][column].clone().expect("an id");
    (of(0), of(1))
}

fn timestamp(request: &Request) -> u64 {
    let text = request.header("webhook-timestamp").expect("a timestamp");
    text.parse().expect("seconds")
}

/// When it arrived, in seconds since 1970.
fn now(request: &Request) -> u64 {
    let since = request.wall.duration_since(UNIX_EPOCH);
    since.expect("a clock").as_secs()
}

/// The signature that the public library makes of what arrived, its timestamp included.
fn signature(secret: &str, request: &Request) -> String {
    let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
    let id = request.header("webhook-id").expect("an id");
    let at = i64::try_from(timestamp(request)).expect("seconds");
    webhook.sign(id, at, &request.body).expect("a signature")
}
