//! What no other test looks at: columns of views that say who, when and how much, and settings whose effect is small. Each is
//! held against what its comment says. That every column and setting is named by some test is checked by completeness.rs.

use std::time::Duration;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

#[test]
fn views_say_who_did_it_and_when() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    {
        let mut shop = Outbox::create(&cluster, "shop");
        let hook = shop.endpoint("acme", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &hook, "delivered");
        for fact in [
            "bool_and(first_attempt_at between webhook._event_time(event_id) and delivered_at) from webhook.deliveries",
            "threads > 0 and extension_version = (select extversion from pg_extension where extname = 'webhook_outbox') from webhook.stat_worker",
            "oldest_unread_at is null and oldest_unread_age is null from webhook.stat_queue",
            "unread_events = 0 and oldest_unread_age is null from webhook.status()",
            "bool_and(created_by = session_user) from webhook.signing_keys",
        ] {
            assert!(shop.is(fact), "{fact}");
        }

        shop.run(
            "select webhook.create_event_type('order.paid', not_emitted_when => 'a', receiver_action => 'b', authoritative_state => 'c', contact => 'd');
             select webhook.add_schema('order.paid', '1', '{\"type\": \"object\"}', '{}');
             select webhook.add_schema('order.paid', '2', '{\"type\": \"object\"}', '{}');
             select webhook.create_source('till', contact => 'e');
             create role converter;
             create schema made authorization converter;
             set role converter;
             create function made.down(jsonb) returns jsonb language sql immutable as 'select $1';
             reset role;
             select webhook.create_conversion('order.paid', '2', '1', 'made.down(jsonb)', 'x');
             select webhook.create_threshold('usage', 'high', 10, 'usage.high');
             select webhook.observe('acme', 'account', '1', 'usage', 5);
             select webhook.create_inbox_source('bank', 'v1', partner_id => 'acme');
             select webhook.add_inbox_key('bank');
             select webhook.create_inbox_handler('books');
             select webhook.pause_inbox('books', 'x');
             select webhook.receive('bank', '{\"webhook-id\": \"a\", \"webhook-timestamp\": \"1\", \"webhook-signature\": \"v1,\"}', 'x');
             create function made.changes(since timestamptz, until timestamptz) returns table (subject_id text, changed_at timestamptz)
               language sql stable security definer set search_path = pg_catalog, pg_temp as 'select ''1'', now() where false';
             select webhook.create_reconciliation('orders', 'order.paid', 'order', 'made.changes(timestamptz, timestamptz)')",
        );
        let recent = |column: &str| format!("now() - {column} between '-1 minute' and '1 minute'");
        for (view, condition) in [
            (
                "event_types where name = 'order.paid'",
                "not_emitted_when = 'a' and receiver_action = 'b' and authoritative_state = 'c' and contact = 'd'"
                    .to_owned(),
            ),
            (
                "event_schemas where version = '1'",
                format!(
                    "added_by = session_user and {} and changed_at >= added_at",
                    recent("added_at")
                ),
            ),
            (
                "sources",
                format!("contact = 'e' and {} and changed_at >= created_at", recent("created_at")),
            ),
            ("thresholds", recent("created_at")),
            (
                "observations",
                format!("partner_id = 'acme' and {}", recent("observed_at")),
            ),
            ("conversions", recent("created_at")),
            (
                "inbox_sources",
                format!("{} and changed_at >= created_at", recent("created_at")),
            ),
            (
                "inbox_keys",
                format!("created_by = session_user and {}", recent("created_at")),
            ),
            (
                "inbox_handlers",
                format!(
                    "paused_by = session_user and {} and changed_at >= created_at",
                    recent("created_at")
                ),
            ),
            ("stat_inbox where handler is null", recent("last_at")),
            ("inbox_rejections", recent("last_at")),
            ("reconciliations", recent("created_at")),
        ] {
            let fact = format!("bool_and({condition}) from webhook.{view}");
            assert!(shop.is(&fact), "{fact}");
        }

        // A delivery that is gone, and a payload.
        let other = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&other, &hook, "delivered");
        shop.run(&format!(
            "delete from webhook._delivery where event_id = '{event}';
             select webhook.reconcile(repair => false, settle => '0');
             select webhook.expunge('x', event_id => '{other}')"
        ));
        assert!(shop.is(&format!(
            "bool_and(finding_id > 0 and happened_at = webhook._event_time('{event}') and seen_at >= detected_at) and count(*) > 0
               from webhook.reconciliation where event_id = '{event}'"
        )));
        assert!(shop.is("bool_and(expunged_by = session_user) from webhook.tombstones"));
    }

    cluster.reload(&[("webhook.enabled", "off")]);
    let began = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        let began = shop.text("select clock_timestamp()");
        shop.emit("order.paid", "acme", "{}");
        assert!(shop.is(&format!(
            "oldest_unread_at between date_trunc('milliseconds', '{began}'::timestamptz) and clock_timestamp()
             and oldest_unread_age between '0' and clock_timestamp() - '{began}' + interval '1 ms' from webhook.stat_queue"
        )));
        assert!(shop.is(&format!(
            "unread_events = 1 and oldest_unread_age between '0' and clock_timestamp() - '{began}' + interval '1 ms' from webhook.status()"
        )));
        began
    };

    // Under another name it is another database, which adopts its own past.
    cluster.reload(&[("webhook.enabled", "on"), ("webhook.node_name", "b")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("running");
    shop.run("select webhook.adopt(origin, 'skip', 'x') from webhook.stat_fenced where reason = 'origin' limit 1");
    wait_for("the adoption is done", PATIENCE, || {
        shop.is("exists (select from webhook.adoptions where state = 'done')")
    });
    assert!(shop.is(&format!(
        "bool_and(requested_by = session_user and requested_at >= '{began}' and resumed = 0) from webhook.adoptions"
    )));
}

#[test]
fn functions_that_list_say_what_was_given_and_what_is_in_force() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let parent = shop.emit("order.made", "acme", r#"{"n": 1}"#);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let child = shop.emit_with(
        "order.paid",
        "acme",
        r#"{"n": 2}"#,
        &format!(", source => 'till', schema_version => '7', causation => '{parent}', traceparent => '{trace}'"),
    );
    shop.wait_until("(select unread = 2 from webhook.feed_status('acme'))");
    for list in [
        "webhook.events_after('acme')",
        "webhook.export_events('acme')",
    ] {
        let of = |shop: &mut Outbox<'_>, event: &str| {
            shop.column(&format!(
                "select concat_ws(' ', source, schema_version, causation, traceparent) from {list} where event_id = '{event}'"
            ))
        };
        assert_eq!(of(&mut shop, &parent), [""], "{list}");
        assert_eq!(
            of(&mut shop, &child),
            [format!("till 7 {parent} {trace}")],
            "{list}"
        );
    }
    assert!(shop.is(
        "count(distinct meaning) = count(*) and bool_and(meaning like '% %.') from webhook.limits()"
    ));
    // The oldest of those that were looked at, which are the newest.
    for (events, oldest) in [(2, &parent), (1, &child)] {
        assert!(
            shop.is(&format!(
                "p.events = {events} and p.oldest = e.published_at
                   from webhook.preview_filter('acme', filter => '$.n > 0', max_events => {events}) p, webhook.events e
                  where e.event_id = '{oldest}'"
            )),
            "{events}"
        );
    }
}

#[test]
fn settings_of_small_effect_have_it() {
    let cluster = Cluster::plan()
        .setting("webhook.max_in_flight_per_partner", "3")
        .setting("webhook.max_response_excerpt", "1kB")
        .setting("webhook.rotation_overlap", "2h")
        .setting("webhook.idempotency_window", "10min")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");

    receiver.behave("/long", |_| Answer::status(400).body("x".repeat(3000)));
    let hook = shop.endpoint("beta", &receiver.url("/long"));
    let event = shop.emit("order.paid", "beta", "{}");
    let delivery = shop.wait_for_state(&event, &hook, "dead");
    assert_eq!(
        shop.number(&format!(
            "select length(webhook.read_excerpt('{}', 1))",
            delivery.id
        )),
        1024
    );

    shop.run(&format!("select webhook.rotate_secret({})", hook.id));
    assert!(shop.is(&format!(
        "count(*) = 1 from webhook.signing_keys
          where endpoint_id = {} and valid_until - now() between '119 minutes' and '121 minutes'",
        hook.id
    )));

    let keyed = "select webhook.emit('order.paid', 'gamma', '{}', idempotency_key => 'k')";
    let first = shop.text(keyed);
    assert_eq!(shop.text(keyed), first);
    // The same key after the window: time passes by moving what is remembered.
    shop.run("update webhook._idempotency set event_id = webhook._event_bound(now() - interval '11 minutes')");
    assert_ne!(shop.text(keyed), first);

    // Two endpoints of one partner, each of which would take eight at once.
    for path in ["/a", "/b"] {
        receiver.behave(path, |_| {
            Answer::status(204).after(Duration::from_millis(100))
        });
        shop.endpoint("acme", &receiver.url(path));
    }
    receiver.forget();
    shop.run("select webhook.emit('order.paid', 'acme', '{}') from generate_series(1, 30)");
    receiver.wait_for(60, PATIENCE);
    assert!(
        receiver.peak() <= 3,
        "{} at once of one partner, 3 are allowed",
        receiver.peak()
    );
}

#[test]
fn what_is_kept_is_kept_for_as_long_as_each_setting_says() {
    let cluster = Cluster::plan()
        .setting("webhook.event_retention", "40d")
        .setting("webhook.delivery_retention", "30d")
        .setting("webhook.attempt_retention", "20d")
        .setting("webhook.inbox_retention", "50d")
        .setting("webhook.audit_retention", "60d")
        .setting("webhook.alert_retention", "10d")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    for (name, days) in [
        ("event_retention", 40),
        ("delivery_retention", 30),
        ("attempt_retention", 20),
        ("inbox_retention", 50),
        ("audit_retention", 60),
        ("alert_retention", 10),
    ] {
        let fact =
            format!("value::interval = '{days} days' from webhook.limits() where name = '{name}'");
        assert!(shop.is(&fact), "{fact}");
    }
    // What is older goes by itself, table by table; the younger row stays. Nothing goes before an event was read.
    shop.emit("order.paid", "nobody", "{}");
    shop.wait_until("(select count(published_at) = 1 from webhook.events)");
    shop.run(
        "insert into webhook._alert (alert_id, at, kind, severity, detail)
         select webhook._pos_bound(now() - a), now() - a, 'event.fenced', 'info', a from unnest('{9 days,11 days}'::interval[]) as a;
         insert into webhook._audit (audit_id, at, actor, verb, object_kind, object_id)
         select webhook._pos_bound(now() - a), now() - a, 'x', 'pause', 'all', a from unnest('{59 days,61 days}'::interval[]) as a",
    );
    // After the commit, or the leader looks too early, and again a minute later.
    shop.run("select pg_reload_conf()");
    shop.wait_until(
        "(select array_agg(detail) = '{9 days}' from webhook._alert where kind = 'event.fenced')",
    );
    shop.wait_until(
        "(select array_agg(object_id) = '{59 days}' from webhook._audit where object_kind = 'all')",
    );
}
