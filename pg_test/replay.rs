//! Sending again what somebody asks for: new attempts with the same id and bytes, and no evidence lost.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "200ms")
        .setting("webhook.request_timeout", "5min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn a_delivered_event_is_sent_again_and_its_first_delivery_stays() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(200), Answer::status(202)]);
    let endpoint = shop.endpoint("delivered", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "delivered", "{}");
    let first = shop.wait_for_state(&event, &endpoint, "delivered");
    let before = shop.attempts(&event, &endpoint);
    let request = replay(&mut shop, &event, "");
    assert_eq!(request.1, first.id);

    let second = shop.wait_for_attempts(&event, &endpoint, 2);
    assert_eq!(second.state, "delivered");
    assert_eq!(second.delivered_at, first.delivered_at);
    assert_eq!(second.status, Some(202));
    let after = shop.attempts(&event, &endpoint);
    assert_eq!(after.len(), 2);
    assert_eq!(after[0], before[0]);
    assert!(shop.is(&format!(
        "state = 'done' and deliveries = 1 and finished_at >= requested_at from webhook.requests where request_id = {}",
        request.0
    )));
    let requests = receiver.wait_for(2, PATIENCE);
    assert_eq!(requests[0].body, requests[1].body);
    for name in ["webhook-id", "webhook-delivery"] {
        assert_eq!(requests[0].header(name), requests[1].header(name));
    }
    assert_eq!(requests[1].header("webhook-attempt"), Some("2"));
}

#[test]
fn a_replay_that_fails_starts_a_series_of_its_own() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let mut answers = vec![Answer::status(200)];
    answers.extend((0..3).map(|_| Answer::status(500)));
    answers.push(Answer::status(200));
    receiver.script("/hook", answers);
    let endpoint = shop.endpoint("series", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "series", "{}");
    let first = shop.wait_for_state(&event, &endpoint, "delivered");
    replay(&mut shop, &event, "");
    // Two attempts by the schedule of one wait; that it was delivered once is not forgotten.
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    assert_eq!((dead.attempts, dead.delivered_at), (3, first.delivered_at));
    replay(&mut shop, &event, "");
    let last = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!((last.attempts, last.delivered_at), (5, first.delivered_at));
    let outcomes: Vec<String> = shop
        .attempts(&event, &endpoint)
        .into_iter()
        .map(|attempt| attempt.outcome)
        .collect();
    assert_eq!(
        outcomes,
        ["delivered", "retry", "dead", "retry", "delivered"]
    );
}

#[test]
fn a_dead_letter_is_sent_again() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(404), Answer::status(200)]);
    let endpoint = shop.endpoint("dead", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "dead", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    assert_eq!(dead.delivered_at, None);
    replay(&mut shop, &event, "");
    let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!((delivery.attempts, delivery.reason), (2, None));
    assert!(delivery.delivered_at.is_some());
}

#[test]
fn an_event_is_sent_to_an_endpoint_that_had_not_got_it() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let old = shop.endpoint("fresh", &receiver.url("/old"));
    let event = shop.emit("order.paid", "fresh", "{}");
    shop.wait_for_state(&event, &old, "delivered");
    let new = shop.endpoint("fresh", &receiver.url("/new"));
    let test = shop.endpoint_with("fresh", &receiver.url("/test"), ", test => true");
    let stranger = shop.endpoint("fresh.other", &receiver.url("/stranger"));

    // Every existing delivery: the new endpoint has none.
    replay(&mut shop, &event, "");
    shop.wait_for_attempts(&event, &old, 2);
    assert_eq!(shop.delivery(&event, &new), None);
    let (_, id) = replay(&mut shop, &event, &format!(", {}", new.id));
    let delivery = shop.wait_for_state(&event, &new, "delivered");
    assert_eq!((delivery.id, delivery.attempts), (id, 1));
    // Once more: now it is an existing one.
    replay(&mut shop, &event, &format!(", {}", new.id));
    shop.wait_for_attempts(&event, &new, 2);

    for (endpoint, code) in [(&test, "55000"), (&stranger, "42704")] {
        let refusal = shop.refusal(&format!(
            "select webhook.replay('{event}', {})",
            endpoint.id
        ));
        assert_eq!(refusal.0, code);
    }
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'closed')",
        old.id
    ));
    let refusal = shop.refusal(&format!("select webhook.replay('{event}', {})", old.id));
    assert_eq!(refusal.0, "55000");
    assert_eq!(
        (
            receiver.requests_for("/old").len(),
            receiver.requests_for("/new").len()
        ),
        (2, 2)
    );
    assert_eq!(receiver.count(), 4);
}

#[test]
fn a_replay_that_is_rolled_back_does_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("rolled", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "rolled", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run("begin");
    let (request, _) = replay(&mut shop, &event, "");
    shop.run("rollback");
    let next = shop.emit("order.paid", "rolled", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(receiver.count(), 2);
    assert!(!shop.is(&format!(
        "exists (select from webhook.requests where request_id = {request})"
    )));
    assert_eq!(shop.delivery(&event, &endpoint).expect("a row").attempts, 1);
}

#[test]
fn an_event_that_is_still_on_its_way_is_not_sent_twice() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    receiver.script("/hook", vec![Answer::status(200).held(&gate)]);
    let endpoint = shop.endpoint("on-its-way", &receiver.url("/hook"));
    // Not even read: emitted by the same transaction, with and without the endpoint's name.
    shop.run("begin");
    let event = shop.emit("order.paid", "on-its-way", "{}");
    let all = replay(&mut shop, &event, "");
    assert_eq!(all.1, "");
    let one = replay(&mut shop, &event, &format!(", {}", endpoint.id));
    shop.run("commit");
    // On the wire.
    receiver.wait_for(1, PATIENCE);
    let late = replay(&mut shop, &event, "");
    for (request, _) in [all, one, late] {
        shop.wait_until(&format!(
            "(select state = 'done' and deliveries = 0 and result ~ '1 being sent'
                from webhook.requests where request_id = {request})"
        ));
    }
    gate.open();
    shop.wait_for_state(&event, &endpoint, "delivered");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_replay_of_what_waits_for_its_retry_brings_it_forward() {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(503), Answer::status(200)]);
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "retrying");
    replay(&mut shop, &event, "");
    let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!((delivery.attempts, receiver.count()), (2, 2));
    assert!(shop.is("due = 0 and waiting = 0 from webhook.stat_queue"));
}

#[test]
fn many_replays_at_once_are_all_carried_out() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("many", &receiver.url("/hook"));
    shop.run(
        "select webhook.emit('order.paid', 'many', to_jsonb(n)) from generate_series(1, 250) n",
    );
    let of_endpoint = format!(
        "from webhook.deliveries where endpoint_id = {}",
        endpoint.id
    );
    // One that is on its way would not be sent again.
    shop.wait_for_deliveries(&endpoint, "delivered", 250);
    shop.run(&format!("select webhook.replay(event_id) {of_endpoint}"));
    shop.wait_until(&format!(
        "(select count(*) = 250 {of_endpoint} and attempt_count = 2 and state = 'delivered')"
    ));
    assert_eq!(receiver.count(), 500);
    wait_for("no request waits", PATIENCE, || {
        shop.is("pending_requests = 0 from webhook.stat_queue")
    });
}

/// Asks for a replay; returns the request and the (first) delivery it concerns.
fn replay(shop: &mut Outbox, event: &str, more: &str) -> (i64, String) {
    let rows = shop.rows(&format!("select * from webhook.replay('{event}'{more})"));
    let request = rows[0][0].as_deref().unwrap_or_default();
    (
        request.parse().expect("a request"),
        rows[0][1].clone().unwrap_or_default(),
    )
}
