//! Which queues are claimed from, how much of each, and from where on: shares of the endpoint, its partner and memory.

use std::collections::{HashMap, HashSet};

use super::dispatch::{CLASSES, REPLAYS};
use super::memory::{Claimable, Memory};
use super::{Leader, Queue};
use crate::pg::outbox::{self, Claim, Claimed};
use crate::rules::ids::EndpointId;

/// Queues claimed from in one transaction, and rows taken of each at most.
const CLAIM_QUEUES: usize = 100;
const CLAIM_ROWS: usize = 1_024;
/// Every so many claims a place is kept for a class behind the first.
const KEEP_EVERY: u32 = 5;

impl Leader {
    /// Queues that are due and whose endpoint and partner have room, with how much the endpoint has.
    pub fn claimable(&self, now: i64) -> impl Iterator<Item = (EndpointId, i16, usize)> + '_ {
        let partners = self.claimed_by_partner();
        let may = self.claimable_now();
        // A life that may still end by what ended the last one takes little at a time.
        let ahead = !self.is_young();
        self.due_order
            .iter()
            .take_while(move |(at, _, _)| *at <= now)
            .filter_map(move |(_, endpoint, class)| {
                let known = self.configuration.endpoint(*endpoint)?;
                let held = partners
                    .get(known.partner_id.as_str())
                    .copied()
                    .unwrap_or(0);
                let room = self
                    .scheduler
                    .room_to_claim(*endpoint, now, ahead)
                    .min(CLAIM_ROWS);
                let (few, beyond) = self.share_of(*endpoint, room, held, may);
                (few + beyond > 0).then_some((*endpoint, *class, room))
            })
    }

    /// Of the room that an endpoint has: how much counts as its first few, and how much is beyond. Nothing is beyond where
    /// the partner or the database has no room for all of the first few.
    fn share_of(
        &self,
        endpoint: EndpointId,
        room: usize,
        held: usize,
        may: Claimable,
    ) -> (usize, usize) {
        // Twice the caps, so that a finished request finds the next pair waiting.
        let of_partner = (self.settings.max_in_flight_per_partner * 2).saturating_sub(held);
        let few = room.min(self.memory.few_left(endpoint));
        let given = few.min(of_partner).min(may.pairs);
        if given < few || may.beyond_bytes == 0 || of_partner == 0 {
            return (given, 0);
        }
        (given, (room - few).min(may.beyond))
    }

    pub fn claimable_now(&self) -> Claimable {
        self.memory.claimable(self.settings.max_in_flight * 2)
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
        let may = self.claimable_now();
        may.pairs > 0 && may.bytes > 0
    }

    /// What to claim now, with the keysets to go on from. Of an endpoint's
    /// classes the first has its way; every few claims one place is kept for the others in turn, so that an endless
    /// stream of the first does not starve it.
    pub fn claims(&mut self, now: i64, mut may: Claimable) -> Vec<Claim> {
        let mut claims = Vec::new();
        let mut shared = Vec::new();
        let mut partners = self.claimed_by_partner();
        let mut looked_at = HashSet::new();
        for (endpoint, _, room) in self.claimable(now) {
            if may.pairs == 0 || claims.len() >= CLAIM_QUEUES {
                break;
            }
            if !looked_at.insert(endpoint) {
                continue;
            }
            let Some(known) = self.configuration.endpoint(endpoint) else {
                continue;
            };
            let held = partners.entry(known.partner_id.as_str()).or_default();
            let (few, beyond) = self.share_of(endpoint, room, *held, may);
            let most = few + beyond;
            if most == 0 {
                continue;
            }
            let due = |class: i16| {
                self.due
                    .get(&(endpoint, class))
                    .is_some_and(|due| due.at <= now)
            };
            let waiting: Vec<i16> = CLASSES.into_iter().filter(|class| due(*class)).collect();
            let Some((first, others)) = waiting.split_first() else {
                continue;
            };
            let claimed = self.shared_claims.get(&endpoint).copied().unwrap_or(0);
            let turn = usize::try_from(claimed / KEEP_EVERY).unwrap_or(0);
            let other = others.get(turn % others.len().max(1));
            let kept = match other {
                Some(_) if claimed % KEEP_EVERY == KEEP_EVERY - 1 => most.min(1),
                _ => 0,
            };
            if other.is_some() {
                shared.push(endpoint);
            }
            for (class, limit) in [(Some(first), most - kept), (other, kept)] {
                if let Some(class) = class.filter(|_| limit > 0) {
                    claims.push(self.claim_of((endpoint, *class), limit));
                }
            }
            *held += few;
            may.pairs -= few;
            may.beyond -= beyond;
        }
        drop(partners);
        for endpoint in shared {
            *self.shared_claims.entry(endpoint).or_default() += 1;
        }
        claims
    }

    fn claim_of(&self, queue: Queue, limit: usize) -> Claim {
        Claim {
            endpoint: queue.0,
            class: queue.1,
            after: self.cursors.get(&queue).cloned().unwrap_or_default(),
            limit: i32::try_from(limit).unwrap_or(1),
        }
    }

    /// Advances the keysets and learns when each queue has its next row.
    pub fn move_on(
        &mut self,
        claims: &[Claim],
        claimed: Vec<(Queue, (i64, String))>,
        next: &[outbox::NextDue],
    ) {
        self.cursors.extend(claimed);
        let mut following: HashMap<Queue, i64> = next
            .iter()
            .map(|next| ((next.endpoint, next.class), next.at))
            .collect();
        for claim in claims {
            let queue = (claim.endpoint, claim.class);
            let next = following.remove(&queue);
            if claim.class < REPLAYS && next.is_none_or(|at| at > self.last_claim) {
                self.behind.remove(&claim.endpoint);
            }
            self.set_due(queue, next);
        }
    }
}

/// The place of a claimed row in its queue.
pub fn place(row: &Claimed) -> (Queue, (i64, String)) {
    (
        (row.pair.endpoint, row.class),
        (row.next_attempt_at, row.pair.event.to_string()),
    )
}

/// The claimed rows that fit into memory, at least one; of a queue that is cut, nothing after the cut.
pub fn within(claimed: Vec<Claimed>, memory: &Memory, may: Claimable) -> Vec<Claimed> {
    let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (mut left, mut left_beyond) = (bytes(may.bytes), bytes(may.beyond_bytes));
    let mut few: HashMap<EndpointId, usize> = HashMap::new();
    let mut cut: HashSet<Queue> = HashSet::new();
    let mut kept = Vec::with_capacity(claimed.len());
    for row in claimed {
        let (endpoint, queue) = (row.pair.endpoint, (row.pair.endpoint, row.class));
        let few = few
            .entry(endpoint)
            .or_insert_with(|| memory.few_left(endpoint));
        let left = if *few > 0 {
            &mut left
        } else {
            &mut left_beyond
        };
        if cut.contains(&queue) || (row.bytes > *left && !kept.is_empty()) {
            cut.insert(queue);
            continue;
        }
        *few = few.saturating_sub(1);
        *left -= row.bytes;
        kept.push(row);
    }
    kept
}

/// Keysets after a claim, to ask what comes next.
pub fn advance(claims: &[Claim], claimed: &[Claimed]) -> Vec<Claim> {
    let last: HashMap<Queue, (i64, String)> = claimed.iter().map(place).collect();
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
