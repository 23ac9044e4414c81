//! Events that somebody changes behind the extension's back, whatever is changed and whenever: never sent from then
//! on, an alert for each, and the rest goes on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, Receiver},
};

/// The place of an event in the log, which is nothing of the event; and its id, whose change is a forgery: see `seal`.
const ELSEWHERE: [&str; 2] = ["xid", "event_id"];

const CHANGES: [&str; 20] = [
    "body = replace(body, '1', '2')",
    "body = body || ' '",
    "body_sha256 = sha256(convert_to(body || ' ', 'UTF8')), body = body || ' '",
    "body_sha256 = sha256('\\x00')",
    "partner_id = 'b'",
    "type = 'order.refunded'",
    "occurred_at = occurred_at - interval '1 hour'",
    "subject_type = 'invoice'",
    "subject_id = '8'",
    "subject_version = subject_version + 1",
    "test = true",
    "source = 'crm'",
    "scope = 'eu'",
    "schema_version = '3'",
    "correlation_id = null",
    "causation = null",
    "traceparent = null",
    "seal = overlay(seal placing '\\x00' from 1)",
    "seal_key = seal_key + 1",
    "origin = origin + 1",
];

fn emit(shop: &mut Outbox, partner: &str) -> String {
    shop.emit_with(
        "order.paid",
        partner,
        r#"{"amount": 1}"#,
        ", subject_type => 'order', subject_id => '7', subject_version => 1, correlation_id => 'c',
           causation => 'evt_01KDWPVNG06E2YFC6A0M3DCW35',
           traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'",
    )
}

fn change(shop: &mut Outbox, event: &str, what: &str) {
    shop.run(&format!(
        "update webhook._event set {what} where event_id = '{event}'"
    ));
}

#[track_caller]
fn assert_fenced(shop: &mut Outbox, event: &str, what: &str) {
    assert!(
        shop.is(&format!(
            "fenced is not null from webhook.events where event_id = '{event}'"
        )),
        "{what}"
    );
    shop.wait_until(&format!(
        "(select count(*) = 1 from webhook.alerts
           where kind = 'event.fenced' and severity = 'critical' and event_id = '{event}')"
    ));
}

#[test]
fn what_is_changed_before_it_is_read_is_never_sent_and_told() {
    let mut cluster = Cluster::plan().setting("webhook.enabled", "off").start();
    let receiver = Receiver::http();
    cluster.create_database("shop");
    let (endpoint, events, sound) = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        let endpoint = shop.endpoint("a", &receiver.url("/a"));
        shop.endpoint("b", &receiver.url("/b"));
        shop.endpoint_with("a", &receiver.url("/test"), ", test => true");
        let events: Vec<String> = CHANGES
            .iter()
            .map(|what| {
                let event = emit(&mut shop, "a");
                change(&mut shop, &event, what);
                event
            })
            .collect();
        (endpoint, events, emit(&mut shop, "a"))
    };
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    for column in shop.column(
        "select attname from pg_attribute where attrelid = 'webhook._event'::regclass and attnum > 0 and not attisdropped",
    ) {
        let changed = CHANGES
            .iter()
            .flat_map(|what| what.split(", "))
            .any(|what| what.starts_with(&format!("{column} = ")));
        assert!(changed || ELSEWHERE.contains(&&*column), "nobody changes {column}");
    }
    shop.wait_for_state(&sound, &endpoint, "delivered");
    for (event, what) in events.iter().zip(CHANGES) {
        // One of another origin is not even read: it is as if it had come with a copy.
        if what.starts_with("origin") {
            assert!(shop.is(&format!(
                "fenced = 'origin' from webhook.events where event_id = '{event}'"
            )));
        } else {
            assert_fenced(&mut shop, event, what);
        }
        let (code, message) = shop.refusal(&format!("select webhook.replay('{event}')"));
        assert_eq!(code, "55000", "{what}: {message}");
    }
    assert_eq!(receiver.count(), 1);
}

/// Changed after the first attempt; sent again by `again`, and refused.
fn changed_after_the_first_attempt(
    schedule: &str,
    first_state: &str,
    again: impl Fn(&mut Outbox, &str),
) {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", schedule)
        .start();
    let receiver = Receiver::http();
    let failing = Arc::new(AtomicBool::new(first_state == "retrying"));
    let fails = Arc::clone(&failing);
    receiver.behave("/a", move |_| {
        Answer::status(if fails.load(Ordering::SeqCst) {
            500
        } else {
            200
        })
    });
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint: Endpoint = shop.endpoint("a", &receiver.url("/a"));
    shop.endpoint("b", &receiver.url("/b"));
    let events: Vec<String> = CHANGES.iter().map(|_| emit(&mut shop, "a")).collect();
    let sound = emit(&mut shop, "a");
    for event in events.iter().chain([&sound]) {
        shop.wait_for_state(event, &endpoint, first_state);
    }
    let first = receiver.count();
    failing.store(false, Ordering::SeqCst);
    for (event, what) in events.iter().zip(CHANGES) {
        shop.run("begin");
        again(&mut shop, event);
        change(&mut shop, event, what);
        shop.run("commit");
    }
    again(&mut shop, &sound);
    for (event, what) in events.iter().zip(CHANGES) {
        // A replay of what seems to be of another database is refused before it begins.
        let delivery = if what.starts_with("origin") && first_state == "delivered" {
            shop.wait_until(&format!(
                "(select state = 'refused' and result ~ 'fenced' from webhook.requests where event_id = '{event}')"
            ));
            shop.delivery(event, &endpoint).expect("a delivery")
        } else {
            let delivery = shop.wait_for_state(event, &endpoint, "dead");
            let reason = delivery.reason.clone().unwrap_or_default();
            assert!(reason.contains("fenced"), "{what}: {reason}");
            delivery
        };
        assert_eq!(delivery.attempts, 1, "{what}");
        assert_fenced(&mut shop, event, what);
        let (code, message) = shop.refusal(&format!("select webhook.replay('{event}')"));
        assert_eq!(code, "55000", "{what}: {message}");
    }
    let delivery = shop.wait_for_attempts(&sound, &endpoint, 2);
    assert_eq!(delivery.state, "delivered");
    let next = emit(&mut shop, "a");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(receiver.count(), first + 2);
}

#[test]
fn what_is_changed_between_two_attempts_is_not_sent_again_and_told() {
    changed_after_the_first_attempt("1h,1h", "retrying", |shop, event| {
        shop.run(&format!(
            "select webhook.retry(delivery_id, 'at once') from webhook.deliveries where event_id = '{event}'"
        ));
    });
}

#[test]
fn what_is_changed_after_its_delivery_is_not_replayed_and_told() {
    changed_after_the_first_attempt("1h", "delivered", |shop, event| {
        shop.run(&format!("select webhook.replay('{event}')"));
    });
}

/// An endpoint is looked up inside the partner of its event, also when somebody has written the pair down.
#[test]
fn a_pair_that_is_planted_across_partners_is_never_sent() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let own = shop.endpoint("a", &receiver.url("/a"));
    let foreign = shop.endpoint("b", &receiver.url("/b"));
    let event = emit(&mut shop, "a");
    shop.wait_for_state(&event, &own, "delivered");
    let plant = format!(
        "insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision, next_attempt_at)
         values ('{event}', {id}, 'pending', 0, 0, 1, now());
         insert into webhook._due (endpoint_id, next_attempt_at, attempt_count, series_start, hold, class, event_id, series_at)
         values ({id}, now(), 0, 0, 0, 1, '{event}', now())",
        id = foreign.id
    );
    // The next life of the leader finds it among what is due.
    shop.run(&plant);
    shop.restart_leader();
    let delivery = shop.wait_for_state(&event, &foreign, "dead");
    let reason = delivery.reason.clone().unwrap_or_default();
    assert!(reason.contains("another partner"), "{reason}");
    // Asking for it again is no way around that.
    shop.run(&format!(
        "select webhook.retry('{}', 'please')",
        delivery.id
    ));
    shop.wait_until("(select bool_and(state <> 'pending') from webhook.requests)");
    shop.wait_for_state(&event, &foreign, "dead");
    let (code, _) = shop.refusal(&format!("select webhook.replay('{event}', {})", foreign.id));
    assert_eq!(code, "42704");
    let next = emit(&mut shop, "b");
    shop.wait_for_state(&next, &foreign, "delivered");
    assert_eq!(
        shop.delivery(&event, &foreign)
            .expect("a delivery")
            .attempts,
        0
    );
    let arrived: Vec<_> = receiver
        .requests_for("/b")
        .iter()
        .map(|r| r.header("webhook-id").map(str::to_owned))
        .collect();
    assert_eq!(arrived, [Some(next)]);
}
