//! What a life left in doubt. A batch that was opened and not closed is: its pairs without an outcome may have been
//! sent. Each of those gets a numbered attempt of category `lost` and is sent again, the same byte for byte; the
//! receiver recognises the event id.
//!
//! What cannot have been sent is told apart by asking again what was asked when the batch was opened, with the same
//! answers: filters, shapes and versions are those of its window. It waits as it did, and no attempt is counted.

use std::collections::HashMap;
use std::sync::Arc;

use super::Leader;
use super::dispatch::held_by;
use super::filtering::{Candidate, Verdicts};
use super::pair::subject_of;
use super::recovery::SUSPECT_AFTER;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Amount, Change, DueRow, Known, Position, Row, Versions, hold};
use crate::rules::delivery::State;
use crate::rules::ids::{EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// Events of a doubtful batch read at a time.
const CHUNK: Amount = Amount {
    scan: 10_000,
    events: 500,
    bytes: 8 << 20,
};
/// Bits of what is never sent while they are set.
const UNSENT: i32 = hold::ORDER | hold::FILTER | hold::CONVERSION;

/// What is known of a pair of a window without a delivery row.
struct Doubt {
    pair: Pair,
    class: i16,
    /// Shape that it was sent in, if it was.
    revision: i32,
    /// It may have been sent.
    sent: bool,
    hold: i32,
    subject: Option<Arc<str>>,
    /// Why it waits.
    reason: Option<String>,
}

impl Leader {
    /// Events of a doubtful window batch are read again, and matched by the subscriptions of today.
    pub fn resolve_window(&mut self, batch: &Position) -> Result<(), Trouble> {
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
            let sound: Vec<&Row> = rows
                .iter()
                .filter_map(|seen| seen.row.as_ref())
                .filter(|row| !row.withheld() && self.sealed(row))
                .collect();
            self.resolve_rows(&sound, cur)?;
            if !stretch.more || after >= batch.to {
                break;
            }
        }
        self.close(batch.batch)
    }

    /// The pairs of these events that have no row.
    fn resolve_rows(&mut self, rows: &[&Row], cur: &Snapshot) -> Result<(), Trouble> {
        let mut pairs: Vec<(&Row, Pair)> = Vec::new();
        for row in rows {
            let event = row.event.id;
            let emitted_at = i64::try_from(event.unix_ms()).unwrap_or(0) * 1_000;
            for endpoint in self.configuration.matches_any(&row.event, row.xid) {
                let was_closed = self
                    .configuration
                    .endpoint(endpoint)
                    .is_some_and(|known| known.was_closed(cur, emitted_at));
                if !was_closed {
                    pairs.push((row, Pair { event, endpoint }));
                }
            }
        }
        let keys: Vec<Pair> = pairs.iter().map(|(_, pair)| *pair).collect();
        let known = transaction(
            self.owner,
            false,
            c"webhook leader: reading deliveries",
            || outbox::known_pairs(&keys),
        )?;
        pairs.retain(|(_, pair)| !known.contains_key(pair));
        let candidates: Vec<Candidate<'_>> = pairs
            .iter()
            .filter_map(|(row, pair)| {
                let endpoint = self.configuration.endpoint(pair.endpoint)?;
                Some(Candidate {
                    event: &row.event,
                    endpoint: pair.endpoint,
                    filter: endpoint.filter_at(Some(cur))?,
                })
            })
            .collect();
        let unasked: Vec<Pair> = candidates
            .iter()
            .filter(|candidate| candidate.cannot_be_asked())
            .map(Candidate::pair)
            .collect();
        let filtered = self.filter_doubtful(candidates)?;
        let versions = self.read_versions(rows, Some(cur))?;
        let mut doubts = Vec::new();
        for (row, pair) in pairs {
            let doubt = self.doubt(row, pair, cur, &filtered, &versions);
            doubts.extend(doubt.map(|mut doubt| {
                // The filter may have refused it: what would be made up is worse than what would be left out.
                doubt.sent &= !unasked.contains(&pair);
                doubt
            }));
        }
        let at = self.stamp(self.clock.now());
        let changes = doubts
            .into_iter()
            .map(|doubt| self.recovered(doubt, at))
            .collect();
        self.lose(changes, at)
    }

    /// What became of a pair when its batch was opened; none = it was not made.
    fn doubt(
        &mut self,
        row: &Row,
        pair: Pair,
        cur: &Snapshot,
        filtered: &Verdicts,
        versions: &Versions,
    ) -> Option<Doubt> {
        let refused = self.filtered(filtered, pair)?;
        let kind = &row.event.kind;
        let subject = subject_of(&row.event);
        let (mut bits, subject) = self.holds(pair.endpoint, kind, subject.as_ref());
        bits |= refused;
        let endpoint = self.configuration.endpoint(pair.endpoint)?;
        let (revision, shape) = endpoint.shape_at(Some(cur));
        let mut doubt = Doubt {
            pair,
            class: self.configuration.class(kind),
            revision,
            sent: !endpoint.was_held(cur),
            hold: bits,
            subject,
            reason: None,
        };
        match self.converted(row, &shape.wanted(kind), versions) {
            Err(unmade) if !unmade.erased => {
                doubt.sent = false;
                // Of what is erased the ids leave, whatever there was.
                if !row.expunged {
                    doubt.hold |= hold::CONVERSION;
                    self.note_unconverted(pair, kind, &unmade.why);
                    doubt.reason = Some(unmade.why);
                }
            }
            _ => {}
        }
        // The turn of a subject comes at the end of its window, by its row.
        doubt.sent &= doubt.hold & UNSENT == 0;
        Some(doubt)
    }

    /// The row that a pair gets which has none.
    fn recovered(&self, doubt: Doubt, at: i64) -> Change {
        let mut change = Change {
            hold: doubt.hold,
            category: held_by(doubt.hold),
            reason: doubt.reason,
            subject: doubt.subject,
            ..self.lost(doubt.pair, doubt.class, 1, 0, at, None)
        };
        change.revision = doubt.revision;
        if !doubt.sent {
            change.state = "pending";
            change.attempt_count = 0;
            change.series_start = 0;
            change.attempt = None;
            change.series_at = None;
            change.deaths = 0;
        }
        // Sent to or not before it closed: it is told, and not sent again.
        if self.closed(doubt.pair.endpoint) {
            change.state = "cancelled";
            change.reason = Some(self.closing_reason(doubt.pair.endpoint));
            change.next_attempt_at = None;
            change.hold = 0;
            change.category = None;
        }
        change
    }

    /// Pairs of a claim whose attempt was not recorded get it, lost. One that was cancelled meanwhile
    /// stays so, but the attempt that may have been made is told. What was claimed and could not be sent waits as it
    /// did, to be claimed again.
    pub fn resolve_claim(&mut self, batch: &Position) -> Result<(), Trouble> {
        let keys: Vec<Pair> = batch.pairs.iter().map(|(pair, _)| *pair).collect();
        let (known, mut waiting) = transaction(
            self.owner,
            true,
            c"webhook leader: reading deliveries",
            || (outbox::known_pairs(&keys), outbox::due_rows(&keys)),
        )?;
        let unsent = self.never_sent(&keys, &known)?;
        let at = self.stamp(self.clock.now());
        let mut changes = Vec::new();
        for (pair, attempt) in &batch.pairs {
            let Some(known) = known.get(pair) else {
                continue;
            };
            if known.attempt_count != attempt - 1 || unsent.contains(pair) {
                continue;
            }
            if let Some(row) = waiting.remove(pair) {
                changes.push(self.lost_again(*pair, *attempt, known.series_start, row, at));
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

    /// Those of these claimed pairs for which nothing could be sent, whenever it was: the version that they want is not
    /// there.
    fn never_sent(
        &mut self,
        pairs: &[Pair],
        known: &HashMap<Pair, Known>,
    ) -> Result<Vec<Pair>, Trouble> {
        let shapes = transaction(self.owner, false, c"webhook leader: reading shapes", || {
            let numbers = pairs.iter().filter_map(|pair| {
                let known = known.get(pair)?;
                Some((*pair, known.revision))
            });
            outbox::shapes_with_versions(numbers)
        })?;
        if shapes.is_empty() {
            return Ok(Vec::new());
        }
        let mut ids: Vec<EventId> = shapes.keys().map(|pair| pair.event).collect();
        ids.sort_unstable();
        ids.dedup();
        let (origin, keys) = (self.origin, &self.seal_keys);
        let (events, versions, seal_keys) = transaction(
            self.owner,
            true,
            c"webhook leader: reading versions",
            || {
                let events: HashMap<EventId, Row> = outbox::events_by_id(&ids)
                    .into_iter()
                    .map(|row| (row.event.id, row))
                    .collect();
                let needed = events.values().map(|row| row.seal_key);
                let seal_keys = outbox::seal_keys(&[origin], needed, keys);
                let wanted: Vec<(EventId, String)> = shapes
                    .iter()
                    .filter_map(|(pair, shape)| {
                        let event = &events.get(&pair.event)?.event;
                        let wanted = shape.wanted(&event.kind);
                        Some((pair.event, wanted.other_version(event)?.to_string()))
                    })
                    .collect();
                let versions = outbox::event_versions(&wanted);
                (events, versions, seal_keys)
            },
        )?;
        self.seal_keys.extend(seal_keys);
        Ok(shapes
            .iter()
            .filter(|(pair, shape)| {
                events.get(&pair.event).is_some_and(|row| {
                    let wanted = shape.wanted(&row.event.kind);
                    let made = self.converted(row, &wanted, &versions);
                    // Erased by now, it may have been sent before as ids only. Without its key nobody can tell.
                    !row.expunged
                        && self.seal_keys.contains_key(&row.seal_key)
                        && made.is_err_and(|unmade| !unmade.erased)
                })
            })
            .map(|(pair, _)| *pair)
            .collect())
    }

    fn lost_again(
        &mut self,
        pair: Pair,
        attempt: i32,
        series_start: i32,
        row: DueRow,
        at: i64,
    ) -> Change {
        let lost = self.lost(pair, row.class, attempt, series_start, at, Some(row.at));
        let deaths = row.deaths.saturating_add(self.deaths);
        let quarantined = deaths > SUSPECT_AFTER;
        if quarantined {
            self.tell_quarantined(pair);
        }
        Change {
            series_at: row.series_at.or(lost.series_at),
            deaths,
            hold: row.hold | if quarantined { hold::QUARANTINE } else { 0 },
            subject: row.subject.map(Arc::from),
            ..lost
        }
    }
}
