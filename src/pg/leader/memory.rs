//! What is in memory, and the bounds of it: by pairs and by bytes, apart for new events and for claimed
//! pairs, so that a backlog of retries never keeps new events from being read.

use std::collections::HashMap;

use crate::rules::ids::{EndpointId, Pair};

/// First-pass pairs, and bytes of their messages, beyond which no batch is opened.
const MAX_FRESH_PAIRS: usize = 8_192;
const MAX_FRESH_BYTES: usize = 64 << 20;
/// Bytes of claimed messages beyond which nothing is claimed.
const MAX_CLAIMED_BYTES: usize = 32 << 20;

#[derive(Clone, Copy, Default)]
struct Share {
    pairs: usize,
    bytes: usize,
}

/// Every pair in memory: waiting or on the wire.
#[derive(Default)]
pub struct Memory {
    pairs: HashMap<Pair, (bool, usize)>,
    fresh: Share,
    claimed: Share,
    /// Claimed pairs by endpoint: what a partner's endpoints hold together is bounded, too.
    claimed_by: HashMap<EndpointId, usize>,
}

impl Memory {
    /// Whether a pair is in memory.
    pub fn contains(&self, pair: Pair) -> bool {
        self.pairs.contains_key(&pair)
    }

    /// The pairs of an event in memory.
    pub fn of_event(&self, event: crate::rules::ids::EventId) -> impl Iterator<Item = &Pair> {
        self.pairs.keys().filter(move |pair| pair.event == event)
    }

    /// A pair came into memory, from a window or from the due table.
    pub fn enter(&mut self, pair: Pair, claimed: bool, bytes: usize) {
        if self.pairs.insert(pair, (claimed, bytes)).is_none() {
            if claimed {
                *self.claimed_by.entry(pair.endpoint).or_default() += 1;
            }
            let share = self.share(claimed);
            share.pairs += 1;
            share.bytes += bytes;
        }
    }

    /// A pair left memory.
    pub fn leave(&mut self, pair: Pair) {
        if let Some((claimed, bytes)) = self.pairs.remove(&pair) {
            if claimed && let Some(count) = self.claimed_by.get_mut(&pair.endpoint) {
                *count -= 1;
                if *count == 0 {
                    self.claimed_by.remove(&pair.endpoint);
                }
            }
            let share = self.share(claimed);
            share.pairs = share.pairs.saturating_sub(1);
            share.bytes = share.bytes.saturating_sub(bytes);
        }
    }

    /// A first-pass pair outlasted the first pass: it is counted like a claimed one from now on.
    pub fn outlasted(&mut self, pair: Pair) {
        if let Some((false, bytes)) = self.pairs.get(&pair).copied() {
            self.leave(pair);
            self.enter(pair, true, bytes);
        }
    }

    /// Whether another batch of new events may be read.
    pub fn has_room(&self) -> bool {
        self.fresh.pairs < MAX_FRESH_PAIRS && self.fresh.bytes < MAX_FRESH_BYTES
    }

    /// How many more pairs, and bytes, may be claimed when `limit` pairs are enough.
    pub fn claimable(&self, limit: usize) -> (usize, usize) {
        (
            limit.saturating_sub(self.claimed.pairs),
            MAX_CLAIMED_BYTES.saturating_sub(self.claimed.bytes),
        )
    }

    /// Claimed pairs of each endpoint that has some.
    pub fn claimed_by(&self) -> impl Iterator<Item = (EndpointId, usize)> + '_ {
        self.claimed_by.iter().map(|(id, count)| (*id, *count))
    }

    fn share(&mut self, claimed: bool) -> &mut Share {
        if claimed {
            &mut self.claimed
        } else {
            &mut self.fresh
        }
    }
}
