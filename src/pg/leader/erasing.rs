//! Payloads that were erased while pairs in memory still hold them. Erasing raises a counter in shared memory when it
//! commits, before its caller hears of it; nothing is handed to a thread while that counter is ahead of what was looked
//! through. So nothing but a request on the wire outlives an erasure, and an erasure costs one look-up of what is in
//! memory, however much it erased.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Leader;
use super::transaction::{Trouble, terminating, transaction};
use crate::pg::outbox::{self, Change, hold};
use crate::rules::ids::{EventId, Pair};

/// Tombstones looked at in one round for excerpts that came after the erasure.
const SWEEP: i32 = 500;
/// What holds a pair because of its payload: without one there is nothing to wait for.
const FOR_PAYLOAD: i32 = hold::FILTER | hold::CONVERSION;

/// After somebody held what is to be deleted.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// What is known of erased payloads.
pub struct Erasing {
    /// The counter when memory was looked through last. It goes with each request, and the threads compare it, too.
    known: u64,
    /// Pairs in memory that are to be read again.
    stale: HashSet<Pair>,
    /// There may be tombstones whose excerpts were not looked for.
    to_sweep: bool,
    sweep_after: Instant,
}

impl Erasing {
    /// At the beginning of a life, with nothing in memory.
    pub fn new(known: u64) -> Erasing {
        Erasing {
            known,
            stale: HashSet::new(),
            to_sweep: true,
            sweep_after: Instant::now(),
        }
    }

    /// The counter when memory was looked through last.
    pub fn looked_through(&self) -> u64 {
        self.known
    }

    /// Whether a pair is to be read again before it is sent; it is asked once.
    pub fn forget(&mut self, pair: Pair) -> bool {
        !self.stale.is_empty() && self.stale.remove(&pair)
    }
}

impl Leader {
    /// Whether payloads are gone that memory was not looked through for.
    pub fn must_forget(&self) -> bool {
        self.slot.expunged() != self.erasing.known
    }

    /// Finds the pairs in memory whose payload is gone.
    pub fn forget_expunged(&mut self) -> Result<(), Trouble> {
        if self.must_forget() {
            self.take_back();
            // Before looking: what commits meanwhile raises it again.
            let known = self.slot.expunged();
            let mut events: Vec<EventId> = self.memory.pairs().map(|pair| pair.event).collect();
            events.sort_unstable();
            events.dedup();
            let gone: HashSet<EventId> = if events.is_empty() {
                HashSet::new()
            } else {
                transaction(
                    self.owner,
                    false,
                    c"webhook leader: looking for erased payloads",
                    || outbox::expunged_of(&events).into_iter().collect(),
                )?
            };
            let stale = self
                .memory
                .pairs()
                .filter(|pair| gone.contains(&pair.event));
            self.erasing.stale.extend(stale.copied());
            self.erasing.known = known;
            self.erasing.to_sweep = true;
        }
        if !self.erasing.to_sweep || Instant::now() < self.erasing.sweep_after {
            return Ok(());
        }
        // A pair that waits for the payload may not be in its table yet.
        let waits = |change: &Change| change.hold & FOR_PAYLOAD != 0;
        if self.outcomes.changes.iter().any(waits) {
            self.write()?;
        }
        // An answer that came while the erasure was not committed may have left an excerpt behind its back. Results on
        // their way are written with the tombstones in sight.
        let at = self.stamp(self.clock.now());
        let swept = transaction(
            self.owner,
            false,
            c"webhook leader: deleting what came after an erasure",
            || outbox::sweep(SWEEP, FOR_PAYLOAD, at),
        );
        let swept = match swept {
            Ok(swept) => swept,
            // Somebody erases the same once more: nothing that is to be sent waits for him.
            Err(Trouble::Passing(_)) if !terminating() => {
                self.erasing.sweep_after = Instant::now() + SWEEP_AGAIN;
                return Ok(());
            }
            Err(trouble) => return Err(trouble),
        };
        self.erasing.to_sweep = swept.events >= usize::try_from(SWEEP).unwrap_or(0);
        self.note_released(&swept.free);
        for subject in swept.subjects {
            self.turns.add(subject);
        }
        Ok(())
    }
}
