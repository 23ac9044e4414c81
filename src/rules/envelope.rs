//! The body of a webhook: the one function that writes it, and the seal that tells whether it was tampered with.
//!
//! The payload is a text that is spliced in as it is: it is never parsed, never re-serialised, never passed
//! through a float. Whether it is valid JSON was decided when the event was stored. Every retry, on every
//! version of this code, must give the same bytes: the receiver's signature check and our evidence rest on it.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::rules::ids::EventId;
use crate::rules::time;

/// An event as it was emitted. It never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event id.
    pub id: EventId,
    /// The event type.
    pub kind: String,
    /// The partner it concerns.
    pub partner_id: String,
    /// The system that reported it.
    pub source: Option<String>,
    /// When it happened, in Unix microseconds; emit refuses what [`time::rfc3339`] cannot write.
    pub occurred_at: i64,
    /// What kind of thing it is about.
    pub subject_type: Option<String>,
    /// Which one.
    pub subject_id: Option<String>,
    /// In which version.
    pub subject_version: Option<i64>,
    /// The part of the partner's world it concerns.
    pub scope: Option<String>,
    /// The version of the payload's schema.
    pub schema_version: Option<String>,
    /// What connects it with other events.
    pub correlation_id: Option<String>,
    /// What caused it; sealed, not sent.
    pub causation: Option<String>,
    /// The trace it belongs to; sealed, sent as a header.
    pub traceparent: Option<String>,
    /// Whether it is a test event.
    pub test: bool,
    /// The exact bytes of the payload's JSON text; empty, which no JSON is, when it was erased.
    pub data: String,
}

impl Event {
    /// Whether its payload is gone: no JSON text is empty.
    pub const fn is_erased(&self) -> bool {
        self.data.is_empty()
    }
}

/// Writes the body: members in a fixed order, absent ones left out, the payload verbatim and last. Of an erased payload
/// it says so in its place.
pub fn body(event: &Event) -> String {
    shaped(event, Some(&event.data), None)
}

/// The same with other data, or none, and the name of the shape that made it so.
pub fn shaped(event: &Event, data: Option<&str>, data_shape: Option<&str>) -> String {
    let mut json = String::with_capacity(data.map_or(0, str::len) + 512);
    json.push('{');
    string(&mut json, "event_id", Some(event.id.text().as_ref()));
    string(&mut json, "type", Some(&event.kind));
    string(&mut json, "source", event.source.as_deref());
    // A year outside 0001-9999 is refused by emit. Should one come in another way it gets a text of its own:
    // a clamped time would be a false statement under our signature.
    string(
        &mut json,
        "occurred_at",
        Some(&time::iso8601(event.occurred_at)),
    );
    string(&mut json, "partner_id", Some(&event.partner_id));
    if event.subject_type.is_some() || event.subject_id.is_some() || event.subject_version.is_some()
    {
        member(&mut json, "subject");
        json.push('{');
        string(&mut json, "type", event.subject_type.as_deref());
        string(&mut json, "id", event.subject_id.as_deref());
        if let Some(version) = event.subject_version {
            member(&mut json, "version");
            json.push_str(&version.to_string());
        }
        json.push('}');
    }
    string(&mut json, "scope", event.scope.as_deref());
    string(&mut json, "schema_version", event.schema_version.as_deref());
    string(&mut json, "correlation_id", event.correlation_id.as_deref());
    if event.test {
        member(&mut json, "test");
        json.push_str("true");
    }
    string(&mut json, "data_shape", data_shape);
    if event.is_erased() {
        member(&mut json, "expunged");
        json.push_str("true");
    } else if let Some(data) = data {
        member(&mut json, "data");
        json.push_str(data);
    }
    json.push('}');
    json
}

/// What the seal covers: every field of the event, the origin, and the payload's SHA-256 in place of the
/// payload, so that the seal still holds when the payload has been expunged.
///
/// Unambiguous by construction: the fields come in a fixed order, a text or number is preceded by a presence
/// byte where it may be absent, and a text by its length. A change of this format needs a new label.
pub fn seal_input(event: &Event, origin: i64, body_sha256: &[u8; 32]) -> Vec<u8> {
    let mut input = SEAL_LABEL.to_vec();
    input.extend(origin.to_be_bytes());
    input.extend(event.id.as_u128().to_be_bytes());
    text(&mut input, &event.kind);
    text(&mut input, &event.partner_id);
    optional_text(&mut input, event.source.as_deref());
    input.extend(event.occurred_at.to_be_bytes());
    optional_text(&mut input, event.subject_type.as_deref());
    optional_text(&mut input, event.subject_id.as_deref());
    input.push(u8::from(event.subject_version.is_some()));
    if let Some(version) = event.subject_version {
        input.extend(version.to_be_bytes());
    }
    optional_text(&mut input, event.scope.as_deref());
    optional_text(&mut input, event.schema_version.as_deref());
    optional_text(&mut input, event.correlation_id.as_deref());
    optional_text(&mut input, event.causation.as_deref());
    optional_text(&mut input, event.traceparent.as_deref());
    input.push(u8::from(event.test));
    input.extend(body_sha256);
    input
}

/// The seal: HMAC-SHA256 of [`seal_input`], cut to 128 bits (RFC 2104, section 5).
pub fn seal(key: &[u8], event: &Event, origin: i64, body_sha256: &[u8; 32]) -> [u8; 16] {
    // HMAC takes keys of any length; the error exists for other algorithms of the trait.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    mac.update(&seal_input(event, origin, body_sha256));
    let digest: [u8; 32] = mac.finalize().into_bytes().into();
    let mut seal = [0; 16];
    seal.copy_from_slice(&digest[..16]);
    seal
}

fn string(json: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        member(json, name);
        // Most have nothing to be escaped: they are written as they are.
        let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if value.bytes().all(plain) {
            json.push('"');
            json.push_str(value);
            json.push('"');
            return;
        }
        // Serialising a string fails only when the writer does, and memory does not.
        json.push_str(&serde_json::to_string(value).expect("a string is always JSON"));
    }
}

/// Begins a member of the object that is being written; the names are ours and need no escaping.
fn member(json: &mut String, name: &str) {
    if !json.ends_with('{') {
        json.push(',');
    }
    json.push('"');
    json.push_str(name);
    json.push_str("\":");
}

fn optional_text(input: &mut Vec<u8>, value: Option<&str>) {
    input.push(u8::from(value.is_some()));
    if let Some(value) = value {
        text(input, value);
    }
}

fn text(input: &mut Vec<u8>, value: &str) {
    input.extend((value.len() as u64).to_be_bytes());
    input.extend(value.as_bytes());
}

/// The seal of an event's data in another schema version, or of why there is none: it belongs to this event alone.
pub fn version_seal(
    key: &[u8],
    event: &Event,
    origin: i64,
    version: &str,
    failure: Option<&str>,
    body_sha256: &[u8; 32],
) -> [u8; 16] {
    let mut input = VERSION_SEAL_LABEL.to_vec();
    input.extend(origin.to_be_bytes());
    input.extend(event.id.as_u128().to_be_bytes());
    text(&mut input, &event.partner_id);
    text(&mut input, version);
    optional_text(&mut input, failure);
    input.extend(body_sha256);
    // HMAC takes keys of any length; the error exists for other algorithms of the trait.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    mac.update(&input);
    let digest: [u8; 32] = mac.finalize().into_bytes().into();
    let mut seal = [0; 16];
    seal.copy_from_slice(&digest[..16]);
    seal
}

const VERSION_SEAL_LABEL: &[u8] = b"webhook_outbox version seal 1\n";
const SEAL_LABEL: &[u8] = b"webhook_outbox seal 1\n";

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
