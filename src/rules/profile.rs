//! Signature profiles: which headers prove to a receiver that a request is ours. An endpoint has one; what it needs
//! is signed at the moment of sending, whatever the format of the body.
//!
//! `webhook-id` and `webhook-timestamp` are sent under every profile. Under those of GitHub and Shopify no signature
//! covers them, and under Stripe's and Slack's the time alone: those receivers look for the id in the body.

use sfv::{Integer, KeyRef, Parameters};
use zeroize::Zeroizing;

use crate::rules::digest::{self, content_digest};
use crate::rules::http_signature::{self, Request};
use crate::rules::legacy_signature as legacy;
use crate::rules::signing::{Algorithm, Key, SigningKey, signature_header};

/// A way to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Profile {
    /// Standard Webhooks with a symmetric key.
    #[default]
    V1,
    /// Standard Webhooks with ed25519.
    V1a,
    /// HTTP Message Signatures with HMAC-SHA256.
    HttpHmac,
    /// HTTP Message Signatures with ed25519.
    HttpEd25519,
    /// GitHub's.
    Github,
    /// GitHub's with its older header beside it.
    GithubSha1,
    /// Stripe's.
    Stripe,
    /// Slack's.
    Slack,
    /// Shopify's.
    Shopify,
}

/// A request that is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Value of `webhook-id`.
    pub id: &'a str,
    /// Unix seconds.
    pub timestamp: i64,
    /// Where it goes.
    pub url: &'a str,
    /// The headers that say what it is: content type, attributes.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
}

/// What a profile adds to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Headers: id, time and signatures.
    pub headers: Vec<(String, String)>,
    /// The keys that signed, in order; none = there is no key that could.
    pub key_ids: Vec<i64>,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 9] = [
        Self::V1,
        Self::V1a,
        Self::HttpHmac,
        Self::HttpEd25519,
        Self::Github,
        Self::GithubSha1,
        Self::Stripe,
        Self::Slack,
        Self::Shopify,
    ];

    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.as_str() == name)
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1a => "v1a",
            Self::HttpHmac => "rfc9421-hmac-sha256",
            Self::HttpEd25519 => "rfc9421-ed25519",
            Self::Github => "github",
            Self::GithubSha1 => "github-sha1",
            Self::Stripe => "stripe",
            Self::Slack => "slack",
            Self::Shopify => "shopify",
        }
    }

    /// The kind of key that an endpoint with this profile is given.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::V1a | Self::HttpEd25519 => Algorithm::Ed25519,
            _ => Algorithm::HmacSha256,
        }
    }

    /// Names of the headers that it adds: the signature, and the id where its receivers look for that.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::V1 | Self::V1a => &["webhook-signature"],
            Self::HttpHmac | Self::HttpEd25519 => {
                &["content-digest", "signature-input", "signature"]
            }
            Self::Github => &[legacy::GITHUB_ID, legacy::GITHUB],
            Self::GithubSha1 => &[legacy::GITHUB_ID, legacy::GITHUB_SHA1, legacy::GITHUB],
            Self::Stripe => &[legacy::STRIPE],
            Self::Slack => &[legacy::SLACK, legacy::SLACK_TIMESTAMP],
            Self::Shopify => &[legacy::SHOPIFY_ID, legacy::SHOPIFY],
        }
    }

    /// Signs a request with these keys, newest first.
    ///
    /// Where a profile has room for one signature, the key that has been valid longest makes it: during a rotation a
    /// receiver goes on with the former key until it confirms the new one, or the overlap ends.
    pub fn sign(
        self,
        keys: &[SigningKey],
        outgoing: &Outgoing<'_>,
    ) -> Result<Signed, &'static str> {
        let (headers, key_ids) = match self {
            Self::V1 | Self::V1a => {
                let value = signature_header(keys, outgoing.id, outgoing.timestamp, outgoing.body);
                (vec![("webhook-signature", value)], ids(keys))
            }
            // Public verifiers refuse a message when one of its signatures is by a key that they do not know.
            Self::HttpHmac | Self::HttpEd25519 => match keys.last() {
                Some(key) => (http(key, outgoing)?, vec![key.id]),
                None => (Vec::new(), Vec::new()),
            },
            Self::Github | Self::GithubSha1 | Self::Stripe | Self::Slack | Self::Shopify => {
                self.sign_as_others_do(keys, outgoing)
            }
        };
        let mut all = vec![
            ("webhook-id".to_owned(), outgoing.id.to_owned()),
            (
                "webhook-timestamp".to_owned(),
                outgoing.timestamp.to_string(),
            ),
        ];
        all.extend(
            headers
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
        Ok(Signed {
            headers: all,
            key_ids,
        })
    }

    fn sign_as_others_do(
        self,
        keys: &[SigningKey],
        outgoing: &Outgoing<'_>,
    ) -> (Headers, Vec<i64>) {
        let secrets: Vec<(i64, Zeroizing<String>)> = keys
            .iter()
            .filter_map(|key| match &key.key {
                Key::Symmetric(secret) => Some((key.id, Zeroizing::new(secret.expose()))),
                Key::Asymmetric(_) => None,
            })
            .collect();
        let Some((id, secret)) = secrets.last() else {
            return (Vec::new(), Vec::new());
        };
        let (body, at) = (outgoing.body, outgoing.timestamp);
        let id_as = |name| (name, outgoing.id.to_owned());
        let headers = match self {
            Self::Stripe => {
                let texts = secrets.iter().map(|(_, secret)| secret.as_str());
                let all = secrets.iter().map(|(id, _)| *id).collect();
                return (vec![(legacy::STRIPE, legacy::stripe(texts, at, body))], all);
            }
            Self::Slack => vec![
                (legacy::SLACK_TIMESTAMP, at.to_string()),
                (legacy::SLACK, legacy::slack(secret, at, body)),
            ],
            Self::Shopify => vec![
                id_as(legacy::SHOPIFY_ID),
                (legacy::SHOPIFY, legacy::shopify(secret, body)),
            ],
            Self::GithubSha1 => vec![
                id_as(legacy::GITHUB_ID),
                (legacy::GITHUB_SHA1, legacy::github_sha1(secret, body)),
                (legacy::GITHUB, legacy::github(secret, body)),
            ],
            _ => vec![
                id_as(legacy::GITHUB_ID),
                (legacy::GITHUB, legacy::github(secret, body)),
            ],
        };
        (headers, vec![*id])
    }
}

type Headers = Vec<(&'static str, String)>;

/// Covered: the method, the target as every proxy leaves it (without the scheme, which a proxy that ends TLS changes),
/// what the body is and that it is whole, id and time, and the attributes of a CloudEvent in binary mode.
fn http(key: &SigningKey, outgoing: &Outgoing<'_>) -> Result<Headers, &'static str> {
    let digest = content_digest(outgoing.body, &[digest::Algorithm::Sha256]);
    let mut headers = outgoing.headers.to_vec();
    headers.push(("content-digest".to_owned(), digest.clone()));
    headers.push(("webhook-id".to_owned(), outgoing.id.to_owned()));
    headers.push((
        "webhook-timestamp".to_owned(),
        outgoing.timestamp.to_string(),
    ));
    let request = Request {
        method: "POST",
        url: outgoing.url,
        headers: &headers,
    };
    let mut covered = vec!["@method", "@authority", "@path", "@query"];
    let is_covered = |name: &str| {
        name.starts_with("ce-")
            || [
                "content-type",
                "content-digest",
                "webhook-id",
                "webhook-timestamp",
            ]
            .contains(&name)
    };
    covered.extend(
        headers
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| is_covered(name)),
    );
    let components = covered
        .into_iter()
        .map(http_signature::component)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|fault| fault.as_str())?;
    let label = KeyRef::from_str(LABEL).map_err(|_| "label of a signature")?;
    let params = parameters(key, outgoing.timestamp).ok_or("parameters of a signature")?;
    let signed = http_signature::sign(&request, &components, &params, label, &key.key)
        .map_err(|fault| fault.as_str())?;
    Ok(vec![
        ("content-digest", digest),
        ("signature-input", signed.input),
        ("signature", signed.signature),
    ])
}

/// One label for the one signature.
const LABEL: &str = "sig1";

fn parameters(key: &SigningKey, created: i64) -> Option<Parameters> {
    let mut params = Parameters::new();
    let mut set = |name: &str, value: sfv::BareItem| -> Option<()> {
        params.insert(KeyRef::from_str(name).ok()?.to_owned(), value);
        Some(())
    };
    let text = |text: String| Some(sfv::BareItem::String(sfv::String::from_string(text).ok()?));
    set(
        "created",
        sfv::BareItem::Integer(Integer::try_from(created).ok()?),
    )?;
    set("keyid", text(key.id.to_string())?)?;
    set("alg", text(key.key.algorithm().as_str().to_owned())?)?;
    Some(params)
}

fn ids(keys: &[SigningKey]) -> Vec<i64> {
    keys.iter().map(|key| key.id).collect()
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
