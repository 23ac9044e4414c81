//! The vectors for Standard Webhooks: signing, verifying and reading symmetric secrets.
//!
//! Refuses to pass rows of ed25519 keys: they are counted as skipped, never as passed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Tally, rows, text};
use crate::rules::signing::{
    Received, Secret, SigningKey, signature_header, valid_message_id, verify_v1,
};

const FILE: &str = "standard_webhooks.jsonl";

#[test]
fn every_symmetric_standard_webhooks_vector_passes() {
    let mut tally = Tally::new(FILE);
    let mut skipped = 0;
    for row in rows(FILE) {
        let input = &row["input"];
        if is_asymmetric(input) {
            skipped += 1;
            continue;
        }
        let result = match text(input, "op") {
            "sign" => sign(&row),
            "verify" => verify(&row),
            "parse_secret" => parse_secret(&row),
            other => Err(format!("no such operation: {other}")),
        };
        tally.count(text(&row, "id"), result);
    }
    super::say(&format!("{FILE}: skipped {skipped} rows of ed25519 keys"));
    tally.finish();
}

fn is_asymmetric(input: &Value) -> bool {
    let listed = ["secrets", "keys"]
        .iter()
        .filter_map(|name| input[name].as_array())
        .flatten();
    listed
        .chain([&input["secret"]])
        .filter_map(Value::as_str)
        .any(|key| key.starts_with("whsk_") || key.starts_with("whpk_"))
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
        .map(|secret| Secret::parse(secret).map(|secret| SigningKey { id: 0, secret }))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
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
    let keys: Vec<Secret> = strings(&input["keys"])
        .map(Secret::parse)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let now = input["now"].as_i64().ok_or("no time")?;
    let tolerance = input["tolerance"].as_u64().ok_or("no tolerance")?;
    match verify_v1(&keys, &message, now, tolerance) {
        Ok(_) if row["expected"]["valid"] == true => Ok(()),
        Ok(_) => Err("accepted".to_string()),
        Err(rejection) => same(&row["expected"]["error"], rejection.as_str()),
    }
}

fn parse_secret(row: &Value) -> Result<(), String> {
    match Secret::parse(text(&row["input"], "secret")) {
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
