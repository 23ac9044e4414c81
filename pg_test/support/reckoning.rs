//! Holds sessions, tables and receiver against each other when all is over. The table of events is the truth about
//! commits whose answer was lost; the receiver is the truth about what was sent.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::{
    explanation::Explanation,
    invariants::{ALWAYS, AT_REST, NEVER_REPLAYED, SETTLED, violations},
    kills::Kill,
    outbox::Outbox,
    scene::{CATCH_UP, Event, Scene},
    storm::Fate,
    witness::Arrival,
};

/// What was counted and found.
pub struct Report {
    /// Every committed event.
    pub events: Vec<Event>,
    /// Every request.
    pub arrivals: Vec<Arrival>,
    /// Accepted requests that were repeated.
    pub duplicates: usize,
    /// Attempts recorded as lost.
    pub lost_attempts: usize,
    /// What should not be.
    pub wrong: Vec<String>,
}

impl Report {
    /// Fails with the first findings, if there are any.
    ///
    /// # Panics
    /// When there are.
    pub fn assert_right(&self) {
        let first: Vec<&String> = self.wrong.iter().take(20).collect();
        assert!(
            first.is_empty(),
            "{} findings: {first:#?}",
            self.wrong.len()
        );
    }
}

/// A row of `webhook.deliveries`.
struct Row {
    state: String,
    attempts: String,
}

impl Scene {
    /// Waits until all is settled, checks everything, and prints the counts. Everything must be delivered, but for
    /// what is `excused`: that may be skipped, cancelled or closed as well.
    pub fn reckon(
        &self,
        fates: &BTreeMap<String, Fate>,
        kills: &[Kill],
        excused: &BTreeSet<String>,
    ) -> Report {
        let events = self.events();
        let expected = self.expected(&events);
        let states = if excused.is_empty() {
            "'delivered'"
        } else {
            "'delivered', 'skipped', 'cancelled', 'closed'"
        };
        self.wait_until_at_rest(&expected, states, CATCH_UP);
        let mut wrong = told_otherwise(&events, fates);
        let arrivals = self.arrivals.all();
        let mut session = self.session();
        let rows = rows(&mut session);
        wrong.extend(wrong_rows(&rows, &expected, excused, &arrivals));
        let missed = missed(&rows, &expected, excused, &arrivals);
        let invented = invented(&expected, &arrivals);
        wrong.extend(changed_bodies(&arrivals));
        wrong.extend(unwitnessed(&mut session, &arrivals));
        let explanation = Explanation::new(kills, self.flush);
        let (duplicates, strays) = explanation.duplicates(&arrivals);
        wrong.extend(explanation.numbers_used_again(&arrivals));
        for invariants in [ALWAYS, SETTLED, AT_REST, NEVER_REPLAYED] {
            wrong.extend(violations(&mut session.sql, invariants));
        }
        let lost: Vec<f64> = session
            .column("select extract(epoch from started_at) from webhook.attempts where error_category = 'lost'")
            .iter()
            .filter_map(|at| at.parse().ok())
            .collect();
        let in_order = explanation.lost_in_order(&lost);
        if in_order > 0 {
            wrong.push(format!("{in_order} attempts lost by an orderly end"));
        }
        let retried =
            session.number("select count(*) from webhook._delivery where attempt_count > 1");
        let lives = session.text("select incarnation from webhook.stat_worker");
        let hard = kills.iter().filter(|kill| kill.hard).count();
        crate::say!(
            "leader ended {} times ({hard} by a crash, {} in order, {} while it took up what was left), incarnation {lives}; \
             events: {} emitted, {} committed; deliveries: {} due, {} accepted, {} missed, {} invented; {} requests; \
             duplicates: {duplicates} after a crash, {} others; more than one attempt: {retried}; lost attempts: {}",
            kills.len(),
            kills.len() - hard,
            kills.iter().filter(|kill| !kill.running).count(),
            fates.len(),
            events.len(),
            expected.len(),
            self.arrivals.accepted(),
            missed.len(),
            invented.len(),
            arrivals.len(),
            strays.len(),
            lost.len(),
        );
        crate::say!(
            "commit to arrival, milliseconds: {}",
            latencies(&arrivals, fates)
        );
        // What is lost comes first.
        let wrong = [missed, invented, strays, wrong].concat();
        Report {
            events,
            arrivals,
            duplicates,
            lost_attempts: lost.len(),
            wrong,
        }
    }
}

/// Every delivery row; a second one of a pair would be found by the invariants.
fn rows(session: &mut Outbox) -> HashMap<String, Row> {
    let rows = session.rows(
        "select webhook._delivery_id(event_id, endpoint_id), state, attempt_count from webhook._delivery",
    );
    rows.into_iter()
        .map(|row| {
            let value = |column: usize| row[column].clone().unwrap_or_default();
            let (state, attempts) = (value(1), value(2));
            (value(0), Row { state, attempts })
        })
        .collect()
}

/// Delivery rows that are not those expected, or do not show the last request that arrived.
fn wrong_rows(
    rows: &HashMap<String, Row>,
    expected: &BTreeMap<String, &'static str>,
    excused: &BTreeSet<String>,
    arrivals: &[Arrival],
) -> Vec<String> {
    let mut last: HashMap<&str, i32> = HashMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.accepted()) {
        last.insert(&arrival.delivery, arrival.attempt);
    }
    let mut wrong = Vec::new();
    for (id, Row { state, attempts }) in rows {
        if !expected.contains_key(id) {
            wrong.push(format!("row {id} is of no event that matches"));
        }
        if state != "delivered" {
            if !excused.contains(id) {
                wrong.push(format!("row {id} is {state} after {attempts} attempts"));
            }
            continue;
        }
        let seen = last
            .get(id.as_str())
            .map(i32::to_string)
            .unwrap_or_default();
        if seen != *attempts {
            wrong.push(format!(
                "row {id} has {attempts} attempts, the last request that was accepted is number {seen}"
            ));
        }
    }
    let without = expected.keys().filter(|id| !rows.contains_key(*id));
    wrong.extend(without.map(|id| format!("no row {id}")));
    wrong
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

/// Deliveries that no receiver has accepted, and that nobody gave up.
fn missed(
    rows: &HashMap<String, Row>,
    expected: &BTreeMap<String, &'static str>,
    excused: &BTreeSet<String>,
    arrivals: &[Arrival],
) -> Vec<String> {
    let accepted: HashSet<&str> = arrivals
        .iter()
        .filter(|arrival| arrival.accepted())
        .map(|arrival| arrival.delivery.as_str())
        .collect();
    let given_up = |id: &String| {
        excused.contains(id) && rows.get(id).is_some_and(|row| row.state != "delivered")
    };
    expected
        .keys()
        .filter(|id| !accepted.contains(id.as_str()) && !given_up(id))
        .map(|id| format!("missed {id}"))
        .collect()
}

/// Requests that no event and endpoint account for.
fn invented(expected: &BTreeMap<String, &'static str>, arrivals: &[Arrival]) -> Vec<String> {
    arrivals
        .iter()
        .filter(|arrival| {
            let path = expected.get(&arrival.delivery);
            let own = arrival.delivery.get(4..30) == arrival.event.get(4..);
            path != Some(&arrival.path.as_str()) || !own
        })
        .map(|arrival| format!("invented {arrival:?}"))
        .collect()
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

/// Attempts that claim an answer which the receiver has not given to a request of that number.
fn unwitnessed(session: &mut Outbox, arrivals: &[Arrival]) -> Vec<String> {
    let given: HashSet<(&str, String, String)> = arrivals
        .iter()
        .filter_map(|arrival| {
            let status = arrival.status?.to_string();
            Some((
                arrival.delivery.as_str(),
                arrival.attempt.to_string(),
                status,
            ))
        })
        .collect();
    let claimed = session.rows(
        "select delivery_id, attempt_no, status from webhook.attempts where status is not null",
    );
    claimed
        .into_iter()
        .filter_map(|row| {
            let value = |column: usize| row[column].clone().unwrap_or_default();
            let (id, number, status) = (value(0), value(1), value(2));
            let known = given.contains(&(id.as_str(), number.clone(), status.clone()));
            (!known).then(|| {
                format!("attempt {number} of {id} was answered {status}, says the table alone")
            })
        })
        .collect()
}

/// From the confirmed commit to the first arrival.
fn latencies(arrivals: &[Arrival], fates: &BTreeMap<String, Fate>) -> String {
    let mut first: HashMap<&str, Instant> = HashMap::new();
    for arrival in arrivals {
        let at = first.entry(&arrival.mark).or_insert(arrival.at);
        *at = arrival.at.min(*at);
    }
    let mut waits: Vec<Duration> = fates
        .iter()
        .filter_map(|(mark, fate)| match fate {
            Fate::Committed(at) => Some(first.get(mark.as_str())?.saturating_duration_since(*at)),
            _ => None,
        })
        .collect();
    waits.sort_unstable();
    let at = |share: usize| {
        let wait = waits.get(waits.len() * share / 100).or(waits.last());
        wait.map_or(0, Duration::as_millis)
    };
    format!(
        "p50 {}, p99 {}, most {} ({} events)",
        at(50),
        at(99),
        at(100),
        waits.len()
    )
}
