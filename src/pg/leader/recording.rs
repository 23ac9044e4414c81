//! From outcomes to rows: verdicts, parking of what is too slow, and the writing of results.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::pair::Flight;
use super::{Batch, Leader};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{Attempted, Change, Excerpt};
use crate::rules::adaptive::push;
use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::policy::{Next, Try, Verdict, judge};
use crate::rules::redaction::redact;
use crate::wire::job::{Done, Fault};

/// How long after its deadline a request on the wire may still come back: its row in the due table
/// is stamped later than that, so that nobody claims it meanwhile.
const WIRE_MARGIN: Duration = Duration::from_secs(60);

/// How often what is slow is looked for at most.
const SLOW_EVERY: Duration = Duration::from_millis(10);

/// What follows from an outcome.
struct Decision {
    state: &'static str,
    reason: Option<String>,
    next_attempt_at: Option<i64>,
}

impl Leader {
    /// Takes finished requests from the threads.
    pub fn collect(&mut self) {
        let mut done: Vec<Done> = Vec::new();
        let mut returned = Vec::new();
        self.crew.take_done(&mut done, &mut returned);
        for ticket in returned.into_iter().rev() {
            self.came_back(ticket);
        }
        for done in done {
            if self.take_proof(&done) {
                continue;
            }
            if let Some(flight) = self.flights.remove(&done.ticket) {
                self.judge(flight, done.outcome);
            }
        }
        self.relist_touched();
    }

    fn judge(&mut self, flight: Flight, outcome: Outcome) {
        let endpoint = flight.waiting.pair.endpoint;
        // The receiver's own time: what the leader takes for itself says nothing about the endpoint.
        let latency = Duration::from_micros(outcome.latency_us);
        let took = i64::try_from(outcome.latency_us).unwrap_or(i64::MAX);
        self.scheduler.finished(endpoint, took, flight.overdue);
        self.leave(flight.waiting.pair);
        let known = self.configuration.endpoint(endpoint);
        let policy = known.map_or(&self.settings.retry, |known| &known.policy.retry);
        let waiting = &flight.waiting;
        let attempt_count = waiting.attempt_count + 1;
        let series_at = waiting.series_at.unwrap_or(outcome.started_at);
        let elapsed = outcome.started_at.saturating_add(took) - series_at;
        let dice = dice();
        let verdict = judge(
            &outcome.answer,
            Try {
                in_series: u32::try_from(attempt_count - waiting.series_start).unwrap_or(1),
                probe: flight.probe,
                since_first: Duration::from_micros(u64::try_from(elapsed).unwrap_or(0)),
            },
            policy,
            now_micros().div_euclid(1_000_000),
            dice,
        );
        let status = match &outcome.answer {
            Answer::Status { code, .. } => Some(*code),
            Answer::Failure { .. } => None,
        };
        let push = push(
            verdict.category,
            status,
            latency,
            self.settings.first_pass_limit,
        );
        // What an endpoint did at another URL, or before it was paused, says nothing about it now.
        let current = self
            .configuration
            .endpoint(endpoint)
            .is_some_and(|known| known.generation == flight.generation);
        if current {
            self.move_window(endpoint, push, flight.began, verdict.retry_after, dice);
        }
        let counts = waiting.message.counts();
        self.note_outcome(endpoint, flight.generation, &outcome, &verdict, counts);
        let decision = self.decide(&flight, &verdict);
        let counter = if decision.state == "delivered" {
            &self.slot.delivered
        } else {
            &self.slot.failed
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let waiting = flight.waiting;
        if let Some(at) = decision.next_attempt_at {
            self.note_due((endpoint, waiting.message.class), at);
        }
        // A failed probe is an attempt like any other, but takes none away from the schedule.
        let spared = i32::from(flight.probe && decision.state == "retrying");
        if decision.state == "delivered"
            && waiting.message.fault == Some(Fault::Duplicate)
            && attempt_count == 1
        {
            self.outcomes
                .again
                .push((waiting.pair, waiting.message.class));
        }
        self.record(Change {
            reason: decision.reason,
            attempt_count,
            series_start: waiting.series_start + spared,
            series_at: Some(series_at),
            deaths: 0,
            attempt: Some(attempted(
                outcome,
                verdict.category,
                waiting.message.digest,
                &self.settings.redact_keys,
            )),
            next_attempt_at: decision.next_attempt_at,
            ..waiting.change(decision.state)
        });
        self.settle(waiting.batch);
        self.touched.insert(endpoint);
    }

    fn decide(&mut self, flight: &Flight, verdict: &Verdict) -> Decision {
        let ends = |state: &'static str, reason: &str| Decision {
            state,
            reason: Some(reason.to_owned()),
            next_attempt_at: None,
        };
        let faulty = flight
            .waiting
            .message
            .fault
            .is_some_and(|fault| fault != Fault::Duplicate);
        // Nobody waits for it any more: it was settled while it was on the wire.
        match (&flight.settled, verdict.next) {
            (Some(settled), Next::Retry { .. }) => return ends(settled.state, &settled.reason),
            (Some(settled), Next::Dead | Next::Hold) if settled.state == "skipped" => {
                return ends(settled.state, &settled.reason);
            }
            _ => {}
        }
        match verdict.next {
            Next::Delivered => Decision {
                state: "delivered",
                reason: None,
                next_attempt_at: None,
            },
            Next::Retry { .. } if faulty => ends("dead", "a test is not tried again"),
            Next::Retry { after } => {
                let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
                Decision {
                    state: "retrying",
                    reason: None,
                    next_attempt_at: Some(self.stamp(self.clock.now().saturating_add(after))),
                }
            }
            // It was made wrong on purpose: what is answered to that says nothing about the endpoint.
            Next::DeadAndDisable if faulty => ends("dead", "the receiver answered 410 Gone"),
            Next::DeadAndDisable => {
                let reason = "the receiver answered 410 Gone";
                self.disable_now(flight.waiting.pair.endpoint, flight.generation, reason);
                ends("dead", reason)
            }
            Next::Hold | Next::Dead => ends("dead", why_dead(verdict.category)),
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
        // It looks at every request under way, and a round of the loop may be over in a fraction of a millisecond.
        let now = Instant::now();
        let looked = now.saturating_duration_since(self.slow_looked_for);
        if looked < SLOW_EVERY.min(limit / 32) {
            return;
        }
        self.slow_looked_for = now;
        self.take_back_stalled();
        let since = self.clock.now() - i64::try_from(limit.as_micros()).unwrap_or(0);
        let mut touched = HashSet::new();
        for (id, waiting) in self.scheduler.take_older(since) {
            touched.insert(id);
            match waiting.due {
                None => self.park(waiting),
                // Claimed pairs have their row already; they go on waiting in memory.
                Some(_) => self.scheduler.push(
                    waiting.pair.endpoint,
                    waiting.message.class,
                    waiting,
                    self.clock.now(),
                ),
            }
        }
        // What waits decides whether a queue is looked at: without this it would be forgotten.
        for id in touched {
            self.relist(id);
        }
        // One look at the clock for all of them: one for each, in every round, took 10 % of this thread.
        let slow: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flight)| {
                !flight.overdue && now.saturating_duration_since(flight.begun) >= limit
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        if !slow.is_empty() {
            self.park_on_wire(&slow);
        }
    }

    /// Requests that outlast the first pass move to a claim of their own, which lists them, so that
    /// their batch can be closed. First-pass pairs get their delivery and due rows on this occasion.
    pub fn park_on_wire(&mut self, tickets: &[u64]) {
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
}

fn why_dead(category: Option<Category>) -> &'static str {
    match category {
        Some(Category::ClientError | Category::Redirect) => "the receiver refuses the request",
        Some(Category::Expired) => "too old",
        _ => "no attempt is left in the schedule",
    }
}

/// Makes an outcome storable: text that is no UTF-8 or holds NUL must not fail the row, and what looks like a secret
/// is hidden before it is stored.
fn attempted(
    outcome: Outcome,
    category: Option<Category>,
    digest: [u8; 32],
    redact_keys: &[String],
) -> Attempted {
    let (status, phase, detail) = match outcome.answer {
        Answer::Status { code, .. } => (i16::try_from(code).ok(), None, None),
        Answer::Failure { phase, detail, .. } => (None, phase, Some(detail.replace('\0', ""))),
    };
    let excerpt = (!outcome.excerpt.is_empty()).then(|| {
        Excerpt(redact(
            &String::from_utf8_lossy(&outcome.excerpt),
            redact_keys,
        ))
    });
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
