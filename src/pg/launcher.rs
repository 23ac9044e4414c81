//! The launcher: one static background worker that starts a leader per database and keeps it up.
//!
//! It reads pg_database when it starts and when `webhook.databases` changes, and asks each database in turn whether it has the
//! extension (by starting a leader, which leaves at once when it has not). After that it sleeps
//! until a commit callback raises a slot. It never connects to a database itself and sends nothing.

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
    DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::settings;
use super::wake::{self, Activity, Slot};

/// Registers the launcher; while preloading only.
pub fn register() {
    BackgroundWorkerBuilder::new("webhook_outbox launcher")
        .set_type("webhook_outbox launcher")
        .set_library("webhook_outbox")
        .set_function("webhook_outbox_launcher")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// Entry point of the launcher process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn webhook_outbox_launcher(_arg: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    wake::enter_launcher();
    // SAFETY: the main thread of a fresh worker; no database = the shared catalogues only.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
        // A reload of the moment before the handlers were there is lost.
        pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
    }
    let mut named = settings::databases();
    let mut launcher = Launcher {
        probes: databases().into(),
        leaders: HashMap::new(),
    };
    loop {
        launcher.reap();
        launcher.probe();
        let wait = launcher.start_wanted();
        let alive = BackgroundWorker::wait_latch(wait);
        if BackgroundWorker::sighup_received() {
            // SAFETY: main thread of a worker, outside any transaction.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            if named != settings::databases() {
                named = settings::databases();
                launcher.probes = databases().into();
            }
        }
        if !alive {
            // Exit code 0 would unregister the launcher for good; it is to come back after a
            // pg_terminate_backend.
            // SAFETY: ends this process through PostgreSQL's own exit path.
            unsafe { pg_sys::proc_exit(1) };
        }
    }
}

struct Launcher {
    /// Databases that were there at the start and were not yet asked.
    probes: VecDeque<pg_sys::Oid>,
    /// Leaders by the OID of their database.
    leaders: HashMap<u32, Led>,
}

struct Led {
    worker: Option<DynamicBackgroundWorker>,
    /// Starts since the last long life: drives the backoff.
    failures: u32,
    started: Instant,
    not_before: Instant,
    /// When the lack of a worker slot was last reported.
    complained: Option<Instant>,
}

impl Launcher {
    /// Notices leaders that ended.
    fn reap(&mut self) {
        let mut gone = Vec::new();
        for (oid, led) in &mut self.leaders {
            let ended = matches!(
                led.worker.as_ref().map(DynamicBackgroundWorker::pid),
                Some(Err(BackgroundWorkerStatus::Stopped))
            );
            if !ended {
                continue;
            }
            led.worker = None;
            let Some(slot) = wake::slot_of(pg_sys::Oid::from(*oid)) else {
                gone.push(*oid);
                continue;
            };
            slot.leave();
            match slot.activity() {
                // It left by itself: nothing to lead. The slot is free for another database unless
                // somebody committed something there meanwhile.
                Activity::NotServed => {
                    slot.set_activity(Activity::Stopped);
                    if slot.take_wake() {
                        slot.wanted.store(1, Ordering::Release);
                    } else {
                        slot.database.store(0, Ordering::SeqCst);
                        // Whoever raised the flag between these two found no leader and a slot that is given up: unless
                        // it is somebody else's by now, and with it the flag, it is taken back.
                        if slot.take_wake()
                            && slot
                                .database
                                .compare_exchange(0, *oid, Ordering::AcqRel, Ordering::Acquire)
                                .is_ok()
                        {
                            slot.wanted.store(1, Ordering::Release);
                        }
                    }
                    gone.push(*oid);
                }
                ended => {
                    slot.set_activity(Activity::Stopped);
                    slot.restarts.fetch_add(1, Ordering::Relaxed);
                    // An ordered end is no failure.
                    if ended == Activity::Stopped || led.started.elapsed() > Duration::from_secs(60)
                    {
                        led.failures = 0;
                    }
                    led.not_before = Instant::now() + backoff(led.failures);
                    led.failures += 1;
                    slot.wanted.store(1, Ordering::Release);
                }
            }
        }
        for oid in gone {
            self.leaders.remove(&oid);
        }
    }

    /// Asks the next database, one at a time, so that a cluster of many databases never takes more
    /// than one worker slot for the asking.
    fn probe(&mut self) {
        let busy = self.leaders.values().any(|led| {
            matches!(
                led.worker.as_ref().map(DynamicBackgroundWorker::pid),
                Some(Err(BackgroundWorkerStatus::NotYetStarted))
            )
        }) || wake::slots()
            .iter()
            .any(|slot| slot.activity() == Activity::Starting);
        if busy {
            return;
        }
        if let Some(oid) = self.probes.pop_front()
            && !self.leaders.contains_key(&oid.to_u32())
            && let Some(slot) = wake::claim_slot(oid)
        {
            slot.wanted.store(1, Ordering::Release);
        }
    }

    /// Starts leaders where they are wanted; returns how long to sleep at most.
    fn start_wanted(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut wait = if self.probes.is_empty() {
            None
        } else {
            Some(Duration::from_millis(20))
        };
        for slot in wake::slots() {
            let oid = slot.database.load(Ordering::Acquire);
            if oid == 0 || slot.wanted.load(Ordering::Acquire) == 0 {
                continue;
            }
            if slot.held() {
                wait = sooner(wait, Duration::from_secs(1));
                continue;
            }
            let led = self.leaders.entry(oid).or_insert_with(|| Led {
                worker: None,
                failures: 0,
                started: now,
                not_before: now,
                complained: None,
            });
            if led.worker.is_some() {
                slot.wanted.store(0, Ordering::Release);
                continue;
            }
            if led.not_before > now {
                wait = sooner(wait, led.not_before - now);
                continue;
            }
            slot.wanted.store(0, Ordering::Release);
            if !start(slot, oid, led) {
                slot.wanted.store(1, Ordering::Release);
                led.not_before = now + backoff(led.failures);
                led.failures += 1;
                wait = sooner(wait, led.not_before - now);
            }
        }
        wait
    }
}

/// Starts the leader of a slot; says so in the log, once an hour at most, when no worker is free.
fn start(slot: &Slot, oid: u32, led: &mut Led) -> bool {
    slot.set_activity(Activity::Starting);
    // SAFETY: MyProcPid is a plain integer of this process.
    let own_pid = unsafe { pg_sys::MyProcPid };
    let worker = BackgroundWorkerBuilder::new(&format!("webhook_outbox leader {oid}"))
        .set_type("webhook_outbox leader")
        .set_library("webhook_outbox")
        .set_function("webhook_outbox_leader")
        .set_argument(Some(pg_sys::Datum::from(i64::from(oid))))
        .set_notify_pid(own_pid)
        .enable_spi_access()
        .load_dynamic();
    match worker {
        Ok(worker) => {
            led.worker = Some(worker);
            led.started = Instant::now();
            led.complained = None;
            true
        }
        Err(_) => {
            slot.set_activity(Activity::NoWorkerSlot);
            let silent = led
                .complained
                .is_some_and(|at| at.elapsed() < Duration::from_secs(3600));
            if !silent {
                led.complained = Some(Instant::now());
                super::error::Raise::new(
                    PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
                    format!("could not start a webhook leader for database {oid}"),
                )
                .detail("No background worker slot is free.")
                .hint("Raise \"max_worker_processes\".")
                .warn();
            }
            false
        }
    }
}

/// 1 s after the first early end, doubling up to a minute: a doomed worker must not fill the log.
fn backoff(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::from_millis(100);
    }
    Duration::from_secs(1 << failures.min(6)).min(Duration::from_secs(60))
}

fn sooner(wait: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(wait.map_or(other, |wait| wait.min(other)))
}

/// Databases that may have a leader: connectable, no templates, named by `webhook.databases`.
fn databases() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    // SAFETY: the launcher is connected to the shared catalogues; the scan runs in a transaction of
    // its own, reads fixed-size columns of pg_database, and everything opened here is closed here.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        let relation =
            pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let row = (*tuple)
                .t_data
                .cast::<u8>()
                .add(usize::from((*(*tuple).t_data).t_hoff))
                .cast::<pg_sys::FormData_pg_database>();
            if (*row).datistemplate || !(*row).datallowconn {
                continue;
            }
            let name = CStr::from_ptr((*row).datname.data.as_ptr());
            if settings::serves_database(&name.to_string_lossy()) {
                found.push((*row).oid);
            }
        }
        if let Some(end) = (*(*relation).rd_tableam).scan_end {
            end(scan);
        }
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        pg_sys::CommitTransactionCommand();
    }
    found
}
