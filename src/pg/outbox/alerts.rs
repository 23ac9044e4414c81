//! Telling people: rows of the alert table and the notification that follows each, whoever wrote it.
//!
//! Only the leader notifies, never emit: NOTIFY serialises all committers. And it does so once the alert is committed,
//! in a transaction of its own: a queue that a sleeping listener has filled fails nothing else.

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
    "insert into webhook._alert (alert_id, kind, severity, partner_id, endpoint_id, event_id, detail)
     values (webhook._new_id(), $1, $2, $3, $4, $5, $6)");

// In the order in which they were found, and no row twice.
macro_rules! notified {
    ($then:literal) => {
        concat!(
            "with told as (
               update webhook._alert as a
                  set notified = true
                 from (select w.alert_id from webhook._alert as w
                        where not w.notified
                        order by w.alert_id
                        limit $1
                          for update skip locked) as w
                where a.alert_id = w.alert_id
               returning a.alert_id, a.severity)
             select ",
            $then,
            "
               from (select t.alert_id, t.severity from told as t order by t.alert_id) as t"
        )
    };
}

// Whoever can connect may listen, a partner's role, too: what it is about stands in the view.
statement!(
    NOTIFY,
    [i32],
    notified!(
        "pg_catalog.pg_notify('webhook_alerts', pg_catalog.json_build_object('alert_id', t.alert_id, 'severity', t.severity)::text)"
    )
);

statement!(PASS_OVER, [i32], notified!("t.alert_id"));

/// Notifies whoever listens of alerts that nobody was told of, when the transaction commits; says how many.
pub fn notify_alerts(most: i32) -> usize {
    run(&NOTIFY, &[most.into()], |rows| rows.len())
}

/// Leaves such alerts to whoever reads them; says how many.
pub fn pass_over_alerts(most: i32) -> usize {
    run(&PASS_OVER, &[most.into()], |rows| rows.len())
}

/// Writes an alert.
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
