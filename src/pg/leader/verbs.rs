//! What users ask of single deliveries, and of everything at once: retry, skip, close, pause, resume.

use std::collections::HashMap;

use super::Leader;
use super::configuration::Standing;
use super::pair::Settled;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Request, hold};
use crate::rules::ids::Pair;

impl Leader {
    /// A new series for each of the pairs named, at once and out of order.
    pub fn retry_pairs(&mut self, request: &Request) -> Result<(), Trouble> {
        let (known, due) = transaction(
            self.owner,
            true,
            c"webhook leader: reading deliveries",
            || {
                (
                    outbox::known_pairs(&request.pairs),
                    outbox::due_rows(&request.pairs),
                )
            },
        )?;
        let mut series = Vec::new();
        let mut left_out = Tally::default();
        let (mut out_of_order, mut in_line) = (0, 0);
        for pair in &request.pairs {
            let Some(state) = known.get(pair).map(|known| known.state.as_str()) else {
                left_out.add("gone");
                continue;
            };
            if self.memory.contains(*pair) {
                left_out.add("being sent already");
                continue;
            }
            if state == "delivered" {
                left_out.add("delivered meanwhile");
                continue;
            }
            match self.standing(pair.endpoint) {
                None | Some(Standing::Closed) => {
                    left_out.add("left out because the endpoint is closed");
                    continue;
                }
                Some(_) => {}
            }
            let row = due.get(pair);
            let ordered = self
                .configuration
                .endpoint(pair.endpoint)
                .is_some_and(|endpoint| endpoint.ordered);
            if row.is_some_and(|row| row.hold & hold::ORDER != 0) {
                in_line += 1;
            } else if row.is_none() && ordered {
                out_of_order += 1;
            }
            series.push((*pair, row.map_or(1, |row| row.class)));
        }
        let at = self.stamp(self.clock.now());
        let incarnation = self.incarnation;
        let mut result = format!("{} to be sent again", series.len());
        if out_of_order > 0 {
            result.push_str(&format!(", {out_of_order} of them out of order"));
        }
        if in_line > 0 {
            result.push_str(&format!(", {in_line} of them after the event before them"));
        }
        left_out.append_to(&mut result);
        transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || {
                if !series.is_empty() {
                    outbox::new_series(&series, at, incarnation);
                }
                outbox::finish_request(request.id, "done", series.len(), &result);
            },
        )?;
        for (pair, class) in &series {
            self.cursors.remove(&(pair.endpoint, *class));
            self.note_due((pair.endpoint, *class), at);
        }
        Ok(())
    }

    /// Pairs that are to be skipped or closed. One in memory is settled when it comes out of there, and the
    /// request waits for that: should this life end before, the next one carries it out. Says whether another
    /// request is to be looked at again.
    pub fn settle_pairs(&mut self, request: &Request) -> Result<bool, Trouble> {
        let (state, from): (&'static str, &[&str]) = if request.verb == "skip" {
            ("skipped", &["pending", "retrying", "dead"])
        } else {
            ("closed", &["dead", "cancelled", "skipped"])
        };
        let reason = request.reason.clone().unwrap_or_default();
        let known = transaction(
            self.owner,
            true,
            c"webhook leader: reading deliveries",
            || outbox::known_pairs(&request.pairs),
        )?;
        let mut now = Vec::new();
        let (mut later, mut earlier) = (0, 0);
        let mut look_again = false;
        let mut left_out = Tally::default();
        for pair in &request.pairs {
            if state == "skipped" && self.memory.contains(*pair) {
                self.settle_in_memory(*pair, state, &reason);
                // Another request that waited for it has had its word, and waits for one less.
                if let Some(other) = self.awaited.insert(*pair, request.id)
                    && other != request.id
                {
                    look_again |= self.awaits_one_less(other);
                }
                later += 1;
                continue;
            }
            // Settled by this very request, when it came out of memory.
            let settled = known.get(pair).is_some_and(|known| {
                known.state == state && known.reason.as_deref() == Some(reason.as_str())
            });
            if settled && state == "skipped" {
                earlier += 1;
                continue;
            }
            match known.get(pair).map(|known| known.state.as_str()) {
                Some(found) if from.contains(&found) => now.push(*pair),
                Some(found) => left_out.add_state(found),
                None => left_out.add("gone"),
            }
        }
        let at = self.stamp(self.clock.now());
        let count = now.len() + earlier;
        let mut result = format!("{count} {state}");
        left_out.append_to(&mut result);
        let released = transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || {
                let subjects = outbox::settle_pairs(&now, state, &reason, from);
                let released = outbox::release_subjects(&subjects, at);
                if later == 0 {
                    outbox::finish_request(request.id, "done", count, &result);
                }
                released
            },
        )?;
        if later > 0 {
            self.settling.insert(request.id, later);
        }
        self.note_released(&released);
        Ok(look_again)
    }

    /// A pair came out of memory that a request waits for; says whether it was the last one.
    pub fn awaits_one_less(&mut self, request: i64) -> bool {
        let Some(left) = self.settling.get_mut(&request) else {
            return false;
        };
        *left = left.saturating_sub(1);
        let last = *left == 0;
        if last {
            self.settling.remove(&request);
        }
        last
    }

    pub fn settle_in_memory(&mut self, pair: Pair, state: &'static str, reason: &str) {
        let settled = Settled {
            state,
            reason: reason.to_owned(),
        };
        match self
            .flights
            .values_mut()
            .find(|flight| flight.waiting.pair == pair)
        {
            Some(flight) => flight.settled = Some(settled),
            None => {
                self.settled.insert(pair, settled);
            }
        }
    }

    /// What was set is in force: nothing new starts any more, or again.
    pub fn confirm(&mut self, request: &Request) -> Result<(), Trouble> {
        let result = if request.verb == "pause" {
            let on_wire = self
                .flights
                .values()
                .filter(|flight| {
                    self.concerns(request, flight.waiting.pair, &flight.waiting.message.kind)
                })
                .count();
            format!("nothing more is sent from now on, {on_wire} on the wire")
        } else {
            "sent again from now on".to_owned()
        };
        self.finish_request(request.id, "done", 0, &result)
    }

    fn concerns(&self, request: &Request, pair: Pair, kind: &str) -> bool {
        let target = request.target.as_deref().unwrap_or_default();
        match request.scope.as_deref() {
            Some("partner") => self
                .configuration
                .endpoint(pair.endpoint)
                .is_some_and(|endpoint| endpoint.partner_id == target),
            Some("event_type") => kind == target,
            Some("endpoint") => pair.endpoint.0.to_string() == target,
            _ => true,
        }
    }

    pub fn finish_request(
        &mut self,
        id: i64,
        state: &str,
        count: usize,
        result: &str,
    ) -> Result<(), Trouble> {
        transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || outbox::finish_request(id, state, count, result),
        )
    }
}

/// Counts of what a request did not reach, and why.
#[derive(Default)]
struct Tally(HashMap<String, usize>);

impl Tally {
    fn add(&mut self, why: &str) {
        *self.0.entry(why.to_owned()).or_default() += 1;
    }

    fn add_state(&mut self, state: &str) {
        self.add(&format!("left as {state}"));
    }

    fn append_to(self, text: &mut String) {
        let mut parts: Vec<(String, usize)> = self.0.into_iter().collect();
        parts.sort();
        for (why, count) in parts {
            text.push_str(&format!(", {count} {why}"));
        }
    }
}
