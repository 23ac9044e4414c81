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

/// An event as `read_payload` needs it.
pub struct Payload {
    pub partner: String,
    pub kind: String,
    /// In the schema version that was asked for.
    pub data: Option<String>,
    /// Whether that version is stored.
    pub stored: bool,
    pub expunged: bool,
}

statement!(
    ENDPOINTS_OF,
    [Vec<String>],
    "select e.endpoint_id
       from webhook._endpoint as e
      where e.partner_id operator(pg_catalog.=) any ($1)"
);

statement!(
    PAYLOAD,
    [&str, Option<&str>],
    "select e.partner_id, e.type,
            case when $2 is null or $2 operator(pg_catalog.=) e.schema_version then e.body else v.body end,
            $2 is null or $2 operator(pg_catalog.=) e.schema_version or v.event_id is not null,
            e.body is null
       from webhook._event as e
       left join webhook._event_version as v
              on v.event_id operator(pg_catalog.=) e.event_id and v.version operator(pg_catalog.=) $2
      where e.event_id operator(pg_catalog.=) $1"
);

statement!(
    FEED_DATA,
    [&str, &str],
    "select e.body
       from webhook._event as e
      where e.event_id operator(pg_catalog.=) $2
        and e.partner_id operator(pg_catalog.=) $1"
);

statement!(
    CHECKED_REASON,
    [&str, &str],
    "select webhook._check_writable($1), webhook._check_reason($2)"
);

statement!(
    LOG_READING,
    [&str, &str, &str, &str, Option<&str>],
    "select webhook._log('read_payload', 'event', $1, $2, null,
                         pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('role', $4, 'version', $5)), $3)"
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

/// All rights as of now, whatever snapshot the transaction goes by: SPI would read by that of a REPEATABLE READ
/// transaction, in which a right that was taken away stays for ever. So the table is read as PostgreSQL reads its catalogue.
pub fn rights() -> Vec<Right> {
    let table = access_table();
    if table == pg_sys::InvalidOid {
        return Vec::new();
    }
    let mut rights = Vec::new();
    // SAFETY: opened, scanned and closed as systable_beginscan asks; without a snapshot it takes a new one. On error
    // PostgreSQL closes what is open.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::relation_open(table, lock);
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::InvalidOid,
            false,
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            rights.extend(right(&Fields::of(table, (*relation).rd_att, tuple)));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::relation_close(relation, lock);
    }
    rights
}

/// The values of a row of a table.
struct Fields {
    table: pg_sys::Oid,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl Fields {
    /// # Safety
    /// `tuple` is a row of `table`, whose description `columns` is; it stays in place while the value is in use.
    unsafe fn of(
        table: pg_sys::Oid,
        columns: pg_sys::TupleDesc,
        tuple: pg_sys::HeapTuple,
    ) -> Fields {
        // SAFETY: the caller's promise; the arrays have a place for each column.
        unsafe {
            let count = usize::try_from((*columns).natts).unwrap_or(0);
            let mut values = vec![pg_sys::Datum::from(0); count];
            let mut nulls = vec![true; count];
            pg_sys::heap_deform_tuple(tuple, columns, values.as_mut_ptr(), nulls.as_mut_ptr());
            Fields {
                table,
                values,
                nulls,
            }
        }
    }

    /// # Safety
    /// The column is of a type that `T` reads.
    unsafe fn get<T: FromDatum>(&self, column: &CStr) -> Option<T> {
        // SAFETY: the caller's promise; a column that is not there has no number above zero.
        unsafe {
            let number = pg_sys::get_attnum(self.table, column.as_ptr());
            let place = usize::try_from(number).ok()?.checked_sub(1)?;
            T::from_datum(*self.values.get(place)?, *self.nulls.get(place)?)
        }
    }
}

/// The right that a row is, if its role exists: an oid means a role of the cluster that it was written in, in a restored
/// dump the name does.
///
/// # Safety
/// `row` is one of `webhook._access`.
unsafe fn right(row: &Fields) -> Option<Right> {
    // SAFETY: the types are those of the table's columns; a name is a C string.
    unsafe {
        let role = if row.get::<i64>(c"cluster")? == cluster() {
            row.get::<pg_sys::Oid>(c"role_id")?
        } else {
            let name = row.get::<&CStr>(c"role_name")?;
            pg_sys::get_role_oid(name.as_ptr(), true)
        };
        (role != pg_sys::InvalidOid).then_some(())?;
        Some(Right {
            role,
            kind: row.get::<String>(c"kind")?,
            partner_id: row.get::<String>(c"partner_id"),
            event_types: row.get::<Vec<String>>(c"event_types"),
            valid_until: row
                .get::<TimestampWithTimeZone>(c"valid_until")
                .map(unix_micros),
        })
    }
}

/// Every endpoint of the partners.
pub fn endpoints_of(partners: Vec<String>) -> Vec<i64> {
    as_owner(installed_owner(), || {
        select(&ENDPOINTS_OF, &[partners.into()], |rows| {
            rows.filter_map(|row| row.get::<i64>(1).ok()?).collect()
        })
    })
}

/// The event, if there is one, with its payload in a schema version; none = as it was emitted.
pub fn payload(event_id: &str, version: Option<&str>) -> Option<Payload> {
    as_owner(installed_owner(), || {
        select(&PAYLOAD, &[event_id.into(), version.into()], |mut rows| {
            let row = rows.next()?;
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let flag = |index: usize| row.get::<bool>(index).ok().flatten();
            Some(Payload {
                partner: text(1)?,
                kind: text(2)?,
                data: text(3),
                stored: flag(4).unwrap_or(false),
                expunged: flag(5)?,
            })
        })
    })
}

/// Payload of an event of this partner; none = expunged, or no such event.
pub fn feed_data(partner: &str, event_id: &str) -> Option<String> {
    as_owner(installed_owner(), || {
        select(&FEED_DATA, &[partner.into(), event_id.into()], |rows| {
            rows.first().get_one::<String>().ok().flatten()
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
pub fn log_reading(event_id: &str, version: Option<&str>, partner: &str, reason: &str, role: &str) {
    as_owner(installed_owner(), || {
        run(
            &LOG_READING,
            &[
                event_id.into(),
                partner.into(),
                reason.into(),
                role.into(),
                version.into(),
            ],
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

/// Owner of the extension; an error where it is not installed.
pub fn installed_owner() -> pg_sys::Oid {
    owner().unwrap_or_else(|| {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "extension \"webhook_outbox\" is not installed in this database",
        )
        .hint("Run CREATE EXTENSION webhook_outbox.")
        .raise()
    })
}
