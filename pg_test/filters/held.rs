//! What a filter cannot decide about.

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    outbox::Outbox,
    receiver::Receiver,
};

use super::{CLUSTER, endpoint, is_held, update};

#[test]
fn what_cannot_be_decided_is_held_with_an_alert_and_keeps_nothing_else_waiting() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let strict = endpoint(
        &mut shop,
        "held",
        &receiver,
        "/strict",
        "filter => '$.amount > 100'",
    );
    let plain = shop.endpoint("held", &receiver.url("/plain"));
    // Each of them is JSON, and none of them can be asked.
    let undecided = [
        emit_json(&mut shop, "held", r#"{"amount": 500, "name": "a\u0000b"}"#),
        emit_json(&mut shop, "held", r#"{"amount": 500, "name": "\ud800"}"#),
        emit_json(&mut shop, "held", r#"{"amount": 1e400000}"#),
        emit_json(&mut shop, "held", r#"{"amount": "500"}"#),
    ];
    let fine = shop.emit("a.b", "held", r#"{"amount": 500}"#);
    shop.wait_for_state(&fine, &strict, "delivered");
    for event in &undecided {
        shop.wait_for_state(event, &plain, "delivered");
        let held = shop.wait_for_state(event, &strict, "pending");
        assert_eq!(held.category.as_deref(), Some("filter"));
        assert_eq!(held.attempts, 0);
        assert_eq!(held.next_attempt_at, None);
        assert!(is_held(&mut shop, event, &strict));
    }
    // One alert for all of them, in our words: no payload.
    let alerts = shop.rows(&format!(
        "select severity, partner_id, detail from webhook.alerts where kind = 'delivery.filter' and endpoint_id = {}",
        strict.id
    ));
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0][1].as_deref(), Some("held"));
    let detail = alerts[0][2].clone().unwrap_or_default();
    assert!(
        detail.starts_with("the payload cannot be read as jsonb"),
        "{detail}"
    );
    assert!(!detail.contains("name"), "{detail}");

    // An operator's word: sent as it is, or never.
    let ids: Vec<String> = undecided
        .iter()
        .map(|event| shop.delivery(event, &strict).expect("a delivery").id)
        .collect();
    shop.run(&format!(
        "select webhook.retry('{}', 'send it as it is')",
        ids[0]
    ));
    shop.run(&format!("select webhook.skip('{}', 'not wanted')", ids[1]));
    shop.wait_for_state(&undecided[0], &strict, "delivered");
    shop.wait_for_state(&undecided[1], &strict, "skipped");
    // Another filter decides about the rest: the one that cannot be read stays.
    update(
        &mut shop,
        &strict,
        r#"filter => '$.amount > 100 || $.amount == "500"'"#,
    );
    shop.wait_for_state(&undecided[3], &strict, "delivered");
    assert!(is_held(&mut shop, &undecided[2], &strict));
    // Without any, everything passes.
    update(&mut shop, &strict, "filter => ''");
    shop.wait_for_state(&undecided[2], &strict, "delivered");
}

#[test]
fn a_held_event_that_a_new_filter_does_not_match_is_cancelled() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "cancels",
        &receiver,
        "/hook",
        "filter => '$.n > 1'",
    );
    let event = shop.emit("a.b", "cancels", r#"{"n": "two"}"#);
    shop.wait_for_state(&event, &hook, "pending");
    update(
        &mut shop,
        &hook,
        r#"filter => '$.n.type() == "number" && $.n > 1'"#,
    );
    let delivery = shop.wait_for_state(&event, &hook, "cancelled");
    assert_eq!(
        delivery.reason.as_deref(),
        Some("the filter of the endpoint does not match the event")
    );
    assert_eq!(receiver.count(), 0);
}

#[test]
fn order_is_kept_around_what_a_filter_holds() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "ordered",
        &receiver,
        "/hook",
        "filter => '$.n > 1', ordered => true",
    );
    let subject = ", subject_type => 'order', subject_id => '7'";
    let first = shop.emit_with("a.b", "ordered", r#"{"n": 2}"#, subject);
    let undecided = shop.emit_with("a.b", "ordered", r#"{"n": "x"}"#, subject);
    let last = shop.emit_with("a.b", "ordered", r#"{"n": 3}"#, subject);
    shop.wait_for_state(&first, &hook, "delivered");
    shop.wait_for_state(&undecided, &hook, "pending");
    shop.wait_for_state(&last, &hook, "pending");
    update(&mut shop, &hook, r#"filter => '$.n > 1 || $.n == "x"'"#);
    shop.wait_for_state(&last, &hook, "delivered");
    let got: Vec<String> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-id").expect("an id").to_owned())
        .collect();
    assert_eq!(got, [first, undecided, last]);
}

#[test]
fn a_payload_with_too_many_values_for_its_filter_is_held() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "large",
        &receiver,
        "/hook",
        "filter => '$.a == $.b'",
    );
    let small = shop.emit("a.b", "large", r#"{"a": [1, 2], "b": [3, 2]}"#);
    let large = shop.text(
        "select webhook.emit('a.b', 'large', (select jsonb_build_object('a', jsonb_agg(n), 'b', jsonb_agg(-n)) from generate_series(1, 2000) as n))",
    );
    shop.wait_for_state(&small, &hook, "delivered");
    shop.wait_for_state(&large, &hook, "pending");
    assert!(is_held(&mut shop, &large, &hook));
}

#[test]
fn an_adopted_endpoint_asks_its_filter_and_decides_anew_about_what_it_held() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (hook, held) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let hook = endpoint(
            &mut shop,
            "copied",
            &receiver,
            "/hook",
            "filter => '$.n > 1'",
        );
        let held: Vec<String> = [r#"{"n": "two"}"#, r#"{"n": "one"}"#]
            .iter()
            .map(|data| shop.emit("a.b", "copied", data))
            .collect();
        for event in &held {
            shop.wait_for_state(event, &hook, "pending");
        }
        (hook, held)
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    let unread: Vec<String> = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        [r#"{"n": 2}"#, r#"{"n": 1}"#, r#"{"n": "x"}"#]
            .iter()
            .map(|data| shop.emit("a.b", "copied", data))
            .collect()
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    let origin = copy.text("select origin from webhook.stat_fenced");
    copy.run(&format!("select webhook.adopt({origin}, 'send', 'moved')"));
    copy.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
    copy.wait_for_state(&unread[0], &hook, "delivered");
    copy.wait_for_state(&unread[2], &hook, "pending");
    assert!(is_held(&mut copy, &unread[2], &hook));
    assert_eq!(copy.delivery(&unread[1], &hook), None);
    for event in &held {
        assert!(is_held(&mut copy, event, &hook));
    }
    update(&mut copy, &hook, r#"filter => '$.n == "two"'"#);
    copy.wait_for_state(&held[0], &hook, "delivered");
    copy.wait_for_state(&held[1], &hook, "cancelled");
    copy.wait_for_state(&unread[2], &hook, "cancelled");
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_repair_asks_the_filter_that_was_chosen_meanwhile() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (hook, events) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let hook = shop.endpoint("mended", &receiver.url("/hook"));
        let events: Vec<String> = [r#"{"n": 1}"#, r#"{"n": 5}"#, r#"{"n": "x"}"#]
            .iter()
            .map(|data| shop.emit("a.b", "mended", data))
            .collect();
        for event in &events {
            shop.wait_for_state(event, &hook, "delivered");
        }
        (hook, events)
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        shop.run(
            "delete from webhook._delivery;
             select * from webhook.reconcile(null, settle => '0', repair => true)",
        );
        assert!(shop.is(
            "(select count(*) = 3 and bool_and(kind = 'pair.missing') from webhook.reconciliation)"
        ));
        update(&mut shop, &hook, "filter => '$.n > 3'");
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until(
        "(select bool_and(state = 'done') from webhook.requests where verb = 'repair')",
    );
    shop.wait_for_state(&events[1], &hook, "delivered");
    shop.wait_for_state(&events[2], &hook, "pending");
    assert!(is_held(&mut shop, &events[2], &hook));
    assert_eq!(shop.delivery(&events[0], &hook), None);
    // What it holds is held again when its row in the due table is.
    shop.run(
        "delete from webhook._due;
         select * from webhook.reconcile(null, settle => '0', repair => true)",
    );
    shop.wait_until("(select count(*) = 1 from webhook._due)");
    shop.wait_until(
        "(select bool_and(state = 'done') from webhook.requests where verb = 'repair')",
    );
    assert!(is_held(&mut shop, &events[2], &hook));
    assert_eq!(receiver.count(), 4);
}

fn emit_json(shop: &mut Outbox<'_>, partner: &str, data: &str) -> String {
    shop.text(&format!(
        "select webhook.emit_json('a.b', '{partner}', '{data}')"
    ))
}
