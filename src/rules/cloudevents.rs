//! CloudEvents 1.0 over HTTP: an event's context attributes and data in structured mode (one JSON object) and in
//! binary mode (`ce-` headers and the data as the body).
//!
//! Data is spliced in as it is, never parsed and never re-serialised. What the attributes of one of our events are
//! stands in `shape`; this file knows the standard alone. Batches are not made.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Content type of structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json";
/// Content type of JSON data that says no other.
const JSON: &str = "application/json";
/// Names that the JSON form uses for something else.
const MEMBERS: [&str; 3] = ["data", "data_base64", "specversion"];

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// String, URI, URI-reference or Timestamp: all are strings on the wire.
    Text(String),
    /// Integer; the standard gives it 32 bits.
    Integer(i32),
    /// Boolean.
    Boolean(bool),
}

impl Value {
    fn canonical(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Boolean(value) => value.to_string(),
        }
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// A JSON text, spliced in as it is.
    Json(&'a str),
    /// Another text.
    Text(&'a str),
    /// Any bytes.
    Bytes(&'a [u8]),
}

/// An event whose attributes are in order.
#[derive(Clone, Debug)]
pub struct CloudEvent<'a> {
    attributes: Vec<(String, Value)>,
    data: Option<Data<'a>>,
}

/// An event in HTTP: headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// `content-type` where there is one, then `ce-` headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl<'a> CloudEvent<'a> {
    /// Takes attributes in the order in which they are to be written, `specversion` left out, and the data.
    pub fn new(
        attributes: Vec<(String, Value)>,
        data: Option<Data<'a>>,
    ) -> Result<CloudEvent<'a>, Fault> {
        for (at, (name, value)) in attributes.iter().enumerate() {
            let twice = attributes.iter().take(at).any(|(other, _)| other == name);
            if !valid_name(name) || MEMBERS.contains(&name.as_str()) || twice {
                return Err(Fault::Name);
            }
            if !valid_value(name, value) {
                return Err(Fault::Value);
            }
        }
        let there = |name| attributes.iter().any(|(given, _)| given == name);
        if !["id", "source", "type"].into_iter().all(there) {
            return Err(Fault::Missing);
        }
        Ok(CloudEvent { attributes, data })
    }

    /// One JSON object (JSON format, section 3).
    pub fn structured(&self) -> Encoded {
        let mut json = String::from("{\"specversion\":\"1.0\"");
        for (name, value) in &self.attributes {
            member(&mut json, name);
            match value {
                Value::Text(text) => string(&mut json, text),
                other => json.push_str(&other.canonical()),
            }
        }
        match self.data {
            None => {}
            Some(Data::Json(text)) => {
                member(&mut json, "data");
                json.push_str(text);
            }
            Some(Data::Text(text)) => {
                member(&mut json, "data");
                string(&mut json, text);
            }
            Some(Data::Bytes(bytes)) => {
                member(&mut json, "data_base64");
                string(&mut json, &STANDARD.encode(bytes));
            }
        }
        json.push('}');
        Encoded {
            headers: vec![("content-type".to_owned(), STRUCTURED.to_owned())],
            body: json.into_bytes(),
        }
    }

    /// Attributes in headers, data in the body (HTTP binding, section 3.1).
    pub fn binary(&self) -> Encoded {
        let mut headers = Vec::with_capacity(self.attributes.len() + 2);
        let stated = self
            .attributes
            .iter()
            .find(|(name, _)| name == "datacontenttype");
        // JSON is what data is by default in the JSON form; here it must be said.
        let kind = match (stated, self.data) {
            (Some((_, value)), _) => Some(value.canonical()),
            (None, Some(Data::Json(_))) => Some(JSON.to_owned()),
            (None, _) => None,
        };
        headers.extend(kind.map(|kind| ("content-type".to_owned(), kind)));
        headers.push(("ce-specversion".to_owned(), "1.0".to_owned()));
        for (name, value) in &self.attributes {
            if name != "datacontenttype" {
                headers.push((format!("ce-{name}"), encode(&value.canonical())));
            }
        }
        let body = match self.data {
            None => Vec::new(),
            Some(Data::Json(text) | Data::Text(text)) => text.as_bytes().to_vec(),
            Some(Data::Bytes(bytes)) => bytes.to_vec(),
        };
        Encoded { headers, body }
    }
}

/// What is wrong with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `id`, `source` or `type` is not there.
    Missing,
    /// A value that its attribute cannot have.
    Value,
    /// A name that no attribute can have, or has already.
    Name,
    /// A header value that is not percent-encoded UTF-8.
    Utf8,
}

impl Fault {
    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing_attribute",
            Self::Value => "invalid_attribute",
            Self::Name => "invalid_attribute_name",
            Self::Utf8 => "invalid_utf8",
        }
    }
}

/// An attribute's value as a header (HTTP binding, section 3.1.3.2): blanks, `"`, `%` and all that is not visible
/// ASCII are percent-encoded bytes of UTF-8.
pub fn encode(value: &str) -> String {
    let mut header = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' => escape(&mut header, byte),
            0x21..=0x7e => header.push(char::from(byte)),
            _ => escape(&mut header, byte),
        }
    }
    header
}

/// The value behind a header: quotes of older senders off, then one round of percent-decoding.
pub fn decode(header: &str) -> Result<String, Fault> {
    let unquoted;
    let text = match header
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        Some(quoted) => {
            unquoted = unquote(quoted);
            &unquoted
        }
        None => header,
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, hex_pair(after)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Fault::Utf8)
}

/// Any text as a URI-reference: what cannot stand in one is percent-encoded. The same text gives the same reference,
/// and a text that is one already stays as it is.
pub fn uri_reference(text: &str) -> String {
    if is_uri_reference(text) {
        return text.to_owned();
    }
    let mut reference = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            reference.push(char::from(byte));
        } else {
            escape(&mut reference, byte);
        }
    }
    reference
}

/// Whether a text is a URI-reference (RFC 3986, section 4.1), as far as characters tell: an authority is not looked
/// into.
fn is_uri_reference(text: &str) -> bool {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let escaped = |text: &str| {
        text.split('%')
            .skip(1)
            .all(|part| hex_pair(part.as_bytes()).is_some())
    };
    let allowed = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte))
    };
    // A colon in the first part of a path makes that part a scheme.
    let first = rest.split(['/', '?']).next().unwrap_or_default();
    let scheme = match first.split_once(':') {
        None => true,
        Some((scheme, _)) => {
            scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                && scheme
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        }
    };
    // An address in brackets stands in an authority only, and ours name none.
    !text.is_empty()
        && scheme
        && [rest, fragment]
            .into_iter()
            .all(|part| allowed(part) && escaped(part))
}

fn valid_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Core attributes have their own types; the others take any text without control characters.
fn valid_value(name: &str, value: &Value) -> bool {
    const TEXTS: [&str; 7] = [
        "id",
        "source",
        "type",
        "subject",
        "time",
        "dataschema",
        "datacontenttype",
    ];
    let Value::Text(text) = value else {
        return !TEXTS.contains(&name);
    };
    if text.chars().any(forbidden) {
        return false;
    }
    match name {
        "source" | "dataschema" => is_uri_reference(text),
        "time" => is_timestamp(text),
        // Sent as a header of HTTP, not of the binding: without encoding.
        "datacontenttype" => {
            !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        }
        "id" | "type" | "subject" => !text.is_empty(),
        _ => true,
    }
}

/// Whether no string of the standard may hold a character: controls and what Unicode keeps for no use at all.
pub fn forbidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

/// Whether a text is an RFC 3339 date-time.
fn is_timestamp(text: &str) -> bool {
    let two = |at: usize| -> Option<u32> {
        let digits = text.get(at..at + 2)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let marks = [(4, "-"), (7, "-"), (13, ":"), (16, ":")];
    let checked = || {
        let year = two(0)? * 100 + two(2)?;
        let (month, day, hour, minute, second) = (two(5)?, two(8)?, two(11)?, two(14)?, two(17)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let rest = text.get(19..)?;
        let rest = match rest.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => rest,
        };
        let offset = rest.eq_ignore_ascii_case("z") || {
            let at = text.len().checked_sub(6)?;
            rest.len() == 6
                && rest.starts_with(['+', '-'])
                && text.get(at + 3..at + 4)? == ":"
                && two(at + 1)? < 24
                && two(at + 4)? < 60
        };
        let empty_fraction =
            text.get(19..20)? == "." && !text.get(20..21)?.bytes().all(|b| b.is_ascii_digit());
        let fits = (1..=days).contains(&day) && hour < 24 && minute < 60 && second <= 60;
        Some(fits && offset && !empty_fraction)
    };
    marks
        .into_iter()
        .all(|(at, mark)| text.get(at..at + 1) == Some(mark))
        && text
            .get(10..11)
            .is_some_and(|t| t.eq_ignore_ascii_case("t"))
        && checked() == Some(true)
}

fn unquote(quoted: &str) -> String {
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(c) = characters.next() {
        text.extend(if c == '\\' {
            characters.next()
        } else {
            Some(c)
        });
    }
    text
}

fn hex_pair(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn escape(text: &mut String, byte: u8) {
    // Writing to a text cannot fail.
    let _ = write!(text, "%{byte:02X}");
}

fn member(json: &mut String, name: &str) {
    json.push_str(",\"");
    json.push_str(name);
    json.push_str("\":");
}

fn string(json: &mut String, value: &str) {
    // Serialising a string fails only when the writer does, and memory does not.
    json.push_str(&serde_json::to_string(value).expect("a string is always JSON"));
}

#[cfg(test)]
#[path = "cloudevents_tests.rs"]
mod tests;
