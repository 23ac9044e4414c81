//! Writing results: one transaction for a few hundred of them, and what becomes of those that cannot be
//! stored.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::Leader;
use super::recovery::ORDERLY;
use super::telling::raise;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Change, Outcomes};

/// Outcomes written in one transaction at most, give or take one round of the loop.
const FLUSH_ROWS: usize = 500;

impl Leader {
    /// Writes outcomes when there are many or the oldest has waited long enough.
    pub fn write_if_due(&mut self) -> Result<(), Trouble> {
        self.collect_conditions(false);
        let Some(since) = self.unwritten_since else {
            return Ok(());
        };
        if self.outcomes.changes.len() < FLUSH_ROWS
            && since.elapsed() < self.settings.result_flush_interval
        {
            return Ok(());
        }
        self.write()
    }

    /// Writes all outcomes in one transaction. After passing trouble they wait for the next try; when
    /// they cannot be stored they are written in halves, so that one row that cannot be stored keeps
    /// no other one from being stored.
    pub fn write(&mut self) -> Result<(), Trouble> {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes
            .closed
            .retain(|batch| !self.stuck.contains_key(batch));
        self.unwritten_since = None;
        // Nearly always no pair has a row yet, and it is far cheaper not to look for one first.
        let written = match self.write_once(&outcomes, true) {
            Err(Trouble::Lasting(_)) => self.write_once(&outcomes, false),
            other => other,
        };
        let trouble = match written {
            Ok(()) => {
                self.keep_room(outcomes.changes);
                return Ok(());
            }
            Err(trouble @ Trouble::Passing(_)) => {
                self.outcomes = outcomes;
                self.unwritten_since = Some(Instant::now());
                return Err(trouble);
            }
            Err(trouble) => trouble,
        };
        if !self.same_life() {
            return Err(trouble);
        }
        self.slot.set_error(trouble.text());
        let mut failed = HashSet::new();
        self.write_in_halves(&outcomes.changes, &mut failed)?;
        // Batches of rows that could not be stored stay open, and in the ledger: the next life takes
        // them up again.
        for batch in failed {
            if batch != 0 {
                let n = self.batches.get(&batch).map_or(0, |open| open.n);
                self.stuck.insert(batch, n);
            }
        }
        let mut rest = Outcomes {
            changes: Vec::new(),
            ..outcomes
        };
        rest.closed.retain(|batch| !self.stuck.contains_key(batch));
        // What was found out about rows that could not be stored goes along.
        rest.alerts.append(&mut self.outcomes.alerts);
        self.write_once(&rest, false).map_err(|trouble| {
            // Half of it is written: a new life tells what is not.
            Trouble::Lasting(trouble.text().to_owned())
        })
    }

    /// The next outcomes take the room of those that are written.
    fn keep_room(&mut self, mut changes: Vec<Change>) {
        if self.outcomes.changes.is_empty() && changes.capacity() <= 4 * FLUSH_ROWS {
            changes.clear();
            self.outcomes.changes = changes;
        }
    }

    fn write_once(&mut self, outcomes: &Outcomes, all_new: bool) -> Result<(), Trouble> {
        let (incarnation, n) = (self.incarnation, self.last_n);
        let at = self.stamp(self.clock.now());
        // In the middle of a window the first event of a subject may still be unread.
        let turns = Some(&self.turns);
        let recorded = transaction(
            self.owner,
            false,
            c"webhook leader: writing results",
            || {
                if outbox::highest_incarnation() != incarnation {
                    error!("another webhook leader has taken over");
                }
                let recorded = outbox::record(outcomes, incarnation, n, at, all_new, |subject| {
                    turns.is_some_and(|turns| turns.knows(subject))
                });
                raise(&outcomes.alerts);
                recorded
            },
        )?;
        self.last_n = recorded.n;
        self.slot.counters.written(outcomes, now_micros());
        self.note_released(&recorded.released);
        for (pair, class) in &outcomes.again {
            self.note_due((pair.endpoint, *class), at);
        }
        if !outcomes.alerts.is_empty() {
            self.notifying.soon();
            // Lifecycle events were emitted.
            self.look_soon = true;
        }
        Ok(())
    }

    /// Whether this is still the extension, and the newest life of its leader.
    fn same_life(&self) -> bool {
        let incarnation = self.incarnation;
        let expected = (self.extension, crate::pg::VERSION.to_owned());
        transaction(
            self.owner,
            false,
            c"webhook leader: checking its life",
            || {
                outbox::installed() == Some(expected)
                    && outbox::highest_incarnation() == incarnation
            },
        )
        .unwrap_or(false)
    }

    fn write_in_halves(
        &mut self,
        changes: &[Change],
        failed: &mut HashSet<i64>,
    ) -> Result<(), Trouble> {
        if changes.is_empty() {
            return Ok(());
        }
        let outcomes = Outcomes {
            changes: changes.to_vec(),
            ..Outcomes::default()
        };
        match self.write_once(&outcomes, false) {
            Ok(()) => Ok(()),
            // Some of the rows are written and some are not: a new life tells them apart.
            Err(Trouble::Passing(text)) => Err(Trouble::Lasting(text)),
            Err(trouble) => {
                if let [change] = changes {
                    return self.write_what_can_be(change, &trouble, failed);
                }
                let (left, right) = changes.split_at(changes.len() / 2);
                self.write_in_halves(left, failed)?;
                self.write_in_halves(right, failed)
            }
        }
    }

    /// A result that cannot be stored is stored without what the receiver may have put into it; if even
    /// that fails, it stays in doubt, in the ledger, for the next life.
    fn write_what_can_be(
        &mut self,
        change: &Change,
        trouble: &Trouble,
        failed: &mut HashSet<i64>,
    ) -> Result<(), Trouble> {
        self.slot.set_error(trouble.text());
        warning!(
            "webhook leader could not record delivery {}: {}",
            change.pair,
            trouble.text()
        );
        let mut bare = change.clone();
        if let Some(attempt) = &mut bare.attempt {
            attempt.excerpt = None;
            attempt.detail = None;
            let outcomes = Outcomes {
                changes: vec![bare],
                ..Outcomes::default()
            };
            match self.write_once(&outcomes, false) {
                Ok(()) => {
                    self.tell_unrecorded(
                        change.pair,
                        "the attempt was recorded without what the receiver answered, which could not be stored",
                    );
                    return Ok(());
                }
                Err(Trouble::Passing(text)) => return Err(Trouble::Lasting(text)),
                Err(_) => {}
            }
        }
        failed.insert(change.batch);
        self.tell_unrecorded(
            change.pair,
            "its result could not be stored, see stat_worker and the server log; the next life of the leader sends it again",
        );
        Ok(())
    }

    /// Parks everything that waits.
    fn park_all(&mut self) {
        for (_, waiting) in self.scheduler.take_older(i64::MAX) {
            if waiting.due.is_none() {
                self.park(waiting);
            } else if let Some(waiting) = self.not_settled(waiting) {
                self.settle(waiting.batch);
            }
        }
    }

    /// Ends this life in order: requests under way get their grace, what waits is parked, what is
    /// still on the wire is listed, so that the next life knows it may have been sent.
    pub fn finish(&mut self) {
        let deadline = Instant::now() + self.settings.shutdown_grace;
        let longest = deadline + Duration::from_secs(1);
        self.take_back();
        self.collect_conditions(true);
        self.park_all();
        while !self.flights.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            self.collect();
            // A crash may still come; what fails now is tried again below.
            let _ = self.write_if_due();
        }
        // Some may have come back without having begun.
        self.park_all();
        // Should it fail, the next life sends another challenge.
        let _ = self.write_proofs();
        let on_wire: Vec<u64> = self.flights.keys().copied().collect();
        if !on_wire.is_empty() {
            self.park_on_wire(&on_wire);
        }
        self.collect_conditions(true);
        // The mark of an end in order: what is on the wire is in doubt, but ended nobody.
        self.outcomes.closed.push(ORDERLY);
        self.unwritten_since.get_or_insert_with(Instant::now);
        while self.unwritten_since.is_some() {
            match self.write() {
                Ok(()) => {}
                // A lock, or one more signal that cancelled the statement.
                Err(Trouble::Passing(_)) if Instant::now() < longest => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(trouble) => {
                    warning!(
                        "webhook leader could not record its last results: {}",
                        trouble.text()
                    );
                    return;
                }
            }
        }
    }
}
