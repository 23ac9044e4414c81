//! What a crash leaves in doubt: what may have been sent is counted as lost and sent again, the same byte for byte; what
//! cannot have been sent is not counted. The results of the leader are kept out of the tables by a lock, so that all
//! it did is in doubt.

use postgres::Client;
use std::collections::BTreeMap;
use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

/// An event type of two versions, and a function from the first to the second that fails for one payload.
const CATALOGUE: &str = r#"
    select webhook.create_event_type('order.deleted');
    select webhook.add_schema('order.deleted', '1', '{"type": "object", "properties": {"id": {"description": "which"}}}', '{"id": "o-1"}', current => true);
    select webhook.add_schema('order.deleted', '2', '{"type": "object", "properties": {"ids": {"description": "which"}}}', '{"ids": ["o-1"]}');
    create role converter;
    create schema conversions authorization converter;
    set role converter;
    create function conversions.list(jsonb) returns jsonb language plpgsql immutable as $$
    begin
      if $1 ->> 'id' = 'bad' then
        raise exception 'no';
      end if;
      return jsonb_build_object('ids', jsonb_build_array($1 -> 'id'));
    end $$;
    reset role;
    select webhook.create_conversion('order.deleted', '1', '2', 'conversions.list(jsonb)', 'new receivers');
"#;

const PINNED: &str = ", schema_versions => '{\"order.deleted\": \"2\"}'";

/// Holds what the leader writes into a table until the session ends; whatever it reads, it reads.
fn hold(cluster: &Cluster, database: &str, table: &str) -> Client {
    let mut holder = cluster.connect(database);
    holder
        .batch_execute(&format!("begin; lock table webhook.{table} in share mode"))
        .expect("the lock");
    holder
}

/// What was answered since the table is held, and what is on the wire, is in doubt after a crash:
/// how much that is, is the pace of the machine, and no test's business.
fn wait_until_in_doubt(shop: &mut Outbox<'_>) {
    shop.wait_until(
        "(exists (select from pg_locks where relation = 'webhook._delivery'::regclass and not granted))",
    );
}

fn lost(shop: &mut Outbox<'_>, event: &str, endpoint: &Endpoint) -> usize {
    let attempts = shop.attempts(event, endpoint);
    let lost = |category: &Option<String>| category.as_deref() == Some("lost");
    attempts.iter().filter(|a| lost(&a.category)).count()
}

fn update(shop: &mut Outbox<'_>, endpoint: &Endpoint, changes: &str) {
    shop.run(&format!(
        "select webhook.update_endpoint({}, {changes})",
        endpoint.id
    ));
}

#[test]
fn what_waited_for_a_conversion_waits_for_it_again_and_was_never_sent() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (pinned, ordered, plain, event, fine, holder) = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.run(CATALOGUE);
        let pinned = shop.endpoint_with("acme", &receiver.url("/pinned"), PINNED);
        let more = format!("{PINNED}, ordered => true");
        let ordered = shop.endpoint_with("acme", &receiver.url("/ordered"), &more);
        let plain = shop.endpoint("acme", &receiver.url("/plain"));
        let holder = hold(&cluster, "shop", "_delivery");
        let subject = ", subject_type => 'order', subject_id => '1'";
        // What it cannot write keeps it from reading on: both in one window.
        shop.run("begin");
        let event = shop.emit_with("order.deleted", "acme", r#"{"id": "bad"}"#, subject);
        let fine = shop.emit_with("order.deleted", "acme", r#"{"id": "o-1"}"#, subject);
        shop.run("commit");
        wait_for("two plain ones and one pinned arrive", PATIENCE, || {
            receiver.count() >= 3
        });
        (pinned, ordered, plain, event, fine, holder)
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    for event in [&event, &fine] {
        shop.wait_for_state(event, &plain, "delivered");
        assert_eq!(lost(&mut shop, event, &plain), 1);
    }
    shop.wait_for_state(&fine, &pinned, "delivered");
    assert_eq!(lost(&mut shop, &fine, &pinned), 1);
    for endpoint in [&pinned, &ordered] {
        shop.wait_until(&format!(
            "(select 'conversion' = any (held_by) from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
            endpoint.id
        ));
        let waits = shop.delivery(&event, endpoint).expect("a delivery");
        assert_eq!((waits.state.as_str(), waits.attempts), ("pending", 0));
        assert_eq!(
            waits.reason.as_deref(),
            Some(r#"The conversion from version "1" to "2" failed: It ended with SQLSTATE P0001."#)
        );
        assert_eq!(lost(&mut shop, &event, endpoint), 0);
    }
    shop.wait_until("exists (select from webhook.alerts where kind = 'delivery.unconverted')");
    // Its first attempt is still to be made: it takes the version of that day.
    update(
        &mut shop,
        &pinned,
        "schema_versions => '{\"order.deleted\": \"1\"}'",
    );
    let id = shop.delivery(&event, &pinned).expect("a delivery").id;
    shop.run(&format!("select webhook.retry('{id}', 'as it is')"));
    let delivered = shop.wait_for_state(&event, &pinned, "delivered");
    assert_eq!(delivered.attempts, 1);
}

#[test]
fn a_claimed_pair_that_has_no_such_version_was_never_sent() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (pinned, event, holder) = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.run(CATALOGUE);
        let pinned = shop.endpoint("acme", &receiver.url("/pinned"));
        let set = |verb: &str, more: &str| {
            format!("select webhook.{verb}('endpoint', '{}'{more})", pinned.id)
        };
        shop.run(&set("pause", ", 'later'"));
        let event = shop.emit("order.deleted", "acme", r#"{"id": "bad"}"#);
        shop.wait_for_state(&event, &pinned, "pending");
        update(
            &mut shop,
            &pinned,
            "schema_versions => '{\"order.deleted\": \"2\"}'",
        );
        let holder = hold(&cluster, "shop", "_due");
        shop.run(&set("resume", ""));
        shop.wait_until("exists (select from webhook._ledger where kind = 'claim')");
        (pinned, event, holder)
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("running");
    shop.wait_until(&format!(
        "(select held_by = '{{conversion}}' from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
        pinned.id
    ));
    assert_eq!(lost(&mut shop, &event, &pinned), 0);
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_stream_apart_sends_its_events_again_in_the_shape_that_they_were_sent_in() {
    const MUCH: usize = 11_000;
    // What waits, waits in memory, and what has no room there is not read yet.
    let mut cluster = Cluster::plan()
        .setting("webhook.first_pass_limit", "60s")
        .start();
    let receiver = Receiver::http();
    // The flood stands still before it is over, until the table is held.
    let gate = Gate::shut();
    let (held, mut arrived) = (Answer::status(200).held(&gate), 0);
    receiver.behave("/big", move |_| {
        arrived += 1;
        if arrived > MUCH {
            held.clone()
        } else {
            Answer::status(200)
        }
    });
    let holder = {
        let mut shop = Outbox::create(&cluster, "shop");
        let big = shop.endpoint_with("big", &receiver.url("/big"), ", max_in_flight => 16");
        let small = shop.endpoint("small", &receiver.url("/small"));
        shop.run(
            "select count(webhook.emit('order.created', 'big', '{\"n\": 1}')) from generate_series(1, 24000)",
        );
        shop.wait_until("exists (select from webhook._ledger where kind = 'aside')");
        // The flood was emitted before, and everybody's stream goes on without it.
        update(&mut shop, &big, "format => 'cloudevents-structured'");
        let next = shop.emit("order.created", "small", "{}");
        shop.wait_for_state(&next, &small, "delivered");
        // Far more than was in memory when the shape was changed.
        wait_for("much of the flood arrives", PATIENCE * 2, || {
            receiver.requests_for("/big").len() > MUCH
        });
        let holder = hold(&cluster, "shop", "_delivery");
        gate.open();
        wait_until_in_doubt(&mut shop);
        assert!(
            shop.is("not exists (select from webhook._ledger where kind = 'joined')"),
            "the flood was over too early"
        );
        holder
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for("all of it arrives", PATIENCE * 4, || {
        shop.is("(select count(*) = 24000 from webhook.deliveries where partner_id = 'big' and state = 'delivered')")
    });
    assert_same_bytes(&receiver, "/big", 4);
}

#[test]
fn adopted_endpoints_send_again_in_the_shape_that_they_had_here() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let hook = {
        let mut shop = Outbox::create(&cluster, "shop");
        let hook = shop.endpoint("old", &receiver.url("/old"));
        update(&mut shop, &hook, "format => 'cloudevents-structured'");
        let first = shop.emit("order.created", "old", "{}");
        shop.wait_for_state(&first, &hook, "delivered");
        // The transactions of the other server are far ahead of those here.
        shop.run(
            "update webhook._endpoint_revision
                set created_xid = (pg_current_xact_id()::text::bigint + 1000000000)::text::xid8
              where revision > 1",
        );
        hook
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    let holder = {
        let mut copy = Outbox::join(&cluster, "copy");
        copy.wait_for_worker("running");
        copy.run("select webhook.adopt(origin, 'send', 'moved') from webhook.stat_fenced where reason = 'origin'");
        copy.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
        receiver.forget();
        let holder = hold(&cluster, "copy", "_delivery");
        copy.emit("order.created", "old", "{}");
        receiver.wait_for(1, PATIENCE);
        update(&mut copy, &hook, "format => 'cloudevents-binary'");
        holder
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut copy = Outbox::join(&cluster, "copy");
    receiver.wait_for(2, PATIENCE);
    copy.wait_until(
        "(select count(*) = 2 and bool_and(state = 'delivered') from webhook.deliveries)",
    );
    let first = receiver.requests_for("/old").remove(0);
    let kind = first.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/cloudevents+json"), "{kind}");
    assert_same_bytes(&receiver, "/old", 1);
}

#[test]
fn what_a_second_life_reads_of_a_window_has_the_shape_of_the_window_in_the_third_one() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    // The last ones are on the wire until the table is held, so that not all of it is recorded by then.
    let gate = Gate::shut();
    let held = Answer::status(200).held(&gate);
    receiver.behave("/in", move |request| {
        if request.target.ends_with("?39") {
            held.clone()
        } else {
            Answer::status(200)
        }
    });
    {
        let mut shop = Outbox::create(&cluster, "shop");
        for n in 0..40 {
            let url = receiver.url("/in");
            shop.endpoint(&format!("p-{n:02}"), &format!("{url}?{n}"));
        }
        // One window, far more than memory takes, and nobody's flood: what is read last waits to be read.
        shop.run(
            "select count(webhook.emit('order.created', 'p-' || to_char(n / 400, 'FM00'), '{}')) from generate_series(0, 15999) as n",
        );
        receiver.wait_for(1, PATIENCE);
        shop.run(
            "select webhook.update_endpoint(endpoint_id, format => 'cloudevents-structured') from webhook.endpoints",
        );
    }
    cluster.crash();
    cluster.start();
    let last = |receiver: &Receiver| {
        let requests = receiver.requests();
        let of_last = requests.iter().filter(|r| r.target.ends_with("?39"));
        of_last.count()
    };
    let holder = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("running");
        wait_for("the last events arrive", PATIENCE * 2, || {
            last(&receiver) > 0
        });
        let holder = hold(&cluster, "shop", "_delivery");
        gate.open();
        wait_until_in_doubt(&mut shop);
        holder
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for("all of it arrives", PATIENCE * 4, || {
        shop.is("(select count(*) = 16000 from webhook.deliveries where state = 'delivered')")
    });
    assert_same_bytes(&receiver, "/in", 4);
}

#[test]
fn filters_are_asked_after_a_crash_however_dear_they_are() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (hook, refused, event, holder) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let dear = |n: i32| format!(", filter => 'exists($[*] ? (@ == {n} || @ == -2))'");
        // Another partner's are asked as well, and are as dear.
        for n in 0..10 {
            let path = receiver.url(&format!("/other{n}"));
            shop.endpoint_with("acme", &path, &dear(-1));
        }
        shop.run("select webhook.disable_endpoint(endpoint_id, 'gone') from webhook.endpoints");
        let refused = shop.endpoint_with("acme", &receiver.url("/refused"), &dear(-3));
        let hook = shop.endpoint_with("acme", &receiver.url("/in"), &dear(7));
        let holder = hold(&cluster, "shop", "_delivery");
        let event = shop.text(
            "select webhook.emit('a.b', 'acme', (select jsonb_agg(n) from generate_series(1, 38000) as n))",
        );
        receiver.wait_for(1, PATIENCE);
        (hook, refused, event, holder)
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    let delivery = shop.wait_for_state(&event, &hook, "delivered");
    assert_eq!(delivery.attempts, 2);
    assert_eq!(lost(&mut shop, &event, &hook), 1);
    assert_eq!(shop.delivery(&event, &refused), None);
    // Those were closed before it was emitted.
    assert!(shop.is("(select count(*) = 1 from webhook.deliveries)"));
}

#[test]
fn an_attempt_is_not_made_up_for_what_was_refused_before_its_event_was_erased() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (refused, pinned, plain, event, holder) = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.run(CATALOGUE);
        let filter = ", filter => '$.id == \"good\"'";
        let refused = shop.endpoint_with("acme", &receiver.url("/refused"), filter);
        let pinned = shop.endpoint_with("acme", &receiver.url("/pinned"), PINNED);
        let plain = shop.endpoint("acme", &receiver.url("/plain"));
        let holder = hold(&cluster, "shop", "_delivery");
        let event = shop.emit("order.deleted", "acme", r#"{"id": "bad"}"#);
        receiver.wait_for(1, PATIENCE);
        shop.run(&format!(
            "select webhook.expunge('asked for', event_id => '{event}')"
        ));
        (refused, pinned, plain, event, holder)
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &plain, "delivered");
    assert_eq!(lost(&mut shop, &event, &plain), 1);
    // A deletion leaves as ids only, whatever was wanted of it, and to whom nobody can tell any more.
    shop.wait_for_state(&event, &pinned, "delivered");
    shop.wait_until("(select (queued, in_flight, due) = (0, 0, 0) from webhook.stat_queue)");
    for endpoint in [&refused, &pinned] {
        assert_eq!(lost(&mut shop, &event, endpoint), 0);
    }
    for path in ["/refused", "/pinned"] {
        for request in receiver.requests_for(path) {
            assert!(!request.text().contains("bad"), "{}", request.text());
        }
    }
}

#[test]
fn an_endpoint_that_was_closed_before_gets_no_delivery() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script("/gone", vec![Answer::status(410)]);
    let (by_user, by_leader, later, plain, event, holder) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let by_user = shop.endpoint("acme", &receiver.url("/user"));
        let by_leader = shop.endpoint("acme", &receiver.url("/gone"));
        let first = shop.emit("a.b", "acme", "{}");
        shop.wait_for_state(&first, &by_user, "delivered");
        shop.wait_for_state(&first, &by_leader, "dead");
        shop.run(&format!(
            "select webhook.delete_endpoint({}, 'gone')",
            by_user.id
        ));
        shop.wait_until(
            "(select count(*) = 2 from webhook.endpoints where state in ('deleted', 'disabled'))",
        );
        let later = shop.endpoint("acme", &receiver.url("/later"));
        let plain = shop.endpoint("acme", &receiver.url("/plain"));
        let settled = shop.emit("a.b", "acme", "{}");
        shop.wait_for_state(&settled, &plain, "delivered");
        receiver.forget();
        let holder = hold(&cluster, "shop", "_delivery");
        let event = shop.emit("a.b", "acme", "{}");
        receiver.wait_for(2, PATIENCE);
        shop.run(&format!(
            "select webhook.disable_endpoint({}, 'gone')",
            later.id
        ));
        (by_user, by_leader, later, plain, event, holder)
    };
    cluster.crash();
    drop(holder);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &plain, "delivered");
    // It may have been sent there, and is told; it is not sent again.
    shop.wait_for_state(&event, &later, "cancelled");
    assert_eq!(lost(&mut shop, &event, &later), 1);
    for endpoint in [&by_user, &by_leader] {
        assert_eq!(shop.delivery(&event, endpoint), None);
    }
}

/// Every request with the same event is the same, and so many events came more than once.
#[track_caller]
fn assert_same_bytes(receiver: &Receiver, path: &str, least: usize) {
    let mut bodies: BTreeMap<String, Vec<(String, Vec<u8>)>> = BTreeMap::new();
    let of_path = |target: &str| target.split('?').next() == Some(path);
    let requests = receiver.requests();
    for request in requests.iter().filter(|r| of_path(&r.target)) {
        let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
        bodies
            .entry(header("webhook-id"))
            .or_default()
            .push((header("content-type"), request.body.clone()));
    }
    let mut again = 0;
    for (id, bodies) in &bodies {
        again += usize::from(bodies.len() > 1);
        for body in bodies {
            assert_eq!(body.0, bodies[0].0, "{id}");
            assert_eq!(body.1, bodies[0].1, "{id}");
        }
    }
    assert!(again >= least, "{again} came more than once");
}
