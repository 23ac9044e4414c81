//! `webhook.observe`: keeps the value of a metric, and emits what its thresholds say.
//!
//! SECURITY INVOKER, like emit: the caller must have the right to emit every event that the metric can make; the value
//! alone is kept as the owner.

use pgrx::prelude::*;

use super::access;
use super::emit::{self, MAX_FIELD, Names};
use super::error::{Raise, bad_argument, null_argument};
use super::outbox::{self, Observation};
use crate::rules::envelope::Event;
use crate::rules::matching;

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn observe_as_caller(
    partner_id: Option<String>,
    subject_type: Option<String>,
    subject_id: Option<String>,
    metric: Option<String>,
    value: Option<AnyNumeric>,
    adjustment: Option<bool>,
    data: Option<String>,
    subject_version: Option<i64>,
    source: Option<String>,
    scope: Option<String>,
    occurred_at: Option<TimestampWithTimeZone>,
    schema_version: Option<String>,
    correlation_id: Option<String>,
    causation: Option<String>,
    traceparent: Option<String>,
    test: Option<bool>,
) -> TableIterator<'static, (name!(observation, i64), name!(event_ids, Vec<String>))> {
    let partner_id = partner_id.unwrap_or_else(|| null_argument("partner_id"));
    let subject_type = subject_type.unwrap_or_else(|| null_argument("subject_type"));
    let subject_id = subject_id.unwrap_or_else(|| null_argument("subject_id"));
    let metric = metric.unwrap_or_else(|| null_argument("metric"));
    let value = value.unwrap_or_else(|| null_argument("value"));
    let adjustment = adjustment.unwrap_or_else(|| null_argument("adjustment"));
    let data = data.unwrap_or_else(|| null_argument("data"));
    let test = test.unwrap_or_else(|| null_argument("test"));
    emit::refuse_where_nothing_can_be_written();
    check_subject(&partner_id, &subject_type, &subject_id);
    let occurred_at = occurred_at.map_or_else(emit::now_micros, emit::occurred_at);

    let kinds = outbox::threshold_types(&metric);
    if kinds.is_empty() {
        let shown: String = metric.chars().take(128).collect();
        Raise::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!("metric \"{shown}\" has no threshold"),
        )
        .hint("Use webhook.create_threshold.")
        .raise();
    }
    for kind in &kinds {
        access::check_emit(kind, &partner_id);
    }
    let observed = outbox::observe(Observation {
        partner: &partner_id,
        subject_type: &subject_type,
        subject_id: &subject_id,
        metric: &metric,
        value,
        adjustment,
        data: &data,
    });
    let mut event_ids = Vec::new();
    for (kind, payload) in observed.events {
        let event = Event {
            id: emit::next_id(),
            kind,
            partner_id: partner_id.clone(),
            source: source.clone(),
            occurred_at,
            subject_type: Some(subject_type.clone()),
            subject_id: Some(subject_id.clone()),
            subject_version,
            scope: scope.clone(),
            schema_version: schema_version.clone(),
            correlation_id: correlation_id.clone(),
            causation: causation.clone(),
            traceparent: traceparent.clone(),
            test,
            data: payload,
        };
        event_ids.push(emit::record(event, None, Names::Public).to_string());
    }
    TableIterator::once((observed.number, event_ids))
}

/// The words of emit, before anything is kept.
fn check_subject(partner: &str, subject_type: &str, subject_id: &str) {
    if !matching::valid_partner(partner) || matching::reserved_partner(partner) {
        bad_argument("partner id is not valid")
            .detail("A partner id has 1 to 128 characters of A-Z, a-z, 0-9, \"_\", \".\", \":\" and \"-\"; \"_\" at the beginning is reserved.")
            .raise();
    }
    for (name, value) in [("subject_type", subject_type), ("subject_id", subject_id)] {
        if value.is_empty() || value.len() > MAX_FIELD {
            bad_argument(format!("argument \"{name}\" is too long or empty"))
                .detail(format!(
                    "It has {} bytes; 1 to {MAX_FIELD} are accepted.",
                    value.len()
                ))
                .raise();
        }
    }
}
