//! 410 Gone: the receiver says for good that it wants nothing more, and is taken at its word until somebody enables the
//! endpoint again.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn gone_disables_the_endpoint_and_cancels_what_waits_until_it_is_enabled_again() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let late = Answer::status(410).after(Duration::from_millis(500));
    receiver.script("/hook", vec![late, Answer::status(200)]);
    let endpoint = shop.endpoint_with("gone", &receiver.url("/hook"), ", max_in_flight => 1");
    let events = shop.column(
        "select webhook.emit('order.paid', 'gone', to_jsonb(n)) from generate_series(1, 20) n",
    );
    let first = shop.wait_for_state(&events[0], &endpoint, "dead");
    assert_eq!(first.category.as_deref(), Some("gone"));
    assert_eq!(
        first.reason.as_deref(),
        Some("the receiver answered 410 Gone")
    );
    for event in &events[1..] {
        let delivery = shop.wait_for_state(event, &endpoint, "cancelled");
        let reason = delivery.reason.unwrap_or_default();
        assert_eq!(
            reason,
            "the endpoint is disabled: the receiver answered 410 Gone"
        );
        assert_eq!((delivery.attempts, delivery.next_attempt_at), (0, None));
    }
    let state = format!(
        "(select (state, state_reason) = ('disabled', 'the receiver answered 410 Gone')
            from webhook.endpoints where endpoint_id = {})",
        endpoint.id
    );
    assert!(shop.is(&state));

    // Nothing is kept for a disabled endpoint.
    let missed = shop.emit("order.paid", "gone", "{}");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{missed}')"
    ));
    shop.run(&format!(
        "select webhook.enable_endpoint({}, 'asked them')",
        endpoint.id
    ));
    let next = shop.emit("order.paid", "gone", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(shop.delivery(&missed, &endpoint), None);
    assert_eq!(receiver.count(), 2);

    // What was cancelled can be asked for.
    shop.run(&format!("select webhook.replay('{}')", events[7]));
    let delivery = shop.wait_for_state(&events[7], &endpoint, "delivered");
    assert_eq!(delivery.attempts, 1);
}

#[test]
fn a_late_gone_does_not_undo_a_new_enable() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let late = Answer::status(410).held(&gate);
    receiver.script("/hook", vec![late, Answer::status(200)]);
    let endpoint = shop.endpoint("late-gone", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "late-gone", "{}");
    wait_for("the request is on the wire", PATIENCE, || {
        receiver.in_flight() == 1
    });
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    gate.open();
    shop.wait_for_state(&event, &endpoint, "dead");
    assert!(shop.is(&format!(
        "state = 'active' from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    let next = shop.emit("order.paid", "late-gone", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
}

#[test]
fn a_gone_to_a_test_that_was_made_wrong_on_purpose_says_nothing_about_the_endpoint() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(410));
    let endpoint = shop.endpoint("gone-test", &receiver.url("/hook"));
    let state = format!(
        "(select state from webhook.endpoints where endpoint_id = {})",
        endpoint.id
    );
    for kind in ["bad_signature", "stale", "malformed"] {
        let event = shop.text(&format!(
            "select event_id from webhook.send_test({}, '{kind}')",
            endpoint.id
        ));
        let dead = shop.wait_for_state(&event, &endpoint, "dead");
        assert_eq!(dead.category.as_deref(), Some("gone"), "{kind}");
        assert!(shop.is(&format!("{state} = 'active'")), "{kind}");
    }
    // One that is right is an event like any other: whoever answers it so wants nothing more.
    shop.run(&format!(
        "select webhook.send_test({}, 'normal')",
        endpoint.id
    ));
    shop.wait_until(&format!("{state} = 'disabled'"));
}

#[test]
fn a_gone_to_a_lifecycle_event_disables_each_endpoint_once() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/told", |_| Answer::status(410));
    for partner in ["_operator", "gone-told"] {
        shop.endpoint_with(
            partner,
            &receiver.url("/told"),
            ", event_types => '{webhook.*}'",
        );
    }
    let first = shop.endpoint("gone-told", &receiver.url("/first"));
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'no more')",
        first.id
    ));
    shop.wait_until(
        "(select count(*) = 2 from webhook.endpoints where state_reason = 'the receiver answered 410 Gone' and url like '%/told')",
    );
    shop.wait_until(
        "(select (unread_events, queued, in_flight, due) = (0, 0, 0, 0) from webhook.stat_queue)",
    );
    // Telling of the one that was disabled first ends with the last one.
    assert!(receiver.requests_for("/told").len() <= 3);
}
