//! Order per subject, for endpoints that ask for it: an event leaves when the one before it of the same subject is
//! delivered, dead or skipped; whatever fails, whoever emits, and whatever becomes of the leader.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    arrivals::json,
    cluster::{Cluster, Plan},
    dice::Dice,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = plan("1s").start();
    Outbox::create(&cluster, "shop")
        .run("select webhook.create_policy('patient', retry_schedule => '1h')");
    cluster
});

const LONG: Duration = Duration::from_secs(120);

/// What a receiver accepted, subject and version, in the order in which it did.
type Accepted = Arc<Mutex<Vec<(String, i64)>>>;

#[test]
fn a_failing_event_holds_its_own_subject_back_and_no_other() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let mended = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&mended);
    let (receiver, accepted) = receiver(move |subject, version| {
        let fails = subject == "a" && version == 1 && !of_receiver.load(Ordering::SeqCst);
        if fails { 500 } else { 200 }
    });
    let endpoint = ordered(&mut shop, "failing", &receiver, "");
    let mut events = Vec::new();
    for version in 1..=3 {
        for subject in ["a", "b", "c"] {
            events.push(emit(
                &mut shop,
                "order.changed",
                "failing",
                subject,
                version,
            ));
        }
    }
    let free = shop.emit("order.counted", "failing", "{}");
    shop.wait_for_deliveries(&endpoint, "delivered", 7);
    shop.wait_for_state(&free, &endpoint, "delivered");
    shop.wait_for_attempts(&events[0], &endpoint, 3);
    for held in [&events[3], &events[6]] {
        let delivery = shop.wait_for_state(held, &endpoint, "pending");
        assert_eq!(delivery.attempts, 0);
        assert!(shop.is(&format!(
            "held_by = '{{order}}' from webhook.deliveries where delivery_id = '{}'",
            delivery.id
        )));
    }
    mended.store(true, Ordering::SeqCst);
    shop.wait_for_deliveries(&endpoint, "delivered", 10);
    let by_subject = by_subject(&accepted);
    for subject in ["a", "b", "c"] {
        assert_eq!(by_subject[subject], [1, 2, 3], "{subject}");
    }
}

#[test]
fn events_of_concurrent_sessions_arrive_in_the_order_of_their_subject() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, accepted) = receiver(|_, _| 200);
    let endpoint = ordered(&mut shop, "concurrent", &receiver, "");
    shop.run(
        "create table subject (id text primary key, version bigint not null default 0);
         insert into subject (id) values ('s0'), ('s1'), ('s2')",
    );
    thread::scope(|scope| {
        for session in 0..4 {
            let mut sql = shop.another();
            scope.spawn(move || {
                for number in 0..30 {
                    // Sessions that change the same row wait for each other. Event ids count milliseconds: the
                    // pause makes sure that a later one is greater.
                    sql.run(&format!(
                        "do $$
                         declare
                           changed text := 's' || {};
                           new bigint;
                         begin
                           update subject set version = version + 1 where id = changed returning version into new;
                           perform pg_sleep(0.002);
                           perform webhook.emit('order.changed', 'concurrent', '{{}}', subject_type => 'order',
                             subject_id => changed, subject_version => new);
                         end $$",
                        (session + number) % 3
                    ));
                }
            });
        }
    });
    shop.wait_for_deliveries_within(&endpoint, "delivered", 120, LONG);
    let by_subject = by_subject(&accepted);
    assert_eq!(by_subject.len(), 3);
    for (subject, versions) in by_subject {
        assert_eq!(versions, Vec::from_iter(1..=40), "{subject}");
    }
}

#[test]
fn after_a_dead_event_the_next_goes_and_a_later_retry_says_that_it_is_out_of_order() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let mended = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&mended);
    let (receiver, accepted) = receiver(move |_, version| {
        let refused = version == 1 && !of_receiver.load(Ordering::SeqCst);
        if refused { 404 } else { 200 }
    });
    let endpoint = ordered(&mut shop, "dead", &receiver, "");
    let events: Vec<String> = (1..=3)
        .map(|version| emit(&mut shop, "order.changed", "dead", "a", version))
        .collect();
    let dead = shop.wait_for_state(&events[0], &endpoint, "dead");
    shop.wait_for_state(&events[2], &endpoint, "delivered");
    assert_eq!(by_subject(&accepted)["a"], [2, 3]);
    mended.store(true, Ordering::SeqCst);
    let reply = shop.have_done(&format!("retry('{}', 'mended')", dead.id));
    assert!(reply.result.contains("order"), "{reply:?}");
    shop.wait_for_state(&events[0], &endpoint, "delivered");
    assert_eq!(by_subject(&accepted)["a"], [2, 3, 1]);
}

#[test]
fn after_a_skipped_event_the_next_goes() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, accepted) = receiver(|_, version| if version == 1 { 500 } else { 200 });
    let endpoint = ordered(&mut shop, "skipped", &receiver, ", policy => 'patient'");
    let events: Vec<String> = (1..=4)
        .map(|version| emit(&mut shop, "order.changed", "skipped", "a", version))
        .collect();
    let waiting = shop.wait_for_state(&events[0], &endpoint, "retrying");
    let held = shop.wait_for_state(&events[2], &endpoint, "pending");
    // One that waits for its turn can be skipped as well.
    shop.have_done(&format!("skip('{}', 'not needed')", held.id));
    shop.wait_for_state(&events[2], &endpoint, "skipped");
    assert!(by_subject(&accepted).is_empty());
    shop.have_done(&format!("skip('{}', 'lost cause')", waiting.id));
    shop.wait_for_state(&events[3], &endpoint, "delivered");
    assert_eq!(by_subject(&accepted)["a"], [2, 4]);
    assert_eq!(receiver.count(), 3);
}

#[test]
fn an_endpoint_that_keeps_order_no_more_sends_what_waited_for_its_turn() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, accepted) = receiver(|_, version| if version == 1 { 500 } else { 200 });
    let endpoint = ordered(&mut shop, "released", &receiver, ", policy => 'patient'");
    let events: Vec<String> = (1..=20)
        .map(|version| emit(&mut shop, "order.changed", "released", "a", version))
        .collect();
    shop.wait_for_state(&events[0], &endpoint, "retrying");
    shop.wait_for_deliveries(&endpoint, "pending", 19);
    let keep_order = |shop: &mut Outbox, on: bool| {
        let id = endpoint.id;
        shop.run(&format!(
            "select webhook.update_endpoint({id}, ordered => {on})"
        ));
        assert!(shop.is(&format!(
            "ordered = {on} from webhook.endpoints where endpoint_id = {id}"
        )));
    };
    keep_order(&mut shop, false);
    shop.wait_for_deliveries(&endpoint, "delivered", 19);
    assert_eq!(by_subject(&accepted)["a"].len(), 19);
    // Turned on again, it holds for what is emitted from then on.
    keep_order(&mut shop, true);
    let first = emit(&mut shop, "order.changed", "released", "b", 1);
    let second = emit(&mut shop, "order.changed", "released", "b", 2);
    shop.wait_for_state(&first, &endpoint, "retrying");
    shop.wait_for_state(&second, &endpoint, "pending");
}

#[test]
fn priority_does_not_overtake_within_a_subject() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, accepted) = receiver(|_, _| 200);
    let endpoint = ordered(&mut shop, "classes", &receiver, "");
    shop.run("select webhook.create_event_type('alarm.raised', priority => 0)");
    shop.have_done(&format!(
        "pause('endpoint', '{}', 'to gather')",
        endpoint.id
    ));
    for (version, kind) in (1..).zip(["order.changed", "alarm.raised"].repeat(5)) {
        for subject in ["a", "b"] {
            emit(&mut shop, kind, "classes", subject, version);
        }
    }
    shop.wait_for_deliveries(&endpoint, "pending", 20);
    assert_eq!(receiver.count(), 0);
    shop.have_done(&format!("resume('endpoint', '{}')", endpoint.id));
    shop.wait_for_deliveries(&endpoint, "delivered", 20);
    for (subject, versions) in by_subject(&accepted) {
        assert_eq!(versions, Vec::from_iter(1..=10), "{subject}");
    }
}

#[test]
fn a_paused_type_holds_back_what_follows_it_in_its_subject() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, accepted) = receiver(|_, _| 200);
    let endpoint = ordered(&mut shop, "typed", &receiver, "");
    shop.have_done("pause('event_type', 'typed.held', 'counting')");
    let first = emit(&mut shop, "typed.held", "typed", "a", 1);
    let second = emit(&mut shop, "typed.free", "typed", "a", 2);
    let third = emit(&mut shop, "typed.held", "typed", "a", 3);
    let other = emit(&mut shop, "typed.free", "typed", "b", 1);
    shop.wait_for_state(&other, &endpoint, "delivered");
    for (event, reason) in [
        (&first, "event_type"),
        (&second, "order"),
        (&third, "order"),
    ] {
        shop.wait_for_state(event, &endpoint, "pending");
        assert!(shop.is(&format!(
            "'{reason}' = any (held_by) from webhook.deliveries where event_id = '{event}'"
        )));
    }
    assert_eq!(receiver.count(), 1);
    shop.have_done("resume('event_type', 'typed.held')");
    shop.wait_for_deliveries(&endpoint, "delivered", 4);
    assert_eq!(by_subject(&accepted)["a"], [1, 2, 3]);
}

#[test]
fn the_order_outlives_the_leader_and_the_server() {
    let cluster = plan("200ms").start();
    let mut dice = Dice::new(11);
    let (receiver, accepted) = receiver(move |_, _| if dice.percent(20) { 500 } else { 200 });
    let endpoint = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = ordered(&mut shop, "killed", &receiver, "");
        emit_many(&mut shop, "killed", 10, 25);
        wait_for("a part of it is accepted", PATIENCE, || {
            accepted.lock().expect("the log").len() >= 50
        });
        shop.restart_leader();
        wait_for("another part of it is accepted", LONG, || {
            accepted.lock().expect("the log").len() >= 120
        });
        cluster.signal(shop.leader(), Signal::SIGKILL);
        // The postmaster restarts all of its processes after such an end.
        wait_for("the session ends", PATIENCE, || {
            shop.sql.batch_execute("select 1").is_err()
        });
        endpoint
    };
    wait_for("the server accepts connections", PATIENCE, || {
        cluster.try_connect("shop").is_ok()
    });
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_deliveries_within(&endpoint, "delivered", 250, LONG);
    assert_order(&accepted, 10, 25);
}

#[test]
fn twenty_subjects_keep_their_order_at_a_receiver_that_fails_at_random() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    shop.run(&format!(
        "select webhook.create_policy('eager', retry_schedule => '{}')",
        ["50ms"; 50].join(",")
    ));
    let mut dice = Dice::new(7);
    let (receiver, accepted) = receiver(move |_, _| if dice.percent(40) { 500 } else { 200 });
    let more = ", policy => 'eager', max_in_flight => 16";
    let endpoint = ordered(&mut shop, "hard", &receiver, more);
    // Half of it at once, half of it while that is on its way.
    emit_many(&mut shop, "hard", 20, 10);
    for version in 11..=20 {
        for subject in 0..20 {
            emit(
                &mut shop,
                "order.changed",
                "hard",
                &format!("s{subject}"),
                version,
            );
        }
    }
    shop.wait_for_deliveries_within(&endpoint, "delivered", 400, LONG);
    assert_order(&accepted, 20, 20);
    assert!(receiver.count() > 500, "{} requests", receiver.count());
    // Each subject had one event under way at a time, and subjects went side by side.
    assert!((2..=16).contains(&receiver.peak()), "{}", receiver.peak());
}

/// A server whose schedule goes on for long in short steps.
fn plan(step: &str) -> Plan {
    Cluster::plan().setting("webhook.retry_schedule", &[step; 50].join(","))
}

/// A receiver that answers by subject and version, a little later, and keeps what it accepted.
fn receiver(mut judge: impl FnMut(&str, i64) -> u16 + Send + 'static) -> (Receiver, Accepted) {
    let receiver = Receiver::http();
    let accepted = Accepted::default();
    let log = Arc::clone(&accepted);
    receiver.behave("/hook", move |request| {
        let subject = &json(request)["subject"];
        let (Some(id), Some(version)) = (subject["id"].as_str(), subject["version"].as_i64())
        else {
            return Answer::status(200);
        };
        let status = judge(id, version);
        if status == 200 {
            let mut log = log.lock().expect("the log");
            log.push((id.to_owned(), version));
        }
        Answer::status(status).after(Duration::from_millis(10))
    });
    (receiver, accepted)
}

/// An endpoint that keeps order.
#[track_caller]
fn ordered(shop: &mut Outbox, partner: &str, receiver: &Receiver, more: &str) -> Endpoint {
    let more = format!(", ordered => true{more}");
    shop.endpoint_with(partner, &receiver.url("/hook"), &more)
}

#[track_caller]
fn emit(shop: &mut Outbox, kind: &str, partner: &str, subject: &str, version: i64) -> String {
    let more = format!(
        ", subject_type => 'order', subject_id => '{subject}', subject_version => {version}"
    );
    shop.emit_with(kind, partner, "{}", &more)
}

/// Emits versions from 1 of subjects from "s0", all subjects in turn, in one statement.
#[track_caller]
fn emit_many(shop: &mut Outbox, partner: &str, subjects: i64, versions: i64) {
    shop.run(&format!(
        "select webhook.emit('order.changed', '{partner}', '{{}}', subject_type => 'order',
                             subject_id => 's' || s, subject_version => v)
           from (select s, v from generate_series(1, {versions}) v, generate_series(0, {subjects} - 1) s
                  order by v, s) as e"
    ));
}

/// The versions of each subject in the order in which they were first accepted.
fn by_subject(accepted: &Accepted) -> BTreeMap<String, Vec<i64>> {
    let mut subjects: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (subject, version) in accepted.lock().expect("the log").iter() {
        let versions = subjects.entry(subject.clone()).or_default();
        // What was accepted and not recorded comes again.
        if !versions.contains(version) {
            versions.push(*version);
        }
    }
    subjects
}

#[track_caller]
fn assert_order(accepted: &Accepted, subjects: usize, versions: i64) {
    let by_subject = by_subject(accepted);
    assert_eq!(by_subject.len(), subjects);
    for (subject, found) in by_subject {
        assert_eq!(found, Vec::from_iter(1..=versions), "{subject}");
    }
}
