//! Which keys sign what: during a rotation, after it, in the middle of a retry series, and when a key is revoked. The
//! receiver is played by the public libraries, with the old secret, the new one, and both.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver, Request},
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.request_timeout", "5min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// A key as a verb returned it.
struct Key {
    id: String,
    secret: String,
}

#[test]
fn either_secret_verifies_during_the_overlap_and_the_new_one_alone_after_it() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("overlap", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let new = rotate(&mut shop, &endpoint, "'10 seconds'");
    let during = send(&mut shop, &receiver, "overlap", &endpoint);
    assert_eq!(key_ids(&during), [&*new.id, &*old.id]);
    assert_eq!(signatures(&during), 2);
    assert!(accepts(&old, &during) && accepts(&new, &during));

    // Nothing changes but the time.
    let one_left = format!(
        "(select count(*) = 1 from webhook.signing_keys where signs and endpoint_id = {})",
        endpoint.id
    );
    shop.wait_until(&one_left);
    let after = send(&mut shop, &receiver, "overlap", &endpoint);
    assert_eq!(key_ids(&after), [&*new.id]);
    assert!(!accepts(&old, &after) && accepts(&new, &after));
    // A receiver that holds both secrets accepted everything.
    assert!(
        [&during, &after]
            .iter()
            .all(|request| accepts(&old, request) || accepts(&new, request))
    );
}

#[test]
fn two_rotations_in_a_row_leave_three_keys_that_sign() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("twice", &receiver.url("/hook"));
    let first = first_key(&mut shop, &endpoint);
    let second = rotate(&mut shop, &endpoint, "default");
    let third = rotate(&mut shop, &endpoint, "null");
    let request = send(&mut shop, &receiver, "twice", &endpoint);
    let ids = key_ids(&request);
    assert_eq!(ids[0], third.id);
    assert!(ids.len() == 3 && ids.contains(&&*first.id) && ids.contains(&&*second.id));
    for key in [&first, &second, &third] {
        assert!(accepts(key, &request), "key {}", key.id);
    }
    // The overlap is that of the setting.
    assert!(shop.is(&format!(
        "min(valid_until) between now() + interval '23 hours' and now() + interval '24 hours'
           from webhook.signing_keys where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn without_an_overlap_the_former_key_signs_nothing_more() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("zero", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let before = send(&mut shop, &receiver, "zero", &endpoint);
    let new = rotate(&mut shop, &endpoint, "'0'");
    let after = send(&mut shop, &receiver, "zero", &endpoint);
    assert!(accepts(&old, &before) && !accepts(&new, &before));
    assert!(!accepts(&old, &after) && accepts(&new, &after));
    assert_eq!(key_ids(&after), [&*new.id]);
}

#[test]
fn confirming_ends_the_overlap_at_once() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("confirm", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let new = rotate(&mut shop, &endpoint, "'7 days'");
    let before = send(&mut shop, &receiver, "confirm", &endpoint);
    shop.run(&format!("select webhook.confirm_rotation({})", endpoint.id));
    let after = send(&mut shop, &receiver, "confirm", &endpoint);
    assert_eq!((signatures(&before), signatures(&after)), (2, 1));
    assert!(!accepts(&old, &after) && accepts(&new, &after));
}

#[test]
fn a_rotation_that_is_rolled_back_changes_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("rollback", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    shop.run("begin");
    rotate(&mut shop, &endpoint, "'0'");
    shop.run("rollback");
    let request = send(&mut shop, &receiver, "rollback", &endpoint);
    assert_eq!(key_ids(&request), [&*old.id]);
    assert!(accepts(&old, &request));
}

#[test]
fn a_rotation_in_the_middle_of_a_series_signs_the_same_bytes_with_the_new_key() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |request| match request.header("webhook-attempt") {
        Some("1") => Answer::status(500),
        _ => Answer::status(200),
    });
    let endpoint = shop.endpoint("series", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let event = shop.emit("order.paid", "series", r#"{"order": 1.10}"#);
    let waiting = shop.wait_for_attempts(&event, &endpoint, 1);
    let new = rotate(&mut shop, &endpoint, "'0'");
    shop.have_done(&format!("retry('{}', 'with the new key')", waiting.id));
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    assert!(accepts(&old, first) && !accepts(&old, last) && accepts(&new, last));
    assert_eq!(first.body, last.body);
    // Each attempt tells which keys signed it, as its header did.
    let told = shop.column(&format!(
        "select array_to_string(key_ids, ' ') from webhook.attempts where event_id = '{event}' order by attempt_no"
    ));
    let sent: Vec<_> = requests
        .iter()
        .map(|request| request.header("webhook-key-id").unwrap_or_default())
        .collect();
    assert_eq!(told, sent);
}

#[test]
fn a_revoked_key_signs_nothing_that_starts_afterwards() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let answer = Answer::status(200).held(&gate);
    receiver.behave("/hook", move |_| answer.clone());
    let endpoint = shop.endpoint_with("revoke", &receiver.url("/hook"), ", max_in_flight => 1");
    let old = first_key(&mut shop, &endpoint);
    shop.run(
        "select webhook.emit('order.paid', 'revoke', to_jsonb(n)) from generate_series(1, 4) n",
    );
    // One is on the wire, three wait in memory, signed by nobody yet.
    wait_for_flight(&receiver);
    let new = revoke(&mut shop, &endpoint, "");
    gate.open();
    let requests = receiver.wait_for(4, PATIENCE);
    assert!(accepts(&old, &requests[0]) && !accepts(&new, &requests[0]));
    for request in &requests[1..] {
        assert!(!accepts(&old, request) && accepts(&new, request));
        assert_eq!(key_ids(request), [&*new.id]);
    }
    shop.wait_until(&format!(
        "(select count(*) = 4 from webhook.deliveries where endpoint_id = {} and state = 'delivered')",
        endpoint.id
    ));
}

#[test]
fn revoking_may_pause_the_endpoint_and_what_waited_goes_out_with_the_new_key() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("leak", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let former = rotate(&mut shop, &endpoint, "'1 day'");
    let new = revoke(&mut shop, &endpoint, ", pause => true");
    let event = shop.emit("order.paid", "leak", "{}");
    shop.wait_for_state(&event, &endpoint, "pending");
    // Longer than a look of the leader.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(receiver.count(), 0);
    assert!(shop.is(&format!("state = 'paused' and state_reason = 'leaked' from webhook.endpoints where endpoint_id = {}", endpoint.id)));
    shop.run(&format!(
        "select webhook.resume('endpoint', '{}')",
        endpoint.id
    ));
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(key_ids(&requests[0]), [&*new.id]);
    assert!(
        accepts(&new, &requests[0])
            && !accepts(&old, &requests[0])
            && !accepts(&former, &requests[0])
    );
}

#[test]
fn revoking_a_former_key_leaves_the_new_one_alone() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("former", &receiver.url("/hook"));
    let old = first_key(&mut shop, &endpoint);
    let new = rotate(&mut shop, &endpoint, "'1 day'");
    let made = shop.rows(&format!(
        "select * from webhook.revoke_secret({}, 'leaked', {})",
        endpoint.id, old.id
    ));
    assert_eq!(made, [[None, None]]);
    let request = send(&mut shop, &receiver, "former", &endpoint);
    assert_eq!(key_ids(&request), [&*new.id]);
    assert!(accepts(&new, &request) && !accepts(&old, &request));
}

fn first_key(shop: &mut Outbox<'_>, endpoint: &Endpoint) -> Key {
    Key {
        id: shop.text(&format!(
            "select key_id from webhook.signing_keys where endpoint_id = {}",
            endpoint.id
        )),
        secret: endpoint.secret.clone(),
    }
}

fn rotate(shop: &mut Outbox<'_>, endpoint: &Endpoint, overlap: &str) -> Key {
    let overlap = if overlap == "default" {
        String::new()
    } else {
        format!(", {overlap}")
    };
    key(
        shop,
        &format!(
            "select key_id, secret from webhook.rotate_secret({}{overlap})",
            endpoint.id
        ),
    )
}

fn revoke(shop: &mut Outbox<'_>, endpoint: &Endpoint, more: &str) -> Key {
    key(
        shop,
        &format!(
            "select new_key_id, secret from webhook.revoke_secret({}, 'leaked'{more})",
            endpoint.id
        ),
    )
}

fn key(shop: &mut Outbox<'_>, query: &str) -> Key {
    let mut row = shop
        .rows(query)
        .remove(0)
        .into_iter()
        .map(Option::unwrap_or_default);
    Key {
        id: row.next().unwrap_or_default(),
        secret: row.next().unwrap_or_default(),
    }
}

/// Has an event delivered and returns its request.
fn send(shop: &mut Outbox<'_>, receiver: &Receiver, partner: &str, endpoint: &Endpoint) -> Request {
    let event = shop.emit("order.paid", partner, "{}");
    shop.wait_for_state(&event, endpoint, "delivered");
    let mut requests = receiver.requests();
    requests.retain(|request| request.header("webhook-id") == Some(&*event));
    requests.remove(0)
}

fn wait_for_flight(receiver: &Receiver) {
    webhook_outbox_test::wait::wait_for("a request is on the wire", PATIENCE, || {
        receiver.in_flight() == 1
    });
}

/// Whether both public libraries accept the request; they must agree.
fn accepts(key: &Key, request: &Request) -> bool {
    match verifier::objections(&key.secret, std::slice::from_ref(request)).len() {
        0 => true,
        2 => false,
        _ => panic!("the libraries do not agree about key {}", key.id),
    }
}

fn key_ids(request: &Request) -> Vec<&str> {
    request
        .header("webhook-key-id")
        .unwrap_or_default()
        .split(' ')
        .collect()
}

fn signatures(request: &Request) -> usize {
    request
        .header("webhook-signature")
        .unwrap_or_default()
        .split(' ')
        .count()
}
