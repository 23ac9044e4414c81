//! What goes because it is old, and what went because somebody had it erased. What is decided here is decided in
//! 38_retention.sql; these are the calls.

use std::sync::Arc;

use pgrx::datum::Date;
use pgrx::prelude::*;

use super::due::{NextDue, read_next_row};
use super::order::Subject;
use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::ids::{EndpointId, EventId, Pair};

/// A pair that waits for its next attempt although it is older than deliveries are kept.
pub struct Overdue {
    pub pair: Pair,
    pub class: i16,
    pub at: i64,
    pub attempt_count: i32,
    pub series_start: i32,
    pub subject: Option<String>,
}

statement!(
    OLD_PARTITIONS,
    [Date, Date, Date],
    "select p.parent, p.day from webhook._old_partitions($1, $2, $3) as p"
);

statement!(
    CLEAR_PARTITION,
    [&str, Date, Vec<&str>, bool],
    "select webhook._clear_partition($1, $2, $3, $4)"
);

statement!(
    CLEAR_DEFAULT,
    [&str, &str, Option<&str>, Vec<&str>, &str, i32],
    "select c.last, c.removed from webhook._clear_default($1, $2, $3, $4, $5, $6) as c"
);

statement!(
    EXPIRE_ROWS,
    [&str, TimestampWithTimeZone, i32, TimestampWithTimeZone],
    "select webhook._expire_rows($1, $2, $3, $4)"
);

statement!(
    EXPIRE_KEYS,
    [TimestampWithTimeZone, i32, i32],
    "select webhook._expire_keys($1, $2, $3)"
);

statement!(
    EXPIRE_PAYLOADS,
    [TimestampWithTimeZone, i32],
    "select webhook._expire_payloads($1, $2)"
);

// What somebody asked for counts from the asking: it is stamped then, and a series begins with its first attempt. But
// nothing outlives the events' own retention.
statement!(OVERDUE, [&str, &str, i64, i32, i16, TimestampWithTimeZone, &str],
    "select d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.attempt_count, d.series_start, d.subject_key
       from webhook._due as d
      where d.event_id < $1
        and (d.event_id, d.endpoint_id) > ($2, $3)
        and (not (d.asked or d.class = $5)
             or coalesce(d.series_at, d.next_attempt_at) < $6
             or d.event_id < $7)
      order by d.event_id, d.endpoint_id
      limit $4");

// Also what waits without a row in the due table, which nobody would ever send.
statement!(CLOSE_OLD, [&str, i32],
    "update webhook._delivery as d
        set state = 'closed', next_attempt_at = null,
            reason = pg_catalog.concat_ws(': ', 'older than the retention', nullif(d.reason, ''))
       from (select o.event_id, o.endpoint_id
               from webhook._delivery as o
              where o.event_id < $1
                and (o.state = 'dead'
                     or (o.state in ('pending', 'retrying')
                         and not exists (select from webhook._due as w where w.event_id = o.event_id and w.endpoint_id = o.endpoint_id)))
              limit $2) as r
      where d.event_id = r.event_id
        and d.endpoint_id = r.endpoint_id
     returning d.endpoint_id");

statement!(
    EXPUNGED_OF,
    [Vec<&str>],
    "select t.event_id from webhook._tombstone as t where t.event_id = any ($1)"
);

// Whoever holds such a row is still in a transaction about it. What waits for a filter or a conversion waits for a
// payload: it is let go, and ends as whatever is erased does.
statement!(SWEEP, [i32, i32, TimestampWithTimeZone],
    "with found as (
       select t.event_id from webhook._tombstone as t where not t.swept order by t.event_id limit $1 for update skip locked),
     gone as (
       delete from webhook._excerpt as x using found where x.event_id = found.event_id),
     freed as (
       update webhook._due as d
          set hold = d.hold & ~$2, next_attempt_at = greatest(d.next_attempt_at, $3)
         from found
        where d.event_id = found.event_id
          and (d.hold & $2) <> 0
       returning d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.hold, d.subject_key),
     shown as (
       update webhook._delivery as x
          set next_attempt_at = case when freed.hold = 0 then freed.next_attempt_at end,
              reason = null, last_error_category = null
         from freed
        where x.event_id = freed.event_id
          and x.endpoint_id = freed.endpoint_id),
     swept as (
       update webhook._tombstone as t set swept = true from found where t.event_id = found.event_id
       returning t.event_id)
     select null::bigint, null::smallint, null::timestamptz, null::integer, null::text from swept
     union all
     select freed.endpoint_id, freed.class, freed.next_attempt_at, freed.hold, freed.subject_key from freed");

/// Partitions that are old by the days before which attempts, deliveries and events are, in the order in which they
/// are to be cleared.
pub fn old_partitions(before: [i32; 3]) -> Vec<(String, i32)> {
    let Some([attempts, deliveries, events]) = days(before) else {
        return Vec::new();
    };
    select(
        &OLD_PARTITIONS,
        &[attempts.into(), deliveries.into(), events.into()],
        |rows| {
            rows.filter_map(|row| {
                Some((
                    row.get::<String>(1).ok().flatten()?,
                    row.get::<Date>(2).ok().flatten()?.to_unix_epoch_days(),
                ))
            })
            .collect()
        },
    )
}

/// Empties a partition, or drops an empty one unless that is not to be tried now; says what became of it.
pub fn clear_partition(parent: &str, day: i32, reads: &[String], may_drop: bool) -> String {
    let Some([day]) = days([day]) else {
        return String::new();
    };
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    run(
        &CLEAR_PARTITION,
        &[parent.into(), day.into(), reads.into(), may_drop.into()],
        |rows| {
            rows.first()
                .get_one::<String>()
                .ok()
                .flatten()
                .unwrap_or_default()
        },
    )
}

/// Deletes old rows of a DEFAULT partition; returns the last one looked at, none = there are no more. `oldest` is the first
/// event that is kept.
pub fn clear_default(
    parent: &str,
    before: &str,
    after: Option<&str>,
    reads: &[String],
    oldest: &str,
    most: i32,
) -> Option<String> {
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    run(
        &CLEAR_DEFAULT,
        &[
            parent.into(),
            before.into(),
            after.into(),
            reads.into(),
            oldest.into(),
            most.into(),
        ],
        |rows| rows.first().get_one::<String>().ok().flatten(),
    )
}

/// Deletes rows of a table without partitions that are older than this moment, what is evidence than that one; says how
/// many.
pub fn expire_rows(name: &str, before: i64, evidence: i64, most: i32) -> i64 {
    run(
        &EXPIRE_ROWS,
        &[
            name.into(),
            timestamp(before).into(),
            most.into(),
            timestamp(evidence).into(),
        ],
        |rows| rows.first().get_one::<i64>().ok().flatten().unwrap_or(0),
    )
}

/// Deletes idempotency keys of a stretch of pages; returns the page to go on from, none = all were looked at.
pub fn expire_keys(before: i64, page: i32, pages: i32) -> Option<i32> {
    run(
        &EXPIRE_KEYS,
        &[timestamp(before).into(), page.into(), pages.into()],
        |rows| rows.first().get_one::<i32>().ok().flatten(),
    )
}

/// Takes payloads that by now have reached the age of their event type; says whether there may be more.
pub fn expire_payloads(now: i64, most: i32) -> bool {
    run(
        &EXPIRE_PAYLOADS,
        &[timestamp(now).into(), most.into()],
        |rows| {
            rows.first()
                .get_one::<bool>()
                .ok()
                .flatten()
                .unwrap_or(false)
        },
    )
}

/// Which waiting pairs are overdue.
pub struct Overage {
    /// Events before this one have no deliveries any more.
    pub deliveries: String,
    /// Except those of this class, and single ones that somebody asked for, ...
    pub asked: i16,
    /// ... at this time or later,
    pub asked_before: i64,
    /// of events that are still kept.
    pub events: String,
}

/// Pairs that wait and are overdue, behind the last one seen.
pub fn overdue(which: &Overage, after: &(String, i64), most: i32) -> Vec<Overdue> {
    select(
        &OVERDUE,
        &[
            which.deliveries.as_str().into(),
            after.0.as_str().into(),
            after.1.into(),
            most.into(),
            which.asked.into(),
            timestamp(which.asked_before).into(),
            which.events.as_str().into(),
        ],
        |rows| {
            rows.filter_map(|row| {
                Some(Overdue {
                    pair: Pair {
                        event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                        endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
                    },
                    class: row.get::<i16>(3).ok().flatten()?,
                    at: unix_micros(row.get::<TimestampWithTimeZone>(4).ok().flatten()?),
                    attempt_count: row.get::<i32>(5).ok().flatten()?,
                    series_start: row.get::<i32>(6).ok().flatten()?,
                    subject: row.get::<String>(7).ok().flatten(),
                })
            })
            .collect()
        },
    )
}

/// Closes dead letters of events before an id; returns the endpoint of each.
pub fn close_old(before: &str, most: i32) -> Vec<EndpointId> {
    run(&CLOSE_OLD, &[before.into(), most.into()], |rows| {
        rows.filter_map(|row| row.get::<i64>(1).ok().flatten().map(EndpointId))
            .collect()
    })
}

/// Those of these events whose payload is gone.
pub fn expunged_of(events: &[EventId]) -> Vec<EventId> {
    let ids: Vec<String> = events.iter().map(EventId::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    select(&EXPUNGED_OF, &[ids.into()], |rows| {
        rows.filter_map(|row| row.get::<String>(1).ok().flatten()?.parse().ok())
            .collect()
    })
}

/// What a round of looking at erased events did.
#[derive(Default)]
pub struct Swept {
    /// Events looked at.
    pub events: usize,
    /// Pairs that may be sent from now on.
    pub free: Vec<NextDue>,
    /// Subjects whose turn may have come.
    pub subjects: Vec<Subject>,
}

/// Deletes excerpts that were written while an erasure was not committed yet, and frees pairs of these bits that wait
/// for a payload, not before `at`.
pub fn sweep(most: i32, bits: i32, at: i64) -> Swept {
    let arguments = [most.into(), bits.into(), timestamp(at).into()];
    run(&SWEEP, &arguments, |rows| {
        let mut swept = Swept::default();
        for row in rows {
            let Some(next) = read_next_row(&row) else {
                swept.events += 1;
                continue;
            };
            if let Some(subject) = row.get::<String>(5).ok().flatten() {
                swept.subjects.push((next.endpoint, Arc::from(subject)));
            }
            if row.get::<i32>(4).ok().flatten() == Some(0) {
                swept.free.push(next);
            }
        }
        swept
    })
}

/// Days since 1970 as dates; none = PostgreSQL could not hold one.
fn days<const N: usize>(days: [i32; N]) -> Option<[Date; N]> {
    let dates: Vec<Date> = days
        .into_iter()
        .filter_map(|day| Date::try_from(day.checked_sub(10_957)?).ok())
        .collect();
    dates.try_into().ok()
}
