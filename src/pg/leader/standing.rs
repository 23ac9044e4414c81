//! What follows when an endpoint opens, is held or closes: queues that are looked at or not, pairs that
//! are put back or cancelled.

use super::Leader;
use super::configuration::Standing;
use super::pair::Waiting;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Change, EndpointRow};
use crate::rules::ids::EndpointId;

/// Deliveries cancelled in one transaction.
const CANCEL_ROWS: i32 = 2_000;

impl Leader {
    /// Endpoints that began or ceased to be sent to.
    pub fn follow_standing(&mut self, moved: Vec<EndpointId>) {
        for id in moved {
            let standing = self
                .configuration
                .endpoint(id)
                .map(|endpoint| endpoint.standing);
            for class in [0, 1] {
                if let Some(at) = self.due.get(&(id, class)).copied() {
                    self.due_order.remove(&(at, id, class));
                    if standing == Some(Standing::Sends) {
                        self.due_order.insert((at, id, class));
                    }
                }
            }
            match standing {
                Some(Standing::Closed) => self.close_endpoint(id),
                Some(Standing::Holds) => {
                    for waiting in self.scheduler.take_all(id) {
                        self.put_back(waiting);
                    }
                }
                _ => {}
            }
        }
    }

    /// Nothing more goes to this endpoint: what waits is cancelled, with the reason.
    pub fn close_endpoint(&mut self, id: EndpointId) {
        let reason = self.closing_reason(id);
        for waiting in self.scheduler.take_all(id) {
            self.cancel(waiting, &reason);
        }
        // What is on the wire may still be delivered, but is not tried again, whatever opens later.
        for flight in self.flights.values_mut() {
            if flight.waiting.pair.endpoint == id {
                flight.cancelled = Some(reason.clone());
            }
        }
        self.to_cancel.push((id, reason));
    }

    /// Whether nothing goes to this endpoint any more.
    pub fn closed(&self, id: EndpointId) -> bool {
        self.configuration
            .endpoint(id)
            .is_some_and(|endpoint| endpoint.standing == Standing::Closed)
    }

    pub fn closing_reason(&self, id: EndpointId) -> String {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return "the endpoint does not exist".to_owned();
        };
        match &endpoint.state_reason {
            Some(reason) => format!("the endpoint is {}: {reason}", endpoint.state),
            None => format!("the endpoint is {}", endpoint.state),
        }
    }

    pub fn cancel(&mut self, waiting: Waiting, reason: &str) {
        self.memory.leave(waiting.pair);
        self.record(Change {
            reason: Some(reason.to_owned()),
            ..waiting.change("cancelled")
        });
        self.settle(waiting.batch);
    }

    /// A pair that cannot be sent just now leaves memory. A claimed one still has its row in the due
    /// table: its queue is read again from there.
    pub fn put_back(&mut self, waiting: Waiting) {
        match waiting.due {
            None => self.park(waiting),
            Some(at) => {
                self.memory.leave(waiting.pair);
                let queue = (waiting.pair.endpoint, waiting.message.class);
                self.cursors.remove(&queue);
                self.note_due(queue, at);
                self.settle(waiting.batch);
            }
        }
    }

    /// Cancels what closed endpoints have in the due table, a bounded number at a time. An endpoint that
    /// is opened again meanwhile stays closed until its old queue is gone.
    pub fn cancel_queues(&mut self) -> Result<(), Trouble> {
        // Endpoints that are to open again come first: events wait for them.
        let next = self
            .to_cancel
            .iter()
            .position(|(id, _)| self.deferred.iter().any(|row| row.id == *id))
            .or_else(|| self.to_cancel.len().checked_sub(1));
        let Some(next) = next else {
            return Ok(());
        };
        let Some((id, reason)) = self.to_cancel.get(next).cloned() else {
            return Ok(());
        };
        // Results on their way could put rows back: they are written first.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let cancelled = transaction(
            self.owner,
            false,
            c"webhook leader: cancelling a queue",
            || {
                outbox::drop_queue(id, 0, &reason, CANCEL_ROWS)
                    + outbox::drop_queue(id, 1, &reason, CANCEL_ROWS)
            },
        )?;
        if cancelled == 0 {
            self.to_cancel.retain(|(other, _)| *other != id);
            for class in [0, 1] {
                self.set_due((id, class), None);
                self.cursors.remove(&(id, class));
            }
            self.behind.remove(&id);
            let (opened, rest) = std::mem::take(&mut self.deferred)
                .into_iter()
                .partition(|row| row.id == id);
            self.deferred = rest;
            self.configure(opened);
        }
        Ok(())
    }

    /// Whether an endpoint is to open again that still has an old queue to be cancelled.
    pub fn reopening(&self) -> bool {
        self.deferred
            .iter()
            .any(|row| matches!(row.state.as_str(), "active" | "paused" | "unverified"))
    }

    /// Takes over endpoints that are new or changed.
    pub fn configure(&mut self, rows: Vec<EndpointRow>) {
        let (later, now): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| self.to_cancel.iter().any(|(id, _)| *id == row.id));
        self.deferred
            .retain(|old| !later.iter().any(|new| new.id == old.id));
        self.deferred.extend(later);
        let moved = self.configuration.apply(now);
        self.follow_standing(moved);
    }
}
