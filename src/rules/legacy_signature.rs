//! Signatures as GitHub, Stripe, Slack and Shopify make them, for receivers that were written for those.
//!
//! Each has its own signed text and header; the key is the secret's text as it is, prefix and all. GitHub's and
//! Shopify's sign the body alone: they prove who sent it, not when.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// GitHub's header.
pub const GITHUB: &str = "x-hub-signature-256";
/// The header in which GitHub's receivers look for the id of what was delivered.
pub const GITHUB_ID: &str = "x-github-delivery";
/// GitHub's older header, HMAC-SHA1.
pub const GITHUB_SHA1: &str = "x-hub-signature";
/// Stripe's header.
pub const STRIPE: &str = "stripe-signature";
/// Slack's header.
pub const SLACK: &str = "x-slack-signature";
/// The header with the time that Slack's signature covers.
pub const SLACK_TIMESTAMP: &str = "x-slack-request-timestamp";
/// The header in which Shopify's receivers look for the id.
pub const SHOPIFY_ID: &str = "x-shopify-webhook-id";
/// Shopify's header.
pub const SHOPIFY: &str = "x-shopify-hmac-sha256";

/// GitHub: `sha256=` and the hexadecimal HMAC-SHA256 of the body.
pub fn github(secret: &str, body: &[u8]) -> String {
    format!(
        "sha256={}",
        hex(&sha256(secret, &[body]).finalize().into_bytes())
    )
}

/// GitHub's older form: `sha1=` and the hexadecimal HMAC-SHA1 of the body.
pub fn github_sha1(secret: &str, body: &[u8]) -> String {
    // HMAC takes keys of any length; the error exists for other algorithms of the trait.
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes any key");
    mac.update(body);
    format!("sha1={}", hex(&mac.finalize().into_bytes()))
}

/// Stripe: the time, and the hexadecimal HMAC-SHA256 of `time.body` for each secret.
pub fn stripe<'a>(
    secrets: impl IntoIterator<Item = &'a str>,
    timestamp: i64,
    body: &[u8],
) -> String {
    let time = timestamp.to_string();
    let mut header = format!("t={time}");
    for secret in secrets {
        let mac = sha256(secret, &[time.as_bytes(), b".", body]);
        header.push_str(",v1=");
        header.push_str(&hex(&mac.finalize().into_bytes()));
    }
    header
}

/// Slack: `v0=` and the hexadecimal HMAC-SHA256 of `v0:time:body`.
pub fn slack(secret: &str, timestamp: i64, body: &[u8]) -> String {
    let mac = slack_mac(secret, &timestamp.to_string(), body);
    format!("v0={}", hex(&mac.finalize().into_bytes()))
}

/// Shopify: the base64 of the HMAC-SHA256 of the body.
pub fn shopify(secret: &str, body: &[u8]) -> String {
    STANDARD.encode(sha256(secret, &[body]).finalize().into_bytes())
}

/// Whether GitHub's header fits the body.
pub fn verify_github(secret: &str, body: &[u8], header: &str) -> bool {
    header
        .strip_prefix("sha256=")
        .and_then(unhex)
        .is_some_and(|signature| sha256(secret, &[body]).verify_slice(&signature).is_ok())
}

/// The time in Stripe's header, as it stands there.
pub fn stripe_time(header: &str) -> Option<&str> {
    header
        .split(',')
        .filter_map(|part| part.split_once('='))
        .find_map(|(name, value)| (name == "t").then_some(value))
}

/// Whether one of the `v1` signatures of Stripe's header fits the body and the time in it, which is at most
/// `tolerance` seconds from now. Other schemes are skipped.
pub fn verify_stripe(secret: &str, body: &[u8], header: &str, now: i64, tolerance: u64) -> bool {
    let parts = || header.split(',').filter_map(|part| part.split_once('='));
    let Some(time) = stripe_time(header) else {
        return false;
    };
    if !recent(time, now, tolerance) {
        return false;
    }
    let mac = sha256(secret, &[time.as_bytes(), b".", body]);
    parts()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, value)| unhex(value))
        .any(|signature| mac.clone().verify_slice(&signature).is_ok())
}

/// Whether Slack's header fits the body and the time, which is at most `tolerance` seconds from now.
pub fn verify_slack(
    secret: &str,
    body: &[u8],
    header: &str,
    timestamp: &str,
    now: i64,
    tolerance: u64,
) -> bool {
    recent(timestamp, now, tolerance)
        && header
            .strip_prefix("v0=")
            .and_then(unhex)
            .is_some_and(|signature| {
                slack_mac(secret, timestamp, body)
                    .verify_slice(&signature)
                    .is_ok()
            })
}

/// Whether Shopify's header fits the body.
pub fn verify_shopify(secret: &str, body: &[u8], header: &str) -> bool {
    STANDARD
        .decode(header)
        .is_ok_and(|signature| sha256(secret, &[body]).verify_slice(&signature).is_ok())
}

fn slack_mac(secret: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    sha256(secret, &[b"v0:", timestamp.as_bytes(), b":", body])
}

fn sha256(secret: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    // As above.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Digits only: what was signed is the text, and a sign or a blank would make another one of it.
fn recent(timestamp: &str, now: i64, tolerance: u64) -> bool {
    let digits =
        (1..=11).contains(&timestamp.len()) && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    digits
        && timestamp
            .parse::<i64>()
            .is_ok_and(|at| at.abs_diff(now) <= tolerance)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower-case digits, as all of these senders write them.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_signed_is_accepted_and_a_changed_body_is_not(
            secret in ".{1,30}", other in ".{1,30}", body in proptest::collection::vec(any::<u8>(), 0..60),
            at in 0i64..=99_999_999_999, more: u8,
        ) {
            let mut changed = body.clone();
            changed.push(more);
            let time = at.to_string();
            let check = |secret: &str, body: &[u8], signed: &str| {
                let (two, one) = (stripe([other.as_str(), signed], at, &changed[..changed.len() - 1]), signed);
                let original = &changed[..changed.len() - 1];
                [
                    verify_github(secret, body, &github(one, original)),
                    verify_stripe(secret, body, &two, at, 0),
                    verify_slack(secret, body, &slack(one, at, original), &time, at, 0),
                    verify_shopify(secret, body, &shopify(one, original)),
                ]
            };
            prop_assert_eq!(check(&secret, &body, &secret), [true; 4]);
            prop_assert_eq!(check(&secret, &changed, &secret), [false; 4]);
            // HMAC fills a short key up with zeros: those two are one key.
            if other.trim_end_matches('\0') != secret.trim_end_matches('\0') {
                let accepted = check(&secret, &body, &other);
                prop_assert_eq!(accepted, [false; 4]);
            }
            prop_assert!(!verify_stripe(&secret, &body, &stripe([secret.as_str()], at, &body), at + 301, 300));
            prop_assert!(!verify_slack(&secret, &body, &slack(&secret, at, &body), &time, at - 301, 300));
        }

        #[test]
        fn no_header_makes_a_check_panic(header in ".{0,60}", time in ".{0,14}", now: i64, tolerance: u64) {
            verify_github("s", b"", &header);
            verify_stripe("s", b"", &header, now, tolerance);
            verify_slack("s", b"", &header, &time, now, tolerance);
            verify_shopify("s", b"", &header);
            let _ = unhex(&header);
        }
    }
}
