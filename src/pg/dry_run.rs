//! `webhook.dry_run`: what would be sent of an event, to whom. Matching, shape, headers and signature come from the code
//! that the leader uses; nothing is written, nothing leaves, no idempotency key is looked at.
//!
//! Declared in sql/56_dry_run.sql, whose public function runs with the owner's rights.

use std::cell::OnceCell;
use std::sync::Arc;

use pgrx::prelude::*;

use super::conversion::{Converted, convert};
use super::emit::{accept, next_id, now_micros, occurred_at};
use super::error::null_argument;
use super::leader::configuration::{Configuration, Endpoint, Standing};
use super::leader::filtering::by_itself;
use super::leader::pair::Message;
use super::outbox;
use super::settings::Settings;
use crate::rules::envelope::Event;
use crate::rules::ids::{EndpointId, Pair};
use crate::rules::revision::Wanted;
use crate::wire::job::Job;
use crate::wire::send::on_the_wire;

/// What an endpoint would get.
struct Answer {
    /// None = it would be held.
    matched: Option<bool>,
    reason: Option<String>,
    /// URL, headers and body.
    request: Option<(String, String, String)>,
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments, clippy::type_complexity)]
fn dry_run(
    kind: Option<String>,
    partner_id: Option<String>,
    data: Option<String>,
    subject_type: Option<String>,
    subject_id: Option<String>,
    subject_version: Option<i64>,
    source: Option<String>,
    scope: Option<String>,
    at: Option<TimestampWithTimeZone>,
    schema_version: Option<String>,
    correlation_id: Option<String>,
    causation: Option<String>,
    traceparent: Option<String>,
    test: Option<bool>,
) -> TableIterator<
    'static,
    (
        name!(endpoint_id, i64),
        name!(matched, Option<bool>),
        name!(reason, Option<String>),
        name!(url, Option<String>),
        name!(headers, Option<String>),
        name!(body, Option<String>),
    ),
> {
    let mut event = Event {
        id: next_id(),
        kind: kind.unwrap_or_else(|| null_argument("type")),
        partner_id: partner_id.unwrap_or_else(|| null_argument("partner_id")),
        data: data.unwrap_or_else(|| null_argument("data")),
        subject_type,
        subject_id,
        subject_version,
        source,
        scope,
        occurred_at: at.map_or_else(now_micros, occurred_at),
        schema_version,
        correlation_id,
        causation,
        traceparent,
        test: test.unwrap_or_else(|| null_argument("test")),
    };
    accept(&mut event);
    let mut rows = outbox::endpoints_of_partner(&event.partner_id);
    rows.retain(|row| row.state != "deleted");
    rows.sort_by_key(|row| row.id);
    let ids: Vec<EndpointId> = rows.iter().map(|row| row.id).collect();
    let mut configuration = Configuration::new(outbox::origin(), &Settings::read());
    configuration.apply_pauses(outbox::changed_pauses(None));
    configuration.apply(rows);
    // Made for the first endpoint that wants another version.
    let versions = OnceCell::new();
    let answers: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let answer = answer(&configuration, &event, id, &versions);
            let (url, headers, body) = match answer.request {
                Some((url, headers, body)) => (Some(url), Some(headers), Some(body)),
                None => (None, None, None),
            };
            (id.0, answer.matched, answer.reason, url, headers, body)
        })
        .collect();
    TableIterator::new(answers)
}

fn answer(
    configuration: &Configuration,
    event: &Event,
    id: EndpointId,
    versions: &OnceCell<Vec<Converted>>,
) -> Answer {
    let no = |reason: &str| Answer {
        matched: Some(false),
        reason: Some(reason.to_owned()),
        request: None,
    };
    let Some(endpoint) = configuration.endpoint(id) else {
        return no("the endpoint came with a copy of another database and is inert");
    };
    // Why not is told in the order of explain; whether, by the leader's own rule.
    if !configuration.wants(event, id) {
        return no(&if endpoint.test != event.test {
            format!(
                "it is a {} endpoint",
                if endpoint.test { "test" } else { "live" }
            )
        } else if endpoint.standing == Standing::Closed {
            format!("the endpoint is {}", endpoint.state)
        } else {
            "the event type is not subscribed to".to_owned()
        });
    }
    if let Some(filter) = endpoint.filter_at(None) {
        let passes = by_itself(event, filter);
        if passes == Some(false) {
            return no("the subject type is not one of the subject types");
        }
        if passes.is_none()
            && let Some((condition, _)) = &filter.condition
        {
            match outbox::try_filters(&event.data, vec![condition]).pop() {
                Some(Ok(true)) => {}
                Some(Err(why)) => {
                    return Answer {
                        matched: None,
                        reason: Some(why),
                        request: None,
                    };
                }
                Some(Ok(false)) | None => return no("the filter does not match"),
            }
        }
    }
    let wanted = endpoint.shape.wanted(&event.kind);
    let other = wanted
        .other_version(event)
        .map(|version| in_version(event, version, versions))
        .transpose();
    let event = match &other {
        Ok(other) => other.as_ref().unwrap_or(event),
        // As with the leader: the delivery waits for a version that can be sent.
        Err(why) => {
            return Answer {
                matched: None,
                reason: Some(why.clone()),
                request: None,
            };
        }
    };
    match request(configuration, endpoint, event, id, &wanted) {
        Ok(request) => Answer {
            matched: Some(true),
            reason: waits(configuration, endpoint, event),
            request: Some(request),
        },
        Err(why) => Answer {
            matched: Some(true),
            reason: Some(why),
            request: None,
        },
    }
}

/// What keeps the request from being sent at once.
fn waits(configuration: &Configuration, endpoint: &Endpoint, event: &Event) -> Option<String> {
    if configuration.type_paused(&event.kind) {
        return Some("the event type is paused: the delivery would wait".to_owned());
    }
    (endpoint.standing == Standing::Holds).then(|| {
        if endpoint.state == "active" {
            "the partner, or everything, is paused: the delivery would wait".to_owned()
        } else {
            format!(
                "the endpoint is {}: the delivery would wait",
                endpoint.state
            )
        }
    })
}

/// The first attempt: URL, headers as a JSON object in their order, body.
fn request(
    configuration: &Configuration,
    endpoint: &Endpoint,
    event: &Event,
    id: EndpointId,
    wanted: &Wanted,
) -> Result<(String, String, String), String> {
    let message = Message::new(event, configuration.class(&event.kind), wanted);
    let target = match &endpoint.target {
        Ok(target) => Arc::clone(target),
        Err(refusal) => return Err(format!("the URL is blocked: {}", refusal.detail)),
    };
    let now = now_micros();
    let job = Job {
        ticket: 0,
        target: Ok(Arc::clone(&target)),
        pair: Pair {
            event: event.id,
            endpoint: id,
        },
        attempt: 1,
        headers: Arc::clone(&message.headers),
        extra: Arc::clone(&endpoint.extra),
        profile: endpoint.profile,
        body: Arc::clone(&message.body),
        keys: endpoint.keys.at(now),
        fault: None,
        room: 1,
        looked_through: 0,
    };
    let agent = super::leader::user_agent();
    let headers = on_the_wire(&job, &target, now, &agent)?;
    let members: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)))
        .collect();
    Ok((
        endpoint.url().to_owned(),
        format!("{{{}}}", members.join(",")),
        message.body.to_string(),
    ))
}

/// The event as `emit` would store it for endpoints that want this version; else why the delivery would be held.
fn in_version(
    event: &Event,
    version: &str,
    versions: &OnceCell<Vec<Converted>>,
) -> Result<Event, String> {
    let made = versions.get_or_init(|| convert(event));
    match made.iter().find(|made| made.version == version) {
        Some(made) => Ok(Event {
            data: made.result.clone()?.to_string(),
            schema_version: Some(version.to_owned()),
            ..event.clone()
        }),
        None => Err(format!(
            "no conversion leads to schema version \"{version}\", which the endpoint wants: the delivery would be held"
        )),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
