//! Secrets, files of master keys, stored keys and received signatures, made of any bytes.
//!
//! Input: a byte that says which, then the bytes.

use crate::rules::signing::{
    Key, MOST_SIGNATURES, Received, Rejection, Secret, SecretError, VerifyingKey, sign, verify,
};
use crate::rules::vault::{self, KeyFileFault, MasterKeys, NONCE, Place};

const PLACE: Place = Place::Signing {
    key_id: 7,
    endpoint_id: 8,
};
/// Places that a key must not be moved to.
const ELSEWHERE: [Place; 3] = [
    Place::Signing {
        key_id: 8,
        endpoint_id: 7,
    },
    Place::Signing {
        key_id: 7,
        endpoint_id: 9,
    },
    Place::Seal {
        key_id: 7,
        origin: 8,
    },
];
const NOW: i64 = 1_785_585_600;
const TOLERANCE: u64 = 300;

/// Checks one input.
pub fn run(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    match which % 5 {
        0 => secret(&String::from_utf8_lossy(rest)),
        1 => key_file(rest),
        2 => stored(rest),
        3 => sealed(rest),
        _ => received(rest),
    }
}

fn secret(text: &str) {
    let encoded = text.strip_prefix("whsec_").unwrap_or(text);
    match Secret::parse(text) {
        Ok(secret) => {
            assert_eq!(secret.expose(), format!("whsec_{encoded}"), "one spelling");
            assert_eq!(decode(encoded).as_deref(), Some(secret.as_bytes()));
            assert!((24..=64).contains(&secret.as_bytes().len()));
            let again = Secret::from_bytes(secret.as_bytes()).expect("its own bytes");
            assert_eq!(again.expose(), secret.expose());
            assert_eq!(format!("{secret:?}"), "Secret(..)");
        }
        Err(SecretError::Length) => {
            assert!(decode(encoded).is_none_or(|key| !(24..=64).contains(&key.len())));
        }
        Err(SecretError::Encoding) => assert_eq!(decode(encoded), None),
    }
}

fn key_file(bytes: &[u8]) {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let key = |line: &[u8]| {
        std::str::from_utf8(line)
            .ok()
            .and_then(decode)
            .filter(|key| key.len() == 32)
    };
    let masters = match MasterKeys::parse(bytes) {
        Ok(masters) => masters,
        Err(KeyFileFault::Empty) => return assert!(text.is_empty()),
        Err(KeyFileFault::TooMany) => return assert!(lines.len() > 16),
        Err(KeyFileFault::Line(number)) => return assert_eq!(key(lines[number - 1]), None),
    };
    assert!(lines.len() <= 16 && lines.iter().all(|line| key(line).is_some()));
    assert_eq!(format!("{masters:?}"), "MasterKeys(..)");
    // Encrypted under the first line; every line alone, and no other file, opens what it encrypted.
    for line in &lines {
        let one = MasterKeys::parse(line).expect("a line is a file");
        let stored = vault::store(Some(&one), PLACE, [5; NONCE], &[9; 32]).expect("storable");
        let opened = vault::open(Some(&masters), PLACE, &stored).expect("the file has the key");
        assert_eq!(opened[..], [9; 32]);
        let current = one.current_id() == masters.current_id();
        assert_eq!(vault::up_to_date(&masters, &stored), current);
    }
}

/// Whatever stands in the table: it opens only if it is what would be stored.
fn stored(bytes: &[u8]) {
    let masters = masters();
    for held in [Some(&masters), None] {
        let Ok(key) = vault::open(held, PLACE, bytes) else {
            continue;
        };
        let again = if bytes.first() == Some(&0) {
            vault::store(None, PLACE, [0; NONCE], &key)
        } else {
            let nonce: [u8; NONCE] = bytes[9..9 + NONCE].try_into().expect("as long as that");
            vault::store(held, PLACE, nonce, &key)
        };
        assert_eq!(again.as_deref(), Ok(bytes));
    }
}

/// Bytes: the position of a bit, then the key.
fn sealed(bytes: &[u8]) {
    let Some((position, key)) = bytes.split_at_checked(2) else {
        return;
    };
    let masters = masters();
    let stored = vault::store(Some(&masters), PLACE, [3; NONCE], key).expect("storable");
    let opened = vault::open(Some(&masters), PLACE, &stored).expect("just stored");
    assert_eq!(opened[..], *key);
    assert!(vault::open(None, PLACE, &stored).is_err());
    for place in ELSEWHERE {
        assert!(vault::open(Some(&masters), place, &stored).is_err());
    }
    let mut flipped = stored.clone();
    let bit = usize::from(u16::from_be_bytes([position[0], position[1]])) % (8 * stored.len());
    flipped[bit / 8] ^= 1 << (bit % 8);
    match vault::open(Some(&masters), PLACE, &flipped) {
        Err(_) => {}
        // The bit that says "encrypted": the ciphertext would be the key. It is too long for a signing key.
        Ok(key) => {
            assert_eq!(bit, 0);
            assert!(opened.len() < 24 || Secret::from_bytes(&key).is_err());
        }
    }
    assert!(vault::open(Some(&masters), PLACE, &stored[..stored.len() - 1]).is_err());
}

/// Bytes: id, timestamp and signature, each ended by NUL, then the body.
fn received(bytes: &[u8]) {
    let mut parts = bytes.splitn(4, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let mut text = || String::from_utf8_lossy(next()).into_owned();
    let (id, timestamp, signature) = (text(), text(), text());
    let body = next();
    let key = Secret::generate([7; 32]);
    let message = Received {
        id: Some(&id),
        timestamp: Some(&timestamp),
        signature: Some(&signature),
        body,
    };
    let held = [Secret::generate([6; 32]), key.clone()].map(Key::from);
    let keys = [Secret::generate([6; 32]), key.clone()].map(VerifyingKey::from);
    let key = Key::from(key);
    let time: Option<i64> = timestamp
        .parse()
        .ok()
        .filter(|time: &i64| time.to_string() == timestamp && (0..=99_999_999_999).contains(time));
    match verify(&keys, &message, NOW, TOLERANCE) {
        Ok(at) => {
            assert_eq!(Some(at), time);
            assert!(at.abs_diff(NOW) <= TOLERANCE);
            let mut made = held.iter().map(|key| sign(key, &id, at, body));
            assert!(made.any(|made| signature.split(' ').any(|part| part == made)));
        }
        Err(Rejection::MissingHeader) => {
            assert!(id.is_empty() || timestamp.is_empty() || signature.is_empty());
        }
        Err(Rejection::BadTimestamp) => assert_eq!(time, None),
        Err(Rejection::TooOld) => assert!(time.is_some_and(|at| at < NOW - 300)),
        Err(Rejection::TooNew) => assert!(time.is_some_and(|at| at > NOW + 300)),
        Err(Rejection::NoMatch) => assert!(time.is_some()),
        Err(Rejection::TooMany) => assert!(signature.split(' ').count() > MOST_SIGNATURES),
    }
    // What we sign is accepted among whatever else stands in the header, and for no other body; unless so many stand there
    // that none is looked at.
    if id.is_empty() {
        return;
    }
    let header = format!("{signature} {}", sign(&key, &id, NOW, body));
    let now = NOW.to_string();
    let signed = Received {
        timestamp: Some(&now),
        signature: Some(&header),
        ..message
    };
    if header.split(' ').count() > MOST_SIGNATURES {
        assert_eq!(
            verify(&keys, &signed, NOW, TOLERANCE),
            Err(Rejection::TooMany)
        );
        return;
    }
    assert_eq!(verify(&keys, &signed, NOW, TOLERANCE), Ok(NOW));
    let other = [body, b"x"].concat();
    let altered = Received {
        body: &other,
        ..signed
    };
    let verdict = verify(&keys, &altered, NOW, TOLERANCE);
    assert_eq!(verdict, Err(Rejection::NoMatch));
}

fn masters() -> MasterKeys {
    // 32 bytes 1, and 32 bytes 2.
    let file = b"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n\
                 AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n";
    MasterKeys::parse(file).expect("two keys")
}

/// A second reading of base64: standard alphabet, padded, no bits left over.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0 && count < 6).then_some(bytes)
}
