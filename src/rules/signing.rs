//! Signatures of Standard Webhooks 1.0.0: making them, checking them, and the symmetric secrets behind them (the
//! asymmetric ones are in `ed25519`).
//!
//! A signature covers `id.timestamp.body`, byte for byte. The clock is an argument. Nothing here stores a
//! secret, and no error carries one: a [`Secret`] shows itself only when asked by [`Secret::expose`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::rules::ed25519::{KeyPair, PublicKey};

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

/// What signs: the two kinds of key that there are.
#[derive(Clone, Debug)]
pub enum Key {
    /// HMAC-SHA256; the receiver holds the same key.
    Symmetric(Secret),
    /// ed25519; the receiver holds the public half. Seven times as large as a secret, which nearly all keys are.
    Asymmetric(Arc<KeyPair>),
}

impl From<Secret> for Key {
    fn from(secret: Secret) -> Self {
        Self::Symmetric(secret)
    }
}

impl From<KeyPair> for Key {
    fn from(pair: KeyPair) -> Self {
        Self::Asymmetric(Arc::new(pair))
    }
}

impl Key {
    /// The signature of a text as it stands, HMAC-SHA256 or ed25519.
    pub fn sign(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Symmetric(secret) => mac_of(secret, &[text]).finalize().into_bytes().to_vec(),
            Self::Asymmetric(pair) => pair.sign(text).to_vec(),
        }
    }

    /// Which kind it is.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Symmetric(_) => Algorithm::HmacSha256,
            Self::Asymmetric(_) => Algorithm::Ed25519,
        }
    }
}

/// The two kinds of key, by the names of RFC 9421's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `hmac-sha256`.
    HmacSha256,
    /// `ed25519`.
    Ed25519,
}

impl Algorithm {
    /// The registered name, which is also what is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Algorithm> {
        match name {
            "hmac-sha256" => Some(Self::HmacSha256),
            "ed25519" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

/// A key and the id under which it may be spoken of.
#[derive(Clone, Debug)]
pub struct SigningKey {
    /// What the header `webhook-key-id` and the attempts show.
    pub id: i64,
    /// The key.
    pub key: Key,
}

/// One signature, what stands in `webhook-signature` for one key: `v1,` or `v1a,` and base64.
pub fn sign(key: &Key, message_id: &str, timestamp: i64, body: &[u8]) -> String {
    let timestamp = timestamp.to_string();
    let mut text;
    match key {
        Key::Symmetric(secret) => {
            text = String::from(V1);
            let mac = signed_text(secret, message_id, &timestamp, body);
            STANDARD.encode_string(mac.finalize().into_bytes(), &mut text);
        }
        Key::Asymmetric(pair) => {
            text = String::from(V1A);
            let signature = pair.sign(&joined(message_id, &timestamp, body));
            STANDARD.encode_string(signature, &mut text);
        }
    }
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
        .map(|key| sign(&key.key, message_id, timestamp, body))
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

/// What checks a signature.
#[derive(Clone, Debug)]
pub enum VerifyingKey {
    /// The key that signed, too.
    Symmetric(Secret),
    /// The public half of the one that signed.
    Public(PublicKey),
}

impl VerifyingKey {
    /// Whether a signature is of this text; the time it takes does not tell how wrong it is.
    pub fn accepts(&self, text: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Symmetric(secret) => mac_of(secret, &[text]).verify_slice(signature).is_ok(),
            Self::Public(key) => key.verify(text, signature),
        }
    }

    /// Which kind it is.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Symmetric(_) => Algorithm::HmacSha256,
            Self::Public(_) => Algorithm::Ed25519,
        }
    }
}

impl From<Secret> for VerifyingKey {
    fn from(secret: Secret) -> Self {
        Self::Symmetric(secret)
    }
}

impl From<PublicKey> for VerifyingKey {
    fn from(key: PublicKey) -> Self {
        Self::Public(key)
    }
}

/// Checks that one of the keys signed the message not more than `tolerance` seconds from `now_unix`.
///
/// Returns the time of signing. A key looks at signatures of its own kind only: an HMAC under the bytes of a public
/// key must never pass. Other signatures are skipped, whatever they are, and the comparison takes the same time
/// for every wrong signature.
pub fn verify<'a>(
    keys: &[VerifyingKey],
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
    // Each is compared with what each key signs: a stranger must not have that done as often as he likes.
    if signatures.split(' ').nth(MOST_SIGNATURES).is_some() {
        return Err(Rejection::TooMany);
    }
    let signed_at = parse_timestamp(timestamp).ok_or(Rejection::BadTimestamp)?;
    if signed_at.abs_diff(now_unix) > tolerance {
        return Err(if signed_at < now_unix {
            Rejection::TooOld
        } else {
            Rejection::TooNew
        });
    }
    let decoded =
        |signature: &str, scheme: &str| STANDARD.decode(signature.strip_prefix(scheme)?).ok();
    for key in keys {
        // The text as it was received is what was signed; a rewritten number might be another text.
        let matches = match key {
            VerifyingKey::Symmetric(secret) => {
                let mac = signed_text(secret, id, timestamp, message.body);
                signatures
                    .split(' ')
                    .filter_map(|signature| decoded(signature, V1))
                    .any(|bytes| mac.clone().verify_slice(&bytes).is_ok())
            }
            VerifyingKey::Public(public) => {
                let signed = joined(id, timestamp, message.body);
                signatures
                    .split(' ')
                    .filter_map(|signature| decoded(signature, V1A))
                    .any(|bytes| public.verify(&signed, &bytes))
            }
        };
        if matches {
            return Ok(signed_at);
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
    /// More signatures than anybody needs.
    TooMany,
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
            Self::TooMany => "too_many_signatures",
        }
    }
}

fn signed_text(secret: &Secret, message_id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    mac_of(
        secret,
        &[
            message_id.as_bytes(),
            b".",
            timestamp.as_bytes(),
            b".",
            body,
        ],
    )
}

fn mac_of(secret: &Secret, parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of any length; the error exists for other algorithms of the trait.
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// The signed text in one piece, which ed25519 reads twice.
fn joined(message_id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [message_id.as_bytes(), timestamp.as_bytes(), body].join(&b'.')
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

/// Most signatures of one request: those of every key in force, twice over.
pub const MOST_SIGNATURES: usize = 20;
const PREFIX: &str = "whsec_";
const V1: &str = "v1,";
const V1A: &str = "v1a,";

#[cfg(test)]
#[path = "signing_tests.rs"]
mod tests;
