//! What the end of a leader explains: requests that were made twice, and attempts of which nobody knows what became.
//! A crash of the server explains what was under way or answered shortly before it. An orderly end explains nothing:
//! it waits for what is under way and writes its results.

use std::{
    collections::HashMap,
    time::{Duration, UNIX_EPOCH},
};

use crate::{kills::Kill, witness::Arrival};

/// Results and claims commit asynchronously: a crash of the server takes back at most three rounds of its WAL writer
/// (0.2 s each), beside the results that the leader had not written yet.
const UNFLUSHED: Duration = Duration::from_millis(600);
/// What a busy machine may add between an arrival and its recording.
const SLACK: Duration = Duration::from_secs(1);

/// What the kills of a run explain.
pub struct Explanation<'a> {
    kills: &'a [Kill],
    /// Whatever was answered so long before a crash may be forgotten.
    forgotten: Duration,
}

impl<'a> Explanation<'a> {
    /// With results that are written once per `flush`.
    pub fn new(kills: &'a [Kill], flush: Duration) -> Explanation<'a> {
        Explanation {
            kills,
            forgotten: UNFLUSHED + flush + SLACK,
        }
    }

    /// The crash that may have taken back what the leader knew of a request.
    fn of(&self, request: &Arrival) -> Option<&Kill> {
        self.kills.iter().find(|kill| {
            kill.hard
                && request.answered + self.forgotten >= kill.at
                && request.at <= kill.gone + SLACK
        })
    }

    /// For a finding: the kill that is nearest.
    fn nearest(&self, request: &Arrival) -> String {
        let nearest = self.kills.iter().map(|kill| {
            let before = kill.at.saturating_duration_since(request.answered);
            let after = request.at.saturating_duration_since(kill.at);
            (before + after, before, after, kill.hard)
        });
        format!("{:?}", nearest.min())
    }

    /// Accepted requests that were not the last accepted ones of their delivery: how many, and those that nothing
    /// explains.
    pub fn duplicates(&self, arrivals: &[Arrival]) -> (usize, Vec<String>) {
        let mut copies: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for arrival in arrivals.iter().filter(|arrival| arrival.accepted()) {
            copies.entry(&arrival.delivery).or_default().push(arrival);
        }
        let (mut count, mut strays) = (0, Vec::new());
        let mut oldest = Duration::ZERO;
        for copy in copies
            .values()
            .flat_map(|copies| &copies[..copies.len() - 1])
        {
            match self.of(copy) {
                Some(kill) => {
                    count += 1;
                    oldest = oldest.max(kill.at.saturating_duration_since(copy.answered));
                }
                None => strays.push(format!(
                    "duplicate that nothing explains: {copy:?}, {}",
                    self.nearest(copy)
                )),
            }
        }
        if count > 0 {
            crate::say!(
                "the oldest answer that was forgotten had been given {oldest:?} before the crash"
            );
        }
        (count, strays)
    }

    /// Requests of a delivery whose number is not higher than that of the request before, although nothing explains
    /// that that one was forgotten. A connection that dies before the first byte of an answer is taken for one that
    /// the receiver had closed while it was idle: then the same request is made a second time, and no third time.
    pub fn numbers_used_again(&self, arrivals: &[Arrival]) -> Vec<String> {
        let mut before: HashMap<&str, (&Arrival, bool)> = HashMap::new();
        let mut wrong = Vec::new();
        for arrival in arrivals {
            let Some((earlier, second)) = before.get(arrival.delivery.as_str()).copied() else {
                before.insert(&arrival.delivery, (arrival, false));
                continue;
            };
            let same = arrival.attempt == earlier.attempt;
            let stale = same && earlier.status.is_none() && !second;
            before.insert(&arrival.delivery, (arrival, stale));
            if arrival.attempt <= earlier.attempt && !stale && self.of(earlier).is_none() {
                wrong.push(format!(
                    "number used again: {earlier:?}, then {arrival:?}, {}",
                    self.nearest(earlier)
                ));
            }
        }
        wrong
    }

    /// Attempts lost by lives that ended in order, of all that were found lost at these seconds since 1970.
    pub fn lost_in_order(&self, found: &[f64]) -> usize {
        let after_order = |at: &&f64| {
            let before = self.kills.iter().rev().find(|kill| {
                let wall = kill.wall.duration_since(UNIX_EPOCH);
                wall.map_or(0.0, |time| time.as_secs_f64()) <= **at
            });
            before.is_some_and(|kill| kill.running && !kill.hard)
        };
        found.iter().filter(after_order).count()
    }
}
