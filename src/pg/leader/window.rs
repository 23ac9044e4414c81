//! Looking for new events: the two-snapshot window and what is read of it. What becomes of that is in `fan_out`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pgrx::error;

use super::Leader;
use super::memory::Lane;
use super::newcomer::{self, Missed};
use super::transaction::{Trouble, transaction};
use crate::pg::VERSION;
use crate::pg::outbox::{self, Amount, EndpointRow, PauseRow, SealKeys, Stretch, Whose};
use crate::pg::wal::Written;
use crate::rules::policy::PolicyRow;
use crate::rules::snapshot::Snapshot;

/// Events and bytes read into one batch at most.
const BATCH_EVENTS: i32 = 500;
const BATCH_BYTES: i64 = 8 << 20;
/// Events looked at in one go where almost all are passed over.
const LONGEST_SCAN: i32 = 32_000;

/// How often those are looked for who fill the memory.
const MAKE_ROOM_EVERY: Duration = Duration::from_millis(20);

/// Pairs for new endpoints made by one statement.
const BELATED_ROWS: usize = 1_000;

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
    pub flush: Written,
    /// Events read of each partner in this window.
    pub seen: HashMap<String, usize>,
    /// Events to look at in the next stretch, where some are passed over; 0 = as many as are taken.
    pub scan: i32,
    /// The ledger says that `prev` is read: a life that finds no row since begins behind it.
    pub placed: bool,
}

impl Window {
    /// What is visible in `cur` is read next.
    pub fn open(&mut self, cur: Option<Snapshot>) {
        self.cur = cur;
        self.after = (0, String::new());
        self.seen.clear();
        self.scan = 0;
    }

    /// The window is read to its end.
    fn finish(&mut self) {
        if self.cur.is_some() {
            self.prev = self.cur.take();
            self.placed = false;
        }
        self.open(None);
    }

    /// The stretch that follows one of `taken` events, which is not the last.
    fn stride(&mut self, taken: usize) {
        let few = taken < usize::try_from(BATCH_EVENTS / 2).unwrap_or(0);
        self.scan = if few {
            (self.scan.max(BATCH_EVENTS) * 4).min(LONGEST_SCAN)
        } else {
            BATCH_EVENTS
        };
    }

    /// Whether it is passing over many events.
    pub fn passes_over(&self) -> bool {
        self.cur.is_some() && self.scan > BATCH_EVENTS
    }
}

struct Read {
    /// A new window, when the old one was at its end.
    opened: Option<(Snapshot, Written)>,
    endpoints: Vec<EndpointRow>,
    types: Vec<(String, i16)>,
    policies: Vec<(String, PolicyRow)>,
    pauses: Vec<PauseRow>,
    /// Events that newly made endpoints missed, with the endpoint.
    missed: Vec<Missed>,
    events: ReadEvents,
}

/// The next events of a window.
#[derive(Default)]
pub struct ReadEvents {
    stretch: Stretch,
    seal_keys: SealKeys,
}

impl Leader {
    /// Opens a window when somebody committed or when it is time to poll, and reads one batch of it; then one
    /// of each stream that was set aside.
    pub fn look(&mut self) -> Result<(), Trouble> {
        // An endpoint that opens waits for its old queue to be cancelled, and its events with it.
        if self.reopening() {
            self.look_soon = true;
            return Ok(());
        }
        self.look_at_everybody()?;
        // Somebody behind the flood is looked for first.
        if self.window.passes_over() && self.memory.has_room(Lane::Fresh) {
            return Ok(());
        }
        self.look_aside()
    }

    fn look_at_everybody(&mut self) -> Result<(), Trouble> {
        let due = self.last_look.elapsed() >= self.settings.poll_interval;
        if !(self.look_soon || due || self.window.cur.is_some()) {
            return Ok(());
        }
        // It looks at all that is in memory: not in every round while memory stays full.
        if !self.memory.has_room(Lane::Fresh) && self.room_made.elapsed() >= MAKE_ROOM_EVERY {
            self.make_room()?;
            self.room_made = Instant::now();
        }
        if !self.memory.has_room(Lane::Fresh) {
            return Ok(());
        }
        self.last_look = Instant::now();
        // What is committed while a window is being read belongs to the next one.
        if self.window.cur.is_none() {
            self.look_soon = false;
        }
        match self
            .read()
            .and_then(|read| read.map_or(Ok(()), |read| self.take_in(read)))
        {
            Ok(()) => self.set_flood_aside(),
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
        let whose = self.everybody();
        let amount = amount(self.window.scan);
        let known = &self.seal_keys;
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
                    events: ReadEvents::default(),
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
                        let flush = Written::now();
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
                read.events = ReadEvents::of(origin, (&prev, &cur), &after, &whose, amount, known);
                Some(read)
            },
        )
    }

    /// The next events of a window that was opened before; none = there is no such window.
    pub fn read_stretch(&mut self, stream: Option<usize>) -> Result<Option<ReadEvents>, Trouble> {
        let Some(aside) = stream.and_then(|index| self.asides.get(index)) else {
            return Ok(None);
        };
        let (Some(prev), Some(cur)) = (&aside.window.prev, &aside.window.cur) else {
            return Ok(None);
        };
        let (origin, amount) = (self.origin, amount(aside.window.scan));
        let known = &self.seal_keys;
        transaction(
            self.owner,
            true,
            c"webhook leader: reading a stream",
            || {
                Some(ReadEvents::of(
                    origin,
                    (prev, cur),
                    &aside.window.after,
                    &aside.whose,
                    amount,
                    known,
                ))
            },
        )
    }

    /// Takes over what was read: configuration first, then the batch.
    fn take_in(&mut self, read: Read) -> Result<(), Trouble> {
        if let Some((cur, flush)) = read.opened {
            // Before anything of the new window is written: should this life end here, the next one
            // finds the same endpoints new and does it again.
            let mut belated = self.belated(&read.endpoints, &read.missed, &read.types);
            self.filter_belated(&mut belated, &read.endpoints)?;
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
            // Theirs was passed over, and perhaps not read yet: what is there already is not made twice.
            for aside in &mut self.asides {
                aside.doubtful |= read
                    .endpoints
                    .iter()
                    .any(|endpoint| aside.whose.partners.contains(&endpoint.partner_id));
            }
            self.window.open(Some(cur));
            self.window.flush = flush;
            // Requests are looked for when something was committed, like events.
            self.requests_waiting = true;
            // Verbs that write alerts change the endpoint that they are about.
            if !read.endpoints.is_empty() {
                self.notifying.soon();
            }
            self.configuration.apply_types(read.types);
            if !read.policies.is_empty() {
                self.take_back();
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
        if self.reopening() {
            self.seal_keys.extend(read.events.seal_keys);
            return Ok(());
        }
        self.take_rows(None, &read.events)
    }

    /// Opens a batch of what was read of a window. `stream` is the index of one that was set aside.
    pub fn take_rows(&mut self, stream: Option<usize>, read: &ReadEvents) -> Result<(), Trouble> {
        self.seal_keys
            .extend(read.seal_keys.iter().map(|(id, key)| (*id, key.clone())));
        let stretch = &read.stretch;
        if !stretch.rows.is_empty() {
            self.open(stream, &stretch.rows)?;
        }
        let window = self.window_of(stream);
        if stretch.more {
            if let Some(to) = &stretch.to {
                window.after = to.clone();
            }
            for row in stretch.rows.iter().filter_map(|seen| seen.row.as_ref()) {
                match window.seen.get_mut(&row.event.partner_id) {
                    Some(events) => *events += 1,
                    None => {
                        window.seen.insert(row.event.partner_id.clone(), 1);
                    }
                }
            }
            window.stride(stretch.rows.len());
        } else {
            window.finish();
            // Some may be about an event of this stream.
            if stream.is_some() {
                self.unread.clear();
                self.requests_waiting = true;
            }
            self.take_turns()?;
        }
        Ok(())
    }

    pub fn window_of(&mut self, stream: Option<usize>) -> &mut Window {
        match stream.and_then(|index| self.asides.get_mut(index)) {
            Some(aside) => &mut aside.window,
            None => &mut self.window,
        }
    }
}

impl ReadEvents {
    fn of(
        origin: i64,
        window: (&Snapshot, &Snapshot),
        after: &(u64, String),
        whose: &Whose,
        amount: Amount,
        known: &SealKeys,
    ) -> ReadEvents {
        let stretch = outbox::read_window(origin, window, after, whose, amount);
        let seal_keys = outbox::seal_keys(&[origin], stretch.seal_keys(), known);
        ReadEvents { stretch, seal_keys }
    }
}

fn amount(scan: i32) -> Amount {
    Amount {
        scan: scan.max(BATCH_EVENTS),
        events: BATCH_EVENTS,
        bytes: BATCH_BYTES,
    }
}
