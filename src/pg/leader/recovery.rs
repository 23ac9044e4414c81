//! The beginning of a life: where the last one stood, and what it left in doubt.
//!
//! A batch that was opened and not closed is in doubt: its pairs without an outcome may have been
//! sent. Each gets a numbered attempt of category `lost` and is sent again; the receiver recognises
//! the event id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::Leader;
use super::control::Turns;
use super::pair::subject_of;
use super::telling::raise;
use super::transaction::{Trouble, transaction};
use super::window::Window;
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Amount, Attempted, Change, Outcomes, Place, Position, Row, hold};
use crate::pg::wal;
use crate::rules::delivery::{Category, State};
use crate::rules::ids::Pair;
use crate::rules::snapshot::Snapshot;

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
/// Events of a doubtful batch read at a time.
const CHUNK: Amount = Amount {
    scan: 10_000,
    events: 500,
    bytes: 8 << 20,
};

impl Leader {
    /// In a young life: makes sure that what was opened last survives a crash of the server.
    pub fn be_cautious(&self) {
        if self.clock.age() < CAUTION {
            wal::make_last_commit_durable();
        }
    }

    /// Whether this life has still to find out what was asked of the last one.
    pub fn is_finding_its_way(&self) -> bool {
        self.requests_waiting && self.clock.age() < CAUTION
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

    /// Events of a doubtful window batch are read again and matched by today's configuration.
    fn resolve_window(&mut self, batch: &Position) -> Result<(), Trouble> {
        let (Some(prev), Some(cur)) = (&batch.prev, &batch.cur) else {
            return Ok(());
        };
        let origin = self.origin;
        let mut after = batch.from.clone();
        loop {
            let known = &self.seal_keys;
            let (stretch, seal_keys) = transaction(
                self.owner,
                true,
                c"webhook leader: reading a doubtful batch",
                || {
                    let stretch =
                        outbox::read_window(origin, (prev, cur), &after, &batch.whose, CHUNK);
                    let seal_keys = outbox::seal_keys(&[origin], stretch.seal_keys(), known);
                    (stretch, seal_keys)
                },
            )?;
            self.seal_keys.extend(seal_keys);
            let rows: Vec<_> = stretch
                .rows
                .into_iter()
                .filter(|seen| seen.place <= batch.to)
                .collect();
            let Some(to) = stretch.to else { break };
            after = to;
            let mut pairs = Vec::new();
            let mut subjects = HashMap::new();
            let sound: Vec<&Row> = rows
                .iter()
                .filter_map(|seen| seen.row.as_ref())
                .filter(|row| !row.withheld() && self.sealed(row))
                .collect();
            let filtered = self.filter_batch(&sound, Some(cur), true)?;
            for row in sound {
                let class = self.configuration.class(&row.event.kind);
                let subject = subject_of(&row.event);
                for endpoint in self.configuration.matches_any(&row.event, row.xid) {
                    let event = row.event.id;
                    let pair = Pair { event, endpoint };
                    let Some(bits) = self.filtered(&filtered, pair) else {
                        continue;
                    };
                    let mut held = self.holds(endpoint, &row.event.kind, subject.as_ref());
                    held.0 |= bits;
                    if held.0 != 0 {
                        subjects.insert(pair, held);
                    }
                    pairs.push((pair, class));
                }
            }
            self.lose_unknown(&pairs, &subjects, cur)?;
            if !stretch.more || after >= batch.to {
                break;
            }
        }
        self.close(batch.batch)
    }

    /// Pairs without a delivery row get their first attempt, lost. Those of ordered endpoints cannot have
    /// been sent: they are parked, as they would have been.
    fn lose_unknown(
        &mut self,
        pairs: &[(Pair, i16)],
        held: &HashMap<Pair, (i32, Option<Arc<str>>)>,
        cur: &Snapshot,
    ) -> Result<(), Trouble> {
        let keys: Vec<Pair> = pairs.iter().map(|(pair, _)| *pair).collect();
        let (known, revisions) = transaction(
            self.owner,
            false,
            c"webhook leader: reading deliveries",
            || {
                let endpoints = keys.iter().map(|pair| pair.endpoint);
                (
                    outbox::known_pairs(&keys),
                    outbox::revisions_as_of(endpoints, cur),
                )
            },
        )?;
        let at = self.stamp(self.clock.now());
        let changes = pairs
            .iter()
            .filter(|(pair, _)| !known.contains_key(pair))
            .map(|(pair, class)| {
                let mut lost = self.lost(*pair, *class, 1, 0, at, None);
                // What may have been sent had the shape of that window, whatever was chosen since.
                if let Some(revision) = revisions.get(&pair.endpoint) {
                    lost.revision = *revision;
                }
                // Sent to or not before it closed: it is told, and not sent again.
                if self.closed(pair.endpoint) {
                    return Change {
                        state: "cancelled",
                        reason: Some(self.closing_reason(pair.endpoint)),
                        next_attempt_at: None,
                        ..lost
                    };
                }
                match held.get(pair) {
                    Some((bits, _)) if bits & (hold::ORDER | hold::FILTER) == 0 => Change {
                        hold: *bits,
                        ..lost
                    },
                    Some((bits, subject)) => Change {
                        state: "pending",
                        attempt_count: 0,
                        series_start: 0,
                        attempt: None,
                        series_at: None,
                        deaths: 0,
                        hold: *bits,
                        category: (bits & hold::FILTER != 0).then_some(Category::Filter),
                        subject: subject.clone(),
                        ..lost
                    },
                    None => lost,
                }
            })
            .collect();
        self.lose(changes, at)
    }

    /// Pairs of a claim whose attempt was not recorded get it, lost. One that was cancelled meanwhile
    /// stays so, but the attempt that may have been made is told.
    fn resolve_claim(&mut self, batch: &Position) -> Result<(), Trouble> {
        let keys: Vec<Pair> = batch.pairs.iter().map(|(pair, _)| *pair).collect();
        let (known, mut waiting) = transaction(
            self.owner,
            true,
            c"webhook leader: reading deliveries",
            || (outbox::known_pairs(&keys), outbox::due_rows(&keys)),
        )?;
        let at = self.stamp(self.clock.now());
        let mut changes = Vec::new();
        for (pair, attempt) in &batch.pairs {
            let Some(known) = known.get(pair) else {
                continue;
            };
            if known.attempt_count != attempt - 1 {
                continue;
            }
            if let Some(row) = waiting.remove(pair) {
                let lost = self.lost(
                    *pair,
                    row.class,
                    *attempt,
                    known.series_start,
                    at,
                    Some(row.at),
                );
                let deaths = row.deaths.saturating_add(self.deaths);
                let quarantined = deaths > SUSPECT_AFTER;
                if quarantined {
                    self.tell_quarantined(*pair);
                }
                changes.push(Change {
                    series_at: row.series_at.or(lost.series_at),
                    deaths,
                    hold: row.hold | if quarantined { hold::QUARANTINE } else { 0 },
                    subject: row.subject.map(Arc::from),
                    ..lost
                });
            } else if let Ok(state) = known.state.parse::<State>() {
                changes.push(Change {
                    state: state.as_str(),
                    reason: known.reason.clone(),
                    next_attempt_at: None,
                    ..self.lost(*pair, 1, *attempt, known.series_start, at, Some(at))
                });
            }
        }
        self.lose(changes, at)?;
        self.close(batch.batch)
    }

    fn lost(
        &self,
        pair: Pair,
        class: i16,
        attempt: i32,
        series_start: i32,
        at: i64,
        due: Option<i64>,
    ) -> Change {
        Change {
            pair,
            batch: 0,
            revision: self
                .configuration
                .endpoint(pair.endpoint)
                .map_or(1, |endpoint| endpoint.revision),
            class,
            // Nobody knows what the receiver did: the schedule does not count the attempt.
            series_start: series_start + 1,
            state: "retrying",
            reason: None,
            attempt_count: attempt,
            attempt: Some(lost_attempt()),
            category: None,
            next_attempt_at: Some(at),
            hold: 0,
            series_at: Some(at),
            deaths: self.deaths,
            subject: None,
            due,
            on_wire: false,
        }
    }

    fn lose(&mut self, changes: Vec<Change>, at: i64) -> Result<(), Trouble> {
        let queues: Vec<_> = changes
            .iter()
            .filter(|change| change.next_attempt_at.is_some() && change.hold == 0)
            .map(|change| (change.pair.endpoint, change.class))
            .collect();
        let outcomes = Outcomes {
            changes,
            alerts: std::mem::take(&mut self.outcomes.alerts),
            ..Outcomes::default()
        };
        let (n, incarnation) = (self.last_n, self.incarnation);
        let recorded = transaction(
            self.owner,
            false,
            c"webhook leader: recording lost attempts",
            || {
                let recorded = outbox::record(&outcomes, incarnation, n, at, |_| false);
                raise(&outcomes.alerts);
                recorded
            },
        )?;
        self.slot
            .counters
            .written(&outcomes, crate::pg::emit::now_micros());
        self.note_released(&recorded.released);
        let lost = outcomes
            .changes
            .iter()
            .filter(|change| change.attempt.is_some())
            .count();
        self.slot.lost.fetch_add(
            u64::try_from(lost).unwrap_or(0),
            std::sync::atomic::Ordering::Relaxed,
        );
        for queue in queues {
            self.queue_behind(queue);
            self.note_due(queue, at);
        }
        Ok(())
    }

    fn close(&mut self, batch: i64) -> Result<(), Trouble> {
        let outcomes = Outcomes {
            closed: vec![batch],
            ..Outcomes::default()
        };
        let (n, incarnation) = (self.last_n, self.incarnation);
        self.last_n = transaction(
            self.owner,
            false,
            c"webhook leader: closing a batch",
            || outbox::record(&outcomes, incarnation, n, 0, |_| false).n,
        )?;
        Ok(())
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

fn lost_attempt() -> Attempted {
    Attempted {
        started_at: now_micros(),
        latency_ms: None,
        status: None,
        category: Some(Category::Lost),
        phase: None,
        detail: Some(
            "the leader ended before the outcome was known; the request may have been sent"
                .to_owned(),
        ),
        key_ids: Vec::new(),
        body_sha256: None,
        response_bytes: 0,
        excerpt: None,
    }
}
