//! What operators and partners are told: alerts, with a notification each, and lifecycle events to the
//! partner's other endpoints and to the operator's. All of it commits with what it is about.

use std::time::Instant;

use super::Leader;
use super::configuration::LIFECYCLE;
use crate::pg::emit::insert_own;
use crate::pg::outbox::{self, Alert, Lifecycle};
use crate::rules::envelope::Event;
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::time::rfc3339;

/// Partner whose endpoints hear about the endpoints of all partners.
const OPERATOR: &str = "_operator";

impl Leader {
    pub fn tell_warning(
        &mut self,
        id: EndpointId,
        failures: i32,
        since: Option<i64>,
        disable_at: i64,
    ) {
        let disable_at = time(disable_at);
        self.tell_about(
            id,
            "endpoint.warning",
            "warning",
            format!("{failures} failures without one success; it is disabled at {disable_at} if that goes on"),
            Some((
                "warning",
                vec![
                    ("failures", failures.to_string()),
                    ("failing_since", time(since.unwrap_or_default())),
                    ("disable_at", disable_at),
                ],
            )),
        );
    }

    pub fn tell_recovered(&mut self, id: EndpointId, since: i64) {
        let since = time(since);
        self.tell_about(
            id,
            "endpoint.recovered",
            "info",
            format!("it answers again; it had failed since {since}"),
            Some(("recovered", vec![("failing_since", since)])),
        );
    }

    pub fn tell_disabled(&mut self, id: EndpointId, reason: &str) {
        self.tell_about(
            id,
            "endpoint.disabled",
            "critical",
            reason.to_owned(),
            Some(("disabled", vec![("reason", reason.to_owned())])),
        );
    }

    pub fn tell_expiring(&mut self, id: EndpointId, end: i64) {
        let end = time(end);
        self.tell_about(
            id,
            "endpoint.expiring",
            "warning",
            format!("its time ends at {end} unless it is renewed, or its URL proven"),
            Some(("expiring", vec![("expires_at", end)])),
        );
    }

    pub fn tell_expired(&mut self, id: EndpointId, reason: &str) {
        self.tell_about(
            id,
            "endpoint.expired",
            "critical",
            reason.to_owned(),
            Some(("expired", vec![("reason", reason.to_owned())])),
        );
    }

    pub fn tell_unconfirmed(&mut self, id: EndpointId) {
        self.tell_about(
            id,
            "endpoint.unconfirmed",
            "warning",
            "control of its new URL was not proven in time; the old one stays in force".to_owned(),
            Some(("unconfirmed", Vec::new())),
        );
    }

    pub fn tell_blocked(&mut self, id: EndpointId) {
        self.tell_about(
            id,
            "endpoint.blocked",
            "critical",
            "its URL leads where no callback may go; see the view attempts".to_owned(),
            None,
        );
    }

    pub fn tell_quarantined(&mut self, pair: Pair) {
        self.tell_pair(
            pair,
            "delivery.quarantined",
            "critical",
            "the leader ended again and again while it was being sent; it is held until somebody retries or skips it",
        );
    }

    pub fn tell_undecided(&mut self, pair: Pair, why: &str) {
        let detail = format!(
            "{why}; this delivery, and others of the endpoint like it, are held until the filter is changed or somebody retries or skips them"
        );
        self.tell_pair(pair, "delivery.filter", "warning", &detail);
    }

    pub fn tell_unconverted(&mut self, pair: Pair, kind: &str, why: &str) {
        self.tell_pair(
            pair,
            "delivery.unconverted",
            "critical",
            &format!("events of type \"{kind}\" wait at the endpoint, because they cannot be sent in the schema version that it wants. {why}"),
        );
    }

    pub fn tell_unrecorded(&mut self, pair: Pair, detail: &str) {
        self.tell_pair(pair, "delivery.unrecorded", "critical", detail);
    }

    /// None = what stands there as its id is none.
    pub fn tell_fenced(&mut self, event: Option<EventId>) {
        let detail = match event {
            Some(_) => "its row was changed after the emit; it is never sent",
            None => "a row of webhook._event has no event id; it is never sent",
        };
        self.tell(Alert {
            kind: "event.fenced",
            severity: "critical",
            partner: None,
            endpoint: None,
            event,
            detail: detail.to_owned(),
            lifecycle: None,
        });
    }

    /// What retention did to deliveries of a partner.
    pub fn tell_retention(&mut self, kind: &'static str, partner: Option<String>, detail: String) {
        self.tell(Alert {
            kind,
            severity: "warning",
            partner,
            endpoint: None,
            event: None,
            detail,
            lifecycle: None,
        });
    }

    fn tell_pair(&mut self, pair: Pair, kind: &'static str, severity: &'static str, detail: &str) {
        let partner = self
            .configuration
            .endpoint(pair.endpoint)
            .map(|endpoint| endpoint.partner_id.clone());
        self.tell(Alert {
            kind,
            severity,
            partner,
            endpoint: Some(pair.endpoint),
            event: Some(pair.event),
            detail: detail.to_owned(),
            lifecycle: None,
        });
    }

    fn tell_about(
        &mut self,
        id: EndpointId,
        kind: &'static str,
        severity: &'static str,
        detail: String,
        lifecycle: Option<(&'static str, Vec<(&'static str, String)>)>,
    ) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        let (partner, test) = (endpoint.partner_id.clone(), endpoint.test);
        self.tell(Alert {
            kind,
            severity,
            partner: Some(partner),
            endpoint: Some(id),
            event: None,
            detail,
            lifecycle: lifecycle.map(|(what, data)| Lifecycle { what, test, data }),
        });
    }

    fn tell(&mut self, alert: Alert) {
        self.outcomes.alerts.push(alert);
        self.unwritten_since.get_or_insert_with(Instant::now);
    }
}

/// Writes alerts and the events that go with them, in the transaction under way.
pub fn raise(alerts: &[Alert]) {
    for alert in alerts {
        outbox::raise_alert(alert);
        let (Some(lifecycle), Some(endpoint), Some(partner)) =
            (&alert.lifecycle, alert.endpoint, &alert.partner)
        else {
            continue;
        };
        insert_own(&mut event(lifecycle, endpoint, partner, partner));
        if partner != OPERATOR {
            insert_own(&mut event(lifecycle, endpoint, partner, OPERATOR));
        }
    }
}

/// The lifecycle event about an endpoint of `owner`, for the endpoints of `partner`.
fn event(lifecycle: &Lifecycle, endpoint: EndpointId, owner: &str, partner: &str) -> Event {
    let mut data = serde_json::Map::new();
    data.insert("endpoint_id".to_owned(), endpoint.0.to_string().into());
    data.insert("partner_id".to_owned(), owner.into());
    for (name, value) in &lifecycle.data {
        data.insert((*name).to_owned(), value.as_str().into());
    }
    Event {
        id: EventId::first_of(0),
        kind: format!("{LIFECYCLE}{}", lifecycle.what),
        partner_id: partner.to_owned(),
        data: serde_json::Value::Object(data).to_string(),
        subject_type: Some("webhook.endpoint".to_owned()),
        subject_id: Some(endpoint.0.to_string()),
        subject_version: None,
        source: None,
        scope: None,
        occurred_at: crate::pg::emit::now_micros(),
        schema_version: None,
        correlation_id: None,
        causation: None,
        traceparent: None,
        test: lifecycle.test,
    }
}

fn time(micros: i64) -> String {
    rfc3339(micros).unwrap_or_default()
}
