//! Transactions of the leader: begun, committed or aborted here, never held across a request.
//!
//! pgrx's own wrapper has no abort path and its SIGTERM handler does not interrupt a statement; both
//! would hang a shutdown. An error of any kind ends in an aborted transaction and a message.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::pg::outbox;

#[cfg(not(feature = "pg18"))]
use pgrx::pg_sys::pqsignal;
#[cfg(feature = "pg18")]
use pgrx::pg_sys::pqsignal_be as pqsignal;

static IN_TRANSACTION: AtomicBool = AtomicBool::new(false);
static TERMINATE: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

/// Installs the handlers of this process and lets signals through.
pub fn install_signal_handlers() {
    // SAFETY: handlers only set flags and a latch, as signal handlers must.
    unsafe {
        pqsignal(nix::libc::SIGTERM, Some(on_terminate));
        pqsignal(nix::libc::SIGHUP, Some(on_reload));
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

unsafe extern "C-unwind" fn on_terminate(_signal: i32) {
    let errno = nix::errno::Errno::last_raw();
    TERMINATE.store(true, Ordering::Release);
    // SAFETY: writes of flags that PostgreSQL's own handlers write; SetLatch is async-signal-safe.
    unsafe {
        // A statement, or a wait for a synchronous standby, ends with an error; the leader keeps
        // control and has its grace period.
        if IN_TRANSACTION.load(Ordering::Acquire) {
            pg_sys::QueryCancelPending = 1;
            pg_sys::InterruptPending = 1;
        }
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
    nix::errno::Errno::set_raw(errno);
}

unsafe extern "C-unwind" fn on_reload(_signal: i32) {
    let errno = nix::errno::Errno::last_raw();
    RELOAD.store(true, Ordering::Release);
    // SAFETY: SetLatch is async-signal-safe.
    unsafe { pg_sys::SetLatch(pg_sys::MyLatch) };
    nix::errno::Errno::set_raw(errno);
}

/// Whether the process was asked to end.
pub fn terminating() -> bool {
    TERMINATE.load(Ordering::Acquire)
}

/// Whether the configuration is to be read again; asking lowers the flag.
pub fn take_reload() -> bool {
    RELOAD.swap(false, Ordering::AcqRel)
}

/// Why a transaction failed. The text has no row contents.
#[derive(Clone)]
pub enum Trouble {
    /// May work when tried again: a lock, a full disk, a cancelled statement.
    Passing(String),
    /// Will not.
    Lasting(String),
}

impl Trouble {
    pub fn text(&self) -> &str {
        let (Trouble::Passing(text) | Trouble::Lasting(text)) = self;
        text
    }
}

/// Runs `act` in a transaction as the owner of the extension. With `one_snapshot` every read sees
/// the same state (REPEATABLE READ).
pub fn transaction<R>(
    owner: pg_sys::Oid,
    one_snapshot: bool,
    what: &'static std::ffi::CStr,
    act: impl FnOnce() -> R,
) -> Result<R, Trouble> {
    IN_TRANSACTION.store(true, Ordering::Release);
    let result = PgTryBuilder::new(AssertUnwindSafe(|| {
        // SAFETY: the leader's main thread, outside any transaction.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            if one_snapshot {
                pg_sys::XactIsoLevel = pg_sys::XACT_REPEATABLE_READ as i32;
            }
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, what.as_ptr());
        }
        let value = outbox::as_owner(owner, act);
        // SAFETY: ends what was begun above.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        Ok(value)
    }))
    .catch_others(|error| Err(describe(&error)))
    .catch_rust_panic(|error| Err(describe(&error)))
    .execute();
    IN_TRANSACTION.store(false, Ordering::Release);
    // SAFETY: the main thread; after an error the transaction is aborted, which also restores the
    // user. Autovacuum sees what the leader writes only when statistics are reported.
    unsafe {
        if result.is_err() {
            pg_sys::AbortCurrentTransaction();
        }
        pg_sys::QueryCancelPending = 0;
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
    result
}

/// The primary message and SQLSTATE; details could hold row contents.
fn describe(error: &CaughtError) -> Trouble {
    use PgSqlErrorCode::*;
    let (CaughtError::PostgresError(report)
    | CaughtError::ErrorReport(report)
    | CaughtError::RustPanic {
        ereport: report, ..
    }) = error;
    let code = report.sql_error_code();
    let text = format!("{} ({code:?})", report.message());
    match code {
        ERRCODE_LOCK_NOT_AVAILABLE
        | ERRCODE_OBJECT_IN_USE
        | ERRCODE_QUERY_CANCELED
        | ERRCODE_T_R_DEADLOCK_DETECTED
        | ERRCODE_T_R_SERIALIZATION_FAILURE
        | ERRCODE_INSUFFICIENT_RESOURCES
        | ERRCODE_DISK_FULL
        | ERRCODE_OUT_OF_MEMORY
        | ERRCODE_TOO_MANY_CONNECTIONS
        | ERRCODE_IO_ERROR => Trouble::Passing(text),
        _ => Trouble::Lasting(text),
    }
}
