//! The keys of an endpoint, and which of them sign at a given time: the end of an overlap takes effect by the clock,
//! without anybody changing anything.

use std::sync::Arc;

use crate::rules::signing::{Key, SigningKey};

/// A key and the end of its validity.
#[derive(Clone, Debug)]
pub struct HeldKey {
    /// The key.
    pub key: SigningKey,
    /// It signs before this time, microseconds since 1970; none = without an end.
    pub valid_until: Option<i64>,
}

/// The keys of an endpoint in the order in which they sign.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// The end of a time and the keys that sign until then; ends rise, so the first set holds every key. Made
    /// beforehand, because each attempt asks.
    sets: Vec<(i64, Arc<Vec<SigningKey>>)>,
}

impl Keyring {
    /// Holds these keys.
    pub fn new(keys: &[HeldKey]) -> Keyring {
        let end = |held: &HeldKey| held.valid_until.unwrap_or(i64::MAX);
        let mut ends: Vec<i64> = keys.iter().map(end).collect();
        ends.sort_unstable();
        ends.dedup();
        let until = |until: i64| {
            let keys = keys.iter().filter(|held| end(held) >= until);
            Arc::new(keys.map(|held| held.key.clone()).collect())
        };
        Keyring {
            sets: ends.into_iter().map(|at| (at, until(at))).collect(),
        }
    }

    /// The keys that sign at this time, microseconds since 1970.
    pub fn at(&self, now: i64) -> Arc<Vec<SigningKey>> {
        self.sets
            .iter()
            .find(|(end, _)| now < *end)
            .map_or_else(Arc::default, |(_, keys)| Arc::clone(keys))
    }

    /// A key by its id, whether it still signs or not.
    pub fn key(&self, id: i64) -> Option<&Key> {
        let (_, keys) = self.sets.first()?;
        keys.iter().find(|key| key.id == id).map(|key| &key.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::signing::Secret;
    use proptest::prelude::*;

    fn held(id: i64, valid_until: Option<i64>) -> HeldKey {
        HeldKey {
            key: SigningKey {
                id,
                key: Secret::generate([7; 32]).into(),
            },
            valid_until,
        }
    }

    fn ids(ring: &Keyring, now: i64) -> Vec<i64> {
        ring.at(now).iter().map(|key| key.id).collect()
    }

    #[test]
    fn an_overlap_ends_at_its_time_and_not_before() {
        let ring = Keyring::new(&[held(3, None), held(2, Some(200)), held(1, Some(100))]);
        assert_eq!(ids(&ring, 99), [3, 2, 1]);
        assert_eq!(ids(&ring, 100), [3, 2]);
        assert_eq!(ids(&ring, 199), [3, 2]);
        assert_eq!(ids(&ring, 200), [3]);
        assert!(ring.key(1).is_some() && ring.key(4).is_none());
    }

    #[test]
    fn without_keys_nothing_signs() {
        assert!(ids(&Keyring::default(), 0).is_empty());
        assert!(ids(&Keyring::new(&[held(1, Some(5))]), 5).is_empty());
    }

    proptest! {
        #[test]
        fn exactly_the_valid_keys_sign_in_their_order(
            ends in proptest::collection::vec(proptest::option::of(-3i64..3), 0..5), now in -4i64..4,
        ) {
            let keys: Vec<HeldKey> = ends.iter().zip(1..).map(|(end, id)| held(id, *end)).collect();
            let expected: Vec<i64> = keys
                .iter()
                .filter(|held| held.valid_until.is_none_or(|end| now < end))
                .map(|held| held.key.id)
                .collect();
            prop_assert_eq!(ids(&Keyring::new(&keys), now), expected);
        }
    }
}
