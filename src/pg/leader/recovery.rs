//! The beginning of a life: where the last one stood, and what it had begun. What it left in doubt is decided about
//! in `doubt`.

use std::collections::HashSet;
use std::time::Duration;

use super::Leader;
use super::control::Turns;
use super::transaction::{Trouble, transaction};
use super::window::Window;
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Place, Position};
use crate::pg::wal;

/// No wait is longer than this, so a stamp farther ahead was written by a wrong clock.
const FARTHEST: i64 = 31 * 86_400_000_000;
/// Lives that ended while a pair was in doubt, in a row, after which it is sent alone; one more, and it is
/// held until somebody looks at it.
pub const SUSPECT_AFTER: i16 = 3;
/// The batch that is closed by a life which ends in order.
pub const ORDERLY: i64 = 0;
/// For so long a new life has on disk what it is about to send before it sends it: should it end at once,
/// the next one knows what was in doubt.
const CAUTION: Duration = Duration::from_secs(10);

impl Leader {
    /// In a young life: makes sure that what was opened last survives a crash of the server.
    pub fn be_cautious(&self) {
        if self.is_young() {
            wal::make_last_commit_durable();
        }
    }

    /// Whether this life may still end by what ended the last one.
    pub fn is_young(&self) -> bool {
        self.clock.age() < CAUTION
    }

    /// Whether this life has still to find out what was asked of the last one.
    pub fn is_finding_its_way(&self) -> bool {
        self.requests_waiting && self.is_young()
    }

    /// Takes up where the last life ended.
    pub fn recover(&mut self) -> Result<(), Trouble> {
        let origin = self.origin;
        let recent = now_micros() - 60_000_000;
        let (ledger, configuration, conditions, (admitted, pos), due, (tries, warned)) =
            transaction(
                self.owner,
                true,
                c"webhook leader: reading its position",
                || {
                    (
                        outbox::ledger(),
                        (
                            outbox::changed_event_types(None),
                            outbox::changed_policies(None),
                            outbox::changed_pauses(None),
                            outbox::changed_endpoints(None),
                        ),
                        outbox::conditions(),
                        (outbox::admitted_origins(origin), outbox::last_adopted_pos()),
                        outbox::due_endpoints(),
                        (outbox::tries(recent), outbox::warned_of_expiry()),
                    )
                },
            )?;
        self.adoptions.admit(admitted);
        let latest = self.clock.now() + FARTHEST;
        let (types, policies, pauses, endpoints) = configuration;
        self.configuration.apply_types(types);
        self.configuration.apply_policies(policies);
        self.configuration.apply_pauses(pauses);
        let applied = self.configuration.apply(endpoints);
        self.note_keys(&applied);
        self.upkeep.changed(&applied.changed);
        self.set_all_limits();
        self.restore_conditions(conditions);
        self.restore_proofs(tries, warned);
        for next in due {
            self.queue_behind((next.endpoint, next.class));
            self.note_due((next.endpoint, next.class), next.at.min(latest));
        }
        self.place(&ledger);
        self.last_pos = self.last_pos.max(pos);
        let orderly = ledger
            .last()
            .is_some_and(|row| row.kind == "close" && row.batch == ORDERLY);
        self.deaths = i16::from(!orderly);
        self.incarnation = ledger.iter().map(|row| row.incarnation).max().unwrap_or(0) + 1;
        self.last_n += 1;
        let (n, incarnation) = (self.last_n, self.incarnation);
        self.slot
            .incarnation
            .store(incarnation, std::sync::atomic::Ordering::Relaxed);
        transaction(self.owner, false, c"webhook leader: beginning", || {
            outbox::clamp_due(latest);
            outbox::start_life(n, incarnation);
        })?;
        // Nothing is sent before it is durable: what the last life read, and this one goes on with,
        // may have been committed asynchronously and be flushed by nobody yet.
        wal::make_last_commit_durable();
        for batch in in_doubt(&ledger) {
            match batch.kind.as_str() {
                "window" => self.resolve_window(batch)?,
                _ => self.resolve_claim(batch)?,
            }
        }
        // What was asked of the last life may be about the very pairs that are due again.
        self.requests_waiting = true;
        // What the last life had begun to release.
        let (types, endpoints) = transaction(
            self.owner,
            false,
            c"webhook leader: reading what is held",
            || (outbox::held_types(), outbox::held_endpoints()),
        )?;
        self.to_release = types
            .into_iter()
            .map(|kind| (kind, Place::default()))
            .collect();
        for id in &endpoints {
            self.judge_again(*id, false);
        }
        self.to_free = endpoints
            .into_iter()
            .map(|id| (id, String::new()))
            .collect();
        // Queues of endpoints that closed while nobody looked.
        let mut closed: Vec<_> = self.due.keys().map(|queue| queue.0).collect();
        closed.extend(self.to_free.iter().map(|(id, _)| *id));
        closed.sort_unstable();
        closed.dedup();
        closed.retain(|id| self.closed(*id));
        for id in closed {
            self.close_endpoint(id);
        }
        // Turns that the last life did not come to. In the middle of a window its end is waited for.
        self.turns = Turns::unknown();
        self.take_turns()?;
        // What is in doubt is counted, whatever ends this life, and however soon.
        wal::make_last_commit_durable();
        Ok(())
    }

    /// Finds the window position: the newest window row, or the very first row of the ledger.
    fn place(&mut self, ledger: &[Position]) {
        self.last_n = ledger.last().map_or(0, |row| row.n);
        self.last_batch = ledger.iter().map(|row| row.batch).max().unwrap_or(0);
        self.last_pos = ledger.iter().map(|row| row.pos).max().unwrap_or(0);
        self.place_asides(ledger);
        let newest = ledger
            .iter()
            .rev()
            .find(|row| row.stream == 0 && row.prev.is_some() && row.cur.is_some());
        if let Some(row) = newest {
            self.position_n = row.n;
            self.window = if row.kind == "window" {
                Window {
                    prev: row.prev.clone(),
                    cur: row.cur.clone(),
                    after: row.to.clone(),
                    placed: true,
                    ..Window::default()
                }
            } else {
                Window {
                    prev: row.cur.clone(),
                    placed: true,
                    ..Window::default()
                }
            };
        }
    }
}

/// Batches that were opened and not closed, oldest first.
fn in_doubt(ledger: &[Position]) -> Vec<&Position> {
    let closed: HashSet<i64> = ledger
        .iter()
        .filter(|row| row.kind == "close")
        .map(|row| row.batch)
        .collect();
    ledger
        .iter()
        .filter(|row| {
            matches!(row.kind.as_str(), "window" | "claim") && !closed.contains(&row.batch)
        })
        .collect()
}
