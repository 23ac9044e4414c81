//! Filters of endpoints: their versions, what they say about payloads, and the pairs that are held by them.

use std::collections::HashMap;

use pgrx::prelude::*;

use super::change::hold;
use super::due::{NextDue, read_next};
use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::filter::Filter;
use crate::rules::ids::{EndpointId, EventId, Pair};

/// A version of an endpoint's filter.
#[derive(Clone)]
pub struct FilterRow {
    /// Transaction that chose it.
    pub xid: u64,
    pub subject_types: Option<Vec<String>>,
    /// The condition on the payload, and what it costs; none = it is not one that this version of the library knows.
    pub condition: Option<(String, Option<Filter>)>,
}

impl FilterRow {
    pub fn new(xid: u64, subject_types: Option<Vec<String>>, condition: Option<String>) -> Self {
        let condition = condition.map(|text| {
            let filter = Filter::parse(&text).ok();
            (text, filter)
        });
        FilterRow {
            xid,
            subject_types,
            condition,
        }
    }
}

/// What a filter says about a payload; none = it cannot say, and why.
pub type Said = Result<bool, String>;

/// A pair that is held by the filter of its endpoint.
pub struct HeldPair {
    pub pair: Pair,
    pub class: i16,
    pub at: i64,
    pub attempt_count: i32,
    pub series_start: i32,
    pub subject: Option<String>,
}

/// Versions of a filter that are kept in mind.
pub const FILTER_VERSIONS: usize = 20;

// The last ones: no window is so old that an earlier version counts for it, unless somebody changes filters by the
// second.
statement!(
    VERSIONS,
    [Vec<i64>],
    "select v.endpoint_id, v.created_xid::text, v.subject_types, v.filter
       from unnest($1) as p (endpoint)
      cross join lateral (
        select f.*
          from webhook._filter as f
         where f.endpoint_id = p.endpoint
         order by f.version desc
         limit 20) as v
      order by v.endpoint_id, v.version"
);

statement!(
    TRY,
    [&str, Vec<&str>],
    "select t.matched, t.why from webhook._try_filters($1, $2) as t order by t.place"
);

statement!(
    HELD,
    [i64, &str, i32, i32],
    "select d.event_id, d.class, d.next_attempt_at, d.attempt_count, d.series_start, d.subject_key
       from webhook._due as d
      where d.endpoint_id = $1
        and d.hold <> 0
        and (d.hold & $3) <> 0
        and d.event_id > $2
      order by d.event_id
      limit $4"
);

// In the order of the events: the stamps follow one another.
statement!(FREE, [i64, Vec<&str>, TimestampWithTimeZone, i32],
    "with placed as (
       select r.event, $3 + r.place * interval '1 microsecond' as at
         from unnest($2) with ordinality as r (event, place)),
     freed as (
       update webhook._due as d
          set hold = d.hold & ~$4, next_attempt_at = greatest(d.next_attempt_at, p.at)
         from placed as p
        where d.event_id = p.event
          and d.endpoint_id = $1
          and (d.hold & $4) <> 0
       returning d.event_id, d.endpoint_id, d.class, d.next_attempt_at, d.hold),
     shown as (
       update webhook._delivery as x
          set next_attempt_at = case when freed.hold = 0 then freed.next_attempt_at end, last_error_category = null
         from freed
        where x.event_id = freed.event_id
          and x.endpoint_id = freed.endpoint_id)
     select freed.endpoint_id, freed.class, freed.next_attempt_at from freed where freed.hold = 0");

statement!(
    HELD_BEFORE,
    [Vec<&str>, Vec<i64>, &str],
    "select d.event_id, d.endpoint_id
       from unnest($1, $2) as r (event, endpoint)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint
      where d.attempt_count = 0
        and d.last_error_category = $3"
);

/// The filters that these endpoints have had, the one in force last.
pub fn filter_versions(endpoints: Vec<i64>) -> HashMap<i64, Vec<FilterRow>> {
    let mut versions: HashMap<i64, Vec<FilterRow>> = HashMap::new();
    if endpoints.is_empty() {
        return versions;
    }
    select(&VERSIONS, &[endpoints.into()], |rows| {
        for row in rows {
            let read = || {
                Some((
                    row.get::<i64>(1).ok().flatten()?,
                    row.get::<String>(2).ok().flatten()?.parse().ok()?,
                ))
            };
            let Some((endpoint, xid)) = read() else {
                continue;
            };
            let types = row.get::<Vec<Option<String>>>(3).ok().flatten();
            let types = types.map(|types| types.into_iter().flatten().collect());
            let condition = row.get::<String>(4).ok().flatten();
            versions
                .entry(endpoint)
                .or_default()
                .push(FilterRow::new(xid, types, condition));
        }
    });
    versions
}

/// What filters say about a payload, in their order.
pub fn try_filters(data: &str, filters: Vec<&str>) -> Vec<Said> {
    select(&TRY, &[data.into(), filters.into()], |rows| {
        rows.map(|row| {
            row.get::<bool>(1)
                .ok()
                .flatten()
                .ok_or_else(|| row.get::<String>(2).ok().flatten().unwrap_or_default())
        })
        .collect()
    })
}

/// Up to `limit` pairs of an endpoint after the event `after` that its filter holds.
pub fn held_by_filter(endpoint: EndpointId, after: &str, limit: i32) -> Vec<HeldPair> {
    let arguments = [
        endpoint.0.into(),
        after.into(),
        hold::FILTER.into(),
        limit.into(),
    ];
    select(&HELD, &arguments, |rows| {
        rows.filter_map(|row| {
            let event: EventId = row.get::<String>(1).ok().flatten()?.parse().ok()?;
            Some(HeldPair {
                pair: Pair { event, endpoint },
                class: row.get::<i16>(2).ok().flatten()?,
                at: unix_micros(row.get::<TimestampWithTimeZone>(3).ok().flatten()?),
                attempt_count: row.get::<i32>(4).ok().flatten()?,
                series_start: row.get::<i32>(5).ok().flatten()?,
                subject: row.get::<String>(6).ok().flatten(),
            })
        })
        .collect()
    })
}

/// Pairs of an endpoint that its filter holds no longer, in the order of the events; returns those that may be sent.
pub fn free_filter(endpoint: EndpointId, events: &[EventId], at: i64) -> Vec<NextDue> {
    if events.is_empty() {
        return Vec::new();
    }
    let ids: Vec<String> = events.iter().map(EventId::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    run(
        &FREE,
        &[
            endpoint.0.into(),
            ids.into(),
            timestamp(at).into(),
            hold::FILTER.into(),
        ],
        read_next,
    )
}

/// Those of these pairs that were held by a filter when their database was copied.
pub fn held_before(pairs: &[Pair]) -> Vec<Pair> {
    let ids: Vec<String> = pairs.iter().map(|pair| pair.event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|pair| pair.endpoint.0).collect();
    let category = crate::rules::delivery::Category::Filter.as_str();
    let arguments = [ids.into(), endpoints.into(), category.into()];
    select(&HELD_BEFORE, &arguments, |rows| {
        rows.filter_map(|row| {
            Some(Pair {
                event: row.get::<String>(1).ok().flatten()?.parse().ok()?,
                endpoint: EndpointId(row.get::<i64>(2).ok().flatten()?),
            })
        })
        .collect()
    })
}
