//! What is counted for monitoring, as SQL sees it: the counters, the last hours, where retention is, and the page that
//! shows all of it.
//!
//! Declared in sql/71_metrics.sql, 72_progress.sql and 73_dashboard.sql. Reads the shared memory and its arguments, and
//! no table: whatever the caller may not see does not come here.

use std::sync::atomic::Ordering;

use pgrx::JsonB;
use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::{Value, json};

use super::emit::now_micros;
use super::outbox;
use super::wake::{self, Slot};
use crate::rules::dashboard;

fn slot() -> Option<&'static Slot> {
    // SAFETY: plain read of this process's state.
    wake::slot_of(unsafe { pg_sys::MyDatabaseId })
}

/// Every counter of this database's leader; no row when it never had one.
#[pg_extern(sql = false)]
fn counters() -> TableIterator<
    'static,
    (
        name!(family, &'static str),
        name!(metric, &'static str),
        name!(labels, JsonB),
        name!(value, f64),
    ),
> {
    let rows: Vec<_> = slot()
        .map(|slot| {
            slot.counters.samples([
                slot.lost.load(Ordering::Relaxed),
                slot.fenced.load(Ordering::Relaxed),
                slot.restarts.load(Ordering::Relaxed).into(),
            ])
        })
        .unwrap_or_default()
        .into_iter()
        .map(|(family, metric, label, value)| {
            let labels = match label {
                Some((name, text)) => json!({ name: text }),
                None => json!({}),
            };
            (family, metric, JsonB(labels), value)
        })
        .collect();
    TableIterator::new(rows)
}

/// The last hours in steps, oldest first.
#[pg_extern(sql = false)]
fn history() -> JsonB {
    let steps = slot().map(|slot| slot.counters.history(now_micros()));
    let steps: Vec<Value> = steps
        .unwrap_or_default()
        .into_iter()
        .map(|step| {
            json!({
                "at": step.at,
                "events": step.events,
                "delivered": step.delivered,
                "failed": step.failed,
                "queued": step.queued,
                "lag": step.lag,
                "duration": step.duration,
            })
        })
        .collect();
    JsonB(Value::Array(steps))
}

/// The retention pass under way: the kind of its step, how many are left, how many there were, and when it began.
#[allow(clippy::type_complexity)]
#[pg_extern(sql = false)]
fn retention_progress() -> TableIterator<
    'static,
    (
        name!(phase, &'static str),
        name!(steps_left, i32),
        name!(steps_total, i32),
        name!(started_at, Option<TimestampWithTimeZone>),
    ),
> {
    let progress = slot()
        .filter(|slot| slot.pid.load(Ordering::Acquire) != 0)
        .map(|slot| slot.counters.keeping())
        .and_then(|([kind, left, of], since)| {
            let phase = match kind {
                1 => "expiring deliveries",
                2 => "closing dead letters",
                3 => "removing partitions",
                4 => "clearing default partitions",
                5 => "deleting rows",
                6 => "deleting idempotency keys",
                7 => "erasing payloads",
                _ => return None,
            };
            let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
            Some((phase, count(left), count(of), outbox::timestamp(since)))
        });
    TableIterator::new(progress)
}

/// The page, from what `webhook.dashboard()` may see.
#[pg_extern(sql = false)]
fn dashboard_page(data: JsonB) -> String {
    dashboard::page(&data.0)
}
