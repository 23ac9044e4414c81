//! From the events of a window to pairs: the batch with its feed rows, the seals, the endpoints that match, and
//! whether a pair waits in memory or is parked at once.

use std::collections::HashSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::configuration::Standing;
use super::filtering::Verdicts;
use super::memory::Lane;
use super::pair::{Message, Waiting};
use super::transaction::{Trouble, transaction};
use super::versions::{Made, Unmade};
use super::{Batch, Leader};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Change, Opening, Row, Seen, Versions, hold};
use crate::rules::envelope;
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::revision::Wanted;
use crate::rules::snapshot::Snapshot;

/// How far the feed follows an event whose id lies ahead of this machine's clock.
const MAX_AHEAD_MS: u64 = 5_000;

/// What was asked about the events of a batch before it was opened.
struct Asked {
    /// Its window.
    cur: Option<Snapshot>,
    /// Pairs that have a row.
    there: HashSet<Pair>,
    filtered: Verdicts,
    versions: Versions,
}

impl Leader {
    /// Opens a batch: feed and ledger first, then its pairs wait for their turn.
    pub fn open(&mut self, stream: Option<usize>, rows: &[Seen]) -> Result<(), Trouble> {
        let Some(last) = rows.last() else {
            return Ok(());
        };
        let to = last.place.clone();
        let (sound, fenced) = self.sort_out(rows);
        // Before anything is written: what fails here is read again.
        let cur = self.window_of(stream).cur.clone();
        let doubtful = stream
            .and_then(|index| self.asides.get(index))
            .is_some_and(|aside| aside.doubtful);
        let asked = Asked {
            there: if doubtful {
                self.made_already(&sound)?
            } else {
                HashSet::new()
            },
            filtered: self.filter_batch(&sound, cur.as_ref())?,
            versions: self.read_versions(&sound, cur.as_ref())?,
            cur,
        };
        // What is set aside is never ahead of everybody's place in the ledger: a new endpoint is given what was
        // read up to there.
        let place = stream
            .and(self.window.prev.as_ref())
            .filter(|_| !self.window.placed);
        let placed = place.is_some();
        let batch = self.last_batch + 1 + i64::from(placed);
        let n = self.last_n + 1 + i64::from(placed);
        let (pos, last_pos) = (self.next_position(&sound), self.last_pos);
        let aside = stream.and_then(|index| self.asides.get(index));
        let (window, number, whose) = match aside {
            Some(aside) => (&aside.window, aside.stream, aside.whose.clone()),
            None => (&self.window, 0, self.everybody()),
        };
        let lane = aside.map_or(Lane::Fresh, |_| Lane::Aside);
        {
            let (Some(prev), Some(cur)) = (&window.prev, &window.cur) else {
                return Ok(());
            };
            let opening = Opening {
                n,
                incarnation: self.incarnation,
                batch,
                prev,
                cur,
                from: &window.after,
                to: &to,
                pos,
                now: now_micros(),
                stream: number,
                whose: &whose,
            };
            let published: Vec<_> = sound.iter().map(|row| &row.event).collect();
            // Once this commits, nothing is unread; that pairs are in memory is told before, or somebody who looks in
            // between would take them for settled. `publish` says how many.
            self.slot
                .queued
                .fetch_max(1, std::sync::atomic::Ordering::Relaxed);
            transaction(
                self.owner,
                false,
                c"webhook leader: opening a batch",
                || {
                    if let Some(read) = place {
                        outbox::place_everybody(
                            n - 1,
                            opening.incarnation,
                            batch - 1,
                            read,
                            last_pos,
                        );
                    }
                    outbox::open_batch(&opening, &published, &fenced);
                },
            )?;
        }
        if placed {
            self.position_n = n - 1;
        }
        self.window.placed |= placed || stream.is_none();
        // Nothing is sent before it is durable: an emitter may have committed asynchronously. Every window
        // of a stream that was set aside was one of everybody's before.
        self.window.flush.make_durable();
        self.be_cautious();
        self.window_of(stream).after = to;
        (self.last_n, self.last_batch) = (n, batch);
        match stream.and_then(|index| self.asides.get_mut(index)) {
            Some(aside) => aside.position_n = n,
            None => self.position_n = n,
        }
        self.last_pos = pos + i64::try_from(sound.len()).unwrap_or(0);
        self.slot.fenced.fetch_add(
            u64::try_from(fenced.len()).unwrap_or(0),
            std::sync::atomic::Ordering::Relaxed,
        );
        self.slot.counters.fanned_out(sound.len(), now_micros());
        self.batches.insert(batch, Batch { n, left: 1 });
        for event in &fenced {
            self.tell_fenced(event.parse().ok());
        }
        for row in sound {
            self.fan_out(row, batch, lane, &asked);
        }
        self.settle(batch);
        Ok(())
    }

    /// Pairs of these events that have a row: a new endpoint was given them.
    fn made_already(&self, rows: &[&Row]) -> Result<HashSet<Pair>, Trouble> {
        let pairs: Vec<Pair> = rows
            .iter()
            .flat_map(|row| {
                let event = row.event.id;
                let matching = self.configuration.matches(&row.event, row.xid);
                matching
                    .into_iter()
                    .map(move |endpoint| Pair { event, endpoint })
            })
            .collect();
        let known = transaction(
            self.owner,
            false,
            c"webhook leader: reading deliveries",
            || outbox::known_pairs(&pairs),
        )?;
        Ok(known.into_keys().collect())
    }

    /// First feed position of a batch: after all earlier ones, and not before the time of its newest
    /// event, so that an event is found by walking the feed from its own time even after the clock was
    /// set back. An event from far ahead cannot drag the feed with it.
    pub fn next_position(&self, rows: &[&Row]) -> i64 {
        let now = u64::try_from(now_micros() / 1000).unwrap_or(0);
        let newest = rows
            .iter()
            .map(|row| row.event.id.unix_ms())
            .max()
            .unwrap_or(0);
        let at = newest.clamp(now, now + MAX_AHEAD_MS);
        (self.last_pos + 1).max(EndpointId::new(at, 0).0)
    }

    /// Separates rows that are what emit wrote from those that are not.
    fn sort_out<'a>(&self, seen: &'a [Seen]) -> (Vec<&'a Row>, Vec<String>) {
        let mut sound = Vec::with_capacity(seen.len());
        let mut fenced = Vec::new();
        for seen in seen {
            match &seen.row {
                Some(row) if self.sealed(row) => sound.push(row),
                _ => fenced.push(seen.place.1.clone()),
            }
        }
        (sound, fenced)
    }

    /// Whether the seal of a row holds: over the whole envelope and the digest, and the digest over
    /// the bytes. An expunged row keeps its digest and so its seal; one that lost its payload otherwise was read
    /// without its digest.
    pub fn sealed(&self, row: &Row) -> bool {
        let Some(key) = self.seal_keys.get(&row.seal_key) else {
            return false;
        };
        let (Some(seal), Some(digest)) = (row.seal, row.digest) else {
            return false;
        };
        let bytes_match =
            row.expunged || <[u8; 32]>::from(Sha256::digest(row.event.data.as_bytes())) == digest;
        bytes_match && envelope::seal(key, &row.event, row.origin, &digest) == seal
    }

    /// Makes the pairs of an event: they wait in memory, or in the due table where they cannot be
    /// sent within the first pass.
    fn fan_out(&mut self, row: &Row, batch: i64, lane: Lane, asked: &Asked) {
        if row.withheld() {
            return;
        }
        let endpoints = self.configuration.matches(&row.event, row.xid);
        if endpoints.is_empty() {
            return;
        }
        let class = self.configuration.class(&row.event.kind);
        // Few endpoints want different bytes.
        let mut messages: Vec<(Wanted, Made)> = Vec::new();
        for id in endpoints {
            let pair = Pair {
                event: row.event.id,
                endpoint: id,
            };
            if asked.there.contains(&pair) {
                continue;
            }
            let Some(held) = self.filtered(&asked.filtered, pair) else {
                continue;
            };
            let Some(known) = self.configuration.endpoint(id) else {
                continue;
            };
            let (revision, shape) = known.shape_at(asked.cur.as_ref());
            let wanted = shape.wanted(&row.event.kind);
            let made = match messages.iter().find(|(known, _)| *known == wanted) {
                Some((_, made)) => made.clone(),
                None => {
                    let made = self.message(row, class, &wanted, &asked.versions);
                    messages.push((wanted, made.clone()));
                    made
                }
            };
            let (message, unmade) = match made {
                Ok(message) => (message, None),
                Err(unmade) => (Message::unsent(&row.event, class), Some(unmade)),
            };
            let waiting = Waiting {
                pair,
                message,
                revision,
                attempt_count: 0,
                series_start: 0,
                series_at: None,
                deaths: 0,
                subject: None,
                asked: false,
                batch,
                due: None,
            };
            self.add_first_pass(waiting, unmade, lane, held);
        }
    }

    /// One pair of a window: waits its turn, or is parked at once.
    fn add_first_pass(
        &mut self,
        mut waiting: Waiting,
        unmade: Option<Unmade>,
        lane: Lane,
        held: i32,
    ) {
        let pair = waiting.pair;
        let Some(endpoint) = self.configuration.endpoint(pair.endpoint) else {
            return;
        };
        let standing = endpoint.standing;
        let message = &waiting.message;
        let (bits, subject) = self.holds(pair.endpoint, &message.kind, message.subject.as_ref());
        let mut bits = bits | held;
        let erased = unmade.as_ref().is_some_and(|unmade| unmade.erased);
        let why = unmade
            .filter(|unmade| !unmade.erased)
            .map(|unmade| unmade.why);
        if let Some(why) = &why {
            bits |= hold::CONVERSION;
            let kind = message.kind.clone();
            self.note_unconverted(pair, &kind, why);
        }
        waiting.subject = subject;
        self.slot.counters.paired();
        if let Some(open) = self.batches.get_mut(&waiting.batch) {
            open.left += 1;
        }
        if bits != 0 {
            if let Some(subject) = &waiting.subject {
                self.turns.add((pair.endpoint, Arc::clone(subject)));
            }
            self.hold_because(waiting, bits, why);
            return;
        }
        let limit = i64::try_from(self.settings.first_pass_limit.as_micros()).unwrap_or(i64::MAX);
        let now = self.clock.now();
        // What was erased since the event was read is read again, and has the end that an erased event has.
        if erased
            || standing == Standing::Holds
            || self.behind.contains(&pair.endpoint)
            || self.scheduler.expected_wait(pair.endpoint, now) > limit
        {
            self.park(waiting);
            return;
        }
        self.memory.enter(pair, lane, waiting.message.body.len());
        self.scheduler
            .push(pair.endpoint, waiting.message.class, waiting, now);
    }

    /// Writes a pair as pending and due now, instead of letting its batch wait for it.
    pub fn park(&mut self, waiting: Waiting) {
        let Some(waiting) = self.not_settled(waiting) else {
            return;
        };
        let at = self.stamp(self.clock.now());
        self.behind.insert(waiting.pair.endpoint);
        self.note_due((waiting.pair.endpoint, waiting.message.class), at);
        self.leave(waiting.pair);
        self.record(Change {
            next_attempt_at: Some(at),
            due: None,
            ..waiting.change("pending")
        });
        self.settle(waiting.batch);
    }
}
