//! The promise: every committed event reaches every matching endpoint, whatever ends when; nothing else does. A storm
//! of sessions emits in every way, the leader is ended again and again, and then receiver, tables and sessions are
//! held against each other. Both tests print what they counted.
//!
//! A longer campaign by environment: WEBHOOK_EVENTS (at least so many are emitted), WEBHOOK_KILLS, WEBHOOK_SEED.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    invariants::{ALWAYS, violations},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    storm::{Emitter, Fate, Storm},
    wait::{wait_for, wait_until},
};

use crate::{
    arrivals::{Arrival, Arrivals},
    reckoning::{CATCH_UP, Kill},
};

#[path = "no_event_lost/arrivals.rs"]
mod arrivals;
#[path = "no_event_lost/reckoning.rs"]
mod reckoning;

const EMITTERS: u64 = 8;
const PARTNERS: [&str; 4] = ["alpha", "beta", "gamma", "silent"];
const TYPES: [&str; 4] = [
    "order.created",
    "order.updated",
    "customer.frozen",
    "closed",
];
/// Path, partner and patterns of each endpoint. One partner has none.
const ENDPOINTS: [(&str, &str, &[&str]); 6] = [
    ("/alpha/all", "alpha", &["*"]),
    ("/alpha/orders", "alpha", &["order.*"]),
    ("/beta/created", "beta", &["order.created"]),
    ("/gamma/all", "gamma", &["*"]),
    ("/gamma/some", "gamma", &["customer.*", "closed"]),
    (
        "/gamma/frozen",
        "gamma",
        &["customer.frozen", "order.created"],
    ),
];

#[test]
fn every_committed_event_is_delivered_to_every_matching_endpoint() {
    let scene = Scene::set(0);
    // It has written something, stays open for the whole run, and commits at its end.
    let mut open = scene.session();
    open.run("create table account (n integer); begin; insert into account values (1)");
    for (n, kind) in TYPES.iter().enumerate() {
        open.emit_with(
            kind,
            "alpha",
            "{}",
            &format!(", correlation_id => 'open-{n}'"),
        );
    }
    let least = number("WEBHOOK_EVENTS", 3_000);
    let fates = scene.storm_until(|emitted| {
        sleep(Duration::from_millis(20));
        emitted >= least
    });
    let begun = Instant::now();
    let meanwhile = scene.expected(&scene.events());
    wait_for(
        "all of them arrive while a writing transaction is open",
        CATCH_UP,
        || scene.arrivals.accepted() >= meanwhile.len(),
    );
    webhook_outbox_test::say!(
        "{} deliveries arrived while a writing transaction was open, the last {:?} after the last commit",
        meanwhile.len(),
        begun.elapsed()
    );
    assert!(
        !scene.arrivals.have_mark("open-"),
        "an uncommitted event was sent"
    );
    assert_eq!(
        violations(&mut scene.session().sql, ALWAYS),
        Vec::<String>::new()
    );
    open.run("commit");

    let report = scene.reckon(&fates, &[]);
    assert!(scene.arrivals.have_mark("open-"));
    assert_eq!(
        report.duplicates, 0,
        "duplicates although nothing was ended"
    );
    assert_eq!(
        report.lost_attempts, 0,
        "lost attempts although nothing was ended"
    );
}

#[test]
fn no_event_is_lost_when_the_leader_is_ended_again_and_again() {
    let scene = Scene::set(3);
    // The same, prepared, so that it survives every crash.
    let mut open = scene.session();
    open.run("begin");
    for (n, kind) in TYPES.iter().enumerate() {
        open.emit_with(
            kind,
            "alpha",
            "{}",
            &format!(", correlation_id => 'open-{n}'"),
        );
    }
    open.run("prepare transaction 'open'");
    drop(open);

    let (least, planned) = (number("WEBHOOK_EVENTS", 3_000), number("WEBHOOK_KILLS", 20));
    let mut dice = Dice::new(scene.seed.wrapping_add(1));
    let mut kills: Vec<Kill> = Vec::new();
    let mut next = Vec::new();
    let fates = scene.storm_until(|emitted| {
        if kills.len() >= planned {
            sleep(Duration::from_millis(20));
            return emitted >= least;
        }
        if next.is_empty() {
            // Half and half, and never many of one kind in a row: the launcher would slow down.
            next = if dice.percent(50) {
                vec![true, false]
            } else {
                vec![false, true]
            };
        }
        let hard = next.pop().unwrap_or(true);
        kills.push(scene.end_leader(hard, &mut dice));
        false
    });
    scene.leader();
    assert!(
        !scene.arrivals.have_mark("open-"),
        "an uncommitted event was sent"
    );
    assert_eq!(
        violations(&mut scene.session().sql, ALWAYS),
        Vec::<String>::new()
    );
    scene.session().run("commit prepared 'open'");

    let report = scene.reckon(&fates, &kills);
    assert!(scene.arrivals.have_mark("open-"));
    assert!(
        report.lost_attempts > 0,
        "nothing in doubt was recorded as lost"
    );
}

#[test]
fn nothing_is_sent_before_it_is_durable() {
    // Nobody else flushes the WAL, and its writer sleeps.
    let scene = Scene::with(
        0,
        &[("wal_writer_delay", "10s"), ("full_page_writes", "off")],
    );
    let mut emitted = Vec::new();
    for round in 0..6 {
        scene.leader();
        let mut careless = scene.session();
        careless.wait_for_worker("running");
        careless.run("set synchronous_commit = off");
        let mark = format!("careless-{round}");
        let more = format!(", correlation_id => '{mark}'");
        emitted.push(careless.emit_with("closed", "alpha", "{}", &more));
        wait_for("it arrives", PATIENCE, || scene.arrivals.have_mark(&mark));
        scene.cluster.signal(scene.leader(), Signal::SIGKILL);
        wait_for("the server goes down", PATIENCE, || {
            careless.sql.simple_query("select").is_err()
        });
    }
    scene.leader();
    let kept: Vec<String> = scene.events().into_iter().map(|event| event.id).collect();
    let taken_back: Vec<_> = emitted.iter().filter(|id| !kept.contains(id)).collect();
    assert!(
        taken_back.is_empty(),
        "arrived, and then never happened: {taken_back:?}"
    );
    webhook_outbox_test::say!(
        "{} events arrived right before a crash, and are there after it",
        kept.len()
    );
}

/// A server, its endpoints and the receiver behind them.
struct Scene {
    cluster: Cluster,
    /// Endpoint ids in the order of [`ENDPOINTS`].
    endpoints: Vec<i64>,
    arrivals: Arrivals,
    seed: u64,
    /// webhook.result_flush_interval.
    flush: Duration,
    // Answers for as long as the scene lasts.
    _receiver: Receiver,
}

impl Scene {
    /// Receivers accept all but so many of a hundred requests, most of them quickly.
    fn set(failures: u64) -> Scene {
        Self::with(failures, &[])
    }

    /// The same, with further settings of the server.
    fn with(failures: u64, settings: &[(&str, &str)]) -> Scene {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock");
        let seed = number(
            "WEBHOOK_SEED",
            usize::try_from(now.as_millis()).expect("a time"),
        );
        let seed = u64::try_from(seed).expect("a seed");
        let mut dice = Dice::new(seed);
        // What shifts the work between memory, first pass and due table.
        let cap = *dice.pick(&["2", "8"]);
        let limit = *dice.pick(&["100ms", "300ms", "2s"]);
        let flush = *dice.pick(&[5, 20, 100]);
        webhook_outbox_test::say!(
            "WEBHOOK_SEED={seed}: {cap} requests per endpoint, first pass {limit}, results every {flush} ms"
        );
        let plan = settings
            .iter()
            .fold(Cluster::plan(), |plan, (name, value)| {
                plan.setting(name, value)
            });
        let cluster = plan
            .setting("fsync", "on")
            .setting("webhook.max_in_flight_per_endpoint", cap)
            .setting("webhook.first_pass_limit", limit)
            .setting("webhook.result_flush_interval", &format!("{flush}ms"))
            .setting(
                "webhook.retry_schedule",
                &["200ms,500ms", &",1s".repeat(40)].concat(),
            )
            .start();
        let mut shop = Outbox::create(&cluster, "shop");
        let (receiver, arrivals) = (Receiver::http(), Arrivals::default());
        let mut endpoints = Vec::new();
        for (n, (path, partner, patterns)) in ENDPOINTS.iter().enumerate() {
            let list = patterns.join("','");
            let more = format!(", event_types => array['{list}']");
            endpoints.push(shop.endpoint_with(partner, &receiver.url(path), &more).id);
            let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(n as u64));
            let arrivals = arrivals.clone();
            receiver.behave(path, move |request| {
                // A few outlast the first pass.
                let most = if dice.percent(2) { 700 } else { 25 };
                let delay = Duration::from_millis(dice.below(most));
                let accepted = !dice.percent(failures);
                arrivals.add(Arrival::new(request, accepted, delay));
                Answer::status(if accepted { 200 } else { 503 }).after(delay)
            });
        }
        drop(shop);
        Scene {
            cluster,
            endpoints,
            arrivals,
            seed,
            flush: Duration::from_millis(flush),
            _receiver: receiver,
        }
    }

    fn session(&self) -> Outbox<'_> {
        Outbox::join(&self.cluster, "shop")
    }

    /// Lets the emitters run until `enough`, which is told how many events were emitted. Returns what the sessions
    /// know of their events.
    fn storm_until(&self, mut enough: impl FnMut(usize) -> bool) -> BTreeMap<String, Fate> {
        let storm = Storm {
            cluster: &self.cluster,
            database: "shop",
            partners: &PARTNERS,
            types: &TYPES,
            pause: Duration::from_millis(80),
            stop: AtomicBool::new(false),
            emitted: AtomicUsize::new(0),
        };
        thread::scope(|scope| {
            let emitters: Vec<_> = (0..EMITTERS)
                .map(|n| {
                    // One of them does not wait for its commits to be on disk.
                    let careless = n == EMITTERS - 1;
                    let seed = self.seed.wrapping_mul(17).wrapping_add(n);
                    let emitter = Emitter::new(&storm, &format!("e{n}"), careless, seed);
                    scope.spawn(move || emitter.run())
                })
                .collect();
            // A panic below must not leave them running.
            let ending = Ending(&storm.stop);
            while !enough(storm.emitted.load(Ordering::SeqCst)) {
                let all_run = emitters.iter().all(|emitter| !emitter.is_finished());
                assert!(all_run, "an emitter has ended early");
            }
            drop(ending);
            let fates = emitters
                .into_iter()
                .map(|emitter| emitter.join().expect("an emitter"));
            fates.flatten().collect()
        })
    }

    /// Ends the leader at a random moment of its life, and waits until it is gone.
    fn end_leader(&self, hard: bool, dice: &mut Dice) -> Kill {
        self.leader();
        // Now and then right after its birth, while it takes up what the last one left.
        let most = if dice.percent(30) { 60 } else { 1_800 };
        sleep(Duration::from_millis(dice.below(most)));
        let pid = self.leader();
        let mut session = self.session();
        let running = session.is("(select state = 'running' from webhook.stat_worker)");
        let at = Instant::now();
        let wall = SystemTime::now();
        if hard {
            self.cluster.signal(pid, Signal::SIGKILL);
        } else {
            session.run(&format!("select pg_terminate_backend({pid})"));
        }
        wait_for("the leader is gone", PATIENCE, || {
            !self.cluster.has_process(pid)
        });
        Kill {
            hard,
            running,
            at,
            wall,
        }
    }

    /// Process id of the leader, once there is one.
    fn leader(&self) -> i32 {
        wait_until("there is a leader", CATCH_UP, || {
            let mut sql = self.cluster.try_connect("shop").ok()?;
            let query = "select pid from pg_stat_activity
                          where backend_type = 'webhook_outbox leader' and datname = current_database()";
            let pid = sql.query_opt(query, &[]).ok()??.get(0);
            self.cluster.has_process(pid).then_some(pid)
        })
    }
}

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A number from the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}
