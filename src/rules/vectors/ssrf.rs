//! The SSRF vectors against `rules::address`, `rules::target` and `rules::host_name`.

use std::net::IpAddr;

use serde_json::Value;

use super::super::address::{Boundary, Form, Ports, embedded_ipv4};
use super::super::target::Host;
use super::{Tally, rows, text};

/// Rows of level `policy` that this project decides otherwise: id and why.
const DECIDED_OTHERWISE: &[(&str, &str)] = &[];

#[test]
fn addresses_are_allowed_and_denied_as_the_vectors_say() {
    let boundary = Boundary::default();
    let mut tally = Tally::new("ssrf_addresses.jsonl");
    for row in rows("ssrf_addresses.jsonl") {
        tally.count(text(&row, "id"), check(&row, |row| address(row, &boundary)));
    }
    tally.finish();
}

#[test]
fn urls_are_accepted_and_refused_as_the_vectors_say() {
    let boundary = Boundary {
        ports: Ports::AnyAllowed,
        ..Boundary::default()
    };
    let mut tally = Tally::new("ssrf_urls.jsonl");
    for row in rows("ssrf_urls.jsonl") {
        tally.count(text(&row, "id"), check(&row, |row| url(row, &boundary)));
    }
    tally.finish();
}

/// A row that was decided otherwise must be a policy row, and must really differ.
fn check(row: &Value, judge: impl Fn(&Value) -> Result<(), String>) -> Result<(), String> {
    let result = judge(row);
    if !DECIDED_OTHERWISE.iter().any(|(id, _)| *id == row["id"]) {
        return result;
    }
    if row["level"] != "policy" {
        return Err("only rows of level policy may be decided otherwise".into());
    }
    match result {
        Err(_) => Ok(()),
        Ok(()) => Err("is listed as decided otherwise, but agrees".into()),
    }
}

fn address(row: &Value, boundary: &Boundary) -> Result<(), String> {
    let ip: IpAddr = text(row, "input").parse().map_err(|e| format!("{e}"))?;
    let expected = &row["expected"];
    match (text(expected, "verdict"), boundary.vet(ip)) {
        ("allow", Ok(())) => {}
        ("deny", Err(denied)) => {
            same("block", text(expected, "block"), denied.block)?;
            same("category", text(expected, "category"), denied.category)?;
        }
        (verdict, got) => return Err(format!("expected {verdict}, got {got:?}")),
    }
    same(
        "canonical",
        text(row, "canonical"),
        &ip.to_canonical().to_string(),
    )?;
    embedded(row, ip)
}

fn embedded(row: &Value, ip: IpAddr) -> Result<(), String> {
    let (Some(expected), IpAddr::V6(v6)) = (row.get("embedded_v4"), ip) else {
        return Ok(());
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        same("embedded kind", text(expected, "kind"), "ipv4-mapped")?;
        return same("embedded IPv4", text(expected, "addr"), &v4.to_string());
    }
    let wanted = match text(expected, "kind") {
        "ipv4-compatible" => Form::Compatible,
        "siit" => Form::Siit,
        "nat64" => Form::Nat64,
        "6to4" => Form::SixToFour,
        "teredo-server" => Form::TeredoServer,
        "teredo-client" => Form::TeredoClient,
        "isatap" => Form::Isatap,
        kind => return Err(format!("no such embedding: {kind}")),
    };
    let found = embedded_ipv4(v6);
    let Some((_, v4)) = found.iter().find(|(form, _)| *form == wanted) else {
        return Err(format!("expected {wanted:?}, found {found:?}"));
    };
    same("embedded IPv4", text(expected, "addr"), &v4.to_string())
}

fn url(row: &Value, boundary: &Boundary) -> Result<(), String> {
    let input = input(row)?;
    let expected = &row["expected"];
    match (text(expected, "verdict"), boundary.target(&input)) {
        ("allow", Ok(target)) => {
            let host = match target.host() {
                Host::Name(name) => name.clone(),
                Host::Ip(IpAddr::V4(v4)) => v4.to_string(),
                Host::Ip(IpAddr::V6(v6)) => format!("[{v6}]"),
            };
            same("host", text(expected, "host"), &host)?;
            let port = target.port();
            if expected["port"] != port {
                return Err(format!("expected port {}, got {port}", expected["port"]));
            }
            Ok(())
        }
        ("deny", Err(refusal)) => {
            let reason = refusal.reason.as_str();
            let also = [&expected["also_acceptable"], &row["also_acceptable"]];
            let also = also.into_iter().filter_map(Value::as_array).flatten();
            if std::iter::once(&expected["reason"])
                .chain(also)
                .any(|acceptable| acceptable == reason)
            {
                return Ok(());
            }
            Err(format!("expected {}, got {reason}", expected["reason"]))
        }
        (verdict, got) => Err(format!("expected {verdict}, got {got:?}")),
    }
}

/// The URL of a row; very long ones are written as `"text" + "x"*count`.
fn input(row: &Value) -> Result<String, String> {
    let input = &row["input"];
    if let Some(plain) = input.as_str() {
        return Ok(plain.to_owned());
    }
    let expression = text(input, "generate");
    let mut made = String::new();
    for term in expression.split(" + ") {
        let (literal, count) = match term.rsplit_once("\"*") {
            Some((literal, count)) => (format!("{literal}\""), count.parse::<usize>()),
            None => (term.to_owned(), Ok(1)),
        };
        let literal: String = serde_json::from_str(&literal)
            .map_err(|error| format!("cannot read {expression}: {error}"))?;
        let count = count.map_err(|error| format!("cannot read {expression}: {error}"))?;
        made.push_str(&literal.repeat(count));
    }
    if input["bytes"] != made.len() {
        return Err(format!("{expression} gave {} bytes", made.len()));
    }
    Ok(made)
}

fn same(what: &str, expected: &str, got: &str) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("expected {what} {expected}, got {got}"))
}
