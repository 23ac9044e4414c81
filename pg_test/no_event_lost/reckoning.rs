//! Holds sessions, tables and receiver against each other when all is over. The table of events is the truth about
//! commits whose answer was lost; the receiver is the truth about what was sent.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use webhook_outbox_test::{
    invariants::{ALWAYS, AT_REST, violations},
    storm::Fate,
};

use crate::{ENDPOINTS, Scene, arrivals::Arrival};

/// For catching up, on a busy machine.
pub const CATCH_UP: Duration = Duration::from_secs(90);
/// Results commit asynchronously: a crash of the server takes back at most three rounds of its WAL writer (0.2 s
/// each), beside the results that the leader had not written yet.
const UNFLUSHED: Duration = Duration::from_millis(600);
/// What a busy machine may add between a signal and its effect, or between an arrival and its recording.
const SLACK: Duration = Duration::from_millis(300);

/// One end of the leader: by SIGKILL, which makes the server restart, or by SIGTERM.
pub struct Kill {
    pub hard: bool,
    /// It had taken up what earlier lives left.
    pub running: bool,
    pub at: Instant,
    pub wall: SystemTime,
}

/// What was counted.
pub struct Report {
    pub duplicates: usize,
    pub lost_attempts: usize,
}

/// A row of `webhook.events`.
pub struct Event {
    pub id: String,
    partner: String,
    kind: String,
    mark: String,
}

impl Scene {
    /// Every committed event.
    pub fn events(&self) -> Vec<Event> {
        let rows = self
            .session()
            .rows("select event_id, partner_id, type, correlation_id from webhook.events");
        rows.into_iter()
            .map(|row| {
                let mut values = row.into_iter().map(Option::unwrap_or_default);
                let mut next = || values.next().unwrap_or_default();
                Event {
                    id: next(),
                    partner: next(),
                    kind: next(),
                    mark: next(),
                }
            })
            .collect()
    }

    /// Ids of the deliveries that these events must have, with the path of their endpoint.
    pub fn expected(&self, events: &[Event]) -> BTreeMap<String, &'static str> {
        let mut expected = BTreeMap::new();
        for event in events {
            for ((path, partner, patterns), endpoint) in ENDPOINTS.iter().zip(&self.endpoints) {
                let wanted = patterns
                    .iter()
                    .any(|pattern| match pattern.strip_suffix('*') {
                        Some(prefix) => event.kind.starts_with(prefix),
                        None => event.kind == *pattern,
                    });
                if wanted && event.partner == *partner {
                    expected.insert(format!("dlv_{}_{endpoint}", &event.id[4..]), *path);
                }
            }
        }
        expected
    }

    /// Waits until all is delivered, checks everything, and prints the counts.
    pub fn reckon(&self, fates: &BTreeMap<String, Fate>, kills: &[Kill]) -> Report {
        let events = self.events();
        let expected = self.expected(&events);
        self.wait_until_at_rest(&expected);
        let mut wrong = told_otherwise(&events, fates);
        let arrivals = self.arrivals.all();
        wrong.extend(missed_or_invented(&expected, &arrivals));
        wrong.extend(changed_bodies(&arrivals));
        let (duplicates, strays) = duplicates(&arrivals, kills, UNFLUSHED + self.flush + SLACK);
        let unexplained = strays.len();
        wrong.extend(strays);
        wrong.extend(self.wrong_rows(&expected, &arrivals));
        let mut session = self.session();
        wrong.extend(violations(&mut session.sql, ALWAYS));
        wrong.extend(violations(&mut session.sql, AT_REST));
        let lost = session.column(
            "select extract(epoch from started_at) from webhook.attempts where error_category = 'lost'",
        );
        let orderly = after_orderly_end(&lost, kills);
        if orderly > 0 {
            wrong.push(format!("{orderly} attempts lost by an orderly end"));
        }
        let retried =
            session.number("select count(*) from webhook._delivery where attempt_count > 1");
        let lives = session.text("select incarnation from webhook.stat_worker");
        let hard = kills.iter().filter(|kill| kill.hard).count();
        webhook_outbox_test::say!(
            "leader ended {} times ({hard} by SIGKILL, {} by SIGTERM, {} while it took up what was left), incarnation {lives}; \
             events: {} emitted, {} committed; deliveries: {} due, {} accepted, {} missed, {} invented; {} requests; \
             duplicates: {duplicates} after SIGKILL, {} others; more than one attempt: {retried}; lost attempts: {}",
            kills.len(),
            kills.len() - hard,
            kills.iter().filter(|kill| !kill.running).count(),
            fates.len(),
            events.len(),
            expected.len(),
            self.arrivals.accepted(),
            wrong
                .iter()
                .filter(|line| line.starts_with("missed"))
                .count(),
            wrong
                .iter()
                .filter(|line| line.starts_with("invented"))
                .count(),
            arrivals.len(),
            unexplained,
            lost.len(),
        );
        webhook_outbox_test::say!(
            "commit to arrival, milliseconds: {}",
            latencies(&arrivals, fates)
        );
        let first: Vec<&String> = wrong.iter().take(20).collect();
        assert!(wrong.is_empty(), "{} findings: {first:#?}", wrong.len());
        Report {
            duplicates,
            lost_attempts: lost.len(),
        }
    }

    fn wait_until_at_rest(&self, expected: &BTreeMap<String, &'static str>) {
        let end = Instant::now() + CATCH_UP;
        let query = format!(
            "select (select count(*) from webhook._delivery where state = 'delivered') = {}
                and not exists (select from webhook._delivery where state <> 'delivered')
                and not exists (select from webhook._due)
                and (select in_flight = 0 and queued = 0 and open_batches = 0 from webhook.stat_worker)",
            expected.len()
        );
        let mut session = self.session();
        let mut calm = 0;
        // Twice: the leader publishes its counters once per round.
        while calm < 2 {
            let at_rest = session.text(&query) == "t" && self.arrivals.accepted() >= expected.len();
            calm = if at_rest { calm + 1 } else { 0 };
            if Instant::now() > end {
                let states = session.rows(
                    "select state, reason, count(*), min(next_attempt_at) - now(), max(attempt_count)
                       from webhook._delivery group by 1, 2",
                );
                let ledger = session.rows(
                    "select n, incarnation, batch, kind, prev, cur, from_xid, from_id, to_xid, to_id
                       from webhook._ledger order by n desc limit 20",
                );
                let worker = session.rows("select * from webhook.stat_worker");
                webhook_outbox_test::say!(
                    "not at rest: {} expected; {states:?}\n{worker:?}\n{ledger:#?}",
                    expected.len()
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Delivery rows that are not those expected, or do not show the last request that arrived.
    fn wrong_rows(
        &self,
        expected: &BTreeMap<String, &'static str>,
        arrivals: &[Arrival],
    ) -> Vec<String> {
        let mut last: HashMap<&str, i32> = HashMap::new();
        for arrival in arrivals.iter().filter(|arrival| arrival.accepted) {
            last.insert(&arrival.delivery, arrival.attempt);
        }
        let rows = self.session().rows(
            "select webhook._delivery_id(event_id, endpoint_id), state, attempt_count from webhook._delivery",
        );
        let mut wrong = Vec::new();
        let mut found = BTreeSet::new();
        for row in rows {
            let value = |column: usize| row[column].clone().unwrap_or_default();
            let (id, state, attempts) = (value(0), value(1), value(2));
            if state != "delivered" || !expected.contains_key(&id) {
                wrong.push(format!("row {id} is {state} after {attempts} attempts"));
            }
            let seen = last
                .get(id.as_str())
                .map(i32::to_string)
                .unwrap_or_default();
            if seen != attempts {
                wrong.push(format!(
                    "row {id} has {attempts} attempts, the last request was number {seen}"
                ));
            }
            found.insert(id);
        }
        wrong.extend(
            expected
                .keys()
                .filter(|id| !found.contains(*id))
                .map(|id| format!("no row {id}")),
        );
        wrong
    }
}

/// The table against what the sessions were told.
fn told_otherwise(events: &[Event], fates: &BTreeMap<String, Fate>) -> Vec<String> {
    let kept: BTreeSet<&str> = events.iter().map(|event| event.mark.as_str()).collect();
    let mut wrong = Vec::new();
    if kept.len() != events.len() {
        wrong.push("a mark stands in the table twice".to_owned());
    }
    for (mark, fate) in fates {
        match fate {
            Fate::Committed(_) if !kept.contains(mark.as_str()) => {
                wrong.push(format!("{mark} was committed and is not there"));
            }
            Fate::RolledBack if kept.contains(mark.as_str()) => {
                wrong.push(format!("{mark} was rolled back and is there"));
            }
            _ => {}
        }
    }
    wrong
}

fn missed_or_invented(
    expected: &BTreeMap<String, &'static str>,
    arrivals: &[Arrival],
) -> Vec<String> {
    let accepted: BTreeSet<&str> = arrivals
        .iter()
        .filter(|arrival| arrival.accepted)
        .map(|arrival| arrival.delivery.as_str())
        .collect();
    let missed = expected.keys().filter(|id| !accepted.contains(id.as_str()));
    let mut wrong: Vec<String> = missed.map(|id| format!("missed {id}")).collect();
    for arrival in arrivals {
        let path = expected.get(&arrival.delivery);
        let own = arrival.delivery.get(4..30) == arrival.event.get(4..);
        if path != Some(&arrival.path.as_str()) || !own {
            wrong.push(format!("invented {arrival:?}"));
        }
    }
    wrong
}

fn changed_bodies(arrivals: &[Arrival]) -> Vec<String> {
    let mut bodies: HashMap<&str, u64> = HashMap::new();
    let mut wrong = Vec::new();
    for arrival in arrivals {
        if *bodies.entry(&arrival.event).or_insert(arrival.body) != arrival.body {
            wrong.push(format!("{} was sent with different bodies", arrival.event));
        }
    }
    wrong
}

/// Accepted requests that were not the last of their delivery: how many, and those that no kill explains. A crash of
/// the server explains what was under way or answered shortly before it; an orderly end explains nothing, because it
/// waits for what is under way and writes its results.
fn duplicates(arrivals: &[Arrival], kills: &[Kill], forgotten: Duration) -> (usize, Vec<String>) {
    let mut copies: HashMap<&str, Vec<&Arrival>> = HashMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.accepted) {
        copies.entry(&arrival.delivery).or_default().push(arrival);
    }
    let (mut count, mut strays) = (0, Vec::new());
    let mut oldest = Duration::ZERO;
    for copy in copies
        .values()
        .flat_map(|copies| &copies[..copies.len() - 1])
    {
        let cause = kills.iter().find(|kill| {
            kill.hard && copy.answered + forgotten >= kill.at && copy.at <= kill.at + SLACK
        });
        match cause {
            Some(kill) => {
                count += 1;
                oldest = oldest.max(kill.at.saturating_duration_since(copy.answered));
            }
            None => {
                let nearest = kills.iter().map(|kill| {
                    let age = kill.at.saturating_duration_since(copy.answered).as_millis();
                    let late = copy.at.saturating_duration_since(kill.at).as_millis();
                    (age + late, age, late, kill.hard)
                });
                strays.push(format!(
                    "duplicate that nothing explains: {copy:?}, {:?}",
                    nearest.min()
                ));
            }
        }
    }
    if count > 0 {
        webhook_outbox_test::say!(
            "the oldest answer that was forgotten had been given {oldest:?} before the crash"
        );
    }
    (count, strays)
}

/// Lost attempts of lives that followed an orderly end: it must leave nothing in doubt.
fn after_orderly_end(lost: &[String], kills: &[Kill]) -> usize {
    lost.iter()
        .filter_map(|at| at.parse::<f64>().ok())
        .filter(|at| {
            let before = kills.iter().rev().find(|kill| {
                let wall = kill.wall.duration_since(UNIX_EPOCH);
                wall.map_or(0.0, |time| time.as_secs_f64()) <= *at
            });
            before.is_some_and(|kill| kill.running && !kill.hard)
        })
        .count()
}

/// From the confirmed commit to the first arrival.
fn latencies(arrivals: &[Arrival], fates: &BTreeMap<String, Fate>) -> String {
    let mut first: HashMap<&str, Instant> = HashMap::new();
    for arrival in arrivals {
        let at = first.entry(&arrival.mark).or_insert(arrival.at);
        *at = arrival.at.min(*at);
    }
    let mut waits: Vec<u128> = fates
        .iter()
        .filter_map(|(mark, fate)| match fate {
            Fate::Committed(at) => Some(
                first
                    .get(mark.as_str())?
                    .saturating_duration_since(*at)
                    .as_millis(),
            ),
            _ => None,
        })
        .collect();
    waits.sort_unstable();
    let at = |share: usize| {
        waits
            .get(waits.len() * share / 100)
            .or(waits.last())
            .copied()
            .unwrap_or(0)
    };
    format!(
        "p50 {}, p99 {}, most {} ({} events)",
        at(50),
        at(99),
        at(100),
        waits.len()
    )
}
