//! Requests made of any bytes: signatures under every profile, and what is read of a body.
//!
//! Input: a byte that says which profile, then header lines, `name: value` each, up to an empty line, then the body.

use crate::rules::inbound::{self, Locator, Reading};
use crate::rules::matching::{valid_partner, valid_type};
use crate::rules::profile::{Outgoing, Profile};
use crate::rules::receive::{self, Headers, Incoming, OwnKey, Refusal};
use crate::rules::signing::{Algorithm, Key, MOST_SIGNATURES, Secret, SigningKey};

use super::CANARY;

const NOW: i64 = 1_785_585_600;
const URL: &str = "https://hooks.example.com/in?tenant=7";

/// Checks one input.
pub fn run(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    let profile = Profile::ALL[usize::from(which) % Profile::ALL.len()];
    let (head, body) = match rest.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&rest[..at], &rest[at + 2..]),
        None => (&rest[..0], rest),
    };
    let head = String::from_utf8_lossy(head);
    let lines: Vec<(String, String)> = head
        .split('\n')
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    stranger(profile, &lines, body);
    own(profile, &lines, body);
    reading(profile, lines, body);
}

/// Nobody who does not know the key is believed.
fn stranger(profile: Profile, lines: &[(String, String)], body: &[u8]) {
    let headers = Headers::new(lines.to_vec());
    let incoming = Incoming {
        method: "POST",
        url: Some(URL),
        headers: &headers,
        body,
    };
    // Made of a text that is nowhere else: what passes was forged.
    let key = Secret::from_bytes(CANARY.as_bytes()).expect("32 bytes");
    let text = key.expose();
    let Ok(own) = OwnKey::parse(profile, &text) else {
        unreachable!("a symmetric key is a key under every profile")
    };
    assert!(receive::verify(profile, &[own], &incoming, NOW, 300).is_err());
    assert_eq!(
        receive::verify(profile, &[], &incoming, NOW, u64::MAX)
            .map_err(|refusal| refusal.as_str().is_empty()),
        Err(false)
    );
}

/// What was signed is believed among whatever else stands in the head, or refused for a header that is there twice; never
/// with another body.
fn own(profile: Profile, lines: &[(String, String)], body: &[u8]) {
    if profile.algorithm() == Algorithm::Ed25519 {
        return;
    }
    let secret = Secret::generate([7; 32]);
    let key = SigningKey {
        id: 7,
        key: Key::from(secret.clone()),
    };
    let outgoing = Outgoing {
        id: "evt_x",
        timestamp: NOW,
        url: URL,
        headers: &[],
        body,
    };
    let signed = profile.sign(&[key], &outgoing).expect("signed");
    let keys = [OwnKey::parse(profile, &secret.expose()).expect("a key")];
    let judge = |lines: Vec<(String, String)>, body: &[u8]| {
        let headers = Headers::new(lines);
        let incoming = Incoming {
            method: "POST",
            url: Some(URL),
            headers: &headers,
            body,
        };
        receive::verify(profile, &keys, &incoming, NOW, 300)
    };
    assert!(judge(signed.headers.clone(), body).is_ok());
    let other = [body, b"x"].concat();
    assert!(judge(signed.headers.clone(), &other).is_err());
    let mut crowded = lines.to_vec();
    crowded.extend(signed.headers.clone());
    let disturbed = lines.iter().any(|(name, _)| {
        signed
            .headers
            .iter()
            .any(|(own, _)| own.eq_ignore_ascii_case(name))
    });
    match judge(crowded, body) {
        Ok(_) => {}
        Err(refusal) => assert!(disturbed, "{}", refusal.as_str()),
    }
    assert_ne!(judge(Vec::new(), body).err(), None::<Refusal>);
    // The good one is found behind others, up to a number; beyond it none is looked at.
    let before = body.len() % 30;
    let mut listed = signed.headers.clone();
    let counts = match profile {
        Profile::V1 => prepend(
            &mut listed,
            "webhook-signature",
            |_| "v1,AAAA ".to_owned(),
            before,
        ),
        Profile::HttpHmac => {
            prepend(
                &mut listed,
                "signature-input",
                |n| format!("x{n}=(\"@path\"), "),
                before,
            ) && prepend(
                &mut listed,
                "signature",
                |n| format!("x{n}=:AAAA:, "),
                before,
            )
        }
        _ => false,
    };
    if counts {
        match judge(listed, body) {
            Ok(_) => assert!(before < MOST_SIGNATURES),
            Err(refusal) => assert!(refusal == Refusal::TooMany && before >= MOST_SIGNATURES),
        }
    }
}

/// Puts so many members before those of a header; says whether it is there.
fn prepend(
    lines: &mut [(String, String)],
    header: &str,
    member: impl Fn(usize) -> String,
    count: usize,
) -> bool {
    let found = lines.iter_mut().find(|(name, _)| name == header);
    found.is_some_and(|(_, value)| {
        value.insert_str(0, &(0..count).map(member).collect::<String>());
        true
    })
}

/// What is read can be stored.
fn reading(profile: Profile, lines: Vec<(String, String)>, body: &[u8]) {
    let json = inbound::body_json(body);
    let vouched = receive::Vouched {
        signed_at: None,
        headers: lines
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect(),
    };
    for partner_from in ["body:/partner_id", "header:x-tenant"] {
        let reading = Reading {
            profile,
            partner_id: None,
            partner_from: Locator::parse(partner_from),
            partners: None,
            id_from: Locator::of_id(profile),
            type_from: Locator::of_type(profile),
        };
        let headers = Headers::new(lines.clone());
        let Ok(read) = inbound::read(&reading, &headers, &vouched, body, json.as_ref()) else {
            continue;
        };
        assert!(valid_partner(&read.partner_id) && !read.partner_id.starts_with('_'));
        assert!((1..=256).contains(&read.event_id.len()));
        assert!(read.event_id.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(read.kind.as_deref().is_none_or(valid_type));
        for text in [
            read.subject_type,
            read.subject_id,
            read.schema_version,
            read.correlation_id,
        ] {
            assert!(
                text.is_none_or(|text| !text.contains('\0') && (1..=512).contains(&text.len()))
            );
        }
    }
}
