//! Rows that are not what emit wrote: never sent, and shown.

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
};

#[test]
fn an_altered_event_is_never_sent_and_shown_as_fenced() {
    let mut cluster = Cluster::plan().setting("webhook.enabled", "off").start();
    let receiver = Receiver::http();
    let changes = [
        "body = replace(body, '1', '2')",
        "body = body || ' '",
        "type = 'order.refunded'",
        "partner_id = 'b'",
        "occurred_at = occurred_at + interval '1 microsecond'",
        "source = 'crm'",
        "subject_type = 'invoice'",
        "subject_id = '8'",
        "subject_version = subject_version + 1",
        "scope = 'eu'",
        "schema_version = '3'",
        "correlation_id = null",
        "causation = event_id",
        "traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'",
        "test = true",
        "body_sha256 = sha256(convert_to(body || ' ', 'UTF8')), body = body || ' '",
        "seal = seal || '\\x00'",
        "seal_key = seal_key + 1",
    ];
    let (endpoints, altered, sound) = {
        cluster.create_database("shop");
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        shop.wait_for_worker("off");
        let endpoints = [
            shop.endpoint("a", &receiver.url("/a")),
            shop.endpoint("b", &receiver.url("/b")),
            shop.endpoint_with("a", &receiver.url("/test"), ", test => true"),
        ];
        let emit = |shop: &mut Outbox| {
            let more = ", subject_type => 'order', subject_id => '7', subject_version => 1, correlation_id => 'c'";
            shop.emit_with("order.paid", "a", r#"{"amount": 1}"#, more)
        };
        let mut altered = Vec::new();
        for change in changes {
            let event = emit(&mut shop);
            shop.run(&format!(
                "update webhook._event set {change} where event_id = '{event}'"
            ));
            altered.push(event);
        }
        (endpoints, altered, emit(&mut shop))
    };
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&sound, &endpoints[0], "delivered");
    shop.wait_until(&format!(
        "(select fenced = {} from webhook.stat_queue)",
        changes.len()
    ));
    for (event, change) in altered.iter().zip(changes) {
        let event_row = format!("from webhook.events where event_id = '{event}'");
        assert!(shop.is(&format!("fenced = 'seal' {event_row}")), "{change}");
        for endpoint in &endpoints {
            assert_eq!(shop.delivery(event, endpoint), None, "{change}");
        }
        let (code, message) = shop.refusal(&format!("select webhook.replay('{event}')"));
        assert_eq!(code, "55000", "{change}: {message}");
    }
    assert!(shop.is(&format!(
        "fenced is null from webhook.events where event_id = '{sound}'"
    )));
    assert!(shop.is("fenced > 0 and advice ~ 'changed' from webhook.status()"));
    assert!(!shop.is("exists (select from webhook.list_events('b'))"));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_forged_or_copied_event_is_never_sent() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (endpoint, real) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let real = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&real, &endpoint, "delivered");
        (endpoint, real)
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    {
        let mut shop = Outbox::join(&cluster, "shop");
        // Its next id would be taken by nobody: the row is the real one in all but its id and transaction.
        shop.run(&format!(
            "create temp table forged as select * from webhook._event where event_id = '{real}';
             update forged set event_id = overlay(event_id placing '0000000000' from 21), xid = pg_current_xact_id();
             insert into webhook._event select * from forged"
        ));
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until("(select fenced = 1 from webhook.stat_queue)");
    let next = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(receiver.count(), 2);
}

#[test]
fn an_event_that_was_altered_after_its_delivery_is_not_sent_again() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", r#"{"amount": 1}"#);
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run(&format!(
        "begin;
         select webhook.replay('{event}');
         update webhook._event set body = '{{\"amount\": 2}}' where event_id = '{event}';
         commit"
    ));
    let delivery = shop.wait_for_state(&event, &endpoint, "dead");
    assert!(
        delivery
            .reason
            .is_some_and(|reason| reason.contains("fenced"))
    );
    assert!(delivery.delivered_at.is_some());
    assert!(shop.is(&format!(
        "fenced = 'seal' from webhook.events where event_id = '{event}'"
    )));
    let (code, _) = shop.refusal(&format!("select webhook.replay('{event}')"));
    assert_eq!(code, "55000");
    assert_eq!(receiver.wait_for(1, PATIENCE).len(), 1);
    assert_eq!(
        receiver.requests()[0]
            .text()
            .matches("\"amount\": 1")
            .count(),
        1
    );
}
