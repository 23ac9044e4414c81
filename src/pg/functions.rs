//! Small SQL functions that need Rust: ids, bounds, checks of names and URLs, the worker's state.
//!
//! They are declared in sql/30_internal.sql, each with its comment; none touches a table.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use pgrx::datum::Date;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::emit::now_micros;
use super::error::{Raise, bad_argument};
use super::outbox;
use super::vault::fill;
use super::wake::{self, Activity};
use super::{VERSION, settings};
use crate::rules::ids::{EndpointId, EventId};
use crate::rules::matching;
use crate::rules::policy::parse_schedule;
use crate::wire::resolver::{HostCheck, check_host};

const DAY_MS: i64 = 86_400_000;

#[pg_extern(sql = false)]
fn origin() -> i64 {
    outbox::origin()
}

thread_local! {
    static LAST_ID: Cell<i64> = const { Cell::new(0) };
}

/// Those of one session rise: its requests and audit entries sort in the order in which they were made, however many
/// of them fall into a millisecond.
#[pg_extern(sql = false)]
pub fn new_id() -> i64 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    let id = EndpointId::new(now_ms(), u32::from_le_bytes(bytes)).0;
    LAST_ID.with(|last| {
        let id = if id > last.get() {
            id
        } else {
            last.get().saturating_add(1 + i64::from(bytes[0]))
        };
        last.set(id);
        id
    })
}

/// Refuses a retry schedule that cannot be followed; a good one comes back as it is.
#[pg_extern(sql = false)]
fn check_schedule(schedule: &str) -> String {
    if let Err(why) = parse_schedule(schedule) {
        bad_argument("retry schedule is not valid")
            .detail(sentence(&why))
            .hint("Write whole numbers with a unit, for example 5s,5m,30m,2h; an empty text means no retry.")
            .raise();
    }
    schedule.to_owned()
}

/// The look-up cannot be cancelled while it lasts, so it is short.
const LOOKUP_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Canonical form of a callback URL. The name is looked up as early feedback: an address outside the
/// boundary refuses the URL, a name that does not resolve (yet) only warns.
#[pg_extern(sql = false)]
fn check_url(url: &str) -> String {
    const HINT: &str = "A callback URL is https://, on an allowed port, without credentials or fragment, and leads to a public address.";
    let boundary = settings::boundary();
    let target = match boundary.target(url) {
        Ok(target) => target,
        Err(refusal) => bad_argument("callback URL is refused")
            .detail(sentence(&refusal.to_string()))
            .hint(HINT)
            .raise(),
    };
    let limit = settings::connect_timeout().min(LOOKUP_LIMIT);
    match check_host(&boundary, &target, limit) {
        HostCheck::Reachable => {}
        // Which address it is would tell a tenant about the inside of a network.
        HostCheck::Blocked => bad_argument("callback URL is refused")
            .detail("The host leads to an address that may not be reached.")
            .hint(HINT)
            .raise(),
        HostCheck::Unresolved => Raise::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            "could not resolve the host of the callback URL",
        )
        .detail("Deliveries are retried until the name resolves.")
        .warn(),
    }
    target.url().to_owned()
}

/// A detail is a whole sentence.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let Some(first) = characters.next() else {
        return String::new();
    };
    let mut sentence: String = first.to_uppercase().chain(characters).collect();
    if !sentence.ends_with('.') {
        sentence.push('.');
    }
    sentence
}

#[pg_extern(sql = false)]
fn valid_pattern(text: &str) -> bool {
    matching::valid_pattern(text)
}

#[pg_extern(sql = false)]
fn valid_type(text: &str) -> bool {
    matching::valid_type(text)
}

#[pg_extern(sql = false)]
fn valid_partner(text: &str) -> bool {
    matching::valid_partner(text) && !matching::reserved_partner(text)
}

#[pg_extern(sql = false)]
fn wake() {
    wake::wake_at_commit();
}

#[pg_extern(sql = false)]
fn note_expunged() {
    wake::expunge_at_commit();
}

#[pg_extern(sql = false)]
fn event_time(event_id: &str) -> Option<TimestampWithTimeZone> {
    let id: EventId = event_id.parse().ok()?;
    let micros = i64::try_from(id.unix_ms()).ok()?.checked_mul(1000)?;
    outbox::timestamp(micros)
}

#[pg_extern(sql = false)]
fn event_bound(at: TimestampWithTimeZone) -> String {
    EventId::first_of(unix_ms(at)).to_string()
}

#[pg_extern(sql = false)]
fn pos_bound(at: TimestampWithTimeZone) -> i64 {
    EndpointId::new(unix_ms(at), 0).0
}

#[pg_extern(sql = false)]
fn day_bound(parent: &str, day: Date) -> String {
    let ms = i64::from(day.to_unix_epoch_days()) * DAY_MS;
    let ms = u64::try_from(ms).unwrap_or(0);
    match parent {
        "_feed" => EndpointId::new(ms, 0).0.to_string(),
        _ => EventId::first_of(ms).to_string(),
    }
}

#[allow(clippy::type_complexity)]
#[pg_extern(sql = false)]
fn worker() -> TableIterator<
    'static,
    (
        name!(database, String),
        name!(state, &'static str),
        name!(detail, Option<&'static str>),
        name!(hint, Option<&'static str>),
        name!(pid, Option<i32>),
        name!(started_at, Option<TimestampWithTimeZone>),
        name!(incarnation, Option<i64>),
        name!(last_loop_at, Option<TimestampWithTimeZone>),
        name!(restarts, i32),
        name!(threads, i32),
        name!(in_flight, i32),
        name!(queued, i64),
        name!(open_batches, i32),
        name!(delivered, i64),
        name!(failed, i64),
        name!(lost, i64),
        name!(fenced, i64),
        name!(last_error, Option<String>),
        name!(library_version, &'static str),
        name!(extension_version, Option<String>),
    ),
> {
    // SAFETY: plain reads of this process's state.
    let database = unsafe { pg_sys::MyDatabaseId };
    let slot = wake::slot_of(database);
    let name = outbox::database_name(database);
    let (state, detail, hint) = describe(slot, &name);
    let count32 = |read: fn(&wake::Slot) -> u32| {
        slot.map_or(0, |slot| i32::try_from(read(slot)).unwrap_or(i32::MAX))
    };
    let count64 = |read: fn(&wake::Slot) -> u64| {
        slot.map_or(0, |slot| i64::try_from(read(slot)).unwrap_or(i64::MAX))
    };
    let time = |read: fn(&wake::Slot) -> i64| {
        slot.map(read)
            .filter(|micros| *micros > 0)
            .and_then(outbox::timestamp)
    };
    TableIterator::once((
        name,
        state,
        detail,
        hint,
        slot.map(|slot| slot.pid.load(Ordering::Acquire))
            .filter(|pid| *pid != 0),
        time(|slot| slot.started_at.load(Ordering::Relaxed)),
        slot.map(|slot| slot.incarnation.load(Ordering::Relaxed))
            .filter(|n| *n > 0),
        time(|slot| slot.last_loop_at.load(Ordering::Relaxed)),
        count32(|slot| slot.restarts.load(Ordering::Relaxed)),
        count32(|slot| slot.threads.load(Ordering::Relaxed)),
        count32(|slot| slot.in_flight.load(Ordering::Relaxed)),
        i64::from(count32(|slot| slot.queued.load(Ordering::Relaxed))),
        count32(|slot| slot.open_batches.load(Ordering::Relaxed)),
        count64(|slot| slot.delivered.load(Ordering::Relaxed)),
        count64(|slot| slot.failed.load(Ordering::Relaxed)),
        count64(|slot| slot.lost.load(Ordering::Relaxed)),
        count64(|slot| slot.fenced.load(Ordering::Relaxed)),
        slot.and_then(wake::Slot::error),
        VERSION,
        outbox::extension_version(),
    ))
}

/// State of the leader as the operator reads it, with what to do about it.
fn describe(
    slot: Option<&wake::Slot>,
    database: &str,
) -> (&'static str, Option<&'static str>, Option<&'static str>) {
    if !wake::preloaded() {
        return (
            "not preloaded",
            Some(
                "Events are kept but nothing is sent: the server was started without the library.",
            ),
            Some("Add webhook_outbox to shared_preload_libraries and restart the server."),
        );
    }
    // SAFETY: plain read of the server's state.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return (
            "standby",
            Some("This server is a standby; the primary sends."),
            None,
        );
    }
    // SAFETY: plain read of this process's state.
    if outbox::is_template(unsafe { pg_sys::MyDatabaseId }) {
        return (
            "not served",
            Some("This database is a template, which must stay without connections."),
            None,
        );
    }
    if !settings::serves_database(database) {
        return (
            "not served",
            Some("The setting webhook.databases does not name this database."),
            Some("Add the database to webhook.databases and reload the configuration."),
        );
    }
    match slot.map(wake::Slot::activity) {
        // What the leader goes by, not what this session has read: a leader in the middle of a round still sends.
        Some(Activity::Running) => ("running", None, None),
        Some(Activity::Off) => (
            "off",
            Some("The setting webhook.enabled is off: nothing is sent."),
            Some("Set webhook.enabled to on and reload the configuration."),
        ),
        Some(Activity::Starting) => ("starting", None, None),
        Some(Activity::OtherVersion) => (
            "idle: other version",
            Some("The library and the extension have different versions."),
            Some(
                "Run ALTER EXTENSION webhook_outbox UPDATE, or restart the server after installing the library.",
            ),
        ),
        Some(Activity::NoWorkerSlot) => (
            "no worker slot",
            Some("No background worker slot is free."),
            Some("Raise max_worker_processes and restart the server."),
        ),
        Some(Activity::NotServed | Activity::Stopped | Activity::Failed) | None => (
            "stopped",
            Some("No leader runs in this database."),
            Some(
                "The launcher starts one within a second of the next emit; look for its errors in the server log.",
            ),
        ),
    }
}

fn now_ms() -> u64 {
    u64::try_from(now_micros() / 1000).unwrap_or(0)
}

fn unix_ms(at: TimestampWithTimeZone) -> u64 {
    u64::try_from(outbox::unix_micros(at).div_euclid(1000)).unwrap_or(0)
}
