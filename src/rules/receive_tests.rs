//! Tests of `receive`: what each profile signs is believed as it was sent, and nothing that was changed is.

use proptest::prelude::*;

use super::*;
use crate::rules::ed25519::KeyPair;
use crate::rules::profile::Outgoing;
use crate::rules::signing::{Algorithm, SigningKey};

const AT: i64 = 1_785_585_600;
const URL: &str = "https://hooks.example.com/in?tenant=7";

fn secret(byte: u8) -> Secret {
    Secret::generate([byte; 32])
}

fn signing_key(profile: Profile, byte: u8) -> SigningKey {
    SigningKey {
        id: 7,
        key: match profile.algorithm() {
            Algorithm::HmacSha256 => secret(byte).into(),
            Algorithm::Ed25519 => KeyPair::from_seed(&[byte; 32]).into(),
        },
    }
}

fn own_key(profile: Profile, byte: u8) -> OwnKey {
    let text = match profile.algorithm() {
        Algorithm::HmacSha256 => secret(byte).expose(),
        Algorithm::Ed25519 => KeyPair::from_seed(&[byte; 32]).public().expose(),
    };
    OwnKey::parse(profile, &text).expect("a key")
}

fn signed(profile: Profile, body: &[u8]) -> Vec<(String, String)> {
    let mut lines = vec![("content-type".to_owned(), "application/json".to_owned())];
    let outgoing = Outgoing {
        id: "evt_x",
        timestamp: AT,
        url: URL,
        headers: &lines,
        body,
    };
    let signed = profile.sign(&[signing_key(profile, 1)], &outgoing);
    lines.extend(signed.expect("signed").headers);
    lines
}

fn judge(
    profile: Profile,
    keys: &[OwnKey],
    lines: Vec<(String, String)>,
    body: &[u8],
    now: i64,
) -> Result<Vouched, Refusal> {
    let headers = Headers::new(lines);
    let incoming = Incoming {
        method: "POST",
        url: Some(URL),
        headers: &headers,
        body,
    };
    verify(profile, keys, &incoming, now, 300)
}

fn has_time(profile: Profile) -> bool {
    !matches!(
        profile,
        Profile::Github | Profile::GithubSha1 | Profile::Shopify
    )
}

/// The same request with so many signatures by nobody before the good one.
fn behind_others(profile: Profile, count: usize, body: &[u8]) -> Vec<(String, String)> {
    let mut lines = signed(profile, body);
    for (name, value) in &mut lines {
        let others = |other: &dyn Fn(usize) -> String, separator: &str| {
            (0..count).map(|n| other(n) + separator).collect::<String>()
        };
        let before = match name.as_str() {
            "webhook-signature" => others(&|_| "v1,AAAA v1a,AAAA".to_owned(), " "),
            "signature-input" => others(&|n| format!("x{n}=(\"@method\");created={AT}"), ", "),
            "signature" => others(&|n| format!("x{n}=:AAAA:"), ", "),
            "stripe-signature" => {
                let (time, rest) = value.split_once(',').expect("a time");
                *value = format!("{time},{}{rest}", others(&|_| "v1=00".to_owned(), ","));
                continue;
            }
            _ => continue,
        };
        value.insert_str(0, &before);
    }
    lines
}

#[test]
fn the_last_of_twenty_signatures_counts_and_more_are_not_looked_at() {
    for profile in Profile::ALL {
        let keys = [own_key(profile, 1)];
        let with = |count| {
            let lines = behind_others(profile, count, b"{}");
            judge(profile, &keys, lines, b"{}", AT).map(|_| ())
        };
        let (fits, exceeds) = match profile {
            // Of each kind one.
            Profile::V1 | Profile::V1a => (9, 10),
            Profile::Stripe | Profile::HttpHmac | Profile::HttpEd25519 => (19, 20),
            _ => continue,
        };
        assert_eq!(with(fits), Ok(()), "{profile:?}");
        assert_eq!(with(exceeds), Err(Refusal::TooMany), "{profile:?}");
        assert_eq!(with(1000), Err(Refusal::TooMany), "{profile:?}");
    }
}

#[test]
fn a_signature_that_covers_more_than_fifty_components_is_not_looked_at() {
    let key = [own_key(Profile::HttpHmac, 1)];
    let with = |count: usize| {
        let mut lines = signed(Profile::HttpHmac, b"{}");
        let names: String = (0..count).map(|n| format!("\"x{n}\" ")).collect();
        for (name, value) in &mut lines {
            match name.as_str() {
                "signature-input" => value.insert_str(0, &format!("x=({}), ", names.trim_end())),
                "signature" => value.insert_str(0, "x=:AAAA:, "),
                _ => {}
            }
        }
        judge(Profile::HttpHmac, &key, lines, b"{}", AT).map(|_| ())
    };
    assert_eq!(with(50), Ok(()));
    assert_eq!(with(51), Err(Refusal::TooMany));
}

#[test]
fn what_each_profile_sends_is_believed_within_the_tolerance_in_both_directions() {
    for profile in Profile::ALL {
        let keys = [own_key(profile, 2), own_key(profile, 1)];
        let at = |now| judge(profile, &keys, signed(profile, b"{}"), b"{}", now);
        let vouched = at(AT).expect("believed");
        assert_eq!(vouched.signed_at, has_time(profile).then_some(AT));
        assert!(at(AT + 300).is_ok() && at(AT - 300).is_ok(), "{profile:?}");
        if has_time(profile) {
            assert_eq!(at(AT + 301), Err(Refusal::TooOld), "{profile:?}");
            assert_eq!(at(AT - 301), Err(Refusal::TooNew), "{profile:?}");
        }
        let stranger = [own_key(profile, 3)];
        let refused = judge(profile, &stranger, signed(profile, b"{}"), b"{}", AT);
        assert_eq!(refused, Err(Refusal::NoMatch), "{profile:?}");
    }
}

#[test]
fn names_of_headers_may_be_in_any_case_and_nothing_that_counts_may_be_there_twice() {
    for profile in Profile::ALL {
        let keys = [own_key(profile, 1)];
        let loud: Vec<_> = signed(profile, b"{}")
            .into_iter()
            .map(|(name, value)| (name.to_ascii_uppercase(), value))
            .collect();
        assert!(judge(profile, &keys, loud, b"{}", AT).is_ok());
        for name in ["webhook-id", "webhook-timestamp"] {
            let mut twice = signed(profile, b"{}");
            twice.push((name.to_owned(), "other".to_owned()));
            let judged = judge(profile, &keys, twice, b"{}", AT);
            match profile {
                Profile::V1 | Profile::V1a => assert_eq!(judged, Err(Refusal::RepeatedHeader)),
                Profile::HttpHmac | Profile::HttpEd25519 => {
                    assert_eq!(judged, Err(Refusal::NoMatch));
                }
                // They do not look at it.
                _ => assert!(judged.is_ok()),
            }
        }
    }
}

#[test]
fn a_digest_alone_and_a_signature_without_one_verify_nothing() {
    let keys = [own_key(Profile::HttpHmac, 1)];
    let lines = signed(Profile::HttpHmac, b"{}");
    let digest: Vec<_> = lines
        .iter()
        .filter(|(name, _)| name == "content-digest")
        .cloned()
        .collect();
    assert_eq!(digest.len(), 1);
    let judged = judge(Profile::HttpHmac, &keys, digest, b"{}", AT);
    assert_eq!(judged, Err(Refusal::MissingHeader));
    // The signature holds, but the body is another one.
    let judged = judge(Profile::HttpHmac, &keys, lines, b"{ }", AT);
    assert_eq!(judged, Err(Refusal::Digest));
    // Signed without the digest: the body is nobody's.
    let bare = http_lines(&["@method", "@path"], Some(AT));
    let judged = judge(Profile::HttpHmac, &keys, bare.clone(), b"{}", AT);
    assert_eq!(judged, Err(Refusal::NotCovered));
    assert!(judge(Profile::HttpHmac, &keys, bare, b"", AT).is_ok());
    let timeless = http_lines(&["content-digest"], None);
    let judged = judge(Profile::HttpHmac, &keys, timeless, b"{}", AT);
    assert_eq!(judged, Err(Refusal::NotCovered));
}

fn http_lines(covered: &[&str], created: Option<i64>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    if covered.contains(&"content-digest") {
        let digest = digest::content_digest(b"{}", &[digest::Algorithm::Sha256]);
        lines.push(("content-digest".to_owned(), digest));
    }
    let request = Request {
        method: "POST",
        url: URL,
        headers: &lines,
    };
    let components: Vec<_> = covered
        .iter()
        .map(|name| http_signature::component(name).expect("a component"))
        .collect();
    let mut params = sfv::Parameters::new();
    if let Some(created) = created {
        let created = sfv::Integer::try_from(created).expect("a time");
        params.insert(
            sfv::KeyRef::from_str("created").expect("a key").to_owned(),
            sfv::BareItem::Integer(created),
        );
    }
    let label = sfv::KeyRef::from_str("s").expect("a label");
    let key = signing_key(Profile::HttpHmac, 1).key;
    let signed = http_signature::sign(&request, &components, &params, label, &key).expect("signed");
    lines.push(("signature-input".to_owned(), signed.input));
    lines.push(("signature".to_owned(), signed.signature));
    lines
}

#[test]
fn an_empty_or_shortened_signature_is_refused_under_every_profile() {
    for profile in Profile::ALL {
        let keys = [own_key(profile, 1)];
        let lines = signed(profile, b"{}");
        let name = match profile {
            Profile::HttpHmac | Profile::HttpEd25519 => "signature",
            _ => profile.names().last().expect("a header"),
        };
        let name = if profile == Profile::Slack {
            legacy::SLACK
        } else {
            name
        };
        let full = lines.iter().find(|(given, _)| given == name);
        let full = full.expect("the signature").1.clone();
        for length in 0..full.len() {
            let mut cut = lines.clone();
            for (given, value) in &mut cut {
                if given == name {
                    value.truncate(length);
                }
            }
            assert!(
                judge(profile, &keys, cut, b"{}", AT).is_err(),
                "{profile:?}: {} of {full}",
                &full[..length]
            );
        }
    }
}

#[test]
fn the_first_bytes_of_a_right_signature_are_no_signature() {
    // A comparison up to the shorter of two would take both of these (report 15).
    let keys = [own_key(Profile::V1, 1)];
    let right = crate::rules::signing::sign(&secret(1).into(), "evt_x", AT, b"{}");
    let lines = |signature: &str| {
        vec![
            ("webhook-id".to_owned(), "evt_x".to_owned()),
            ("webhook-timestamp".to_owned(), AT.to_string()),
            ("webhook-signature".to_owned(), signature.to_owned()),
        ]
    };
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let bytes = STANDARD.decode(&right[3..]).expect("base64");
    let prefix = format!("v1,{}", STANDARD.encode(&bytes[..8]));
    for wrong in ["v1,", &prefix] {
        let judged = judge(Profile::V1, &keys, lines(wrong), b"{}", AT);
        assert_eq!(judged, Err(Refusal::NoMatch), "{wrong}");
    }
    for among in [
        format!("v1, {prefix} {right}"),
        format!("{right} v1,"),
        right.clone(),
    ] {
        assert!(judge(Profile::V1, &keys, lines(&among), b"{}", AT).is_ok());
    }
}

#[test]
fn keys_are_read_strictly_and_never_shown() {
    for (profile, text) in [
        (Profile::V1, ""),
        (Profile::V1, "whsec_"),
        (Profile::V1, "whpk_AAAA"),
        (
            Profile::V1a,
            "whsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ),
        (Profile::HttpHmac, "secret"),
        (Profile::Github, ""),
    ] {
        let error = OwnKey::parse(profile, text).expect_err("refused");
        assert!(
            text.is_empty() || !error.contains(text) || text.len() < 7,
            "{error}"
        );
    }
    assert_eq!(format!("{:?}", own_key(Profile::V1, 1)), "OwnKey(..)");
    assert!(own_key(Profile::V1a, 1).is_public());
    // The public half is no HMAC key: what is signed with its bytes is not believed.
    let public = KeyPair::from_seed(&[1; 32]).public();
    let forged = Secret::from_bytes(public.as_bytes()).expect("a key");
    let lines = vec![
        ("webhook-id".to_owned(), "evt_x".to_owned()),
        ("webhook-timestamp".to_owned(), AT.to_string()),
        (
            "webhook-signature".to_owned(),
            crate::rules::signing::sign(&forged.into(), "evt_x", AT, b"{}"),
        ),
    ];
    let keys = [own_key(Profile::V1a, 1)];
    let judged = judge(Profile::V1a, &keys, lines, b"{}", AT);
    assert_eq!(judged, Err(Refusal::NoMatch));
}

proptest! {
    #[test]
    fn a_changed_body_is_never_believed(
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        body in proptest::collection::vec(any::<u8>(), 1..60),
        at: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let keys = [own_key(profile, 1)];
        let lines = signed(profile, &body);
        prop_assert!(judge(profile, &keys, lines.clone(), &body, AT).is_ok());
        let mut changed = body.clone();
        changed[at.index(body.len())] ^= 1 << bit;
        prop_assert!(judge(profile, &keys, lines.clone(), &changed, AT).is_err());
        prop_assert!(judge(profile, &keys, lines, &body[1..], AT).is_err());
    }

    #[test]
    fn whatever_a_peer_sends_is_judged_and_nothing_panics(
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        names in proptest::collection::vec(0usize..11, 0..8),
        values in proptest::collection::vec("[ -~]{0,60}|v1,[A-Za-z0-9+/=]{0,48}|sig1=\\(\"[a-z@-]{0,12}\"\\);created=[0-9]{0,12}|sig1=:[A-Za-z0-9+/=]{0,48}:|t=[0-9]{0,12},v1=[0-9a-f]{0,66}|v0=[0-9a-f]{0,66}|[0-9]{0,13}|\\PC{0,20}", 8),
        body in proptest::collection::vec(any::<u8>(), 0..60),
        url in proptest::option::of(".{0,40}"),
        now: i64,
        tolerance: u64,
    ) {
        const NAMES: [&str; 11] = [
            "webhook-id", "webhook-timestamp", "webhook-signature", "signature", "Signature-Input", "content-digest",
            "x-hub-signature-256", "stripe-signature", "x-slack-signature", "x-slack-request-timestamp", "x-shopify-hmac-sha256",
        ];
        let lines = names.iter().zip(&values).map(|(name, value)| (NAMES[*name].to_owned(), value.clone())).collect();
        let headers = Headers::new(lines);
        let incoming = Incoming { method: "POST", url: url.as_deref(), headers: &headers, body: &body };
        let judged = verify(profile, &[own_key(profile, 1)], &incoming, now, tolerance);
        prop_assert!(judged.is_err());
    }

    #[test]
    fn no_text_makes_the_reading_of_a_key_panic(profile in proptest::sample::select(Profile::ALL.to_vec()), text in ".{0,100}") {
        let _ = OwnKey::parse(profile, &text);
        let _ = OwnKey::parse(profile, &format!("whpk_{text}"));
    }
}

#[test]
fn a_public_key_without_its_prefix_is_not_taken_for_a_secret() {
    let public = KeyPair::from_seed(&[1; 32]).public().expose();
    let bare = public.trim_start_matches("whpk_");
    for profile in [Profile::V1a, Profile::HttpEd25519] {
        assert!(OwnKey::parse(profile, bare).is_err());
        assert!(OwnKey::parse(profile, &public).is_ok_and(|key| key.is_public()));
    }
}
