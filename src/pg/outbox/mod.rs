//! The only place that executes SQL: what sessions write (`emitting`), what the leader reads and
//! writes (`window`, `configuration`, `results`, `due`, `requests`), and the helpers all of them use.
//!
//! Every statement names its objects with their schema and runs as the owner of the extension: no
//! search_path and no user's rights can change what it means.

mod access;
mod adopting;
mod alerts;
mod catalogue;
mod change;
mod columns;
mod conditions;
mod configuration;
mod control;
mod delivered;
mod due;
mod due_changes;
mod emitting;
mod filtering;
mod inbox;
mod insertion;
mod keeping;
mod keys;
mod mending;
mod newcomer;
mod order;
mod proving;
mod range;
mod reading;
mod reconciling;
mod requests;
mod results;
mod rows;
mod shape;
mod statement;
mod streamed;
mod stretch;
mod upkeep;
mod version;
mod window;

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use sha2::{Digest, Sha256};

pub use access::{
    Right, access_table, checked_reason, cluster, endpoints_of, feed_data, invalidate_access,
    log_reading, payload, rights, role_name,
};
pub use adopting::{
    AdoptionRow, Counts, OldDelivery, Reached, admitted_origins, advance_adoption, begin_adoption,
    fenced_of, last_adopted_pos, make_pairs, memberships, newest_published, old_deliveries,
    old_events, published_of, resume_pairs, unfinished_adoption,
};
pub use alerts::{Alert, Lifecycle, notify_alerts, pass_over_alerts, raise_alert};
pub use catalogue::{
    Observation, SchemaRow, Source, catalogue_table, event_type, invalidate_catalogue, observe,
    source, threshold_types,
};
pub use change::{Attempted, Change, Excerpt, Outcomes, hold};
pub use conditions::{ConditionRow, conditions};
pub use configuration::{
    EndpointRow, changed_endpoints, changed_event_types, endpoints_of_partner,
};
pub use control::{
    PauseRow, Place, Queued, Walk, changed_pauses, changed_policies, held_endpoints, held_types,
    queued, release_type,
};
pub use due::{
    Claim, Claimed, DueRow, NextDue, claim, clamp_due, drop_queue, due_endpoints, due_rows,
    next_due, put_off,
};
pub use emitting::{Sealing, announce_seal_key, claim_key, differs, insert_event};
pub use filtering::{
    FILTER_VERSIONS, FilterRow, Said, free_filter, held_before, held_by_filter, try_filters,
};
pub use inbox::inbox_keys;
pub use keeping::{
    Overage, clear_default, clear_partition, close_old, expire_keys, expire_payloads, expire_rows,
    expunged_of, old_partitions, overdue, sweep,
};
pub use keys::{KeyRow, SealKeys, seal_keys, signing_keys, stored_seal_keys};
pub use mending::mend_pairs;
pub use newcomer::{Belated, MissedEvent, add_belated, missed_events};
pub use order::{Subject, free_order, held_subjects, release_subjects};
pub use proving::{ProofRow, Tried, Written, drop_pending, record_try, tries, warned_of_expiry};
pub use range::{
    FeedRow, Only, Progress, ReplayRow, advance_replay, begin_replay, end_replay, facts_of,
    states_of, unfinished_replay, walk_feed,
};
pub use reading::{Row, Seen, events_by_id};
pub use reconciling::query_function;
pub use requests::{
    Request, finish_request, new_pair, new_series, pairs_of_event, pending_requests, settle_pairs,
};
pub use results::{open_claim, record};
pub use shape::{RevisionRow, fix_revisions, shapes_with_versions};
pub use stretch::{Amount, Stretch, Whose, read_window};
pub use upkeep::{
    Position, add_partition, highest_incarnation, ledger, note_seen, start_life, trim_ledger,
};
pub use version::{
    ConversionRow, Stored, Versions, conversions, event_versions, function, insert_version,
};
pub use window::{
    Known, Opening, fence, join_stream, known_pairs, open_batch, place_everybody, publish,
    set_stream_aside, snapshot,
};

use super::settings;

/// Microseconds between 1970-01-01 and 2000-01-01, where PostgreSQL counts from.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// Microseconds since 1970 as a timestamptz; None when PostgreSQL could not hold it.
pub fn timestamp(unix_micros: i64) -> Option<TimestampWithTimeZone> {
    TimestampWithTimeZone::try_from(unix_micros.checked_sub(POSTGRES_EPOCH)?).ok()
}

/// A timestamptz as microseconds since 1970, saturated; infinities become the extremes.
pub fn unix_micros(at: TimestampWithTimeZone) -> i64 {
    pg_sys::TimestampTz::from(at).saturating_add(POSTGRES_EPOCH)
}

/// Which database writes: a hash of system identifier, database, extension and `webhook.node_name`.
/// A dump, a clone or a subscriber has another one, so it never sends what it did not emit.
pub fn origin() -> i64 {
    // SAFETY: plain reads of this process's and the cluster's identity; the extension is looked up
    // in the catalogue, missing is fine.
    let (system, database, extension) = unsafe {
        (
            pg_sys::GetSystemIdentifier(),
            pg_sys::MyDatabaseId.to_u32(),
            pg_sys::get_extension_oid(c"webhook_outbox".as_ptr(), true).to_u32(),
        )
    };
    let mut hash = Sha256::new();
    hash.update(b"webhook_outbox origin 1\n");
    hash.update(system.to_be_bytes());
    hash.update(database.to_be_bytes());
    hash.update(extension.to_be_bytes());
    hash.update(settings::node_name().as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut short = [0; 8];
    short.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(short)
}

/// OID of a table of the extension; None when it is not there.
fn relation(name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: catalogue look-ups by constant names.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"webhook".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Owner of a table of the extension; None when it vanished.
pub fn owner() -> Option<pg_sys::Oid> {
    let table = relation(c"_event")?;
    // SAFETY: a syscache look-up that is released before returning.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            pg_sys::Datum::from(table),
        );
        if tuple.is_null() {
            return None;
        }
        let row = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_class>(tuple);
        let owner = (*row).relowner;
        pg_sys::ReleaseSysCache(tuple);
        Some(owner)
    }
}

/// Runs `act` with the rights of the extension's owner and nothing that a user could have planted:
/// the security-restricted flag keeps user code from outliving it. An error resets the user with
/// its (sub)transaction.
pub fn as_owner<R>(owner: pg_sys::Oid, act: impl FnOnce() -> R) -> R {
    let mut user = pg_sys::InvalidOid;
    let mut context = 0;
    // SAFETY: the previous identity is put back below; on error PostgreSQL does so itself.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        pg_sys::SetUserIdAndSecContext(
            owner,
            context
                | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION)
                    as i32,
        );
    }
    let result = act();
    // SAFETY: restores exactly what was read above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    result
}

/// Name of a database.
pub fn database_name(oid: pg_sys::Oid) -> String {
    // SAFETY: a catalogue look-up; the result is a palloc'ed C string or null.
    unsafe {
        let name = pg_sys::get_database_name(oid);
        if name.is_null() {
            return String::new();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// Whether a database is a template: it must stay without connections, or nothing could be made of it.
pub fn is_template(oid: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up that is released before returning.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::DATABASEOID as i32,
            pg_sys::Datum::from(oid),
        );
        if tuple.is_null() {
            return false;
        }
        let row = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple);
        let template = (*row).datistemplate;
        pg_sys::ReleaseSysCache(tuple);
        template
    }
}

statement::statement!(
    INSTALLED,
    [],
    "select e.oid, e.extversion
       from pg_catalog.pg_extension as e
      where e.extname operator(pg_catalog.=) 'webhook_outbox'"
);

/// The installed extension and its version; None when it is not installed.
pub fn installed() -> Option<(pg_sys::Oid, String)> {
    statement::select(&INSTALLED, &[], |rows| {
        match rows.first().get_two::<pg_sys::Oid, String>() {
            Ok((Some(oid), Some(version))) => Some((oid, version)),
            _ => None,
        }
    })
}

/// Version of the installed extension; None when it is not installed.
pub fn extension_version() -> Option<String> {
    installed().map(|(_, version)| version)
}
