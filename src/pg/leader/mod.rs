//! The leader: one background worker per database that fans events out, has them sent and records
//! what came back.
//!
//! This file is its life: entering, the loop, leaving. What a step does is in the file of that name.
//! HTTP runs in the threads of `wire::crew`; only this main thread touches PostgreSQL, and it holds no
//! transaction, snapshot or lock while a request is under way.

mod configuration;
mod dispatch;
mod memory;
mod newcomer;
mod pair;
mod recording;
mod recovery;
mod requests;
mod session;
mod transaction;
mod upkeep;
mod window;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::prelude::*;

use self::configuration::Configuration;
use self::memory::Memory;
use self::pair::{Flight, Waiting};
use self::transaction::{Trouble, take_reload, terminating, transaction};
use self::window::Window;
use super::outbox::{self, EndpointRow, Outcomes};
use super::settings::Settings;
use super::wake::{Activity, Slot};
use crate::rules::ids::EndpointId;
use crate::rules::scheduler::{Caps, Scheduler};
use crate::wire::client::{Client, ClientSettings};
use crate::wire::crew::Crew;

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

/// Lowest endpoint id, to begin a range with.
const LOWEST: EndpointId = EndpointId(i64::MIN);

/// How long the database is left alone after passing trouble (a lock, a full disk).
const REST: Duration = Duration::from_millis(200);

/// Key of a queue in the due table.
type Queue = (EndpointId, i16);

struct Leader {
    slot: &'static Slot,
    owner: pg_sys::Oid,
    extension: pg_sys::Oid,
    origin: i64,
    incarnation: i64,
    settings: Settings,
    clock: Clock,
    configuration: Configuration,
    seal_keys: HashMap<i64, Vec<u8>>,
    window: Window,
    /// Last ledger number, batch number and feed position used.
    last_n: i64,
    last_batch: i64,
    last_pos: i64,
    /// Ledger row that holds the position, kept when the ledger is trimmed.
    position_n: i64,
    batches: HashMap<i64, Batch>,
    scheduler: Scheduler<Waiting>,
    flights: HashMap<u64, Flight>,
    last_ticket: u64,
    memory: Memory,
    crew: Crew,
    /// When each queue has its next row, and the same ordered by time.
    due: HashMap<Queue, i64>,
    due_order: BTreeSet<(i64, EndpointId, i16)>,
    /// Keyset of the last row claimed.
    cursors: HashMap<Queue, (i64, String)>,
    /// Time of the last claim: rows written from now on are stamped later.
    last_claim: i64,
    /// Endpoints with parked pairs: new ones queue behind them.
    behind: HashSet<EndpointId>,
    /// Closed endpoints whose queue is still to be cancelled.
    to_cancel: Vec<(EndpointId, String)>,
    /// Their changes, which take effect when that is done.
    deferred: Vec<EndpointRow>,
    outcomes: Outcomes,
    /// Since when outcomes wait to be written.
    unwritten_since: Option<Instant>,
    /// After passing trouble nothing is read or written before this.
    rest_until: Option<Instant>,
    last_look: Instant,
    requests_waiting: bool,
    /// Somebody committed something.
    look_soon: bool,
    upkeep: upkeep::Upkeep,
}

impl Leader {
    fn start(
        slot: &'static Slot,
        owner: pg_sys::Oid,
        extension: pg_sys::Oid,
    ) -> Result<Leader, End> {
        let settings = Settings::read();
        let client = client(&settings).map_err(End::Failed)?;
        let crew = Crew::new(settings.max_in_flight, Arc::new(client))
            .map_err(|error| End::Failed(format!("could not set up the HTTP threads: {error}")))?;
        let origin = transaction(owner, false, c"webhook leader: starting", outbox::origin)
            .map_err(End::from)?;
        let mut leader = Leader {
            slot,
            owner,
            extension,
            origin,
            incarnation: 0,
            clock: Clock::new(),
            configuration: Configuration::new(origin, settings.boundary.clone()),
            seal_keys: HashMap::new(),
            window: Window::default(),
            last_n: 0,
            last_batch: 0,
            last_pos: 0,
            position_n: 0,
            batches: HashMap::new(),
            scheduler: Scheduler::new(caps(&settings)),
            flights: HashMap::new(),
            last_ticket: 0,
            memory: Memory::default(),
            crew,
            due: HashMap::new(),
            due_order: BTreeSet::new(),
            cursors: HashMap::new(),
            last_claim: 0,
            behind: HashSet::new(),
            to_cancel: Vec::new(),
            deferred: Vec::new(),
            outcomes: Outcomes::default(),
            unwritten_since: None,
            rest_until: None,
            last_look: Instant::now(),
            requests_waiting: false,
            look_soon: true,
            upkeep: upkeep::Upkeep::new(),
            settings,
        };
        leader.recover().map_err(End::from)?;
        Ok(leader)
    }

    fn live(&mut self) -> Result<(), End> {
        self.slot
            .started_at
            .store(super::emit::now_micros(), Ordering::Relaxed);
        self.slot.set_activity(Activity::Running);
        loop {
            let woken = self.slot.take_wake();
            if terminating() || self.slot.held() || super::wake::superseded() {
                break;
            }
            if self.reload_if_asked() {
                self.finish();
                return Err(End::Asked);
            }
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
        let steps: [fn(&mut Leader) -> Result<(), Trouble>; 6] = [
            Leader::write_if_due,
            Leader::look,
            Leader::carry_out_requests,
            Leader::cancel_queues,
            Leader::claim,
            Leader::keep_house,
        ];
        for (number, step) in steps.iter().enumerate() {
            // Switched off, results are still written and the house is kept, but nothing is read.
            if !self.settings.enabled && (1..=4).contains(&number) {
                continue;
            }
            if let Err(trouble) = step(self) {
                return self.suffer(&trouble);
            }
        }
        Ok(())
    }

    /// Sleeps until a commit, a finished request, a signal or the next timed step.
    fn wait(&self) {
        let pause = self.pause();
        let timeout =
            i64::try_from(pause.as_millis()).unwrap_or(1000) + i64::from(!pause.is_zero());
        // SAFETY: the latch is this process's own; the descriptor lives as long as the crew.
        unsafe {
            use std::os::fd::AsRawFd;
            pg_sys::WaitLatchOrSocket(
                pg_sys::MyLatch,
                (pg_sys::WL_LATCH_SET
                    | pg_sys::WL_TIMEOUT
                    | pg_sys::WL_SOCKET_READABLE
                    | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
                self.crew.event_fd().as_raw_fd(),
                timeout,
                pg_sys::PG_WAIT_EXTENSION,
            );
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        self.crew.clear_event();
        // A cancel request has nothing to cancel here; outside a transaction it would end the process.
        // SAFETY: a flag of this process.
        unsafe { pg_sys::QueryCancelPending = 0 };
        pgrx::check_for_interrupts!();
    }

    /// How long nothing is to be done unless something happens.
    fn pause(&self) -> Duration {
        // Switched off or full, the poll waits: a configuration change or a finished request wakes us.
        let mut pause = if self.settings.enabled && self.memory.has_room() {
            self.settings
                .poll_interval
                .saturating_sub(self.last_look.elapsed())
        } else {
            self.settings.poll_interval
        };
        if let Some(since) = self.unwritten_since {
            pause = pause.min(
                self.settings
                    .result_flush_interval
                    .saturating_sub(since.elapsed()),
            );
        }
        if !self.settings.enabled {
            return pause;
        }
        if let Some(until) = self.rest_until {
            return until.saturating_duration_since(Instant::now());
        }
        if self.scheduler.waiting() > 0 || !self.flights.is_empty() {
            pause = pause.min(self.settings.first_pass_limit / 8);
        }
        let now = self.clock.now();
        let work = (self.memory.has_room() && (self.window.cur.is_some() || self.look_soon))
            || !self.to_cancel.is_empty()
            || (self.requests_waiting && self.window.cur.is_none())
            || (self.claimable(now).next().is_some() && self.may_claim());
        if work {
            return Duration::ZERO;
        }
        // What is due already and not claimable waits for a finished request, which wakes us.
        if let Some((at, _, _)) = self.due_order.range((now + 1, LOWEST, 0)..).next() {
            pause = pause.min(Duration::from_micros(u64::try_from(at - now).unwrap_or(0)));
        }
        pause
    }

    /// Reads the configuration file again when told to. Vetted addresses and pooled connections go
    /// with the old client. Says whether a new life must begin: another origin, or a database that is
    /// not served any more.
    fn reload_if_asked(&mut self) -> bool {
        if !take_reload() {
            return false;
        }
        // SAFETY: the main thread, outside any transaction.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        let settings = Settings::read();
        match client(&settings) {
            Ok(client) => self.crew.replace_client(Arc::new(client)),
            Err(why) => {
                self.slot.set_error(&why);
                warning!("webhook leader keeps its HTTP settings: {why}");
            }
        }
        self.crew.set_max_threads(settings.max_in_flight);
        self.scheduler.set_caps(caps(&settings));
        self.configuration.set_boundary(settings.boundary.clone());
        self.settings = settings;
        let identity = transaction(self.owner, false, c"webhook leader: reloading", || {
            // SAFETY: plain read of this process's state.
            let database = outbox::database_name(unsafe { pg_sys::MyDatabaseId });
            (
                outbox::origin(),
                super::settings::serves_database(&database),
            )
        });
        identity.is_ok_and(|identity| identity != (self.origin, true))
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

/// Scheduling time: the wall clock at the start plus monotonic time since, so that a step of the
/// clock neither stalls nor rushes what waits.
struct Clock {
    wall: i64,
    begun: Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock {
            wall: super::emit::now_micros(),
            begun: Instant::now(),
        }
    }

    /// Microseconds since 1970.
    fn now(&self) -> i64 {
        self.wall
            .saturating_add(i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

fn caps(settings: &Settings) -> Caps {
    Caps {
        total: settings.max_in_flight,
        per_partner: settings.max_in_flight_per_partner,
        per_endpoint: settings.max_in_flight_per_endpoint,
    }
}

fn client(settings: &Settings) -> Result<Client, String> {
    let ca_pem = if settings.ca_file.is_empty() {
        None
    } else {
        Some(
            std::fs::read(&settings.ca_file)
                .map_err(|error| format!("could not read \"webhook.ca_file\": {error}"))?,
        )
    };
    Client::new(ClientSettings {
        boundary: settings.boundary.clone(),
        connect_timeout: settings.connect_timeout,
        request_timeout: settings.request_timeout,
        max_excerpt: settings.max_response_excerpt,
        user_agent: format!("webhook_outbox/{}", super::VERSION),
        ca_pem,
        max_idle_per_host: settings.max_in_flight_per_endpoint,
        max_idle: settings.max_in_flight,
    })
}
