//! Code of users, run with the rights of its owner and no others: in a savepoint, as a security-restricted operation, in a
//! transaction that writes nothing, with settings that are undone afterwards.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

/// What went wrong with such code. The message may hold what it has read.
pub struct Fault {
    pub sqlstate: String,
    pub message: String,
}

/// Does the work as a role, in a savepoint of its own. Time-outs, cancels, lost races and lack of resources are not the
/// work's fault and go on as errors.
pub fn call_as<T>(owner: pg_sys::Oid, work: impl FnOnce() -> T) -> Result<T, Fault> {
    // SAFETY: the main thread of a session inside a transaction, as PL/pgSQL's blocks with exceptions are. What is
    // begun here is ended below on either way; the context and owner of memory are put back as they were.
    let outcome = unsafe {
        let (memory, resources) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        let mut work = Some(work);
        let outcome: Result<T, Box<CaughtError>> = PgTryBuilder::new(AssertUnwindSafe(|| {
            let work = work.take().unwrap_or_else(|| unreachable!("called once"));
            Ok(restricted(owner, work))
        }))
        .catch_others(|error| Err(Box::new(error)))
        .catch_rust_panic(|error| Err(Box::new(error)))
        .execute();
        pg_sys::MemoryContextSwitchTo(memory);
        if outcome.is_ok() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            // Puts back user, settings and whether the transaction may write, too.
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = resources;
        outcome
    };
    outcome.map_err(|error| {
        let (CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic {
            ereport: report, ..
        }) = &*error;
        let sqlstate = sqlstate(report.sql_error_code());
        let ours = ["57", "40", "53", "58", "XX"];
        if ours.contains(&&sqlstate[..2]) {
            error.rethrow()
        }
        Fault {
            sqlstate,
            message: report.message().to_owned(),
        }
    })
}

/// # Safety
/// Inside a savepoint that the caller rolls back on an error.
unsafe fn restricted<T>(owner: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let mut user = pg_sys::InvalidOid;
    let mut context = 0;
    // SAFETY: what is changed is put back below, and on an error with the savepoint.
    let (level, read_only) = unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        pg_sys::SetUserIdAndSecContext(
            owner,
            context
                | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION)
                    as i32,
        );
        let level = pg_sys::NewGUCNestLevel();
        // The caller's own would let him put his functions and operators in the place of the owner's.
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        // It cannot be set back in a savepoint. With it no row is written, and nothing is emitted.
        let read_only = pg_sys::XactReadOnly;
        pg_sys::XactReadOnly = true;
        (level, read_only)
    };
    let made = work();
    // SAFETY: puts back what was read above; settings that the work made are undone.
    unsafe {
        pg_sys::XactReadOnly = read_only;
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
    }
    made
}

/// The five characters of an SQLSTATE, six bits each.
fn sqlstate(code: PgSqlErrorCode) -> String {
    let code = code as i32;
    (0..5)
        .map(|place| {
            let six = u8::try_from((code >> (6 * place)) & 0x3f).unwrap_or(0);
            char::from(six + b'0')
        })
        .collect()
}
