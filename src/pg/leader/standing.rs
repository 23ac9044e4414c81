//! What follows when endpoints change: queues that are looked at or not, pairs that are put back or
//! cancelled, limits and orders that are others from now on.

use super::Leader;
use super::configuration::Standing;
use super::pair::Settled;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, EndpointRow, Walk};
use crate::rules::ids::EndpointId;

/// Deliveries cancelled in one transaction.
const CANCEL_ROWS: i32 = 2_000;

/// A closed endpoint whose queue is still to be cancelled.
pub struct Closing {
    id: EndpointId,
    reason: String,
    walk: Walk,
}

impl Leader {
    /// Endpoints that began or ceased to be sent to.
    pub fn follow_standing(&mut self, moved: Vec<EndpointId>) {
        for id in moved {
            match self
                .configuration
                .endpoint(id)
                .map(|endpoint| endpoint.standing)
            {
                Some(Standing::Closed) => self.close_endpoint(id),
                Some(Standing::Holds) => self.put_all_back(id),
                _ => {}
            }
            self.relist(id);
        }
    }

    /// Nothing more goes to this endpoint: what waits is cancelled, with the reason.
    pub fn close_endpoint(&mut self, id: EndpointId) {
        let reason = self.closing_reason(id);
        for waiting in self.scheduler.take_all(id) {
            self.end(waiting, "cancelled", reason.clone());
        }
        // What is on the wire may still be delivered, but is not tried again, whatever opens later.
        for flight in self.flights.values_mut() {
            if flight.waiting.pair.endpoint == id {
                flight.settled.get_or_insert(Settled {
                    state: "cancelled",
                    reason: reason.clone(),
                });
            }
        }
        self.to_cancel.push(Closing {
            id,
            reason,
            walk: Walk::new(),
        });
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

    /// Cancels what closed endpoints have in the due table, a bounded number at a time. An endpoint that
    /// is opened again meanwhile stays closed until its old queue is gone.
    pub fn cancel_queues(&mut self) -> Result<(), Trouble> {
        // Endpoints that are to open again come first: events wait for them.
        let next = self
            .to_cancel
            .iter()
            .position(|closing| self.deferred.iter().any(|row| row.id == closing.id))
            .or_else(|| self.to_cancel.len().checked_sub(1));
        let Some(next) = next else {
            return Ok(());
        };
        // Results on their way could put rows back: they are written first.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let Some(closing) = self.to_cancel.get(next) else {
            return Ok(());
        };
        let (id, reason, mut walk) = (closing.id, closing.reason.clone(), closing.walk.clone());
        let (walk, cancelled) = transaction(
            self.owner,
            false,
            c"webhook leader: cancelling a queue",
            move || {
                let mut left = CANCEL_ROWS;
                while left > 0 && !matches!(walk, Walk::Over) {
                    let (cancelled, next) = outbox::drop_queue(id, &walk, &reason, left);
                    left -= i32::try_from(cancelled).unwrap_or(left);
                    walk = next;
                }
                (walk, CANCEL_ROWS.saturating_sub(left))
            },
        )?;
        self.slot
            .counters
            .cancelled(usize::try_from(cancelled).unwrap_or(0));
        if !matches!(walk, Walk::Over) {
            if let Some(closing) = self.to_cancel.get_mut(next) {
                closing.walk = walk;
            }
            return Ok(());
        }
        self.to_cancel.retain(|closing| closing.id != id);
        for class in super::dispatch::CLASSES {
            self.set_due((id, class), None);
            self.cursors.remove(&(id, class));
        }
        self.behind.remove(&id);
        self.scheduler.forget(id);
        let (opened, rest) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition(|row| row.id == id);
        self.deferred = rest;
        self.configure(opened);
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
        if !rows.is_empty() {
            self.take_back();
        }
        let (later, now): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| self.to_cancel.iter().any(|closing| closing.id == row.id));
        self.deferred
            .retain(|old| !later.iter().any(|new| new.id == old.id));
        self.deferred.extend(later);
        let applied = self.configuration.apply(now);
        self.note_keys(&applied);
        self.upkeep.changed(&applied.changed);
        self.set_limits(&applied.changed);
        self.follow_proofs(&applied.changed);
        for id in &applied.renewed {
            self.renew_condition(*id);
        }
        self.follow_standing(applied.moved);
        for id in applied.narrowed {
            self.narrow(id);
        }
        for id in applied.refiltered {
            self.judge_again(id, true);
        }
        for id in applied.unordered {
            self.to_free.retain(|(other, _)| *other != id);
            self.to_free.push((id, String::new()));
        }
    }

    /// Tells the scheduler how much these endpoints may get at a time.
    pub fn set_limits(&mut self, ids: &[EndpointId]) {
        for id in ids {
            if let Some(endpoint) = self.configuration.endpoint(*id) {
                let limits = endpoint.limits();
                self.scheduler
                    .set_endpoint(*id, &endpoint.partner_id, limits);
            }
            self.relist(*id);
        }
    }

    /// The same for all endpoints, after settings or policies have changed.
    pub fn set_all_limits(&mut self) {
        let ids: Vec<EndpointId> = self.configuration.endpoints().map(|(id, _)| id).collect();
        self.set_limits(&ids);
    }
}
