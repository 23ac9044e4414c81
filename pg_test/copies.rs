//! Copies of a database: not one request leaves a dump that was restored, a clone, a subscriber or a renamed node,
//! neither for old events nor for new ones, until `adopt` says which; then what was to be sent is, once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    copying::{clone_as_template, drop_original, dump_and_restore},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::{wait_for, wait_until},
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

/// How a copy comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Dump,
    DumpOfADump,
    Template,
    NodeName,
}

/// What the original had done, and had still to do.
struct Story {
    delivered: String,
    retrying: String,
    pending: String,
    unread: Vec<String>,
    tampered: String,
    good: Endpoint,
    fails: Endpoint,
    paused: Endpoint,
}

/// The receiver of all, and whether /fails does.
struct World {
    receiver: Receiver,
    failing: Arc<AtomicBool>,
}

impl World {
    fn new() -> World {
        let receiver = Receiver::http();
        let failing = Arc::new(AtomicBool::new(true));
        let fails = Arc::clone(&failing);
        receiver.behave("/fails", move |_| {
            Answer::status(if fails.load(Ordering::SeqCst) {
                500
            } else {
                200
            })
        });
        World { receiver, failing }
    }

    /// (event, attempt) of each request to a path since the receiver forgot, sorted.
    fn arrived(&self, path: &str) -> Vec<(String, String)> {
        let mut arrived: Vec<_> = self
            .receiver
            .requests_for(path)
            .iter()
            .map(|request| {
                let header = |name| request.header(name).unwrap_or_default().to_owned();
                (header("webhook-id"), header("webhook-attempt"))
            })
            .collect();
        arrived.sort_unstable();
        arrived
    }
}

fn cluster() -> Cluster {
    Cluster::plan()
        .setting("webhook.retry_schedule", &["2s"; 50].join(","))
        .start()
}

/// A database that ends with something of every kind, and is switched off.
fn original(cluster: &mut Cluster, world: &World) -> Story {
    let mut story = {
        let mut shop = Outbox::create(cluster, "shop");
        let good = shop.endpoint("a", &world.receiver.url("/good"));
        let fails = shop.endpoint("f", &world.receiver.url("/fails"));
        let paused = shop.endpoint("p", &world.receiver.url("/paused"));
        shop.run(&format!(
            "select webhook.pause('endpoint', '{}', 'a test')",
            paused.id
        ));
        shop.wait_until("(select bool_and(state = 'done') from webhook.requests)");
        let delivered = shop.emit("order.paid", "a", "{}");
        let retrying = shop.emit("order.paid", "f", "{}");
        let pending = shop.emit("order.paid", "p", "{}");
        shop.wait_for_state(&delivered, &good, "delivered");
        shop.wait_for_state(&retrying, &fails, "retrying");
        shop.wait_for_state(&pending, &paused, "pending");
        Story {
            delivered,
            retrying,
            pending,
            unread: Vec::new(),
            tampered: String::new(),
            good,
            fails,
            paused,
        }
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(cluster, "shop");
    shop.wait_for_worker("off");
    shop.wait_until("(select in_flight = 0 from webhook.stat_queue)");
    story.unread = (0..3).map(|_| shop.emit("order.paid", "a", "{}")).collect();
    story.tampered = shop.emit("order.paid", "a", r#"{"amount": 1}"#);
    story
}

/// Makes the copy, and says what it is called.
fn copy(cluster: &mut Cluster, way: Way) -> &'static str {
    let name = match way {
        Way::Dump => {
            dump_and_restore(cluster, "shop", "copy");
            drop_original(cluster, "shop");
            "copy"
        }
        Way::DumpOfADump => {
            dump_and_restore(cluster, "shop", "between");
            dump_and_restore(cluster, "between", "copy");
            drop_original(cluster, "shop");
            drop_original(cluster, "between");
            "copy"
        }
        Way::Template => {
            clone_as_template(cluster, "shop", "copy");
            drop_original(cluster, "shop");
            "copy"
        }
        Way::NodeName => {
            cluster.reload(&[("webhook.node_name", "elsewhere")]);
            "shop"
        }
    };
    let mut session = Outbox::join(cluster, name);
    session
        .run("update webhook._event set body = replace(body, '1', '2') where body like '%amount%'");
    drop(session);
    cluster.reload(&[("webhook.enabled", "on")]);
    name
}

/// Not one request leaves, neither for old events nor for the one emitted here, which is returned.
fn assert_inert(copy: &mut Outbox, world: &World) -> String {
    world.receiver.forget();
    // A clone has no leader before somebody needs one.
    let own = copy.emit("order.paid", "a", "{}");
    copy.wait_for_worker("running");
    // An endpoint of the copy's own proves that its leader has read everything up to here.
    let witness = copy.endpoint("w", &world.receiver.url("/witness"));
    let last = copy.emit("order.paid", "w", "{}");
    copy.wait_for_state(&last, &witness, "delivered");
    copy.wait_until(
        "(select (unread_events, queued, in_flight) = (0, 0, 0) from webhook.stat_queue)",
    );
    assert!(copy.is(&format!(
        "published_at is not null and fenced is null from webhook.events where event_id = '{own}'"
    )));
    sleep(POLLS);
    assert_eq!(world.receiver.count(), 1, "the witness alone got something");
    assert!(
        copy.is(
            "foreign_events = 7 and inert_endpoints = 3 and fenced = 0 from webhook.stat_queue"
        )
    );
    assert!(copy.is("advice ~ 'webhook.adopt' from webhook.status()"));
    own
}

/// Adopts everything that is fenced, and waits until that is done.
fn adopt(copy: &mut Outbox, mode: &str) {
    let origins = copy.column(
        "select origin from webhook.stat_fenced where reason = 'origin' order by endpoints desc",
    );
    assert!(!origins.is_empty());
    for origin in origins {
        copy.run(&format!(
            "select webhook.adopt({origin}, '{mode}', 'the old one burnt down')"
        ));
    }
    copy.wait_until("(select count(*) > 0 and bool_and(state = 'done') from webhook.adoptions where state <> 'elsewhere')");
    copy.wait_until("(select bool_and(state = 'done') from webhook.requests where verb = 'adopt')");
}

fn total(copy: &mut Outbox, column: &str) -> i64 {
    copy.number(&format!(
        "select sum({column}) from webhook.adoptions where state = 'done'"
    ))
}

fn sends_what_was_to_be_sent(way: Way) {
    let mut cluster = cluster();
    let world = World::new();
    let story = original(&mut cluster, &world);
    let name = copy(&mut cluster, way);
    let mut copy = Outbox::join(&cluster, name);
    let own = assert_inert(&mut copy, &world);
    let before = copy.attempts(&story.retrying, &story.fails).len();
    world.receiver.forget();
    world.failing.store(false, Ordering::SeqCst);
    adopt(&mut copy, "send");

    for event in story.unread.iter().chain([&own]) {
        copy.wait_for_state(event, &story.good, "delivered");
    }
    let retried = copy.wait_for_state(&story.retrying, &story.fails, "delivered");
    assert_eq!(retried.attempts, before + 1, "{way:?}");
    copy.run(&format!(
        "select webhook.resume('endpoint', '{}')",
        story.paused.id
    ));
    copy.wait_for_state(&story.pending, &story.paused, "delivered");
    let new = copy.emit("order.paid", "a", "{}");
    copy.wait_for_state(&new, &story.good, "delivered");

    sleep(POLLS);
    let first = |event: &String| (event.clone(), "1".to_owned());
    let mut expected: Vec<_> = story.unread.iter().chain([&own, &new]).map(first).collect();
    expected.sort_unstable();
    assert_eq!(world.arrived("/good"), expected, "{way:?}");
    assert_eq!(
        world.arrived("/fails"),
        [(story.retrying.clone(), (before + 1).to_string())],
        "{way:?}"
    );
    assert_eq!(world.arrived("/paused"), [first(&story.pending)], "{way:?}");
    assert_eq!(copy.attempts(&story.delivered, &story.good).len(), 1);
    // Four were never read here or by the origin, and one of those was tampered with.
    assert_eq!(total(&mut copy, "made"), 4, "{way:?}");
    assert_eq!(total(&mut copy, "published"), 3, "{way:?}");
    assert_eq!(total(&mut copy, "skipped"), 0, "{way:?}");
    assert_tampered(&mut copy, &story);

    // An adopted event is like an own one.
    copy.run(&format!(
        "select webhook.replay('{}', {})",
        story.delivered, story.good.id
    ));
    copy.wait_for_attempts(&story.delivered, &story.good, 2);
    // Once more: nothing came since, and nothing is done twice.
    let sent = world.receiver.count();
    let origin = copy.text("select min(origin) from webhook.adoptions where state = 'done'");
    copy.run(&format!(
        "select webhook.adopt({origin}, 'send', 'to be sure')"
    ));
    copy.wait_until("(select bool_and(state in ('done', 'elsewhere')) from webhook.adoptions)");
    sleep(POLLS);
    assert_eq!(world.receiver.count(), sent);
}

#[track_caller]
fn assert_tampered(copy: &mut Outbox, story: &Story) {
    let event = &story.tampered;
    assert!(copy.is(&format!(
        "fenced = 'seal' from webhook.events where event_id = '{event}'"
    )));
    assert_eq!(copy.delivery(event, &story.good), None);
    copy.wait_until(&format!(
        "exists (select from webhook.alerts where kind = 'event.fenced' and event_id = '{event}')"
    ));
    assert!(copy.is("events = 1 from webhook.stat_fenced where reason = 'seal'"));
    assert!(copy.is("foreign_events = 0 and inert_endpoints = 0 from webhook.stat_queue"));
}

fn skips_what_was_to_be_sent(way: Way) {
    let mut cluster = cluster();
    let world = World::new();
    let story = original(&mut cluster, &world);
    let name = copy(&mut cluster, way);
    let mut copy = Outbox::join(&cluster, name);
    assert_inert(&mut copy, &world);
    world.receiver.forget();
    world.failing.store(false, Ordering::SeqCst);
    adopt(&mut copy, "skip");

    for (event, endpoint) in [
        (&story.retrying, &story.fails),
        (&story.pending, &story.paused),
    ] {
        let delivery = copy.wait_for_state(event, endpoint, "skipped");
        let reason = delivery.reason.unwrap_or_default();
        assert!(reason.contains("the old one burnt down"), "{reason}");
        assert_eq!(delivery.next_attempt_at, None);
    }
    copy.run(&format!(
        "select webhook.resume('endpoint', '{}')",
        story.paused.id
    ));
    let new: Vec<String> = ["a", "f", "p"]
        .map(|partner| copy.emit("order.paid", partner, "{}"))
        .into();
    for (event, endpoint) in new.iter().zip([&story.good, &story.fails, &story.paused]) {
        copy.wait_for_state(event, endpoint, "delivered");
    }
    sleep(POLLS);
    assert_eq!(world.receiver.count(), 3, "{way:?}");
    assert_eq!(total(&mut copy, "made"), 0);
    assert_eq!(total(&mut copy, "skipped"), 2);
    for event in &story.unread {
        assert!(copy.is(&format!(
            "published_at is not null and fenced is null from webhook.events where event_id = '{event}'"
        )));
        assert_eq!(copy.delivery(event, &story.good), None);
    }
    assert_tampered(&mut copy, &story);
    assert!(copy.is("not exists (select from webhook._due)"));

    // Somebody who asks for one of them gets it.
    copy.run(&format!(
        "select webhook.replay('{}', {})",
        story.unread[0], story.good.id
    ));
    copy.wait_for_state(&story.unread[0], &story.good, "delivered");
    assert_eq!(world.receiver.count(), 4);
}

#[test]
fn a_restored_dump_is_inert_and_sends_what_was_to_be_sent_once_adopted() {
    sends_what_was_to_be_sent(Way::Dump);
}

#[test]
fn a_restored_dump_of_a_restored_dump_is_inert_and_sends_once_adopted() {
    sends_what_was_to_be_sent(Way::DumpOfADump);
}

#[test]
fn a_clone_of_a_template_is_inert_and_sends_what_was_to_be_sent_once_adopted() {
    sends_what_was_to_be_sent(Way::Template);
}

#[test]
fn a_renamed_node_is_inert_and_sends_what_was_to_be_sent_once_adopted() {
    sends_what_was_to_be_sent(Way::NodeName);
}

#[test]
fn a_restored_dump_that_is_adopted_with_skip_sends_new_events_only() {
    skips_what_was_to_be_sent(Way::Dump);
}

#[test]
fn a_restored_dump_of_a_restored_dump_that_is_adopted_with_skip_sends_new_events_only() {
    skips_what_was_to_be_sent(Way::DumpOfADump);
}

#[test]
fn a_clone_that_is_adopted_with_skip_sends_new_events_only() {
    skips_what_was_to_be_sent(Way::Template);
}

#[test]
fn a_renamed_node_that_is_adopted_with_skip_sends_new_events_only() {
    skips_what_was_to_be_sent(Way::NodeName);
}

#[test]
fn a_node_that_gets_its_old_name_back_goes_on_where_it_was() {
    let mut cluster = cluster();
    let world = World::new();
    let story = original(&mut cluster, &world);
    let name = copy(&mut cluster, Way::NodeName);
    assert_inert(&mut Outbox::join(&cluster, name), &world);
    world.receiver.forget();
    world.failing.store(false, Ordering::SeqCst);
    cluster.reload(&[("webhook.node_name", "")]);
    let mut shop = Outbox::join(&cluster, name);
    shop.wait_for_state(&story.retrying, &story.fails, "delivered");
    let new = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&new, &story.good, "delivered");
    // What was never read is found with the adoption of the name that it had meanwhile.
    adopt(&mut shop, "send");
    for event in &story.unread {
        shop.wait_for_state(event, &story.good, "delivered");
    }
    sleep(POLLS);
    assert_eq!(world.arrived("/good").len(), 4);
    assert_eq!(world.arrived("/fails").len(), 1);
}

#[test]
fn a_copy_of_a_copy_that_was_adopted_trusts_nothing_of_that() {
    let mut cluster = cluster();
    let world = World::new();
    let story = original(&mut cluster, &world);
    copy(&mut cluster, Way::Dump);
    let (old, own) = {
        let mut first = Outbox::join(&cluster, "copy");
        adopt(&mut first, "send");
        for event in &story.unread {
            first.wait_for_state(event, &story.good, "delivered");
        }
        let own = first.emit("order.paid", "f", "{}");
        first.wait_for_state(&own, &story.fails, "retrying");
        (story.retrying.clone(), own)
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    {
        let mut first = Outbox::join(&cluster, "copy");
        first.wait_for_worker("off");
        first.wait_until("(select in_flight = 0 from webhook.stat_queue)");
    }
    dump_and_restore(&cluster, "copy", "second");
    drop_original(&cluster, "copy");
    cluster.reload(&[("webhook.enabled", "on")]);
    world.receiver.forget();
    world.failing.store(false, Ordering::SeqCst);

    let mut second = Outbox::join(&cluster, "second");
    let witness = second.endpoint("w", &world.receiver.url("/witness"));
    let last = second.emit("order.paid", "w", "{}");
    second.wait_for_state(&last, &witness, "delivered");
    sleep(POLLS);
    assert_eq!(world.receiver.count(), 1);
    assert!(second.is("count(*) = 2 from webhook.stat_fenced where reason = 'origin'"));
    assert!(second.is("count(*) = 1 and bool_and(state = 'elsewhere') from webhook.adoptions"));

    // The endpoints are of the first copy by now. Its own events go; those that it had adopted do not.
    let first = second.text("select origin from webhook.stat_fenced where endpoints > 0");
    second.run(&format!("select webhook.adopt({first}, 'send', 'next')"));
    second.wait_for_state(&own, &story.fails, "delivered");
    second.wait_until("(select running_adoptions = 0 from webhook.stat_queue)");
    sleep(POLLS);
    assert_eq!(world.arrived("/fails").len(), 1);
    assert!(second.is(&format!(
        "fenced = 'origin' from webhook.events where event_id = '{old}'"
    )));
    // Until their origin is adopted here.
    adopt(&mut second, "send");
    second.wait_for_state(&old, &story.fails, "delivered");
    sleep(POLLS);
    assert_eq!(world.arrived("/fails").len(), 2);
    assert_eq!(world.arrived("/good").len(), 0);
    assert_eq!(world.receiver.count(), 3);
}

#[test]
fn a_logical_subscriber_sends_nothing_that_it_receives_before_it_is_adopted() {
    subscribes_and_takes_over("send");
}

#[test]
fn a_logical_subscriber_that_is_adopted_with_skip_sends_new_events_only() {
    subscribes_and_takes_over("skip");
}

fn subscribes_and_takes_over(mode: &str) {
    let mut cluster = Cluster::plan()
        .setting("wal_level", "logical")
        .setting("max_worker_processes", "24")
        .setting("webhook.databases", "copy")
        .start();
    let receiver = Receiver::http();
    cluster.create_database("shop");
    cluster.create_database("copy");
    {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        let mut copy = Outbox::join(&cluster, "copy");
        copy.run("create extension webhook_outbox");
        copy.wait_for_worker("running");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let mut events = vec![shop.emit("order.paid", "a", "{}")];
        // Everything, even what a subscriber should not get.
        shop.run("create publication all_of_it for tables in schema webhook");
        shop.run("select pg_create_logical_replication_slot('copy', 'pgoutput')");
        let connection = format!(
            "host={} port=5432 dbname=shop user=postgres",
            copy.text("select split_part(current_setting('unix_socket_directories'), ',', 1)")
        );
        copy.run(&format!(
            "create subscription s connection '{connection}' publication all_of_it
               with (create_slot = false, slot_name = 'copy')"
        ));
        let foreign = "count(*) from webhook.events where fenced = 'origin'";
        copy.wait_until(&format!("(select 1 = {foreign})"));
        copy.wait_until("exists (select from webhook.endpoints where inert)");
        // As they come, and one of the copy's own.
        events.push(shop.emit("order.paid", "a", "{}"));
        copy.wait_until(&format!("(select 2 = {foreign})"));
        let own = copy.emit("order.paid", "a", "{}");
        let witness = copy.endpoint("w", &receiver.url("/witness"));
        let last = copy.emit("order.paid", "w", "{}");
        copy.wait_for_state(&last, &witness, "delivered");
        sleep(POLLS);
        assert_eq!(receiver.count(), 1);

        // It takes the publisher's place.
        copy.run(
            "alter subscription s disable;
             alter subscription s set (slot_name = none);
             drop subscription s",
        );
        adopt(&mut copy, mode);
        let new = copy.emit("order.paid", "a", "{}");
        copy.wait_for_state(&new, &endpoint, "delivered");
        events.extend([own, new]);
        let sent = if mode == "send" {
            &events[..]
        } else {
            &events[3..]
        };
        for event in sent {
            copy.wait_for_state(event, &endpoint, "delivered");
        }
        sleep(POLLS);
        let arrived: BTreeSet<String> = receiver
            .requests_for("/hook")
            .iter()
            .filter_map(|request| request.header("webhook-id").map(str::to_owned))
            .collect();
        assert_eq!(arrived, sent.iter().cloned().collect());
        assert_eq!(receiver.requests_for("/hook").len(), sent.len());
    }
    cluster.reload(&[("webhook.enabled", "on")]);
}

/// The leader that lives now. The view may still name one that has just ended, or none yet.
fn living(cluster: &Cluster, shop: &mut Outbox) -> i32 {
    wait_until("a leader goes on", PATIENCE, || {
        Some(shop.leader()).filter(|leader| *leader != 0 && cluster.has_process(*leader))
    })
}

#[test]
fn an_adoption_that_is_interrupted_again_and_again_makes_each_pair_once() {
    const EVENTS: i64 = 6_000;
    let mut cluster = Cluster::plan().setting("webhook.enabled", "off").start();
    let receiver = Receiver::http();
    cluster.create_database("shop");
    let endpoint = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        shop.run(&format!(
            "select count(webhook.emit('order.paid', 'a', to_jsonb(n))) from generate_series(1, {EVENTS}) as n"
        ));
        endpoint
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    cluster.reload(&[("webhook.enabled", "on")]);
    {
        let mut copy = Outbox::join(&cluster, "copy");
        copy.wait_for_worker("running");
        let origin = copy.text("select origin from webhook.stat_fenced");
        copy.run(&format!("select webhook.adopt({origin}, 'send', 'x')"));
        for at in [EVENTS / 10, EVENTS / 2] {
            wait_for("the adoption has come so far", PATIENCE, || {
                copy.number("select coalesce(sum(events), 0) from webhook.adoptions") >= at
            });
            let leader = living(&cluster, &mut copy);
            copy.run(&format!("select pg_terminate_backend({leader})"));
            wait_for("the leader is gone", PATIENCE, || {
                !cluster.has_process(leader)
            });
        }
    }
    // The hard way: the server starts all of its processes again.
    let leader = living(&cluster, &mut Outbox::join(&cluster, "copy"));
    cluster.signal(leader, Signal::SIGKILL);
    wait_for("the leader is gone", PATIENCE, || {
        !cluster.has_process(leader)
    });
    wait_for("the server is back", PATIENCE, || {
        cluster.try_connect("copy").is_ok()
    });
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
    wait_for("everything is delivered", PATIENCE * 4, || {
        copy.number("select count(*) from webhook.deliveries where state = 'delivered'") == EVENTS
    });
    assert_eq!(
        copy.number("select count(*) from webhook.deliveries"),
        EVENTS
    );
    assert!(copy.is(&format!(
        "made = {EVENTS} and published = {EVENTS} and events = {EVENTS} from webhook.adoptions"
    )));
    assert_eq!(copy.number("select count(*) from webhook._feed"), EVENTS);
    assert!(copy.is(&format!(
        "state = 'done' and deliveries = {EVENTS} from webhook.requests where verb = 'adopt'"
    )));
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for request in receiver.requests() {
        let id = request.header("webhook-id").unwrap_or_default().to_owned();
        *requests.entry(id).or_default() += 1;
    }
    assert_eq!(i64::try_from(requests.len()), Ok(EVENTS));
    let attempts = copy.number("select sum(attempt_count) from webhook.deliveries");
    // Whatever arrived twice was in doubt when a leader ended, and is numbered.
    let arrived = i64::try_from(requests.values().sum::<usize>()).expect("a count");
    assert!(
        arrived <= attempts,
        "{arrived} requests, {attempts} attempts"
    );
    assert_eq!(
        copy.attempts(&requests.keys().next().expect("one").clone(), &endpoint)[0].number,
        1
    );
}
