//! Endpoints that close and open again: what waited is cancelled with the reason, and nothing that is emitted after the
//! opening is missed, however much there was to cancel.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h,1h")
        // Requests are held for as long as a test has something to do meanwhile.
        .setting("webhook.request_timeout", "5min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn events_of_an_endpoint_that_opens_again_wait_for_its_old_queue_to_be_cancelled() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("reopened", &receiver.url("/hook"), ", max_in_flight => 64");
    // An endpoint begins with one request at a time.
    shop.run("select count(webhook.emit('e.warm', 'reopened', '{}')) from generate_series(1, 200)");
    shop.wait_until(
        "(select count(*) = 200 from webhook.deliveries where partner_id = 'reopened' and state = 'delivered')",
    );
    // A failure that does not shut the endpoint's window.
    receiver.behave("/hook", |_| Answer::status(500));
    // More than is cancelled in one transaction.
    shop.run("select count(webhook.emit('e.old', 'reopened', '{}')) from generate_series(1, 5000)");
    shop.wait_until(
        "(select count(*) = 5000 from webhook.deliveries where partner_id = 'reopened' and state = 'retrying')",
    );
    receiver.behave("/hook", |_| Answer::status(204));
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'for a moment')",
        endpoint.id
    ));
    let meanwhile = shop.emit("e.meanwhile", "reopened", "{}");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{meanwhile}')"
    ));
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    let first = shop.emit("e.first", "reopened", "{}");
    let second = shop.emit("e.second", "reopened", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");
    shop.wait_for_state(&second, &endpoint, "delivered");
    assert_eq!(shop.delivery(&meanwhile, &endpoint), None);
    assert!(shop.is(
        "(count(*), min(reason), max(reason)) = (5000, 'the endpoint is disabled: for a moment', 'the endpoint is disabled: for a moment')
           from webhook.deliveries where partner_id = 'reopened' and state = 'cancelled'"
    ));
}

#[test]
fn a_request_on_the_wire_is_not_tried_again_when_its_endpoint_closed_and_opened_meanwhile() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let late = Answer::status(503).held(&gate);
    receiver.script("/hook", vec![late, Answer::status(204)]);
    let endpoint = shop.endpoint("on-wire", &receiver.url("/hook"));
    let event = shop.emit("e.late", "on-wire", "{}");
    wait_for("the request is on the wire", PATIENCE, || {
        receiver.in_flight() == 1
    });
    // Its pair has moved to the due table by now, and is cancelled there.
    shop.wait_for_state(&event, &endpoint, "pending");
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'moved')",
        endpoint.id
    ));
    shop.wait_for_state(&event, &endpoint, "cancelled");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    gate.open();
    let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
    assert_eq!(
        (delivery.state.as_str(), delivery.next_attempt_at),
        ("cancelled", None),
        "told, and over"
    );
    let next = shop.emit("e.next", "on-wire", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
}

#[test]
fn many_gone_answers_at_once_disable_one_endpoint_and_disturb_nobody() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/gone", |_| Answer::status(204));
    receiver.behave("/hook", |_| {
        Answer::status(204).after(Duration::from_millis(300))
    });
    let life = shop.text("select incarnation::text from webhook.stat_worker");
    let gone = shop.endpoint("many-gone", &receiver.url("/gone"));
    let other = shop.endpoint("beside-gone", &receiver.url("/hook"));
    // An endpoint begins with one request at a time: several must be on the wire at once.
    shop.run("select count(webhook.emit('e.warm', 'many-gone', '{}')) from generate_series(1, 40)");
    shop.wait_until(
        "(select count(*) = 40 from webhook.deliveries where partner_id = 'many-gone' and state = 'delivered')",
    );
    let gate = Gate::shut();
    let goes = Answer::status(410).held(&gate);
    receiver.behave("/gone", move |_| goes.clone());
    let lost =
        shop.column("select webhook.emit('e.gone', 'many-gone', '{}') from generate_series(1, 8)");
    let kept = shop
        .column("select webhook.emit('e.kept', 'beside-gone', '{}') from generate_series(1, 8)");
    wait_for("all eight are on the wire", PATIENCE, || {
        receiver.requests_for("/gone").len() == 48
    });
    gate.open();
    for event in &lost {
        shop.wait_for_state(event, &gone, "dead");
    }
    for event in &kept {
        let delivery = shop.wait_for_state(event, &other, "delivered");
        assert_eq!(delivery.attempts, 1);
    }
    assert!(shop.is(&format!(
        "state = 'disabled' from webhook.endpoints where endpoint_id = {}",
        gone.id
    )));
    assert_eq!(
        shop.text("select incarnation::text from webhook.stat_worker"),
        life,
        "the leader did not even stumble"
    );
}
