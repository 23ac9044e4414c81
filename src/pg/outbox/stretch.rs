//! Reading the two-snapshot window, stretch by stretch.
//!
//! New = visible in `cur`, not in `prev`; inside, a keyset on (xid, event_id), so that a transaction
//! of a million events is read in many batches. Ordering is by the xid8 column, never by its text.

use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;

use super::POSTGRES_EPOCH;
use super::reading::{Row, Seen};
use super::statement::{Statement, select, statement};
use super::streamed::{Slot, Streamed, stream, streamed};
use crate::rules::envelope::Event;
use crate::rules::snapshot::Snapshot;

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

/// Rows that there is room for to begin with.
const FEW: usize = 32;

/// The next rows of a window in their order, as the executor finds them: what bounds a batch is decided row by row, and
/// the body of an event that is not taken stays where it is. The snapshot is parsed once, not for each row.
macro_rules! in_order {
    ($condition:literal) => {
        concat!(
            "select w.xid, w.event_id, w.partner_id, w.type, w.source, w.occurred_at, w.subject_type, w.subject_id,
                    w.subject_version, w.scope, w.schema_version, w.correlation_id, w.causation, w.traceparent, w.test,
                    w.body, w.seal_key, w.seal,
                    -- As above.
                    case when w.body is null and not exists (select from webhook._tombstone as t where t.event_id = w.event_id and t.body_sha256 = w.body_sha256)
                         then ''::bytea else w.body_sha256 end as body_sha256, w.origin
               from (select * from webhook._event as e
                      where e.origin = $1 and ", $condition, "
                      order by e.xid, e.event_id
                      limit $6) as w
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
streamed!(
    READ_LATE,
    [i64, &str, &str, &str, &str, i32],
    in_order!(
        "e.xid = any ($2::xid8[])
     and pg_catalog.pg_visible_in_snapshot(e.xid, (select $3::pg_snapshot))
     and (e.xid, e.event_id) > ($4::xid8, $5)"
    )
);

// New ones: transactions that began after `prev`.
streamed!(
    READ_NEW,
    [i64, &str, &str, &str, &str, i32],
    in_order!(
        "(e.xid, e.event_id) > ($4::xid8, $5)
     and e.xid < $2::xid8
     and pg_catalog.pg_visible_in_snapshot(e.xid, (select $3::pg_snapshot))"
    )
);

statement!(
    LATE_AHEAD,
    [i64, &str, &str, &str, &str, i32, Vec<&str>, bool],
    ahead!(
        "e.xid = any ($2::xid8[])
     and pg_catalog.pg_visible_in_snapshot(e.xid, (select $3::pg_snapshot))
     and (e.xid, e.event_id) > ($4::xid8, $5)"
    )
);

statement!(
    NEW_AHEAD,
    [i64, &str, &str, &str, &str, i32, Vec<&str>, bool],
    ahead!(
        "(e.xid, e.event_id) > ($4::xid8, $5)
     and e.xid < $2::xid8
     and pg_catalog.pg_visible_in_snapshot(e.xid, (select $3::pg_snapshot))"
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
        let late = (&READ_LATE, &LATE_AHEAD);
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
        (&READ_NEW, &NEW_AHEAD),
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

/// Part of a window by the first of the statements; by the second one it is looked ahead first, where few of the events
/// are wanted.
fn read_some(
    (read, look_ahead): (&'static LocalKey<Streamed>, &'static LocalKey<Statement>),
    origin: i64,
    bound: &str,
    cur: &Snapshot,
    after: &(u64, String),
    whose: &Whose,
    amount: Amount,
) -> Stretch {
    let cur = cur.to_string();
    let arguments = |after: &(u64, String), scan: i32| -> Vec<DatumWithOid<'_>> {
        vec![
            origin.into(),
            bound.into(),
            cur.as_str().into(),
            after.0.to_string().into(),
            after.1.clone().into(),
            scan.into(),
        ]
    };
    let everybody = whose.partners.is_empty() && !whose.only;
    let mut scan = if everybody {
        amount.events
    } else {
        amount.scan
    };
    let mut after = after.clone();
    if !everybody && scan > amount.events {
        let partners: Vec<&str> = whose.partners.iter().map(String::as_str).collect();
        let mut ahead = arguments(&after, scan);
        ahead.extend([partners.into(), whose.only.into()]);
        let found = select(look_ahead, &ahead, |mut rows| {
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
    let most = usize::try_from(amount.events).unwrap_or(0);
    let is_wanted = |partner: &[u8]| {
        let named = whose.partners.iter().any(|name| name.as_bytes() == partner);
        everybody || named == whose.only
    };
    let mut stretch = Stretch {
        rows: Vec::with_capacity(FEW),
        ..Stretch::default()
    };
    let mut passed: Option<(u64, String)> = None;
    let (mut looked_at, mut bytes) = (0, 0);
    stream(read, &arguments(&after, scan), |row| {
        if row.with_bytes(3, is_wanted) != Some(true) {
            looked_at += 1;
            passed = place(row);
            return true;
        }
        // One more than fits: it is where the next stretch begins.
        if stretch.rows.len() >= most || bytes >= amount.bytes {
            stretch.more = true;
            return false;
        }
        looked_at += 1;
        passed = None;
        if let Some(seen) = see_in_place(row) {
            bytes += seen.bytes;
            stretch.rows.push(seen);
        }
        true
    });
    stretch.more |= looked_at >= scan;
    stretch.to = passed.or_else(|| stretch.rows.last().map(|seen| seen.place.clone()));
    stretch
}

/// Where an event stands, as the window is read.
fn place(row: &Slot<'_>) -> Option<(u64, String)> {
    Some((row.i64(1)?.cast_unsigned(), row.text(2)?))
}

/// What a row of the window holds, of one that the executor stands at.
fn see_in_place(row: &Slot<'_>) -> Option<Seen> {
    let bytes = i64::try_from(row.length(16)).unwrap_or(i64::MAX);
    let place = place(row)?;
    Some(Seen {
        bytes,
        row: read_in_place(row, &place),
        place,
    })
}

fn read_in_place(row: &Slot<'_>, (xid, id): &(u64, String)) -> Option<Row> {
    let expunged = row.is_null(16);
    let data = if expunged { None } else { Some(row.text(16)?) };
    Some(Row {
        origin: row.i64(20)?,
        xid: *xid,
        expunged,
        event: Event {
            id: id.parse().ok()?,
            partner_id: row.text(3)?,
            kind: row.text(4)?,
            source: row.text(5),
            occurred_at: row.i64(6)?.saturating_add(POSTGRES_EPOCH),
            subject_type: row.text(7),
            subject_id: row.text(8),
            subject_version: row.i64(9),
            scope: row.text(10),
            schema_version: row.text(11),
            correlation_id: row.text(12),
            causation: row.text(13),
            traceparent: row.text(14),
            test: row.bool(15)?,
            data: data.unwrap_or_default(),
        },
        seal_key: row.i64(17)?,
        seal: row.with_bytes(18, |bytes| bytes.try_into().ok())?,
        digest: row.with_bytes(19, |bytes| bytes.try_into().ok())?,
    })
}
