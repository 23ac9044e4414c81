//! Adopting at close quarters: two at once, events that are emitted meanwhile, endpoints that are closed, keep an
//! order or give up by age, pauses.

use std::{thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    outbox::{Endpoint, Outbox},
    receiver::Receiver,
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

/// A cluster with a restored copy whose original never ran: `fill` says what it holds.
fn copied<T>(receiver: &Receiver, fill: impl FnOnce(&mut Outbox, &Receiver) -> T) -> (Cluster, T) {
    let cluster = Cluster::plan().setting("webhook.enabled", "off").start();
    cluster.create_database("shop");
    let filled = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        fill(&mut shop, receiver)
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    (cluster, filled)
}

fn adoption(copy: &mut Outbox, mode: &str) -> String {
    let origin = copy.text("select origin from webhook.stat_fenced where reason = 'origin'");
    format!("select webhook.adopt({origin}, '{mode}', 'a test')")
}

fn ids(receiver: &Receiver, path: &str) -> Vec<String> {
    receiver
        .requests_for(path)
        .iter()
        .map(|request| request.header("webhook-id").unwrap_or_default().to_owned())
        .collect()
}

fn one_endpoint(shop: &mut Outbox, receiver: &Receiver) -> (Endpoint, Vec<String>) {
    let endpoint = shop.endpoint("a", &receiver.url("/a"));
    let events = (0..3).map(|_| shop.emit("order.paid", "a", "{}")).collect();
    (endpoint, events)
}

#[test]
fn of_two_that_adopt_at_once_the_second_waits_and_is_refused() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, events)) = copied(&receiver, one_endpoint);
    {
        let mut first = Outbox::join(&cluster, "copy");
        let verb = adoption(&mut first, "send");
        first.run("begin");
        first.run(&verb);
        let refused = std::thread::scope(|scope| {
            let second = scope.spawn(|| Outbox::join(&cluster, "copy").refusal(&verb));
            first.wait_until(
                "exists (select from pg_locks where relation = 'webhook._adoption'::regclass and not granted)",
            );
            first.run("commit");
            second.join().expect("the second session")
        });
        assert_eq!(refused.0, "55000", "{}", refused.1);
        assert!(first.is("count(*) = 1 and min(state) = 'waiting' from webhook.adoptions"));
        assert!(first.is(
            "count(*) = 1 from webhook.stat_progress_adopt p join webhook.adoptions a on a.request_id = p.request_id
              where p.origin = a.origin and p.mode = 'send' and p.phase = 'waiting'
                and p.published = 0 and p.skipped = 0 and p.tampered = 0 and p.reached_at is null"
        ));
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    for event in &events {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    copy.wait_until("(select min(state) = 'done' from webhook.adoptions)");
    assert!(copy.is("not exists (select from webhook.stat_progress_adopt)"));
    // Two requests may overtake each other.
    let sorted = |mut ids: Vec<String>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(ids(&receiver, "/a")), sorted(events));
}

#[test]
fn an_adoption_that_is_rolled_back_leaves_everything_inert() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, events)) = copied(&receiver, one_endpoint);
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    let verb = adoption(&mut copy, "send");
    copy.run(&format!("begin; {verb}; rollback"));
    let own = copy.emit("order.paid", "a", "{}");
    copy.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{own}')"
    ));
    sleep(POLLS);
    assert_eq!(receiver.count(), 0);
    assert!(copy.is("not exists (select from webhook.adoptions)"));
    assert!(copy.is("bool_and(inert) from webhook.endpoints"));
    copy.run(&verb);
    for event in events.iter().chain([&own]) {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    sleep(POLLS);
    assert_eq!(receiver.count(), 4);
}

#[test]
fn own_events_around_an_adoption_arrive_once_each_whatever_commits_first() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, events)) = copied(&receiver, one_endpoint);
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    let before = copy.emit("order.paid", "a", "{}");
    // Open when the endpoints change hands; one ends before them, one behind.
    let mut early = copy.another();
    early.run("begin");
    let ended_before = early.emit("order.paid", "a", "{}");
    let mut late = copy.another();
    late.run("begin");
    let ended_after = late.emit("order.paid", "a", "{}");
    let verb = adoption(&mut copy, "send");
    copy.run("begin");
    let own = copy.emit("order.paid", "a", "{}");
    copy.run(&verb);
    let own_after = copy.emit("order.paid", "a", "{}");
    early.run("commit");
    // The leader reads what is committed meanwhile, for endpoints that it does not know yet.
    copy.run("savepoint s");
    let meanwhile = late_reader(&mut early);
    copy.run("commit");
    late.run("commit");
    let after = copy.emit("order.paid", "a", "{}");
    let mut all = events;
    all.extend([
        before,
        ended_before,
        ended_after,
        own,
        own_after,
        meanwhile,
        after,
    ]);
    for event in &all {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    copy.wait_until("(select min(state) = 'done' from webhook.adoptions)");
    sleep(POLLS);
    let mut arrived = ids(&receiver, "/a");
    arrived.sort_unstable();
    all.sort_unstable();
    assert_eq!(arrived, all);
}

/// Emits an event and waits until the leader has read it.
fn late_reader(session: &mut Outbox) -> String {
    let event = session.emit("order.paid", "a", "{}");
    session.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{event}')"
    ));
    event
}

#[test]
fn what_was_in_the_memory_of_the_original_is_sent_and_what_its_endpoint_is_too_new_for_is_not() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, newer, events)) = copied(&receiver, |shop, receiver| {
        let (endpoint, events) = one_endpoint(shop, receiver);
        let newer = shop.endpoint("a", &receiver.url("/newer"));
        // Read by the original just before the copy was made, and without a row yet.
        shop.run(
            "insert into webhook._feed
             select webhook._pos_bound(clock_timestamp()) + row_number() over (), now(), false, partner_id, event_id, type
               from webhook._event
              where partner_id = 'a'",
        );
        (endpoint, newer, events)
    });
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    let verb = adoption(&mut copy, "send");
    copy.run(&verb);
    for event in &events {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    copy.wait_until("(select min(state) = 'done' from webhook.adoptions)");
    assert!(copy.is("made = 3 and published = 0 from webhook.adoptions"));
    let next = copy.emit("order.paid", "a", "{}");
    copy.wait_for_state(&next, &newer, "delivered");
    sleep(POLLS);
    assert_eq!(receiver.requests_for("/a").len(), 4);
    assert_eq!(ids(&receiver, "/newer"), [next]);
}

#[test]
fn a_closed_endpoint_stays_closed_and_gets_nothing() {
    let receiver = Receiver::http();
    let (mut cluster, (closed, events)) = copied(&receiver, |shop, receiver| {
        let (endpoint, events) = one_endpoint(shop, receiver);
        shop.run(&format!(
            "select webhook.disable_endpoint({}, 'enough')",
            endpoint.id
        ));
        // As the leader leaves it when the copy is made in the middle of something.
        shop.run(&format!(
            "insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision)
             values ({}, '{}', 'pending', 0, 0, 1)",
            endpoint.id, events[0]
        ));
        (endpoint, events)
    });
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    let verb = adoption(&mut copy, "send");
    copy.run(&verb);
    copy.wait_until("(select min(state) = 'done' from webhook.adoptions)");
    let delivery = copy.wait_for_state(&events[0], &closed, "cancelled");
    assert!(delivery.reason.is_some_and(|why| why.contains("enough")));
    assert!(copy.is("state = 'disabled' and not inert from webhook.endpoints"));
    assert!(copy.is("count(*) = 1 from webhook.deliveries"));
    assert_eq!(receiver.count(), 0);
}

#[test]
fn an_ordered_endpoint_gets_the_old_events_of_a_subject_in_their_order() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, events)) = copied(&receiver, |shop, receiver| {
        let endpoint = shop.endpoint_with("a", &receiver.url("/a"), ", ordered => true");
        let events: Vec<String> = (0..20)
            .map(|n| {
                let more = format!(", subject_type => 'order', subject_id => '{}'", n % 2);
                shop.emit_with("order.paid", "a", "{}", &more)
            })
            .collect();
        (endpoint, events)
    });
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    let verb = adoption(&mut copy, "send");
    copy.run(&verb);
    for event in &events {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    let arrived = ids(&receiver, "/a");
    for subject in 0..2 {
        let of_subject = |(n, id): (usize, &String)| (n % 2 == subject).then(|| id.clone());
        let emitted: Vec<String> = events.iter().enumerate().filter_map(of_subject).collect();
        let got: Vec<String> = arrived
            .iter()
            .filter(|id| emitted.contains(id))
            .cloned()
            .collect();
        assert_eq!(got, emitted);
    }
}

#[test]
fn what_is_too_old_by_policy_becomes_dead_instead_of_being_sent() {
    let receiver = Receiver::http();
    let (mut cluster, (endpoint, events)) = copied(&receiver, |shop, receiver| {
        shop.run("select webhook.create_policy('fresh', max_age => '1 second')");
        let endpoint = shop.endpoint_with("a", &receiver.url("/a"), ", policy => 'fresh'");
        (endpoint, [shop.emit("order.paid", "a", "{}")])
    });
    sleep(Duration::from_millis(1_100));
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    let verb = adoption(&mut copy, "send");
    copy.run(&verb);
    let delivery = copy.wait_for_state(&events[0], &endpoint, "dead");
    assert_eq!(delivery.category.as_deref(), Some("expired"));
    assert_eq!(receiver.count(), 0);
}

#[test]
fn what_is_adopted_while_everything_is_paused_waits_for_the_end_of_the_pause() {
    let receiver = Receiver::http();
    // Paused in the original: the copy's leader ran already when that was restored.
    let (mut cluster, (endpoint, events)) = copied(&receiver, |shop, receiver| {
        shop.run("select webhook.pause('all', null, 'moving')");
        one_endpoint(shop, receiver)
    });
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    let verb = adoption(&mut copy, "send");
    copy.run(&verb);
    copy.wait_until("(select min(state) = 'done' from webhook.adoptions)");
    assert!(copy.is("made = 3 from webhook.adoptions"));
    for event in &events {
        copy.wait_for_state(event, &endpoint, "pending");
    }
    sleep(POLLS);
    assert_eq!(receiver.count(), 0);
    copy.run("select webhook.resume('all')");
    for event in &events {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    assert_eq!(receiver.count(), 3);
}
