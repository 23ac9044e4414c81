//! Reconciliation: planted damage of every kind is found, what can be repaired is repaired by the leader, a healthy
//! outbox under traffic is never accused, and a registered query lends nobody rights.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, Receiver},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.first_pass_limit", "200ms")
        .start()
});

/// The open findings, `kind object`, of one run over a range.
fn found(shop: &mut Outbox<'_>, since: &str, repair: bool) -> BTreeSet<String> {
    shop.run(&format!(
        "select * from webhook.reconcile({since}, settle => '0', repair => {repair})"
    ));
    shop.column(
        "select kind || ' ' || object from webhook.reconciliation where repaired_at is null",
    )
    .into_iter()
    .collect()
}

fn delivery_id(event: &str, endpoint: &Endpoint) -> String {
    format!("dlv_{}_{}", &event[4..], endpoint.id)
}

#[test]
fn damage_of_every_kind_is_found_and_what_can_be_repaired_is() {
    let mut shop = Outbox::create(&CLUSTER, "damage");
    let receiver = Receiver::http();
    // A status that shuts no window: nobody probes it meanwhile.
    let mut answers = vec![Answer::status(500).body("later"); 3];
    answers.push(Answer::status(200));
    receiver.script("/bad", answers);
    let good = shop.endpoint_with(
        "acme",
        &receiver.url("/good"),
        ", event_types => '{order.*}'",
    );
    let bad = shop.endpoint_with("acme", &receiver.url("/bad"), ", event_types => '{bad.*}'");
    let fine: Vec<String> = (0..8)
        .map(|_| shop.emit("order.paid", "acme", "{}"))
        .collect();
    for event in &fine {
        shop.wait_for_state(event, &good, "delivered");
    }
    let late: Vec<String> = (0..3)
        .map(|_| shop.emit("bad.order", "acme", "{}"))
        .collect();
    for event in &late {
        shop.wait_for_state(event, &bad, "retrying");
    }
    assert_eq!(found(&mut shop, "null", true), BTreeSet::new());

    let made_up = shop.text("select webhook._event_bound(clock_timestamp() - interval '1 minute')");
    let (good_id, bad_id) = (good.id, bad.id);
    shop.run(&format!(
        "delete from webhook._delivery where event_id = '{0}';
         insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class) values ({good_id}, '{1}', 'infinity', 1, 0, 1);
         delete from webhook._feed where event_id = '{2}';
         update webhook._event set body = null where event_id = '{3}';
         delete from webhook._event where event_id = '{4}';
         update webhook._delivery set delivered_at = null where event_id = '{5}';
         insert into webhook._feed select pos + 1000, published_at, test, partner_id, event_id, type from webhook._feed where event_id = '{6}';
         insert into webhook._tombstone (event_id, body_sha256, partner_id, reason, swept) select event_id, body_sha256, partner_id, 'planted', true from webhook._event where event_id = '{7}';",
        fine[0], fine[1], fine[2], fine[3], fine[4], fine[5], fine[6], fine[7]
    ));
    shop.run(&format!(
        "delete from webhook._due where event_id = '{0}';
         delete from webhook._delivery where event_id = '{1}'; delete from webhook._attempt where event_id = '{1}'; delete from webhook._excerpt where event_id = '{1}';
         delete from webhook._attempt where event_id = '{2}';
         insert into webhook._attempt (endpoint_id, event_id, attempt_no, started_at, incarnation, outcome) values ({bad_id}, '{made_up}', 1, now(), 1, 'retry');
         insert into webhook._excerpt (endpoint_id, event_id, attempt_no, body) values ({bad_id}, '{made_up}', 1, 'x')",
        late[0], late[1], late[2]
    ));
    let planted: BTreeSet<String> = [
        format!("pair.missing {}", delivery_id(&fine[0], &good)),
        format!("due.settled {}", delivery_id(&fine[1], &good)),
        format!("event.unpublished {}", fine[2]),
        format!("event.body_gone {}", fine[3]),
        format!("delivery.without_event {}", delivery_id(&fine[4], &good)),
        format!("feed.without_event {}", fine[4]),
        format!("delivery.contradictory {}", delivery_id(&fine[5], &good)),
        format!("feed.twice {}", fine[6]),
        format!("event.not_expunged {}", fine[7]),
        format!("delivery.not_due {}", delivery_id(&late[0], &bad)),
        format!("due.without_delivery {}", delivery_id(&late[1], &bad)),
        format!("attempt.missing {}", delivery_id(&late[2], &bad)),
        format!("attempt.without_delivery {}", delivery_id(&made_up, &bad)),
        format!("excerpt.without_delivery {}", delivery_id(&made_up, &bad)),
    ]
    .into();
    assert_eq!(found(&mut shop, "null", true), planted);
    shop.wait_until(
        "not exists (select from webhook.requests where verb = 'repair' and state = 'pending')",
    );
    // The leader sends what was lost; nothing is sent that had ended.
    shop.wait_for_state(&fine[0], &good, "delivered");
    shop.wait_for_state(&late[0], &bad, "delivered");
    shop.wait_for_state(&late[1], &bad, "retrying");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{}')",
        fine[2]
    ));
    let left: BTreeSet<String> = planted
        .iter()
        .filter(|finding| {
            ![
                "pair.missing",
                "due.settled",
                "event.unpublished",
                "delivery.not_due",
                "due.without_delivery",
            ]
            .iter()
            .any(|kind| finding.starts_with(kind))
        })
        .cloned()
        // What it had told before is gone with it.
        .chain([format!("attempt.missing {}", delivery_id(&late[1], &bad))])
        .collect();
    assert_eq!(found(&mut shop, "null", true), left);
    let how = shop.column("select distinct how from webhook.reconciliation where repaired_at is not null and how not like 'request %'");
    assert!(how.is_empty(), "{how:?}");
    let of_settled = receiver.requests_for("/good");
    let count = of_settled
        .iter()
        .filter(|r| r.header("webhook-id") == Some(fine[1].as_str()))
        .count();
    assert_eq!(count, 1);
    // The position that the repaired event got is not given again.
    shop.restart_leader();
    let next = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&next, &good, "delivered");
    assert_eq!(shop.number("select count(*) from (select pos from webhook._feed group by partner_id, pos having count(*) > 1) as t"), 0);
}

#[test]
fn days_that_lose_rows_and_rows_without_a_partition_are_found() {
    let mut shop = Outbox::create(&CLUSTER, "days");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("acme", &receiver.url("/"));
    let model = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&model, &endpoint, "delivered");
    let range = "now() - interval '5 days'";
    assert_eq!(found(&mut shop, range, true), BTreeSet::new());
    shop.old_day(3);
    let old: Vec<String> = (0..3).map(|_| shop.old_event(&model, 3)).collect();
    // Partitions were made before today, so today should have one.
    let today: BTreeSet<String> = ["_delivery", "_event", "_feed"]
        .iter()
        .map(|table| format!("default.rows {table}"))
        .collect();
    assert_eq!(found(&mut shop, range, true), today);
    shop.run(&format!(
        "delete from webhook._event where event_id = '{0}'; delete from webhook._feed where event_id = '{0}'",
        old[0]
    ));
    let day = shop.text("select (clock_timestamp() at time zone 'UTC')::date - 3");
    let mut expected = today;
    expected.insert(format!("day.count_drift {day}"));
    assert_eq!(found(&mut shop, range, true), expected);
    assert!(shop.is("detail like 'There were 3 events, 3 in the feed,%there are 2, 2,%' from webhook.reconciliation where kind = 'day.count_drift'"));
}

#[test]
fn a_healthy_outbox_under_traffic_is_never_accused() {
    let mut shop = Outbox::create(&CLUSTER, "healthy");
    let receiver = Receiver::http();
    let mut turn = 0;
    receiver.behave("/flaky", move |_| {
        turn += 1;
        if turn % 3 == 0 {
            Answer::status(503)
        } else {
            Answer::status(200)
        }
    });
    receiver.behave("/slow", |_| {
        Answer::status(200).after(Duration::from_millis(700))
    });
    shop.run("select webhook.create_policy('fast', retry_schedule => '300ms,300ms,300ms')");
    let flaky = shop.endpoint_with("acme", &receiver.url("/flaky"), ", policy => 'fast'");
    let slow = shop.endpoint_with(
        "acme",
        &receiver.url("/slow"),
        ", ordered => true, max_in_flight => 2",
    );
    shop.run(&format!(
        "select webhook.pause('endpoint', '{}', 'wait')",
        slow.id
    ));
    let mut judge = shop.another();
    let begun = Instant::now();
    let mut events = Vec::new();
    let mut runs = 0;
    while begun.elapsed() < Duration::from_secs(16) || runs <= 10 {
        let subject = events.len() % 5;
        events.push(shop.emit_with(
            "order.paid",
            "acme",
            "{}",
            &format!(", subject_type => 'order', subject_id => '{subject}'"),
        ));
        match events.len() % 50 {
            10 => shop.run(&format!("select webhook.expunge('asked for', event_id => '{}')", events[events.len() - 1])),
            20 => shop.run(&format!("select webhook.replay('{}')", events[0])),
            30 => shop.run(&format!("select webhook.resume('endpoint', '{0}'); select webhook.update_endpoint({1}, event_types => '{{order.*}}')", slow.id, flaky.id)),
            40 => shop.run(&format!("select webhook.pause('endpoint', '{}', 'wait')", slow.id)),
            _ => {}
        }
        if events.len().is_multiple_of(7) {
            judge.run("select * from webhook.reconcile(now() - interval '1 minute', settle => '8 seconds')");
            runs += 1;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let accused = shop
        .rows("select kind, object, detail, detected_at, repaired_at from webhook.reconciliation");
    assert!(accused.is_empty(), "{accused:?}");
    assert_eq!(
        shop.number("select count(*) from webhook.requests where verb = 'repair'"),
        0
    );
}

#[test]
fn a_change_that_stayed_open_is_not_held_against_what_was_emitted_meanwhile() {
    let mut shop = Outbox::create(&CLUSTER, "open_change");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "acme",
        &receiver.url("/hook"),
        ", event_types => '{order.*}'",
    );
    let first = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");

    let mut slow = shop.another();
    slow.run(&format!(
        "begin; select webhook.update_endpoint({}, event_types => '{{order.*,refund.*}}')",
        endpoint.id
    ));
    // Its transaction is younger than the change, and it is read before the change is there.
    let between = shop.emit("refund.made", "acme", "{}");
    let of_old_type = shop.emit("order.paid", "acme", "{}");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{between}')"
    ));
    shop.wait_for_state(&of_old_type, &endpoint, "delivered");
    slow.run("commit");
    // The leader goes by the change from here on.
    let after = shop.emit("refund.made", "acme", "{}");
    shop.wait_for_state(&after, &endpoint, "delivered");

    assert_eq!(found(&mut shop, "null", true), BTreeSet::new());
    assert!(
        shop.is("not exists (select from webhook.requests where verb = 'repair')"),
        "a repair of what is whole"
    );
    assert_eq!(
        shop.number(&format!(
            "select count(*) from webhook.deliveries where event_id = '{between}'"
        )),
        0
    );

    // And it is judged by it: what is missing since is found and sent, and nothing else.
    shop.wait_until(&format!(
        "exists (select from webhook._endpoint_seen as s join webhook._endpoint as p using (endpoint_id, changed_xid)
                  where s.endpoint_id = {})",
        endpoint.id
    ));
    let lost = shop.emit("refund.made", "acme", "{}");
    shop.wait_for_state(&lost, &endpoint, "delivered");
    shop.restart_leader();
    shop.run(&format!(
        "delete from webhook._delivery where event_id = '{lost}'"
    ));
    let missing = BTreeSet::from([format!("pair.missing {}", delivery_id(&lost, &endpoint))]);
    assert_eq!(found(&mut shop, "null", true), missing);
    shop.wait_for_state(&lost, &endpoint, "delivered");
    assert_eq!(found(&mut shop, "null", true), BTreeSet::new());
    assert!(
        !receiver
            .requests_for("/hook")
            .iter()
            .any(|request| request.header("webhook-id") == Some(between.as_str())),
        "an event that was never owed was sent"
    );
}

#[test]
fn a_registered_query_runs_with_the_rights_of_its_owner_and_nobody_elses() {
    let mut shop = Outbox::create(&CLUSTER, "business");
    shop.run(
        "create role shop_owner login;
         create role shop_auditor login;
         create schema app authorization shop_owner;
         set role shop_owner;
         create table app.orders (id text primary key, updated_at timestamptz not null);
         insert into app.orders values ('1', now() - interval '1 hour'), ('2', now() - interval '1 hour');
         create function app.changed(since timestamptz, until timestamptz) returns table (subject_id text, changed_at timestamptz)
         language sql security definer set search_path = pg_catalog, pg_temp as $$
           select o.id, o.updated_at from app.orders o where o.updated_at >= since and o.updated_at < until and current_user = 'shop_owner'
         $$;
         reset role;
         grant usage on schema app to shop_auditor;
         select webhook.grant_access('shop_auditor', 'operate');
         select webhook.create_reconciliation('orders', 'order.changed', 'order', 'app.changed(timestamptz, timestamptz)');
         select webhook.emit('order.changed', 'acme', '{}', subject_type => 'order', subject_id => '1', occurred_at => now() - interval '1 hour');
         set role shop_auditor",
    );
    assert_eq!(shop.refusal("select * from app.orders").0, "42501");
    assert_eq!(
        shop.column("select kind || ' ' || found from webhook.reconcile()"),
        ["change.without_event 1"]
    );
    assert!(
        shop.column("select object from webhook.reconciliation where check_name = 'orders'")[0]
            .starts_with("orders order:2 ")
    );
    // Whoever reconciles registers nobody else's function.
    shop.run("set session authorization shop_auditor");
    assert_eq!(
        shop.refusal("select webhook.create_reconciliation('mine', 'order.changed', 'order', 'app.changed(timestamptz, timestamptz)')").0,
        "42501"
    );
    shop.run("reset session authorization");
    // One that would run as the caller is refused, also when it becomes so later.
    shop.run("alter function app.changed(timestamptz, timestamptz) security invoker");
    shop.run("select * from webhook.reconcile()");
    assert_eq!(
        failure(&mut shop, "orders"),
        "Function app.changed runs with the rights of whoever calls it (SQLSTATE 55000)."
    );
}

/// Why a registered query could not be asked.
fn failure(shop: &mut Outbox<'_>, query: &str) -> String {
    shop.text(&format!(
        "select detail from webhook.reconciliation where kind = 'query.failed' and check_name = '{query}' and repaired_at is null"
    ))
}

#[test]
fn a_registered_query_cannot_borrow_the_rights_of_whoever_reconciles() {
    let mut shop = Outbox::create(&CLUSTER, "borrowed");
    shop.run(
        "create role mallory login;
         create schema x authorization mallory;
         select webhook.grant_access('mallory', 'operate');
         set role mallory;
         create function x.grab() returns void language plpgsql as $$ begin execute 'alter role mallory superuser'; end $$;
         -- What turns its rows into JSON.
         create type x.t as enum ('1');
         create function x.json(x.t) returns json language plpgsql as $$ begin perform x.grab(); return '\"1\"'; end $$;
         create cast (x.t as json) with function x.json(x.t);
         create function x.a_cast(timestamptz, timestamptz) returns table (subject_id x.t, changed_at timestamptz)
           language sql security definer set search_path = pg_catalog, pg_temp as $$ select '1'::x.t, $1 $$;
         -- What is called after it.
         create function x.jsonb_array_length(jsonb) returns integer language plpgsql as $$ begin perform x.grab(); return 0; end $$;
         create function x.a_path(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz)
           language plpgsql security definer as $$ begin perform set_config('search_path', 'x, pg_catalog', false); return query select '1', $1; end $$;
         -- What fires at the commit.
         create table x.log (n int);
         create function x.fires() returns trigger language plpgsql as $$ begin perform x.grab(); return null; end $$;
         create constraint trigger late after insert on x.log deferrable initially deferred for each row execute function x.fires();
         create function x.a_trigger(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz)
           language plpgsql security definer as $$ begin insert into x.log values (1); return query select '1', $1; end $$;
         -- What the next query is.
         create function x.a_swap(timestamptz, timestamptz) returns table (subject_id text, changed_at timestamptz)
           language plpgsql security definer as $$
           begin
             execute 'alter function x.a_path(timestamptz, timestamptz) security invoker';
             return query select '1', $1;
           end $$;
         reset role",
    );
    let path = shop.text("show search_path");
    for (query, fails) in [
        ("a_cast", true),
        ("a_path", false),
        ("a_trigger", true),
        ("a_swap", true),
    ] {
        shop.run(&format!(
            "set role mallory;
             select webhook.create_reconciliation('{query}', 'order.changed', 'order', 'x.{query}(timestamptz, timestamptz)');
             reset role"
        ));
        shop.run("select * from webhook.reconcile()");
        if fails {
            let why = failure(&mut shop, query);
            assert!(why.starts_with("It ended with SQLSTATE "), "{query}: {why}");
        } else {
            assert_eq!(shop.number("select count(*) from webhook.reconciliation where kind = 'query.failed' and repaired_at is null"), 0);
        }
        assert!(
            shop.is("not rolsuper from pg_roles where rolname = 'mallory'"),
            "{query}"
        );
        assert_eq!(shop.text("show search_path"), path, "{query}");
        shop.run(&format!("select webhook.delete_reconciliation('{query}')"));
    }
    assert_eq!(shop.number("select count(*) from x.log"), 0);
}
