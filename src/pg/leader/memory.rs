//! What is in memory, and the bounds of it: by pairs and by bytes, apart for new events, for those of
//! partners set aside and for claimed pairs, so that neither a backlog of retries nor one partner's flood
//! keeps new events from being read.

use crate::rules::id_hash::IdMap;
use crate::rules::ids::{EndpointId, Pair};

/// First-pass pairs, and bytes of their messages, beyond which no batch is opened.
const MAX_FRESH_PAIRS: usize = 8_192;
const MAX_FRESH_BYTES: usize = 64 << 20;
/// Bytes of claimed messages beyond which nothing is claimed.
const MAX_CLAIMED_BYTES: usize = 32 << 20;

/// Claimed pairs of one endpoint that count against what may be in flight. Those beyond are of an endpoint that is fast:
/// they have room of their own, for pairs and for bytes, so that they take none from the others.
const BASE: usize = 64;
const MAX_BEYOND: usize = 4_096;
const MAX_BEYOND_BYTES: usize = 16 << 20;

/// Where a pair in memory came from: what it counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A window that everybody's events are read in.
    Fresh,
    /// A stream of partners that were set aside.
    Aside,
    /// The due table.
    Claimed,
    /// The due table, beyond the first few of an endpoint.
    Beyond,
}

/// What may still be claimed.
#[derive(Clone, Copy)]
pub struct Claimable {
    pub pairs: usize,
    pub bytes: usize,
    /// The same beyond the first few of each endpoint.
    pub beyond: usize,
    pub beyond_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct Share {
    pairs: usize,
    bytes: usize,
}

/// Every pair in memory: waiting or on the wire.
#[derive(Default)]
pub struct Memory {
    pairs: IdMap<Pair, (Lane, usize)>,
    shares: [Share; 4],
    /// Claimed pairs by endpoint: what a partner's endpoints hold together is bounded, too.
    claimed_by: IdMap<EndpointId, usize>,
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

    /// Every pair in memory.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.keys()
    }

    /// A pair came into memory, from a window or from the due table.
    pub fn enter(&mut self, pair: Pair, lane: Lane, bytes: usize) {
        let lane = match lane {
            Lane::Claimed if self.few_left(pair.endpoint) == 0 => Lane::Beyond,
            lane => lane,
        };
        if self.pairs.insert(pair, (lane, bytes)).is_none() {
            if lane == Lane::Claimed {
                *self.claimed_by.entry(pair.endpoint).or_default() += 1;
            }
            let share = self.share(lane);
            share.pairs += 1;
            share.bytes += bytes;
        }
    }

    /// A pair left memory.
    pub fn leave(&mut self, pair: Pair) {
        if let Some((lane, bytes)) = self.pairs.remove(&pair) {
            if lane == Lane::Claimed
                && let Some(count) = self.claimed_by.get_mut(&pair.endpoint)
            {
                *count -= 1;
                if *count == 0 {
                    self.claimed_by.remove(&pair.endpoint);
                }
            }
            let share = self.share(lane);
            share.pairs = share.pairs.saturating_sub(1);
            share.bytes = share.bytes.saturating_sub(bytes);
        }
    }

    /// A first-pass pair outlasted the first pass: it is counted like a claimed one from now on.
    pub fn outlasted(&mut self, pair: Pair) {
        if let Some((Lane::Fresh | Lane::Aside, bytes)) = self.pairs.get(&pair).copied() {
            self.leave(pair);
            self.enter(pair, Lane::Claimed, bytes);
        }
    }

    /// Whether another batch of new events may be read.
    pub fn has_room(&self, lane: Lane) -> bool {
        let share = self.shares[lane as usize];
        share.pairs < MAX_FRESH_PAIRS && share.bytes < MAX_FRESH_BYTES
    }

    /// New pairs in memory with their bytes.
    pub fn fresh(&self) -> impl Iterator<Item = (EndpointId, usize)> + '_ {
        self.pairs
            .iter()
            .filter(|(_, (lane, _))| *lane == Lane::Fresh)
            .map(|(pair, (_, bytes))| (pair.endpoint, *bytes))
    }

    /// New pairs of these endpoints count with those set aside from now on.
    pub fn set_aside(&mut self, is_aside: impl Fn(EndpointId) -> bool) {
        let [mut fresh, mut aside, claimed, beyond] = self.shares;
        for (pair, (lane, bytes)) in &mut self.pairs {
            if *lane == Lane::Fresh && is_aside(pair.endpoint) {
                *lane = Lane::Aside;
                fresh.pairs = fresh.pairs.saturating_sub(1);
                fresh.bytes = fresh.bytes.saturating_sub(*bytes);
                aside.pairs += 1;
                aside.bytes += *bytes;
            }
        }
        self.shares = [fresh, aside, claimed, beyond];
    }

    /// What may still be claimed when `limit` pairs are enough.
    pub fn claimable(&self, limit: usize) -> Claimable {
        let claimed = self.shares[Lane::Claimed as usize];
        let beyond = self.shares[Lane::Beyond as usize];
        Claimable {
            pairs: limit.saturating_sub(claimed.pairs),
            bytes: MAX_CLAIMED_BYTES.saturating_sub(claimed.bytes),
            beyond: MAX_BEYOND.saturating_sub(beyond.pairs),
            beyond_bytes: MAX_BEYOND_BYTES.saturating_sub(beyond.bytes),
        }
    }

    /// How many more claimed pairs of an endpoint count as its first few.
    pub fn few_left(&self, endpoint: EndpointId) -> usize {
        BASE.saturating_sub(self.claimed_by.get(&endpoint).copied().unwrap_or(0))
    }

    /// The first few claimed pairs of each endpoint that has some.
    pub fn claimed_by(&self) -> impl Iterator<Item = (EndpointId, usize)> + '_ {
        self.claimed_by.iter().map(|(id, count)| (*id, *count))
    }

    fn share(&mut self, lane: Lane) -> &mut Share {
        &mut self.shares[lane as usize]
    }
}
