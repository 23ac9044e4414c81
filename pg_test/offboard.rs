//! A partner leaves: its queue is cancelled and says why, its keys are gone, nothing new is made for it, its history
//! stays readable, and nobody else notices.

use std::{sync::LazyLock, thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.request_timeout", "5min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn offboarding_cancels_the_queue_destroys_the_keys_and_touches_nobody_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/failing", |_| Answer::status(500));
    let failing = shop.endpoint("leaving", &receiver.url("/failing"));
    let paused = shop.endpoint("leaving", &receiver.url("/paused"));
    let disabled = shop.endpoint("leaving", &receiver.url("/disabled"));
    let good = shop.endpoint("leaving", &receiver.url("/good"));
    // A name that begins alike is another partner.
    let other = shop.endpoint("leaving.not", &receiver.url("/other"));
    let deleted = shop.endpoint("leaving", &receiver.url("/deleted"));
    shop.have_done(&format!("pause('endpoint', '{}', 'later')", paused.id));
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'off'); select webhook.delete_endpoint({}, 'gone before')",
        disabled.id, deleted.id
    ));
    shop.run(
        "select webhook.emit('order.paid', 'leaving', to_jsonb(n)) from generate_series(1, 30) n",
    );
    shop.wait_for_deliveries(&failing, "retrying", 30);
    shop.wait_for_deliveries(&paused, "pending", 30);
    shop.wait_for_deliveries(&good, "delivered", 30);

    assert_eq!(
        shop.number("select webhook.offboard('leaving', 'the contract has ended')"),
        4
    );
    for endpoint in [&failing, &paused] {
        shop.wait_for_deliveries(endpoint, "cancelled", 30);
        assert!(shop.is(&format!(
            "bool_and(reason like '%the contract has ended' and next_attempt_at is null)
               from webhook.deliveries where endpoint_id = {}",
            endpoint.id
        )));
    }
    for endpoint in [&failing, &paused, &disabled, &good] {
        assert!(shop.is(&format!(
            "state = 'deleted' and state_reason = 'the contract has ended' and key_ids is null
               from webhook.endpoints where endpoint_id = {}",
            endpoint.id
        )));
    }
    assert!(shop.is(&format!(
        "state_reason = 'gone before' from webhook.endpoints where endpoint_id = {}",
        deleted.id
    )));
    // What was delivered stays told.
    assert_eq!(shop.deliveries(&good, "delivered"), 30);
    assert!(shop.is(&format!(
        "count(*) = 30 from webhook.attempts where endpoint_id = {}",
        failing.id
    )));

    // Its events are kept and go nowhere; those of others go where they went.
    receiver.forget();
    let late = shop.emit("order.paid", "leaving", "{}");
    let event = shop.emit("order.paid", "leaving.not", "{}");
    shop.wait_for_state(&event, &other, "delivered");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{late}')"
    ));
    sleep(Duration::from_millis(300));
    assert!(shop.is(&format!(
        "count(*) = 0 from webhook.deliveries where event_id = '{late}'"
    )));
    assert_eq!(receiver.count(), 1);
    assert!(shop.is(&format!(
        "key_ids is not null and state = 'active' from webhook.endpoints where endpoint_id = {}",
        other.id
    )));
}

#[test]
fn a_request_on_the_wire_is_recorded_and_not_repeated() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("select webhook.create_policy('soon', retry_schedule => '100ms,100ms')");
    let gate = Gate::shut();
    let late = Answer::status(500).held(&gate);
    receiver.script("/hook", vec![late, Answer::status(200)]);
    let endpoint = shop.endpoint_with("wire", &receiver.url("/hook"), ", policy => 'soon'");
    let event = shop.emit("order.paid", "wire", "{}");
    wait_for("the request is on the wire", PATIENCE, || {
        receiver.in_flight() == 1
    });
    shop.run("select webhook.offboard('wire', 'they left')");
    gate.open();
    shop.wait_for_attempts(&event, &endpoint, 1);
    let cancelled = shop.wait_for_state(&event, &endpoint, "cancelled");
    assert_eq!(cancelled.attempts, 1);
    sleep(Duration::from_millis(500));
    assert_eq!(receiver.count(), 1);
    assert_eq!(shop.delivery(&event, &endpoint), Some(cancelled));
}

#[test]
fn nothing_can_be_sent_to_who_has_left() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(404));
    let endpoint = shop.endpoint("left", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "left", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    shop.run("select webhook.offboard('left', 'over')");
    let id = endpoint.id;
    for statement in [
        format!("enable_endpoint({id})"),
        format!("send_test({id})"),
        format!("replay('{event}', {id})"),
        format!("pause('endpoint', '{id}', 'why')"),
    ] {
        let (code, message) = shop.refusal(&format!("select webhook.{statement}"));
        assert_eq!(code, "55000", "{statement}: {message}");
    }
    let reply = shop.ask(&format!("retry('{}', 'try')", dead.id));
    assert_eq!(reply.deliveries, 0, "{reply:?}");
    // A dead letter can still be put away.
    shop.have_done(&format!("close('{}', 'nobody to tell')", dead.id));
    shop.wait_for_state(&event, &endpoint, "closed");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn offboarding_is_undone_by_a_rollback_and_refused_for_who_is_not_there() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint: Endpoint = shop.endpoint("staying", &receiver.url("/hook"));
    shop.run("begin; select webhook.offboard('staying', 'or not'); rollback");
    for (arguments, code) in [
        ("'nobody.at_all', 'why'", "42704"),
        ("'staying', null", "22004"),
        ("'staying', '  '", "22023"),
        ("null, 'why'", "22004"),
    ] {
        let (found, message) = shop.refusal(&format!("select webhook.offboard({arguments})"));
        assert_eq!(found, code, "{arguments}: {message}");
    }
    let event = shop.emit("order.paid", "staying", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(receiver.count(), 1);
}
