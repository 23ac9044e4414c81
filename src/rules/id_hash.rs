//! Maps by ids. Ids are made here, with random bits, so nobody can choose them to collide: what the standard hasher does
//! against that cost 3 % of the leader's main thread.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by event, endpoint, pair or ticket.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The same without values.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Folds each number into the state by one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Both halves of the product: the map takes its place from the low bits and its tag from the high ones.
        let product = u128::from(self.0 ^ number ^ SEED) * u128::from(FACTOR);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }
}

/// Odd, with as many ones as zeros: the fraction of the golden ratio and that of the square root of 2.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const SEED: u64 = 0x6a09_e667_f3bc_c909;

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::*;
    use crate::rules::ids::{EndpointId, EventId, Pair};

    fn hash(value: impl Hash) -> u64 {
        let mut hasher = IdHasher::default();
        value.hash(&mut hasher);
        hasher.finish()
    }

    /// In a map of 1,024 places, 1,024 keys at random leave some 37 % of them empty.
    fn places(hashes: impl Iterator<Item = u64>) -> usize {
        hashes.map(|hash| hash % 1024).collect::<HashSet<_>>().len()
    }

    #[test]
    fn ids_that_follow_one_another_spread_over_the_places_of_a_map() {
        let tickets = places((0..1024_u64).map(hash));
        let endpoints =
            places((0..1024).map(|ms| hash(EndpointId::new(1_796_000_000_000 + ms, 0))));
        let event = EventId::new(1_796_000_000_000, 7);
        let events = places((0..1024).scan(event, |event, _| {
            *event = event.next();
            Some(hash(*event))
        }));
        let pairs = places((0..1024).map(|n| {
            hash(Pair {
                event,
                endpoint: EndpointId(n),
            })
        }));
        for taken in [tickets, endpoints, events, pairs] {
            assert!(taken > 550, "{taken} of 1024 places");
        }
    }

    #[test]
    fn the_high_bits_tell_neighbours_apart_too() {
        let tags: HashSet<u64> = (0..1024_u64).map(|ticket| hash(ticket) >> 57).collect();
        assert!(tags.len() > 100, "{} of 128 tags", tags.len());
    }
}
