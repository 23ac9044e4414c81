//! Transaction snapshots as PostgreSQL writes them (`xmin:xmax:xip,...`), and what is visible in them.
//!
//! The window between two snapshots ("visible in the later, not in the earlier") finds every
//! committed row exactly once, whatever order transactions commit in, and waits for nobody.
//! Never looks at a row's own xmin: that may be a subtransaction's; only top-level ids are stored.

use std::fmt;
use std::str::FromStr;

/// A snapshot: transactions below `xmin` have ended, from `xmax` on have not begun, `running` ran.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// Sorted.
    running: Vec<u64>,
}

/// The text is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSnapshot;

impl fmt::Display for InvalidSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid transaction snapshot")
    }
}

impl std::error::Error for InvalidSnapshot {}

impl Snapshot {
    /// Whether a transaction had ended when the snapshot was taken. Rows of aborted ones do not
    /// exist for any reader, so "ended" means "committed" for every row that is read at all.
    pub fn sees(&self, transaction: u64) -> bool {
        transaction < self.xmin
            || (transaction < self.xmax && self.running.binary_search(&transaction).is_err())
    }

    /// First transaction that had not begun.
    pub fn xmax(&self) -> u64 {
        self.xmax
    }

    /// Whether it was taken after another one of the same server: time only lets transactions begin and end.
    pub fn is_after(&self, other: &Snapshot) -> bool {
        self.xmax > other.xmax
            || (self.xmax == other.xmax && self.running.len() < other.running.len())
    }

    /// Transactions that ran.
    pub fn running(&self) -> &[u64] {
        &self.running
    }
}

impl FromStr for Snapshot {
    type Err = InvalidSnapshot;

    fn from_str(text: &str) -> Result<Self, InvalidSnapshot> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or(InvalidSnapshot);
        let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidSnapshot);
        let xmin = number(next()?)?;
        let xmax = number(next()?)?;
        let list = next()?;
        let mut running = Vec::new();
        for part in list.split(',').filter(|part| !part.is_empty()) {
            running.push(number(part)?);
        }
        running.sort_unstable();
        if xmin > xmax || running.iter().any(|id| *id < xmin || *id >= xmax) {
            return Err(InvalidSnapshot);
        }
        Ok(Snapshot {
            xmin,
            xmax,
            running,
        })
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (index, id) in self.running.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{id}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_running_transaction_is_not_seen_and_its_neighbours_are() {
        let snapshot: Snapshot = "10:20:10,14,17".parse().expect("valid");
        let seen: Vec<u64> = (8..22).filter(|id| snapshot.sees(*id)).collect();
        assert_eq!(seen, [8, 9, 11, 12, 13, 15, 16, 18, 19]);
    }

    #[test]
    fn text_that_is_no_snapshot_is_refused() {
        for bad in ["", "1", "1:2", "2:1:", "1:5:9", "5:9:1", "a:b:", "1:5:2,x"] {
            assert_eq!(bad.parse::<Snapshot>(), Err(InvalidSnapshot), "{bad:?}");
        }
    }

    proptest! {
        /// Every transaction falls into exactly one of any chain of windows.
        #[test]
        fn successive_windows_share_no_transaction_and_skip_none(
            ends in proptest::collection::vec(0_usize..6, 1..60)
        ) {
            // Transaction i begins at step i and ends `ends[i]` steps later; snapshots at each step.
            let last = ends.len() + 8;
            let at = |step: usize| -> Snapshot {
                let begun = step.min(ends.len());
                let running: Vec<u64> = (0..begun)
                    .filter(|i| i + ends[*i] >= step)
                    .map(|i| i as u64 + 100)
                    .collect();
                let xmax = begun as u64 + 100;
                let xmin = running.first().copied().unwrap_or(xmax);
                Snapshot { xmin, xmax, running }
            };
            let mut found = vec![0; ends.len()];
            let mut previous = at(0);
            for step in 1..=last {
                let current = at(step);
                prop_assert!(!previous.is_after(&current));
                prop_assert_eq!(current.is_after(&previous), current != previous);
                for (i, count) in found.iter_mut().enumerate() {
                    let id = i as u64 + 100;
                    if current.sees(id) && !previous.sees(id) {
                        *count += 1;
                    }
                }
                previous = current;
            }
            prop_assert!(found.iter().all(|count| *count == 1), "{found:?}");
        }

        #[test]
        fn a_snapshot_survives_its_text(xmin in 0_u64..1000, width in 0_u64..50, picks in proptest::collection::btree_set(0_u64..50, 0..10)) {
            let running: Vec<u64> = picks.into_iter().filter(|p| *p < width).map(|p| xmin + p).collect();
            let snapshot = Snapshot { xmin, xmax: xmin + width, running };
            prop_assert_eq!(snapshot.to_string().parse::<Snapshot>(), Ok(snapshot));
        }
    }
}
