//! The leader: one background worker per database that fans events out, has them sent and records
//! what came back.
//!
//! This file is its life: entering, the loop, leaving. What a step does is in the file of that name.
//! HTTP runs in the threads of `wire::crew`; only this main thread touches PostgreSQL, and it holds no
//! transaction, snapshot or lock while a request is under way.

mod adopted;
mod adopting;
mod ahead;
mod aside;
mod challenging;
mod claiming;
mod claims;
mod clock;
mod condition;
pub(super) mod configuration;
mod control;
mod dispatch;
mod doubt;
mod endpoint;
mod erasing;
mod fan_out;
pub(super) mod filtering;
mod judging;
mod keeping;
mod keys;
mod lost;
mod memory;
mod mending;
mod newcomer;
mod notifying;
pub(super) mod pair;
mod proving;
mod ranging;
mod recording;
mod recovery;
mod reload;
mod requests;
mod rest;
mod session;
mod standing;
mod telling;
mod transaction;
mod upkeep;
mod verbs;
mod versions;
mod window;
mod writing;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::prelude::*;

use self::adopting::Adoptions;
use self::aside::Aside;
use self::clock::Clock;
use self::condition::Conditions;
use self::configuration::Configuration;
use self::control::Turns;
use self::memory::Memory;
use self::pair::{Flight, Settled, Waiting};
use self::proving::Proving;
use self::ranging::Replays;
pub(super) use self::reload::user_agent;
use self::reload::{caps, client};
use self::standing::Closing;
use self::transaction::{Trouble, terminating, transaction};
use self::window::Window;
use super::outbox::{self, EndpointRow, Outcomes, Place, SealKeys, Walk};
use super::settings::Settings;
use super::wake::{Activity, Slot};
use crate::rules::id_hash::{IdMap, IdSet};
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::scheduler::Scheduler;
use crate::wire::crew::Crew;
use crate::wire::job::Job;

/// Why the life ends.
enum End {
    /// Asked to (SIGTERM, DROP DATABASE): the launcher may start another one.
    Asked,
    /// Nothing to lead here: no extension, or a database that is not served.
    Absent,
    /// Something failed that a new life may not meet again.
    Failed(String),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> End {
        if terminating() {
            return End::Asked;
        }
        End::Failed(trouble.text().to_owned())
    }
}

/// Entry point of the leader process; the argument is the OID of its database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn webhook_outbox_leader(argument: pg_sys::Datum) {
    transaction::install_signal_handlers();
    let database = pg_sys::Oid::from(u32::try_from(argument.value()).unwrap_or(0));
    let Some(slot) = super::wake::slot_of(database) else {
        return;
    };
    slot.enter();
    let end = session::enter(database, slot).and_then(|(owner, extension)| {
        Leader::start(slot, owner, extension).and_then(|mut leader| leader.live())
    });
    let code = match end {
        Ok(()) | Err(End::Asked) => {
            slot.set_activity(Activity::Stopped);
            1
        }
        Err(End::Absent) => {
            slot.set_activity(Activity::NotServed);
            0
        }
        Err(End::Failed(why)) => {
            slot.set_error(&why);
            slot.set_activity(Activity::Failed);
            warning!("webhook leader ended: {why}");
            1
        }
    };
    // The launcher learns of the end from the postmaster. Threads are never joined: one of them may
    // be inside a request, and what it holds is not PostgreSQL's.
    // SAFETY: ends this process through PostgreSQL's own exit path.
    unsafe { pg_sys::proc_exit(code) };
}

/// A batch whose pairs do not all have a row yet.
struct Batch {
    /// Number of its first ledger row; the ledger is kept from the oldest open one on.
    n: i64,
    left: usize,
}

/// How long the database is left alone after passing trouble (a lock, a full disk).
const REST: Duration = Duration::from_millis(200);

/// A step of the loop that reads or writes tables.
type Step = fn(&mut Leader) -> Result<(), Trouble>;

/// Key of a queue in the due table.
type Queue = (EndpointId, i16);

/// When a queue has its next row, and where it stands in the order in which queues are looked at; none =
/// it is not looked at for now.
struct Due {
    at: i64,
    listed: Option<i64>,
}

struct Leader {
    slot: &'static Slot,
    owner: pg_sys::Oid,
    extension: pg_sys::Oid,
    origin: i64,
    incarnation: i64,
    settings: Settings,
    clock: Clock,
    configuration: Configuration,
    seal_keys: SealKeys,
    /// Endpoints with keys that could not be decrypted.
    locked: keys::LockedKeys,
    window: Window,
    /// Streams of partners that are read apart.
    asides: Vec<Aside>,
    /// Last ledger number, batch number and feed position used.
    last_n: i64,
    last_batch: i64,
    last_pos: i64,
    /// Ledger row that holds the position, kept when the ledger is trimmed.
    position_n: i64,
    batches: IdMap<i64, Batch>,
    /// Batches with a row that could not be stored, and from where on the ledger is kept for them.
    stuck: HashMap<i64, i64>,
    scheduler: Scheduler<Waiting>,
    flights: IdMap<u64, Flight>,
    /// Requests that are made up and not yet handed to the threads.
    ready: Vec<Job>,
    /// Endpoints whose queues are to be listed anew.
    touched: IdSet<EndpointId>,
    last_ticket: u64,
    memory: Memory,
    crew: Crew,
    sleep: rest::Sleep,
    /// What is in force of the files that the settings name.
    files: reload::Files,
    /// When each queue has its next row, and the same ordered by time.
    due: HashMap<Queue, Due>,
    due_order: BTreeSet<(i64, EndpointId, i16)>,
    /// Keyset of the last row claimed.
    cursors: HashMap<Queue, (i64, String)>,
    /// Time of the last claim: rows written from now on are stamped later.
    last_claim: i64,
    /// Endpoints with parked pairs: new ones queue behind them.
    behind: IdSet<EndpointId>,
    /// How endpoints fare.
    conditions: Conditions,
    /// What a pair in doubt is charged with: 1 when the last life did not end in order.
    deaths: i16,
    /// The one pair in memory that may be what ends the leader.
    suspect: Option<Pair>,
    /// Pairs in memory that somebody settled meanwhile.
    settled: HashMap<Pair, Settled>,
    /// Subjects whose turn is decided at the end of the window.
    turns: Turns,
    /// Endpoints whose queue is to be searched for what they do not want any more.
    to_narrow: Vec<(EndpointId, Walk)>,
    /// Event types that are not paused any more and still have held pairs, from where on.
    to_release: Vec<(String, Place)>,
    /// Endpoints that keep no order any more, with the last event that was freed.
    to_free: Vec<(EndpointId, String)>,
    /// Endpoints with pairs that a filter holds and that are to be decided about.
    to_judge: VecDeque<judging::Judging>,
    /// When each endpoint's filter was complained about last.
    filter_complaints: HashMap<EndpointId, Instant>,
    /// Closed endpoints whose queue is still to be cancelled.
    to_cancel: Vec<Closing>,
    /// Their changes, which take effect when that is done.
    deferred: Vec<EndpointRow>,
    outcomes: Outcomes,
    /// Proofs of control and terms.
    proving: Proving,
    /// Since when outcomes wait to be written.
    unwritten_since: Option<Instant>,
    /// After passing trouble nothing is read or written before this.
    rest_until: Option<Instant>,
    last_look: Instant,
    /// When it was looked last for what outlasts the first pass.
    slow_looked_for: Instant,
    /// When it was looked last for those who fill the memory.
    room_made: Instant,
    requests_waiting: bool,
    /// Requests that wait for pairs in memory to come out of it, and for how many.
    settling: HashMap<i64, usize>,
    /// Those pairs, each with the request that waits for it.
    awaited: HashMap<Pair, i64>,
    /// Requests about events that a stream which was set aside has still to read.
    unread: HashSet<i64>,
    /// Claims made of each endpoint that has several classes due.
    shared_claims: HashMap<EndpointId, u32>,
    /// When it was told that events of a type wait for a schema version at an endpoint.
    unconverted: HashMap<(EndpointId, String), Instant>,
    /// Origins taken over from databases that this one is a copy of.
    adoptions: Adoptions,
    /// Replays of a range that are under way.
    replays: Replays,
    /// Somebody committed something.
    look_soon: bool,
    upkeep: upkeep::Upkeep,
    /// What goes because it is old.
    keeping: keeping::Keeping,
    /// Payloads in memory that are gone from the tables.
    erasing: erasing::Erasing,
    /// Alerts that nobody was told of.
    notifying: notifying::Notifying,
}

impl Leader {
    fn start(
        slot: &'static Slot,
        owner: pg_sys::Oid,
        extension: pg_sys::Oid,
    ) -> Result<Leader, End> {
        let settings = Settings::read();
        // Without it nothing could be signed: better not to begin.
        crate::pg::vault::check().map_err(End::Failed)?;
        let files = reload::Files::read(&settings).map_err(End::Failed)?;
        let client = client(&settings, &files).map_err(End::Failed)?;
        let erasing = erasing::Erasing::new(slot.expunged());
        let gate = move |job: &Job| slot.expunged() == job.looked_through;
        let crew = Crew::new(settings.max_in_flight, Arc::new(client), gate)
            .map_err(|error| End::Failed(format!("could not set up the HTTP threads: {error}")))?;
        let origin = transaction(owner, false, c"webhook leader: starting", || {
            // Events of its own must not wait for a master key file that cannot be used later.
            super::emit::prepare();
            outbox::origin()
        })
        .map_err(End::from)?;
        let mut leader = Leader {
            slot,
            owner,
            extension,
            origin,
            incarnation: 0,
            clock: Clock::new(),
            configuration: Configuration::new(origin, &settings),
            seal_keys: SealKeys::new(),
            locked: keys::LockedKeys::default(),
            window: Window::default(),
            asides: Vec::new(),
            last_n: 0,
            last_batch: 0,
            last_pos: 0,
            position_n: 0,
            batches: IdMap::default(),
            stuck: HashMap::new(),
            scheduler: Scheduler::new(caps(&settings)),
            flights: IdMap::default(),
            ready: Vec::new(),
            touched: IdSet::default(),
            last_ticket: 0,
            memory: Memory::default(),
            sleep: rest::Sleep::new(&crew),
            crew,
            files,
            due: HashMap::new(),
            due_order: BTreeSet::new(),
            cursors: HashMap::new(),
            last_claim: 0,
            behind: IdSet::default(),
            conditions: Conditions::default(),
            deaths: 1,
            suspect: None,
            settled: HashMap::new(),
            turns: Turns::default(),
            to_narrow: Vec::new(),
            to_release: Vec::new(),
            to_free: Vec::new(),
            to_judge: VecDeque::new(),
            filter_complaints: HashMap::new(),
            to_cancel: Vec::new(),
            deferred: Vec::new(),
            outcomes: Outcomes::default(),
            proving: Proving::default(),
            unwritten_since: None,
            rest_until: None,
            last_look: Instant::now(),
            slow_looked_for: Instant::now(),
            room_made: Instant::now(),
            requests_waiting: false,
            settling: HashMap::new(),
            awaited: HashMap::new(),
            unread: HashSet::new(),
            shared_claims: HashMap::new(),
            unconverted: HashMap::new(),
            adoptions: Adoptions::unknown(),
            replays: Replays::default(),
            look_soon: true,
            upkeep: upkeep::Upkeep::new(),
            keeping: keeping::Keeping::new(),
            erasing,
            notifying: notifying::Notifying::new(),
            settings,
        };
        leader.scheduler.go_ahead();
        leader.recover().map_err(End::from)?;
        Ok(leader)
    }

    fn live(&mut self) -> Result<(), End> {
        self.slot
            .started_at
            .store(super::emit::now_micros(), Ordering::Relaxed);
        self.slot.set_activity(Activity::Running);
        loop {
            if terminating() || self.slot.held() || super::wake::superseded() {
                break;
            }
            if self.reload_if_asked() {
                self.finish();
                return Err(End::Asked);
            }
            // Switched off the flag stays up, so that nobody wakes us for what is not read. After the settings: what
            // was committed until they said so is looked for now.
            let woken = self.settings.enabled && self.slot.take_wake();
            self.collect();
            self.park_slow();
            if woken {
                self.look_soon = true;
            }
            if !self.resting() {
                match self.use_database() {
                    // The signal cancelled a statement: what is in memory is put in order all the same.
                    Err(End::Asked) => break,
                    other => other?,
                }
            }
            if self.settings.enabled {
                self.dispatch();
            }
            self.publish();
            self.wait();
        }
        self.finish();
        Err(End::Asked)
    }

    /// Everything that reads or writes tables; the first trouble ends the round.
    fn use_database(&mut self) -> Result<(), End> {
        let steps: [Step; 14] = [
            Leader::write_if_due,
            Leader::forget_expunged,
            Leader::look,
            Leader::carry_out_requests,
            Leader::cancel_queues,
            Leader::carry_on_control,
            Leader::adopt,
            Leader::replay_ranges,
            Leader::claim,
            Leader::unlock_keys,
            Leader::prove,
            Leader::keep_house,
            Leader::keep,
            Leader::notify,
        ];
        for (number, step) in steps.iter().enumerate() {
            // Switched off, results are still written and the house is kept, but nothing is read.
            if !self.settings.enabled && (1..=10).contains(&number) {
                continue;
            }
            if let Err(trouble) = step(self) {
                return self.suffer(&trouble);
            }
        }
        Ok(())
    }

    /// Lets the view `stat_worker` see how things stand.
    fn publish(&self) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let slot = self.slot;
        slot.set_activity(if self.settings.enabled {
            Activity::Running
        } else {
            Activity::Off
        });
        slot.last_loop_at
            .store(super::emit::now_micros(), Ordering::Relaxed);
        slot.threads
            .store(count(self.crew.threads()), Ordering::Relaxed);
        slot.in_flight
            .store(count(self.flights.len()), Ordering::Relaxed);
        slot.queued
            .store(count(self.scheduler.waiting()), Ordering::Relaxed);
        slot.open_batches
            .store(count(self.batches.len()), Ordering::Relaxed);
        let now = super::emit::now_micros();
        slot.counters
            .queued(count(self.flights.len() + self.scheduler.waiting()), now);
        let (kind, left, of, since) = self.keeping.progress();
        slot.counters.keeps(kind, count(left), count(of), since);
    }

    /// What follows from a failed transaction: a rest and another try, or the end of this life.
    fn suffer(&mut self, trouble: &Trouble) -> Result<(), End> {
        if terminating() {
            return Err(End::Asked);
        }
        match self.installed() {
            // Whoever looks again finds out more.
            Err(trouble) => return Err(End::Failed(trouble.text().to_owned())),
            Ok(None) => return Err(End::Absent),
            // Replaced or updated: the next life begins with what is there now.
            Ok(Some(found)) if found != (self.extension, super::VERSION.to_owned()) => {
                return Err(End::Asked);
            }
            Ok(Some(_)) => {}
        }
        self.slot.set_error(trouble.text());
        match trouble {
            Trouble::Passing(_) => {
                self.rest_until = Some(Instant::now() + REST);
                Ok(())
            }
            Trouble::Lasting(text) => Err(End::Failed(text.clone())),
        }
    }

    fn installed(&self) -> Result<Option<(pg_sys::Oid, String)>, Trouble> {
        transaction(
            self.owner,
            false,
            c"webhook leader: looking for the extension",
            outbox::installed,
        )
    }

    /// Whether the database is left alone after passing trouble.
    fn resting(&mut self) -> bool {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return true;
        }
        self.rest_until = None;
        false
    }
}
