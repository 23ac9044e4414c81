//! The rows of deliveries that succeeded at once, which nearly all do: one statement of fewer columns, the others being
//! the same for all of them. Of what the leader does for a delivery, its row costs most.

use std::thread::LocalKey;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::arrays::Array;
use super::change::{Attempted, Change};
use super::insertion::insert_rows;
use super::rows::{Rows, Table};
use super::statement::{Statement, run, statement};
use super::{POSTGRES_EPOCH, relation};

macro_rules! insert_delivered {
    ($conflict:literal) => {
        concat!(
            "insert into webhook._delivery (
       event_id, endpoint_id, state, revision, attempt_count, series_start, last_attempt_at, delivered_at,
       last_latency_ms, last_status, last_key_ids, last_body_sha256, last_response_bytes)
     select r.event, r.endpoint, 'delivered', r.revision, 1, 0, r.at, r.delivered,
            r.latency, r.status, array[r.key], r.digest, r.bytes
       from (select pg_catalog.unnest($1) as event, pg_catalog.unnest($2) as endpoint,
                    pg_catalog.unnest($3) as revision, pg_catalog.unnest($4) as at,
                    pg_catalog.unnest($5) as delivered, pg_catalog.unnest($6) as latency,
                    pg_catalog.unnest($7) as status, pg_catalog.unnest($8) as key,
                    pg_catalog.unnest($9) as digest, pg_catalog.unnest($10) as bytes) as r",
            $conflict
        )
    };
}

// Without a clause on conflicts a row costs 3.6 us and 431 B of WAL; with one 6.0 us and 479 B: each row is looked for
// first, inserted tentatively, and confirmed. COPY of the same rows costs 2.9-3.5 us, before its own setting up. The arrays
// are unnested in the list of columns: as a function of all of them each would go through a table of its own (0.4 us).
statement!(INSERT_DELIVERED, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<TimestampWithTimeZone>, Vec<TimestampWithTimeZone>, Vec<i32>, Vec<i16>, Vec<i64>, Vec<&[u8]>, Vec<i64>],
    insert_delivered!(""));

statement!(INSERT_MISSING, [Vec<&str>, Vec<i64>, Vec<i32>, Vec<TimestampWithTimeZone>, Vec<TimestampWithTimeZone>, Vec<i32>, Vec<i16>, Vec<i64>, Vec<&[u8]>, Vec<i64>],
    insert_delivered!(" on conflict do nothing"));

/// Whether a change is one of these: made at the first attempt, signed with one key.
pub fn is_plain(change: &Change) -> bool {
    change.due.is_none()
        && change.state == "delivered"
        && change.attempt_count == 1
        && change.series_start == 0
        && change.reason.is_none()
        && change.next_attempt_at.is_none()
        && change.attempt.as_ref().is_some_and(|attempt| {
            attempt.category.is_none()
                && attempt.key_ids.len() == 1
                && attempt.latency_ms.is_some()
                && attempt.status.is_some()
                && attempt.body_sha256.is_some()
                && super::timestamp(ended_at(attempt)).is_some()
        })
}

/// When it came to its end, as far as milliseconds tell; microseconds since 1970.
fn ended_at(attempt: &Attempted) -> i64 {
    let took = i64::from(attempt.latency_ms.unwrap_or(0)) * 1000;
    attempt.started_at.saturating_add(took)
}

const DELIVERY: Table = {
    use pg_sys::{BYTEAOID, INT2OID, INT4OID, INT8ARRAYOID, INT8OID, TEXTOID, TIMESTAMPTZOID};
    Table {
        columns: &[
            (c"endpoint_id", INT8OID),
            (c"last_attempt_at", TIMESTAMPTZOID),
            (c"delivered_at", TIMESTAMPTZOID),
            (c"next_attempt_at", TIMESTAMPTZOID),
            (c"attempt_count", INT4OID),
            (c"series_start", INT4OID),
            (c"revision", INT4OID),
            (c"last_latency_ms", INT4OID),
            (c"last_status", INT2OID),
            (c"event_id", TEXTOID),
            (c"state", TEXTOID),
            (c"last_error_category", TEXTOID),
            (c"reason", TEXTOID),
            (c"last_key_ids", INT8ARRAYOID),
            (c"last_body_sha256", BYTEAOID),
            (c"last_response_bytes", INT8OID),
        ],
        key: 9,
        // "delivered" is one of its states.
        checks: &[c"_delivery_state"],
    }
};
/// Bytes of id, state, key and digest.
const VARIABLE: usize = 136;

/// Writes them. With `all_new` none of them may have a row: one that has fails the transaction.
pub fn insert(changes: &[&Change], all_new: bool) {
    if changes.is_empty() {
        return;
    }
    // Of what `is_plain` lets through, nothing is missing.
    let attempts: Vec<(&Change, &Attempted)> = changes
        .iter()
        .filter_map(|change| Some((*change, change.attempt.as_ref()?)))
        .collect();
    if !all_new {
        run_statement(&INSERT_MISSING, &attempts);
    } else if !insert_directly(&attempts) {
        run_statement(&INSERT_DELIVERED, &attempts);
    }
}

/// Without a statement; whether that was possible.
fn insert_directly(attempts: &[(&Change, &Attempted)]) -> bool {
    let Some(table) = relation(c"_delivery") else {
        return false;
    };
    let mut rows = Rows::new(&DELIVERY, attempts.len(), VARIABLE);
    for (change, attempt) in attempts {
        rows.i64(change.pair.endpoint.0);
        rows.time(attempt.started_at - POSTGRES_EPOCH);
        rows.time(ended_at(attempt) - POSTGRES_EPOCH);
        rows.null();
        rows.i32(change.attempt_count);
        rows.i32(change.series_start);
        rows.i32(change.revision);
        rows.maybe(attempt.latency_ms, Rows::i32);
        rows.maybe(attempt.status, Rows::i16);
        rows.text(change.pair.event.text().as_ref());
        rows.text(change.state);
        rows.null();
        rows.null();
        rows.maybe(attempt.key_ids.first().copied(), Rows::array_of);
        rows.maybe(attempt.body_sha256.as_ref(), |rows, digest| {
            rows.bytes(digest);
        });
        rows.i64(attempt.response_bytes);
    }
    // SAFETY: _delivery is partitioned by event_id.
    unsafe { insert_rows(table, &rows) }
}

fn run_statement(statement: &'static LocalKey<Statement>, attempts: &[(&Change, &Attempted)]) {
    let attempts = attempts.iter();
    let of =
        |pick: fn(&Attempted) -> i64| Array::of_i64(attempts.clone().map(move |(_, a)| pick(a)));
    let at = |pick: fn(&Attempted) -> i64| {
        Array::of_times(attempts.clone().map(move |(_, a)| pick(a) - POSTGRES_EPOCH))
    };
    let columns = [
        Array::of_texts(attempts.clone().map(|(change, _)| change.pair.event.text())),
        Array::of_i64(attempts.clone().map(|(change, _)| change.pair.endpoint.0)),
        Array::of_i32(attempts.clone().map(|(change, _)| change.revision)),
        at(|attempt| attempt.started_at),
        at(ended_at),
        Array::of_i32(attempts.clone().map(|(_, a)| a.latency_ms.unwrap_or(0))),
        Array::of_i16(attempts.clone().map(|(_, a)| a.status.unwrap_or(0))),
        of(|attempt| attempt.key_ids.first().copied().unwrap_or(0)),
        Array::of_bytes(
            attempts
                .clone()
                .map(|(_, a)| a.body_sha256.unwrap_or([0; 32])),
        ),
        of(|attempt| attempt.response_bytes),
    ];
    let parameters: Vec<_> = columns.iter().map(Array::parameter).collect();
    run(statement, &parameters, |_| ());
}
