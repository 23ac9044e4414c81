//! Everything at once: sessions emit, receivers fail, an operator pauses, resumes, retries and skips, one endpoint keeps
//! order, and meanwhile the leader, emitting sessions and the whole server are killed at random moments. Then receiver,
//! tables and sessions are held against each other: nothing lost, invented or recorded twice, nothing sent twice but
//! what a crash explains, nothing out of order, nothing sent while it was paused. It prints what it counted.
//!
//! `make campaign` is the long form, by environment: WEBHOOK_KILLS, WEBHOOK_EVENTS (at least so many are emitted),
//! WEBHOOK_SEED.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::Duration,
};

use webhook_outbox_test::{
    dice::Dice,
    invariants::{PAUSES_HOLD, violations},
    kills::Kill,
    meter::number,
    scene::{Event, Scene, Subscription, delivery_id},
    storm::{Ending, Fate},
    witness::Reaction,
};

use crate::{
    operator::Operator,
    order::{Order, Since},
    rest::{come_to_rest_while_paused, settle_everything},
};

#[path = "campaign/operator.rs"]
mod operator;
#[path = "campaign/order.rs"]
mod order;
#[path = "campaign/rest.rs"]
mod rest;

const EMITTERS: u64 = 8;
/// Of each emitter.
const SUBJECTS: u64 = 3;
const PARTNERS: [&str; 4] = ["alpha", "beta", "gamma", "silent"];
const TYPES: [&str; 4] = [
    "order.created",
    "order.updated",
    "customer.frozen",
    "closed",
];
const SUBSCRIPTIONS: [Subscription; 7] = [
    subscription("/alpha/all", "alpha", &["*"], ""),
    subscription("/alpha/ordered", "alpha", &["*"], ", ordered => true"),
    subscription("/beta/created", "beta", &["order.created"], ""),
    subscription("/beta/all", "beta", &["*"], ""),
    subscription("/gamma/all", "gamma", &["*"], ""),
    subscription("/gamma/orders", "gamma", &["order.*"], ", ordered => true"),
    subscription(CLOSING, "gamma", &["customer.*", "closed"], ""),
];
/// It is disabled when the storm is over, with what it has in its queue.
const CLOSING: &str = "/gamma/closing";

/// What is ended, and how; shuffled, and begun again.
const DECK: [End; 10] = [
    End::Leader { hard: true },
    End::Leader { hard: true },
    End::Leader { hard: true },
    End::Leader { hard: false },
    End::Leader { hard: false },
    End::Leader { hard: false },
    End::Backend { hard: true },
    End::Backend { hard: false },
    End::Server,
    End::Server,
];

#[derive(Clone, Copy)]
enum End {
    Leader { hard: bool },
    Backend { hard: bool },
    Server,
}

#[test]
fn nothing_is_lost_invented_or_sent_out_of_order_whatever_is_killed_under_load() {
    let calm = Arc::new(AtomicBool::new(false));
    let mut scene = set(&calm);
    let (least, planned) = (number("WEBHOOK_EVENTS", 3_000), number("WEBHOOK_KILLS", 20));
    let storm = scene.storm(&PARTNERS, &TYPES, SUBJECTS, Duration::from_millis(600));
    let mut campaign = Campaign::new(scene.seed, planned);
    let operator = operator(&scene);
    let rest = AtomicBool::new(false);
    let (mut fates, operator) = thread::scope(|scope| {
        // A panic below must not leave him running.
        let ending = Ending(&rest);
        let operator = scope.spawn(|| operator.run(&rest));
        let fates = storm.blow_until(EMITTERS, scene.seed, |emitted| {
            assert!(!operator.is_finished(), "the operator has ended early");
            campaign.go_on(&mut scene, emitted, least)
        });
        drop(ending);
        (fates, operator.join().expect("an operator"))
    });
    fates.extend(campaign.victims());
    scene.leader();
    calm.store(true, Ordering::SeqCst);

    come_to_rest_while_paused(&scene);
    let closing = scene.endpoints[place_of(CLOSING)];
    settle_everything(&scene, closing);
    let mut excused: BTreeSet<String> = operator.skipped.keys().cloned().collect();
    excused.extend(
        scene
            .events()
            .iter()
            .map(|event| delivery_id(&event.id, closing)),
    );
    let mut report = scene.reckon(&fates, &campaign.kills, &excused);
    let mut session = scene.session();
    report
        .wrong
        .extend(violations(&mut session.sql, PAUSES_HOLD));
    let mut settled = dead_by_schedule(&scene);
    for (id, at) in &operator.skipped {
        let first = settled.entry(id.clone()).or_insert(*at);
        *first = (*at).min(*first);
    }
    let mut in_order = 0;
    for (subscription, endpoint) in SUBSCRIPTIONS.iter().zip(&scene.endpoints) {
        if !subscription.more.is_empty() {
            let its_own = |event: &&Event| subscription.wants(&event.partner, &event.kind);
            let events = report.events.iter().filter(its_own);
            let order = Order::of(events, *endpoint, &report.arrivals);
            let found = order.overtaken(&settled, &operator.retried);
            in_order += found.compared;
            report.wrong.extend(found.wrong);
        }
    }
    let grave = "select kind, detail from webhook.alerts where kind in ('event.fenced', 'delivery.unrecorded')";
    for row in session.rows(grave) {
        report.wrong.push(format!("alert: {row:?}"));
    }
    webhook_outbox_test::say!(
        "{}; operator: {:?}; {} pauses took effect; {in_order} deliveries had to follow another of their subject; \
         states: {:?}; quarantined: {}",
        campaign.told(),
        operator.acts,
        session
            .text("select count(*) from webhook.requests where verb = 'pause' and state = 'done'"),
        session.rows("select state, count(*) from webhook.deliveries group by 1 order by 1"),
        session.text("select count(*) from webhook.alerts where kind = 'delivery.quarantined'"),
    );
    report.assert_right();
    assert!(
        report.lost_attempts > 0,
        "nothing in doubt was recorded as lost"
    );
}

/// What is still to be killed, and what was.
struct Campaign {
    dice: Dice,
    planned: usize,
    deck: Vec<End>,
    /// Ends of the leader.
    kills: Vec<Kill>,
    /// How often each card was played: leader, backend, server.
    played: [usize; 3],
    backends: usize,
}

impl Campaign {
    fn new(seed: u64, planned: usize) -> Campaign {
        Campaign {
            dice: Dice::new(seed.wrapping_add(1)),
            planned,
            deck: Vec::new(),
            kills: Vec::new(),
            played: [0; 3],
            backends: 0,
        }
    }

    /// Plays the next card, so that they are spread over the events; true when there is none left and enough was
    /// emitted.
    fn go_on(&mut self, scene: &mut Scene, emitted: usize, least: usize) -> bool {
        let played: usize = self.played.iter().sum();
        if played >= self.planned || played * least > emitted * self.planned {
            sleep(Duration::from_millis(20));
            return played >= self.planned && emitted >= least;
        }
        if self.deck.is_empty() {
            self.deck = DECK.to_vec();
        }
        let card = self.dice.below(self.deck.len() as u64);
        let end = self
            .deck
            .swap_remove(usize::try_from(card).expect("a place"));
        let kill = match end {
            End::Leader { hard } => Some(scene.end_leader(hard, &mut self.dice)),
            End::Backend { hard } => {
                self.backends += 1;
                scene.end_backend(hard, &victim(self.backends), &mut self.dice)
            }
            End::Server => Some(scene.crash(&mut self.dice)),
        };
        let place = match end {
            End::Leader { .. } => 0,
            End::Backend { .. } => 1,
            End::Server => 2,
        };
        self.played[place] += 1;
        self.kills.extend(kill);
        false
    }

    /// What must have become of the events of the sessions that were ended.
    fn victims(&self) -> BTreeMap<String, Fate> {
        (1..=self.backends)
            .map(|n| (victim(n), Fate::RolledBack))
            .collect()
    }

    fn told(&self) -> String {
        let [leader, backend, server] = self.played;
        format!(
            "ended: {leader} times the leader, {backend} times a session in the middle of emit, {server} times the whole server"
        )
    }
}

fn victim(n: usize) -> String {
    format!("victim-{n}")
}

const fn subscription(
    path: &'static str,
    partner: &'static str,
    patterns: &'static [&'static str],
    more: &'static str,
) -> Subscription {
    Subscription {
        path,
        partner,
        patterns,
        more,
    }
}

fn place_of(path: &str) -> usize {
    SUBSCRIPTIONS
        .iter()
        .position(|subscription| subscription.path == path)
        .expect("a subscription")
}

/// Receivers refuse one request in eight, in every way, until they are calm.
fn set(calm: &Arc<AtomicBool>) -> Scene {
    let calm = Arc::clone(calm);
    // The retries of one delivery go on for longer than the campaign lets it wait.
    let schedule = ["200ms,500ms", &",1s".repeat(40), &",5s".repeat(8)].concat();
    let settings = [("webhook.retry_schedule", schedule.as_str())];
    Scene::set(&SUBSCRIPTIONS, &settings, move |dice| {
        // A few outlast the first pass.
        let most = if dice.percent(2) { 700 } else { 25 };
        let delay = Duration::from_millis(dice.below(most));
        let status = match dice.below(100) {
            _ if calm.load(Ordering::SeqCst) => Some(200),
            0..5 => Some(500),
            5..7 => Some(503),
            7..9 => None,
            // Dead at once.
            9..12 => Some(400),
            _ => Some(200),
        };
        Reaction { status, delay }
    })
}

fn operator(scene: &Scene) -> Operator {
    let mut targets = vec![("all", None)];
    // Several times, so that everything is paused less often than something.
    for _ in 0..3 {
        targets.extend(
            PARTNERS[..3]
                .iter()
                .map(|p| ("partner", Some((*p).to_owned()))),
        );
        targets.extend(TYPES.iter().map(|t| ("event_type", Some((*t).to_owned()))));
        targets.extend(
            scene
                .endpoints
                .iter()
                .map(|id| ("endpoint", Some(id.to_string()))),
        );
    }
    let seed = scene.seed.wrapping_add(2);
    Operator::new(scene.cluster.connection("shop"), targets, seed)
}

/// Deliveries that died, by the table, with the beginning of the attempt that was their last.
fn dead_by_schedule(scene: &Scene) -> Since {
    let rows = scene.session().rows(
        "select delivery_id, extract(epoch from min(started_at)) from webhook.attempts
          where outcome = 'dead' group by 1",
    );
    let (instant, wall) = scene.begun;
    let wall = wall
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64());
    rows.into_iter()
        .filter_map(|row| {
            let at: f64 = row[1].as_ref()?.parse().ok()?;
            let since = Duration::try_from_secs_f64(at - wall).ok()?;
            Some((row[0].clone()?, instant + since))
        })
        .collect()
}
