//! Tests of `signing`.

use super::*;
use crate::rules::ed25519::KeyPair;
use proptest::prelude::*;

const TEXT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn key(id: i64, byte: u8) -> SigningKey {
    SigningKey {
        id,
        key: Secret::generate([byte; 32]).into(),
    }
}

#[test]
fn a_secret_never_shows_itself() {
    let secret = Secret::parse(TEXT).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(..)");
    let key = SigningKey {
        id: 7,
        key: secret.into(),
    };
    assert_eq!(
        format!("{key:?}"),
        "SigningKey { id: 7, key: Symmetric(Secret(..)) }"
    );
    let pair = SigningKey {
        id: 8,
        key: KeyPair::from_seed(&[3; 32]).into(),
    };
    assert_eq!(
        format!("{pair:?}"),
        "SigningKey { id: 8, key: Asymmetric(KeyPair(..)) }"
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
        .map(|key| sign(&key.key, "evt_x", 1, b"{}"))
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
        let keys = [key(1, 9), SigningKey { id: 2, key: Secret::generate(bytes).into() }];
        let timestamp = at.to_string();
        let header = signature_header(&keys, "evt_x", at, &body);
        let message = Received {
            id: Some("evt_x"),
            timestamp: Some(&timestamp),
            signature: Some(&header),
            body: &body,
        };
        let receiver = [VerifyingKey::from(Secret::generate(bytes))];
        prop_assert_eq!(verify(&receiver, &message, at, 0), Ok(at));
        let mut changed = body.clone();
        changed.push(other);
        let message = Received { body: &changed, ..message };
        prop_assert_eq!(verify(&receiver, &message, at, 0), Err(Rejection::NoMatch));
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
        let _ = verify(&[Secret::generate([1; 32]).into()], &message, now, tolerance);
    }

    #[test]
    fn a_pair_signs_what_its_public_half_accepts_beside_a_secret(
        seed: [u8; 32], bytes: [u8; 32], body in proptest::collection::vec(any::<u8>(), 0..100), at in 0i64..=99_999_999_999,
    ) {
        // The overlap of a rotation from one kind of key to the other.
        let pair = KeyPair::from_seed(&seed);
        let public = pair.public();
        let keys = [SigningKey { id: 2, key: pair.into() }, SigningKey { id: 1, key: Secret::generate(bytes).into() }];
        let timestamp = at.to_string();
        let header = signature_header(&keys, "evt_x", at, &body);
        let message = Received { id: Some("evt_x"), timestamp: Some(&timestamp), signature: Some(&header), body: &body };
        for receiver in [VerifyingKey::from(public), VerifyingKey::from(Secret::generate(bytes))] {
            prop_assert_eq!(verify(&[receiver], &message, at, 0), Ok(at));
        }
        let stranger = VerifyingKey::from(KeyPair::from_seed(&[0x5a; 32]).public());
        if seed != [0x5a; 32] {
            prop_assert_eq!(verify(&[stranger], &message, at, 0), Err(Rejection::NoMatch));
        }
    }
}
