//! Writing what became of pairs: one transaction for a few hundred outcomes.
//!
//! A delivery row is inserted once, with its first outcome or when it is parked; later outcomes
//! update it, compared and set on the number of the attempt. What does not match is a late result of
//! a superseded attempt and changes nothing. Every array is one statement, and none runs when empty.

use pgrx::prelude::*;

use super::change::{Change, Outcomes};
use super::columns::{
    attempted, column, delivered_at, digests, event_ids, key_ids, planned, texts,
};
use super::conditions::write_conditions;
use super::delivered;
use super::due::NextDue;
use super::due_changes::{delete_due, insert_due, update_due};
use super::order::{Subject, release_subjects};
use super::requests::new_series;
use super::statement::{run, statement};
use super::timestamp;
use super::window::fence;
use crate::rules::ids::Pair;

statement!(INSERT_DELIVERY, [Vec<&str>, Vec<i64>, Vec<&str>, Vec<Option<String>>, Vec<i32>, Vec<i32>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<i32>>, Vec<Option<i16>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<i64>>],
    "insert into webhook._delivery (
       event_id, endpoint_id, state, reason, revision, attempt_count, series_start, last_attempt_at, delivered_at,
       next_attempt_at, last_latency_ms, last_status, last_error_category, last_key_ids, last_body_sha256,
       last_response_bytes)
     select r.event, r.endpoint, r.state, r.reason, r.revision, r.attempts, r.series, r.at, r.delivered,
            r.next, r.latency, r.status, r.category, r.keys::bigint[], pg_catalog.decode(r.digest, 'hex'),
            r.bytes
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
         as r (event, endpoint, state, reason, revision, attempts, series, at, delivered,
               next, latency, status, category, keys, digest, bytes)
     on conflict do nothing");

statement!(UPDATE_DELIVERY, [Vec<&str>, Vec<i64>, Vec<&str>, Vec<Option<String>>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<i32>>, Vec<Option<i16>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<i64>>, Vec<i32>],
    "update webhook._delivery as d
        set state = r.state,
            reason = r.reason,
            attempt_count = r.attempts,
            series_start = r.series,
            last_attempt_at = r.at,
            delivered_at = coalesce(d.delivered_at, r.delivered),
            next_attempt_at = r.next,
            last_latency_ms = r.latency,
            last_status = r.status,
            last_error_category = r.category,
            last_key_ids = r.keys::bigint[],
            last_body_sha256 = pg_catalog.decode(r.digest, 'hex'),
            last_response_bytes = r.bytes
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         as r (event, endpoint, state, reason, attempts, at, delivered, next, latency, status, category, keys,
               digest, bytes, series)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint
        and d.attempt_count = r.attempts - 1");

statement!(SET_STATE, [Vec<&str>, Vec<i64>, Vec<&str>, Vec<Option<String>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<String>>],
    "update webhook._delivery as d
        set state = r.state, reason = r.reason, next_attempt_at = r.next,
            last_error_category = coalesce(r.category, d.last_error_category)
       from unnest($1, $2, $3, $4, $5, $6) as r (event, endpoint, state, reason, next, category)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint");

statement!(INSERT_ATTEMPT, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<&str>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<i32>>, Vec<Option<i16>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<String>>, Vec<Option<i64>>, i64, &str],
    "insert into webhook._attempt (
       event_id, endpoint_id, attempt_no, started_at, outcome, next_attempt_at, latency_ms, status, error_category,
       phase, detail, key_ids, body_sha256, response_bytes, incarnation, worker_version)
     select r.event, r.endpoint, r.no, r.at, r.outcome, r.next, r.latency, r.status, r.category,
            r.phase, r.detail, r.keys::bigint[], pg_catalog.decode(r.digest, 'hex'), r.bytes, $15, $16
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         as r (event, endpoint, no, at, outcome, next, latency, status, category, phase, detail, keys, digest, bytes)
     on conflict do nothing");

statement!(INSERT_EXCERPT, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<&str>],
    "insert into webhook._excerpt (event_id, endpoint_id, attempt_no, body)
     select r.event, r.endpoint, r.no, r.body
       from unnest($1, $2, $3, $4) as r (event, endpoint, no, body)
      -- What was on the wire when the payload went must not come back with the answer.
      where not exists (select from webhook._tombstone as t where t.event_id = r.event)
     on conflict do nothing");

statement!(CLOSE, [i64, i64, Vec<i64>],
    "insert into webhook._ledger (n, incarnation, batch, kind)
     select $1 + r.o, $2, r.batch, 'close'
       from unnest($3) with ordinality as r (batch, o)");

statement!(OPEN_CLAIM, [i64, i64, i64, Vec<&str>, Vec<i64>, Vec<i32>],
    "insert into webhook._ledger (n, incarnation, batch, kind, event_ids, endpoint_ids, attempt_nos)
     values ($1, $2, $3, 'claim', $4, $5, $6)");

/// What a flush did beyond writing its rows.
pub struct Recorded {
    /// Number of the last ledger row.
    pub n: i64,
    /// Pairs that may be sent now, because the event before them is settled.
    pub released: Vec<NextDue>,
}

/// Writes everything; ledger rows take the numbers after `n`, new stamps of the due table are `at`.
/// `waits` tells of subjects whose turn is not decided yet. With `all_new` it fails where a delivery that succeeded at
/// once has a row already; else that stays as it is.
pub fn record(
    outcomes: &Outcomes,
    incarnation: i64,
    mut n: i64,
    at: i64,
    all_new: bool,
    waits: impl Fn(&Subject) -> bool,
) -> Recorded {
    let changes = &outcomes.changes;
    let of = |pick: fn(&Change) -> bool| -> Vec<&Change> {
        changes.iter().filter(|change| pick(change)).collect()
    };
    let plain = of(delivered::is_plain);
    if !(all_new && delivered::insert(&plain)) {
        insert_deliveries(&plain);
    }
    insert_deliveries(&of(|change| {
        change.due.is_none() && !delivered::is_plain(change)
    }));
    update_deliveries(&of(|change| {
        change.due.is_some() && change.attempt.is_some()
    }));
    set_states(&of(|change| {
        change.due.is_some() && change.attempt.is_none()
    }));
    insert_attempts(
        &of(|change| {
            change.attempt.is_some() && !(change.attempt_count == 1 && change.state == "delivered")
        }),
        incarnation,
    );
    insert_excerpts(changes);
    insert_due(&of(|change| {
        change.due.is_none() && change.next_attempt_at.is_some()
    }));
    delete_due(&of(|change| {
        change.due.is_some() && change.next_attempt_at.is_none()
    }));
    update_due(&of(|change| {
        change.due.is_some() && change.next_attempt_at.is_some()
    }));
    let settled: Vec<Subject> = changes
        .iter()
        .filter(|change| change.next_attempt_at.is_none())
        .filter_map(|change| Some((change.pair.endpoint, change.subject.clone()?)))
        .filter(|subject| !waits(subject))
        .collect();
    let released = release_subjects(&settled, at);
    for (batch, pairs) in &outcomes.claims {
        n += 1;
        open_claim(n, incarnation, *batch, pairs);
    }
    if !outcomes.closed.is_empty() {
        run(
            &CLOSE,
            &[n.into(), incarnation.into(), outcomes.closed.clone().into()],
            |_| (),
        );
        n += i64::try_from(outcomes.closed.len()).unwrap_or(0);
    }
    fence(&outcomes.fenced);
    write_conditions(&outcomes.conditions);
    if !outcomes.again.is_empty() {
        new_series(&outcomes.again, at, incarnation);
    }
    Recorded { n, released }
}

/// Writes the ledger row of a claim: these pairs are on the wire.
pub fn open_claim(n: i64, incarnation: i64, batch: i64, pairs: &[(Pair, i32)]) {
    let ids: Vec<String> = pairs
        .iter()
        .map(|(pair, _)| pair.event.to_string())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let endpoints: Vec<i64> = pairs.iter().map(|(pair, _)| pair.endpoint.0).collect();
    let attempts: Vec<i32> = pairs.iter().map(|(_, attempt)| *attempt).collect();
    run(
        &OPEN_CLAIM,
        &[
            n.into(),
            incarnation.into(),
            batch.into(),
            ids.into(),
            endpoints.into(),
            attempts.into(),
        ],
        |_| (),
    );
}

fn insert_deliveries(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &INSERT_DELIVERY,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.state).into(),
            column(changes, |change| change.reason.clone()).into(),
            column(changes, |change| change.revision).into(),
            column(changes, |change| change.attempt_count).into(),
            column(changes, |change| change.series_start).into(),
            attempted(changes, |attempt| timestamp(attempt.started_at)).into(),
            delivered_at(changes).into(),
            planned(changes).into(),
            attempted(changes, |attempt| attempt.latency_ms).into(),
            attempted(changes, |attempt| attempt.status).into(),
            column(changes, |change| {
                let attempt = change.attempt.as_ref();
                let category = attempt.map_or(change.category, |attempt| attempt.category);
                category.map(|c| c.as_str().to_owned())
            })
            .into(),
            key_ids(changes).into(),
            digests(changes).into(),
            attempted(changes, |attempt| Some(attempt.response_bytes)).into(),
        ],
        |_| (),
    );
}

fn update_deliveries(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &UPDATE_DELIVERY,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.state).into(),
            column(changes, |change| change.reason.clone()).into(),
            column(changes, |change| change.attempt_count).into(),
            attempted(changes, |attempt| timestamp(attempt.started_at)).into(),
            delivered_at(changes).into(),
            planned(changes).into(),
            attempted(changes, |attempt| attempt.latency_ms).into(),
            attempted(changes, |attempt| attempt.status).into(),
            attempted(changes, |attempt| {
                attempt.category.map(|c| c.as_str().to_owned())
            })
            .into(),
            key_ids(changes).into(),
            digests(changes).into(),
            attempted(changes, |attempt| Some(attempt.response_bytes)).into(),
            column(changes, |change| change.series_start).into(),
        ],
        |_| (),
    );
}

fn set_states(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &SET_STATE,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.state).into(),
            column(changes, |change| change.reason.clone()).into(),
            planned(changes).into(),
            column(changes, |change| {
                change.category.map(|c| c.as_str().to_owned())
            })
            .into(),
        ],
        |_| (),
    );
}

fn insert_attempts(changes: &[&Change], incarnation: i64) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &INSERT_ATTEMPT,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.attempt_count).into(),
            attempted(changes, |attempt| timestamp(attempt.started_at)).into(),
            column(changes, |change| match change.state {
                "delivered" => "delivered",
                "retrying" | "pending" => "retry",
                _ => "dead",
            })
            .into(),
            planned(changes).into(),
            attempted(changes, |attempt| attempt.latency_ms).into(),
            attempted(changes, |attempt| attempt.status).into(),
            attempted(changes, |attempt| {
                attempt.category.map(|c| c.as_str().to_owned())
            })
            .into(),
            attempted(changes, |attempt| {
                attempt.phase.map(|p| p.as_str().to_owned())
            })
            .into(),
            attempted(changes, |attempt| attempt.detail.clone()).into(),
            key_ids(changes).into(),
            digests(changes).into(),
            attempted(changes, |attempt| Some(attempt.response_bytes)).into(),
            incarnation.into(),
            crate::pg::VERSION.into(),
        ],
        |_| (),
    );
}

fn insert_excerpts(changes: &[Change]) {
    let with: Vec<&Change> = changes
        .iter()
        .filter(|change| {
            change
                .attempt
                .as_ref()
                .is_some_and(|attempt| attempt.excerpt.is_some())
        })
        .collect();
    if with.is_empty() {
        return;
    }
    let ids = event_ids(&with);
    let bodies: Vec<&str> = with
        .iter()
        .filter_map(|change| change.attempt.as_ref()?.excerpt.as_ref())
        .map(|excerpt| excerpt.0.as_str())
        .collect();
    run(
        &INSERT_EXCERPT,
        &[
            texts(&ids).into(),
            column(&with, |change| change.pair.endpoint.0).into(),
            column(&with, |change| change.attempt_count).into(),
            bodies.into(),
        ],
        |_| (),
    );
}
