//! Turns changes into the arrays that statements unnest, one array a column.

use pgrx::prelude::*;

use super::change::{Attempted, Change};
use super::timestamp;

pub fn column<T>(changes: &[&Change], pick: impl Fn(&Change) -> T) -> Vec<T> {
    changes.iter().map(|change| pick(change)).collect()
}

pub fn attempted<T>(changes: &[&Change], pick: impl Fn(&Attempted) -> Option<T>) -> Vec<Option<T>> {
    column(changes, |change| change.attempt.as_ref().and_then(&pick))
}

/// When the next attempt is planned, for people to read: neither a precaution for what is on the wire nor
/// the stamp of what is held is a plan.
pub fn planned(changes: &[&Change]) -> Vec<Option<TimestampWithTimeZone>> {
    column(changes, |change| {
        let planned = change
            .next_attempt_at
            .filter(|_| !change.on_wire && change.hold == 0);
        planned.and_then(timestamp)
    })
}

pub fn event_ids(changes: &[&Change]) -> Vec<String> {
    column(changes, |change| change.pair.event.to_string())
}

pub fn texts(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

pub fn key_ids(changes: &[&Change]) -> Vec<Option<String>> {
    attempted(changes, |attempt| {
        let keys: Vec<String> = attempt.key_ids.iter().map(i64::to_string).collect();
        (!keys.is_empty()).then(|| format!("{{{}}}", keys.join(",")))
    })
}

pub fn digests(changes: &[&Change]) -> Vec<Option<String>> {
    attempted(changes, |attempt| {
        attempt.body_sha256.map(|digest| hex(&digest))
    })
}

pub fn delivered_at(changes: &[&Change]) -> Vec<Option<TimestampWithTimeZone>> {
    column(changes, |change| {
        let attempt = change.attempt.as_ref()?;
        let took = i64::from(attempt.latency_ms.unwrap_or(0)) * 1000;
        (change.state == "delivered")
            .then(|| timestamp(attempt.started_at + took))
            .flatten()
    })
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}
