//! Looking for new events: the two-snapshot window, its batches and where their pairs go.

use std::sync::Arc;
use std::time::Instant;

use pgrx::{error, pg_sys};
use sha2::{Digest, Sha256};

use super::configuration::Standing;
use super::newcomer::{self, Missed};
use super::pair::{Message, Waiting};
use super::transaction::{Trouble, transaction};
use super::{Batch, Leader};
use crate::pg::VERSION;
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Change, EndpointRow, Opening, PauseRow, Row, Seen};
use crate::rules::envelope;
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::policy::PolicyRow;
use crate::rules::snapshot::Snapshot;

/// Events and bytes read into one batch at most.
const BATCH_EVENTS: i32 = 500;
const BATCH_BYTES: i64 = 8 << 20;

/// Pairs for new endpoints made by one statement.
const BELATED_ROWS: usize = 1_000;
/// How far the feed follows an event whose id lies ahead of this machine's clock.
const MAX_AHEAD_MS: u64 = 5_000;

/// What is being read.
#[derive(Default)]
pub struct Window {
    /// Events visible in it were read by earlier windows.
    pub prev: Option<Snapshot>,
    /// Events visible in it belong to this window; none = the window is read to its end.
    pub cur: Option<Snapshot>,
    /// Keyset (xid, event_id) of the last event read.
    pub after: (u64, String),
    /// WAL up to here must be on disk before anything of the window is sent.
    pub flush: pg_sys::XLogRecPtr,
}

struct Read {
    /// A new window, when the old one was at its end.
    opened: Option<(Snapshot, pg_sys::XLogRecPtr)>,
    endpoints: Vec<EndpointRow>,
    types: Vec<(String, i16)>,
    policies: Vec<(String, PolicyRow)>,
    pauses: Vec<PauseRow>,
    /// Events that newly made endpoints missed, with the endpoint.
    missed: Vec<Missed>,
    seal_keys: Vec<(i64, Vec<u8>)>,
    rows: Vec<Seen>,
    /// The window holds no more.
    exhausted: bool,
}

impl Leader {
    /// Opens a window when somebody committed or when it is time to poll, and reads one batch of it.
    pub fn look(&mut self) -> Result<(), Trouble> {
        let due = self.last_look.elapsed() >= self.settings.poll_interval;
        // An endpoint that opens waits for its old queue to be cancelled, and its events with it.
        if self.reopening() {
            self.look_soon = true;
            return Ok(());
        }
        if !self.memory.has_room() || !(self.look_soon || due || self.window.cur.is_some()) {
            return Ok(());
        }
        self.last_look = Instant::now();
        self.look_soon = false;
        match self
            .read()
            .and_then(|read| read.map_or(Ok(()), |read| self.take_in(read)))
        {
            Ok(()) => Ok(()),
            Err(trouble) => {
                self.look_soon = true;
                Err(trouble)
            }
        }
    }

    /// One transaction of one snapshot: what changed, and the next events. None = nothing did.
    fn read(&mut self) -> Result<Option<Read>, Trouble> {
        let (prev, cur, after) = (
            self.window.prev.clone(),
            self.window.cur.clone(),
            self.window.after.clone(),
        );
        let origin = self.origin;
        let expected = (self.extension, VERSION.to_owned());
        transaction(
            self.owner,
            true,
            c"webhook leader: reading events",
            move || {
                let prev = prev?;
                let mut read = Read {
                    opened: None,
                    endpoints: Vec::new(),
                    types: Vec::new(),
                    policies: Vec::new(),
                    pauses: Vec::new(),
                    missed: Vec::new(),
                    seal_keys: Vec::new(),
                    rows: Vec::new(),
                    exhausted: false,
                };
                let cur = match cur {
                    Some(cur) => cur,
                    None => {
                        let cur = outbox::snapshot();
                        // The same snapshot: no transaction has ended, so nothing can be new.
                        if cur == prev {
                            return None;
                        }
                        // Every commit visible in `cur` was inserted into the WAL before this.
                        // SAFETY: plain read of shared state.
                        let flush = unsafe { pg_sys::GetXLogInsertRecPtr() };
                        if outbox::installed() != Some(expected) {
                            error!("the extension was replaced");
                        }
                        read.endpoints = outbox::changed_endpoints(Some(&prev));
                        read.types = outbox::changed_event_types(Some(&prev));
                        read.policies = outbox::changed_policies(Some(&prev));
                        read.pauses = outbox::changed_pauses(Some(&prev));
                        read.missed = newcomer::missed(origin, &read.endpoints, &prev);
                        read.opened = Some((cur.clone(), flush));
                        cur
                    }
                };
                let mut bytes = 0;
                if after.0 < prev.xmax() && !prev.running().is_empty() {
                    read.rows =
                        outbox::read_late(origin, &prev, &cur, &after, BATCH_EVENTS, BATCH_BYTES);
                    bytes = size(&read.rows);
                }
                let left = BATCH_EVENTS - i32::try_from(read.rows.len()).unwrap_or(BATCH_EVENTS);
                if left > 0 && bytes < BATCH_BYTES {
                    let from = after.max((prev.xmax(), String::new()));
                    let rows = outbox::read_new(origin, &cur, &from, left, BATCH_BYTES - bytes);
                    bytes += size(&rows);
                    read.exhausted =
                        rows.len() < usize::try_from(left).unwrap_or(0) && bytes < BATCH_BYTES;
                    read.rows.extend(rows);
                }
                if !read.rows.is_empty() {
                    read.seal_keys = outbox::seal_keys();
                }
                Some(read)
            },
        )
    }

    /// Takes over what was read: configuration first, then the batch.
    fn take_in(&mut self, read: Read) -> Result<(), Trouble> {
        if let Some((cur, flush)) = read.opened {
            // Before anything of the new window is written: should this life end here, the next one
            // finds the same endpoints new and does it again.
            let mut belated = self.belated(&read.endpoints, &read.missed, &read.types);
            // After a restart in the middle of a window some of them may be on their way already.
            if !belated.is_empty() && !self.outcomes.changes.is_empty() {
                self.write()?;
            }
            belated.retain(|belated| !self.memory.contains(belated.pair));
            let at = self.stamp(self.clock.now());
            if !belated.is_empty() {
                transaction(
                    self.owner,
                    false,
                    c"webhook leader: catching up for new endpoints",
                    || {
                        for some in belated.chunks(BELATED_ROWS) {
                            outbox::add_belated(some, at);
                        }
                    },
                )?;
            }
            self.window.cur = Some(cur);
            self.window.flush = flush;
            self.window.after = (0, String::new());
            // Requests are looked for when something was committed, like events.
            self.requests_waiting = true;
            self.configuration.apply_types(read.types);
            if !read.policies.is_empty() {
                self.configuration.apply_policies(read.policies);
                self.set_all_limits();
            }
            self.configure(read.endpoints);
            self.apply_pauses(read.pauses);
            for belated in belated {
                if let Some(subject) = belated.subject {
                    self.turns.add((belated.pair.endpoint, subject));
                }
                if belated.hold == 0 {
                    self.behind.insert(belated.pair.endpoint);
                    self.note_due((belated.pair.endpoint, belated.class), at);
                }
            }
        }
        self.seal_keys.extend(read.seal_keys);
        if self.reopening() {
            return Ok(());
        }
        if !read.rows.is_empty() {
            self.open(&read.rows)?;
        }
        if read.exhausted {
            self.window.prev = self.window.cur.take();
            self.window.after = (0, String::new());
            self.take_turns()?;
        }
        Ok(())
    }

    /// Opens a batch: feed and ledger first, then its pairs wait for their turn.
    fn open(&mut self, rows: &[Seen]) -> Result<(), Trouble> {
        let Some(last) = rows.last() else {
            return Ok(());
        };
        let to = last.place.clone();
        let (sound, fenced) = self.sort_out(rows);
        let batch = self.last_batch + 1;
        let n = self.last_n + 1;
        let pos = self.next_position(&sound);
        {
            let (Some(prev), Some(cur)) = (&self.window.prev, &self.window.cur) else {
                return Ok(());
            };
            let opening = Opening {
                n,
                incarnation: self.incarnation,
                batch,
                prev,
                cur,
                from: &self.window.after,
                to: &to,
                pos,
                now: now_micros(),
            };
            let published: Vec<_> = sound.iter().map(|row| &row.event).collect();
            transaction(
                self.owner,
                false,
                c"webhook leader: opening a batch",
                || {
                    outbox::open_batch(&opening, &published, &fenced);
                },
            )?;
        }
        // Nothing is sent before it is durable: an emitter may have committed asynchronously.
        // SAFETY: the main thread, outside any transaction; returns at once when already on disk.
        unsafe { pg_sys::XLogFlush(self.window.flush) };
        self.be_cautious();
        self.window.after = to;
        (self.last_n, self.last_batch, self.position_n) = (n, batch, n);
        self.last_pos = pos + i64::try_from(sound.len()).unwrap_or(0);
        self.slot.fenced.fetch_add(
            u64::try_from(fenced.len()).unwrap_or(0),
            std::sync::atomic::Ordering::Relaxed,
        );
        self.batches.insert(batch, Batch { n, left: 1 });
        for event in &fenced {
            if let Ok(event) = event.parse() {
                self.tell_fenced(event);
            }
        }
        for row in sound {
            self.fan_out(row, batch);
        }
        self.settle(batch);
        Ok(())
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
    /// the bytes. An expunged row keeps its digest and so its seal.
    pub fn sealed(&self, row: &Row) -> bool {
        let Some(key) = self.seal_keys.get(&row.seal_key) else {
            return false;
        };
        let Ok(digest) = <[u8; 32]>::try_from(row.digest.as_slice()) else {
            return false;
        };
        let bytes_match =
            row.expunged || <[u8; 32]>::from(Sha256::digest(row.event.data.as_bytes())) == digest;
        bytes_match && envelope::seal(key, &row.event, row.origin, &digest).as_slice() == row.seal
    }

    /// Makes the pairs of an event: they wait in memory, or in the due table where they cannot be
    /// sent within the first pass.
    fn fan_out(&mut self, row: &Row, batch: i64) {
        if row.expunged {
            return;
        }
        let endpoints = self.configuration.matches(&row.event, row.xid);
        if endpoints.is_empty() {
            return;
        }
        let class = self.configuration.class(&row.event.kind);
        let message = Message::new(&row.event, class);
        for id in endpoints {
            let pair = Pair {
                event: row.event.id,
                endpoint: id,
            };
            self.add_first_pass(pair, Arc::clone(&message), batch);
        }
    }

    /// One pair of a window: waits its turn, or is parked at once.
    pub fn add_first_pass(&mut self, pair: Pair, message: Arc<Message>, batch: i64) {
        let Some(endpoint) = self.configuration.endpoint(pair.endpoint) else {
            return;
        };
        let (revision, standing) = (endpoint.revision, endpoint.standing);
        let (bits, subject) = self.holds(pair.endpoint, &message.kind, message.subject.as_ref());
        let waiting = Waiting {
            pair,
            message,
            revision,
            attempt_count: 0,
            series_start: 0,
            series_at: None,
            deaths: 0,
            subject,
            batch,
            due: None,
        };
        if let Some(open) = self.batches.get_mut(&batch) {
            open.left += 1;
        }
        if bits != 0 {
            if let Some(subject) = &waiting.subject {
                self.turns.add((pair.endpoint, Arc::clone(subject)));
            }
            self.hold(waiting, bits);
            return;
        }
        let limit = i64::try_from(self.settings.first_pass_limit.as_micros()).unwrap_or(i64::MAX);
        let now = self.clock.now();
        if standing == Standing::Holds
            || self.behind.contains(&pair.endpoint)
            || self.scheduler.expected_wait(pair.endpoint, now) > limit
        {
            self.park(waiting);
            return;
        }
        self.memory.enter(pair, false, waiting.message.body.len());
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

fn size(rows: &[Seen]) -> i64 {
    rows.iter().map(|seen| seen.bytes).sum()
}
