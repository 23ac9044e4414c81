//! The batch that is opened with what was read of a window: its feed rows, its ledger row, what is fenced;
//! and the ledger rows of streams that are set aside.

use std::collections::HashMap;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::insertion::insert_rows;
use super::rows::{Rows, Table};
use super::statement::{run, select, statement};
use super::stretch::Whose;
use super::{relation, timestamp};
use crate::rules::envelope::Event;
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::snapshot::Snapshot;

statement!(
    SNAPSHOT,
    [],
    "select pg_catalog.pg_current_snapshot()::text"
);

statement!(FEED, [TimestampWithTimeZone, Vec<i64>, Vec<&str>, Vec<&str>, Vec<&str>, Vec<bool>],
    "insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
     select pg_catalog.unnest($2), $1, pg_catalog.unnest($6), pg_catalog.unnest($3), pg_catalog.unnest($4),
            pg_catalog.unnest($5)");

statement!(FENCE, [Vec<&str>, &str],
    "insert into webhook._fenced (event_id, reason)
     select r.event, $2 from unnest($1) as r (event)
     on conflict do nothing");

statement!(OPEN_WINDOW, [i64, i64, i64, &str, &str, &str, &str, &str, &str, i64, i64, Option<Vec<&str>>, &str],
    "insert into webhook._ledger (
       n, incarnation, batch, kind, prev, cur, from_xid, from_id, to_xid, to_id, pos, stream, partners)
     values ($1, $2, $3, $13, $4::pg_snapshot, $5::pg_snapshot, $6::xid8, $7, $8::xid8, $9, $10, $11, $12)");

statement!(
    JOIN_STREAM,
    [i64, i64, i64, i64],
    "insert into webhook._ledger (n, incarnation, batch, kind, stream)
     values ($1, $2, $3, 'joined', $4)"
);

// The positions go along: the row in which the last one stood may be trimmed.
statement!(
    PLACE_EVERYBODY,
    [i64, i64, i64, &str, i64],
    "insert into webhook._ledger (n, incarnation, batch, kind, stream, prev, cur, pos)
     values ($1, $2, $3, 'place', 0, $4::pg_snapshot, $4::pg_snapshot, $5)"
);

statement!(KNOWN, [Vec<&str>, Vec<i64>],
    "select d.event_id, d.endpoint_id, d.attempt_count, d.series_start, d.state, d.reason, d.revision
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
    pub stream: i64,
    pub whose: &'a Whose,
}

const FEED_TABLE: Table = {
    use pg_sys::{BOOLOID, INT8OID, TEXTOID, TIMESTAMPTZOID};
    Table {
        columns: &[
            (c"pos", INT8OID),
            (c"published_at", TIMESTAMPTZOID),
            (c"test", BOOLOID),
            (c"partner_id", TEXTOID),
            (c"event_id", TEXTOID),
            (c"type", TEXTOID),
        ],
        key: 0,
        checks: &[],
    }
};
/// Bytes of its texts, about.
const FEED_TEXTS: usize = 120;

/// Gives events their places in the feed, from `first` on.
pub fn publish(first: i64, now: i64, published: &[&Event]) {
    if published.is_empty() || publish_directly(first, now, published) {
        return;
    }
    let last = first + i64::try_from(published.len()).unwrap_or(0);
    let ids: Vec<String> = published.iter().map(|event| event.id.to_string()).collect();
    let of = |pick: fn(&Event) -> &str| -> Vec<&str> {
        published.iter().map(|event| pick(event)).collect()
    };
    let tests: Vec<bool> = published.iter().map(|event| event.test).collect();
    run(
        &FEED,
        &[
            timestamp(now).into(),
            (first..last).collect::<Vec<i64>>().into(),
            of(|event| &event.partner_id).into(),
            ids.iter().map(String::as_str).collect::<Vec<_>>().into(),
            of(|event| &event.kind).into(),
            tests.into(),
        ],
        |_| (),
    );
}

/// Without a statement; whether that was possible.
fn publish_directly(first: i64, now: i64, published: &[&Event]) -> bool {
    let (Some(table), Some(now)) = (relation(c"_feed"), timestamp(now)) else {
        return false;
    };
    let now = pg_sys::TimestampTz::from(now);
    let mut rows = Rows::new(&FEED_TABLE, published.len(), FEED_TEXTS);
    for (pos, event) in (first..).zip(published) {
        rows.i64(pos);
        rows.time(now);
        rows.bool(event.test);
        rows.text(&event.partner_id);
        rows.text(event.id.text().as_ref());
        rows.text(&event.kind);
    }
    // SAFETY: _feed is partitioned by pos.
    unsafe { insert_rows(table, &rows) }
}

/// Writes the feed rows and the ledger row of a batch, and those events that are fenced.
pub fn open_batch(opening: &Opening<'_>, published: &[&Event], fenced: &[String]) {
    publish(opening.pos, opening.now, published);
    fence(fenced);
    let last = opening.pos + i64::try_from(published.len()).unwrap_or(0);
    write_place(opening, "window", last);
}

/// A stream is set aside: from `from` on it reads the events of its partners, and nobody else does.
pub fn set_stream_aside(opening: &Opening<'_>) {
    write_place(opening, "aside", opening.pos);
}

/// A stream has caught up with that of everybody.
pub fn join_stream(n: i64, incarnation: i64, batch: i64, stream: i64) {
    run(
        &JOIN_STREAM,
        &[n.into(), incarnation.into(), batch.into(), stream.into()],
        |_| (),
    );
}

/// Everybody's stream has read `read` to its end. It passes over the events of other streams without a word in the
/// ledger: that it is behind them must be there before one of those goes on, and when they are its own again.
pub fn place_everybody(n: i64, incarnation: i64, batch: i64, read: &Snapshot, pos: i64) {
    run(
        &PLACE_EVERYBODY,
        &[
            n.into(),
            incarnation.into(),
            batch.into(),
            read.to_string().as_str().into(),
            pos.into(),
        ],
        |_| (),
    );
}

fn write_place(opening: &Opening<'_>, kind: &str, last: i64) {
    let partners: Vec<&str> = opening.whose.partners.iter().map(String::as_str).collect();
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
            last.into(),
            opening.stream.into(),
            (!partners.is_empty()).then_some(partners).into(),
            kind.into(),
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
    /// Its shape.
    pub revision: i32,
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
                    revision: row.get::<i32>(7).ok().flatten()?,
                },
            ))
        })
        .collect()
    })
}
