//! From the due table and the scheduler onto the wire: claims, hand-over to the threads, and what
//! follows when an endpoint opens or closes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::configuration::Standing;
use super::pair::{Flight, Message, Waiting};
use super::transaction::{Trouble, transaction};
use super::{Batch, Leader, Queue};
use crate::pg::outbox::{self, Change, Claim, Claimed, Row};
use crate::rules::ids::{EndpointId, EventId};
use crate::wire::job::Job;

/// Queues claimed from in one transaction, and rows taken of each at most.
const CLAIM_QUEUES: usize = 100;
const CLAIM_ROWS: usize = 64;

impl Leader {
    /// A time for a new row of the due table: later than the last claim, so that no claim passed it.
    pub fn stamp(&self, at: i64) -> i64 {
        at.max(self.last_claim + 1)
    }

    /// A queue has a row at this time.
    pub fn note_due(&mut self, queue: Queue, at: i64) {
        match self.due.get(&queue) {
            Some(known) if *known <= at => {}
            _ => self.set_due(queue, Some(at)),
        }
    }

    pub fn set_due(&mut self, queue: Queue, at: Option<i64>) {
        if let Some(old) = self.due.remove(&queue) {
            self.due_order.remove(&(old, queue.0, queue.1));
        }
        if let Some(at) = at {
            self.due.insert(queue, at);
            let sends = self
                .configuration
                .endpoint(queue.0)
                .is_some_and(|endpoint| endpoint.standing == Standing::Sends);
            // A queue that is held costs nothing: it is not even looked at until it may be sent.
            if sends {
                self.due_order.insert((at, queue.0, queue.1));
            }
        }
    }

    /// Claims due pairs for endpoints that have room, and lets them wait for their turn.
    pub fn claim(&mut self) -> Result<(), Trouble> {
        let now = self.clock.now();
        let (pairs, bytes) = self.memory.claimable(self.settings.max_in_flight * 2);
        let claims = self.claims(now, pairs);
        if claims.is_empty() || bytes == 0 {
            return Ok(());
        }
        // A result on its way may change the very rows: written first, they are read as they are.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        self.last_claim = now;
        let origin = self.origin;
        let (n, batch, incarnation) = (self.last_n + 1, self.last_batch + 1, self.incarnation);
        let memory = &self.memory;
        let (claimed, events, next, seal_keys) = transaction(
            self.owner,
            true,
            c"webhook leader: claiming due work",
            || {
                let claimed = within(outbox::claim(&claims, now), bytes);
                let mut ids: Vec<EventId> = claimed.iter().map(|row| row.pair.event).collect();
                ids.sort_unstable();
                ids.dedup();
                let events = if ids.is_empty() {
                    Vec::new()
                } else {
                    outbox::events_by_id(origin, &ids)
                };
                let drained = advance(&claims, &claimed);
                let next = outbox::next_due(&drained);
                let seal_keys = outbox::seal_keys();
                let pairs: Vec<_> = claimed
                    .iter()
                    .filter(|row| !memory.contains(row.pair))
                    .map(|row| (row.pair, row.attempt_count + 1))
                    .collect();
                if !pairs.is_empty() {
                    outbox::open_claim(n, incarnation, batch, &pairs);
                }
                (claimed, events, next, seal_keys)
            },
        )?;
        self.seal_keys.extend(seal_keys);
        self.move_on(&claims, &claimed, &next);
        if claimed.iter().any(|row| !self.memory.contains(row.pair)) {
            (self.last_n, self.last_batch) = (n, batch);
            self.batches.insert(batch, Batch { n, left: 1 });
            let events: HashMap<EventId, Row> =
                events.into_iter().map(|row| (row.event.id, row)).collect();
            let mut messages = HashMap::new();
            for row in claimed {
                self.take_claimed(&row, &events, &mut messages, batch);
            }
            self.settle(batch);
        }
        Ok(())
    }

    /// Queues that are due and whose endpoint and partner have room, with how much.
    pub fn claimable(&self, now: i64) -> impl Iterator<Item = (EndpointId, i16, usize)> + '_ {
        let partners = self.claimed_by_partner();
        self.due_order
            .iter()
            .take_while(move |(at, _, _)| *at <= now)
            .filter_map(move |(_, endpoint, class)| {
                let known = self.configuration.endpoint(*endpoint)?;
                let held = partners
                    .get(known.partner_id.as_str())
                    .copied()
                    .unwrap_or(0);
                // Twice the caps, so that a finished request finds the next pair waiting.
                let of_partner = (self.settings.max_in_flight_per_partner * 2).saturating_sub(held);
                let cap = known
                    .cap
                    .unwrap_or(self.settings.max_in_flight_per_endpoint);
                let room = self
                    .scheduler
                    .room_for(*endpoint, Some(cap * 2))
                    .min(of_partner)
                    .min(CLAIM_ROWS);
                (room > 0 && self.scheduler.waiting_for(*endpoint) == 0)
                    .then_some((*endpoint, *class, room))
            })
    }

    /// Claimed pairs in memory by partner: many hanging endpoints of one must not hold them all.
    fn claimed_by_partner(&self) -> HashMap<&str, usize> {
        let mut partners = HashMap::new();
        for (id, count) in self.memory.claimed_by() {
            if let Some(endpoint) = self.configuration.endpoint(id) {
                *partners.entry(endpoint.partner_id.as_str()).or_default() += count;
            }
        }
        partners
    }

    /// Whether memory has room for claimed pairs.
    pub fn may_claim(&self) -> bool {
        let (pairs, bytes) = self.memory.claimable(self.settings.max_in_flight * 2);
        pairs > 0 && bytes > 0
    }

    /// What to claim now, at most `pairs` in all, with the keysets to go on from.
    fn claims(&self, now: i64, mut pairs: usize) -> Vec<Claim> {
        let mut claims = Vec::new();
        let mut partners = self.claimed_by_partner();
        let per_partner = self.settings.max_in_flight_per_partner * 2;
        for (endpoint, class, room) in self.claimable(now) {
            if pairs == 0 || claims.len() == CLAIM_QUEUES {
                break;
            }
            let Some(known) = self.configuration.endpoint(endpoint) else {
                continue;
            };
            let held = partners.entry(known.partner_id.as_str()).or_default();
            let limit = room.min(pairs).min(per_partner.saturating_sub(*held));
            if limit == 0 {
                continue;
            }
            *held += limit;
            pairs -= limit;
            claims.push(Claim {
                endpoint,
                class,
                after: self
                    .cursors
                    .get(&(endpoint, class))
                    .cloned()
                    .unwrap_or_default(),
                limit: i32::try_from(limit).unwrap_or(1),
            });
        }
        claims
    }

    /// Advances the keysets and learns when each queue has its next row.
    fn move_on(&mut self, claims: &[Claim], claimed: &[Claimed], next: &[outbox::NextDue]) {
        for row in claimed {
            self.cursors.insert(
                (row.pair.endpoint, row.class),
                (row.next_attempt_at, row.pair.event.to_string()),
            );
        }
        let mut following: HashMap<Queue, i64> = next
            .iter()
            .map(|next| ((next.endpoint, next.class), next.at))
            .collect();
        for claim in claims {
            let queue = (claim.endpoint, claim.class);
            let next = following.remove(&queue);
            if next.is_none_or(|at| at > self.last_claim) {
                self.behind.remove(&claim.endpoint);
            }
            self.set_due(queue, next);
        }
    }

    fn take_claimed(
        &mut self,
        row: &Claimed,
        events: &HashMap<EventId, Row>,
        messages: &mut HashMap<(EventId, i16), Arc<Message>>,
        batch: i64,
    ) {
        if self.memory.contains(row.pair) {
            return;
        }
        let Some(endpoint) = self.configuration.endpoint(row.pair.endpoint) else {
            return;
        };
        let (partner, cap) = (endpoint.partner_id.clone(), endpoint.cap);
        let refusal = match events.get(&row.pair.event) {
            None => Some("the event is gone"),
            Some(event) if event.expunged => Some("the payload was expunged"),
            Some(event) if !self.sealed(event) => {
                Some("the event is fenced: its row does not match its seal")
            }
            // Ownership is checked again whenever something is sent.
            Some(event) if event.event.partner_id != partner => {
                Some("the endpoint belongs to another partner")
            }
            Some(_) => None,
        };
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.left += 1;
        }
        if events
            .get(&row.pair.event)
            .is_some_and(|event| !event.expunged && !self.sealed(event))
        {
            self.outcomes.fenced.push(row.pair.event.to_string());
            self.slot.fenced.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(reason) = refusal {
            self.record(Change {
                pair: row.pair,
                batch,
                revision: row.revision,
                class: row.class,
                series_start: row.series_start,
                state: "dead",
                reason: Some(reason.to_owned()),
                attempt_count: row.attempt_count,
                attempt: None,
                next_attempt_at: None,
                due: Some(row.next_attempt_at),
                on_wire: false,
            });
            self.settle(batch);
            return;
        }
        let Some(event) = events.get(&row.pair.event) else {
            return;
        };
        // The priority of a type may have changed between the rows of one event.
        let message = messages
            .entry((row.pair.event, row.class))
            .or_insert_with(|| Message::new(&event.event, row.class));
        let waiting = Waiting {
            pair: row.pair,
            message: Arc::clone(message),
            revision: row.revision,
            attempt_count: row.attempt_count,
            series_start: row.series_start,
            batch,
            due: Some(row.next_attempt_at),
        };
        self.memory
            .enter(row.pair, true, waiting.message.body.len());
        self.scheduler
            .push(row.pair.endpoint, &partner, cap, waiting, self.clock.now());
    }

    /// Hands pairs to the threads as far as the caps allow.
    pub fn dispatch(&mut self) {
        while let Some((id, next)) = self.scheduler.take_next() {
            let waiting = next.item;
            let Some(endpoint) = self.configuration.endpoint(id) else {
                self.scheduler.finished(id, 0, false);
                continue;
            };
            if endpoint.standing != Standing::Sends {
                let closed = endpoint.standing == Standing::Closed;
                self.scheduler.finished(id, 0, false);
                if closed {
                    let reason = self.closing_reason(id);
                    self.cancel(waiting, &reason);
                } else {
                    self.put_back(waiting);
                }
                continue;
            }
            self.last_ticket += 1;
            let job = Job {
                ticket: self.last_ticket,
                target: endpoint.target.clone(),
                pair: waiting.pair,
                attempt: u32::try_from(waiting.attempt_count + 1).unwrap_or(1),
                traceparent: waiting.message.traceparent.clone(),
                body: Arc::clone(&waiting.message.body),
                keys: Arc::clone(&endpoint.keys),
            };
            self.flights.insert(
                self.last_ticket,
                Flight {
                    waiting,
                    begun: Instant::now(),
                    generation: endpoint.generation,
                    overdue: false,
                    cancelled: None,
                },
            );
            self.crew.submit(job);
        }
    }
}

/// The claimed rows that fit into `bytes`, at least one; of a queue that is cut, nothing after the cut.
fn within(claimed: Vec<Claimed>, bytes: usize) -> Vec<Claimed> {
    let mut left = i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut cut: HashSet<Queue> = HashSet::new();
    let mut kept = Vec::with_capacity(claimed.len());
    for row in claimed {
        let queue = (row.pair.endpoint, row.class);
        if cut.contains(&queue) || (row.bytes > left && !kept.is_empty()) {
            cut.insert(queue);
            continue;
        }
        left -= row.bytes;
        kept.push(row);
    }
    kept
}

/// Keysets after a claim, of those queues that gave fewer rows than asked.
fn advance(claims: &[Claim], claimed: &[Claimed]) -> Vec<Claim> {
    let mut last: HashMap<Queue, (i64, String)> = HashMap::new();
    for row in claimed {
        last.insert(
            (row.pair.endpoint, row.class),
            (row.next_attempt_at, row.pair.event.to_string()),
        );
    }
    claims
        .iter()
        .map(|claim| Claim {
            endpoint: claim.endpoint,
            class: claim.class,
            after: last
                .get(&(claim.endpoint, claim.class))
                .cloned()
                .unwrap_or_else(|| claim.after.clone()),
            limit: 1,
        })
        .collect()
}
