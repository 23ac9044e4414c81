//! The ledger and the partitions: the leader's memory across its lives, and its housekeeping.

use pgrx::datum::Date;

use super::statement::{run, select, statement};
use super::stretch::Whose;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// A row of the ledger.
pub struct Position {
    pub n: i64,
    pub incarnation: i64,
    pub batch: i64,
    pub kind: String,
    pub prev: Option<Snapshot>,
    pub cur: Option<Snapshot>,
    pub from: (u64, String),
    pub to: (u64, String),
    /// Last feed position of the batch.
    pub pos: i64,
    /// Pairs of a claim with the numbers of their attempts.
    pub pairs: Vec<(Pair, i32)>,
    /// Who reads: 0 = the stream of everybody.
    pub stream: i64,
    /// Whose events the stream reads.
    pub whose: Whose,
}

statement!(LEDGER, [],
    "select l.n, l.incarnation, l.batch, l.kind, l.prev::text, l.cur::text, l.from_xid::text, l.from_id,
            l.to_xid::text, l.to_id, l.event_ids, l.endpoint_ids, l.attempt_nos, l.pos, l.stream, l.partners
       from webhook._ledger as l
      order by l.n");

statement!(
    HIGHEST,
    [],
    "select l.incarnation from webhook._ledger as l order by l.n desc limit 1"
);

statement!(
    START_LIFE,
    [i64, i64],
    "insert into webhook._ledger (n, incarnation, batch, kind) values ($1, $2, 0, 'start')"
);

// The row that holds the position of a stream must stay, and with it the row that closes its batch: without that,
// the next life would take the batch for one in doubt.
statement!(
    TRIM,
    [i64, Vec<i64>],
    "delete from webhook._ledger as l
      where l.n < $1
        and l.batch <> all (array(select p.batch from webhook._ledger as p where p.n = any ($2)))"
);

// A row of the same change stays: what it says is older.
statement!(
    NOTE_SEEN,
    [Vec<i64>, Vec<&str>],
    "insert into webhook._endpoint_seen as s (endpoint_id, changed_xid, seen)
     select t.id, t.xid::xid8, pg_catalog.pg_current_snapshot()
       from unnest($1, $2) as t (id, xid)
      where not exists (select from webhook._endpoint_seen as k
                         where k.endpoint_id = t.id and k.changed_xid = t.xid::xid8)
     on conflict (endpoint_id) do update
        set changed_xid = excluded.changed_xid, seen = excluded.seen"
);

statement!(
    ADD_PARTITION,
    [&str, Date],
    "select webhook._add_partition($1, $2)"
);

/// The whole ledger in order; short, because it is trimmed.
pub fn ledger() -> Vec<Position> {
    select(&LEDGER, &[], |rows| {
        rows.filter_map(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let snapshot = |index: usize| text(index).and_then(|text| text.parse().ok());
            let keyset = |xid: usize, id: usize| {
                (
                    text(xid).and_then(|text| text.parse().ok()).unwrap_or(0),
                    text(id).unwrap_or_default(),
                )
            };
            let events = row
                .get::<Vec<Option<String>>>(11)
                .ok()
                .flatten()
                .unwrap_or_default();
            let endpoints = row
                .get::<Vec<Option<i64>>>(12)
                .ok()
                .flatten()
                .unwrap_or_default();
            let attempts = row
                .get::<Vec<Option<i32>>>(13)
                .ok()
                .flatten()
                .unwrap_or_default();
            let stream = row.get::<i64>(15).ok().flatten()?;
            Some(Position {
                stream,
                whose: Whose {
                    partners: row
                        .get::<Vec<Option<String>>>(16)
                        .ok()
                        .flatten()
                        .unwrap_or_default()
                        .into_iter()
                        .flatten()
                        .collect(),
                    only: stream != 0,
                },
                n: row.get::<i64>(1).ok().flatten()?,
                incarnation: row.get::<i64>(2).ok().flatten()?,
                batch: row.get::<i64>(3).ok().flatten()?,
                kind: text(4)?,
                prev: snapshot(5),
                cur: snapshot(6),
                from: keyset(7, 8),
                to: keyset(9, 10),
                pos: row.get::<i64>(14).ok().flatten().unwrap_or(0),
                pairs: events
                    .iter()
                    .zip(endpoints)
                    .zip(attempts)
                    .filter_map(|((event, endpoint), attempt)| {
                        let event: EventId = event.as_ref()?.parse().ok()?;
                        let endpoint = EndpointId(endpoint?);
                        Some((Pair { event, endpoint }, attempt?))
                    })
                    .collect(),
            })
        })
        .collect()
    })
}

/// Incarnation of the newest ledger row: a result is written only while it is one's own.
pub fn highest_incarnation() -> i64 {
    select(&HIGHEST, &[], |rows| {
        rows.first().get_one::<i64>().ok().flatten().unwrap_or(0)
    })
}

/// Begins a life.
pub fn start_life(n: i64, incarnation: i64) {
    run(&START_LIFE, &[n.into(), incarnation.into()], |_| ());
}

/// Forgets rows before `low`, except those of the batches that hold the position of a stream.
pub fn trim_ledger(low: i64, positions: Vec<i64>) {
    run(&TRIM, &[low.into(), positions.into()], |_| ());
}

/// Writes down that the leader has read changes of endpoints: their ids, and the transactions that made them.
pub fn note_seen(endpoints: Vec<i64>, changes: &[u64]) {
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    run(&NOTE_SEEN, &[endpoints.into(), changes.into()], |_| ());
}

/// Makes a partition; says whether one was made.
pub fn add_partition(parent: &str, unix_days: i32) -> bool {
    // PostgreSQL counts days from 2000-01-01, which is day 10,957 of 1970's count.
    let Ok(day) = Date::try_from(unix_days - 10_957) else {
        return false;
    };
    run(&ADD_PARTITION, &[parent.into(), day.into()], |rows| {
        rows.first()
            .get_one::<bool>()
            .ok()
            .flatten()
            .unwrap_or(false)
    })
}
