//! What is old goes, a day at a time: what refers to something before what it refers to, nothing due or dead without a
//! word, and nobody who emits waits for it. Old days are made, not waited for.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    past::TABLES,
    receiver::Receiver,
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

/// A database of its own, an endpoint, and an event that was delivered.
fn scene<'c>(name: &str, receiver: &Receiver) -> (Outbox<'c>, Endpoint, String) {
    let mut shop = Outbox::create(&CLUSTER, name);
    let endpoint = shop.endpoint("acme", &receiver.url("/in"));
    let event = shop.emit("order.paid", "acme", "{\"n\": 1}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    (shop, endpoint, event)
}

#[test]
fn a_day_goes_table_by_table_and_what_is_open_in_it_is_told_before() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, model) = scene("days", &receiver);
    for days in [100, 70, 65, 40, 20] {
        shop.old_day(days);
    }
    // A pass that begins meanwhile must not see it half made.
    shop.run("begin");
    let mut old = |days: i32, state: &str| {
        let event = shop.old_event(&model, days);
        shop.old_delivery(&event, &endpoint, state);
        event
    };
    // Past every age: delivered, still due, and dead.
    old(100, "delivered");
    old(100, "retrying");
    old(100, "dead");
    // Past the age of deliveries: one day is settled, one has a dead letter, one delivery is still due.
    old(70, "delivered");
    let dead = old(65, "dead");
    let due = old(65, "pending");
    // Past the age of attempts, and of nothing.
    let attempted = old(40, "delivered");
    let recent = old(20, "delivered");
    shop.run("commit");
    shop.begin_pass();
    for table in TABLES {
        wait_for(&format!("{table} of day 100 is gone"), PATIENCE, || {
            shop.leaf(table, 100).is_empty()
        });
    }
    for table in ["_delivery", "_attempt", "_excerpt"] {
        wait_for(&format!("{table} of day 70 is gone"), PATIENCE, || {
            shop.leaf(table, 70).is_empty()
        });
    }
    for table in ["_attempt", "_excerpt"] {
        wait_for(&format!("{table} of day 40 is gone"), PATIENCE, || {
            shop.leaf(table, 40).is_empty()
        });
    }
    // A day with dead letters waits, with everything that tells about them.
    let expired = shop.wait_for_state(&due, &endpoint, "dead");
    assert_eq!(expired.category.as_deref(), Some("expired"));
    assert_eq!(
        expired.reason.as_deref(),
        Some("older than the retention of deliveries")
    );
    assert_eq!(
        shop.delivery(&dead, &endpoint).map(|d| d.state),
        Some("dead".to_owned())
    );
    for table in TABLES {
        assert!(!shop.leaf(table, 65).is_empty(), "{table}");
        assert!(!shop.leaf(table, 20).is_empty(), "{table}");
    }
    assert!(!shop.leaf("_event", 70).is_empty() && !shop.leaf("_feed", 70).is_empty());
    assert!(!shop.leaf("_delivery", 40).is_empty());
    assert!(shop.delivery(&attempted, &endpoint).is_some());
    assert_eq!(shop.attempts(&recent, &endpoint).len(), 2);
    let alerts = shop.rows(
        "select kind, partner_id, split_part(detail, ' ', 1) from webhook.alerts where kind like 'delivery.%' order by kind",
    );
    let expected = [
        ["delivery.closed", "acme", "2"],
        ["delivery.expired", "acme", "2"],
    ];
    let alerts: Vec<Vec<String>> = alerts
        .into_iter()
        .map(|row| row.into_iter().map(Option::unwrap_or_default).collect())
        .collect();
    assert_eq!(alerts, expected);
    // When the dead letters are closed their day goes as well.
    for event in [&dead, &due] {
        shop.run(&format!(
            "select webhook.close(webhook._delivery_id('{event}', {}), 'looked at')",
            endpoint.id
        ));
        shop.wait_for_state(event, &endpoint, "closed");
    }
    shop.begin_pass();
    wait_for("deliveries of day 65 are gone", PATIENCE, || {
        shop.leaf("_delivery", 65).is_empty()
    });
    assert!(!shop.leaf("_event", 65).is_empty());
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn nobody_who_emits_waits_for_a_day_that_somebody_holds_and_it_goes_later() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, model) = scene("locks", &receiver);
    shop.old_day(100);
    let old = shop.old_event(&model, 100);
    shop.old_delivery(&old, &endpoint, "delivered");
    let mut emitter = shop.another();
    emitter.run("begin");
    emitter.emit("order.paid", "acme", "{}");
    let mut reader = shop.another();
    reader.run(&format!(
        "begin; select * from webhook._event where event_id = '{old}'"
    ));
    shop.begin_pass();
    wait_for("the deliveries are gone", PATIENCE, || {
        shop.leaf("_delivery", 100).is_empty()
    });
    let longest = emit_for(&mut shop, Duration::from_secs(3));
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert_eq!(
        reader.number(&format!(
            "select count(*) from webhook._event where event_id = '{old}'"
        )),
        1
    );
    // Without the reader the day is emptied; it is dropped when nobody is in a transaction who has emitted.
    reader.run("commit");
    shop.begin_pass();
    wait_for("the day is empty", PATIENCE, || {
        shop.number(&format!(
            "select count(*) from webhook._event where event_id = '{old}'"
        )) == 0
    });
    let longest = emit_for(&mut shop, Duration::from_secs(2));
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert!(!shop.leaf("_event", 100).is_empty());
    emitter.run("commit");
    shop.begin_pass();
    wait_for("the day is gone", PATIENCE, || {
        shop.leaf("_event", 100).is_empty()
    });
}

/// Emits without a pause and returns the longest time that one took.
fn emit_for(shop: &mut Outbox<'_>, time: Duration) -> Duration {
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < time {
        let now = Instant::now();
        shop.emit("order.paid", "acme", "{}");
        longest = longest.max(now.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    longest
}

#[test]
fn an_event_that_nobody_has_read_keeps_its_day_until_it_was_read() {
    let receiver = Receiver::http();
    let (mut shop, _endpoint, model) = scene("unread", &receiver);
    shop.old_day(100);
    // Emitted long ago, and committed only now.
    let mut late = shop.another();
    let old = late.text("select webhook._event_bound(clock_timestamp() - interval '100 days')");
    late.run(&format!(
        "begin;
         create temp table old on commit drop as select * from webhook._event where event_id = '{model}';
         update old set event_id = '{old}', xid = pg_current_xact_id();
         insert into webhook._event select * from old"
    ));
    shop.begin_pass();
    std::thread::sleep(Duration::from_secs(1));
    assert!(!shop.leaf("_event", 100).is_empty());
    late.run("commit");
    // It was made up, so it is fenced: but it was read, and told of.
    shop.wait_until(&format!(
        "exists (select from webhook.alerts where kind = 'event.fenced' and event_id = '{old}')"
    ));
    shop.begin_pass();
    wait_for("the day is gone", PATIENCE, || {
        shop.leaf("_event", 100).is_empty()
    });
}

#[test]
fn weeks_of_old_days_go_while_events_are_delivered() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, model) = scene("weeks", &receiver);
    for days in 91..131 {
        shop.old_day(days);
        let old = shop.old_event(&model, days);
        shop.old_delivery(&old, &endpoint, "delivered");
    }
    shop.begin_pass();
    let old_leaves = "select count(*) from pg_class where relnamespace = 'webhook'::regnamespace and relkind = 'r'
                         and relname ~ '^_[a-z]+_[0-9]{8}$' and right(relname, 8)::date < now()::date - 90";
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    wait_for("all of them are gone", PATIENCE * 3, || {
        let now = Instant::now();
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        slowest = slowest.max(now.elapsed());
        shop.number(old_leaves) == 0
    });
    // Between the days, and not after all of them, however long those take the machine.
    let all = begun.elapsed();
    assert!(
        slowest < Duration::from_secs(5) || slowest < all / 4,
        "{slowest:?} of {all:?}"
    );
}

#[test]
fn old_rows_without_a_partition_go_and_those_of_other_tables() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, model) = scene("rows", &receiver);
    let gone = shop.old_event(&model, 200);
    shop.old_delivery(&gone, &endpoint, "delivered");
    let kept = shop.old_event(&model, 70);
    shop.old_delivery(&kept, &endpoint, "dead");
    shop.run(
        "insert into webhook._audit (audit_id, verb, object_kind) values
           (webhook._pos_bound(now() - interval '366 days'), 'old', 'all'), (webhook._pos_bound(now() - interval '364 days'), 'young', 'all');
         insert into webhook._alert (alert_id, kind, severity) values
           (webhook._pos_bound(now() - interval '91 days'), 'event.fenced', 'info'), (webhook._pos_bound(now() - interval '89 days'), 'event.fenced', 'info');
         insert into webhook._request (request_id, verb, origin, state) values
           (webhook._pos_bound(now() - interval '91 days'), 'pause', 0, 'done'), (webhook._pos_bound(now() - interval '92 days'), 'pause', 0, 'pending');
         insert into webhook._idempotency (key_hash, event_id) values
           (md5('old')::uuid, webhook._event_bound(now() - interval '25 hours')), (md5('young')::uuid, webhook._event_bound(now() - interval '23 hours'))",
    );
    shop.begin_pass();
    shop.wait_until(
        "not exists (select from webhook._idempotency where key_hash = md5('old')::uuid)",
    );
    shop.wait_until(&format!(
        "not exists (select from webhook._event_default where event_id = '{gone}')"
    ));
    for table in ["_delivery", "_excerpt", "_feed"] {
        shop.wait_until(&format!(
            "(select count(*) = 0 from webhook.{table}_default where event_id = '{gone}')"
        ));
        assert_eq!(
            shop.number(&format!(
                "select count(*) from webhook.{table}_default where event_id = '{kept}'"
            )),
            1,
            "{table}"
        );
    }
    shop.wait_until(
        "(select array_agg(verb) = '{young}' from webhook._audit where object_kind = 'all' and verb in ('old', 'young'))",
    );
    shop.wait_until("(select count(*) = 1 from webhook._alert where kind = 'event.fenced')");
    shop.wait_until(
        "(select array_agg(state) = '{pending}' from webhook._request where origin = 0)",
    );
    assert_eq!(
        shop.number(
            "select count(*) from webhook._idempotency where key_hash = md5('young')::uuid"
        ),
        1
    );
    // What is of today lies in the same partitions and stays.
    assert_eq!(
        shop.delivery(&model, &endpoint).map(|d| d.state),
        Some("delivered".to_owned())
    );
}

#[test]
fn payloads_go_at_the_age_of_their_event_type() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, other) = scene("payloads", &receiver);
    shop.run("select webhook.create_event_type('customer.updated', payload_retention => '1 hour')");
    let digest = "encode(sha256('{\"name\": \"Ada\"}'), 'hex')";
    let events: Vec<String> = (0..450)
        .map(|_| shop.emit("customer.updated", "acme", "{\"name\": \"Ada\"}"))
        .collect();
    shop.wait_for_deliveries(&endpoint, "delivered", 451);
    shop.run(
        "select webhook.update_event_type('customer.updated', payload_retention => '1 second')",
    );
    std::thread::sleep(Duration::from_secs(1));
    shop.begin_pass();
    shop.wait_until("not exists (select from webhook.events where type = 'customer.updated' and data_bytes is not null)");
    shop.wait_until(&format!(
        "450 = (select count(*) from webhook.tombstones where body_sha256 = {digest} and reason like 'the payload retention of the event type%' and erasure_id is null)"
    ));
    assert!(shop.is(&format!(
        "data_bytes is not null from webhook.events where event_id = '{other}'"
    )));
    assert_eq!(
        shop.delivery(&events[0], &endpoint).map(|d| d.state),
        Some("delivered".to_owned())
    );
    let refused = shop.refusal(&format!("select webhook.replay('{}')", events[0]));
    assert_eq!(refused.0, "55000");
    // It goes on from where it was.
    let next = shop.emit("customer.updated", "acme", "{\"name\": \"Ada\"}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    std::thread::sleep(Duration::from_secs(1));
    shop.begin_pass();
    shop.wait_until(&format!(
        "exists (select from webhook.tombstones where event_id = '{next}')"
    ));
    // The seal covers the digest: nothing is taken for tampering.
    assert_eq!(shop.number("select count(*) from webhook._fenced"), 0);
}

#[test]
fn what_somebody_asked_for_is_as_old_as_the_asking() {
    let receiver = Receiver::http();
    let (mut shop, endpoint, model) = scene("asked", &receiver);
    let mut waits = |days: i32, set: &str| {
        // A pass that begins meanwhile must not see it half made.
        shop.run("begin");
        let event = shop.old_event(&model, days);
        shop.old_delivery(&event, &endpoint, "retrying");
        shop.run(&format!(
            "update webhook._due set {set} where event_id = '{event}'; commit"
        ));
        event
    };
    // Sixty days are kept of deliveries, ninety of events.
    let by_itself = waits(65, "asked = false");
    let asked = waits(65, "asked = true");
    let of_a_range = waits(65, "class = 2");
    let long_ago = waits(
        65,
        "asked = true, series_at = clock_timestamp() - interval '61 days'",
    );
    let gone = waits(95, "asked = true");
    let refused = shop.refusal(&format!("select webhook.replay('{gone}', {})", endpoint.id));
    assert_eq!(refused.0, "55000");
    assert!(refused.1.contains("has expired"), "{}", refused.1);
    shop.begin_pass();
    for event in [&by_itself, &long_ago, &gone] {
        shop.wait_until(&format!(
            "not exists (select from webhook._due where event_id = '{event}')"
        ));
    }
    for event in [&by_itself, &long_ago] {
        assert_eq!(
            shop.delivery(event, &endpoint).map(|d| d.state),
            Some("dead".to_owned())
        );
    }
    // Another pass finds nothing else.
    shop.begin_pass();
    std::thread::sleep(Duration::from_secs(1));
    for event in [&asked, &of_a_range] {
        assert_eq!(
            shop.delivery(event, &endpoint).map(|d| d.state),
            Some("retrying".to_owned())
        );
    }
}

#[test]
fn no_day_of_the_feed_goes_before_an_earlier_one() {
    let receiver = Receiver::http();
    let (mut shop, _, model) = scene("feed", &receiver);
    for days in [100, 95] {
        shop.old_day(days);
        shop.old_event(&model, days);
    }
    let mut reader = shop.another();
    let held = shop.leaf("_feed", 100);
    reader.run(&format!("begin; select count(*) from {held}"));
    shop.begin_pass();
    for days in [100, 95] {
        wait_for(
            &format!("the events of day {days} are gone"),
            PATIENCE,
            || shop.leaf("_event", days).is_empty(),
        );
    }
    shop.begin_pass();
    std::thread::sleep(Duration::from_secs(1));
    let old = "select count(*) from webhook._feed where pos < webhook._pos_bound(clock_timestamp() - interval '90 days')";
    assert_eq!(shop.number(old), 2);
    reader.run("commit");
    shop.begin_pass();
    for days in [100, 95] {
        wait_for(&format!("the feed of day {days} is gone"), PATIENCE, || {
            shop.leaf("_feed", days).is_empty()
        });
    }
    assert_eq!(shop.number(old), 0);
}
