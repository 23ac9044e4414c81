//! The vectors for Standard Webhooks: signing, verifying and reading keys, symmetric ones and ed25519.
//!
//! Refuses to skip rows: each is either passed or failed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Tally, rows, text};
use crate::rules::ed25519::{KeyPair, PublicKey};
use crate::rules::profile::Profile;
use crate::rules::receive;
use crate::rules::signing::{
    Key, Received, Secret, SigningKey, VerifyingKey, signature_header, valid_message_id,
    verify as verify_message,
};

const FILE: &str = "standard_webhooks.jsonl";

#[test]
fn every_standard_webhooks_vector_passes() {
    let mut tally = Tally::new(FILE);
    for row in rows(FILE) {
        let result = judge(&row);
        tally.count(text(&row, "id"), result);
    }
    tally.finish();
}

/// Judges one row.
pub(super) fn judge(row: &Value) -> Result<(), String> {
    match text(&row["input"], "op") {
        "sign" => sign(row),
        "verify" => verify(row),
        "parse_secret" => parse_secret(row),
        other => Err(format!("no such operation: {other}")),
    }
}

/// A key that signs, by its prefix.
fn key(text: &str) -> Result<Key, String> {
    if text.starts_with("whsk_") {
        return KeyPair::parse(text)
            .map(Key::from)
            .map_err(|error| error.to_string());
    }
    Secret::parse(text)
        .map(Key::from)
        .map_err(|error| error.to_string())
}

/// A key that checks, by its prefix.
fn verifying_key(text: &str) -> Result<VerifyingKey, String> {
    if text.starts_with("whpk_") {
        return PublicKey::parse(text)
            .map(VerifyingKey::from)
            .map_err(|error| error.to_string());
    }
    Secret::parse(text)
        .map(VerifyingKey::from)
        .map_err(|error| error.to_string())
}

fn sign(row: &Value) -> Result<(), String> {
    let input = &row["input"];
    let body = body(input)?;
    let id = text(input, "msg_id");
    let timestamp = input["timestamp"].as_i64().ok_or("no timestamp")?;
    if !valid_message_id(id) {
        return same(&row["expected"]["error"], "invalid_msg_id");
    }
    let keys: Vec<SigningKey> = strings(&input["secrets"])
        .map(|text| key(text).map(|key| SigningKey { id: 0, key }))
        .collect::<Result<_, _>>()?;
    let expected = &row["expected"]["headers"];
    same(&expected["webhook-id"], id)?;
    same(&expected["webhook-timestamp"], &timestamp.to_string())?;
    let header = signature_header(&keys, id, timestamp, &body);
    // Where the row says that the order is free, ours (the order of the keys) is the one in the file, too.
    same(&expected["webhook-signature"], &header)
}

fn verify(row: &Value) -> Result<(), String> {
    let input = &row["input"];
    let headers = input["headers"].as_object().ok_or("no headers")?;
    let header = |name: &str| {
        headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| value.as_str())
    };
    let body = body(input)?;
    let message = Received {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: &body,
    };
    let keys: Vec<VerifyingKey> = strings(&input["keys"])
        .map(verifying_key)
        .collect::<Result<_, _>>()?;
    let now = input["now"].as_i64().ok_or("no time")?;
    let tolerance = input["tolerance"].as_u64().ok_or("no tolerance")?;
    let lines = headers
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let lines = receive::Headers::new(lines.collect());
    let incoming = receive::Incoming {
        method: "POST",
        url: None,
        headers: &lines,
        body: &body,
    };
    let own: Vec<_> = keys.iter().cloned().map(receive::OwnKey::Key).collect();
    let judged = receive::verify(Profile::V1, &own, &incoming, now, tolerance);
    let judged = judged.map_or_else(|refusal| refusal.as_str(), |_| "valid");
    let found = verify_message(&keys, &message, now, tolerance);
    let alike = found.map_or_else(|rejection| rejection.as_str(), |_| "valid");
    if judged != alike {
        return Err(format!("{judged} when received, {alike} when verified"));
    }
    match found {
        Ok(_) if row["expected"]["valid"] == true => Ok(()),
        Ok(_) => Err("accepted".to_string()),
        Err(rejection) => same(&row["expected"]["error"], rejection.as_str()),
    }
}

fn parse_secret(row: &Value) -> Result<(), String> {
    match key(text(&row["input"], "secret")) {
        Ok(_) if row["expected"]["error"].is_null() => Ok(()),
        Ok(_) => Err("accepted".to_string()),
        Err(_) => same(&row["expected"]["error"], "invalid_secret"),
    }
}

/// The body in whichever form the row gives it, checked against its SHA-256 where there is one.
fn body(input: &Value) -> Result<Vec<u8>, String> {
    let body = if let Some(body) = input["body"].as_str() {
        body.as_bytes().to_vec()
    } else if let Some(body) = input["body_b64"].as_str() {
        STANDARD.decode(body).map_err(|error| error.to_string())?
    } else {
        generate(text(input, "body_generate")).ok_or("expression not understood")?
    };
    if let Some(expected) = input["body_sha256"].as_str() {
        let digest = Sha256::digest(&body);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if hex != expected {
            return Err(format!("the body was rebuilt as {hex}"));
        }
    }
    Ok(body)
}

/// Evaluates the Python expressions of the vectors: quoted texts without escapes, `"x"*n`, joined by ` + `.
fn generate(expression: &str) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut rest = expression;
    loop {
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
        let (literal, after) = rest[1..].split_once(quote)?;
        if literal.contains('\\') {
            return None;
        }
        let digits = after.strip_prefix('*').map(|after| {
            let end = after.find(|c: char| !c.is_ascii_digit());
            after.split_at(end.unwrap_or(after.len()))
        });
        let (times, after) = match digits {
            Some((digits, after)) => (digits.parse().ok()?, after),
            None => (1, after),
        };
        body.extend(literal.as_bytes().repeat(times));
        if after.is_empty() {
            return Some(body);
        }
        rest = after.strip_prefix(" + ")?;
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn same(expected: &Value, found: &str) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("expected {expected}, found \"{found}\""))
    }
}
