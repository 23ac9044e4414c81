//! The promise: every committed event reaches every matching endpoint, whatever ends when; nothing else does. A storm
//! of sessions emits in every way, the leader is ended again and again, and then receiver, tables and sessions are
//! held against each other. Both tests print what they counted.
//!
//! A longer campaign by environment: WEBHOOK_EVENTS (at least so many are emitted), WEBHOOK_KILLS, WEBHOOK_SEED.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    invariants::{ALWAYS, AT_REST, violations},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    storm::{Emitter, Fate, Storm},
    wait::{wait_for, wait_until},
};

const EMITTERS: u64 = 8;
const PARTNERS: [&str; 4] = ["alpha", "beta", "gamma", "silent"];
const TYPES: [&str; 4] = ["order.created", "order.updated", "customer.frozen", "closed"];
/// Path, partner and patterns of each endpoint.
const ENDPOINTS: [(&str, &str, &[&str]); 6] = [
    ("/alpha/all", "alpha", &["*"]),
    ("/alpha/orders", "alpha", &["order.*"]),
    ("/beta/created", "beta", &["order.created"]),
    ("/gamma/all", "gamma", &["*"]),
    ("/gamma/some", "gamma", &["customer.*", "closed"]),
    ("/gamma/frozen", "gamma", &["customer.frozen", "order.created"]),
];
/// Results commit asynchronously: a crash of the server takes back at most three rounds of its WAL writer (0.2 s
/// each), and the results that the leader had not written (20 ms).
const UNFLUSHED: Duration = Duration::from_millis(700);
/// What a busy machine may add between a signal and its effect, or an arrival and its recording.
const SLACK: Duration = Duration::from_millis(300);
/// Receivers and tables may take a while to catch up on a busy machine.
const CATCH_UP: Duration = Duration::from_secs(90);

#[test]
fn every_committed_event_is_delivered_to_every_matching_endpoint() {
    let scene = Scene::set(0);
    let mut watch = scene.session();

    // It writes, stays open for the whole run, and commits at its end.
    let mut open = scene.session();
    open.run("create table ledger (n integer); begin; insert into ledger values (1)");
    for (n, kind) in TYPES.iter().enumerate() {
        open.emit_with(kind, "alpha", "{}", &format!(", correlation_id => 'open-{n}'"));
    }
    let fates = scene.storm_until(|emitted| {
        sleep(Duration::from_millis(20));
        emitted >= scene.least
    });
    let meanwhile = watch.expected();
    wait_for("all of them arrive while a writing transaction is open", CATCH_UP, || {
        scene.arrivals.distinct() >= meanwhile.len()
    });
    assert!(!scene.arrivals.of_mark("open"), "an uncommitted event was sent");
    open.run("commit");

    let kills = Vec::new();
    let report = scene.reckon(fates, &kills);
    assert_eq!(report.duplicates, 0, "duplicates although nothing was ended");
    assert_eq!(report.lost_attempts, 0);
    assert_eq!(scene.arrivals.of_mark("open"), true);
}

#[test]
fn no_event_is_lost_when_the_leader_is_ended_again_and_again() {
    let scene = Scene::set(3);
    let planned = number("WEBHOOK_KILLS", 20);
    let mut dice = Dice::new(scene.seed ^ 0xdead);

    // Survives every crash, and commits when all is over.
    let mut prepared = scene.session();
    prepared.run("begin");
    for (n, kind) in TYPES.iter().enumerate() {
        prepared.emit_with(kind, "alpha", "{}", &format!(", correlation_id => 'open-{n}'"));
    }
    prepared.run("prepare transaction 'open'");
    drop(prepared);

    let mut kills: Vec<Kill> = Vec::new();
    let mut order = Vec::new();
    let fates = scene.storm_until(|emitted| {
        if kills.len() < planned {
            if order.is_empty() {
                // Half and half, and never many of one kind in a row.
                order = vec![true, false];
                if dice.percent(50) {
                    order.reverse();
                }
            }
            kills.push(scene.kill_leader(order.pop().unwrap_or(true), &mut dice));
        } else {
            sleep(Duration::from_millis(20));
        }
        kills.len() >= planned && emitted >= scene.least
    });
    scene.session().run("commit prepared 'open'");

    let report = scene.reckon(fates, &kills);
    assert!(scene.arrivals.of_mark("open"));
    assert!(report.lost_attempts > 0, "no attempt in doubt was recorded as lost");
}

/// One end of the leader.
struct Kill {
    hard: bool,
    at: Instant,
}

/// What the reckoning found.
struct Report {
    duplicates: usize,
    lost_attempts: i64,
}

/// A request that arrived, and when it was answered.
#[derive(Clone)]
struct Arrival {
    delivery: String,
    event: String,
    attempt: usize,
    body: u64,
    marked: String,
    accepted: bool,
    at: Instant,
    answered: Instant,
}

#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Arrival>>>);

impl Arrivals {
    fn all(&self) -> Vec<Arrival> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, arrival: Arrival) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arrival);
    }

    /// Deliveries accepted so far.
    fn distinct(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let distinct: BTreeSet<&str> = all
            .iter()
            .filter(|arrival| arrival.accepted)
            .map(|arrival| arrival.delivery.as_str())
            .collect();
        distinct.len()
    }

    fn of_mark(&self, emitter: &str) -> bool {
        let prefix = format!("{emitter}-");
        self.all()
            .iter()
            .any(|arrival| arrival.marked.starts_with(&prefix))
    }
}

/// A server, its endpoints and the receiver behind them.
struct Scene {
    cluster: Cluster,
    receiver: Receiver,
    arrivals: Arrivals,
    seed: u64,
    least: usize,
}
