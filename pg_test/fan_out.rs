//! Which events reach whom: those whose transaction committed, however it committed, and the endpoints of their own
//! partner that asked for them.

use std::{collections::HashSet, sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn rolled_back_events_are_never_sent() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.endpoint("rollback", &receiver.url("/hook"));
    shop.run("begin; select webhook.emit('a.rolled', 'rollback', '{}'); rollback");
    shop.run("begin");
    shop.emit("a.kept", "rollback", "{}");
    shop.run("savepoint one");
    shop.emit("b.rolled", "rollback", "{}");
    shop.run("savepoint two");
    shop.emit("c.rolled", "rollback", "{}");
    shop.run("rollback to one; release one; savepoint three");
    shop.emit("b.kept", "rollback", "{}");
    shop.run("release three; commit");
    // The exception of a block rolls back what it did, and nothing else.
    shop.run(
        "do $$
         begin
           perform webhook.emit('c.kept', 'rollback', '{}');
           begin
             perform webhook.emit('d.rolled', 'rollback', '{}');
             raise 'no';
           exception when raise_exception then
             perform webhook.emit('d.kept', 'rollback', '{}');
           end;
         end $$",
    );
    shop.refusal(
        "do $$ begin perform webhook.emit('e.rolled', 'rollback', '{}'); raise 'no'; end $$",
    );
    let last = shop.emit("last", "rollback", "{}");
    wait_for("the last event arrives", PATIENCE, || {
        ids(&receiver).contains(&last)
    });
    wait_for("the others arrive", PATIENCE, || receiver.count() >= 5);
    assert_eq!(
        types(&receiver),
        ["a.kept", "b.kept", "c.kept", "d.kept", "last"]
    );
    assert_eq!(
        shop.number("select count(*) from webhook.list_events('rollback')"),
        5
    );
}

#[test]
fn triggers_blocks_and_sets_emit_what_they_commit() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.endpoint("sets", &receiver.url("/hook"));
    shop.run(
        "create table customer (id integer primary key, name text);
         create function changed() returns trigger language plpgsql as $$
         begin
           perform webhook.emit('customer.' || lower(tg_op), 'sets', to_jsonb(coalesce(new, old)),
             subject_type => 'customer', subject_id => (coalesce(new, old)).id::text);
           return null;
         end $$;
         create trigger changed after insert or update or delete on customer
           for each row execute function changed();
         insert into customer select n, 'x' from generate_series(1, 20) n;
         update customer set name = 'y' where id <= 5;
         delete from customer where id > 18;
         do $$ begin for i in 1..10 loop perform webhook.emit('block.ran', 'sets', to_jsonb(i)); end loop; end $$;
         select webhook.emit('set.based', 'sets', jsonb_build_object('n', n)) from generate_series(1, 30) n;
         select webhook.emit('none.matched', 'sets', to_jsonb(n)) from generate_series(1, 0) n",
    );
    receiver.wait_for(67, PATIENCE);
    let mut counts: Vec<(String, usize)> = Vec::new();
    for kind in types(&receiver) {
        match counts.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => counts.push((kind, 1)),
        }
    }
    let expected = [
        ("block.ran", 10),
        ("customer.delete", 2),
        ("customer.insert", 20),
        ("customer.update", 5),
        ("set.based", 30),
    ];
    assert_eq!(
        counts,
        expected.map(|(kind, count)| (kind.to_owned(), count))
    );
}

#[test]
fn ten_thousand_events_of_one_transaction_arrive_once_each() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.endpoint_with("many", &receiver.url("/hook"), ", max_in_flight => 32");
    shop.run(
        "select webhook.emit('n.counted', 'many', to_jsonb(n)) from generate_series(1, 10000) n",
    );
    receiver.wait_for(10_000, PATIENCE * 4);
    shop.wait_until(
        "(select count(*) = 10000 from webhook.deliveries where partner_id = 'many' and state = 'delivered')",
    );
    let seen = ids(&receiver);
    assert_eq!((seen.len(), receiver.count()), (10_000, 10_000));
}

#[test]
fn prepared_transactions_send_when_they_are_committed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.endpoint("prepared", &receiver.url("/hook"));
    for (event, name) in [("a.committed", "p1"), ("b.rolled", "p2"), ("c.late", "p3")] {
        shop.run("begin");
        shop.emit(event, "prepared", "{}");
        shop.run(&format!("prepare transaction '{name}'"));
    }
    // They hold nobody up.
    shop.emit("d.others", "prepared", "{}");
    receiver.wait_for(1, PATIENCE);
    assert_eq!(types(&receiver), ["d.others"]);
    shop.run("commit prepared 'p1'");
    receiver.wait_for(2, PATIENCE);
    shop.run("rollback prepared 'p2'");
    shop.another().run("commit prepared 'p3'");
    receiver.wait_for(3, PATIENCE);
    assert_eq!(types(&receiver), ["a.committed", "c.late", "d.others"]);
}

#[test]
fn prepared_transactions_outlive_a_restart_of_the_server() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.endpoint("prepared", &receiver.url("/hook"));
        for name in ["p1", "p2"] {
            shop.run("begin");
            shop.emit("order.paid", "prepared", "{}");
            shop.run(&format!("prepare transaction '{name}'"));
        }
        shop.emit("order.paid", "prepared", "{}");
        receiver.wait_for(1, PATIENCE);
    }
    cluster.restart(Shutdown::Fast);
    Outbox::join(&cluster, "shop").run("commit prepared 'p1'");
    receiver.wait_for(2, PATIENCE);
    cluster.crash();
    cluster.start();
    Outbox::join(&cluster, "shop").run("commit prepared 'p2'");
    // What was delivered just before a crash may come again.
    wait_for("all three arrive", PATIENCE, || ids(&receiver).len() == 3);
}

#[test]
fn an_open_transaction_delays_nobody_and_its_events_follow_when_it_commits() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.endpoint("late", &receiver.url("/hook"));
    let mut open = shop.another();
    open.run("begin");
    let late = open.emit("a.late", "late", "{}");
    for _ in 0..3 {
        let event = shop.emit("b.early", "late", "{}");
        wait_for("the others' events arrive", PATIENCE, || {
            ids(&receiver).contains(&event)
        });
    }
    assert!(!ids(&receiver).contains(&late));
    open.run("commit");
    receiver.wait_for(4, PATIENCE);
    assert!(ids(&receiver).contains(&late));
}

#[test]
fn event_types_and_wildcards_choose_the_endpoints() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    for (path, types) in [
        ("/all", "{*}"),
        ("/customer", "{customer.*}"),
        ("/created", "{customer.created}"),
        ("/two", "{invoice.paid,customer.address.*}"),
        ("/other", "{shipment.*}"),
    ] {
        let types = format!(", event_types => '{types}'");
        shop.endpoint_with("types", &receiver.url(path), &types);
    }
    let kinds = [
        "customer.created",
        "customer.address.changed",
        "customers.created",
        "customer",
        "invoice.paid",
        "Customer.created",
    ];
    for kind in kinds {
        shop.emit(kind, "types", "{}");
    }
    receiver.wait_for(6 + 2 + 1 + 2, PATIENCE);
    let at = |path: &str| types_of(&receiver.requests_for(path));
    let mut all: Vec<String> = kinds.map(str::to_owned).to_vec();
    all.sort();
    assert_eq!(at("/all"), all);
    assert_eq!(
        at("/customer"),
        ["customer.address.changed", "customer.created"]
    );
    assert_eq!(at("/created"), ["customer.created"]);
    assert_eq!(at("/two"), ["customer.address.changed", "invoice.paid"]);
    assert_eq!(at("/other"), Vec::<String>::new());
}

#[test]
fn partners_and_test_mode_are_kept_apart() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let one = shop.endpoint("one", &receiver.url("/one"));
    let test = shop.endpoint_with("one", &receiver.url("/one/test"), ", test => true");
    let two = shop.endpoint("two", &receiver.url("/two"));
    let live_one = shop.emit("a", "one", "{}");
    let test_one = shop.emit_with("a", "one", "{}", ", test => true");
    let live_two = shop.emit("a", "two", "{}");
    let nobody = shop.emit_with("a", "two", "{}", ", test => true");
    let strangers = shop.emit("a", "three", "{}");
    shop.wait_for_state(&live_one, &one, "delivered");
    shop.wait_for_state(&test_one, &test, "delivered");
    shop.wait_for_state(&live_two, &two, "delivered");
    // Published all the same, in the order of their commits: those above were read after none of these.
    for event in [&nobody, &strangers] {
        shop.wait_until(&format!(
            "(select published_at is not null from webhook.events where event_id = '{event}')"
        ));
    }
    for (path, event) in [
        ("/one", live_one),
        ("/one/test", test_one),
        ("/two", live_two),
    ] {
        let requests = receiver.requests_for(path);
        assert_eq!(requests.len(), 1, "{path}");
        assert_eq!(requests[0].header("webhook-id"), Some(&*event), "{path}");
    }
    let (code, _) = shop.refusal(&format!("select webhook.replay('{nobody}', {})", one.id));
    assert_eq!(code, "42704");
    assert_eq!(receiver.count(), 3);
}

#[test]
fn a_new_endpoint_gets_the_events_of_its_own_transaction_and_nothing_older() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.emit("a.older", "new", "{}");
    let mut open = shop.another();
    open.run("begin");
    open.emit("b.not_yet_visible", "new", "{}");
    shop.run("begin");
    shop.emit("c.before_it", "new", "{}");
    shop.endpoint("new", &receiver.url("/hook"));
    shop.emit("d.after_it", "new", "{}");
    shop.run("commit");
    open.run("commit");
    shop.emit("e.later", "new", "{}");
    receiver.wait_for(4, PATIENCE);
    // Nothing more comes.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        types(&receiver),
        ["b.not_yet_visible", "c.before_it", "d.after_it", "e.later"]
    );
}

#[test]
fn a_new_endpoint_gets_what_others_committed_while_its_transaction_was_open() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("begin");
    shop.endpoint("meanwhile", &receiver.url("/hook"));
    let mut other = shop.another();
    let event = other.emit("a.meanwhile", "meanwhile", "{}");
    other.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{event}')"
    ));
    shop.run("commit");
    receiver.wait_for(1, PATIENCE);
    assert!(ids(&receiver).contains(&event));
}

#[test]
fn endpoints_of_one_transaction_get_what_their_own_partners_emitted_meanwhile() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("begin");
    shop.endpoint("made1", &receiver.url("/one"));
    shop.endpoint_with("made1", &receiver.url("/one/a"), ", event_types => '{a.*}'");
    shop.endpoint_with("made1", &receiver.url("/one/test"), ", test => true");
    shop.endpoint("made2", &receiver.url("/two"));
    let mut other = shop.another();
    for kind in ["a.live", "b.live"] {
        other.emit(kind, "made1", "{}");
        other.emit(kind, "made2", "{}");
    }
    other.emit_with("a.test", "made1", "{}", ", test => true");
    other.emit_with("a.test", "made2", "{}", ", test => true");
    let last = other.emit("a.live", "made3", "{}");
    other.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{last}')"
    ));
    shop.run("commit");
    receiver.wait_for(6, PATIENCE);
    for partner in ["made1", "made2"] {
        let own = shop.emit("z.last", partner, "{}");
        shop.wait_until(&format!(
            "(select bool_and(state = 'delivered') from webhook.deliveries where event_id = '{own}')"
        ));
    }
    let at = |path: &str| types_of(&receiver.requests_for(path));
    assert_eq!(at("/one"), ["a.live", "b.live", "z.last"]);
    assert_eq!(at("/one/a"), ["a.live"]);
    assert_eq!(at("/one/test"), ["a.test"]);
    assert_eq!(at("/two"), ["a.live", "b.live", "z.last"]);
    assert_eq!(receiver.count(), 8);
}

fn ids(receiver: &Receiver) -> HashSet<String> {
    receiver
        .requests()
        .iter()
        .filter_map(|request| request.header("webhook-id").map(str::to_owned))
        .collect()
}

/// The types of all events that arrived, sorted.
fn types(receiver: &Receiver) -> Vec<String> {
    types_of(&receiver.requests())
}

fn types_of(requests: &[webhook_outbox_test::receiver::Request]) -> Vec<String> {
    let mut types: Vec<String> = requests
        .iter()
        .filter_map(|request| {
            let body: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
            Some(body["type"].as_str()?.to_owned())
        })
        .collect();
    types.sort();
    types
}

#[test]
fn endpoints_by_the_thousand_are_known_however_they_were_read() {
    // More than two pages, and not a whole number of them.
    const MANY: usize = 2_345;
    let mut shop = Outbox::create(&CLUSTER, "thousands");
    let receiver = Receiver::http();
    let every_one = |shop: &mut Outbox<'_>, kind: &str| {
        receiver.forget();
        shop.run(&format!(
            "select count(webhook.emit('{kind}', 'many' || n, '{{}}')) from generate_series(1, {MANY}) as n"
        ));
        wait_for("every endpoint gets its event", PATIENCE, || {
            receiver.count() >= MANY
        });
        shop.wait_until(&format!(
            "(select count(*) = {MANY} from webhook.deliveries where state = 'delivered' and type = '{kind}')"
        ));
        assert_eq!(types(&receiver), vec![kind; MANY]);
    };
    shop.run(&format!(
        "select count(webhook.create_endpoint('many' || n, '{}', verify => 'none')) from generate_series(1, {MANY}) as n",
        receiver.url("/hook")
    ));
    every_one(&mut shop, "a.changed");
    shop.restart_leader();
    every_one(&mut shop, "b.begun");
}
