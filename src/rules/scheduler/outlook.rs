//! What the scheduler says of itself: how much waits and runs, what an endpoint has room for, and how long
//! things will take.
//!
//! Changes nothing.

use super::Scheduler;
use super::line::finishes;
use crate::rules::ids::EndpointId;

impl<T> Scheduler<T> {
    /// Pairs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Pairs of an endpoint that wait.
    pub fn waiting_for(&self, endpoint: EndpointId) -> usize {
        self.lines.get(&endpoint).map_or(0, |line| line.waiting())
    }

    /// Requests of an endpoint under way.
    pub fn in_flight_to(&self, endpoint: EndpointId) -> usize {
        self.lines.get(&endpoint).map_or(0, |line| line.in_flight)
    }

    /// How many more pairs of an endpoint are worth having in memory: twice what it may run, so that a
    /// finished request finds the next pair waiting, and no more than its rate allows in a second.
    pub fn room_for(&self, endpoint: EndpointId, now: i64) -> usize {
        let Some(line) = self.lines.get(&endpoint) else {
            // It would begin with a window of one request.
            return 2 * self.caps.per_endpoint.min(self.caps.total).min(1);
        };
        let (room, waiting) = (line.room(self.caps, now), line.waiting());
        if line.window.is_shut() {
            return if waiting + line.in_flight == 0 {
                room
            } else {
                0
            };
        }
        let worth = (2 * room).saturating_sub(line.in_flight + line.ahead + waiting);
        match &line.bucket {
            None => worth,
            Some(bucket) => {
                let tokens = bucket.tokens_until(now, now.saturating_add(SECOND));
                worth.min(tokens.max(1).saturating_sub(waiting))
            }
        }
    }

    /// How many pairs to claim for an endpoint now. Where `ahead`, what is fast is claimed by the many, a tenth of a
    /// second's worth, and again when half of it is gone: claimed by the few, claims would cost more than requests.
    pub fn room_to_claim(&self, endpoint: EndpointId, now: i64, ahead: bool) -> usize {
        let worth = self.room_for(endpoint, now);
        let Some(line) = self.lines.get(&endpoint) else {
            return worth;
        };
        let waiting = line.waiting();
        let worth = if worth > waiting { worth } else { 0 };
        let slow = line.pace == 0 || line.overdue > 0 || line.bucket.is_some();
        if !ahead || slow || line.window.is_shut() {
            return worth;
        }
        let room = line.room(self.caps, now);
        let ahead = finishes(room, line.pace, CLAIM_AHEAD).min(MOST_CLAIMED);
        if ahead <= 4 * room {
            return worth;
        }
        let have = waiting + line.in_flight + line.ahead;
        if have * 2 > ahead { 0 } else { ahead - have }
    }

    /// When a shut endpoint may be probed; none while it is open or not known.
    pub fn opens_at(&self, endpoint: EndpointId) -> Option<i64> {
        self.lines.get(&endpoint)?.window.probe_at()
    }

    /// Microseconds until a pair that joined now would be sent, by the endpoint's pace and rate so far.
    pub fn expected_wait(&self, endpoint: EndpointId, now: i64) -> i64 {
        let Some(line) = self.lines.get(&endpoint) else {
            return 0;
        };
        let (room, waiting) = (line.prospect(self.caps, now), line.waiting());
        // A probe tells when the others may go: nobody knows how long that takes.
        if room == 0 || (line.window.is_shut() && waiting + line.in_flight > 0) {
            return i64::MAX;
        }
        let rounds =
            i64::try_from((waiting + line.in_flight + line.ahead) / room).unwrap_or(i64::MAX);
        let token_at = line
            .bucket
            .as_ref()
            .map_or(now, |bucket| bucket.ready_after(waiting, now));
        line.pace
            .saturating_mul(rounds)
            .max(token_at.saturating_sub(now))
    }

    /// The earliest time at which a waiting pair may become takeable without another event, by a token or
    /// a probe. Said after [`Scheduler::take_next`] found nothing; always later than the time it was given.
    pub fn next_timer(&self) -> Option<i64> {
        // With every place taken, time alone frees nothing.
        if self.in_flight >= self.caps.total + self.spare() {
            return None;
        }
        self.timers.first().map(|(at, _)| *at)
    }
}

/// How much of a fast endpoint's work is claimed at once: microseconds of it, and pairs at most.
const CLAIM_AHEAD: i64 = 100_000;
const MOST_CLAIMED: usize = 1_024;

/// Microseconds.
const SECOND: i64 = 1_000_000;
