//! Repairing what reconciliation found: an event that is not in the feed, a pair without a delivery, a delivery and its
//! row in the due table that do not go together. Every finding is looked at anew: between it and its repair the leader
//! may have done the very thing.

use std::collections::HashMap;

use super::Leader;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Belated, Request, Row};
use crate::rules::ids::{EndpointId, EventId, Pair};

impl Leader {
    /// Carries out a request to repair an event or pairs.
    pub fn mend(&mut self, request: &Request, event: Option<&Row>) -> Result<(), Trouble> {
        match event {
            Some(row) => self.publish_late(request, row),
            None => self.mend_pairs(request),
        }
    }

    /// Puts an event into the feed that was read and is not there.
    fn publish_late(&mut self, request: &Request, row: &Row) -> Result<(), Trouble> {
        let from = EndpointId::new(row.event.id.unix_ms(), 0).0;
        let partner = row.event.partner_id.as_str();
        let id = row.event.id.to_string();
        let known = &self.seal_keys;
        let (published, keys) = transaction(
            self.owner,
            true,
            c"webhook leader: looking for an event in the feed",
            || {
                (
                    !outbox::published_of(&[partner], &[&id], from, i64::MAX).is_empty(),
                    outbox::seal_keys(&[row.origin], [row.seal_key].into_iter(), known),
                )
            },
        )?;
        self.seal_keys.extend(keys);
        if published {
            return self.finish_request(request.id, "done", 0, "it is in the feed");
        }
        if row.origin != self.origin || !self.sealed(row) {
            return self.finish_request(request.id, "refused", 0, "the event is fenced");
        }
        let Some(read) = self.window.prev.clone() else {
            return Ok(());
        };
        let pos = self.next_position(&[row]);
        let (n, batch, incarnation) = (self.last_n + 1, self.last_batch + 1, self.incarnation);
        transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || {
                outbox::publish(pos, now_micros(), &[&row.event]);
                // The next life goes on behind it.
                outbox::place_everybody(n, incarnation, batch, &read, pos);
                outbox::finish_request(request.id, "done", 0, "put into the feed");
            },
        )?;
        (self.last_n, self.last_batch, self.last_pos) = (n, batch, pos);
        self.position_n = n;
        self.window.placed = true;
        Ok(())
    }

    fn mend_pairs(&mut self, request: &Request) -> Result<(), Trouble> {
        let pairs: Vec<Pair> = request
            .pairs
            .iter()
            .copied()
            .filter(|pair| !self.memory.contains(*pair))
            .collect();
        let mut ids: Vec<EventId> = pairs.iter().map(|pair| pair.event).collect();
        ids.sort_unstable();
        ids.dedup();
        let (origin, known) = (self.origin, &self.seal_keys);
        let (events, delivered, due, held, keys) = transaction(
            self.owner,
            true,
            c"webhook leader: reading deliveries",
            || {
                let events = outbox::events_by_id(&ids);
                let needed = events.iter().map(|row| row.seal_key);
                let keys = outbox::seal_keys(&[origin], needed, known);
                (
                    events,
                    outbox::known_pairs(&pairs),
                    outbox::due_rows(&pairs),
                    outbox::held_before(&pairs),
                    keys,
                )
            },
        )?;
        self.seal_keys.extend(keys);
        let events: HashMap<EventId, Row> =
            events.into_iter().map(|row| (row.event.id, row)).collect();
        let mut broken = Vec::new();
        let mut fresh = Vec::new();
        for pair in &pairs {
            if delivered.contains_key(pair) || due.contains_key(pair) {
                broken.push(match events.get(&pair.event) {
                    Some(row) => self.waits_for_turn(*pair, row),
                    None => Belated {
                        pair: *pair,
                        revision: 1,
                        class: 1,
                        hold: 0,
                        subject: None,
                    },
                });
                continue;
            }
            let wanted = events.get(&pair.event).is_some_and(|row| {
                row.origin == origin
                    && !row.withheld()
                    && self.sealed(row)
                    && self.configuration.wants(&row.event, pair.endpoint)
            });
            if let Some(row) = events.get(&pair.event).filter(|_| wanted) {
                fresh.push(self.waits_for_turn(*pair, row));
            }
        }
        // What a filter refuses is not missing, and what one held waits for it.
        self.filter_at_hand(&mut fresh, &events)?;
        self.hold_for_filters(held, &mut broken);
        let at = self.stamp(self.clock.now());
        let (due, free) = transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || {
                let mended = outbox::mend_pairs(&broken, at);
                let (free, made) = outbox::make_pairs(&fresh, at);
                let count = mended.dropped + mended.told + mended.due.len() + made;
                let result = format!(
                    "{made} made, {} due again, {} told of, {} not due any more",
                    mended.due.len(),
                    mended.told,
                    mended.dropped
                );
                outbox::finish_request(request.id, "done", count, &result);
                (mended.due, free)
            },
        )?;
        for queue in due {
            self.behind.insert(queue.0);
            self.note_due(queue, at);
        }
        self.note_released(&free);
        for made in fresh.into_iter().chain(broken) {
            if let Some(subject) = made.subject {
                self.turns.add((made.pair.endpoint, subject));
            }
        }
        Ok(())
    }
}
