//! Tests of `profile`: what each profile sends is what its receivers check.

use super::*;
use crate::rules::ed25519::KeyPair;
use crate::rules::signing::{Received, Secret, VerifyingKey, verify};

const AT: i64 = 1_785_585_600;
const BODY: &[u8] = b"{\"a\":1}";
const URL: &str = "https://hooks.example.com/in?tenant=7";

fn secret(byte: u8) -> Secret {
    Secret::generate([byte; 32])
}

fn pair(byte: u8) -> KeyPair {
    KeyPair::from_seed(&[byte; 32])
}

/// A rotation: the newest key comes first.
fn keys(profile: Profile) -> Vec<SigningKey> {
    [2u8, 1]
        .map(|byte| SigningKey {
            id: i64::from(byte),
            key: match profile.algorithm() {
                Algorithm::HmacSha256 => secret(byte).into(),
                Algorithm::Ed25519 => pair(byte).into(),
            },
        })
        .into()
}

fn outgoing(headers: &[(String, String)]) -> Outgoing<'_> {
    Outgoing {
        id: "evt_x",
        timestamp: AT,
        url: URL,
        headers,
        body: BODY,
    }
}

fn header<'a>(signed: &'a Signed, name: &str) -> &'a str {
    let found = signed.headers.iter().find(|(given, _)| given == name);
    found
        .map(|(_, value)| value.as_str())
        .unwrap_or_else(|| panic!("no {name}"))
}

fn content_type() -> Vec<(String, String)> {
    vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("ce-id".to_owned(), "evt_x".to_owned()),
        ("traceparent".to_owned(), "00-x".to_owned()),
    ]
}

#[test]
fn names_round_trip_and_each_profile_sends_the_headers_it_names() {
    let headers = content_type();
    for profile in Profile::ALL {
        assert_eq!(Profile::parse(profile.as_str()), Some(profile));
        let signed = profile.sign(&keys(profile), &outgoing(&headers)).unwrap();
        let mut sent: Vec<&str> = signed
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let mut named = [&["webhook-id", "webhook-timestamp"], profile.names()].concat();
        sent.sort_unstable();
        named.sort_unstable();
        assert_eq!(sent, named);
        assert_eq!(
            Algorithm::parse(profile.algorithm().as_str()),
            Some(profile.algorithm())
        );
    }
    assert_eq!(Profile::parse("V1"), None);
}

#[test]
fn standard_webhooks_carry_a_signature_of_each_key() {
    for (profile, receivers) in [
        (
            Profile::V1,
            [VerifyingKey::from(secret(2)), VerifyingKey::from(secret(1))],
        ),
        (
            Profile::V1a,
            [pair(2).public().into(), pair(1).public().into()],
        ),
    ] {
        let signed = profile.sign(&keys(profile), &outgoing(&[])).unwrap();
        assert_eq!(signed.key_ids, [2, 1]);
        for receiver in receivers {
            let received = Received {
                id: Some("evt_x"),
                timestamp: Some(header(&signed, "webhook-timestamp")),
                signature: Some(header(&signed, "webhook-signature")),
                body: BODY,
            };
            assert_eq!(verify(&[receiver], &received, AT, 300), Ok(AT));
        }
    }
}

#[test]
fn http_signatures_cover_target_body_identity_and_attributes() {
    let headers = content_type();
    for (profile, receiver, stranger) in [
        (
            Profile::HttpHmac,
            VerifyingKey::from(secret(1)),
            VerifyingKey::from(secret(2)),
        ),
        (
            Profile::HttpEd25519,
            pair(1).public().into(),
            pair(2).public().into(),
        ),
    ] {
        // The former key signs alone.
        let signed = profile.sign(&keys(profile), &outgoing(&headers)).unwrap();
        assert_eq!(signed.key_ids, [1]);
        let mut received = headers.clone();
        received.extend(signed.headers.iter().cloned());
        let request = Request {
            method: "POST",
            url: URL,
            headers: &received,
        };
        let check = |request: &Request<'_>, key: &VerifyingKey| {
            http_signature::verify(
                request,
                header(&signed, "signature-input"),
                header(&signed, "signature"),
                key,
            )
        };
        let verified = check(&request, &receiver).unwrap();
        assert_eq!(verified.created, Some(AT));
        assert_eq!(verified.key_id.as_deref(), Some("1"));
        let covered = [
            "@method",
            "@authority",
            "@path",
            "@query",
            "content-type",
            "ce-id",
            "content-digest",
            "webhook-id",
            "webhook-timestamp",
        ];
        assert_eq!(
            verified.components,
            covered.map(|name| format!("\"{name}\""))
        );
        assert!(digest::fits(header(&signed, "content-digest"), BODY));
        assert!(check(&request, &stranger).is_err());
        for other in [
            "https://hooks.example.com/in?tenant=8",
            "https://hooks.example.com/other?tenant=7",
            "https://other.example.com/in?tenant=7",
        ] {
            assert!(
                check(
                    &Request {
                        url: other,
                        ..request
                    },
                    &receiver
                )
                .is_err(),
                "{other}"
            );
        }
        // A proxy that ends TLS changes the scheme, and nothing that is covered.
        let behind = URL
            .replace("https", "http")
            .replace("example.com", "example.com:80");
        assert!(
            check(
                &Request {
                    url: &behind,
                    ..request
                },
                &receiver
            )
            .is_ok()
        );
    }
}

#[test]
fn a_profile_with_room_for_one_signature_goes_on_with_the_former_key() {
    let former = secret(1).expose();
    for profile in [
        Profile::Github,
        Profile::GithubSha1,
        Profile::Slack,
        Profile::Shopify,
    ] {
        let signed = profile.sign(&keys(profile), &outgoing(&[])).unwrap();
        assert_eq!(signed.key_ids, [1]);
        match profile {
            Profile::Slack => assert!(legacy::verify_slack(
                &former,
                BODY,
                header(&signed, legacy::SLACK),
                header(&signed, legacy::SLACK_TIMESTAMP),
                AT,
                300,
            )),
            Profile::Shopify => assert!(legacy::verify_shopify(
                &former,
                BODY,
                header(&signed, legacy::SHOPIFY)
            )),
            _ => assert!(legacy::verify_github(
                &former,
                BODY,
                header(&signed, legacy::GITHUB)
            )),
        }
    }
    let signed = Profile::Stripe
        .sign(&keys(Profile::Stripe), &outgoing(&[]))
        .unwrap();
    assert_eq!(signed.key_ids, [2, 1]);
    for secret in [secret(2).expose(), former] {
        assert!(legacy::verify_stripe(
            &secret,
            BODY,
            header(&signed, legacy::STRIPE),
            AT,
            300
        ));
    }
}

#[test]
fn without_a_key_of_its_kind_nobody_signed() {
    for profile in Profile::ALL {
        assert!(
            profile
                .sign(&[], &outgoing(&[]))
                .unwrap()
                .key_ids
                .is_empty(),
            "{profile:?}"
        );
    }
    let other = [SigningKey {
        id: 1,
        key: pair(1).into(),
    }];
    for profile in [
        Profile::Github,
        Profile::GithubSha1,
        Profile::Stripe,
        Profile::Slack,
        Profile::Shopify,
    ] {
        assert!(
            profile
                .sign(&other, &outgoing(&[]))
                .unwrap()
                .key_ids
                .is_empty(),
            "{profile:?}"
        );
    }
}
