//! Judging what arrives: whether one of the receiver's own keys signed a request, under each signature profile.
//!
//! Whatever a peer sends is judged, never an error: only the receiver's own profile and keys can be misuse. The clock
//! is an argument. Comparisons are those of the HMAC and ed25519 crates, whose time tells nothing of the wrong bytes.

use std::fmt;

use zeroize::Zeroizing;

use crate::rules::digest;
use crate::rules::ed25519::PublicKey;
use crate::rules::http_signature::{self, Fault, Request};
use crate::rules::legacy_signature as legacy;
use crate::rules::profile::Profile;
use crate::rules::signing::{self, MOST_SIGNATURES, Rejection, Secret, VerifyingKey};

/// Header lines of a request, names in any case.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// These lines, in their order.
    pub fn new(lines: Vec<(String, String)>) -> Headers {
        Headers(lines)
    }

    /// The lines of this name.
    pub fn all<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        self.0
            .iter()
            .filter(move |(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The one line of this name; two of them could mean two things to two readers, so they are refused.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut lines = self.0.iter().filter_map(|(given, value)| {
            given.eq_ignore_ascii_case(name).then_some(value.as_str())
        });
        match (lines.next(), lines.next()) {
            (_, Some(_)) => Err(Refusal::RepeatedHeader),
            (line, None) => Ok(line),
        }
    }

    fn needed(&self, name: &str) -> Result<&str, Refusal> {
        self.one(name)?
            .filter(|line| !line.is_empty())
            .ok_or(Refusal::MissingHeader)
    }

    fn joined(&self, name: &str, separator: &str) -> Option<String> {
        let lines: Vec<&str> = self.all(name).collect();
        (!lines.is_empty()).then(|| lines.join(separator))
    }
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its method.
    pub method: &'a str,
    /// The absolute URL that it was sent to; none = not known, so that no signature can cover a part of it.
    pub url: Option<&'a str>,
    /// Its header lines.
    pub headers: &'a Headers,
    /// The raw body.
    pub body: &'a [u8],
}

/// A key of the receiver, as its profile needs it.
#[derive(Clone)]
pub enum OwnKey {
    /// Of Standard Webhooks and HTTP Message Signatures.
    Key(VerifyingKey),
    /// Of the others: the text as it is.
    Text(Zeroizing<String>),
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnKey(..)")
    }
}

impl OwnKey {
    /// Reads a key: `whsec_` or `whpk_` and base64, or for the profiles of other senders any text. The error is the
    /// beginning of a sentence and carries nothing of the key.
    pub fn parse(profile: Profile, text: &str) -> Result<OwnKey, String> {
        if is_text_keyed(profile) {
            return if text.is_empty() || text.len() > LONGEST_TEXT {
                Err(format!("key must have 1 to {LONGEST_TEXT} bytes"))
            } else {
                Ok(Self::Text(Zeroizing::new(text.to_owned())))
            };
        }
        if text.starts_with("whsk_") {
            return Err("key is a private one: a receiver needs the public half, \"whpk_\"".into());
        }
        // A public key without its prefix would be taken for a secret: whoever knows it could sign.
        if matches!(profile, Profile::V1a | Profile::HttpEd25519)
            && !text.starts_with("whpk_")
            && !text.starts_with("whsec_")
        {
            return Err("key does not begin with \"whpk_\" or \"whsec_\"".to_owned());
        }
        if text.starts_with("whpk_") {
            return PublicKey::parse(text)
                .map(|key| Self::Key(key.into()))
                .map_err(|error| error.to_string());
        }
        Secret::parse(text)
            .map(|secret| Self::Key(secret.into()))
            .map_err(|error| error.to_string())
    }

    /// Whether it is a public one.
    pub const fn is_public(&self) -> bool {
        matches!(self, Self::Key(VerifyingKey::Public(_)))
    }
}

/// Whether the profile's keys are texts of any form.
pub const fn is_text_keyed(profile: Profile) -> bool {
    matches!(
        profile,
        Profile::Github | Profile::GithubSha1 | Profile::Stripe | Profile::Slack | Profile::Shopify
    )
}

/// What a signature that holds vouches for, besides the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vouched {
    /// When it was made, Unix seconds; none = the profile signs no time.
    pub signed_at: Option<i64>,
    /// Names of the headers that it covers, lower case.
    pub headers: Vec<String>,
}

/// Why a request is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A header that the profile needs is absent or empty.
    MissingHeader,
    /// A header that there may be once is there twice.
    RepeatedHeader,
    /// The time is not a plain number of Unix seconds.
    BadTimestamp,
    /// Signed longer ago than the tolerance, or expired.
    TooOld,
    /// Signed further in the future than the tolerance.
    TooNew,
    /// No signature is one of these keys'.
    NoMatch,
    /// A signature that does not parse.
    Malformed,
    /// A signature covers something that the request does not have, or that is not known here.
    Component,
    /// A signature holds, but leaves out the digest of the body or its own time.
    NotCovered,
    /// The digest is not that of the body.
    Digest,
    /// More signatures, or more components of one, than anybody needs.
    TooMany,
}

impl Refusal {
    /// The word that is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingHeader => "missing_header",
            Self::RepeatedHeader => "repeated_header",
            Self::BadTimestamp => "bad_timestamp",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::NoMatch => "no_match",
            Self::Malformed => "malformed_signature",
            Self::Component => "invalid_component",
            Self::NotCovered => "not_covered",
            Self::Digest => "digest_mismatch",
            Self::TooMany => "too_many_signatures",
        }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::MissingHeader => Self::MissingHeader,
            Rejection::BadTimestamp => Self::BadTimestamp,
            Rejection::TooOld => Self::TooOld,
            Rejection::TooNew => Self::TooNew,
            Rejection::NoMatch => Self::NoMatch,
            Rejection::TooMany => Self::TooMany,
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Component | Fault::HeaderValue => Self::Component,
            Fault::Syntax => Self::Malformed,
            Fault::NoMatch => Self::NoMatch,
            Fault::TooMany => Self::TooMany,
        }
    }
}

/// Judges a request: one of the keys must have signed it, not more than `tolerance` seconds from `now` where the
/// profile signs a time.
pub fn verify(
    profile: Profile,
    keys: &[OwnKey],
    incoming: &Incoming<'_>,
    now: i64,
    tolerance: u64,
) -> Result<Vouched, Refusal> {
    match profile {
        Profile::V1 | Profile::V1a => standard(keys, incoming, now, tolerance),
        Profile::HttpHmac | Profile::HttpEd25519 => http(keys, incoming, now, tolerance),
        _ => as_others_do(profile, keys, incoming, now, tolerance),
    }
}

fn standard(
    keys: &[OwnKey],
    incoming: &Incoming<'_>,
    now: i64,
    tolerance: u64,
) -> Result<Vouched, Refusal> {
    let headers = incoming.headers;
    // The one header that may be a list: a proxy may have split it.
    let signature = headers.joined("webhook-signature", " ");
    let message = signing::Received {
        id: headers.one("webhook-id")?,
        timestamp: headers.one("webhook-timestamp")?,
        signature: signature.as_deref(),
        body: incoming.body,
    };
    let keys: Vec<VerifyingKey> = verifying(keys).cloned().collect();
    let signed_at = signing::verify(&keys, &message, now, tolerance)?;
    Ok(Vouched {
        signed_at: Some(signed_at),
        headers: vec!["webhook-id".to_owned(), "webhook-timestamp".to_owned()],
    })
}

/// RFC 9421. The signature must say when it was made and cover `content-digest`; that must fit the body. An empty body
/// needs no digest: there is nothing to change.
fn http(
    keys: &[OwnKey],
    incoming: &Incoming<'_>,
    now: i64,
    tolerance: u64,
) -> Result<Vouched, Refusal> {
    let headers = incoming.headers;
    let input = headers.joined("signature-input", ", ");
    let signature = headers.joined("signature", ", ");
    let (Some(input), Some(signature)) = (input, signature) else {
        return Err(Refusal::MissingHeader);
    };
    let request = Request {
        method: incoming.method,
        // Not a URL: whatever part of one a signature covers has no value then.
        url: incoming.url.unwrap_or_default(),
        headers: &headers.0,
    };
    let mut refusal = Refusal::NoMatch;
    for key in verifying(keys) {
        let verified = match http_signature::verify(&request, &input, &signature, key) {
            Ok(verified) => verified,
            Err(fault) => {
                refusal = fault.into();
                continue;
            }
        };
        let created = verified.created.ok_or(Refusal::NotCovered)?;
        check_time(created, now, tolerance)?;
        if verified.expires.is_some_and(|expires| expires < now) {
            return Err(Refusal::TooOld);
        }
        let covered: Vec<String> = verified
            .components
            .iter()
            .filter_map(|component| component.strip_prefix('"')?.strip_suffix('"'))
            .map(str::to_owned)
            .collect();
        let has_digest = covered.iter().any(|name| name == "content-digest");
        match headers.joined("content-digest", ", ") {
            Some(header) if has_digest => {
                if !digest::fits(&header, incoming.body) {
                    return Err(Refusal::Digest);
                }
            }
            _ if incoming.body.is_empty() => {}
            _ => return Err(Refusal::NotCovered),
        }
        return Ok(Vouched {
            signed_at: Some(created),
            headers: covered,
        });
    }
    Err(refusal)
}

fn as_others_do(
    profile: Profile,
    keys: &[OwnKey],
    incoming: &Incoming<'_>,
    now: i64,
    tolerance: u64,
) -> Result<Vouched, Refusal> {
    let (headers, body) = (incoming.headers, incoming.body);
    let texts = || {
        keys.iter().filter_map(|key| match key {
            OwnKey::Text(text) => Some(text.as_str()),
            OwnKey::Key(_) => None,
        })
    };
    let time_of = |text: &str| text.parse::<i64>().map_err(|_| Refusal::BadTimestamp);
    let (signed_at, matches) = match profile {
        Profile::Stripe => {
            let header = headers.needed(legacy::STRIPE)?;
            // The time is one of the parts.
            if header.split(',').nth(MOST_SIGNATURES + 1).is_some() {
                return Err(Refusal::TooMany);
            }
            let at = time_of(legacy::stripe_time(header).ok_or(Refusal::BadTimestamp)?)?;
            check_time(at, now, tolerance)?;
            let fits =
                texts().any(|text| legacy::verify_stripe(text, body, header, now, tolerance));
            (Some(at), fits)
        }
        Profile::Slack => {
            let header = headers.needed(legacy::SLACK)?;
            let time = headers.needed(legacy::SLACK_TIMESTAMP)?;
            let at = time_of(time)?;
            check_time(at, now, tolerance)?;
            let fits =
                texts().any(|text| legacy::verify_slack(text, body, header, time, now, tolerance));
            (Some(at), fits)
        }
        Profile::Shopify => {
            let header = headers.needed(legacy::SHOPIFY)?;
            (
                None,
                texts().any(|text| legacy::verify_shopify(text, body, header)),
            )
        }
        // Of the two that GitHub sends, the one that is not SHA-1.
        _ => {
            let header = headers.needed(legacy::GITHUB)?;
            (
                None,
                texts().any(|text| legacy::verify_github(text, body, header)),
            )
        }
    };
    if !matches {
        return Err(Refusal::NoMatch);
    }
    Ok(Vouched {
        signed_at,
        headers: Vec::new(),
    })
}

fn verifying(keys: &[OwnKey]) -> impl Iterator<Item = &VerifyingKey> {
    keys.iter().filter_map(|key| match key {
        OwnKey::Key(key) => Some(key),
        OwnKey::Text(_) => None,
    })
}

fn check_time(signed_at: i64, now: i64, tolerance: u64) -> Result<(), Refusal> {
    if signed_at.abs_diff(now) <= tolerance {
        Ok(())
    } else if signed_at < now {
        Err(Refusal::TooOld)
    } else {
        Err(Refusal::TooNew)
    }
}

/// Longest key that is any text, in bytes.
const LONGEST_TEXT: usize = 512;

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
