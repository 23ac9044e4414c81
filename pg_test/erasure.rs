//! Erasing payloads: in one transaction, with every copy, and past everything that the leader holds in memory. What was
//! erased does not leave any more, but for deletions, which leave as ids only.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, Ordering},
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

#[path = "erasure/held.rs"]
mod held;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", &["1s"; 50].join(","))
        // Requests are held for as long as a test has something to do meanwhile.
        .setting("webhook.request_timeout", "5min")
        .setting("webhook.first_pass_limit", "60s")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

const SECRET: &str = "{\"name\": \"Ada Lovelace\"}";

#[test]
fn an_erased_event_is_not_sent_again_and_a_deletion_leaves_as_ids_only() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    // Until the erasure has committed, however often they are asked.
    let mended = Arc::new(AtomicBool::new(false));
    for path in ["/native", "/structured", "/binary"] {
        let of_receiver = Arc::clone(&mended);
        receiver.behave(path, move |_| {
            if of_receiver.load(Ordering::SeqCst) {
                return Answer::status(200);
            }
            Answer::status(503).body("sorry, Ada Lovelace")
        });
    }
    let native = shop.endpoint("retrying", &receiver.url("/native"));
    let changed = shop.emit_with(
        "customer.updated",
        "retrying",
        SECRET,
        ", subject_type => 'customer', subject_id => '7'",
    );
    shop.wait_for_attempts(&changed, &native, 1);
    let structured = shop.endpoint_with(
        "retrying",
        &receiver.url("/structured"),
        ", format => 'cloudevents-structured'",
    );
    let binary = shop.endpoint_with(
        "retrying",
        &receiver.url("/binary"),
        ", format => 'cloudevents-binary'",
    );
    let deleted = shop.emit_with(
        "customer.deleted",
        "retrying",
        SECRET,
        ", subject_type => 'customer', subject_id => '7'",
    );
    shop.wait_for_attempts(&deleted, &structured, 1);
    shop.wait_for_attempts(&deleted, &binary, 1);
    let erasure = shop.number("select webhook.expunge('asked for', partner_id => 'retrying')");
    // What was on the wire then is answered as it was asked for.
    let in_flight = "in_flight = 0 from webhook.stat_worker";
    wait_for("nothing of before is on the wire", PATIENCE, || {
        receiver.in_flight() == 0 && shop.is(in_flight)
    });
    mended.store(true, Ordering::SeqCst);
    let cancelled = shop.wait_for_state(&changed, &native, "cancelled");
    assert_eq!(
        cancelled.reason.as_deref(),
        Some("the payload was expunged")
    );
    for endpoint in [&native, &structured, &binary] {
        shop.wait_for_state(&deleted, endpoint, "delivered");
    }
    let last = |path: &str| receiver.requests_for(path).pop().expect("a request");
    let body: serde_json::Value = serde_json::from_str(last("/native").text()).expect("JSON");
    assert_eq!(body["event_id"], deleted.as_str());
    assert_eq!(body["expunged"], true);
    assert_eq!(body["subject"]["id"], "7");
    assert!(body.get("data").is_none());
    let body: serde_json::Value = serde_json::from_str(last("/structured").text()).expect("JSON");
    assert_eq!(body["id"], deleted.as_str());
    assert_eq!(body["expunged"], true);
    assert!(body.get("data").is_none());
    let binary = last("/binary");
    assert!(binary.body.is_empty());
    assert_eq!(binary.header("ce-expunged"), Some("true"));
    assert_eq!(binary.header("ce-id"), Some(deleted.as_str()));
    // The answers repeated the name.
    shop.wait_until("not exists (select from webhook._tombstone where not swept)");
    let left = shop.rows(&format!(
        "select item, remaining from webhook.confirm_erasure({erasure}) where remaining > 0"
    ));
    assert!(left.is_empty(), "{left:?}");
    assert!(shop.is(&format!(
        "confirmed_at is not null from webhook.erasures where erasure_id = {erasure}"
    )));
    assert_eq!(
        shop.number(&format!(
            "select count(*) from webhook._excerpt where event_id in ('{changed}', '{deleted}') and body like '%Ada%'"
        )),
        0
    );
    assert!(
        shop.number(&format!(
            "select count(*) from webhook.attempts where event_id = '{changed}'"
        )) >= 1
    );
    for event in [&changed, &deleted] {
        assert_eq!(
            shop.refusal(&format!("select webhook.replay('{event}')")).0,
            "55000"
        );
    }
}

#[test]
fn what_waits_in_memory_is_forgotten_and_only_what_is_on_the_wire_escapes() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let go = Arc::new(AtomicBool::new(true));
    let released = Arc::clone(&go);
    receiver.behave("/slow", move |_| {
        let begun = Instant::now();
        while !released.load(Ordering::SeqCst) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        Answer::status(200).body("thank you, Ada Lovelace")
    });
    let endpoint = shop.endpoint_with("memory", &receiver.url("/slow"), ", max_in_flight => 1");
    // It is known to be fast, so what follows waits in memory for its turn.
    for _ in 0..3 {
        let event = shop.emit("customer.created", "memory", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
    receiver.forget();
    go.store(false, Ordering::SeqCst);
    let mut events = Vec::new();
    for n in 0..10 {
        let kind = if n == 5 {
            "customer.deleted"
        } else {
            "customer.updated"
        };
        events.push(shop.emit(kind, "memory", SECRET));
    }
    receiver.wait_for(1, PATIENCE);
    shop.wait_until("(select queued >= 5 from webhook.stat_worker)");
    let mut eraser = shop.another();
    eraser.run("begin");
    let erasure = eraser.number("select webhook.expunge('asked for', partner_id => 'memory')");
    eraser.run("commit");
    go.store(true, Ordering::SeqCst);
    for (n, event) in events.iter().enumerate() {
        let expected = if n == 0 || n == 5 {
            "delivered"
        } else {
            "cancelled"
        };
        shop.wait_for_state(event, &endpoint, expected);
    }
    let sent = receiver.requests_for("/slow");
    assert_eq!(sent.len(), 2);
    assert!(sent[0].text().contains("Ada"));
    assert!(sent[1].text().contains("\"expunged\":true") && !sent[1].text().contains("Ada"));
    // Neither does the answer to what was on the wire leave a trace.
    shop.wait_until("not exists (select from webhook._tombstone where not swept)");
    assert_eq!(
        shop.number(&format!(
            "select count(*) from webhook._excerpt where endpoint_id = {}",
            endpoint.id
        )),
        0
    );
    assert_eq!(
        shop.number(&format!(
            "select sum(remaining) from webhook.confirm_erasure({erasure})"
        )),
        0
    );
}

#[test]
fn an_answer_that_arrives_before_the_erasure_commits_is_swept_up_after_it() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let answer = Answer::status(500).body("no, Ada Lovelace").held(&gate);
    receiver.script("/echo", vec![answer]);
    let endpoint = shop.endpoint("echo", &receiver.url("/echo"));
    let event = shop.emit("customer.updated", "echo", SECRET);
    receiver.wait_for(1, PATIENCE);
    let mut eraser = shop.another();
    eraser.run("begin");
    eraser.run(&format!(
        "select webhook.expunge('asked for', event_id => '{event}')"
    ));
    gate.open();
    shop.wait_for_attempts(&event, &endpoint, 1);
    shop.wait_until(&format!(
        "exists (select from webhook._excerpt where event_id = '{event}')"
    ));
    eraser.run("commit");
    shop.wait_until(&format!(
        "not exists (select from webhook._excerpt where event_id = '{event}')"
    ));
    shop.wait_for_state(&event, &endpoint, "cancelled");
}

#[test]
fn nothing_starts_with_a_payload_whose_erasure_has_committed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    // One that takes each at once, and one that lets them gather in memory for many seconds, were they not erased.
    shop.endpoint_with("race", &receiver.url("/race"), ", max_in_flight => 2");
    shop.endpoint_with("race", &receiver.url("/slow"), ", max_in_flight => 1");
    for (path, service) in [("/race", 3), ("/slow", 60)] {
        let answer = Answer::status(200).after(Duration::from_millis(service));
        receiver.behave(path, move |_| answer.clone());
    }
    let mut eraser = shop.another();
    let mut erased = Vec::new();
    for n in 0..300_u64 {
        let event = shop.emit("customer.updated", "race", SECRET);
        std::thread::sleep(Duration::from_millis(n % 7));
        eraser.run(&format!(
            "select webhook.expunge('asked for', event_id => '{event}')"
        ));
        erased.push((event, Instant::now()));
    }
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue) and (select in_flight = 0 and queued = 0 from webhook.stat_worker)");
    let erased: HashMap<String, Instant> = erased.into_iter().collect();
    let mut late = Vec::new();
    for request in receiver.requests() {
        let at = erased[request.header("webhook-id").expect("an id")];
        // What is on the wire takes a moment to arrive; the machine is busy.
        if request.at > at + Duration::from_secs(3) {
            late.push((request.target.clone(), request.at - at));
        }
    }
    assert!(late.is_empty(), "{late:?}");
    // The race was one: some left before, some did not.
    assert!(receiver.count() > 0, "nothing was sent");
}

/// How long it takes to have twenty events delivered, one after the other.
fn deliver_twenty(shop: &mut Outbox<'_>, endpoint: &Endpoint) -> Duration {
    let begun = Instant::now();
    for _ in 0..20 {
        let event = shop.emit("order.paid", "bystander", "{}");
        shop.wait_for_state(&event, endpoint, "delivered");
    }
    begun.elapsed()
}

#[test]
fn an_erasure_that_is_rolled_back_erases_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/undone", vec![Answer::status(503), Answer::status(200)]);
    let endpoint = shop.endpoint("undone", &receiver.url("/undone"));
    let event = shop.emit("customer.updated", "undone", SECRET);
    shop.wait_for_attempts(&event, &endpoint, 1);
    shop.run(&format!(
        "begin; select webhook.expunge('asked for', event_id => '{event}'); rollback"
    ));
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests_for("/undone");
    assert_eq!(requests[0].body, requests[1].body);
    assert!(shop.is(&format!(
        "not exists (select from webhook.tombstones where event_id = '{event}')"
    )));
}

#[test]
fn a_payload_that_is_gone_without_a_tombstone_is_tampering() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/tampered", vec![Answer::status(500)]);
    shop.run("select webhook.create_policy('patient', retry_schedule => '1h')");
    let patient = ", policy => 'patient'";
    let endpoint = shop.endpoint_with("tampered", &receiver.url("/tampered"), patient);
    let event = shop.emit("customer.deleted", "tampered", SECRET);
    let waiting = shop.wait_for_attempts(&event, &endpoint, 1);
    shop.run(&format!(
        "update webhook._event set body = null where event_id = '{event}'"
    ));
    shop.have_done(&format!("retry('{}', 'once more')", waiting.id));
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    assert_eq!(
        dead.reason.as_deref(),
        Some("the event is fenced: its row does not match its seal")
    );
    shop.wait_until(&format!(
        "exists (select from webhook.alerts where kind = 'event.fenced' and event_id = '{event}')"
    ));
    assert_eq!(receiver.requests_for("/tampered").len(), 1);
    wait_for("the row is fenced", PATIENCE, || {
        shop.is(&format!(
            "fenced = 'seal' from webhook.events where event_id = '{event}'"
        ))
    });
}

#[test]
fn an_open_transaction_that_erases_the_same_again_keeps_nobody_else_waiting() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let answer = Answer::status(500).body("no, Ada Lovelace").held(&gate);
    receiver.script("/held", vec![answer]);
    let endpoint = shop.endpoint("held", &receiver.url("/held"));
    let event = shop.emit("customer.updated", "held", SECRET);
    receiver.wait_for(1, PATIENCE);
    let mut first = shop.another();
    first.run(&format!(
        "begin; select webhook.expunge('asked for', event_id => '{event}')"
    ));
    gate.open();
    shop.wait_until(&format!(
        "exists (select from webhook._excerpt where event_id = '{event}')"
    ));
    // What the machine takes for it just now.
    let other = shop.endpoint("bystander", &receiver.url("/bystander"));
    let free = deliver_twenty(&mut shop, &other);
    // It sees the excerpt that came meanwhile, and holds it.
    let mut second = shop.another();
    second.run(&format!(
        "begin; delete from webhook._excerpt where event_id = '{event}'"
    ));
    first.run("commit");
    let held = deliver_twenty(&mut shop, &other);
    assert!(
        held < free * 10 + Duration::from_secs(5),
        "{held:?}, and {free:?} before"
    );
    second.run("rollback");
    shop.wait_until(&format!(
        "not exists (select from webhook._excerpt where event_id = '{event}')"
    ));
    shop.wait_for_state(&event, &endpoint, "cancelled");
}
