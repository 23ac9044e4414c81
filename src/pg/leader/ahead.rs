//! Requests handed to the threads in advance, and what brings them back: a change of what they were decided by, a
//! payload that is gone, a receiver that fails, or a place that does not come free.

use std::time::Duration;

use super::Leader;
use super::configuration::Standing;
use crate::rules::ids::EndpointId;

/// A request handed over and not begun for this long (or for a quarter of the first pass) is taken back: it waits for
/// its turn among the others.
const LONGEST: Duration = Duration::from_millis(100);

impl Leader {
    /// Takes back whatever no thread has begun. Called before anything changes that it was decided by: from then on
    /// only what is on the wire goes by the old state.
    pub fn take_back(&mut self) {
        let back = self.crew.recall();
        // The last first: each goes to the head of its queue.
        for ticket in back.ready.into_iter().chain(back.waiting).rev() {
            self.came_back(ticket);
        }
    }

    /// Takes back what waits in vain for a thread or for its endpoint.
    pub fn take_back_stalled(&mut self) {
        let longest = LONGEST.min(self.settings.first_pass_limit / 4);
        let back = self.crew.recall_older(longest);
        if !back.ready.is_empty() {
            self.scheduler.crowd_stalled();
        }
        for ticket in back.waiting.into_iter().rev() {
            if let Some(endpoint) = self.came_back(ticket) {
                self.scheduler.stalled(endpoint);
            }
        }
        for ticket in back.ready.into_iter().rev() {
            self.came_back(ticket);
        }
    }

    /// A request has not begun: its pair waits again.
    pub fn came_back(&mut self, ticket: u64) -> Option<EndpointId> {
        let flight = self.flights.remove(&ticket)?;
        let (pair, class) = (flight.waiting.pair, flight.waiting.message.class);
        // Whatever somebody decided about it meanwhile holds.
        if let Some(settled) = flight.settled {
            self.settled.insert(pair, settled);
        }
        if flight.overdue {
            self.scheduler.not_overdue(pair.endpoint);
        }
        let shut = self.scheduler.opens_at(pair.endpoint).is_some();
        let sends = self
            .configuration
            .endpoint(pair.endpoint)
            .is_some_and(|endpoint| endpoint.standing == Standing::Sends);
        if shut || !sends {
            // It would be kept in memory for as long as that takes.
            self.scheduler.not_sent(pair.endpoint);
            self.put_back(flight.waiting);
        } else {
            self.scheduler
                .came_back(pair.endpoint, class, flight.waiting, flight.since);
        }
        self.touched.insert(pair.endpoint);
        Some(pair.endpoint)
    }

    /// Hands over in advance what would otherwise keep threads waiting for this one.
    pub fn go_ahead(&mut self, now: i64) {
        // One that may be what ends the process goes alone.
        if self.suspect.is_some() {
            return;
        }
        while !self.must_forget()
            && let Some(taken) = self.scheduler.take_ahead(now)
        {
            self.hand_over(taken, now);
        }
    }

    /// Lists anew the queues of every endpoint that something happened to.
    pub fn relist_touched(&mut self) {
        // Nothing is due in the tables, which is nearly always: the set keeps its room.
        if self.due.is_empty() {
            self.touched.clear();
            return;
        }
        for endpoint in std::mem::take(&mut self.touched) {
            self.relist(endpoint);
        }
    }
}
