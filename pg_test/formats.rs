//! Formats, signature profiles and headers of an endpoint on the wire: what a change of them means for what was sent
//! before, what waits, and what comes. What each looks like to the public libraries is in peers.rs.

use std::sync::LazyLock;

use webhook_outbox_test::{
    arrivals::json,
    cluster::Cluster,
    master_key::MasterKeyFile,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver, Request},
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1s,200ms")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

const STRUCTURED: &str = "application/cloudevents+json";

#[test]
fn a_retry_and_a_replay_keep_the_format_of_the_first_attempt() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(503), Answer::status(200)]);
    let endpoint = shop.endpoint("kept", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "kept", r#"{"order": 1.10}"#);
    shop.wait_for_attempts(&event, &endpoint, 1);
    update(&mut shop, &endpoint, "format => 'cloudevents-structured'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    update(&mut shop, &endpoint, "format => 'cloudevents-binary'");
    shop.run(&format!("select webhook.replay('{event}')"));
    shop.wait_for_attempts(&event, &endpoint, 3);

    let requests = receiver.wait_for(3, PATIENCE);
    for request in &requests {
        assert_eq!(request.body, requests[0].body);
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("ce-id"), None);
    }
    assert_eq!(json(&requests[0])["event_id"], event.as_str());
    assert_eq!(revision(&mut shop, &event, &endpoint), 1);
    // What is emitted from now on has the format of today.
    let next = shop.emit("order.paid", "kept", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    let last = receiver.wait_for(4, PATIENCE).remove(3);
    assert_eq!(last.header("ce-id"), Some(next.as_str()));
    assert_eq!(revision(&mut shop, &next, &endpoint), 3);
}

#[test]
fn what_waits_for_its_first_attempt_takes_the_format_of_the_day_it_is_made() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(503), Answer::status(200)]);
    let endpoint = shop.endpoint("waits", &receiver.url("/hook"));
    shop.run(&format!(
        "select webhook.pause('endpoint', '{}', 'not ready')",
        endpoint.id
    ));
    let event = shop.emit("order.paid", "waits", "{}");
    shop.wait_for_state(&event, &endpoint, "pending");
    assert_eq!(revision(&mut shop, &event, &endpoint), 1);
    update(&mut shop, &endpoint, "format => 'cloudevents-structured'");
    shop.run(&format!(
        "select webhook.resume('endpoint', '{}')",
        endpoint.id
    ));
    shop.wait_for_attempts(&event, &endpoint, 1);
    // From its first attempt on it has this one.
    update(&mut shop, &endpoint, "format => 'native'");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.wait_for(2, PATIENCE);
    for request in &requests {
        assert_eq!(request.header("content-type"), Some(STRUCTURED));
        assert_eq!(request.body, requests[0].body);
    }
    assert_eq!(revision(&mut shop, &event, &endpoint), 2);
}

#[test]
fn what_may_have_been_sent_before_a_crash_is_sent_again_in_the_same_format() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::hang(), Answer::status(200)]);
    let (endpoint, event) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("crash", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "crash", "{}");
        receiver.wait_for(1, PATIENCE);
        // No row of the delivery says yet what is on the wire.
        update(&mut shop, &endpoint, "format => 'cloudevents-structured'");
        (endpoint, event)
    };
    cluster.crash();
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.wait_for(2, PATIENCE);
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(requests[1].header("content-type"), Some("application/json"));
    assert!(shop.is(&format!(
        "error_category = 'lost' from webhook.attempts where event_id = '{event}' and attempt_no = 1"
    )));
    assert_eq!(revision(&mut shop, &event, &endpoint), 1);
    let next = shop.emit("order.paid", "crash", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(revision(&mut shop, &next, &endpoint), 2);
}

#[test]
fn endpoints_of_one_event_get_it_each_in_its_own_format() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let mut secrets = Vec::new();
    for format in ["native", "cloudevents-structured", "cloudevents-binary"] {
        let url = receiver.url(&format!("/{format}"));
        let more = format!(", format => '{format}'");
        secrets.push(shop.endpoint_with("each", &url, &more).secret);
    }
    let data = r#"{"price": 1.10, "name": "Zoë"}"#;
    let event = shop.emit_with(
        "order.paid",
        "each",
        data,
        ", source => 'shop floor', subject_type => 'order', subject_id => 'ö 1', subject_version => 3",
    );
    receiver.wait_for(3, PATIENCE);
    let only = |format: &str| receiver.requests_for(&format!("/{format}")).remove(0);

    let native = only("native");
    assert!(native.text().contains("\"price\": 1.10"));
    let structured = only("cloudevents-structured");
    let members = json(&structured);
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", event.as_str()),
        ("source", "shop%20floor"),
        ("type", "order.paid"),
        ("subject", "order/ö 1"),
        ("datacontenttype", "application/json"),
        ("partnerid", "each"),
        ("subjectversion", "3"),
    ] {
        assert_eq!(members[name], value, "{name}");
    }
    assert_eq!(members["time"], json(&native)["occurred_at"]);
    let binary = only("cloudevents-binary");
    assert_eq!(binary.header("content-type"), Some("application/json"));
    assert_eq!(binary.header("ce-subject"), Some("order/%C3%B6%201"));
    assert_eq!(json(&binary), json(&native)["data"]);
    for (request, secret) in [native, structured, binary].into_iter().zip(&secrets) {
        assert_eq!(
            verifier::objections(secret, &[request]),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_change_of_the_signature_counts_for_the_very_next_attempt() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(500), Answer::status(200)]);
    // The second attempt is made when the test says so.
    shop.run("select webhook.create_policy('patient', retry_schedule => '1h')");
    let patient = ", policy => 'patient'";
    let endpoint = shop.endpoint_with("signature", &receiver.url("/hook"), patient);
    let event = shop.emit("order.paid", "signature", "{}");
    let waiting = shop.wait_for_attempts(&event, &endpoint, 1);
    update(
        &mut shop,
        &endpoint,
        "signature => 'github', headers => '{\"X-Tenant\": \"7\"}'",
    );
    shop.have_done(&format!("retry('{}', 'at once')", waiting.id));
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.wait_for(2, PATIENCE);
    assert!(requests[0].header("webhook-signature").is_some());
    assert_eq!(requests[0].header("x-tenant"), None);
    assert_eq!(requests[1].header("webhook-signature"), None);
    assert!(requests[1].header("x-hub-signature-256").is_some());
    assert_eq!(requests[1].header("x-tenant"), Some("7"));
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn a_pair_of_keys_signs_beside_the_former_secret_until_the_overlap_ends() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("pair", &receiver.url("/hook"));
    let public = shop.text(&format!(
        "select secret from webhook.rotate_secret({}, '1 hour', 'v1a')",
        endpoint.id
    ));
    assert!(public.starts_with("whpk_"), "{public}");
    let event = shop.emit("order.paid", "pair", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let request = receiver.wait_for(1, PATIENCE).remove(0);
    let signatures = request.header("webhook-signature").expect("signatures");
    let schemes: Vec<&str> = signatures
        .split(' ')
        .filter_map(|one| one.split(',').next())
        .collect();
    assert_eq!(schemes, ["v1a", "v1"]);
    // The libraries know the former secret only, and pass over the rest.
    assert_eq!(
        verifier::objections(&endpoint.secret, &[request]),
        Vec::<String>::new()
    );
    assert_eq!(
        shop.column(&format!(
            "select kind from webhook.signing_keys where endpoint_id = {} order by key_id",
            endpoint.id
        )),
        ["hmac-sha256", "ed25519"]
    );
    assert!(shop.is(&format!(
        "exists (select from webhook.signing_keys where endpoint_id = {} and public_key = '{public}')",
        endpoint.id
    )));
    // A profile of the other kind has nothing to sign with, and says how it gets it.
    let (code, said) = shop.refusal(&format!(
        "select webhook.update_endpoint({}, signature => 'stripe')",
        endpoint.id
    ));
    assert_eq!(code, "55000", "{said}");
}

#[test]
fn a_challenge_is_signed_as_events_are_and_carries_the_headers() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |request| {
        let value = request.header("webhook-challenge").unwrap_or_default();
        Answer::status(200).body(value)
    });
    shop.run(&format!(
        "select webhook.create_endpoint('challenged', '{}', signature => 'slack', headers => '{{\"X-Gate\": \"open\"}}')",
        receiver.url("/hook")
    ));
    let request = receiver.wait_for(1, PATIENCE).remove(0);
    assert!(request.header("x-slack-signature").is_some());
    assert_eq!(request.header("x-gate"), Some("open"));
    assert_eq!(request.header("webhook-signature"), None);
    shop.wait_until("exists (select from webhook.endpoints where partner_id = 'challenged' and state = 'active')");
}

#[test]
fn a_private_key_is_stored_under_the_master_key_and_opens_as_nothing_else() {
    let mut cluster = Cluster::start_usual();
    let _file = MasterKeyFile::set(&mut cluster, 7);
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("stored", &receiver.url("/hook"), ", signature => 'v1a'");
    assert!(shop.is("bool_and(encrypted and kind = 'ed25519') from webhook.signing_keys"));
    let event = shop.emit("order.paid", "stored", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let signature = |request: &Request| request.header("webhook-signature").map(str::to_owned);
    assert!(signature(&receiver.requests()[0]).is_some_and(|value| value.starts_with("v1a,")));
    // The seed, taken for a secret, would be one that nobody was given.
    shop.run("update webhook._secret set kind = 'hmac-sha256', public_key = null");
    shop.restart_leader();
    let next = shop.emit("order.paid", "stored", "{}");
    shop.wait_for_attempts(&next, &endpoint, 1);
    assert!(shop.is(&format!(
        "error_category = 'internal' from webhook.attempts where event_id = '{next}' and attempt_no = 1"
    )));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn what_ties_an_event_to_its_operation_is_on_the_wire_and_beside_its_attempts() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![
            Answer::status(503),
            Answer::status(200),
            Answer::status(200),
        ],
    );
    let endpoint = shop.endpoint("traced", &receiver.url("/hook"));
    let parent = shop.emit("order.paid", "traced.nobody", "{}");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let event = shop.emit_with(
        "order.shipped",
        "traced",
        "{}",
        &format!(", correlation_id => 'request 4711 é', causation => '{parent}', traceparent => '{trace}'"),
    );
    shop.wait_for_state(&event, &endpoint, "delivered");
    for request in receiver.wait_for(2, PATIENCE) {
        assert_eq!(request.header("traceparent"), Some(trace));
        assert_eq!(
            request.header("webhook-correlation-id"),
            Some("request%204711%20%C3%A9")
        );
        assert_eq!(
            request.header("webhook-causation-id"),
            Some(parent.as_str())
        );
        assert_eq!(request.header("webhook-id"), Some(event.as_str()));
    }
    assert_eq!(
        shop.number(&format!(
            "select count(*) from webhook.attempts
              where event_id = '{event}' and correlation_id = 'request 4711 é' and causation = '{parent}' and traceparent = '{trace}'"
        )),
        2
    );
    // One that was delivered at once is told of in the same way.
    let once = shop.emit_with(
        "order.shipped",
        "traced",
        "{}",
        ", correlation_id => 'once'",
    );
    shop.wait_for_state(&once, &endpoint, "delivered");
    assert!(shop.is(&format!(
        "correlation_id = 'once' and traceparent is null from webhook.attempts where event_id = '{once}'"
    )));
}

fn update(shop: &mut Outbox, endpoint: &Endpoint, changes: &str) {
    shop.run(&format!(
        "select webhook.update_endpoint({}, {changes})",
        endpoint.id
    ));
}

fn revision(shop: &mut Outbox, event: &str, endpoint: &Endpoint) -> i64 {
    shop.number(&format!(
        "select revision from webhook.deliveries where event_id = '{event}' and endpoint_id = {}",
        endpoint.id
    ))
}
