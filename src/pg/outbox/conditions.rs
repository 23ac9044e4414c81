//! What the leader knows of endpoints, kept across its lives: how they answer, how many requests they
//! stand, whether they are disabled. The leader is the only writer.

use pgrx::prelude::*;

use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};

/// The condition of one endpoint.
#[derive(Clone, Default)]
pub struct ConditionRow {
    pub endpoint: i64,
    /// Generation of the endpoint that it was found under.
    pub generation: i64,
    /// Set when the leader itself closes the endpoint: disabled or expired, with the reason.
    pub closed: Option<(&'static str, String)>,
    pub window: f64,
    pub probe_at: Option<i64>,
    pub probe_wait_ms: i32,
    pub failing_since: Option<i64>,
    pub failures: i32,
    pub warned_at: Option<i64>,
    pub last_success_at: Option<i64>,
    pub last_failure_at: Option<i64>,
    pub last_status: Option<i16>,
    pub last_category: Option<String>,
    pub delivered: i64,
    pub failed: i64,
    pub latency_ms: Option<i32>,
}

statement!(WRITE, [Vec<i64>, Vec<i64>, Vec<Option<String>>, Vec<f64>, Vec<Option<TimestampWithTimeZone>>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<i32>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<TimestampWithTimeZone>>, Vec<Option<i16>>, Vec<Option<String>>, Vec<i64>, Vec<i64>, Vec<Option<i32>>, Vec<Option<String>>],
    "insert into webhook._endpoint_state as s (
       endpoint_id, generation, state, reason, changed_at, adaptive_window, probe_at, probe_wait_ms, failing_since,
       failures, warned_at, last_success_at, last_failure_at, last_status, last_error_category, delivered, failed,
       latency_ms, seen_at)
     select r.endpoint, r.generation, r.state, r.why,
            pg_catalog.clock_timestamp(), r.size::real, r.probe, r.wait, r.since, r.failures, r.warned, r.success,
            r.failure, r.status, r.category, r.delivered, r.failed, r.latency, pg_catalog.clock_timestamp()
       from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         as r (endpoint, generation, why, size, probe, wait, since, failures, warned, success, failure,
               status, category, delivered, failed, latency, state)
     on conflict (endpoint_id) do update
        set generation = excluded.generation,
            state = case when s.generation = excluded.generation then coalesce(excluded.state, s.state)
                         else excluded.state end,
            reason = case when s.generation = excluded.generation and excluded.state is null then s.reason
                          else excluded.reason end,
            changed_at = case when s.generation = excluded.generation and excluded.state is null then s.changed_at
                              else excluded.changed_at end,
            adaptive_window = excluded.adaptive_window, probe_at = excluded.probe_at,
            probe_wait_ms = excluded.probe_wait_ms, failing_since = excluded.failing_since,
            failures = excluded.failures, warned_at = excluded.warned_at,
            last_success_at = excluded.last_success_at, last_failure_at = excluded.last_failure_at,
            last_status = excluded.last_status, last_error_category = excluded.last_error_category,
            delivered = excluded.delivered, failed = excluded.failed, latency_ms = excluded.latency_ms,
            seen_at = excluded.seen_at
      where s.generation <= excluded.generation");

statement!(READ, [],
    "select s.endpoint_id, s.generation, s.adaptive_window::double precision, s.probe_at, s.probe_wait_ms,
            s.failing_since, s.failures, s.warned_at, s.last_success_at, s.last_failure_at, s.last_status,
            s.last_error_category, s.delivered, s.failed, s.latency_ms
       from webhook._endpoint_state as s");

/// Writes conditions; one of an older generation changes nothing.
pub fn write_conditions(rows: &[ConditionRow]) {
    if rows.is_empty() {
        return;
    }
    fn of<T>(rows: &[ConditionRow], pick: impl Fn(&ConditionRow) -> T) -> Vec<T> {
        rows.iter().map(pick).collect()
    }
    run(
        &WRITE,
        &[
            of(rows, |row| row.endpoint).into(),
            of(rows, |row| row.generation).into(),
            of(rows, |row| row.closed.as_ref().map(|(_, why)| why.clone())).into(),
            of(rows, |row| row.window).into(),
            of(rows, |row| row.probe_at.and_then(timestamp)).into(),
            of(rows, |row| row.probe_wait_ms).into(),
            of(rows, |row| row.failing_since.and_then(timestamp)).into(),
            of(rows, |row| row.failures).into(),
            of(rows, |row| row.warned_at.and_then(timestamp)).into(),
            of(rows, |row| row.last_success_at.and_then(timestamp)).into(),
            of(rows, |row| row.last_failure_at.and_then(timestamp)).into(),
            of(rows, |row| row.last_status).into(),
            of(rows, |row| row.last_category.clone()).into(),
            of(rows, |row| row.delivered).into(),
            of(rows, |row| row.failed).into(),
            of(rows, |row| row.latency_ms).into(),
            of(rows, |row| {
                row.closed.as_ref().map(|(state, _)| (*state).to_owned())
            })
            .into(),
        ],
        |_| (),
    );
}

/// All conditions; read once per life.
pub fn conditions() -> Vec<ConditionRow> {
    select(&READ, &[], |rows| {
        rows.filter_map(|row| {
            let time = |index: usize| {
                row.get::<TimestampWithTimeZone>(index)
                    .ok()
                    .flatten()
                    .map(unix_micros)
            };
            Some(ConditionRow {
                endpoint: row.get::<i64>(1).ok().flatten()?,
                generation: row.get::<i64>(2).ok().flatten()?,
                closed: None,
                window: row.get::<f64>(3).ok().flatten().unwrap_or(1.0),
                probe_at: time(4),
                probe_wait_ms: row.get::<i32>(5).ok().flatten().unwrap_or(0),
                failing_since: time(6),
                failures: row.get::<i32>(7).ok().flatten().unwrap_or(0),
                warned_at: time(8),
                last_success_at: time(9),
                last_failure_at: time(10),
                last_status: row.get::<i16>(11).ok().flatten(),
                last_category: row.get::<String>(12).ok().flatten(),
                delivered: row.get::<i64>(13).ok().flatten().unwrap_or(0),
                failed: row.get::<i64>(14).ok().flatten().unwrap_or(0),
                latency_ms: row.get::<i32>(15).ok().flatten(),
            })
        })
        .collect()
    })
}
