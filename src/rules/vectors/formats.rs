//! The vectors for CloudEvents, HTTP Message Signatures with digests, and the signatures of other senders.
//!
//! Refuses to skip rows: each is either passed or failed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sfv::{BareItem, KeyRef, Parameters};

use super::{Tally, rows, text};
use crate::rules::cloudevents::{self, CloudEvent, Data};
use crate::rules::digest::{Algorithm, content_digest};
use crate::rules::ed25519::{KeyPair, PublicKey};
use crate::rules::http_signature::{self, Request};
use crate::rules::legacy_signature as legacy;
use crate::rules::profile::Profile;
use crate::rules::receive;
use crate::rules::signing::{Key, Secret, VerifyingKey};

type Checked = Result<(), String>;

#[test]
fn every_cloudevents_vector_passes() {
    let mut tally = Tally::new("cloudevents.jsonl");
    for row in rows("cloudevents.jsonl") {
        tally.count(
            text(&row, "id"),
            cloudevent(&row["input"], &row["expected"]),
        );
    }
    tally.finish();
}

fn cloudevent(input: &Value, expected: &Value) -> Checked {
    if let Some(header) = input["decode_header"].as_str() {
        return match cloudevents::decode(header) {
            Ok(value) => same(&expected["value"], &value.into()),
            Err(fault) => same(&expected["error"], &fault.as_str().into()),
        };
    }
    let attributes = input["attributes"].as_object().ok_or("no attributes")?;
    let attributes = attributes
        .iter()
        .map(|(name, value)| {
            let value = match value {
                Value::String(text) => cloudevents::Value::Text(text.clone()),
                Value::Bool(value) => cloudevents::Value::Boolean(*value),
                other => cloudevents::Value::Integer(
                    other
                        .as_i64()
                        .and_then(|number| number.try_into().ok())
                        .ok_or("no integer")?,
                ),
            };
            Ok((name.clone(), value))
        })
        .collect::<Result<Vec<_>, String>>()?;
    let json = input.get("data_json").map(Value::to_string);
    let bytes = input["data_b64"].as_str().map(bytes).transpose()?;
    let data = match (&json, input["data_text"].as_str(), &bytes) {
        (Some(json), ..) => Some(Data::Json(json)),
        (_, Some(text), _) => Some(Data::Text(text)),
        (.., Some(bytes)) => Some(Data::Bytes(bytes)),
        _ => None,
    };
    let event = match CloudEvent::new(attributes, data) {
        Ok(event) => event,
        Err(fault) => return same(&expected["error"], &fault.as_str().into()),
    };
    let (binary, wanted) = (event.binary(), &expected["binary"]);
    let mut headers = serde_json::Map::new();
    for (name, value) in binary.headers {
        headers.insert(name, value.into());
    }
    same(&wanted["headers"], &headers.into())?;
    let body = String::from_utf8(binary.body.clone()).ok();
    if let Some(json) = wanted.get("body_json") {
        let body = body.and_then(|body| serde_json::from_str(&body).ok());
        same(json, &body.ok_or("the body is no JSON")?)?;
    } else if let Some(encoded) = wanted.get("body_b64") {
        same(encoded, &STANDARD.encode(&binary.body).into())?;
    } else {
        same(&wanted["body"], &body.into())?;
    }
    let (structured, wanted) = (event.structured(), &expected["structured"]);
    let kind = &structured.headers.first().ok_or("no content type")?.1;
    if !kind.starts_with(text(wanted, "content_type_prefix")) {
        return Err(format!("content type {kind}"));
    }
    let json: Value =
        serde_json::from_slice(&structured.body).map_err(|error| error.to_string())?;
    same(&wanted["json"], &json)
}

#[test]
fn every_http_signatures_vector_passes() {
    let mut tally = Tally::new("http_signatures.jsonl");
    for row in rows("http_signatures.jsonl") {
        tally.count(text(&row, "id"), http(&row["input"], &row["expected"]));
    }
    tally.finish();
}

fn http(input: &Value, expected: &Value) -> Checked {
    if input["op"] == "content_digest" {
        let algorithms = input["algorithms"].as_array().into_iter().flatten();
        let known: Option<Vec<Algorithm>> = algorithms
            .map(|name| Algorithm::parse(name.as_str()?))
            .collect();
        return match known {
            Some(known) => {
                let header = content_digest(text(input, "body").as_bytes(), &known);
                assert!(crate::rules::digest::fits(
                    &header,
                    text(input, "body").as_bytes()
                ));
                same(&expected["content_digest"], &header.into())
            }
            None => same(&expected["error"], &"unsupported_algorithm".into()),
        };
    }
    let message = &input["message"];
    let line = |line: &Value| Some((line[0].as_str()?.to_owned(), line[1].as_str()?.to_owned()));
    let headers: Option<Vec<_>> = message["headers"]
        .as_array()
        .ok_or("no headers")?
        .iter()
        .map(line)
        .collect();
    let headers = headers.ok_or("headers are not texts")?;
    let request = Request {
        method: text(message, "method"),
        url: text(message, "url"),
        headers: &headers,
    };
    match text(input, "op") {
        "component" => {
            let value = http_signature::component(text(input, "component"))
                .and_then(|component| http_signature::value(&request, &component));
            match value {
                Ok(value) => same(&expected["value"], &value.into()),
                Err(fault) => same(&expected["error"], &fault.as_str().into()),
            }
        }
        "sign" => sign(&request, input, expected),
        "verify" => {
            let (_, key) = keys(&input["key"])?;
            let verified = http_signature::verify(
                &request,
                text(input, "signature_input"),
                text(input, "signature"),
                &key,
            );
            same(&expected["valid"], &verified.is_ok().into())?;
            same(&expected["valid"], &received(input, &headers)?.into())
        }
        other => Err(format!("no such operation: {other}")),
    }
}

/// The same by what receivers call, at the time that the signature names.
fn received(input: &Value, headers: &[(String, String)]) -> Result<bool, String> {
    let (_, key) = keys(&input["key"])?;
    let mut lines = headers.to_vec();
    for (name, member) in [
        ("Signature-Input", "signature_input"),
        ("Signature", "signature"),
    ] {
        lines.push((name.to_owned(), text(input, member).to_owned()));
    }
    let headers = receive::Headers::new(lines);
    let message = &input["message"];
    let incoming = receive::Incoming {
        method: text(message, "method"),
        url: Some(text(message, "url")),
        headers: &headers,
        body: message["body"].as_str().unwrap_or_default().as_bytes(),
    };
    let own = [receive::OwnKey::Key(key)];
    let created = text(input, "signature_input").split("created=").nth(1);
    let created = created.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let created = created.and_then(|digits| digits.parse().ok());
    let created = created.ok_or("no time of signing")?;
    Ok(receive::verify(Profile::HttpHmac, &own, &incoming, created, 0).is_ok())
}

fn sign(request: &Request<'_>, input: &Value, expected: &Value) -> Checked {
    let names = input["components"].as_array().ok_or("no components")?;
    let components = names
        .iter()
        .filter_map(Value::as_str)
        .map(http_signature::component)
        .collect::<Result<Vec<_>, _>>();
    let components = match components {
        Ok(components) => components,
        Err(fault) => return same(&expected["error"], &fault.as_str().into()),
    };
    let mut params = Parameters::new();
    for param in input["params"].as_array().ok_or("no parameters")? {
        let name = KeyRef::from_str(text_of(&param[0])?).map_err(|error| error.to_string())?;
        let value = match &param[1] {
            Value::String(text) => BareItem::String(
                sfv::String::from_string(text.clone()).map_err(|(error, _)| error.to_string())?,
            ),
            other => BareItem::Integer(
                other
                    .as_i64()
                    .and_then(|n| n.try_into().ok())
                    .ok_or("no integer")?,
            ),
        };
        params.insert(name.to_owned(), value);
    }
    let label = KeyRef::from_str(input["label"].as_str().unwrap_or("sig1"))
        .map_err(|error| error.to_string())?;
    let (key, verifying) = match input["key"].is_null() {
        true => (
            Key::from(Secret::generate([1; 32])),
            Secret::generate([1; 32]).into(),
        ),
        false => keys(&input["key"])?,
    };
    match http_signature::sign(request, &components, &params, label, &key) {
        Ok(signed) => {
            if let Some(base) = expected.get("signature_base") {
                same(base, &signed.base.into())?;
            }
            same(&expected["signature_input"], &signed.input.clone().into())?;
            same(&expected["signature"], &signed.signature.clone().into())?;
            http_signature::verify(request, &signed.input, &signed.signature, &verifying)
                .map(|_| ())
                .map_err(|fault| fault.as_str().to_owned())
        }
        Err(fault) => same(&expected["error"], &fault.as_str().into()),
    }
}

fn keys(key: &Value) -> Result<(Key, VerifyingKey), String> {
    if text(key, "alg") == "hmac-sha256" {
        let secret = Secret::from_bytes(&bytes(text(key, "secret_b64"))?)
            .map_err(|error| error.to_string())?;
        return Ok((secret.clone().into(), secret.into()));
    }
    let public = PublicKey::from_slice(&bytes(text(key, "public_b64"))?)
        .map_err(|error| error.to_string())?;
    // A row that verifies has no private key.
    let pair = match key["seed_b64"].as_str() {
        Some(seed) => KeyPair::from_slice(&bytes(seed)?).map_err(|error| error.to_string())?,
        None => return Ok((KeyPair::from_seed(&[0; 32]).into(), public.into())),
    };
    if pair.public() != public {
        return Err("the public key is not the seed's".to_owned());
    }
    Ok((pair.into(), public.into()))
}

#[test]
fn every_legacy_signatures_vector_passes() {
    let mut tally = Tally::new("legacy_signatures.jsonl");
    for row in rows("legacy_signatures.jsonl") {
        tally.count(
            text(&row, "id"),
            other_sender(&row["input"], &row["expected"]),
        );
    }
    tally.finish();
}

fn other_sender(input: &Value, expected: &Value) -> Checked {
    let body = match input["body_b64"].as_str() {
        Some(encoded) => bytes(encoded)?,
        None => text(input, "body").as_bytes().to_vec(),
    };
    let secrets: Vec<&str> = match &input["secret"] {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        one => vec![text_of(one)?],
    };
    let (secret, at) = (
        secrets.first().ok_or("no secret")?,
        input["timestamp"].as_i64().unwrap_or_default(),
    );
    if input["op"] == "verify" {
        let (header, now) = (
            text(input, "header"),
            input["now"].as_i64().unwrap_or_default(),
        );
        let tolerance = input["tolerance"].as_u64().unwrap_or_default();
        let valid = match text(input, "scheme") {
            "github" => legacy::verify_github(secret, &body, header),
            "stripe" => legacy::verify_stripe(secret, &body, header, now, tolerance),
            "slack" => legacy::verify_slack(secret, &body, header, &at.to_string(), now, tolerance),
            "shopify" => legacy::verify_shopify(secret, &body, header),
            other => return Err(format!("no such scheme: {other}")),
        };
        let profile = Profile::parse(text(input, "scheme")).ok_or("no such profile")?;
        let own = receive::OwnKey::parse(profile, secret)?;
        let names = profile.names().iter();
        let lines = names.map(|name| match *name {
            legacy::SLACK_TIMESTAMP => ((*name).to_owned(), at.to_string()),
            name => (name.to_owned(), header.to_owned()),
        });
        let headers = receive::Headers::new(lines.collect());
        let incoming = receive::Incoming {
            method: "POST",
            url: None,
            headers: &headers,
            body: &body,
        };
        let judged = receive::verify(profile, &[own], &incoming, now, tolerance).is_ok();
        same(&expected["valid"], &judged.into())?;
        return same(&expected["valid"], &valid.into());
    }
    let made = match text(input, "scheme") {
        "github" => vec![
            (legacy::GITHUB, legacy::github(secret, &body)),
            (legacy::GITHUB_SHA1, legacy::github_sha1(secret, &body)),
        ],
        "stripe" => vec![(
            legacy::STRIPE,
            legacy::stripe(secrets.iter().copied(), at, &body),
        )],
        "slack" => vec![
            (legacy::SLACK, legacy::slack(secret, at, &body)),
            (legacy::SLACK_TIMESTAMP, at.to_string()),
        ],
        "shopify" => vec![(legacy::SHOPIFY, legacy::shopify(secret, &body))],
        other => return Err(format!("no such scheme: {other}")),
    };
    let wanted = expected["headers"].as_object().ok_or("no headers")?;
    for (name, value) in wanted {
        let found = made
            .iter()
            .find(|(made, _)| made.eq_ignore_ascii_case(name));
        let (_, found) = found.ok_or_else(|| format!("no header {name}"))?;
        same(value, &found.as_str().into())?;
    }
    Ok(())
}

/// Rows in the form of the other files, made with public libraries of Python: which stands in `source`.
#[test]
fn every_own_vector_passes() {
    const FILE: &str = "own_formats.jsonl";
    let mut tally = Tally::new(FILE);
    for row in rows(FILE) {
        let (input, expected) = (&row["input"], &row["expected"]);
        let result = match text(&row, "file") {
            "cloudevents" => cloudevent(input, expected),
            "http_signatures" => http(input, expected),
            "legacy_signatures" => other_sender(input, expected),
            "standard_webhooks" => super::signing::judge(&row),
            other => Err(format!("no such file: {other}")),
        };
        tally.count(text(&row, "id"), result);
    }
    tally.finish();
}

fn bytes(encoded: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(encoded).map_err(|error| error.to_string())
}

fn text_of(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("no text: {value}"))
}

fn same(expected: &Value, found: &Value) -> Checked {
    if expected == found {
        Ok(())
    } else {
        Err(format!("expected {expected}, found {found}"))
    }
}
