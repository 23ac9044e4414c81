//! Entering a database: connection, session settings, the leader's lock, the extension's version.

use std::ffi::CStr;
use std::time::Duration;

use pgrx::{pg_sys, warning};

use super::End;
use super::transaction::{terminating, transaction};
use crate::pg::wake::{Activity, Slot, superseded};
use crate::pg::{VERSION, outbox, settings};

/// First key of the advisory lock that a leader holds for as long as it lives ("whob").
const LOCK_CLASS: u32 = 0x7768_6f62;

/// What autovacuum overrides for itself, and for the same reason: ALTER DATABASE and ALTER ROLE
/// settings apply to background workers too. The planner settings keep the hot statements on their
/// indexes when statistics of a momentarily empty table mislead it.
const SETTINGS: &[(&CStr, &CStr)] = &[
    (c"application_name", c"webhook_outbox leader"),
    (c"search_path", c"pg_catalog"),
    (c"statement_timeout", c"0"),
    (c"lock_timeout", c"100ms"),
    (c"idle_in_transaction_session_timeout", c"0"),
    (c"default_transaction_read_only", c"off"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_deferrable", c"off"),
    // The extension has no trigger on what the leader writes; those that somebody else hung there, and event
    // triggers, would run with the owner's rights.
    (c"session_replication_role", c"replica"),
    (c"row_security", c"off"),
    (c"zero_damaged_pages", c"off"),
    (c"synchronous_commit", c"off"),
    (c"TimeZone", c"UTC"),
    (c"DateStyle", c"ISO"),
    (c"IntervalStyle", c"postgres"),
    (c"bytea_output", c"hex"),
    (c"jit", c"off"),
    (c"max_parallel_workers_per_gather", c"0"),
    (c"plan_cache_mode", c"force_generic_plan"),
    (c"enable_seqscan", c"off"),
    (c"enable_hashjoin", c"off"),
    (c"enable_mergejoin", c"off"),
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    (c"transaction_timeout", c"0"),
];

/// Connects, takes the lock and finds the extension; returns its owner and OID.
pub fn enter(
    database: pg_sys::Oid,
    slot: &'static Slot,
) -> Result<(pg_sys::Oid, pg_sys::Oid), End> {
    // SAFETY: the main thread of a fresh background worker; InvalidOid = the bootstrap superuser.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
        // A worker is born with the settings of the postmaster, and deaf to a reload until its handlers are there: one
        // of that moment would be lost, and the old boundary in force until the next.
        pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        for (name, value) in SETTINGS {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
    let mut told = None;
    loop {
        if terminating() || slot.held() || superseded() {
            return Err(End::Asked);
        }
        // Lowered before looking: whoever commits after this look raises it again.
        slot.take_wake();
        // SAFETY: plain read of this process's user.
        let user = unsafe { pg_sys::GetUserId() };
        let found = transaction(
            user,
            false,
            c"webhook leader: looking for the extension",
            || {
                (
                    extension_oid(),
                    outbox::owner(),
                    outbox::extension_version(),
                    settings::serves_database(&outbox::database_name(database))
                        && !outbox::is_template(database),
                )
            },
        )
        .map_err(End::from)?;
        let (extension, Some(owner), Some(version), true) = found else {
            return Err(End::Absent);
        };
        if version != VERSION {
            slot.set_activity(Activity::OtherVersion);
            // Once, not at every look: it may take days until somebody updates.
            if told.as_ref() != Some(&version) {
                warning!(
                    "webhook leader sends nothing: the library has version {VERSION}, the extension {version}"
                );
                told = Some(version);
            }
            nap(Duration::from_secs(5));
            continue;
        }
        let locked = transaction(user, false, c"webhook leader: waiting for its lock", || {
            take_lock(database, extension)
        })
        .map_err(End::from)?;
        if locked {
            return Ok((owner, extension));
        }
        nap(Duration::from_millis(100));
    }
}

/// OID of the extension; InvalidOid when it is not installed.
pub fn extension_oid() -> pg_sys::Oid {
    // SAFETY: a catalogue look-up in a transaction.
    unsafe { pg_sys::get_extension_oid(c"webhook_outbox".as_ptr(), true) }
}

/// Session-level: PostgreSQL itself releases it when the process ends, however it ends. An advisory
/// lock of a kind that no SQL function reaches (field 4 is 1 or 2 there), so that no user can take it
/// first and keep the leader out.
fn take_lock(database: pg_sys::Oid, extension: pg_sys::Oid) -> bool {
    let tag = pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: LOCK_CLASS,
        locktag_field3: extension.to_u32(),
        locktag_field4: 3,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    };
    // SAFETY: a complete tag; the call does not wait.
    let result =
        unsafe { pg_sys::LockAcquire(&raw const tag, pg_sys::ExclusiveLock as i32, true, true) };
    result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

fn nap(time: Duration) {
    // SAFETY: waits on this process's own latch.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
            i64::try_from(time.as_millis()).unwrap_or(1000),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}
