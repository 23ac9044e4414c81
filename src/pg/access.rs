//! Who may emit, see and read what: the rights of `webhook._access`, kept per session, and what follows from them.
//!
//! A role has its own rights and those of every role whose privileges it has. It is current_user that is judged: of
//! a SECURITY DEFINER function its owner. A superuser and the owner of the extension are limited by nothing.
//! A change tells every session by an invalidation of the table, so a right that was taken away is gone at the next
//! statement, and an emit where nobody is limited costs a look at a flag.

use std::cell::{Cell, RefCell};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::emit::now_micros;
use super::error::{Raise, null_argument};
use super::outbox::{self, Right};
use super::settings;
use crate::rules::{matching, redaction};

/// What a session knows of the rights.
struct Known {
    rights: Vec<Right>,
    /// Whether any right to emit is limited: otherwise none needs to be looked at.
    emit_is_limited: bool,
}

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
    static STALE: Cell<bool> = const { Cell::new(true) };
    static LISTENS: Cell<bool> = const { Cell::new(false) };
    /// The table whose invalidation counts.
    static TABLE: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
}

/// Refuses an event that the current user has no right to emit. A role that no right to emit applies to has its
/// EXECUTE from elsewhere and is not limited.
pub fn check_emit(kind: &str, partner: &str) {
    let refused = with_rights(|known| {
        if !known.emit_is_limited {
            return false;
        }
        let user = user();
        if unlimited(user) {
            return false;
        }
        let mut limited = false;
        for right in known.rights.iter().filter(|right| right.kind == "emit") {
            if !holds(user, right) {
                continue;
            }
            limited = true;
            if covers(right, kind, partner) {
                return false;
            }
        }
        limited
    });
    if refused {
        // What else the role may emit, or others may, is not said.
        Raise::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to emit this event",
        )
        .detail("The role may emit for certain partners and event types only.")
        .hint("See webhook.grant_access.")
        .raise();
    }
}

#[pg_extern(sql = false)]
fn cluster() -> i64 {
    outbox::cluster()
}

#[cfg(feature = "pg13")]
const PG_MONITOR: u32 = pg_sys::DEFAULT_ROLE_MONITOR;
#[cfg(not(feature = "pg13"))]
const PG_MONITOR: u32 = pg_sys::ROLE_PG_MONITOR;

#[pg_extern(sql = false)]
fn sees_all() -> bool {
    let user = user();
    let monitor = pg_sys::Oid::from(PG_MONITOR);
    unlimited(user)
        || has_privileges(user, monitor)
        || any_right(user, |right| {
            matches!(right.kind.as_str(), "read" | "operate")
        })
}

#[pg_extern(sql = false)]
fn manages() -> bool {
    let user = user();
    unlimited(user) || any_right(user, |right| right.kind == "operate")
}

#[pg_extern(sql = false)]
fn own_partners() -> Vec<String> {
    let user = user();
    with_rights(|known| {
        known
            .rights
            .iter()
            .filter(|right| matches!(right.kind.as_str(), "partner" | "feed") && holds(user, right))
            .filter_map(|right| right.partner_id.clone())
            .collect()
    })
}

#[pg_extern(sql = false)]
fn own_endpoints() -> Vec<i64> {
    let partners = own_partners();
    if partners.is_empty() {
        return Vec::new();
    }
    outbox::endpoints_of(partners)
}

#[pg_extern(sql = false)]
fn forget_access() {
    outbox::invalidate_access();
}

#[pg_extern(sql = false)]
fn redact(text: &str) -> String {
    redaction::redact(text, &settings::redact_keys())
}

/// `webhook.read_payload`: judged for the current user, read as the owner, and recorded twice.
#[pg_extern(sql = false)]
fn read_payload(
    event_id: Option<&str>,
    reason: Option<&str>,
    version: Option<&str>,
) -> Option<String> {
    let event_id = event_id.unwrap_or_else(|| null_argument("event_id"));
    let reason = reason.unwrap_or_else(|| null_argument("reason"));
    let reason = outbox::checked_reason("read a payload", reason);
    let user = user();
    let now = now_micros();
    let master = unlimited(user);
    let rights: Vec<Right> = with_rights(|known| {
        let in_force = |right: &&Right| {
            right.kind == "payload"
                && right.valid_until.is_some_and(|until| until > now)
                && holds(user, right)
        };
        known.rights.iter().filter(in_force).cloned().collect()
    });
    if !master && rights.is_empty() {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to read payloads",
        )
        .detail("The role has no right of kind \"payload\" that is in force.")
        .hint("Such a right ends by itself; webhook.grant_access gives it anew.")
        .raise();
    }
    let found = outbox::payload(event_id, version).filter(|event| {
        master
            || rights
                .iter()
                .any(|right| covers(right, &event.kind, &event.partner))
    });
    // The same words for a payload outside the right: whether there is such an event is nobody's business.
    let Some(event) = found else {
        Raise::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!("event \"{}\" does not exist", shortened(event_id)),
        )
        .raise()
    };
    if event.expunged {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("event \"{event_id}\" is expunged"),
        )
        .detail("Its payload was removed.")
        .raise()
    }
    let named = || shortened(version.unwrap_or_default());
    if !event.stored {
        Raise::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!(
                "event \"{event_id}\" is not stored in schema version \"{}\"",
                named()
            ),
        )
        .hint("See webhook.event_versions.")
        .raise()
    }
    let Some(data) = event.data else {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "event \"{event_id}\" has no payload in schema version \"{}\"",
                named()
            ),
        )
        .detail("The conversion failed; webhook.event_versions says why.")
        .raise()
    };
    let role = outbox::role_name(user);
    outbox::log_reading(event_id, version, &event.partner, &reason, &role);
    // The audit row goes with a ROLLBACK; this line stays.
    log!("webhook: payload of event {event_id} was read by role \"{role}\"");
    Some(data)
}

fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}

fn user() -> pg_sys::Oid {
    // SAFETY: plain read of this process's state.
    unsafe { pg_sys::GetUserId() }
}

fn has_privileges(user: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: a cached catalogue look-up.
    unsafe { pg_sys::has_privs_of_role(user, role) }
}

/// Whether the current user has the privileges of a role, or is limited by nothing.
pub fn acts_for(role: pg_sys::Oid) -> bool {
    let user = user();
    (role != pg_sys::InvalidOid && has_privileges(user, role)) || unlimited(user)
}

/// Whether the current user may read the payloads in the feed of a partner.
pub fn reads_feed(partner: &str) -> bool {
    let user = user();
    unlimited(user)
        || any_right(user, |right| {
            right.kind == "feed" && right.partner_id.as_deref() == Some(partner)
        })
}

/// A superuser, or somebody with the privileges of the extension's owner.
fn unlimited(user: pg_sys::Oid) -> bool {
    // SAFETY: a cached catalogue look-up.
    let superuser = unsafe { pg_sys::superuser_arg(user) };
    superuser || outbox::owner().is_some_and(|owner| has_privileges(user, owner))
}

fn holds(user: pg_sys::Oid, right: &Right) -> bool {
    has_privileges(user, right.role)
}

fn any_right(user: pg_sys::Oid, of: impl Fn(&Right) -> bool) -> bool {
    with_rights(|known| {
        known
            .rights
            .iter()
            .any(|right| of(right) && holds(user, right))
    })
}

fn covers(right: &Right, kind: &str, partner: &str) -> bool {
    right.partner_id.as_deref().is_none_or(|own| own == partner)
        && right.event_types.as_ref().is_none_or(|patterns| {
            patterns
                .iter()
                .any(|pattern| matching::type_matches(pattern, kind))
        })
}

fn with_rights<R>(act: impl FnOnce(&Known) -> R) -> R {
    listen();
    // Messages are read when a transaction begins and when it takes a new lock: a long one would go on by what it knew.
    // SAFETY: reads what other sessions have told; done wherever PostgreSQL takes a lock.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    if STALE.get() || KNOWN.with_borrow(Option::is_none) {
        // Lowered first: what changes while it is read makes it stale again.
        STALE.set(false);
        TABLE.set(outbox::access_table());
        let rights = outbox::rights();
        let limited = |right: &Right| {
            right.kind == "emit" && (right.partner_id.is_some() || right.event_types.is_some())
        };
        let emit_is_limited = rights.iter().any(limited);
        KNOWN.set(Some(Known {
            rights,
            emit_is_limited,
        }));
    }
    KNOWN.with_borrow(|known| match known {
        Some(known) => act(known),
        None => unreachable!("set above"),
    })
}

/// Has PostgreSQL tell this session when the table or a role changes.
fn listen() {
    if LISTENS.replace(true) {
        return;
    }
    // SAFETY: both callbacks live as long as the process, touch a flag only, and never unwind.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(table_changed), pg_sys::Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::AUTHOID as i32,
            Some(role_changed),
            pg_sys::Datum::from(0),
        );
    }
}

unsafe extern "C-unwind" fn table_changed(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    if table == pg_sys::InvalidOid || table == TABLE.get() {
        STALE.set(true);
    }
}

unsafe extern "C-unwind" fn role_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    STALE.set(true);
}
