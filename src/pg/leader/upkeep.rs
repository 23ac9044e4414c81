//! Housekeeping: partitions ahead of time, a short ledger, and since when a change of an endpoint is known.

use std::time::{Duration, Instant};

use super::Leader;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox;
use crate::rules::ids::EndpointId;

/// Tables with daily partitions.
const PARTITIONED: [&str; 6] = [
    "_event",
    "_event_version",
    "_feed",
    "_delivery",
    "_attempt",
    "_excerpt",
];
/// Days that have a partition before they begin.
const DAYS_AHEAD: i32 = 30;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Ledger rows after which old ones are deleted.
const TRIM_EVERY: i64 = 1_000;

/// What housekeeping remembers.
pub struct Upkeep {
    /// Next (day, table) to look after.
    next_day: i32,
    next_table: usize,
    not_before: Instant,
    trimmed_at: i64,
    /// Endpoints that were read anew, to be written down for reconciliation.
    changed: Vec<EndpointId>,
}

impl Upkeep {
    pub fn new() -> Upkeep {
        Upkeep {
            next_day: today() + 1,
            next_table: 0,
            not_before: Instant::now(),
            trimmed_at: 0,
            changed: Vec::new(),
        }
    }

    /// The leader goes by what these endpoints are now.
    pub fn changed(&mut self, ids: &[EndpointId]) {
        self.changed.extend(ids);
    }
}

impl Leader {
    /// One small piece of housekeeping per round.
    pub fn keep_house(&mut self) -> Result<(), Trouble> {
        if !self.upkeep.changed.is_empty() {
            self.note_seen()?;
        }
        if self.outcomes.changes.is_empty()
            && self.outcomes.closed.is_empty()
            && self.last_n - self.upkeep.trimmed_at > TRIM_EVERY
        {
            self.trim()?;
        }
        if self.house_pause() == Some(Duration::ZERO) {
            self.upkeep.not_before = Instant::now()
                + if self.make_next_partition().is_ok() {
                    Duration::from_millis(100)
                } else {
                    Duration::from_secs(10)
                };
        }
        Ok(())
    }

    /// How long until the next partition is to be made; none = not now.
    pub fn house_pause(&self) -> Option<Duration> {
        let idle = self.flights.is_empty() && self.scheduler.waiting() == 0;
        // Tomorrow's partitions cannot wait for a quiet moment: once the day has begun it is too late.
        let urgent = self.upkeep.next_day <= today() + 2;
        // Until an event of this database was read it may be a copy that is still being restored, and
        // the restore brings partitions of its own.
        let wanted = self.last_pos > 0 && self.upkeep.next_day <= today() + DAYS_AHEAD;
        (wanted && (idle || urgent)).then(|| {
            self.upkeep
                .not_before
                .saturating_duration_since(Instant::now())
        })
    }

    /// Tells reconciliation since when the changes of endpoints that were read count. An endpoint that was never changed
    /// counts since it was made.
    fn note_seen(&mut self) -> Result<(), Trouble> {
        let mut ids = std::mem::take(&mut self.upkeep.changed);
        ids.sort_unstable();
        ids.dedup();
        let (endpoints, changes): (Vec<i64>, Vec<u64>) = ids
            .iter()
            .filter_map(|id| Some((id.0, self.configuration.endpoint(*id)?)))
            .filter(|(_, endpoint)| endpoint.changed_xid != endpoint.created_xid)
            .map(|(id, endpoint)| (id, endpoint.changed_xid))
            .unzip();
        if endpoints.is_empty() {
            return Ok(());
        }
        let noted = transaction(
            self.owner,
            false,
            c"webhook leader: noting which changes of endpoints it knows",
            || outbox::note_seen(endpoints, &changes),
        );
        if noted.is_err() {
            self.upkeep.changed = ids;
        }
        noted
    }

    fn make_next_partition(&mut self) -> Result<(), Trouble> {
        let (day, table) = (self.upkeep.next_day, PARTITIONED[self.upkeep.next_table]);
        transaction(
            self.owner,
            false,
            c"webhook leader: making a partition",
            || {
                outbox::add_partition(table, day);
            },
        )?;
        self.upkeep.next_table += 1;
        if self.upkeep.next_table == PARTITIONED.len() {
            self.upkeep.next_table = 0;
            self.upkeep.next_day += 1;
        }
        Ok(())
    }

    /// Deletes ledger rows older than the oldest open batch.
    fn trim(&mut self) -> Result<(), Trouble> {
        let low = self
            .batches
            .values()
            .map(|batch| batch.n)
            .chain(self.stuck.values().copied())
            .min()
            .unwrap_or(self.last_n);
        let mut positions = vec![self.position_n];
        positions.extend(self.asides.iter().map(|aside| aside.position_n));
        transaction(
            self.owner,
            false,
            c"webhook leader: trimming its ledger",
            || {
                outbox::trim_ledger(low, positions);
            },
        )?;
        self.upkeep.trimmed_at = self.last_n;
        Ok(())
    }
}

fn today() -> i32 {
    i32::try_from(now_micros().div_euclid(MICROS_PER_DAY)).unwrap_or(0)
}
