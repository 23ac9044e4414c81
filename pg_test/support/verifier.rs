//! Judges recorded requests as a receiver would: with the public Standard Webhooks libraries of Rust and of Python.
//! Refuses to use any code of the product.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;
use standardwebhooks::Webhook;

use crate::{place, receiver::Request};

/// What both libraries say about requests that were signed with `secret` (`whsec_...`): one objection per request
/// that either refuses, with its position.
///
/// The libraries compare the timestamp with the clock: judge within five minutes of the arrival.
pub fn objections(secret: &str, requests: &[Request]) -> Vec<String> {
    let mut all = Vec::new();
    for (position, verdict) in by_rust(secret, requests).into_iter().enumerate() {
        all.extend(
            verdict
                .err()
                .map(|objection| format!("request {position}, Rust: {objection}")),
        );
    }
    for (position, verdict) in by_python(secret, requests).into_iter().enumerate() {
        all.extend(
            verdict
                .err()
                .map(|objection| format!("request {position}, Python: {objection}")),
        );
    }
    all
}

/// The verdict of the Rust library on each request.
pub fn by_rust(secret: &str, requests: &[Request]) -> Vec<Result<(), String>> {
    let webhook = Webhook::new(secret)
        .unwrap_or_else(|error| panic!("the Rust library refuses the secret: {error}"));
    let judge = |request: &Request| {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name =
                http::HeaderName::try_from(name.as_str()).map_err(|error| error.to_string())?;
            headers.append(
                name,
                http::HeaderValue::try_from(value.as_str()).map_err(|error| error.to_string())?,
            );
        }
        webhook
            .verify(&request.body, &headers)
            .map_err(|error| error.to_string())
    };
    requests.iter().map(judge).collect()
}

/// The verdict of the Python library on each request.
pub fn by_python(secret: &str, requests: &[Request]) -> Vec<Result<(), String>> {
    let mut child = Command::new(place::build().join("venv/bin/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/support/verify.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python verifier: run `make setup`");
    let mut input = child.stdin.take().expect("the verifier's input");
    let mut lines = String::new();
    for request in requests {
        let body = STANDARD.encode(&request.body);
        let line =
            serde_json::json!({ "secret": secret, "headers": request.headers, "body": body });
        lines.push_str(&format!("{line}\n"));
    }
    // Written beside the reading, or both pipes could fill.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the Python verifier");
    writer
        .join()
        .expect("the writing thread")
        .expect("the verifier's input");
    assert!(
        output.status.success(),
        "the Python verifier failed: {}",
        output.status
    );
    let verdicts = String::from_utf8(output.stdout).expect("the verifier's output");
    let verdicts: Vec<_> = verdicts
        .lines()
        .map(|line| {
            if line == "ok" {
                Ok(())
            } else {
                Err(line.to_owned())
            }
        })
        .collect();
    assert_eq!(
        verdicts.len(),
        requests.len(),
        "one verdict for each request"
    );
    verdicts
}
