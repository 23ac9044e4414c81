//! SQL functions of the receiving side that need Rust: judging signatures and reading what arrived. Declared in
//! sql/39_inbox.sql and sql/56_verify.sql.
//!
//! What a peer sent is judged and never an error; only an unknown profile, a key that is none or headers that are not
//! texts are the caller's mistakes. No message carries a key, a header or a body.

use pgrx::JsonB;
use pgrx::datum::Interval;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::catalogue;
use super::emit::now_micros;
use super::error::{Raise, bad_argument, null_argument};
use super::outbox;
use crate::rules::challenge;
use crate::rules::inbound::{self, Locator, Read, Reading};
use crate::rules::policy::parse_schedule;
use crate::rules::profile::Profile;
use crate::rules::receive::{self, Headers, Incoming, OwnKey, Refusal};
use crate::rules::time::unix_seconds;

/// Most keys that a call may name.
const MOST_KEYS: usize = 20;

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn verify(
    profile: Option<&str>,
    keys: Option<Vec<Option<String>>>,
    headers: Option<JsonB>,
    body: Option<&[u8]>,
    tolerance: Option<Interval>,
    method: Option<&str>,
    url: Option<&str>,
    at: Option<TimestampWithTimeZone>,
) -> bool {
    judge(profile, keys, headers, body, tolerance, method, url, at).is_ok()
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn explain_signature(
    profile: Option<&str>,
    keys: Option<Vec<Option<String>>>,
    headers: Option<JsonB>,
    body: Option<&[u8]>,
    tolerance: Option<Interval>,
    method: Option<&str>,
    url: Option<&str>,
    at: Option<TimestampWithTimeZone>,
) -> &'static str {
    match judge(profile, keys, headers, body, tolerance, method, url, at) {
        Ok(()) => "valid",
        Err(refusal) => refusal.as_str(),
    }
}

#[allow(clippy::too_many_arguments)]
fn judge(
    profile: Option<&str>,
    keys: Option<Vec<Option<String>>>,
    headers: Option<JsonB>,
    body: Option<&[u8]>,
    tolerance: Option<Interval>,
    method: Option<&str>,
    url: Option<&str>,
    at: Option<TimestampWithTimeZone>,
) -> Result<(), Refusal> {
    let profile = known_profile(profile.unwrap_or_else(|| null_argument("profile")));
    let keys = own_keys(profile, keys.unwrap_or_else(|| null_argument("keys")));
    let headers = lines(headers.unwrap_or_else(|| null_argument("headers")));
    let body = body.unwrap_or_else(|| null_argument("body"));
    let tolerance = seconds(tolerance.unwrap_or_else(|| null_argument("tolerance")));
    let incoming = Incoming {
        method: method.unwrap_or_else(|| null_argument("method")),
        url,
        headers: &headers,
        body,
    };
    let now = at.map_or_else(now_micros, outbox::unix_micros);
    receive::verify(profile, &keys, &incoming, unix_seconds(now), tolerance).map(|_| ())
}

fn own_keys(profile: Profile, texts: Vec<Option<String>>) -> Vec<OwnKey> {
    if texts.is_empty() || texts.len() > MOST_KEYS {
        bad_argument("number of keys is not valid")
            .detail(format!(
                "There are {}; 1 to {MOST_KEYS} are accepted.",
                texts.len()
            ))
            .raise();
    }
    let read = |text: Option<String>| {
        let text = Zeroizing::new(text.unwrap_or_else(|| null_argument("keys")));
        own_key(profile, &text)
    };
    texts.into_iter().map(read).collect()
}

/// A key of the caller's own; an error, which does not repeat it, when it is none.
pub fn own_key(profile: Profile, text: &str) -> OwnKey {
    OwnKey::parse(profile, text).unwrap_or_else(|why| {
        bad_argument(why)
            .hint("Standard Webhooks and RFC 9421 take \"whsec_\" or \"whpk_\" and base64; github, stripe, slack and shopify the secret as that sender shows it.")
            .raise()
    })
}

/// The profile of this name; an error when there is none.
pub fn known_profile(name: &str) -> Profile {
    Profile::parse(name).unwrap_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        let names: Vec<&str> = Profile::ALL
            .iter()
            .map(|profile| profile.as_str())
            .collect();
        bad_argument(format!("signature profile \"{shown}\" does not exist"))
            .hint(format!("The profiles are {}.", names.join(", ")))
            .raise()
    })
}

/// The members of an object of texts, or of arrays of texts where a header was there several times.
fn lines(headers: JsonB) -> Headers {
    let refuse = || -> ! {
        bad_argument("headers are not an object of texts")
            .detail("Each member is the value of a header, or an array of them when the header was there several times.")
            .raise()
    };
    let serde_json::Value::Object(members) = headers.0 else {
        refuse()
    };
    let mut found = Vec::with_capacity(members.len());
    for (name, value) in members {
        match value {
            serde_json::Value::String(value) => found.push((name, value)),
            serde_json::Value::Array(values) => {
                for value in values {
                    match value {
                        serde_json::Value::String(value) => found.push((name.clone(), value)),
                        _ => refuse(),
                    }
                }
            }
            _ => refuse(),
        }
    }
    Headers::new(found)
}

fn seconds(tolerance: Interval) -> u64 {
    u64::try_from(tolerance.as_micros() / 1_000_000).unwrap_or_else(|_| {
        bad_argument("tolerance must not be negative")
            .hint("Five minutes are usual: '5 minutes'.")
            .raise()
    })
}

/// What `receive` needs to know of a request; the columns of `_inspect_received` in their order.
type Inspected = (
    Option<String>,
    Option<i32>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<String>,
);

/// Judges and reads a request to a source. The configuration comes from its row, so it is known to be good.
#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments, clippy::type_complexity)]
fn inspect_received(
    source_id: i64,
    profile: &str,
    tolerance: i64,
    partner_id: Option<String>,
    partner_from: Option<&str>,
    partners: Option<Vec<String>>,
    id_from: Option<&str>,
    type_from: Option<&str>,
    enforce: bool,
    headers: JsonB,
    body: &[u8],
    method: &str,
    url: Option<&str>,
) -> TableIterator<
    'static,
    (
        name!(refusal, Option<String>),
        name!(http_status, Option<i32>),
        name!(event_id, Option<String>),
        name!(partner_id, Option<String>),
        name!(event_type, Option<String>),
        name!(subject_type, Option<String>),
        name!(subject_id, Option<String>),
        name!(subject_version, Option<i64>),
        name!(schema_version, Option<String>),
        name!(correlation_id, Option<String>),
        name!(signed_at, Option<i64>),
        name!(answer, Option<String>),
    ),
> {
    let profile = known_profile(profile);
    let reading = Reading {
        profile,
        partner_id,
        partner_from: partner_from.and_then(Locator::parse),
        partners,
        id_from: id_from
            .and_then(Locator::parse)
            .unwrap_or_else(|| Locator::of_id(profile)),
        type_from: type_from
            .and_then(Locator::parse)
            .unwrap_or_else(|| Locator::of_type(profile)),
    };
    let headers = lines(headers);
    let incoming = Incoming {
        method,
        url,
        headers: &headers,
        body,
    };
    let found = inspect(
        source_id,
        &reading,
        &incoming,
        u64::try_from(tolerance).unwrap_or(0),
        enforce,
    );
    TableIterator::once(match found {
        Ok(inspected) => inspected,
        Err((refusal, status)) => {
            let mut inspected = nothing();
            inspected.0 = Some(refusal.to_owned());
            inspected.1 = Some(status);
            inspected
        }
    })
}

fn inspect(
    source_id: i64,
    reading: &Reading,
    incoming: &Incoming<'_>,
    tolerance: u64,
    enforce: bool,
) -> Result<Inspected, (&'static str, i32)> {
    let (mut keys, mut lost) = (Vec::new(), false);
    for key in outbox::inbox_keys(source_id) {
        let read = |bytes: Zeroizing<Vec<u8>>| {
            let text = std::str::from_utf8(&bytes).ok()?;
            OwnKey::parse(reading.profile, text).ok()
        };
        match key.ok().and_then(read) {
            Some(key) => keys.push(key),
            None => lost = true,
        }
    }
    // Our own trouble, and no reason to give an event up: the sender tries again.
    if keys.is_empty() {
        return Err((if lost { "key_unavailable" } else { "no_key" }, 503));
    }
    let now = unix_seconds(now_micros());
    let vouched = match receive::verify(reading.profile, &keys, incoming, now, tolerance) {
        Ok(vouched) => vouched,
        Err(Refusal::NoMatch) if lost => return Err(("key_unavailable", 503)),
        Err(refusal) => return Err((refusal.as_str(), 401)),
    };
    if let Some(answer) = challenge_answer(incoming.headers) {
        let mut inspected = nothing();
        inspected.11 = Some(answer);
        return Ok(inspected);
    }
    let json = inbound::body_json(incoming.body);
    let read = inbound::read(
        reading,
        incoming.headers,
        &vouched,
        incoming.body,
        json.as_ref(),
    )
    .map_err(|unread| (unread.as_str(), unread.status()))?;
    if enforce {
        check_schema(&read, json.as_ref()).map_err(|refusal| (refusal, 422))?;
    }
    Ok((
        None,
        None,
        Some(read.event_id),
        Some(read.partner_id),
        read.kind,
        read.subject_type,
        read.subject_id,
        read.subject_version,
        read.schema_version,
        read.correlation_id,
        vouched.signed_at,
        None,
    ))
}

fn nothing() -> Inspected {
    (
        None, None, None, None, None, None, None, None, None, None, None, None,
    )
}

/// A sender of ours that asks whether the URL is ours: it is answered with the value that it sent.
fn challenge_answer(headers: &Headers) -> Option<String> {
    let kind = headers.one("content-type").ok()??;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(challenge::CONTENT_TYPE) {
        return None;
    }
    headers
        .one(challenge::HEADER)
        .ok()?
        .filter(|value| value.len() <= 256)
        .map(str::to_owned)
}

/// Holds the payload against the catalogue: the version that the event names, or the current one.
fn check_schema(read: &Read, json: Option<&serde_json::Value>) -> Result<(), &'static str> {
    let json = json.ok_or("not_json")?;
    let kind = read.kind.as_deref().ok_or("unknown_type")?;
    let known = catalogue::event_type(kind).ok_or("unknown_type")?;
    if known.versions.is_empty() {
        return Ok(());
    }
    let version = known
        .versions
        .iter()
        .find(|version| match &read.schema_version {
            Some(name) => version.name == *name,
            None => version.current,
        })
        .ok_or("unknown_schema_version")?;
    let schema = version.schema().map_err(|_| "schema_unusable")?;
    schema
        .check(json.get("data").unwrap_or(json))
        .map_err(|_| "schema")
}

/// Refuses a place to look at that is none; the canonical form of a good one comes back.
#[pg_extern(sql = false)]
fn check_locator(name: &str, profile: &str, locator: &str) -> String {
    let profile = known_profile(profile);
    let covered = matches!(profile, Profile::HttpHmac | Profile::HttpEd25519);
    match Locator::parse(locator) {
        Some(Locator::Header(_)) if name == "partner_from" && !covered => {
            bad_argument("argument \"partner_from\" names a header that nobody signs")
                .detail("Under this profile no signature covers it: anybody could name a partner.")
                .hint("Use a member of the body, or one source for each partner.")
                .raise()
        }
        Some(Locator::Digest) if name != "id_from" => wrong_locator(name),
        Some(Locator::Header(header)) => format!("header:{header}"),
        Some(Locator::Body(pointer)) => format!("body:{pointer}"),
        Some(Locator::Digest) => "digest".to_owned(),
        None => wrong_locator(name),
    }
}

fn wrong_locator(name: &str) -> ! {
    Raise::new(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        format!("argument \"{name}\" is not valid"),
    )
    .detail("It is \"header:\" and the name of a header, \"body:\" and a JSON pointer, or for id_from \"digest\".")
    .raise()
}

/// Milliseconds between an attempt and the next one; null when there is no next one. The schedule was checked.
#[pg_extern(sql = false)]
fn schedule_wait(schedule: &str, attempt: i32) -> Option<i64> {
    let waits = parse_schedule(schedule).unwrap_or_default();
    let index = usize::try_from(attempt.checked_sub(1)?).ok()?;
    i64::try_from(waits.get(index)?.as_millis()).ok()
}
