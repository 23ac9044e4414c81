//! The promise: every committed event reaches every matching endpoint, whatever ends when; nothing else does. A storm
//! of sessions emits in every way, the leader is ended again and again, and then receiver, tables and sessions are
//! held against each other. The tests print what they counted. Everything else that can be ended, and all that
//! operators do meanwhile, is in `campaign.rs`.
//!
//! A longer run by environment: WEBHOOK_EVENTS (at least so many are emitted), WEBHOOK_KILLS, WEBHOOK_SEED.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    dice::Dice,
    invariants::{ALWAYS, violations},
    kills::Kill,
    meter::number,
    outbox::PATIENCE,
    scene::{CATCH_UP, Scene, Subscription},
    storm::Fate,
    wait::wait_for,
    witness::Reaction,
};

const EMITTERS: u64 = 8;
const PARTNERS: [&str; 4] = ["alpha", "beta", "gamma", "silent"];
const TYPES: [&str; 4] = [
    "order.created",
    "order.updated",
    "customer.frozen",
    "closed",
];
/// One partner has none.
const SUBSCRIPTIONS: [Subscription; 6] = [
    subscription("/alpha/all", "alpha", &["*"]),
    subscription("/alpha/orders", "alpha", &["order.*"]),
    subscription("/beta/created", "beta", &["order.created"]),
    subscription("/gamma/all", "gamma", &["*"]),
    subscription("/gamma/some", "gamma", &["customer.*", "closed"]),
    subscription(
        "/gamma/frozen",
        "gamma",
        &["customer.frozen", "order.created"],
    ),
];

#[test]
fn every_committed_event_is_delivered_to_every_matching_endpoint() {
    let scene = set(0, &[]);
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
    let fates = storm_until(&scene, |emitted| {
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

    let report = scene.reckon(&fates, &[], &BTreeSet::new());
    report.assert_right();
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
    let scene = set(3, &[]);
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
    let fates = storm_until(&scene, |emitted| {
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

    let report = scene.reckon(&fates, &kills, &BTreeSet::new());
    report.assert_right();
    assert!(scene.arrivals.have_mark("open-"));
    assert!(
        report.lost_attempts > 0,
        "nothing in doubt was recorded as lost"
    );
}

#[test]
fn nothing_is_sent_before_it_is_durable() {
    // Nobody else flushes the WAL, and its writer sleeps.
    let scene = set(
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

const fn subscription(
    path: &'static str,
    partner: &'static str,
    patterns: &'static [&'static str],
) -> Subscription {
    Subscription {
        path,
        partner,
        patterns,
        more: "",
    }
}

/// Receivers accept all but so many of a hundred requests, most of them quickly.
fn set(failures: u64, settings: &[(&str, &str)]) -> Scene {
    Scene::set(&SUBSCRIPTIONS, settings, move |dice| {
        // A few outlast the first pass.
        let most = if dice.percent(2) { 700 } else { 25 };
        let delay = Duration::from_millis(dice.below(most));
        let status = Some(if dice.percent(failures) { 503 } else { 200 });
        Reaction { status, delay }
    })
}

fn storm_until(scene: &Scene, enough: impl FnMut(usize) -> bool) -> BTreeMap<String, Fate> {
    scene
        .storm(&PARTNERS, &TYPES, 0, Duration::from_millis(80))
        .blow_until(EMITTERS, scene.seed, enough)
}
