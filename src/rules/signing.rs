//! Symmetric signatures of Standard Webhooks 1.0.0: making them, checking them, and the secrets behind them.
//!
//! A signature covers `id.timestamp.body`, byte for byte. The clock is an argument. Nothing here stores a
//! secret, and no error carries one: a [`Secret`] shows itself only when asked by [`Secret::expose`].

use std::error::Error;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// A symmetric key of 24-64 bytes; overwritten when dropped.
#[derive(Clone, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Reads `whsec_` and the key in standard base64, padding included; nothing is repaired.
    ///
    /// The bare base64 is taken, too, as the reference libraries do: receivers move from other senders with
    /// secrets that never had the prefix. It cannot be mistaken, since no prefix is valid base64.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PREFIX).unwrap_or(text);
        // The buffer is as long as the longest key, rounded up to whole groups of three.
        let mut buffer = Zeroizing::new([0; 66]);
        if encoded.len() > 88 {
            return Err(SecretError::Length);
        }
        let length = STANDARD
            .decode_slice(encoded, &mut buffer[..])
            .map_err(|_| SecretError::Encoding)?;
        Self::from_bytes(&buffer[..length])
    }

    /// The key with exactly these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if !(24..=64).contains(&bytes.len()) {
            return Err(SecretError::Length);
        }
        Ok(Self(bytes.to_vec()))
    }

    /// A new key made of 32 random bytes, the length recommended.
    pub fn generate(random: [u8; 32]) -> Self {
        Self(random.to_vec())
    }

    /// The key itself, for storing it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text that is handed to the receiver, once.
    pub fn expose(&self) -> String {
        // As long as it may become: a growing text would leave copies behind.
        let mut text = String::with_capacity(PREFIX.len() + 88);
        text.push_str(PREFIX);
        STANDARD.encode_string(&self.0, &mut text);
        text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A secret and the id under which it may be spoken of.
#[derive(Clone, Debug)]
pub struct SigningKey {
    /// What the header `webhook-key-id` and the attempts show.
    pub id: i64,
    /// The key.
    pub secret: Secret,
}

/// One signature, `v1,` and base64: what stands in `webhook-signature` for one key.
pub fn sign_v1(secret: &Secret, message_id: &str, timestamp: i64, body: &[u8]) -> String {
    let mac = signed_text(secret, message_id, &timestamp.to_string(), body);
    let mut text = String::from("v1,");
    STANDARD.encode_string(mac.finalize().into_bytes(), &mut text);
    text
}

/// The whole value of `webhook-signature`: one signature per key, separated by a space, in the keys' order.
pub fn signature_header(
    keys: &[SigningKey],
    message_id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let signatures: Vec<String> = keys
        .iter()
        .map(|key| sign_v1(&key.secret, message_id, timestamp, body))
        .collect();
    signatures.join(" ")
}

/// Whether a message id may be signed: visible ASCII, not empty, since it becomes a header.
pub fn valid_message_id(message_id: &str) -> bool {
    !message_id.is_empty() && message_id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A message as a receiver gets it; header names are matched by the caller, regardless of case.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The value of `webhook-id`.
    pub id: Option<&'a str>,
    /// The value of `webhook-timestamp`.
    pub timestamp: Option<&'a str>,
    /// The value of `webhook-signature`.
    pub signature: Option<&'a str>,
    /// The raw body.
    pub body: &'a [u8],
}

/// Checks that one of the keys signed the message not more than `tolerance` seconds from `now_unix`.
///
/// Returns the time of signing. Signatures other than `v1` are skipped, whatever they are, and the
/// comparison takes the same time for every wrong signature.
pub fn verify_v1<'a>(
    keys: &[Secret],
    message: &Received<'a>,
    now_unix: i64,
    tolerance: u64,
) -> Result<i64, Rejection> {
    let present = |value: Option<&'a str>| value.filter(|text| !text.is_empty());
    let (Some(id), Some(timestamp), Some(signatures)) = (
        present(message.id),
        present(message.timestamp),
        present(message.signature),
    ) else {
        return Err(Rejection::MissingHeader);
    };
    let signed_at = parse_timestamp(timestamp).ok_or(Rejection::BadTimestamp)?;
    if signed_at.abs_diff(now_unix) > tolerance {
        return Err(if signed_at < now_unix {
            Rejection::TooOld
        } else {
            Rejection::TooNew
        });
    }
    for key in keys {
        // The text as it was received is what was signed; a rewritten number might be another text.
        let mac = signed_text(key, id, timestamp, message.body);
        for signature in signatures.split(' ') {
            let decoded = signature
                .strip_prefix("v1,")
                .and_then(|encoded| STANDARD.decode(encoded).ok());
            if decoded.is_some_and(|bytes| mac.clone().verify_slice(&bytes).is_ok()) {
                return Ok(signed_at);
            }
        }
    }
    Err(Rejection::NoMatch)
}

/// Why a text is not a secret; the text stays out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// Not standard base64 with padding.
    Encoding,
    /// Fewer than 24 or more than 64 bytes.
    Length,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoding => "secret is not \"whsec_\" followed by standard base64 with padding",
            Self::Length => "secret must have 24 to 64 bytes",
        })
    }
}

impl Error for SecretError {}

/// Why a received message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// One of the three headers is absent or empty.
    MissingHeader,
    /// The timestamp is not a plain number of Unix seconds.
    BadTimestamp,
    /// Signed longer ago than the tolerance.
    TooOld,
    /// Signed further in the future than the tolerance.
    TooNew,
    /// No signature is one of these keys'.
    NoMatch,
}

impl Rejection {
    /// The word that is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingHeader => "missing_header",
            Self::BadTimestamp => "bad_timestamp",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::NoMatch => "no_match",
        }
    }
}

fn signed_text(secret: &Secret, message_id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length; the error exists for other algorithms of the trait.
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes any key");
    for part in [
        message_id.as_bytes(),
        b".",
        timestamp.as_bytes(),
        b".",
        body,
    ] {
        mac.update(part);
    }
    mac
}

/// Unix seconds in the one way we write them: digits, no sign, no leading zero.
///
/// More than 11 digits (the year 5138) are milliseconds of a confused sender, not seconds.
fn parse_timestamp(text: &str) -> Option<i64> {
    let plain = (1..=11).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

const PREFIX: &str = "whsec_";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn key(id: i64, byte: u8) -> SigningKey {
        SigningKey {
            id,
            secret: Secret::generate([byte; 32]),
        }
    }

    #[test]
    fn a_secret_never_shows_itself() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let key = SigningKey { id: 7, secret };
        assert_eq!(
            format!("{key:?}"),
            "SigningKey { id: 7, secret: Secret(..) }"
        );
    }

    #[test]
    fn only_24_to_64_bytes_make_a_secret() {
        for (length, accepted) in [(0, false), (23, false), (24, true), (64, true), (65, false)] {
            let bytes = vec![7; length];
            assert_eq!(Secret::from_bytes(&bytes).is_ok(), accepted, "{length}");
            let text = format!("whsec_{}", STANDARD.encode(&bytes));
            assert_eq!(Secret::parse(&text).is_ok(), accepted, "{length}");
        }
        let long = format!("whsec_{}", "A".repeat(100_000));
        assert_eq!(Secret::parse(&long).unwrap_err(), SecretError::Length);
    }

    #[test]
    fn base64_of_a_secret_is_never_repaired() {
        let good = Secret::generate([0xff; 32]).expose();
        assert!(Secret::parse(&good).is_ok());
        for text in [
            good.trim_end_matches('=').to_string(),
            format!("{good}="),
            format!(" {good}"),
            format!("{good}\n"),
            good.replace('/', "_"),
            // The last character carries two bits that belong to no byte; they must be zero.
            good.replace("8=", "9="),
            format!("whsec_{good}"),
        ] {
            assert_eq!(
                Secret::parse(&text).unwrap_err(),
                SecretError::Encoding,
                "{text}"
            );
        }
    }

    #[test]
    fn every_key_signs_in_the_order_given() {
        let keys = [key(2, 2), key(1, 1)];
        let header = signature_header(&keys, "evt_x", 1, b"{}");
        let expected: Vec<String> = keys
            .iter()
            .map(|key| sign_v1(&key.secret, "evt_x", 1, b"{}"))
            .collect();
        assert_eq!(header, expected.join(" "));
        assert_eq!(signature_header(&[], "evt_x", 1, b"{}"), "");
    }

    proptest! {
        #[test]
        fn secrets_round_trip(bytes in proptest::collection::vec(any::<u8>(), 24..=64)) {
            let secret = Secret::from_bytes(&bytes).unwrap();
            let again = Secret::parse(&secret.expose()).unwrap();
            prop_assert_eq!(again.as_bytes(), &bytes[..]);
        }

        #[test]
        fn a_secret_has_one_text_only(
            bytes in proptest::collection::vec(any::<u8>(), 24..=64), at: prop::sample::Index, other in "[A-Za-z0-9+/=_ \n-]",
        ) {
            // Whatever is changed about a text, what is still accepted is the text of the key that it stands for.
            let mut text = Secret::from_bytes(&bytes).unwrap().expose();
            let at = PREFIX.len() + at.index(text.len() - PREFIX.len());
            text.replace_range(at..=at, &other);
            if let Ok(secret) = Secret::parse(&text) {
                prop_assert_eq!(secret.expose(), text);
            }
        }

        #[test]
        fn no_text_makes_the_secret_parser_panic(text in ".{0,100}") {
            let _ = Secret::parse(&text);
        }

        #[test]
        fn what_any_key_signed_is_accepted_and_a_changed_body_is_not(
            bytes: [u8; 32], body in proptest::collection::vec(any::<u8>(), 0..100),
            at in 0i64..=99_999_999_999, other: u8,
        ) {
            let keys = [key(1, 9), SigningKey { id: 2, secret: Secret::generate(bytes) }];
            let timestamp = at.to_string();
            let header = signature_header(&keys, "evt_x", at, &body);
            let message = Received {
                id: Some("evt_x"),
                timestamp: Some(&timestamp),
                signature: Some(&header),
                body: &body,
            };
            let receiver = [keys[1].secret.clone()];
            prop_assert_eq!(verify_v1(&receiver, &message, at, 0), Ok(at));
            let mut changed = body.clone();
            changed.push(other);
            let message = Received { body: &changed, ..message };
            prop_assert_eq!(verify_v1(&receiver, &message, at, 0), Err(Rejection::NoMatch));
        }

        #[test]
        fn no_header_makes_the_check_panic(
            id in ".{0,9}", timestamp in ".{0,14}", signature in ".{0,40}", now: i64, tolerance: u64,
        ) {
            let message = Received {
                id: Some(&id),
                timestamp: Some(&timestamp),
                signature: Some(&signature),
                body: b"",
            };
            let _ = verify_v1(&[key(1, 1).secret], &message, now, tolerance);
        }
    }
}
