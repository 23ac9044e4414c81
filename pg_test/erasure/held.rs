//! What a filter or a conversion holds when its payload is erased: there is nothing left to wait for, and nobody waits
//! behind it any more.

use webhook_outbox_test::{
    outbox::{Endpoint, Outbox},
    receiver::Receiver,
};

use super::CLUSTER;

/// Two versions of an event type, and a function between them that fails for all but the example.
const CATALOGUE: &str = r#"
    select webhook.create_event_type('customer.updated', payload_retention => '1 hour');
    select webhook.create_event_type('customer.deleted');
    select webhook.add_schema(t, '1', '{"type": "object", "properties": {"n": {"description": "a number"}}}', '{"n": 1}', current => true),
           webhook.add_schema(t, '2', '{"type": "object", "properties": {"m": {"description": "a number"}}}', '{"m": 1}')
      from unnest('{customer.updated,customer.deleted}'::text[]) as t;
    do $$ begin create role erasing_converter; exception when duplicate_object or unique_violation then null; end $$;
    create schema conversions authorization erasing_converter;
    set role erasing_converter;
    create function conversions.fail(jsonb) returns jsonb language plpgsql immutable as $$begin if $1 <> '{"n": 1}' then raise exception 'no'; end if; return '{"m": 1}'; end$$;
    create function conversions.same(jsonb) returns jsonb language sql immutable as $$select jsonb_build_object('m', $1 -> 'n')$$;
    reset role;
    select webhook.create_conversion('customer.updated', '1', '2', 'conversions.fail(jsonb)', 'a test');
    select webhook.create_conversion('customer.deleted', '1', '2', 'conversions.same(jsonb)', 'a test');
"#;

const SUBJECT: &str = ", subject_type => 'customer', subject_id => '7'";

fn wait_until_held(shop: &mut Outbox<'_>, event: &str, endpoint: &Endpoint, by: &str) {
    shop.wait_until(&format!(
        "exists (select from webhook.deliveries where event_id = '{event}' and endpoint_id = {} and '{by}' = any (held_by))",
        endpoint.id
    ));
}

fn assert_erased(shop: &mut Outbox<'_>, event: &str, endpoint: &Endpoint) {
    let ended = shop.wait_for_state(event, endpoint, "cancelled");
    assert_eq!(ended.reason.as_deref(), Some("the payload was expunged"));
    assert_eq!((ended.attempts, ended.category), (0, None));
}

#[test]
fn a_deletion_does_not_wait_behind_what_was_held_and_is_erased() {
    let mut shop = Outbox::create(&CLUSTER, "held");
    shop.run(CATALOGUE);
    let receiver = Receiver::http();
    let filtered = shop.endpoint_with(
        "acme",
        &receiver.url("/filtered"),
        ", filter => '$.n > 1', ordered => true",
    );
    let pinned = shop.endpoint_with(
        "acme",
        &receiver.url("/pinned"),
        ", schema_versions => '{\"customer.updated\": \"2\", \"customer.deleted\": \"2\"}', ordered => true",
    );
    let held = shop.emit_with("customer.updated", "acme", r#"{"n": "x"}"#, SUBJECT);
    let deleted = shop.emit_with("customer.deleted", "acme", r#"{"n": 2}"#, SUBJECT);
    let other = shop.emit("customer.updated", "acme", r#"{"n": "y"}"#);
    wait_until_held(&mut shop, &held, &filtered, "filter");
    wait_until_held(&mut shop, &held, &pinned, "conversion");
    wait_until_held(&mut shop, &deleted, &pinned, "order");
    shop.run("select webhook.expunge('asked for', subject_type => 'customer', subject_id => '7')");
    for (endpoint, path) in [(&filtered, "/filtered"), (&pinned, "/pinned")] {
        assert_erased(&mut shop, &held, endpoint);
        shop.wait_for_state(&deleted, endpoint, "delivered");
        let sent = receiver.requests_for(path);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].text().contains("\"expunged\":true"));
    }
    // Others wait on.
    wait_until_held(&mut shop, &other, &filtered, "filter");
    wait_until_held(&mut shop, &other, &pinned, "conversion");
    // The end of a payload's retention is no other end. A reload makes the leader look for what is old.
    shop.run(
        "select webhook.update_event_type('customer.updated', payload_retention => '1 second');
         select pg_sleep(1.1);
         select pg_reload_conf()",
    );
    for endpoint in [&filtered, &pinned] {
        assert_erased(&mut shop, &other, endpoint);
    }
}

#[test]
fn what_is_erased_between_two_looks_of_the_leader_is_erased_for_it() {
    let mut shop = Outbox::create(&CLUSTER, "between");
    shop.run(CATALOGUE);
    let receiver = Receiver::http();
    // It is asked after the event is read, and before its versions are: until it was erased in between. A sequence shows
    // what the other session did although the leader's snapshot is older.
    shop.run(
        "create sequence public.erased;
         alter function webhook._try_filters(text, text[]) rename to _try_filters_at_once;
         create function webhook._try_filters(body text, filters text[])
         returns table (place integer, matched boolean, why text) language plpgsql as $$
         begin
           while not (select is_called from public.erased) loop
             perform pg_sleep(0.02);
           end loop;
           return query select * from webhook._try_filters_at_once(body, filters);
         end $$",
    );
    let slow = shop.endpoint_with("acme", &receiver.url("/slow"), ", filter => '$.n > \"1\"'");
    let pinned = shop.endpoint_with(
        "acme",
        &receiver.url("/pinned"),
        ", schema_versions => '{\"customer.updated\": \"2\", \"customer.deleted\": \"2\"}'",
    );
    let plain = shop.endpoint("other", &receiver.url("/plain"));
    let first = shop.emit("customer.deleted", "other", "{}");
    shop.wait_for_state(&first, &plain, "delivered");
    let deleted = shop.emit("customer.deleted", "acme", r#"{"n": 1}"#);
    shop.wait_until(
        "exists (select from pg_stat_activity where wait_event = 'PgSleep' and backend_type like 'webhook%' and datname = current_database())",
    );
    shop.run("select webhook.expunge('asked for', partner_id => 'acme')");
    shop.run("select nextval('public.erased')");
    for endpoint in [&pinned, &slow] {
        shop.wait_for_state(&deleted, endpoint, "delivered");
    }
    assert!(shop.is("not exists (select from webhook.alerts where kind = 'delivery.unconverted')"));
    for request in receiver.requests() {
        let body: serde_json::Value = serde_json::from_str(request.text()).expect("JSON");
        assert!(
            body["partner_id"] != "acme" || body["expunged"] == true,
            "{body}"
        );
    }
    // What says nothing without its payload is cancelled.
    shop.run("select setval('public.erased', 1, false)");
    let updated = shop.emit("customer.updated", "acme", r#"{"n": 2}"#);
    shop.wait_until(
        "exists (select from pg_stat_activity where wait_event = 'PgSleep' and backend_type like 'webhook%' and datname = current_database())",
    );
    shop.run(&format!(
        "select webhook.expunge('asked for', event_id => '{updated}')"
    ));
    shop.run("select nextval('public.erased')");
    assert_erased(&mut shop, &updated, &pinned);
}
