//! Writing the due table: pairs that begin to wait, wait again, or wait no more.

use pgrx::prelude::*;

use super::change::Change;
use super::columns::{column, event_ids, texts};
use super::statement::{run, statement};
use super::timestamp;

statement!(INSERT_DUE, [Vec<&str>, Vec<i64>, Vec<i16>, Vec<Option<TimestampWithTimeZone>>, Vec<i32>, Vec<i32>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<i16>, Vec<Option<&str>>],
    "insert into webhook._due (
       event_id, endpoint_id, class, next_attempt_at, attempt_count, series_start, hold, series_at, deaths, subject_key)
     select r.event, r.endpoint, r.class, r.next, r.attempts, r.series, r.hold, r.begun, r.deaths, r.subject
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         as r (event, endpoint, class, next, attempts, series, hold, begun, deaths, subject)
     on conflict do nothing");

// The full key is given, so that whichever index the planner takes is exact.
statement!(DELETE_DUE, [Vec<&str>, Vec<i64>, Vec<i16>, Vec<Option<TimestampWithTimeZone>>],
    "delete from webhook._due as d
      using unnest($1, $2, $3, $4) as r (event, endpoint, class, at)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint
        and d.class = r.class
        and d.next_attempt_at = r.at");

statement!(UPDATE_DUE, [Vec<&str>, Vec<i64>, Vec<i16>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<i32>, Vec<i32>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<i16>],
    "update webhook._due as d
        set next_attempt_at = r.next, attempt_count = r.attempts, series_start = r.series,
            hold = r.hold, series_at = r.begun, deaths = r.deaths
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         as r (event, endpoint, class, at, next, attempts, series, hold, begun, deaths)
      where d.event_id = r.event
        and d.endpoint_id = r.endpoint
        and d.class = r.class
        and d.next_attempt_at = r.at");

pub fn insert_due(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &INSERT_DUE,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.class).into(),
            column(changes, |change| change.next_attempt_at.and_then(timestamp)).into(),
            column(changes, |change| change.attempt_count).into(),
            column(changes, |change| change.series_start).into(),
            column(changes, |change| change.hold).into(),
            column(changes, |change| change.series_at.and_then(timestamp)).into(),
            column(changes, |change| change.deaths).into(),
            changes
                .iter()
                .map(|change| change.subject.as_deref())
                .collect::<Vec<_>>()
                .into(),
        ],
        |_| (),
    );
}

pub fn delete_due(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &DELETE_DUE,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.class).into(),
            column(changes, |change| change.due.and_then(timestamp)).into(),
        ],
        |_| (),
    );
}

pub fn update_due(changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let ids = event_ids(changes);
    run(
        &UPDATE_DUE,
        &[
            texts(&ids).into(),
            column(changes, |change| change.pair.endpoint.0).into(),
            column(changes, |change| change.class).into(),
            column(changes, |change| change.due.and_then(timestamp)).into(),
            column(changes, |change| change.next_attempt_at.and_then(timestamp)).into(),
            column(changes, |change| change.attempt_count).into(),
            column(changes, |change| change.series_start).into(),
            column(changes, |change| change.hold).into(),
            column(changes, |change| change.series_at.and_then(timestamp)).into(),
            column(changes, |change| change.deaths).into(),
        ],
        |_| (),
    );
}
