//! Telling people: rows of the alert table and the notification that goes with each.
//!
//! Only the leader notifies, never emit: NOTIFY serialises all committers.

use super::statement::{run, statement};
use crate::rules::ids::{EndpointId, EventId};

/// Something an operator, or the owner of an endpoint, should know.
#[derive(Clone)]
pub struct Alert {
    pub kind: &'static str,
    pub severity: &'static str,
    pub partner: Option<String>,
    pub endpoint: Option<EndpointId>,
    pub event: Option<EventId>,
    /// In our own words: no payload, no secret, no text of a receiver.
    pub detail: String,
    /// The lifecycle event that tells the owner; none = only operators are told.
    pub lifecycle: Option<Lifecycle>,
}

/// A lifecycle event about an endpoint.
#[derive(Clone)]
pub struct Lifecycle {
    /// What follows `webhook.endpoint.`.
    pub what: &'static str,
    /// The endpoint gets test events only, and so do those that are told about it.
    pub test: bool,
    /// Members of `data` beside the endpoint and its partner.
    pub data: Vec<(&'static str, String)>,
}

statement!(RAISE, [&str, &str, Option<&str>, Option<i64>, Option<&str>, &str],
    "with told as (
       insert into webhook._alert (alert_id, kind, severity, partner_id, endpoint_id, event_id, detail)
       values (webhook._new_id(), $1, $2, $3, $4, $5, $6)
       returning alert_id, severity)
     -- Whoever can connect may listen, a partner's role, too: what it is about stands in the view.
     select pg_catalog.pg_notify('webhook_alerts', pg_catalog.json_build_object('alert_id', t.alert_id, 'severity', t.severity)::text)
       from told as t");

/// Writes an alert and notifies whoever listens, when the transaction commits.
pub fn raise_alert(alert: &Alert) {
    let event = alert.event.map(|id| id.to_string());
    run(
        &RAISE,
        &[
            alert.kind.into(),
            alert.severity.into(),
            alert.partner.as_deref().into(),
            alert.endpoint.map(|id| id.0).into(),
            event.as_deref().into(),
            alert.detail.as_str().into(),
        ],
        |_| (),
    );
}
