//! `webhook.emit` and `webhook.emit_json`: one sealed row in the caller's transaction.
//!
//! SECURITY INVOKER: the caller needs EXECUTE and nothing else; the insert alone runs as the owner
//! of the extension. No lock is taken, nothing is notified, no worker is needed. The payload is
//! rendered to text once, and these bytes are the truth from then on.

use std::cell::{Cell, RefCell};
use std::time::{SystemTime, UNIX_EPOCH};

use pgrx::pg_sys;
use pgrx::prelude::*;
use sha2::{Digest, Sha256};

use super::error::{Raise, bad_argument, null_argument};
use super::outbox::{self, Sealing};
use super::settings::Mode;
use super::{access, conversion, settings, validation, wake};
use crate::rules::envelope::{self, Event};
use crate::rules::ids::EventId;
use crate::rules::matching;

/// Longest text accepted in the descriptive fields of an event, in bytes.
pub const MAX_FIELD: usize = 512;

thread_local! {
    static LAST_ID: Cell<Option<EventId>> = const { Cell::new(None) };
    static SEALING: RefCell<Option<Sealing>> = const { RefCell::new(None) };
    static UNSURE: Cell<bool> = const { Cell::new(false) };
    static FORGETS_AT_ABORT: Cell<bool> = const { Cell::new(false) };
}

/// Tells PostgreSQL that `emit_wrapper` follows the version 1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_emit_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &pg_sys::Pg_finfo_record { api_version: 1 }
}

/// Tells PostgreSQL that `emit_json_wrapper` follows the version 1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_emit_json_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &pg_sys::Pg_finfo_record { api_version: 1 }
}

/// Tells PostgreSQL that `emit_reserved_wrapper` follows the version 1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_emit_reserved_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &pg_sys::Pg_finfo_record { api_version: 1 }
}

/// Whether names that are not for users may be used: event types `webhook.*`, partners `_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Names {
    Public,
    Reserved,
}

/// `webhook.emit(..., data jsonb, ...)`.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn emit_wrapper(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: fcinfo is the one PostgreSQL passed.
    unsafe { emit(fcinfo, jsonb_text(fcinfo), Names::Public) }
}

/// `webhook._emit_reserved(..., data jsonb, ...)`: lifecycle and test events.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn emit_reserved_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: fcinfo is the one PostgreSQL passed.
    unsafe { emit(fcinfo, jsonb_text(fcinfo), Names::Reserved) }
}

/// # Safety
/// Argument 2 of `fcinfo` is a jsonb or NULL.
unsafe fn jsonb_text(fcinfo: pg_sys::FunctionCallInfo) -> Option<String> {
    // SAFETY: jsonb's output function renders its normal form.
    unsafe {
        pgrx::fcinfo::pg_getarg_datum(fcinfo, 2).and_then(|datum| {
            pgrx::direct_function_call::<&std::ffi::CStr>(pg_sys::jsonb_out, &[Some(datum)])
                .map(|text| text.to_string_lossy().into_owned())
        })
    }
}

/// `webhook.emit_json(..., data json, ...)`: keeps the caller's bytes.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn emit_json_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: argument 2 is declared json, which is stored as text.
    let data = unsafe { pgrx::fcinfo::pg_getarg::<String>(fcinfo, 2) };
    // SAFETY: fcinfo is the one PostgreSQL passed.
    unsafe { emit(fcinfo, data, Names::Public) }
}

/// # Safety
/// `fcinfo` holds the arguments of `emit` in their declared order and types.
unsafe fn emit(
    fcinfo: pg_sys::FunctionCallInfo,
    data: Option<String>,
    names: Names,
) -> pg_sys::Datum {
    // SAFETY: the types are those of the SQL declaration.
    let (text, event) = unsafe {
        let text = |index| pgrx::fcinfo::pg_getarg::<String>(fcinfo, index);
        let event = Event {
            id: next_id(),
            kind: text(0).unwrap_or_else(|| null_argument("type")),
            partner_id: text(1).unwrap_or_else(|| null_argument("partner_id")),
            data: data.unwrap_or_else(|| null_argument("data")),
            subject_type: text(3),
            subject_id: text(4),
            subject_version: pgrx::fcinfo::pg_getarg::<i64>(fcinfo, 5),
            source: text(6),
            scope: text(7),
            occurred_at: pgrx::fcinfo::pg_getarg::<TimestampWithTimeZone>(fcinfo, 8)
                .map_or_else(now_micros, occurred_at),
            schema_version: text(9),
            correlation_id: text(10),
            causation: text(11),
            traceparent: text(12),
            test: pgrx::fcinfo::pg_getarg::<bool>(fcinfo, 14)
                .unwrap_or_else(|| null_argument("test")),
        };
        (text(13), event)
    };
    refuse_where_nothing_can_be_written();
    record(event, text.as_deref(), names)
        .to_string()
        .into_datum()
        .unwrap_or_else(|| pg_sys::Datum::from(0))
}

/// Checks an event and writes it, or finds the one that its key stands for.
pub fn record(mut event: Event, key: Option<&str>, names: Names) -> EventId {
    check(&event, names);
    if names == Names::Public {
        access::check_emit(&event.kind, &event.partner_id);
        validation::check(&mut event);
    }
    let id = match key {
        None => {
            insert(&event, names);
            event.id
        }
        Some(key) => insert_once(&event, key, names),
    };
    wake::wake_at_commit();
    id
}

/// Checks an event as emit does, but for the caller's right to it.
pub fn accept(event: &mut Event) {
    check(event, Names::Public);
    validation::check(event);
}

/// Reads the seal key, so that this session has it from now on.
pub fn prepare() {
    with_sealing(|_| ());
}

/// Records an event of the leader's own, in the transaction under way. It is made of checked names and
/// bounded texts, so nothing is checked again.
pub fn insert_own(event: &mut Event) {
    event.id = next_id();
    insert(event, Names::Reserved);
}

fn insert(event: &Event, names: Names) {
    // Somebody's functions: before anything is borrowed, and never for events of our own.
    let versions = match names {
        Names::Public => conversion::convert(event),
        Names::Reserved => Vec::new(),
    };
    with_sealing(|sealing| {
        let digest: [u8; 32] = Sha256::digest(event.data.as_bytes()).into();
        let seal = envelope::seal(&sealing.key, event, sealing.origin, &digest);
        outbox::insert_event(sealing, event, &digest, &seal);
        for version in &versions {
            let result = version.result.as_deref().map_err(String::as_str);
            let digest = Sha256::digest(result.unwrap_or_default().as_bytes()).into();
            let seal = envelope::version_seal(
                &sealing.key,
                event,
                sealing.origin,
                &version.version,
                result.err(),
                &digest,
            );
            outbox::insert_version(
                sealing,
                event.id,
                &event.partner_id,
                &version.version,
                result,
                (&digest, &seal),
            );
        }
    });
}

/// The first event of a key wins; a second emitter waits for the first one's commit, by the unique
/// index, and then returns its event.
fn insert_once(event: &Event, key: &str, names: Names) -> EventId {
    if key.is_empty() || key.len() > MAX_FIELD {
        bad_argument("idempotency key is too long or empty")
            .detail(format!(
                "It has {} bytes; 1 to {MAX_FIELD} are accepted.",
                key.len()
            ))
            .raise();
    }
    let mut hash = Sha256::new();
    hash.update(event.partner_id.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    let window = u64::try_from(settings::idempotency_window().as_millis()).unwrap_or(u64::MAX);
    let oldest = EventId::first_of(event.id.unix_ms().saturating_sub(window));
    let first = with_sealing(|sealing| outbox::claim_key(sealing, short, event.id, oldest));
    match first {
        Some(first) => {
            compare_with_first(event, first);
            first
        }
        None => {
            insert(event, names);
            event.id
        }
    }
}

/// A key that comes back with other content is most likely two events under one key: the second would be lost unseen.
fn compare_with_first(event: &Event, first: EventId) {
    let mode = settings::idempotency_conflict();
    if mode == Mode::Off {
        return;
    }
    let digest: [u8; 32] = Sha256::digest(event.data.as_bytes()).into();
    let Some(different) = with_sealing(|sealing| outbox::differs(sealing, first, event, &digest))
    else {
        return;
    };
    let message = "idempotency key was used with other content";
    let detail = format!("Event \"{first}\" of the same partner and key has another {different}.");
    if mode == Mode::Refuse {
        Raise::new(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, message)
            .detail(detail)
            .hint("Derive the key from what makes the event unique; see webhook.idempotency_conflict.")
            .raise();
    }
    Raise::new(PgSqlErrorCode::ERRCODE_WARNING, message)
        .detail(format!("{detail} Nothing was written; its id is returned."))
        .hint("Derive the key from what makes the event unique; see webhook.idempotency_conflict.")
        .warn();
}

/// Origin, owner and key that seal events, read once per session and again after DROP and CREATE
/// EXTENSION or a change of `webhook.node_name`.
fn with_sealing<R>(act: impl FnOnce(&Sealing) -> R) -> R {
    SEALING.with_borrow_mut(|cached| {
        if UNSURE.get() || !cached.as_ref().is_some_and(Sealing::current) {
            forget_at_abort();
            let fresh = Sealing::load(cached.as_ref());
            *cached = Some(fresh);
            UNSURE.set(false);
        }
        match cached {
            Some(sealing) => act(sealing),
            None => unreachable!("set above"),
        }
    })
}

/// A rolled-back transaction or savepoint may take a freshly made key with it, and an event sealed with
/// a key that does not exist is fenced for ever: after any rollback it is looked up again. A key that is still
/// there needs no decrypting, so a session that has it goes on while the master key cannot be had.
fn forget_at_abort() {
    if FORGETS_AT_ABORT.replace(true) {
        return;
    }
    // SAFETY: both callbacks live as long as the process and never unwind.
    unsafe {
        pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_savepoint_end), std::ptr::null_mut());
    }
}

unsafe extern "C-unwind" fn at_transaction_end(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_PREPARE};
    // What is prepared may still be rolled back, by anybody.
    if event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE {
        forget_sealing();
    }
}

unsafe extern "C-unwind" fn at_savepoint_end(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        forget_sealing();
    }
}

fn forget_sealing() {
    UNSURE.set(true);
}

/// Time-ordered and, within this session, strictly increasing.
pub fn next_id() -> EventId {
    let now = u64::try_from(now_micros() / 1000).unwrap_or(0);
    let id = match LAST_ID.get() {
        Some(last) if last.unix_ms() >= now => last.next(),
        _ => EventId::new(now, random()),
    };
    LAST_ID.set(Some(id));
    id
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "could not read random bytes from the operating system",
        )
        .detail(format!("{error}."))
        .raise();
    }
    u128::from_le_bytes(bytes)
}

/// Wall clock, microseconds since 1970.
pub fn now_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        })
}

/// A time as an event has it.
pub fn occurred_at(at: TimestampWithTimeZone) -> i64 {
    let micros = outbox::unix_micros(at);
    if crate::rules::time::rfc3339(micros).is_none() {
        bad_argument("occurred_at is out of range")
            .detail("It must be a finite time between the years 1 and 9999.")
            .raise();
    }
    micros
}

/// Refuses standbys, read-only transactions and parallel workers.
pub fn refuse_where_nothing_can_be_written() {
    // SAFETY: plain reads of this process's transaction state.
    let (recovery, read_only, parallel) = unsafe {
        (
            pg_sys::RecoveryInProgress(),
            pg_sys::XactReadOnly,
            pg_sys::IsInParallelMode(),
        )
    };
    if recovery || read_only {
        Raise::new(
            PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION,
            "cannot emit an event in a read-only transaction",
        )
        .detail("The event is a row of this database, written in the caller's transaction.")
        .hint("Emit on the primary, in a read-write transaction.")
        .raise();
    }
    if parallel {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INVALID_TRANSACTION_STATE,
            "cannot emit an event during a parallel operation",
        )
        .hint("Do not mark functions that emit events as PARALLEL SAFE.")
        .raise();
    }
}

fn check(event: &Event, names: Names) {
    if !matching::valid_type(&event.kind) {
        bad_argument("event type is not valid")
            .detail("An event type has 1 to 128 characters of A-Z, a-z, 0-9, \"_\" and \"-\", in parts separated by dots.")
            .hint("Name types object.change, for example customer.frozen.")
            .raise();
    }
    if names == Names::Public && event.kind.starts_with("webhook.") {
        bad_argument("event types that begin with \"webhook.\" are reserved").raise();
    }
    if !matching::valid_partner(&event.partner_id) {
        bad_argument("partner id is not valid")
            .detail("A partner id has 1 to 128 characters of A-Z, a-z, 0-9, \"_\", \".\", \":\" and \"-\".")
            .raise();
    }
    if names == Names::Public && matching::reserved_partner(&event.partner_id) {
        bad_argument("partner ids that begin with \"_\" are reserved").raise();
    }
    for (name, value) in [
        ("subject_type", &event.subject_type),
        ("subject_id", &event.subject_id),
        ("source", &event.source),
        ("scope", &event.scope),
        ("schema_version", &event.schema_version),
        ("correlation_id", &event.correlation_id),
    ] {
        let Some(value) = value else { continue };
        if value.is_empty() || value.len() > MAX_FIELD {
            bad_argument(format!("argument \"{name}\" is too long or empty"))
                .detail(format!(
                    "It has {} bytes; 1 to {MAX_FIELD} are accepted.",
                    value.len()
                ))
                .raise();
        }
    }
    if event.subject_type.is_some() != event.subject_id.is_some() {
        bad_argument("a subject needs both its type and its id").raise();
    }
    if event.subject_version.is_some() && event.subject_id.is_none() {
        bad_argument("a subject version needs a subject").raise();
    }
    if let Some(causation) = &event.causation
        && causation.parse::<EventId>().is_err()
    {
        bad_argument("causation is not an event id")
            .detail("It names the event that led to this one.")
            .raise();
    }
    if let Some(traceparent) = &event.traceparent
        && !matching::valid_traceparent(traceparent)
    {
        bad_argument("traceparent is not valid")
            .detail("It has the form of W3C Trace Context, version 00: 00-(32 hex digits)-(16 hex digits)-(2 hex digits).")
            .raise();
    }
    let limit = settings::max_payload();
    if event.data.len() > limit {
        Raise::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "payload is too large",
        )
        .detail(format!(
            "It has {} bytes; \"webhook.max_payload\" allows {limit}.",
            event.data.len()
        ))
        .hint("Send a reference to the object instead of the object, or raise \"webhook.max_payload\".")
        .raise();
    }
}
