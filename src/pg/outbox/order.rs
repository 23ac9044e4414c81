//! Per-subject order: rows of the due table that wait until the event before them is settled.
//!
//! "Before" is a smaller event id that was read. A subject has at most one row that is not held for
//! order; when that one is settled, the smallest of those that are held is released.

use std::sync::Arc;

use pgrx::prelude::*;

use super::change::hold;
use super::due::{NextDue, read_next};
use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::ids::EndpointId;

/// An endpoint and a subject whose order it keeps.
pub type Subject = (EndpointId, Arc<str>);

// One statement for what is released and for what people read of it. Rows that are held for another
// reason as well are freed of this one, and wait on.
statement!(RELEASE, [Vec<i64>, Vec<&str>, TimestampWithTimeZone, i32],
    "with head as (
       select h.event_id, h.endpoint_id
         from (select distinct r.endpoint, r.subject from unnest($1, $2) as r (endpoint, subject)) as s
        cross join lateral (
          select w.event_id, w.endpoint_id, w.hold
            from webhook._due as w
           where w.endpoint_id = s.endpoint
             and w.subject_key = s.subject
           order by w.event_id
           limit 1) as h
        where (h.hold & $4) <> 0
          and not exists (
            select from webhook._due as a
             where a.endpoint_id = s.endpoint
               and a.subject_key = s.subject
               and a.subject_key is not null
               and (a.hold & 2) = 0)),
     freed as (
       update webhook._due as d
          set hold = d.hold & ~$4, next_attempt_at = greatest(d.next_attempt_at, $3)
         from head
        where d.event_id = head.event_id
          and d.endpoint_id = head.endpoint_id
       returning d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.hold),
     shown as (
       update webhook._delivery as x
          set next_attempt_at = freed.next_attempt_at
         from freed
        where x.event_id = freed.event_id
          and x.endpoint_id = freed.endpoint_id
          and freed.hold = 0)
     select freed.endpoint_id, freed.class, freed.next_attempt_at from freed where freed.hold = 0");

statement!(
    HELD,
    [i64, i32, &str, i32],
    "select distinct d.subject_key
       from webhook._due as d
      where d.endpoint_id = $1
        and (d.hold & $2) <> 0
        and d.subject_key > $3
      order by d.subject_key
      limit $4"
);

// An endpoint that keeps no order any more: nothing waits for what was before, a bounded number at a time.
statement!(FREE, [i64, TimestampWithTimeZone, i32, i32, &str],
    "with held as (
       select d.event_id, d.endpoint_id
         from webhook._due as d
        where d.endpoint_id = $1
          and d.hold <> 0
          and (d.hold & $3) <> 0
          and d.event_id > $5
        order by d.event_id
        limit $4),
     freed as (
       update webhook._due as d
          set hold = d.hold & ~$3, next_attempt_at = greatest(d.next_attempt_at, $2), subject_key = null
         from held
        where d.event_id = held.event_id
          and d.endpoint_id = held.endpoint_id
       returning d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.hold),
     shown as (
       update webhook._delivery as x
          set next_attempt_at = freed.next_attempt_at
         from freed
        where x.event_id = freed.event_id
          and x.endpoint_id = freed.endpoint_id
          and freed.hold = 0)
     select freed.endpoint_id, freed.class, freed.next_attempt_at, freed.hold, freed.event_id from freed");

/// Lets the next event of each of these subjects go, unless one is under way.
pub fn release_subjects(subjects: &[Subject], at: i64) -> Vec<NextDue> {
    if subjects.is_empty() {
        return Vec::new();
    }
    let endpoints: Vec<i64> = subjects.iter().map(|(endpoint, _)| endpoint.0).collect();
    let keys: Vec<&str> = subjects.iter().map(|(_, key)| key.as_ref()).collect();
    run(
        &RELEASE,
        &[
            endpoints.into(),
            keys.into(),
            timestamp(at).into(),
            hold::ORDER.into(),
        ],
        read_next,
    )
}

/// Subjects of an endpoint after `after` that have rows held for order, in their order, at most `limit`.
pub fn held_subjects(endpoint: EndpointId, after: &str, limit: i32) -> Vec<Subject> {
    select(
        &HELD,
        &[
            endpoint.0.into(),
            hold::ORDER.into(),
            after.into(),
            limit.into(),
        ],
        |rows| {
            rows.filter_map(|row| Some((endpoint, Arc::from(row.get::<String>(1).ok().flatten()?))))
                .collect()
        },
    )
}

/// Frees up to `limit` rows after the event `after` of an endpoint that keeps no order any more. Returns those
/// that may be sent, and the last one; none = there was none left.
pub fn free_order(
    endpoint: EndpointId,
    after: &str,
    at: i64,
    limit: i32,
) -> (Vec<NextDue>, Option<String>) {
    run(
        &FREE,
        &[
            endpoint.0.into(),
            timestamp(at).into(),
            hold::ORDER.into(),
            limit.into(),
            after.into(),
        ],
        |rows| {
            let mut last: Option<String> = None;
            let free = rows
                .filter_map(|row| {
                    last = last.take().max(row.get::<String>(5).ok().flatten());
                    let free = row.get::<i32>(4).ok().flatten()? == 0;
                    free.then_some(NextDue {
                        endpoint: EndpointId(row.get::<i64>(1).ok().flatten()?),
                        class: row.get::<i16>(2).ok().flatten()?,
                        at: unix_micros(row.get::<TimestampWithTimeZone>(3).ok().flatten()?),
                    })
                })
                .collect();
            (free, last)
        },
    )
}
