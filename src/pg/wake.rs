//! The only shared memory of the project, and the hooks that wake a leader.
//!
//! A fixed array of slots, one per database: who leads it, what it is doing, and a flag that a
//! committing session raises. Only integers and atomics live here, never a pointer or a handle, so
//! that a process that dies half-way leaves nothing that another one could follow into the void.
//! Waking is a commit callback: NOTIFY would serialise all committers (measured: 0.20 of the
//! throughput with 8 clients).

use std::cell::{Cell, OnceCell};
use std::ffi::c_void;
use std::sync::atomic::{
    AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

use pgrx::pg_sys;

use super::counters::Counters;

/// Databases of one cluster that can have a leader at the same time.
pub const SLOTS: usize = 64;
const ERROR_BYTES: usize = 240;

/// What a leader is doing, as a number that fits into an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Activity {
    Stopped = 0,
    Starting = 1,
    Running = 2,
    Off = 3,
    OtherVersion = 4,
    NoWorkerSlot = 5,
    NotServed = 6,
    Failed = 7,
}

impl Activity {
    fn from_u32(value: u32) -> Activity {
        match value {
            1 => Activity::Starting,
            2 => Activity::Running,
            3 => Activity::Off,
            4 => Activity::OtherVersion,
            5 => Activity::NoWorkerSlot,
            6 => Activity::NotServed,
            7 => Activity::Failed,
            _ => Activity::Stopped,
        }
    }
}

/// One database: its leader and its counters. All zero = free.
#[repr(C)]
pub struct Slot {
    /// OID of the database; 0 = free.
    pub database: AtomicU32,
    /// [`Activity`] of the leader.
    activity: AtomicU32,
    /// Process id of the leader; 0 = none.
    pub pid: AtomicI32,
    /// Index of the leader's PGPROC plus one; 0 = none.
    process: AtomicI32,
    /// Raised by committing sessions, lowered by the leader before it looks.
    wake: AtomicU32,
    /// The launcher should start a leader.
    pub wanted: AtomicU32,
    /// Until when (unix seconds) no leader may run: DROP DATABASE and the like need the database empty.
    pub hold_until: AtomicI64,
    pub incarnation: AtomicI64,
    pub started_at: AtomicI64,
    pub last_loop_at: AtomicI64,
    pub restarts: AtomicU32,
    pub threads: AtomicU32,
    pub in_flight: AtomicU32,
    pub queued: AtomicU32,
    pub open_batches: AtomicU32,
    pub delivered: AtomicU64,
    pub failed: AtomicU64,
    pub lost: AtomicU64,
    pub fenced: AtomicU64,
    /// Transactions that took payloads and have committed.
    expunged: AtomicU64,
    last_error: [AtomicU8; ERROR_BYTES],
    /// What the leader counts for monitoring.
    pub counters: Counters,
}

#[repr(C)]
struct Shared {
    launcher_pid: AtomicI32,
    launcher_process: AtomicI32,
    slots: [Slot; SLOTS],
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The transaction under way has something for the leader. A backend has one thread.
    static WAKE_AT_COMMIT: Cell<bool> = const { Cell::new(false) };
    /// It takes payloads that the leader may hold in memory.
    static EXPUNGED_AT_COMMIT: Cell<bool> = const { Cell::new(false) };
    /// Whether `webhook.databases` names this session's database: looked up while that is possible.
    static SERVED: Cell<bool> = const { Cell::new(false) };
    /// Its name, which stays while anybody is connected.
    static DATABASE: OnceCell<String> = const { OnceCell::new() };
    static CALLBACK_REGISTERED: Cell<bool> = const { Cell::new(false) };
    /// The launcher that started this leader.
    static STARTED_BY: Cell<i32> = const { Cell::new(0) };
}

impl Slot {
    /// What the leader is doing.
    pub fn activity(&self) -> Activity {
        Activity::from_u32(self.activity.load(Ordering::Acquire))
    }

    /// Says what the leader is doing.
    pub fn set_activity(&self, activity: Activity) {
        self.activity.store(activity as u32, Ordering::Release);
    }

    /// Keeps the latest error for the operator; cut at the size of the slot.
    pub fn set_error(&self, text: &str) {
        let bytes = text.as_bytes();
        for (index, cell) in self.last_error.iter().enumerate() {
            cell.store(bytes.get(index).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// The latest error, if any.
    pub fn error(&self) -> Option<String> {
        let bytes: Vec<u8> = self
            .last_error
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .take_while(|byte| *byte != 0)
            .collect();
        if bytes.is_empty() {
            return None;
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Lowers the wake flag and says whether it was up. To be called before looking for work.
    pub fn take_wake(&self) -> bool {
        self.wake.swap(0, Ordering::SeqCst) != 0
    }

    /// The current process leads this database from now on.
    pub fn enter(&self) {
        // SAFETY: MyProcPid is a plain integer of this process.
        let pid = unsafe { pg_sys::MyProcPid };
        STARTED_BY.set(launcher_pid());
        self.process.store(my_process() + 1, Ordering::Release);
        self.pid.store(pid, Ordering::Release);
        // Whatever was committed before anyone could wake us must be looked for once.
        self.wake.store(1, Ordering::Release);
    }

    /// The current process leads this database no longer.
    pub fn leave(&self) {
        // Sequentially consistent with `raise`: either it sees no process, or its flag is seen here.
        self.process.store(0, Ordering::SeqCst);
        self.pid.store(0, Ordering::Release);
        self.in_flight.store(0, Ordering::Relaxed);
        self.queued.store(0, Ordering::Relaxed);
        self.threads.store(0, Ordering::Relaxed);
        self.open_batches.store(0, Ordering::Relaxed);
    }

    /// Whether the database must have no leader just now.
    pub fn held(&self) -> bool {
        self.hold_until.load(Ordering::Acquire) > unix_seconds()
    }

    /// Changes whenever payloads are gone: whoever holds some looks again before the next one leaves.
    pub fn expunged(&self) -> u64 {
        self.expunged.load(Ordering::SeqCst)
    }

    /// Wakes the leader, or has the launcher start one. Whoever finds the flag up says nothing more: the leader was
    /// woken and has not looked yet, and of many that commit at a time one alone pays for a signal.
    fn raise(&self) {
        let raised = self.wake.swap(1, Ordering::SeqCst) != 0;
        let process = self.process.load(Ordering::SeqCst);
        if process > 0 {
            if !raised {
                set_latch_of(process - 1);
            }
        } else if self.wanted.swap(1, Ordering::AcqRel) == 0 {
            // The launcher looks again by itself as long as one is wanted that it could not start.
            wake_launcher();
        }
    }
}

/// Asks the postmaster for the shared memory; while preloading only.
pub fn reserve() {
    // SAFETY: hooks are installed by the postmaster before any child exists; the previous ones are
    // kept and called, so that other preloaded libraries keep working in any order.
    unsafe {
        // Before 15 there is no hook: what is loaded asks at once.
        #[cfg(any(feature = "pg13", feature = "pg14"))]
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>());
        #[cfg(not(any(feature = "pg13", feature = "pg14")))]
        {
            PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
            pg_sys::shmem_request_hook = Some(request);
        }
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[cfg(not(any(feature = "pg13", feature = "pg14")))]
static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

#[cfg(not(any(feature = "pg13", feature = "pg14")))]
unsafe extern "C-unwind" fn request() {
    // SAFETY: called by the postmaster in its single thread at the one time that allows requests.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>());
    }
}

unsafe extern "C-unwind" fn startup() {
    // SAFETY: ShmemInitStruct returns memory of the size asked for; atomics of zero bytes are valid,
    // and nobody else runs while the postmaster initialises it.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let mut found = false;
        let memory = pg_sys::ShmemInitStruct(
            c"webhook_outbox".as_ptr(),
            size_of::<Shared>(),
            &raw mut found,
        );
        if !found {
            std::ptr::write_bytes(memory.cast::<u8>(), 0, size_of::<Shared>());
        }
        SHARED.store(memory.cast::<Shared>(), Ordering::Release);
    }
}

fn shared() -> Option<&'static Shared> {
    let pointer = SHARED.load(Ordering::Acquire);
    // SAFETY: either null or set by startup() to memory that lives as long as the process and holds
    // nothing but atomics.
    unsafe { pointer.as_ref() }
}

/// Whether the library was preloaded, so that workers can exist.
pub fn preloaded() -> bool {
    shared().is_some()
}

/// All slots; empty when the library is not preloaded.
pub fn slots() -> &'static [Slot] {
    shared().map_or(&[], |shared| &shared.slots)
}

/// The slot of a database, if it has one.
pub fn slot_of(database: pg_sys::Oid) -> Option<&'static Slot> {
    let oid = database.to_u32();
    slots()
        .iter()
        .find(|slot| slot.database.load(Ordering::Acquire) == oid)
}

/// The slot of a database; takes a free one when it has none. None when all are taken.
pub fn claim_slot(database: pg_sys::Oid) -> Option<&'static Slot> {
    let oid = database.to_u32();
    if let Some(slot) = slot_of(database) {
        return Some(slot);
    }
    slots().iter().find(|slot| {
        match slot
            .database
            .compare_exchange(0, oid, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                // A worker that found its database dropped may have left its mark: whoever wakes would set
                // the latch of a process that is gone, and the launcher would never hear of it.
                slot.leave();
                slot.set_activity(Activity::Stopped);
                // Left behind it would look as if the launcher knew already; whoever claims says it anew.
                slot.wanted.store(0, Ordering::Release);
                // What was counted was another database's.
                slot.counters.reset();
                for counter in [&slot.delivered, &slot.failed, &slot.lost, &slot.fenced] {
                    counter.store(0, Ordering::Relaxed);
                }
                slot.restarts.store(0, Ordering::Relaxed);
                true
            }
            // Another session may have claimed this very slot for the same database meanwhile.
            Err(taken) => taken == oid,
        }
    })
}

/// The current process is the launcher.
pub fn enter_launcher() {
    if let Some(shared) = shared() {
        // SAFETY: MyProcPid is a plain integer of this process.
        shared
            .launcher_pid
            .store(unsafe { pg_sys::MyProcPid }, Ordering::Release);
        shared
            .launcher_process
            .store(my_process() + 1, Ordering::Release);
    }
}

/// Whether the launcher that started this leader has ended and a new one has begun. That one cannot
/// learn of the end of a worker it did not start, so it starts leaders of its own.
pub fn superseded() -> bool {
    launcher_pid() != STARTED_BY.get()
}

fn launcher_pid() -> i32 {
    shared().map_or(0, |shared| shared.launcher_pid.load(Ordering::Acquire))
}

/// Wakes the launcher, if there is one.
pub fn wake_launcher() {
    if let Some(shared) = shared() {
        let process = shared.launcher_process.load(Ordering::Acquire);
        if process > 0 {
            set_latch_of(process - 1);
        }
    }
}

/// Wakes this database's leader when the transaction under way commits. One callback serves any
/// number of calls; a spurious wake after a rolled-back savepoint is harmless.
pub fn wake_at_commit() {
    if !preloaded() || WAKE_AT_COMMIT.get() {
        return;
    }
    if !CALLBACK_REGISTERED.get() {
        // SAFETY: the callback lives as long as the process and never unwinds.
        unsafe { pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut()) };
        CALLBACK_REGISTERED.set(true);
    }
    SERVED.set(DATABASE.with(|name| {
        // SAFETY: plain read of this process's state.
        let name =
            name.get_or_init(|| super::outbox::database_name(unsafe { pg_sys::MyDatabaseId }));
        super::settings::serves_database(name)
    }));
    WAKE_AT_COMMIT.set(true);
}

/// Tells the leader at commit that payloads are gone, and wakes it.
pub fn expunge_at_commit() {
    EXPUNGED_AT_COMMIT.set(true);
    wake_at_commit();
}

/// Runs after the commit record and after the transaction left the array of running ones, so a
/// leader that is woken here sees the rows. Atomics and a latch only: an error now would be fatal.
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_COMMIT | XACT_EVENT_PARALLEL_COMMIT
            if WAKE_AT_COMMIT.replace(false) && SERVED.get() =>
        {
            // SAFETY: MyDatabaseId is a plain integer of this process.
            let database = unsafe { pg_sys::MyDatabaseId };
            let expunged = EXPUNGED_AT_COMMIT.replace(false);
            if let Some(slot) = claim_slot(database) {
                if expunged {
                    slot.expunged.fetch_add(1, Ordering::SeqCst);
                }
                slot.raise();
            }
        }
        // A prepared transaction is seen again at COMMIT PREPARED (utility hook) or by the poll.
        XACT_EVENT_ABORT | XACT_EVENT_PARALLEL_ABORT | XACT_EVENT_PREPARE => {
            WAKE_AT_COMMIT.set(false);
            EXPUNGED_AT_COMMIT.set(false);
        }
        _ => {}
    }
}

/// Asks the leader of a database to leave and keeps it away until `seconds` from now; says whether
/// there is nobody left.
pub fn hold(database: pg_sys::Oid, seconds: i64) -> bool {
    let Some(slot) = slot_of(database) else {
        return true;
    };
    slot.hold_until
        .store(unix_seconds() + seconds, Ordering::Release);
    let process = slot.process.load(Ordering::Acquire);
    if process > 0 {
        set_latch_of(process - 1);
    }
    slot.pid.load(Ordering::Acquire) == 0
}

/// Ends a hold; the leader comes back when `restart` says so, else the slot is free again.
pub fn release(database: pg_sys::Oid, restart: bool) {
    let Some(slot) = slot_of(database) else {
        return;
    };
    slot.hold_until.store(0, Ordering::Release);
    if restart {
        slot.wanted.store(1, Ordering::Release);
        wake_launcher();
    } else {
        slot.wanted.store(0, Ordering::Release);
        slot.database.store(0, Ordering::Release);
    }
}

fn unix_seconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        })
}

/// Index of this process in the array of PGPROCs. Computed, because its name differs by version.
fn my_process() -> i32 {
    // SAFETY: MyProc points into ProcGlobal->allProcs in every process with shared memory access.
    unsafe {
        let all = (*pg_sys::ProcGlobal).allProcs;
        i32::try_from(pg_sys::MyProc.offset_from(all)).unwrap_or(-1)
    }
}

/// Sets the latch of a process by its index. The index may be stale: then somebody wakes for nothing.
fn set_latch_of(index: i32) {
    // SAFETY: the index is within the array, whose size is fixed for the life of the cluster.
    unsafe {
        let global = pg_sys::ProcGlobal;
        let Ok(offset) = usize::try_from(index) else {
            return;
        };
        if global.is_null() || u32::try_from(index).is_ok_and(|i| i >= (*global).allProcCount) {
            return;
        }
        pg_sys::SetLatch(&raw mut (*(*global).allProcs.add(offset)).procLatch);
    }
}
