//! From outcomes to rows: verdicts, parking of what is too slow, and the writing of results.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::pair::{Flight, Waiting};
use super::transaction::{Trouble, transaction};
use super::{Batch, Leader};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Attempted, Change, Excerpt, Outcomes};
use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::policy::{Next, judge};
use crate::wire::job::Done;

/// Outcomes written in one transaction at most, give or take one round of the loop.
const FLUSH_ROWS: usize = 500;
/// How long after its deadline a request on the wire may still come back: its row in the due table
/// is stamped later than that, so that nobody claims it meanwhile.
const WIRE_MARGIN: Duration = Duration::from_secs(60);

impl Leader {
    /// Takes finished requests from the threads.
    pub fn collect(&mut self) {
        let mut done: Vec<Done> = Vec::new();
        self.crew.take_done(&mut done);
        for done in done {
            if let Some(flight) = self.flights.remove(&done.ticket) {
                self.judge(flight, done.outcome);
            }
        }
    }

    fn judge(&mut self, flight: Flight, outcome: Outcome) {
        let Flight {
            waiting,
            generation,
            overdue,
            cancelled,
            ..
        } = flight;
        let endpoint = waiting.pair.endpoint;
        // The receiver's own time: what the leader takes for itself says nothing about the endpoint.
        let took = i64::try_from(outcome.latency_us).unwrap_or(i64::MAX);
        self.scheduler.finished(endpoint, took, overdue);
        self.memory.leave(waiting.pair);
        let attempt_count = waiting.attempt_count + 1;
        let in_series = u32::try_from(attempt_count - waiting.series_start).unwrap_or(1);
        let verdict = judge(
            &outcome.answer,
            in_series,
            &self.settings.retry,
            now_micros().div_euclid(1_000_000),
            dice(),
        );
        let (state, reason, next_attempt_at) = match verdict.next {
            Next::Delivered => ("delivered", None, None),
            // Nobody waits for it any more: its queue was cancelled while it was on the wire.
            Next::Retry { .. } if cancelled.is_some() => ("cancelled", cancelled, None),
            Next::Retry { after } => {
                let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
                let at = self.stamp(self.clock.now().saturating_add(after));
                ("retrying", None, Some(at))
            }
            Next::DeadAndDisable => {
                self.outcomes.gone.push((endpoint.0, generation));
                self.disable_now(endpoint, generation);
                (
                    "dead",
                    Some("the receiver answered 410 Gone".to_owned()),
                    None,
                )
            }
            Next::Hold | Next::Dead => ("dead", Some(why_dead(verdict.category).to_owned()), None),
        };
        let counter = if state == "delivered" {
            &self.slot.delivered
        } else {
            &self.slot.failed
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(at) = next_attempt_at {
            self.note_due((endpoint, waiting.message.class), at);
        }
        self.record(Change {
            reason,
            attempt_count,
            attempt: Some(attempted(outcome, verdict.category, waiting.message.digest)),
            next_attempt_at,
            ..waiting.change(state)
        });
        self.settle(waiting.batch);
    }

    /// A finding counts for the generation it was made under: an old 410 cannot undo a new `enable`.
    fn disable_now(&mut self, id: crate::rules::ids::EndpointId, generation: i64) {
        let current = self
            .configuration
            .endpoint(id)
            .is_some_and(|endpoint| endpoint.generation == generation);
        if current {
            self.configuration
                .disable(id, "the receiver answered 410 Gone");
            self.follow_standing(vec![id]);
        }
    }

    /// Takes a change among the outcomes, to be written before long.
    pub fn record(&mut self, change: Change) {
        self.outcomes.changes.push(change);
        self.unwritten_since.get_or_insert_with(Instant::now);
    }

    /// One pair of a batch has its row among the outcomes; the last one closes the batch with them.
    pub fn settle(&mut self, batch: i64) {
        let Some(open) = self.batches.get_mut(&batch) else {
            return;
        };
        open.left = open.left.saturating_sub(1);
        if open.left == 0 {
            self.batches.remove(&batch);
            self.outcomes.closed.push(batch);
            self.unwritten_since.get_or_insert_with(Instant::now);
        }
    }

    /// Parks what did not get its turn within the first pass, and lets batches go whose requests are
    /// still on the wire.
    pub fn park_slow(&mut self) {
        let limit = self.settings.first_pass_limit;
        let since = self.clock.now() - i64::try_from(limit.as_micros()).unwrap_or(0);
        for (_, waiting) in self.scheduler.take_older(since) {
            match waiting.due {
                None => self.park(waiting),
                // Claimed pairs have their row already; they go on waiting in memory.
                Some(_) => self.wait_on(waiting),
            }
        }
        let slow: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flight)| !flight.overdue && flight.begun.elapsed() >= limit)
            .map(|(ticket, _)| *ticket)
            .collect();
        if !slow.is_empty() {
            self.park_on_wire(&slow);
        }
    }

    fn wait_on(&mut self, waiting: Waiting) {
        let Some(endpoint) = self.configuration.endpoint(waiting.pair.endpoint) else {
            return;
        };
        let (partner, cap) = (endpoint.partner_id.clone(), endpoint.cap);
        let id = waiting.pair.endpoint;
        self.scheduler
            .push(id, &partner, cap, waiting, self.clock.now());
    }

    /// Requests that outlast the first pass move to a claim of their own, which lists them, so that
    /// their batch can be closed. First-pass pairs get their delivery and due rows on this occasion.
    fn park_on_wire(&mut self, tickets: &[u64]) {
        let patience = self.settings.request_timeout + WIRE_MARGIN;
        let at = self
            .stamp(self.clock.now() + i64::try_from(patience.as_micros()).unwrap_or(i64::MAX / 2));
        let batch = self.last_batch + 1;
        let mut listed = Vec::new();
        let mut left = 0;
        for ticket in tickets {
            let Some(flight) = self.flights.get_mut(ticket) else {
                continue;
            };
            flight.overdue = true;
            self.scheduler.outlasted(flight.waiting.pair.endpoint);
            let waiting = &mut flight.waiting;
            let old = std::mem::replace(&mut waiting.batch, batch);
            listed.push((waiting.pair, waiting.attempt_count + 1));
            left += 1;
            self.memory.outlasted(waiting.pair);
            if waiting.due.is_none() {
                waiting.due = Some(at);
                self.outcomes.changes.push(Change {
                    next_attempt_at: Some(at),
                    due: None,
                    on_wire: true,
                    ..waiting.change("pending")
                });
                let queue = (waiting.pair.endpoint, waiting.message.class);
                self.note_due(queue, at);
            }
            self.settle(old);
        }
        self.last_batch = batch;
        self.batches.insert(
            batch,
            Batch {
                n: self.last_n + 1,
                left,
            },
        );
        self.outcomes.claims.push((batch, listed));
        self.unwritten_since.get_or_insert_with(Instant::now);
    }

    /// Writes outcomes when there are many or the oldest has waited long enough.
    pub fn write_if_due(&mut self) -> Result<(), Trouble> {
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
        let trouble = match self.write_once(&outcomes) {
            Ok(()) => return Ok(()),
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
            let n = self.batches.get(&batch).map_or(0, |open| open.n);
            self.stuck.insert(batch, n);
        }
        let mut rest = Outcomes {
            changes: Vec::new(),
            ..outcomes
        };
        rest.closed.retain(|batch| !self.stuck.contains_key(batch));
        self.write_once(&rest).map_err(|trouble| {
            // Half of it is written: a new life tells what is not.
            Trouble::Lasting(trouble.text().to_owned())
        })
    }

    fn write_once(&mut self, outcomes: &Outcomes) -> Result<(), Trouble> {
        let (incarnation, n) = (self.incarnation, self.last_n);
        self.last_n = transaction(
            self.owner,
            false,
            c"webhook leader: writing results",
            || {
                if outbox::highest_incarnation() != incarnation {
                    error!("another webhook leader has taken over");
                }
                outbox::record(outcomes, incarnation, n)
            },
        )?;
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
        match self.write_once(&outcomes) {
            Ok(()) => Ok(()),
            // Some of the rows are written and some are not: a new life tells them apart.
            Err(Trouble::Passing(text)) => Err(Trouble::Lasting(text)),
            Err(trouble) => {
                if let [change] = changes {
                    failed.insert(change.batch);
                    self.slot.set_error(trouble.text());
                    warning!(
                        "webhook leader could not record delivery {}: {}",
                        change.pair,
                        trouble.text()
                    );
                    return Ok(());
                }
                let (left, right) = changes.split_at(changes.len() / 2);
                self.write_in_halves(left, failed)?;
                self.write_in_halves(right, failed)
            }
        }
    }

    /// Ends this life in order: requests under way get their grace, what waits is parked, what is
    /// still on the wire is listed, so that the next life knows it may have been sent.
    pub fn finish(&mut self) {
        let deadline = Instant::now() + self.settings.shutdown_grace;
        let longest = deadline + Duration::from_secs(1);
        let last = i64::MAX;
        for (_, waiting) in self.scheduler.take_older(last) {
            if waiting.due.is_none() {
                self.park(waiting);
            } else {
                self.settle(waiting.batch);
            }
        }
        while !self.flights.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            self.collect();
            // A crash may still come; what fails now is tried again below.
            let _ = self.write_if_due();
        }
        let on_wire: Vec<u64> = self.flights.keys().copied().collect();
        if !on_wire.is_empty() {
            self.park_on_wire(&on_wire);
        }
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

fn why_dead(category: Option<Category>) -> &'static str {
    match category {
        Some(Category::ClientError | Category::Redirect) => "the receiver refuses the request",
        Some(Category::Expired) => "too old",
        _ => "no attempt is left in the schedule",
    }
}

/// Makes an outcome storable: text that is no UTF-8 or holds NUL must not fail the row.
fn attempted(outcome: Outcome, category: Option<Category>, digest: [u8; 32]) -> Attempted {
    let (status, phase, detail) = match outcome.answer {
        Answer::Status { code, .. } => (i16::try_from(code).ok(), None, None),
        Answer::Failure { phase, detail, .. } => (None, phase, Some(detail.replace('\0', ""))),
    };
    let excerpt = (!outcome.excerpt.is_empty())
        .then(|| Excerpt(String::from_utf8_lossy(&outcome.excerpt).replace('\0', "\u{fffd}")));
    Attempted {
        started_at: outcome.started_at,
        latency_ms: Some(i32::try_from(outcome.latency_us / 1000).unwrap_or(i32::MAX)),
        status,
        category,
        phase,
        detail,
        key_ids: outcome.key_ids,
        body_sha256: Some(digest),
        response_bytes: i64::try_from(outcome.response_bytes).unwrap_or(i64::MAX),
        excerpt,
    }
}

/// A number in [0, 1): jitter needs no more than the bits of a fresh hash key.
fn dice() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    #[allow(clippy::cast_precision_loss)]
    let value = (random >> 11) as f64 / (1_u64 << 53) as f64;
    value
}
