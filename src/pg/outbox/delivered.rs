//! The rows of deliveries that succeeded at once, which nearly all do: one statement of fewer columns, the others being
//! the same for all of them. Of what the leader does for a delivery, its row costs most.

use pgrx::prelude::*;

use super::change::Change;
use super::columns::{attempted, column, event_ids, texts};
use super::statement::{run, statement};
use super::timestamp;

statement!(INSERT_DELIVERED, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<i32>>, Vec<Option<i16>>, Vec<Option<i64>>, Vec<Option<&[u8]>>, Vec<Option<i64>>],
    "insert into webhook._delivery (
       event_id, endpoint_id, state, revision, attempt_count, series_start, last_attempt_at, delivered_at,
       last_latency_ms, last_status, last_key_ids, last_body_sha256, last_response_bytes)
     select r.event, r.endpoint, 'delivered', r.revision, 1, 0, r.at, r.at + r.latency * interval '1 millisecond',
            r.latency, r.status, array[r.key], r.digest, r.bytes
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
         as r (event, endpoint, revision, at, latency, status, key, digest, bytes)
     on conflict do nothing");

/// Whether a change is one of these: made at the first attempt, signed with one key.
pub fn is_plain(change: &Change) -> bool {
    change.due.is_none()
        && change.state == "delivered"
        && change.attempt_count == 1
        && change.series_start == 0
        && change.reason.is_none()
        && change.next_attempt_at.is_none()
        && change.attempt.as_ref().is_some_and(|attempt| {
            attempt.category.is_none() && attempt.key_ids.len() == 1 && attempt.latency_ms.is_some()
        })
}

/// Writes them.
pub fn insert(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &INSERT_DELIVERED,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.revision).into(),
            attempted(changes, |attempt| timestamp(attempt.started_at)).into(),
            attempted(changes, |attempt| attempt.latency_ms).into(),
            attempted(changes, |attempt| attempt.status).into(),
            attempted(changes, |attempt| attempt.key_ids.first().copied()).into(),
            changes
                .iter()
                .map(|change| {
                    let attempt = change.attempt.as_ref()?;
                    attempt.body_sha256.as_ref().map(|digest| &digest[..])
                })
                .collect::<Vec<Option<&[u8]>>>()
                .into(),
            attempted(changes, |attempt| Some(attempt.response_bytes)).into(),
        ],
        |_| (),
    );
}
