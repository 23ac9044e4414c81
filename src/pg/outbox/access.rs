//! What sessions read of the rights, and reading a payload: everything as the owner of the extension, for a caller whose
//! right to it `src/pg/access.rs` has judged.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::statement::{run, select, statement};
use super::{as_owner, owner, relation, unix_micros};
use crate::pg::error::Raise;

/// A row of `webhook._access` whose role exists here.
#[derive(Clone)]
pub struct Right {
    pub role: pg_sys::Oid,
    pub kind: String,
    pub partner_id: Option<String>,
    pub event_types: Option<Vec<String>>,
    /// Microseconds since 1970.
    pub valid_until: Option<i64>,
}

/// An event as `read_payload` needs it; no data = expunged.
pub struct Payload {
    pub partner: String,
    pub kind: String,
    pub data: Option<String>,
}

// An oid means a role of the cluster that it was written in; in a restored dump the name does.
statement!(
    RIGHTS,
    [i64],
    "select case when a.cluster operator(pg_catalog.=) $1 then a.role_id else r.oid end,
            a.kind, a.partner_id, a.event_types, a.valid_until
       from webhook._access as a
       left join pg_catalog.pg_authid as r
              on a.cluster operator(pg_catalog.<>) $1
             and r.rolname operator(pg_catalog.=) a.role_name
      where a.cluster operator(pg_catalog.=) $1
         or r.oid is not null"
);

statement!(
    ENDPOINTS_OF,
    [Vec<String>],
    "select e.endpoint_id
       from webhook._endpoint as e
      where e.partner_id operator(pg_catalog.=) any ($1)"
);

statement!(
    PAYLOAD,
    [&str],
    "select e.partner_id, e.type, e.body
       from webhook._event as e
      where e.event_id operator(pg_catalog.=) $1"
);

statement!(
    CHECKED_REASON,
    [&str, &str],
    "select webhook._check_writable($1), webhook._check_reason($2)"
);

statement!(
    LOG_READING,
    [&str, &str, &str, &str],
    "select webhook._log('read_payload', 'event', $1, $2, null, pg_catalog.jsonb_build_object('role', $4), $3)"
);

/// System identifier of the cluster, as pg_control_system() shows it.
pub fn cluster() -> i64 {
    // SAFETY: plain read of the control file's copy in shared memory.
    unsafe { pg_sys::GetSystemIdentifier() }.cast_signed()
}

/// The table of rights; InvalidOid when it is not there.
pub fn access_table() -> pg_sys::Oid {
    relation(c"_access").unwrap_or(pg_sys::InvalidOid)
}

/// Tells every session, at commit, that the rights have changed; this one at its next command.
pub fn invalidate_access() {
    let table = access_table();
    if table != pg_sys::InvalidOid {
        // SAFETY: queues a message about an existing table in the transaction under way.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
    }
}

/// All rights as of now, not as of the transaction's snapshot, and whether they may be kept until the table changes.
pub fn rights() -> (Vec<Right>, bool) {
    // While a parallel query runs, no newer snapshot may be taken.
    // SAFETY: plain read of this process's state.
    let lasting = !unsafe { pg_sys::IsInParallelMode() };
    if lasting {
        // SAFETY: popped below; on error PostgreSQL pops it itself.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
    }
    let rights = as_owner(installed_owner(), || {
        select(&RIGHTS, &[cluster().into()], |rows| {
            rows.filter_map(|row| {
                Some(Right {
                    role: row.get::<pg_sys::Oid>(1).ok()??,
                    kind: row.get::<String>(2).ok()??,
                    partner_id: row.get::<String>(3).ok()?,
                    event_types: row.get::<Vec<String>>(4).ok()?,
                    valid_until: row.get::<TimestampWithTimeZone>(5).ok()?.map(unix_micros),
                })
            })
            .collect()
        })
    });
    if lasting {
        // SAFETY: the one pushed above.
        unsafe { pg_sys::PopActiveSnapshot() };
    }
    (rights, lasting)
}

/// Every endpoint of the partners.
pub fn endpoints_of(partners: Vec<String>) -> Vec<i64> {
    as_owner(installed_owner(), || {
        select(&ENDPOINTS_OF, &[partners.into()], |rows| {
            rows.filter_map(|row| row.get::<i64>(1).ok()?).collect()
        })
    })
}

/// The event, if there is one.
pub fn payload(event_id: &str) -> Option<Payload> {
    as_owner(installed_owner(), || {
        select(&PAYLOAD, &[event_id.into()], |rows| {
            match rows.first().get_three::<String, String, String>() {
                Ok((Some(partner), Some(kind), data)) => Some(Payload {
                    partner,
                    kind,
                    data,
                }),
                _ => None,
            }
        })
    })
}

/// The reason without surrounding blanks; an error where it is none, or where nothing can be written.
pub fn checked_reason(act: &str, reason: &str) -> String {
    as_owner(installed_owner(), || {
        select(&CHECKED_REASON, &[act.into(), reason.into()], |rows| {
            rows.first().get::<String>(2).ok().flatten()
        })
    })
    .unwrap_or_default()
}

/// Leaves the audit row of a payload that is read.
pub fn log_reading(event_id: &str, partner: &str, reason: &str, role: &str) {
    as_owner(installed_owner(), || {
        run(
            &LOG_READING,
            &[event_id.into(), partner.into(), reason.into(), role.into()],
            |_| (),
        );
    });
}

/// Name of a role; empty when it was dropped meanwhile.
pub fn role_name(role: pg_sys::Oid) -> String {
    // SAFETY: a catalogue look-up; the result is a palloc'ed C string or null.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() {
            return String::new();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

fn installed_owner() -> pg_sys::Oid {
    owner().unwrap_or_else(|| {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "extension \"webhook_outbox\" is not installed in this database",
        )
        .hint("Run CREATE EXTENSION webhook_outbox.")
        .raise()
    })
}
