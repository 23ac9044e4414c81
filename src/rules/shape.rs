//! The shape of a request: body and headers of an event in the format of an endpoint's revision. A fixed function of
//! both: every attempt at a delivery, on every version of this code, gives the same bytes.
//!
//! The formats share their tracing headers, which tie a request to the operation that caused the event.

use crate::rules::cloudevents::{self, CloudEvent, Data, Value};
use crate::rules::envelope::{self, Event};
use crate::rules::revision::DataShape;
use crate::rules::time;

/// What a CloudEvent of an event without a source says instead.
const NO_SOURCE: &str = "/webhook_outbox";

/// Form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// The envelope.
    #[default]
    Native,
    /// A CloudEvent as one JSON object.
    Structured,
    /// A CloudEvent with its attributes in headers.
    Binary,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Self::Native, Self::Structured, Self::Binary];

    /// The format of this name.
    pub fn parse(name: &str) -> Option<Format> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Structured => "cloudevents-structured",
            Self::Binary => "cloudevents-binary",
        }
    }
}

/// What is sent of an event, before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Content type, attributes and tracing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// Gives an event its shape, with all of its data.
pub fn shape(event: &Event, format: Format) -> Shape {
    shape_of(event, format, &DataShape::Full)
}

/// Gives an event its shape.
pub fn shape_of(event: &Event, format: Format, data_shape: &DataShape) -> Shape {
    // An erased payload is no JSON any more, and has no shape.
    let (data, name) = if event.is_erased() {
        (None, None)
    } else {
        data_shape.cut(&event.data)
    };
    let mut shape = match format {
        Format::Native => native(event, data.as_deref(), name),
        Format::Structured | Format::Binary => cloud_event(event, format, data.as_deref(), name),
    };
    let mut trace = |name: &str, value: Option<String>| {
        shape
            .headers
            .extend(value.map(|value| (name.to_owned(), value)));
    };
    trace("traceparent", event.traceparent.clone());
    trace(
        "webhook-correlation-id",
        event.correlation_id.as_deref().map(cloudevents::encode),
    );
    trace("webhook-causation-id", event.causation.clone());
    shape
}

fn native(event: &Event, data: Option<&str>, data_shape: Option<&str>) -> Shape {
    Shape {
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: envelope::shaped(event, data, data_shape),
    }
}

fn cloud_event(
    event: &Event,
    format: Format,
    data: Option<&str>,
    data_shape: Option<&str>,
) -> Shape {
    let attributes = attributes(event, data.is_some(), data_shape);
    let Ok(event) = CloudEvent::new(attributes, data.map(Data::Json)) else {
        // Nothing that emit accepts comes here (a test says so). A row that somebody made otherwise has its envelope:
        // what a receiver can read is better than nothing, and than a delivery that waits for ever.
        return native(event, data, data_shape);
    };
    let encoded = match format {
        Format::Binary => event.binary(),
        _ => event.structured(),
    };
    Shape {
        headers: encoded.headers,
        // Made of texts.
        body: String::from_utf8(encoded.body).unwrap_or_default(),
    }
}

/// The attributes of an event in their order; the names that are not the standard's own follow its documented
/// extensions where there is one (`traceparent`, `correlationid`, `causationid`).
fn attributes(event: &Event, has_data: bool, data_shape: Option<&str>) -> Vec<(String, Value)> {
    let mut attributes = Vec::with_capacity(16);
    let mut text = |name: &str, value: Option<String>| {
        attributes.extend(value.map(|value| (name.to_owned(), Value::Text(value))));
    };
    let source = event
        .source
        .as_deref()
        .map_or(NO_SOURCE.to_owned(), cloudevents::uri_reference);
    text("id", Some(event.id.to_string()));
    text("source", Some(source));
    text("type", Some(event.kind.clone()));
    text("subject", subject(event));
    text("time", time::rfc3339(event.occurred_at));
    text(
        "datacontenttype",
        has_data.then(|| "application/json".to_owned()),
    );
    text("partnerid", Some(event.partner_id.clone()));
    text("subjecttype", event.subject_type.as_deref().map(clean));
    text("subjectid", event.subject_id.as_deref().map(clean));
    // An integer of the standard has 32 bits.
    text(
        "subjectversion",
        event.subject_version.map(|version| version.to_string()),
    );
    text("scope", event.scope.as_deref().map(clean));
    text("schemaversion", event.schema_version.as_deref().map(clean));
    text("correlationid", event.correlation_id.as_deref().map(clean));
    text("causationid", event.causation.as_deref().map(clean));
    text("traceparent", event.traceparent.as_deref().map(clean));
    text("datashape", data_shape.map(str::to_owned));
    if event.test {
        attributes.push(("test".to_owned(), Value::Boolean(true)));
    }
    if event.is_erased() {
        attributes.push(("expunged".to_owned(), Value::Boolean(true)));
    }
    attributes
}

/// `type/id`, as far as they are given.
fn subject(event: &Event) -> Option<String> {
    let parts: Vec<String> = [&event.subject_type, &event.subject_id]
        .into_iter()
        .flatten()
        .map(|part| clean(part))
        .collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// A text without the characters that no attribute may hold.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if cloudevents::forbidden(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
