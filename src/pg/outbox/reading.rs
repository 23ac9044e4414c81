//! Reading events: stretches of the two-snapshot window, and events by their ids.
//!
//! New = visible in `cur`, not in `prev`; inside, a keyset on (xid, event_id), so that a transaction
//! of a million events is read in many batches. Ordering is by the xid8 column, never by its text.

use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::SpiHeapTupleData;

use super::statement::{Statement, select, statement};
use super::unix_micros;
use crate::rules::envelope::Event;
use crate::rules::erasure;
use crate::rules::ids::EventId;
use crate::rules::snapshot::Snapshot;

/// An event as it stands in its table, with what is needed to check its seal.
pub struct Row {
    /// Database that wrote it.
    pub origin: i64,
    pub xid: u64,
    pub event: Event,
    /// The payload is gone.
    pub expunged: bool,
    pub seal_key: i64,
    pub seal: Vec<u8>,
    pub digest: Vec<u8>,
}

impl Row {
    /// The payload is gone, and the event says nothing without it: it is not sent. One about a deletion still leaves,
    /// as ids only.
    pub fn withheld(&self) -> bool {
        self.expunged && !erasure::is_deletion(&self.event.kind)
    }
}

/// A row of the window: its place and, unless somebody spoilt it beyond reading, what it holds.
pub struct Seen {
    pub place: (u64, String),
    /// Bytes of the body, as the bound of a batch counts them.
    pub bytes: i64,
    pub row: Option<Row>,
}

/// What was read of a window in one go.
#[derive(Default)]
pub struct Stretch {
    pub rows: Vec<Seen>,
    /// Place of the last event that was looked at, wanted or not; none = there was none.
    pub to: Option<(u64, String)>,
    /// There may be more behind it.
    pub more: bool,
}

impl Stretch {
    /// The keys that sealed its events.
    pub fn seal_keys(&self) -> impl Iterator<Item = i64> + '_ {
        self.rows
            .iter()
            .filter_map(|seen| seen.row.as_ref())
            .map(|row| row.seal_key)
    }
}

/// Whose events are read.
#[derive(Clone, Default)]
pub struct Whose {
    pub partners: Vec<String>,
    /// The events of these partners; else those of everybody but them.
    pub only: bool,
}

/// How much is read in one go.
#[derive(Clone, Copy)]
pub struct Amount {
    /// Events looked at.
    pub scan: i32,
    /// Events taken, and bytes of their bodies.
    pub events: i32,
    pub bytes: i64,
}

/// Columns in the order of [`read`].
macro_rules! columns {
    () => {
        "w.xid::text as xid_text, w.event_id, w.partner_id, w.type, w.source, w.occurred_at, w.subject_type,
         w.subject_id, w.subject_version, w.scope, w.schema_version, w.correlation_id, w.causation,
         w.traceparent, w.test, w.body, w.seal_key, w.seal,
         -- A payload that is gone without a tombstone: without the digest no seal holds.
         case when w.body is null and not exists (select from webhook._tombstone as t where t.event_id = w.event_id and t.body_sha256 = w.body_sha256)
              then ''::bytea else w.body_sha256 end as body_sha256, w.origin"
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

/// The same of some partners, or of all but some: the events looked at are bounded as well, and where
/// they end is told by a last row, wanted or not. The body of one that is not wanted stays where it is.
macro_rules! chosen {
    ($condition:literal) => {
        concat!(
            "select ", columns!(), ", w.wanted, w.cut, w.scanned
               from (select e.*,
                            pg_catalog.row_number() over o as place,
                            pg_catalog.count(*) over () as scanned,
                            pg_catalog.count(*) filter (where e.wanted) over o as number,
                            pg_catalog.sum(e.bytes) over o - e.bytes as bytes_before,
                            pg_catalog.count(*) filter (where e.wanted) over () > $10 or pg_catalog.sum(e.bytes) over () >= $7 as cut
                       from (select e.xid, e.event_id, e.partner_id, e.type, e.source, e.occurred_at, e.subject_type,
                                    e.subject_id, e.subject_version, e.scope, e.schema_version, e.correlation_id,
                                    e.causation, e.traceparent, e.test, e.seal_key, e.seal, e.body_sha256, e.origin, v.wanted,
                                    case when v.wanted then e.body end as body,
                                    case when v.wanted then coalesce(pg_catalog.octet_length(e.body), 0) else 0 end as bytes
                               from (select * from webhook._event as e
                                      where e.origin = $1 and ", $condition, "
                                      order by e.xid, e.event_id
                                      limit $6) as e
                              cross join lateral (select (e.partner_id = any ($8)) = $9 as wanted) as v) as e
                     window o as (order by e.xid, e.event_id rows unbounded preceding)) as w
              where (w.wanted and w.number <= $10 and w.bytes_before < $7)
                 or (w.place = w.scanned and not w.cut)
              order by w.xid, w.event_id"
        )
    };
}

/// The first wanted event of the next $6, else the last of them: far cheaper than reading them.
macro_rules! ahead {
    ($condition:literal) => {
        concat!(
            "select w.xid::text, w.event_id, w.wanted
               from (select e.xid, e.event_id, (e.partner_id = any ($7)) = $8 as wanted, pg_catalog.row_number() over () as place
                       from (select e.xid, e.event_id, e.partner_id
                               from webhook._event as e
                              where e.origin = $1 and ", $condition, "
                              order by e.xid, e.event_id
                              limit $6) as e) as w
              where w.wanted or w.place = $6
              limit 1"
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
    READ_LATE_OF,
    [i64, &str, &str, &str, &str, i32, i64, Vec<&str>, bool, i32],
    chosen!(
        "e.xid = any ($2::xid8[])
     and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
     and (e.xid, e.event_id) > ($4::xid8, $5)"
    )
);

statement!(
    READ_NEW_OF,
    [i64, &str, &str, &str, &str, i32, i64, Vec<&str>, bool, i32],
    chosen!(
        "(e.xid, e.event_id) > ($4::xid8, $5)
     and e.xid < $2::xid8
     and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)"
    )
);

statement!(
    LATE_AHEAD,
    [i64, &str, &str, &str, &str, i32, Vec<&str>, bool],
    ahead!(
        "e.xid = any ($2::xid8[])
     and pg_catalog.pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
     and (e.xid, e.event_id) > ($4::xid8, $5)"
    )
);

statement!(
    NEW_AHEAD,
    [i64, &str, &str, &str, &str, i32, Vec<&str>, bool],
    ahead!(
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

/// The next events of a window, visible in `cur` and not in `prev`, behind the keyset `after`, in order.
pub fn read_window(
    origin: i64,
    (prev, cur): (&Snapshot, &Snapshot),
    after: &(u64, String),
    whose: &Whose,
    amount: Amount,
) -> Stretch {
    let mut stretch = Stretch::default();
    let running = prev
        .running()
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(",");
    if after.0 < prev.xmax() && !running.is_empty() {
        let late = [&READ_LATE, &READ_LATE_OF, &LATE_AHEAD];
        let running = format!("{{{running}}}");
        stretch = read_some(late, origin, &running, cur, after, whose, amount);
        if stretch.more {
            return stretch;
        }
    }
    let left = Amount {
        events: amount.events - i32::try_from(stretch.rows.len()).unwrap_or(amount.events),
        bytes: amount.bytes - stretch.rows.iter().map(|seen| seen.bytes).sum::<i64>(),
        ..amount
    };
    if left.events <= 0 || left.bytes <= 0 {
        stretch.more = true;
        return stretch;
    }
    let from = after.clone().max((prev.xmax(), String::new()));
    let xmax = cur.xmax().to_string();
    let new = read_some(
        [&READ_NEW, &READ_NEW_OF, &NEW_AHEAD],
        origin,
        &xmax,
        cur,
        &from,
        whose,
        left,
    );
    stretch.rows.extend(new.rows);
    stretch.to = new.to.or(stretch.to);
    stretch.more = new.more;
    stretch
}

/// Part of a window by the first of the statements, or by the second one where some partners are meant; by the
/// third one it is looked ahead first, where few of the events are theirs.
fn read_some(
    statements: [&'static LocalKey<Statement>; 3],
    origin: i64,
    bound: &str,
    cur: &Snapshot,
    after: &(u64, String),
    whose: &Whose,
    amount: Amount,
) -> Stretch {
    let cur = cur.to_string();
    let arguments = |after: &(u64, String)| -> Vec<DatumWithOid<'_>> {
        vec![
            origin.into(),
            bound.into(),
            cur.as_str().into(),
            after.0.to_string().into(),
            after.1.clone().into(),
        ]
    };
    if whose.partners.is_empty() && !whose.only {
        let mut arguments = arguments(after);
        arguments.extend([amount.events.into(), amount.bytes.into()]);
        let rows: Vec<Seen> = select(statements[0], &arguments, read_places);
        return Stretch {
            to: rows.last().map(|seen| seen.place.clone()),
            more: rows.len() >= usize::try_from(amount.events).unwrap_or(0)
                || rows.iter().map(|seen| seen.bytes).sum::<i64>() >= amount.bytes,
            rows,
        };
    }
    let partners: Vec<&str> = whose.partners.iter().map(String::as_str).collect();
    let mut scan = amount.scan;
    let mut after = after.clone();
    if scan > amount.events {
        let mut ahead = arguments(&after);
        ahead.extend([scan.into(), partners.clone().into(), whose.only.into()]);
        let found = select(statements[2], &ahead, |mut rows| {
            let row = rows.next()?;
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let wanted = row.get::<bool>(3).ok().flatten()?;
            Some(((text(1)?.parse::<u64>().ok()?, text(2)?), wanted))
        });
        let Some((place, wanted)) = found else {
            return Stretch::default();
        };
        if !wanted {
            return Stretch {
                to: Some(place),
                more: true,
                ..Stretch::default()
            };
        }
        // Without its last character an id is before itself, and behind no wanted event that is before it.
        after = place;
        after.1.pop();
        scan = amount.events;
    }
    let mut arguments = arguments(&after);
    arguments.extend([
        scan.into(),
        amount.bytes.into(),
        partners.into(),
        whose.only.into(),
        amount.events.into(),
    ]);
    select(statements[1], &arguments, |rows| {
        let mut stretch = Stretch::default();
        for row in rows {
            let Some(seen) = see(&row) else { continue };
            stretch.to = Some(seen.place.clone());
            stretch.more = row.get::<bool>(22).ok().flatten().unwrap_or(false)
                || row.get::<i64>(23).ok().flatten().unwrap_or(0) >= i64::from(scan);
            if row.get::<bool>(21).ok().flatten().unwrap_or(false) {
                stretch.rows.push(seen);
            }
        }
        stretch
    })
}

/// Every row has a place, so that one that cannot be read hides none of those behind it.
fn see(row: &SpiHeapTupleData<'_>) -> Option<Seen> {
    let text = |index: usize| row.get::<String>(index).ok().flatten();
    let event = read(row);
    let bytes = match &event {
        Some(row) => row.event.data.len(),
        None => text(16).map_or(0, |body| body.len()),
    };
    Some(Seen {
        place: (text(1)?.parse().ok()?, text(2)?),
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        row: event,
    })
}

/// The rows of a statement that selects the columns of an event.
pub fn read_places(rows: pgrx::spi::SpiTupleTable<'_>) -> Vec<Seen> {
    rows.filter_map(|row| see(&row)).collect()
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
