//! From the scheduler onto the wire, and the order in which queues of the due table are looked at.

use std::sync::Arc;
use std::time::Instant;

use super::configuration::Standing;
use super::pair::{Flight, Waiting};
use super::{Due, Leader, Queue};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{Change, NextDue, hold};
use crate::rules::delivery::Category;
use crate::rules::ids::EndpointId;
use crate::rules::scheduler::Taken;
use crate::wire::job::Job;

/// Classes of priority: each endpoint has a queue of each. The last one is that of replays of a range.
pub const CLASSES: [i16; 3] = [0, 1, REPLAYS];
pub const REPLAYS: i16 = 2;
/// Requests handed to the threads at a time: few enough that the first does not wait for the last to be made up.
const SUBMITTED: usize = 32;

impl Leader {
    /// A time for a new row of the due table: later than the last claim, so that no claim passed it.
    pub fn stamp(&self, at: i64) -> i64 {
        at.max(self.last_claim + 1)
    }

    /// A queue has a row at this time.
    pub fn note_due(&mut self, queue: Queue, at: i64) {
        match self.due.get(&queue) {
            Some(known) if known.at <= at => {}
            _ => self.set_due(queue, Some(at)),
        }
    }

    /// Rows that may be sent from now on.
    pub fn note_released(&mut self, released: &[NextDue]) {
        for next in released {
            self.queue_behind((next.endpoint, next.class));
            self.note_due((next.endpoint, next.class), next.at);
        }
    }

    /// New pairs of the endpoint queue behind what waits there, unless it is a replay of a range.
    pub fn queue_behind(&mut self, queue: Queue) {
        if queue.1 < REPLAYS {
            self.behind.insert(queue.0);
        }
    }

    pub fn set_due(&mut self, queue: Queue, at: Option<i64>) {
        if let Some(Due {
            listed: Some(old), ..
        }) = self.due.remove(&queue)
        {
            self.due_order.remove(&(old, queue.0, queue.1));
        }
        if let Some(at) = at {
            self.due.insert(queue, Due { at, listed: None });
            self.relist_queue(queue);
        }
    }

    /// Lists the queues of an endpoint anew, after something that decides about them has changed.
    pub fn relist(&mut self, endpoint: EndpointId) {
        // It is asked after every request.
        if self.due.is_empty() {
            return;
        }
        for class in CLASSES {
            self.relist_queue((endpoint, class));
        }
    }

    /// A queue that is held, shut or has enough pairs in memory costs nothing: it is not even looked at
    /// until that changes.
    fn relist_queue(&mut self, queue: Queue) {
        let (endpoint, class) = queue;
        if !self.due.contains_key(&queue) {
            return;
        }
        let ahead = !self.is_young();
        let Some(due) = self.due.get_mut(&queue) else {
            return;
        };
        if let Some(old) = due.listed.take() {
            self.due_order.remove(&(old, endpoint, class));
        }
        let sends = self
            .configuration
            .endpoint(endpoint)
            .is_some_and(|known| known.standing == Standing::Sends);
        if !sends {
            return;
        }
        let waiting = self.scheduler.waiting_for(endpoint);
        let at = match self.scheduler.opens_at(endpoint) {
            // One probe at a time.
            Some(_) if waiting + self.scheduler.in_flight_to(endpoint) > 0 => return,
            Some(opens) => due.at.max(opens),
            // Claimed by a few, not one by one.
            None if self
                .scheduler
                .room_to_claim(endpoint, self.clock.now(), ahead)
                == 0 =>
            {
                return;
            }
            None => due.at,
        };
        due.listed = Some(at);
        self.due_order.insert((at, endpoint, class));
    }

    /// Hands pairs to the threads as far as the caps allow, and some in advance.
    pub fn dispatch(&mut self) {
        let now = self.clock.now();
        // Once payloads are gone nothing starts before what is in memory was looked through.
        while !self.must_forget()
            && let Some(taken) = self.scheduler.take_next(now)
        {
            self.hand_over(taken, now);
        }
        self.go_ahead(now);
        self.submit();
        self.relist_touched();
    }

    /// A pair whose turn has come goes to the threads, if it is still to be sent.
    pub fn hand_over(&mut self, taken: Taken<Waiting>, now: i64) {
        let id = taken.endpoint;
        let since = taken.waiting.since;
        match self.still_to_send(taken.waiting.item) {
            Some(waiting) => self.send(id, waiting, taken.probe, (now, since)),
            None => self.scheduler.not_sent(id),
        }
        self.touched.insert(id);
        if self.ready.len() >= SUBMITTED {
            self.submit();
        }
    }

    fn submit(&mut self) {
        if !self.ready.is_empty() {
            self.crew.submit(self.ready.drain(..));
        }
    }

    /// The pair, unless something happened while it waited that keeps it from being sent.
    fn still_to_send(&mut self, waiting: Waiting) -> Option<Waiting> {
        let id = waiting.pair.endpoint;
        let waiting = self.not_settled(waiting)?;
        if self.erasing.forget(waiting.pair) {
            // Read again from the tables, where its payload is not any more.
            self.put_back(waiting);
            return None;
        }
        match self
            .configuration
            .endpoint(id)
            .map(|endpoint| endpoint.standing)
        {
            Some(Standing::Sends) => {}
            Some(Standing::Holds) => {
                self.put_back(waiting);
                return None;
            }
            Some(Standing::Closed) | None => {
                let reason = self.closing_reason(id);
                self.end(waiting, "cancelled", reason);
                return None;
            }
        }
        if self.configuration.type_paused(&waiting.message.kind) {
            self.hold(waiting, hold::EVENT_TYPE);
            return None;
        }
        Some(waiting)
    }

    /// The pair, unless somebody settled it while it waited: then it leaves memory with that.
    pub fn not_settled(&mut self, waiting: Waiting) -> Option<Waiting> {
        if self.settled.is_empty() {
            return Some(waiting);
        }
        match self.settled.remove(&waiting.pair) {
            Some(settled) => {
                self.end(waiting, settled.state, settled.reason);
                None
            }
            None => Some(waiting),
        }
    }

    fn send(&mut self, id: EndpointId, waiting: Waiting, probe: bool, (now, since): (i64, i64)) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        self.last_ticket += 1;
        let job = Job {
            ticket: self.last_ticket,
            target: endpoint.target.clone(),
            pair: waiting.pair,
            attempt: u32::try_from(waiting.attempt_count + 1).unwrap_or(1),
            headers: Arc::clone(&waiting.message.headers),
            extra: Arc::clone(&endpoint.extra),
            profile: endpoint.profile,
            body: Arc::clone(&waiting.message.body),
            keys: endpoint.keys.at(now_micros()),
            fault: waiting.message.fault,
            room: self.scheduler.in_flight_to(id).max(1),
            looked_through: self.erasing.looked_through(),
        };
        self.flights.insert(
            self.last_ticket,
            Flight {
                waiting,
                begun: Instant::now(),
                began: now,
                since,
                generation: endpoint.generation,
                probe,
                overdue: false,
                settled: None,
            },
        );
        self.ready.push(job);
    }

    /// A pair that waits leaves memory for good, without a further attempt.
    pub fn end(&mut self, waiting: Waiting, state: &'static str, reason: String) {
        self.leave(waiting.pair);
        self.record(Change {
            reason: Some(reason),
            ..waiting.change(state)
        });
        self.settle(waiting.batch);
    }

    /// A pair leaves memory for its row in the due table, where something holds it.
    pub fn hold(&mut self, waiting: Waiting, bits: i32) {
        self.hold_because(waiting, bits, None);
    }

    /// The same, with a reason that is shown.
    pub fn hold_because(&mut self, waiting: Waiting, bits: i32, reason: Option<String>) {
        let Some(waiting) = self.not_settled(waiting) else {
            return;
        };
        self.leave(waiting.pair);
        let at = waiting.due.unwrap_or_else(|| self.stamp(self.clock.now()));
        self.record(Change {
            next_attempt_at: Some(at),
            hold: bits,
            category: held_by(bits),
            reason,
            ..waiting.change(waiting.waiting_state())
        });
        self.settle(waiting.batch);
    }

    /// A pair that cannot be sent just now leaves memory. A claimed one still has its row in the due
    /// table: its queue is read again from there.
    pub fn put_back(&mut self, waiting: Waiting) {
        let Some(waiting) = self.not_settled(waiting) else {
            return;
        };
        match waiting.due {
            None => self.park(waiting),
            Some(at) => {
                self.leave(waiting.pair);
                let queue = (waiting.pair.endpoint, waiting.message.class);
                self.cursors.remove(&queue);
                self.queue_behind(queue);
                self.note_due(queue, at);
                self.settle(waiting.batch);
            }
        }
    }

    /// Takes everything that waits for an endpoint out of memory, to wait in the due table.
    pub fn put_all_back(&mut self, endpoint: EndpointId) {
        for waiting in self.scheduler.take_all(endpoint) {
            self.put_back(waiting);
        }
        self.relist(endpoint);
    }

    /// A pair is not in memory any more.
    pub fn leave(&mut self, pair: crate::rules::ids::Pair) {
        self.memory.leave(pair);
        // Mostly empty, and a look into an empty one costs its hash all the same.
        if !self.settled.is_empty() {
            self.settled.remove(&pair);
        }
        self.erasing.forget(pair);
        // The last one that a request waits for brings it back.
        if !self.awaited.is_empty()
            && let Some(request) = self.awaited.remove(&pair)
        {
            self.requests_waiting |= self.awaits_one_less(request);
        }
        if self.suspect == Some(pair) {
            self.suspect = None;
        }
    }
}

/// The category of the rule on the content that holds a pair, where it is one.
pub fn held_by(bits: i32) -> Option<Category> {
    if bits & hold::FILTER != 0 {
        Some(Category::Filter)
    } else if bits & hold::CONVERSION != 0 {
        Some(Category::Conversion)
    } else {
        None
    }
}
