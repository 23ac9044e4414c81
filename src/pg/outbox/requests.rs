//! Requests of users: reading those that wait, changing deliveries as asked, writing the result.

use std::sync::Arc;

use pgrx::prelude::*;

use super::order::Subject;
use super::statement::{run, select, statement};
use super::timestamp;
use crate::rules::ids::{EndpointId, EventId, Pair};

/// What somebody asked for.
pub struct Request {
    pub id: i64,
    pub verb: String,
    /// Transaction that asked.
    pub xid: u64,
    pub event: Option<EventId>,
    pub endpoint: Option<EndpointId>,
    /// What a pause or its end is about.
    pub scope: Option<String>,
    pub target: Option<String>,
    pub reason: Option<String>,
    /// Pairs named one by one.
    pub pairs: Vec<Pair>,
    /// Whether it says all that its verb needs, in words that can be read: one that no verb of ours wrote may not.
    pub is_whole: bool,
}

statement!(
    PENDING,
    [i64, i32, Vec<i64>],
    "select q.request_id, q.verb, q.event_id, q.endpoint_id, q.xid::text, q.scope, q.target, q.reason,
            q.event_ids, q.endpoint_ids
       from webhook._request as q
      where q.state = 'pending'
        and q.origin = $1
        and q.request_id <> all ($3)
      order by q.request_id
      limit $2"
);

statement!(
    PAIRS,
    [&str],
    "select d.endpoint_id from webhook._delivery as d where d.event_id = $1"
);

statement!(
    FINISH,
    [i64, &str, i32, &str],
    "update webhook._request as q
        set state = $2, deliveries = $3, result = $4, finished_at = pg_catalog.clock_timestamp()
      where q.request_id = $1
        and q.state = 'pending'"
);

// Attempt 1 of a first-try success lives in the delivery row alone; it moves to the log before the row
// is changed, so that no evidence is overwritten.
statement!(KEEP_FIRST, [Vec<&str>, Vec<i64>, i64],
    "insert into webhook._attempt (
       event_id, endpoint_id, attempt_no, started_at, outcome, latency_ms, status, key_ids, body_sha256,
       response_bytes, incarnation)
     select d.event_id, d.endpoint_id, 1, d.last_attempt_at, 'delivered', d.last_latency_ms, d.last_status,
            d.last_key_ids, d.last_body_sha256, d.last_response_bytes, $3
       from unnest($1, $2) as r (event, endpoint)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint
      where d.state = 'delivered'
        and d.attempt_count = 1
     on conflict do nothing");

statement!(NEW_SERIES, [Vec<&str>, Vec<i64>, TimestampWithTimeZone],
    "update webhook._delivery as d
        set state = 'pending', reason = null, series_start = d.attempt_count, next_attempt_at = $3
       from unnest($1, $2) as r (event, endpoint)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint");

// A pair that waits for its subject's turn goes on waiting for it; whatever else held it is over.
statement!(DUE_NOW, [Vec<&str>, Vec<i64>, Vec<i16>, TimestampWithTimeZone],
    "insert into webhook._due as w (event_id, endpoint_id, class, next_attempt_at, attempt_count, series_start, asked)
     select d.event_id, d.endpoint_id, r.class, $4, d.attempt_count, d.series_start, true
       from unnest($1, $2, $3) as r (event, endpoint, class)
       join webhook._delivery as d on d.event_id = r.event and d.endpoint_id = r.endpoint
     on conflict (event_id, endpoint_id) do update
        set class = excluded.class, next_attempt_at = excluded.next_attempt_at,
            attempt_count = excluded.attempt_count, series_start = excluded.series_start, series_at = null,
            hold = w.hold & 2, deaths = 0, asked = true");

// What is not on the wire is settled here; what is comes back and is settled then.
statement!(SETTLE, [Vec<&str>, Vec<i64>, &str, &str, Vec<&str>],
    "with gone as (
       delete from webhook._due as w
        using unnest($1, $2) as r (event, endpoint)
        where w.event_id = r.event
          and w.endpoint_id = r.endpoint
       returning w.endpoint_id, w.subject_key),
     told as (
       update webhook._delivery as d
          set state = $3, reason = $4, next_attempt_at = null
         from unnest($1, $2) as r (event, endpoint)
        where d.event_id = r.event
          and d.endpoint_id = r.endpoint
          and d.state = any ($5))
     select gone.endpoint_id, gone.subject_key from gone where gone.subject_key is not null");

statement!(NEW_PAIR, [&str, i64, i32, TimestampWithTimeZone],
    "insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision, next_attempt_at)
     values ($1, $2, 'pending', 0, 0, $3, $4)
     on conflict do nothing");

/// Requests that wait, oldest first, but for those named.
pub fn pending_requests(origin: i64, but: Vec<i64>, limit: i32) -> Vec<Request> {
    let arguments = [origin.into(), limit.into(), but.into()];
    select(&PENDING, &arguments, |rows| {
        rows.filter_map(|row| {
            let text = |index: usize| row.get::<String>(index).ok().flatten();
            let events = row.get::<Vec<Option<String>>>(9).ok().flatten();
            let endpoints = row.get::<Vec<Option<i64>>>(10).ok().flatten();
            let named = events.as_ref().map(Vec::len);
            let pairs: Vec<Pair> = events
                .unwrap_or_default()
                .iter()
                .zip(endpoints.unwrap_or_default())
                .filter_map(|(event, endpoint)| {
                    Some(Pair {
                        event: event.as_ref()?.parse().ok()?,
                        endpoint: EndpointId(endpoint?),
                    })
                })
                .collect();
            let verb = row.get::<String>(2).ok().flatten()?;
            Some(Request {
                id: row.get::<i64>(1).ok().flatten()?,
                xid: text(5)?.parse().ok()?,
                is_whole: match verb.as_str() {
                    "retry" | "skip" | "close" => named == Some(pairs.len()),
                    "pause" | "resume" => match text(6).as_deref() {
                        Some("all") => true,
                        Some("partner" | "event_type" | "endpoint") => text(7).is_some(),
                        _ => false,
                    },
                    _ => true,
                },
                verb,
                scope: text(6),
                target: text(7),
                reason: text(8),
                pairs,
                event: row
                    .get::<String>(3)
                    .ok()
                    .flatten()
                    .and_then(|id| id.parse().ok()),
                endpoint: row.get::<i64>(4).ok().flatten().map(EndpointId),
            })
        })
        .collect()
    })
}

/// The deliveries of an event.
pub fn pairs_of_event(event: EventId) -> Vec<Pair> {
    select(&PAIRS, &[event.to_string().as_str().into()], |rows| {
        rows.filter_map(|row| {
            Some(Pair {
                event,
                endpoint: EndpointId(row.get::<i64>(1).ok().flatten()?),
            })
        })
        .collect()
    })
}

/// Starts a new series of the schedule for existing pairs: due at `at`, in the class given.
pub fn new_series(pairs: &[(Pair, i16)], at: i64, incarnation: i64) {
    let ids: Vec<String> = pairs
        .iter()
        .map(|(pair, _)| pair.event.to_string())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|(pair, _)| pair.endpoint.0).collect();
    let classes: Vec<i16> = pairs.iter().map(|(_, class)| *class).collect();
    run(
        &KEEP_FIRST,
        &[
            ids.clone().into(),
            endpoints.clone().into(),
            incarnation.into(),
        ],
        |_| (),
    );
    run(
        &NEW_SERIES,
        &[
            ids.clone().into(),
            endpoints.clone().into(),
            timestamp(at).into(),
        ],
        |_| (),
    );
    run(
        &DUE_NOW,
        &[
            ids.into(),
            endpoints.into(),
            classes.into(),
            timestamp(at).into(),
        ],
        |_| (),
    );
}

/// Settles pairs that stand in one of the states `from`: skipped or closed, with the reason. Returns the
/// subjects whose turn may have come.
pub fn settle_pairs(pairs: &[Pair], state: &str, reason: &str, from: &[&str]) -> Vec<Subject> {
    let ids: Vec<String> = pairs.iter().map(|pair| pair.event.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|pair| pair.endpoint.0).collect();
    run(
        &SETTLE,
        &[
            ids.into(),
            endpoints.into(),
            state.into(),
            reason.into(),
            from.to_vec().into(),
        ],
        |rows| {
            rows.filter_map(|row| {
                Some((
                    EndpointId(row.get::<i64>(1).ok().flatten()?),
                    Arc::from(row.get::<String>(2).ok().flatten()?),
                ))
            })
            .collect()
        },
    )
}

/// Makes a pair that fan-out had not made.
pub fn new_pair(pair: Pair, revision: i32, at: i64) {
    run(
        &NEW_PAIR,
        &[
            pair.event.to_string().as_str().into(),
            pair.endpoint.0.into(),
            revision.into(),
            timestamp(at).into(),
        ],
        |_| (),
    );
}

/// Writes the result of a request.
pub fn finish_request(id: i64, state: &str, deliveries: usize, result: &str) {
    run(
        &FINISH,
        &[
            id.into(),
            state.into(),
            i32::try_from(deliveries).unwrap_or(i32::MAX).into(),
            result.into(),
        ],
        |_| (),
    );
}
