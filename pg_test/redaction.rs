//! What receivers answer, and who reads payloads: hidden before it is stored, read by right, recorded.

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::Outbox,
    receiver::{Answer, Receiver},
};

#[test]
fn what_looks_like_a_secret_is_neither_stored_nor_shown() {
    let mut cluster = Cluster::start_usual();
    cluster.reload(&[("webhook.redact_keys", "iban, x-pin")]);
    let receiver = Receiver::http();
    let echoed = "{\"error\":\"no\",\"password\":\"hunter-1\",\"headers\":{\"Authorization\":\"Bearer hunter-2\"},\"iban\":\"hunter-3\"}\n\
                  Set-Cookie: id=hunter-4; path=hunter-5\nX-Pin: hunter-6\nwhsec_hunter7hunter7 \x1b[2J\u{9b} caf\u{e9}";
    receiver.behave("/hook", move |_| {
        Answer::status(500)
            .header("X-Token", "hunter-8")
            .body(echoed)
    });
    let excerpt = "select webhook.read_excerpt(delivery_id, 1) from webhook.attempts limit 1";
    {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "acme", "{\"card\": \"hunter-9\"}");
        shop.wait_for_attempts(&event, &endpoint, 1);
        let shown = shop.text(excerpt);
        assert_eq!(
            shown,
            "{\"error\":\"no\",\"password\":\"[redacted]\",\"headers\":{\"Authorization\":\"[redacted]\"},\"iban\":\"[redacted]\"}\n\
         Set-Cookie: \"[redacted]\"\nX-Pin: \"[redacted]\"\n[redacted] ?[2J? caf\u{e9}"
        );
        // In no table, view, log or dump, and in the row of the excerpt as it is shown.
        let dump = cluster.program("pg_dump").args(["-d", "shop"]).output();
        let dump = String::from_utf8_lossy(&dump.expect("pg_dump").stdout).into_owned();
        assert!(dump.contains("[redacted]"), "excerpts are dumped");
        for n in 1..9 {
            assert!(
                !dump.contains(&format!("hunter-{n}")),
                "hunter-{n} is stored"
            );
        }
        assert!(!dump.contains("hunter7"));
        assert!(
            !cluster.log().contains("hunter"),
            "{}",
            cluster.log_tail(50)
        );
        // A name that is added later hides what is stored already.
        shop.run("update webhook._excerpt set body = 'plain_field: hunter-10'");
        assert_eq!(shop.text(excerpt), "plain_field: hunter-10");
    }
    cluster.reload(&[("webhook.redact_keys", "plain_field")]);
    let mut shop = Outbox::join(&cluster, "shop");
    assert_eq!(shop.text(excerpt), "plain_field: \"[redacted]\"");
    let (code, said) = shop.refusal("alter system set webhook.redact_keys = 'a b'");
    assert_eq!(code, "22023");
    assert!(said.contains("2 to 64 characters"), "{said}");
}

#[test]
fn a_payload_is_read_by_right_and_leaves_a_trace_that_a_rollback_does_not_take_along() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let event = shop.emit("order.paid", "acme", "{\"card\": \"confidential\"}");
    shop.run("create role support; select webhook.grant_access('support', 'read')");
    let mut support = shop.another();
    support.run("set session authorization support");
    let read = format!("select webhook.read_payload('{event}', 'ticket 7')");
    assert_eq!(support.refusal(&read).0, "42501");
    shop.run("select webhook.grant_access('support', 'payload', valid_until => clock_timestamp() + interval '1 hour')");
    assert_eq!(support.text(&read), "{\"card\": \"confidential\"}");
    support.run(&format!("begin; {read}; rollback"));
    assert_eq!(
        shop.column(
            "select actor || ' ' || reason from webhook.audit_log where verb = 'read_payload'"
        ),
        ["support ticket 7"]
    );
    let line = format!("payload of event {event} was read by role \"support\"");
    assert_eq!(
        cluster.log().matches(&line).count(),
        2,
        "{}",
        cluster.log_tail(20)
    );
    // It ends by itself, in an open transaction as well.
    support.run("begin");
    shop.run("update webhook._access set valid_until = clock_timestamp() + interval '1 second' where kind = 'payload'");
    shop.wait_until("(select bool_and(valid_until < clock_timestamp()) from webhook.access_rights where kind = 'payload')");
    assert_eq!(support.refusal(&read).0, "42501");
    support.run("rollback");
    assert!(!cluster.log().contains("confidential"));
    // No list and no view holds a payload.
    let views = support.column(
        "select c.relname from pg_class c where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and has_table_privilege(c.oid, 'select')",
    );
    for view in views {
        let rows = support.column(&format!("select v::text from webhook.{view} v"));
        assert!(
            rows.iter().all(|row| !row.contains("confidential")),
            "{view}"
        );
    }
}
