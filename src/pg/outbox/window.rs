//! Reading events: the two-snapshot window, and the batch that is opened with it.
//!
//! New = visible in `cur`, not in `prev`; inside, a keyset on (xid, event_id), so that a transaction
//! of a million events is read in many batches. Ordering is by the xid8 column, never by its text.

use std::collections::HashMap;

use pgrx::prelude::*;
use pgrx::spi::SpiHeapTupleData;

use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::envelope::Event;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// An event as it stands in its table, with what is needed to check its seal.
pub struct Row {
    /// Database that wrote it.
    pub origin: i64,
    pub xid: u64,
    pub event: Event,
    /// The payload is gone: the event is not sent.
    pub expunged: bool,
    pub seal_key: i64,
    pub seal: Vec<u8>,
    pub digest: Vec<u8>,
}

/// A row of the window: its place and, unless somebody spoilt it beyond reading, what it holds.
pub struct Seen {
    pub place: (u64, String),
    /// Bytes of the body, as the bound of a batch counts them.
    pub bytes: i64,
    pub row: Option<Row>,
}

/// Columns in the order of [`read`].
macro_rules! columns {
    () => {
        "w.xid::text as xid_text, w.event_id, w.partner_id, w.type, w.source, w.occurred_at, w.subject_type,
         w.subject_id, w.subject_version, w.scope, w.schema_version, w.correlation_id, w.causation,
         w.traceparent, w.test, w.body, w.seal_key, w.seal, w.body_sha256, w.origin"
    };
}

pub(super) use columns;

/// Bounds a batch by rows and by bytes: bodies beyond the bound are not even fetched.
macro_rules! bounded {
    ($condition:literal) => {
        concat!(
            "select ", columns!(), "
               from (select e.*,
                            pg_catalog.sum(coalesce(pg_catalog.octet_length(e.body), 0)) over (order by e.xid, e.event_id rows unbounded preceding)
                              - coalesce(pg_catalog.octet_length(e.body), 0) as bytes_before
                       from (select * from webhook._event as e
                              where e.origin = $1 and ", $condition, "
                              order by e.xid, e.event_id
                              limit $6) as e) as w
              where w.bytes_before < $7
              order by w.xid, w.event_id"
        )
    };
}

// Late committers: transactions that ran in `prev` and have ended in `cur`.
statement!(
    READ_LATE,
    [i64, &str, &str, &str, &str, i32, i64],
    bounded!(
        "e.xid = any ($2::xid8[])
     and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
     and (e.xid, e.event_id) > ($4::xid8, $5)"
    )
);

// New ones: transactions that began after `prev`.
statement!(
    READ_NEW,
    [i64, &str, &str, &str, &str, i32, i64],
    bounded!(
        "(e.xid, e.event_id) > ($4::xid8, $5)
     and e.xid < $2::xid8
     and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)"
    )
);

statement!(
    READ_BY_ID,
    [Vec<&str>],
    concat!(
        "select ",
        columns!(),
        "
       from webhook._event as w
      where w.event_id = any ($1)"
    )
);

statement!(
    SNAPSHOT,
    [],
    "select pg_catalog.pg_current_snapshot()::text"
);

statement!(
    SEAL_KEYS,
    [],
    "select k.key_id, k.key from webhook._seal_key as k"
);

statement!(FEED, [TimestampWithTimeZone, Vec<i64>, Vec<&str>, Vec<&str>, Vec<&str>, Vec<bool>],
    "insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
     select r.pos, $1, r.test, r.partner, r.event, r.type
       from unnest($2, $3, $4, $5, $6) as r (pos, partner, event, type, test)");

statement!(FENCE, [Vec<&str>, &str],
    "insert into webhook._fenced (event_id, reason)
     select r.event, $2 from unnest($1) as r (event)
     on conflict do nothing");

statement!(OPEN_WINDOW, [i64, i64, i64, &str, &str, &str, &str, &str, &str, i64],
    "insert into webhook._ledger (n, incarnation, batch, kind, prev, cur, from_xid, from_id, to_xid, to_id, pos)
     values ($1, $2, $3, 'window', $4::pg_snapshot, $5::pg_snapshot, $6::xid8, $7, $8::xid8, $9, $10)");

statement!(KNOWN, [Vec<&str>, Vec<i64>],
    "select d.event_id, d.endpoint_id, d.attempt_count, d.series_start, d.state, d.reason
       from unnest($1, $2) as r (event, endpoint)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint");

/// Snapshot of the transaction under way, in which every read of it happens.
pub fn snapshot() -> Snapshot {
    let text = select(&SNAPSHOT, &[], |rows| {
        rows.first()
            .get_one::<String>()
            .ok()
            .flatten()
            .unwrap_or_default()
    });
    match text.parse() {
        Ok(snapshot) => snapshot,
        Err(error) => error!("{error}"),
    }
}

/// Events of transactions that ran in `prev`, after the keyset `after`, in order.
pub fn read_late(
    origin: i64,
    prev: &Snapshot,
    cur: &Snapshot,
    after: &(u64, String),
    limit: i32,
    bytes: i64,
) -> Vec<Seen> {
    let running = prev
        .running()
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(",");
    select(
        &READ_LATE,
        &[
            origin.into(),
            format!("{{{running}}}").as_str().into(),
            cur.to_string().as_str().into(),
            after.0.to_string().as_str().into(),
            after.1.as_str().into(),
            limit.into(),
            bytes.into(),
        ],
        read_places,
    )
}

/// Events of transactions that began after the keyset and are visible in `cur`, in order.
pub fn read_new(
    origin: i64,
    cur: &Snapshot,
    after: &(u64, String),
    limit: i32,
    bytes: i64,
) -> Vec<Seen> {
    select(
        &READ_NEW,
        &[
            origin.into(),
            cur.xmax().to_string().as_str().into(),
            cur.to_string().as_str().into(),
            after.0.to_string().as_str().into(),
            after.1.as_str().into(),
            limit.into(),
            bytes.into(),
        ],
        read_places,
    )
}

/// The rows of a statement that selects the columns of an event.
pub fn read_places(rows: pgrx::spi::SpiTupleTable<'_>) -> Vec<Seen> {
    rows.filter_map(|row| see(&row)).collect()
}

/// Every row has a place, so that one that cannot be read hides none of those behind it.
fn see(row: &SpiHeapTupleData<'_>) -> Option<Seen> {
    let text = |index: usize| row.get::<String>(index).ok().flatten();
    Some(Seen {
        place: (text(1)?.parse().ok()?, text(2)?),
        bytes: text(16).map_or(0, |body| i64::try_from(body.len()).unwrap_or(i64::MAX)),
        row: read(row),
    })
}

/// Events by their ids, in no order, whatever their origin.
pub fn events_by_id(ids: &[EventId]) -> Vec<Row> {
    let ids: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    select(&READ_BY_ID, &[ids.into()], |rows| {
        rows.filter_map(|row| read(&row)).collect()
    })
}

/// None for a row that emit cannot have written, an event id that is none for instance.
fn read(row: &SpiHeapTupleData<'_>) -> Option<Row> {
    let text = |index: usize| row.get::<String>(index).ok().flatten();
    let body = text(16);
    Some(Row {
        origin: row.get::<i64>(20).ok().flatten()?,
        xid: text(1)?.parse().ok()?,
        expunged: body.is_none(),
        event: Event {
            id: text(2)?.parse().ok()?,
            partner_id: text(3)?,
            kind: text(4)?,
            source: text(5),
            occurred_at: unix_micros(row.get::<TimestampWithTimeZone>(6).ok().flatten()?),
            subject_type: text(7),
            subject_id: text(8),
            subject_version: row.get::<i64>(9).ok().flatten(),
            scope: text(10),
            schema_version: text(11),
            correlation_id: text(12),
            causation: text(13),
            traceparent: text(14),
            test: row.get::<bool>(15).ok().flatten()?,
            data: body.unwrap_or_default(),
        },
        seal_key: row.get::<i64>(17).ok().flatten()?,
        seal: row.get::<Vec<u8>>(18).ok().flatten()?,
        digest: row.get::<Vec<u8>>(19).ok().flatten()?,
    })
}

/// Every key that may have sealed an event.
pub fn seal_keys() -> Vec<(i64, Vec<u8>)> {
    select(&SEAL_KEYS, &[], |rows| {
        rows.filter_map(|row| {
            Some((
                row.get::<i64>(1).ok().flatten()?,
                row.get::<Vec<u8>>(2).ok().flatten()?,
            ))
        })
        .collect()
    })
}

/// A batch of new events, as the ledger and the feed record it.
pub struct Opening<'a> {
    pub n: i64,
    pub incarnation: i64,
    pub batch: i64,
    pub prev: &'a Snapshot,
    pub cur: &'a Snapshot,
    pub from: &'a (u64, String),
    pub to: &'a (u64, String),
    /// Position of the first event; the others follow one by one.
    pub pos: i64,
    pub now: i64,
}

/// Gives events their places in the feed, from `first` on.
pub fn publish(first: i64, now: i64, published: &[&Event]) {
    if !published.is_empty() {
        let ids: Vec<String> = published.iter().map(|event| event.id.to_string()).collect();
        let positions: Vec<i64> = (first..).take(published.len()).collect();
        let partners: Vec<&str> = published
            .iter()
            .map(|event| event.partner_id.as_str())
            .collect();
        let events: Vec<&str> = ids.iter().map(String::as_str).collect();
        let kinds: Vec<&str> = published.iter().map(|event| event.kind.as_str()).collect();
        let tests: Vec<bool> = published.iter().map(|event| event.test).collect();
        run(
            &FEED,
            &[
                timestamp(now).into(),
                positions.into(),
                partners.into(),
                events.into(),
                kinds.into(),
                tests.into(),
            ],
            |_| (),
        );
    }
}

/// Writes the feed rows and the ledger row of a batch, and those events that are fenced.
pub fn open_batch(opening: &Opening<'_>, published: &[&Event], fenced: &[String]) {
    publish(opening.pos, opening.now, published);
    fence(fenced);
    run(
        &OPEN_WINDOW,
        &[
            opening.n.into(),
            opening.incarnation.into(),
            opening.batch.into(),
            opening.prev.to_string().as_str().into(),
            opening.cur.to_string().as_str().into(),
            opening.from.0.to_string().as_str().into(),
            opening.from.1.as_str().into(),
            opening.to.0.to_string().as_str().into(),
            opening.to.1.as_str().into(),
            (opening.pos + i64::try_from(published.len()).unwrap_or(0)).into(),
        ],
        |_| (),
    );
}

/// Remembers events whose row does not match its seal.
pub fn fence(events: &[String]) {
    if events.is_empty() {
        return;
    }
    let ids: Vec<&str> = events.iter().map(String::as_str).collect();
    run(
        &FENCE,
        &[ids.into(), "The row does not match its seal.".into()],
        |_| (),
    );
}

/// A delivery as it stands.
pub struct Known {
    pub attempt_count: i32,
    pub series_start: i32,
    pub state: String,
    pub reason: Option<String>,
}

/// Those of these pairs that have a delivery row.
pub fn known_pairs(pairs: &[Pair]) -> HashMap<Pair, Known> {
    let ids: Vec<String> = pairs.iter().map(|pair| pair.event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|pair| pair.endpoint.0).collect();
    select(&KNOWN, &[ids.into(), endpoints.into()], |rows| {
        rows.filter_map(|row| {
            Some((
                Pair {
                    event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                    endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
                },
                Known {
                    attempt_count: row.get::<i32>(3).ok().flatten()?,
                    series_start: row.get::<i32>(4).ok().flatten()?,
                    state: row.get::<String>(5).ok().flatten()?,
                    reason: row.get::<String>(6).ok().flatten(),
                },
            ))
        })
        .collect()
    })
}
