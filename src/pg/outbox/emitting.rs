//! What an emitting session writes: the event row and, when a key is given, its idempotency row.

use std::cell::Cell;

use pgrx::datum::Uuid;
use pgrx::pg_sys;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::insertion::insert_rows;
use super::rows::{Rows, Table};
use super::statement::{run, statement};
use super::{as_owner, owner, relation, timestamp};
use crate::pg::error::Raise;
use crate::pg::functions::new_id;
use crate::pg::{settings, vault};
use crate::rules::envelope::Event;
use crate::rules::ids::EventId;
use crate::rules::vault::Place;

statement!(INSERT_EVENT, [TimestampWithTimeZone, i64, i64, i64, bool, &str, &str, &str, &str, &str, &str, &str, &str, &str, &str, &str, Vec<u8>, Vec<u8>, &str],
    "insert into webhook._event (
       xid, occurred_at, origin, seal_key, subject_version, test, event_id, partner_id, type, source,
       subject_type, subject_id, scope, schema_version, correlation_id, causation, traceparent,
       seal, body_sha256, body)
     values (
       pg_catalog.pg_current_xact_id(), $1, $2, $3, $4, $5, $6, $7, $8, $9,
       $10, $11, $12, $13, $14, $15, $16,
       $17, $18, $19)");

statement!(
    FIND_KEY,
    [Uuid, &str],
    "select k.event_id
       from webhook._idempotency as k
      where k.key_hash operator(pg_catalog.=) $1
        and k.event_id operator(pg_catalog.>=) $2"
);

// A key older than the window is taken over; a younger one makes the statement return no row.
statement!(
    INSERT_KEY,
    [Uuid, &str, &str],
    "insert into webhook._idempotency as k (key_hash, event_id)
     values ($1, $2)
     on conflict (key_hash) do update
        set event_id = excluded.event_id
      where k.event_id operator(pg_catalog.<) $3
     returning k.event_id"
);

// What is different in the event that a key stands for; no row when it is the same event, or is gone. The times and
// traces of a repeated call may differ.
statement!(
    DIFFERENCE,
    [&str, &str, &str, &str, i64, &str, &str, bool, Vec<u8>],
    "select case
              when e.type operator(pg_catalog.<>) $2 then 'type'
              when e.test operator(pg_catalog.<>) $8 then 'test mode'
              when e.body_sha256 operator(pg_catalog.<>) $9 then 'payload'
              when (e.subject_type, e.subject_id, e.subject_version) is distinct from ($3, $4, $5) then 'subject'
              when e.source is distinct from $6 then 'source'
              when e.scope is distinct from $7 then 'scope'
            end
       from webhook._event as e
      where e.event_id operator(pg_catalog.=) $1"
);

statement!(
    NEWEST_SEAL_KEY,
    [i64],
    "select k.key_id, k.key
       from webhook._seal_key as k
      where k.origin operator(pg_catalog.=) $1
      order by k.key_id desc
      limit 1"
);

// The id is a parameter: the key is bound to it when it is stored.
statement!(
    NEW_SEAL_KEY,
    [i64, i64],
    "insert into webhook._seal_key (key_id, origin, key)
     values ($1, $2, webhook._make_seal_key($1, $2))
     returning key_id, key"
);

thread_local! {
    /// Raised when another seal key may be in use.
    static SEAL_KEYS: Cell<u64> = const { Cell::new(0) };
    /// The table whose invalidations say so; none = not listened to yet.
    static LISTENED: Cell<Option<pg_sys::Oid>> = const { Cell::new(None) };
}

/// What seals events in this session.
pub struct Sealing {
    table: pg_sys::Oid,
    owner: pg_sys::Oid,
    node_name: String,
    pub origin: i64,
    pub key_id: i64,
    pub key: Zeroizing<Vec<u8>>,
    /// State of [`SEAL_KEYS`] before it was read.
    generation: u64,
}

impl Sealing {
    /// Reads origin and key; makes a key when this origin has none yet (a restored copy, or a
    /// changed `webhook.node_name`). A key that was in use before is not decrypted again.
    pub fn load(former: Option<&Sealing>) -> Sealing {
        let (Some(table), Some(owner)) = (relation(c"_event"), owner()) else {
            Raise::new(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "extension \"webhook_outbox\" is not installed in this database",
            )
            .hint("Run CREATE EXTENSION webhook_outbox.")
            .raise()
        };
        let origin = super::origin();
        listen();
        let generation = SEAL_KEYS.get();
        let (key_id, stored) = as_owner(owner, || {
            let found = run(&NEWEST_SEAL_KEY, &[origin.into()], |rows| {
                rows.first().get_two::<i64, Vec<u8>>().ok()
            });
            match found {
                Some((Some(id), Some(key))) => (id, key),
                _ => run(
                    &NEW_SEAL_KEY,
                    &[new_id().into(), origin.into()],
                    |rows| match rows.first().get_two::<i64, Vec<u8>>() {
                        Ok((Some(id), Some(key))) => (id, key),
                        _ => error!("could not make a seal key"),
                    },
                ),
            }
        });
        let key = match former {
            Some(former) if former.key_id == key_id && former.origin == origin => {
                former.key.clone()
            }
            _ => vault::open(Place::Seal { key_id, origin }, &Zeroizing::new(stored)),
        };
        Sealing {
            table,
            owner,
            node_name: settings::node_name(),
            origin,
            key_id,
            key,
            generation,
        }
    }

    /// Owner of the extension.
    pub fn owner(&self) -> pg_sys::Oid {
        self.owner
    }

    /// Whether it still holds: same extension, same owner, same node name, and no other seal key since.
    pub fn current(&self) -> bool {
        self.generation == SEAL_KEYS.get()
            && relation(c"_event") == Some(self.table)
            && owner() == Some(self.owner)
            && settings::node_name() == self.node_name
    }
}

/// Tells every session, this one included, that there is another seal key: at commit, by PostgreSQL's own messages.
pub fn announce_seal_key() {
    if let Some(table) = relation(c"_seal_key") {
        // SAFETY: an existing table; the message goes out with the transaction.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
    }
}

/// Listens for [`announce_seal_key`]. Messages about the table for other reasons cost one look-up.
fn listen() {
    let table = relation(c"_seal_key");
    if LISTENED.replace(table).is_none() {
        // SAFETY: once per process; the callback lives as long and never unwinds.
        unsafe {
            pg_sys::CacheRegisterRelcacheCallback(Some(seal_key_changed), pg_sys::Datum::from(0));
        }
    }
}

unsafe extern "C-unwind" fn seal_key_changed(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    if table == pg_sys::InvalidOid || LISTENED.get() == Some(table) {
        SEAL_KEYS.set(SEAL_KEYS.get().wrapping_add(1));
    }
}

/// Inserts the event as the owner of the extension.
pub fn insert_event(sealing: &Sealing, event: &Event, digest: &[u8; 32], seal: &[u8; 16]) {
    as_owner(sealing.owner, || {
        let row = event_row(sealing, event, digest, seal);
        // SAFETY: _event is partitioned by event_id.
        if !unsafe { insert_rows(sealing.table, &row) } {
            insert_by_statement(sealing, event, digest, seal);
        }
    });
}

const EVENT: Table = {
    use pg_sys::{BOOLOID, BYTEAOID, INT8OID, TEXTOID, TIMESTAMPTZOID, XID8OID};
    Table {
        columns: &[
            (c"xid", XID8OID),
            (c"occurred_at", TIMESTAMPTZOID),
            (c"origin", INT8OID),
            (c"seal_key", INT8OID),
            (c"subject_version", INT8OID),
            (c"test", BOOLOID),
            (c"event_id", TEXTOID),
            (c"partner_id", TEXTOID),
            (c"type", TEXTOID),
            (c"source", TEXTOID),
            (c"subject_type", TEXTOID),
            (c"subject_id", TEXTOID),
            (c"scope", TEXTOID),
            (c"schema_version", TEXTOID),
            (c"correlation_id", TEXTOID),
            (c"causation", TEXTOID),
            (c"traceparent", TEXTOID),
            (c"seal", BYTEAOID),
            (c"body_sha256", BYTEAOID),
            (c"body", TEXTOID),
        ],
        key: 6,
        checks: &[],
    }
};
/// Bytes of the other texts of an event, about.
const AROUND: usize = 300;

fn event_row(sealing: &Sealing, event: &Event, digest: &[u8; 32], seal: &[u8; 16]) -> Rows {
    // SAFETY: assigns the transaction its id, as writing it would.
    let xid = unsafe { pg_sys::GetTopFullTransactionId() }.value;
    let mut row = Rows::new(&EVENT, 1, AROUND + event.data.len());
    row.i64(xid.cast_signed());
    let occurred_at = timestamp(event.occurred_at).map(pg_sys::TimestampTz::from);
    row.maybe(occurred_at, Rows::time);
    row.i64(sealing.origin);
    row.i64(sealing.key_id);
    row.maybe(event.subject_version, Rows::i64);
    row.bool(event.test);
    row.text(event.id.text().as_ref());
    row.text(&event.partner_id);
    row.text(&event.kind);
    for optional in [
        &event.source,
        &event.subject_type,
        &event.subject_id,
        &event.scope,
        &event.schema_version,
        &event.correlation_id,
        &event.causation,
        &event.traceparent,
    ] {
        row.maybe(optional.as_deref(), Rows::text);
    }
    row.bytes(seal);
    row.bytes(digest);
    row.text(&event.data);
    row
}

fn insert_by_statement(sealing: &Sealing, event: &Event, digest: &[u8; 32], seal: &[u8; 16]) {
    let id = event.id.to_string();
    let optional = |text: &'_ Option<String>| text.clone();
    run(
        &INSERT_EVENT,
        &[
            timestamp(event.occurred_at).into(),
            sealing.origin.into(),
            sealing.key_id.into(),
            event.subject_version.into(),
            event.test.into(),
            id.as_str().into(),
            event.partner_id.as_str().into(),
            event.kind.as_str().into(),
            optional(&event.source).into(),
            optional(&event.subject_type).into(),
            optional(&event.subject_id).into(),
            optional(&event.scope).into(),
            optional(&event.schema_version).into(),
            optional(&event.correlation_id).into(),
            optional(&event.causation).into(),
            optional(&event.traceparent).into(),
            seal.to_vec().into(),
            digest.to_vec().into(),
            event.data.as_str().into(),
        ],
        |_| (),
    );
}

/// What of the event is different from the first one of its key; none when nothing is, or when that one is gone.
pub fn differs(
    sealing: &Sealing,
    first: EventId,
    event: &Event,
    digest: &[u8; 32],
) -> Option<String> {
    let first = first.to_string();
    let optional = |text: &'_ Option<String>| text.clone();
    as_owner(sealing.owner, || {
        run(
            &DIFFERENCE,
            &[
                first.as_str().into(),
                event.kind.as_str().into(),
                optional(&event.subject_type).into(),
                optional(&event.subject_id).into(),
                event.subject_version.into(),
                optional(&event.source).into(),
                optional(&event.scope).into(),
                event.test.into(),
                digest.to_vec().into(),
            ],
            |rows| {
                if rows.is_empty() {
                    return None;
                }
                rows.first().get_one::<String>().ok().flatten()
            },
        )
    })
}

/// Takes an idempotency key for `event`; returns the event that holds it already, if one younger
/// than `oldest` does. Waits for a concurrent transaction that has taken the same key.
pub fn claim_key(
    sealing: &Sealing,
    hash: [u8; 16],
    event: EventId,
    oldest: EventId,
) -> Option<EventId> {
    let id = event.to_string();
    let oldest = oldest.to_string();
    let find = || {
        run(
            &FIND_KEY,
            &[Uuid::from_bytes(hash).into(), oldest.as_str().into()],
            |rows| rows.first().get_one::<String>().ok().flatten(),
        )
    };
    as_owner(sealing.owner, || {
        // Looked up first: a repeated emit then writes nothing at all.
        if let Some(first) = find() {
            return first.parse().ok();
        }
        let taken = run(
            &INSERT_KEY,
            &[
                Uuid::from_bytes(hash).into(),
                id.as_str().into(),
                oldest.as_str().into(),
            ],
            |rows| !rows.is_empty(),
        );
        if taken {
            return None;
        }
        // Lost the race; the winner has committed. Under REPEATABLE READ its row may be invisible:
        // PostgreSQL has then raised 40001 above, as it does for every ON CONFLICT of this kind.
        find().and_then(|first| first.parse().ok())
    })
}
