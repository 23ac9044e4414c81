//! What a request that is believed says of itself: which event it is, whose, of what type, about which subject.
//!
//! Where to look is the receiver's configuration, in one small language: `header:NAME`, `body:/pointer` (RFC 6901) or
//! `digest`. What stands there is the sender's: it is checked before it becomes a key of a table, and nothing of it
//! comes back in a refusal.

use std::borrow::Cow;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::rules::json;
use crate::rules::legacy_signature as legacy;
use crate::rules::matching::{reserved_partner, valid_partner, valid_type};
use crate::rules::profile::Profile;
use crate::rules::receive::{Headers, Vouched};

/// Where a value of a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// In the one header of this name.
    Header(String),
    /// In the body, a JSON pointer.
    Body(String),
    /// Nowhere: it is the SHA-256 of the body.
    Digest,
}

impl Locator {
    /// Reads a locator.
    pub fn parse(text: &str) -> Option<Locator> {
        if text == "digest" {
            return Some(Self::Digest);
        }
        if let Some(name) = text.strip_prefix("header:") {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            return ((1..=128).contains(&name.len()) && name.bytes().all(token))
                .then(|| Self::Header(name.to_ascii_lowercase()));
        }
        let pointer = text.strip_prefix("body:")?;
        (pointer.starts_with('/') && pointer.len() <= 256 && !pointer.contains('\0'))
            .then(|| Self::Body(pointer.to_owned()))
    }

    /// Where the id of an event stands. GitHub and Shopify put one into a header that they do not sign: whoever has seen a
    /// request could send its body again under another id, as another event. What they sign is the body, so that is the
    /// id.
    pub fn of_id(profile: Profile) -> Locator {
        match profile {
            Profile::V1 | Profile::V1a | Profile::HttpHmac | Profile::HttpEd25519 => {
                Self::Header("webhook-id".to_owned())
            }
            Profile::Github | Profile::GithubSha1 | Profile::Shopify => Self::Digest,
            Profile::Stripe => Self::Body("/id".to_owned()),
            Profile::Slack => Self::Body("/event_id".to_owned()),
        }
    }

    /// Where they put the type.
    pub fn of_type(profile: Profile) -> Locator {
        match profile {
            Profile::Github | Profile::GithubSha1 => Self::Header("x-github-event".to_owned()),
            Profile::Shopify => Self::Header("x-shopify-topic".to_owned()),
            Profile::Slack => Self::Body("/event/type".to_owned()),
            _ => Self::Body("/type".to_owned()),
        }
    }
}

/// The configuration of a source, as far as reading goes.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The source's profile.
    pub profile: Profile,
    /// The partner of every event; none = `partner_from` says.
    pub partner_id: Option<String>,
    /// Where the partner stands.
    pub partner_from: Option<Locator>,
    /// Partners that may be named; none = all.
    pub partners: Option<Vec<String>>,
    /// Where the id stands.
    pub id_from: Locator,
    /// Where the type stands.
    pub type_from: Locator,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The event.
    pub event_id: String,
    /// Its partner.
    pub partner_id: String,
    /// Its type; none = it says none, or nothing that could be one here.
    pub kind: Option<String>,
    /// Kind of the subject.
    pub subject_type: Option<String>,
    /// Identity of the subject.
    pub subject_id: Option<String>,
    /// Version of the subject.
    pub subject_version: Option<i64>,
    /// Version of the payload's schema.
    pub schema_version: Option<String>,
    /// What ties it to others.
    pub correlation_id: Option<String>,
}

/// Why a believed request cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It names no event, or not where a signature vouches for it.
    NoId,
    /// What should be the id cannot be one.
    BadId,
    /// It names no partner.
    NoPartner,
    /// It names a partner that the source may not speak for, or none that could be one.
    Partner,
}

impl Unread {
    /// The word that is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoId => "no_event_id",
            Self::BadId => "bad_event_id",
            Self::NoPartner => "no_partner",
            Self::Partner => "partner_refused",
        }
    }

    /// The HTTP status of the answer.
    pub const fn status(self) -> i32 {
        match self {
            Self::NoId | Self::BadId | Self::NoPartner => 422,
            Self::Partner => 403,
        }
    }
}

/// The body as JSON; none = it is none.
pub fn body_json(body: &[u8]) -> Option<Value> {
    // Two readings: this parser knows what JSON is, the other one refuses what is ambiguous.
    serde_json::from_slice::<Value>(body).ok()?;
    json::parse(std::str::from_utf8(body).ok()?).ok()
}

/// Reads a request that was believed.
pub fn read(
    reading: &Reading,
    headers: &Headers,
    vouched: &Vouched,
    body: &[u8],
    json: Option<&Value>,
) -> Result<Read, Unread> {
    // Under HTTP Message Signatures a header counts only when it is covered; elsewhere the profile decides what is.
    let only_covered = matches!(
        reading.profile,
        Profile::HttpHmac | Profile::HttpEd25519 | Profile::V1 | Profile::V1a
    );
    let text = |locator: &Locator| -> Option<String> {
        match locator {
            Locator::Digest => Some(
                Sha256::digest(body)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            ),
            Locator::Header(name) if only_covered && !vouched.headers.contains(name) => None,
            Locator::Header(name) => headers.one(name).ok()?.map(str::to_owned),
            Locator::Body(pointer) => scalar(json?.pointer(pointer)?).map(Cow::into_owned),
        }
    };
    let event_id = text(&reading.id_from).ok_or(Unread::NoId)?;
    if !valid_event_id(&event_id) {
        return Err(Unread::BadId);
    }
    let partner_id = match (&reading.partner_id, &reading.partner_from) {
        (Some(partner), _) => partner.clone(),
        // Whose it is, only what is signed may say, whatever the profile.
        (None, Some(Locator::Header(name))) if !vouched.headers.contains(name) => {
            return Err(Unread::NoPartner);
        }
        (None, Some(locator)) => text(locator).ok_or(Unread::NoPartner)?,
        (None, None) => return Err(Unread::NoPartner),
    };
    let listed = |partners: &Vec<String>| partners.contains(&partner_id);
    if !valid_partner(&partner_id)
        || reserved_partner(&partner_id)
        || !reading.partners.as_ref().is_none_or(listed)
    {
        return Err(Unread::Partner);
    }
    let member = |pointer: &str| json.and_then(|json| json.pointer(pointer));
    let words = |pointer: &str| {
        member(pointer)
            .and_then(scalar)
            .map(Cow::into_owned)
            .filter(|text| storable(text))
    };
    let (subject_type, subject_id) = match (words("/subject/type"), words("/subject/id")) {
        (Some(kind), Some(id)) => (Some(kind), Some(id)),
        _ => (None, None),
    };
    Ok(Read {
        event_id,
        partner_id,
        // Shopify's "orders/create" is a type of two parts.
        kind: text(&reading.type_from)
            .map(|kind| kind.replace('/', "."))
            .filter(|kind| valid_type(kind)),
        subject_version: subject_id
            .is_some()
            .then(|| member("/subject/version").and_then(Value::as_i64))
            .flatten(),
        subject_type,
        subject_id,
        schema_version: words("/schema_version"),
        // What the sender calls it, where that is not the id: good for looking it up there, and for nothing else.
        correlation_id: words("/correlation_id").or_else(|| {
            let name = match reading.profile {
                Profile::Github | Profile::GithubSha1 => legacy::GITHUB_ID,
                Profile::Shopify => legacy::SHOPIFY_ID,
                _ => return None,
            };
            let named = headers.one(name).ok()??.to_owned();
            (reading.id_from == Locator::Digest && valid_event_id(&named)).then_some(named)
        }),
    })
}

/// A text, or a number as it is written.
fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

fn valid_event_id(id: &str) -> bool {
    (1..=256).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// PostgreSQL holds no NUL, and an index no long text.
fn storable(text: &str) -> bool {
    (1..=512).contains(&text.len()) && !text.contains('\0')
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
