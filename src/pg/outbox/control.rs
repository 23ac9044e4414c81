//! What operators set: policies and pauses as of a window; and what follows for queued pairs.

use std::time::Duration;

use pgrx::prelude::*;

use super::change::hold;
use super::configuration::since;
use super::due::NextDue;
use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::policy::{PolicyRow, parse_schedule};
use crate::rules::snapshot::Snapshot;

/// What is paused, or not any more.
pub struct PauseRow {
    pub scope: String,
    pub target: String,
    pub paused: bool,
}

/// A queued pair, for those who look at what its event is.
pub struct Queued {
    pub pair: Pair,
    pub kind: String,
    pub class: i16,
    pub at: i64,
    pub attempt_count: i32,
    pub series_start: i32,
    pub subject: Option<String>,
    /// Somebody asked for it: what the endpoint subscribes to is beside the point.
    pub asked: bool,
}

macro_rules! policy_columns {
    () => {
        "select p.name, p.retry_schedule, p.client_error_attempts,
                extract(epoch from p.retry_after_max)::double precision, p.max_in_flight,
                p.rate::double precision, p.burst, extract(epoch from p.max_age)::double precision,
                extract(epoch from p.disable_after)::double precision, p.disable_failures
           from webhook._policy as p"
    };
}

statement!(ALL_POLICIES, [], policy_columns!());

statement!(
    CHANGED_POLICIES,
    [&str, &str],
    concat!(
        policy_columns!(),
        " where p.changed_xid >= $1::xid8 or p.changed_xid = any ($2::xid8[])"
    )
);

statement!(
    ALL_PAUSES,
    [],
    "select p.scope, p.target, p.paused from webhook._pause as p"
);

statement!(
    CHANGED_PAUSES,
    [&str, &str],
    "select p.scope, p.target, p.paused
       from webhook._pause as p
      where p.changed_xid >= $1::xid8 or p.changed_xid = any ($2::xid8[])"
);

// Released in the order of the events: the stamps follow one another.
statement!(RELEASE_TYPE, [&str, TimestampWithTimeZone, i32, i32, &str, i64],
    "with held as (
       select d.event_id, d.endpoint_id
         from webhook._due as d
         join webhook._event as e on e.event_id = d.event_id
        where d.hold <> 0
          and (d.hold & $3) <> 0
          and (d.event_id, d.endpoint_id) > ($5, $6)
          and e.type = $1
        order by d.event_id, d.endpoint_id
        limit $4),
     placed as (
       select h.event_id, h.endpoint_id,
              $2 + pg_catalog.row_number() over (order by h.event_id) * interval '1 microsecond' as at
         from held as h),
     freed as (
       update webhook._due as d
          set hold = d.hold & ~$3, next_attempt_at = greatest(d.next_attempt_at, p.at)
         from placed as p
        where d.event_id = p.event_id
          and d.endpoint_id = p.endpoint_id
       returning d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.hold),
     shown as (
       update webhook._delivery as x
          set next_attempt_at = freed.next_attempt_at
         from freed
        where x.event_id = freed.event_id
          and x.endpoint_id = freed.endpoint_id
          and freed.hold = 0)
     select freed.endpoint_id, freed.class, freed.next_attempt_at, freed.hold, freed.event_id from freed");

macro_rules! queued_columns {
    () => {
        "select d.event_id, e.type, d.class, d.next_attempt_at, d.attempt_count, d.series_start, d.subject_key, d.asked
           from webhook._due as d
           join webhook._event as e on e.event_id = d.event_id
          where d.endpoint_id = $1"
    };
}

statement!(
    QUEUED,
    [i64, i16, TimestampWithTimeZone, &str, i32],
    concat!(
        queued_columns!(),
        " and d.class = $2
          and d.hold = 0
          and (d.next_attempt_at, d.event_id) > ($3, $4)
        order by d.next_attempt_at, d.event_id
        limit $5"
    )
);

statement!(
    QUEUED_HELD,
    [i64, &str, i32],
    concat!(
        queued_columns!(),
        " and d.hold <> 0
          and d.event_id > $2
        order by d.event_id
        limit $3"
    )
);

statement!(
    HELD_TYPES,
    [i32],
    "select distinct e.type
       from webhook._due as d
       join webhook._event as e on e.event_id = d.event_id
      where d.hold <> 0
        and (d.hold & $1) <> 0"
);

statement!(
    HELD_ENDPOINTS,
    [],
    "select distinct d.endpoint_id from webhook._due as d where d.hold <> 0"
);

/// Event types of pairs that are held because their type is, or was, paused; read once per life.
pub fn held_types() -> Vec<String> {
    select(&HELD_TYPES, &[hold::EVENT_TYPE.into()], |rows| {
        rows.filter_map(|row| row.get::<String>(1).ok().flatten())
            .collect()
    })
}

/// Endpoints that have held pairs; read once per life.
pub fn held_endpoints() -> Vec<EndpointId> {
    select(&HELD_ENDPOINTS, &[], |rows| {
        rows.filter_map(|row| row.get::<i64>(1).ok().flatten().map(EndpointId))
            .collect()
    })
}

/// Policies that changed since `prev`; all of them when there is no `prev`.
pub fn changed_policies(prev: Option<&Snapshot>) -> Vec<(String, PolicyRow)> {
    let read = |rows: pgrx::spi::SpiTupleTable<'_>| {
        rows.filter_map(|row| {
            let seconds = |index: usize| {
                row.get::<f64>(index)
                    .ok()
                    .flatten()
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            };
            let number = |index: usize| {
                row.get::<i32>(index)
                    .ok()
                    .flatten()
                    .and_then(|number| u32::try_from(number).ok())
            };
            Some((
                row.get::<String>(1).ok().flatten()?,
                PolicyRow {
                    schedule: row
                        .get::<String>(2)
                        .ok()
                        .flatten()
                        .and_then(|text| parse_schedule(&text).ok()),
                    client_error_attempts: number(3),
                    retry_after_max: seconds(4),
                    max_in_flight: number(5).and_then(|cap| usize::try_from(cap).ok()),
                    rate: row.get::<f64>(6).ok().flatten(),
                    burst: number(7),
                    max_age: seconds(8),
                    disable_after: seconds(9),
                    disable_failures: number(10),
                },
            ))
        })
        .collect()
    };
    match prev {
        None => select(&ALL_POLICIES, &[], read),
        Some(prev) => {
            let (xmax, running) = since(prev);
            select(
                &CHANGED_POLICIES,
                &[xmax.as_str().into(), running.as_str().into()],
                read,
            )
        }
    }
}

/// Pauses that changed since `prev`; all of them when there is no `prev`.
pub fn changed_pauses(prev: Option<&Snapshot>) -> Vec<PauseRow> {
    let read = |rows: pgrx::spi::SpiTupleTable<'_>| {
        rows.filter_map(|row| {
            Some(PauseRow {
                scope: row.get::<String>(1).ok().flatten()?,
                target: row.get::<String>(2).ok().flatten()?,
                paused: row.get::<bool>(3).ok().flatten()?,
            })
        })
        .collect()
    };
    match prev {
        None => select(&ALL_PAUSES, &[], read),
        Some(prev) => {
            let (xmax, running) = since(prev);
            select(
                &CHANGED_PAUSES,
                &[xmax.as_str().into(), running.as_str().into()],
                read,
            )
        }
    }
}

/// A place among pairs in the order of their events.
pub type Place = (String, i64);

/// Releases up to `limit` pairs after `after` of an event type that is not paused any more, stamped after `at`;
/// returns those that may be sent, how many were touched, and the last of them.
pub fn release_type(
    kind: &str,
    after: &Place,
    at: i64,
    limit: i32,
) -> (Vec<NextDue>, usize, Place) {
    run(
        &RELEASE_TYPE,
        &[
            kind.into(),
            timestamp(at).into(),
            hold::EVENT_TYPE.into(),
            limit.into(),
            after.0.as_str().into(),
            after.1.into(),
        ],
        |rows| {
            let touched = rows.len();
            let mut last = after.clone();
            let free = rows
                .filter_map(|row| {
                    let place = (
                        row.get::<String>(5).ok().flatten()?,
                        row.get::<i64>(1).ok().flatten()?,
                    );
                    if place > last {
                        last = place;
                    }
                    (row.get::<i32>(4).ok().flatten()? == 0).then_some(NextDue {
                        endpoint: EndpointId(row.get::<i64>(1).ok().flatten()?),
                        class: row.get::<i16>(2).ok().flatten()?,
                        at: unix_micros(row.get::<TimestampWithTimeZone>(3).ok().flatten()?),
                    })
                })
                .collect();
            (free, touched, last)
        },
    )
}

/// The class behind all others: that of replays of a range.
const LAST_CLASS: i16 = 2;

/// How far a walk over an endpoint's queue has come: its classes, then what is held.
#[derive(Clone, Default)]
pub enum Walk {
    /// In a class, after this keyset.
    Class(i16, i64, String),
    /// Among what is held, after this event.
    Held(String),
    #[default]
    Over,
}

impl Walk {
    /// At the beginning.
    pub fn new() -> Walk {
        Walk::Class(0, 0, String::new())
    }

    /// Where it goes on when a class is over.
    pub fn behind_class(class: i16) -> Walk {
        if class < LAST_CLASS {
            Walk::Class(class + 1, 0, String::new())
        } else {
            Walk::Held(String::new())
        }
    }
}

/// Up to `limit` queued pairs of an endpoint, and where to go on.
pub fn queued(endpoint: EndpointId, walk: &Walk, limit: i32) -> (Vec<Queued>, Walk) {
    let read = |rows: pgrx::spi::SpiTupleTable<'_>| {
        rows.filter_map(|row| {
            let event: EventId = row.get::<String>(1).ok().flatten()?.parse().ok()?;
            Some(Queued {
                pair: Pair { event, endpoint },
                kind: row.get::<String>(2).ok().flatten()?,
                class: row.get::<i16>(3).ok().flatten()?,
                at: unix_micros(row.get::<TimestampWithTimeZone>(4).ok().flatten()?),
                attempt_count: row.get::<i32>(5).ok().flatten()?,
                series_start: row.get::<i32>(6).ok().flatten()?,
                subject: row.get::<String>(7).ok().flatten(),
                asked: row.get::<bool>(8).ok().flatten()?,
            })
        })
        .collect::<Vec<Queued>>()
    };
    match walk {
        Walk::Class(class, at, event) => {
            let rows = select(
                &QUEUED,
                &[
                    endpoint.0.into(),
                    (*class).into(),
                    timestamp(*at).into(),
                    event.as_str().into(),
                    limit.into(),
                ],
                read,
            );
            let next = match rows.last() {
                Some(last) => Walk::Class(*class, last.at, last.pair.event.to_string()),
                None => Walk::behind_class(*class),
            };
            (rows, next)
        }
        Walk::Held(event) => {
            let rows = select(
                &QUEUED_HELD,
                &[endpoint.0.into(), event.as_str().into(), limit.into()],
                read,
            );
            let next = rows
                .last()
                .map_or(Walk::Over, |last| Walk::Held(last.pair.event.to_string()));
            (rows, next)
        }
        Walk::Over => (Vec::new(), Walk::Over),
    }
}
