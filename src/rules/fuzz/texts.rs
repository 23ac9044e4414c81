//! Texts that users, operators and receivers write: event types and patterns, partners, schedules, names to hide,
//! ids, Retry-After, answers to challenges, fields of an event.
//!
//! Input: a byte that says which, then texts separated by NUL.

use std::time::Duration;

use super::CANARY;
use crate::rules::challenge::{Challenge, Method};
use crate::rules::delivery::{Answer, Category, Phase, State};
use crate::rules::envelope::{self, Event};
use crate::rules::ids::{EventId, Pair};
use crate::rules::matching::{
    type_matches, valid_partner, valid_pattern, valid_traceparent, valid_type,
};
use crate::rules::policy::{self, Next, RetryPolicy, Try, parse_schedule};
use crate::rules::redaction::{parse_names, redact};
use crate::rules::retry_after::{self, RetryAfter};
use crate::rules::snapshot::Snapshot;

/// Checks one input.
pub fn run(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let fields: Vec<&str> = text.split('\0').collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    match which % 8 {
        0 => types(field(0), field(1)),
        1 => names(field(0)),
        2 => schedule(field(0)),
        3 => redaction(field(0), field(1)),
        4 => ids(field(0)),
        5 => wait(&fields),
        6 => event(&fields),
        _ => proof(rest),
    }
}

fn types(pattern: &str, kind: &str) {
    let matches = type_matches(pattern, kind);
    for name in [pattern, kind] {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let valid = name.len() <= 128
            && name
                .split('.')
                .all(|part| !part.is_empty() && part.chars().all(plain));
        assert_eq!(valid_type(name), valid, "{name}");
    }
    if valid_type(kind) {
        assert!(type_matches(kind, kind) && valid_pattern(kind));
        assert_ne!(type_matches("*", kind), kind.starts_with("webhook."));
        for (at, _) in kind.match_indices('.') {
            assert!(type_matches(&format!("{}.*", &kind[..at]), kind), "{kind}");
        }
    }
    if valid_pattern(pattern) && valid_type(kind) {
        // Part by part, where the rule compares bytes.
        let wanted: Vec<&str> = pattern.split('.').collect();
        let given: Vec<&str> = kind.split('.').collect();
        let expected = match wanted.split_last() {
            Some((&"*", [])) => given[0] != "webhook" || given.len() == 1,
            Some((&"*", head)) => given.len() > head.len() && given.starts_with(head),
            _ => wanted == given,
        };
        assert_eq!(matches, expected, "{pattern} {kind}");
    }
}

/// What passes is sent as a header or stored as a key: it must be short and plain.
fn names(text: &str) {
    if valid_partner(text) {
        assert!((1..=128).contains(&text.len()));
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(!text.contains(['/', '?', '#', '@', '"', '\'', ',', ';', '\\']));
    }
    if valid_traceparent(text) {
        assert_eq!(text.len(), 55);
        assert!(
            text.bytes()
                .all(|b| b == b'-' || b.is_ascii_digit() || b.is_ascii_lowercase())
        );
        let ids: Vec<u128> = text
            .split('-')
            .map(|part| u128::from_str_radix(part, 16).expect("hexadecimal"))
            .collect();
        assert!(ids.len() == 4 && ids[0] == 0 && ids[1] != 0 && ids[2] != 0);
    }
    if let Ok(word) = text.parse::<Category>() {
        assert_eq!(word.as_str(), text);
    }
    if let Ok(word) = text.parse::<Phase>() {
        assert_eq!(word.as_str(), text);
    }
    if let Ok(word) = text.parse::<State>() {
        assert_eq!(word.as_str(), text);
    }
    if let Some(method) = Method::parse(text) {
        assert_eq!(method.as_str(), text);
    }
    if let Ok(snapshot) = text.parse::<Snapshot>() {
        assert_eq!(snapshot.to_string().parse(), Ok(snapshot.clone()));
        for id in snapshot.running() {
            assert!(!snapshot.sees(*id) && *id < snapshot.xmax());
        }
        assert!(!snapshot.sees(snapshot.xmax()));
    }
}

fn schedule(text: &str) {
    match parse_schedule(text) {
        Ok(waits) => {
            let longest = Duration::from_secs(30 * 86_400);
            assert!(waits.len() <= 50);
            assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= longest));
            let texts: Vec<String> = waits
                .iter()
                .map(|wait| format!("{}ms", wait.as_millis()))
                .collect();
            assert_eq!(parse_schedule(&texts.join(",")), Ok(waits));
        }
        Err(message) => {
            assert!(message.chars().count() < 160, "{message}");
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }
}

fn redaction(text: &str, names: &str) {
    let more = parse_names(names).unwrap_or_default();
    assert!(more.len() <= 100);
    for name in &more {
        assert!((2..=64).contains(&name.len()) && *name == name.to_ascii_lowercase());
        // Whatever comes before, a name that the operator gave hides the word behind it.
        let shown = redact(&format!("{name}={CANARY}"), &more);
        assert!(!shown.contains(CANARY), "{shown}");
    }
    let shown = redact(text, &more);
    assert!(
        shown
            .chars()
            .all(|c| c == '\t' || c == '\n' || !c.is_control())
    );
    // The shortest secret that is replaced has six bytes (a name of two, a separator, a value); see HIDDEN.
    assert!(shown.len() <= 12 * text.len() + 12);
    if text.contains(CANARY) {
        return;
    }
    // A secret that gives itself away is hidden wherever it stands.
    let end = text.trim_end().to_ascii_lowercase();
    for mark in ["whsec_", "Bearer ", "sk_live_"] {
        // The scheme's name itself is what stands where a credential should.
        if mark == "Bearer " && (end.ends_with("bearer") || end.ends_with("basic")) {
            continue;
        }
        let shown = redact(&format!("{text} {mark}{CANARY}"), &more);
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

fn ids(text: &str) {
    const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let ulid = |text: &str| {
        text.len() == 26 && text.chars().all(|c| DIGITS.contains(c)) && text.as_bytes()[0] <= b'7'
    };
    let event = text.parse::<EventId>();
    assert_eq!(
        event.is_ok(),
        text.strip_prefix("evt_").is_some_and(ulid),
        "{text}"
    );
    if let Ok(event) = event {
        assert_eq!(event.to_string(), text);
        assert_eq!(EventId::from_u128(event.as_u128()), event);
        let random = event.as_u128() & ((1 << 80) - 1);
        assert_eq!(EventId::new(event.unix_ms(), random), event);
    }
    let pair = text.parse::<Pair>();
    let parts = text
        .strip_prefix("dlv_")
        .and_then(|rest| rest.split_once('_'));
    let number = |text: &str| {
        text.parse::<i64>()
            .is_ok_and(|number| number.to_string() == text)
    };
    let valid = parts.is_some_and(|(event, endpoint)| ulid(event) && number(endpoint));
    assert_eq!(pair.is_ok(), valid, "{text}");
    if let Ok(pair) = pair {
        assert_eq!(pair.to_string(), text);
    }
}

fn wait(lines: &[&str]) {
    const NOW: i64 = 1_785_585_600;
    let asked = retry_after::parse(lines, NOW);
    if let RetryAfter::Delay(seconds) = asked {
        assert!(seconds <= 0x7fff_ffff);
    }
    let line = lines[0].trim_matches([' ', '\t']);
    if lines.len() == 1 && !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) {
        let expected = match line.parse::<u32>() {
            Ok(seconds @ 0..=0x7fff_ffff) => RetryAfter::Delay(seconds.into()),
            _ => RetryAfter::Saturate,
        };
        assert_eq!(asked, expected);
    }
    if lines.len() != 1 {
        assert_eq!(asked, RetryAfter::Ignored);
    }
    let answer = Answer::Status {
        code: 503,
        retry_after: lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    verdict(&answer);
}

/// No answer makes a delivery wait longer than the policy says.
pub(crate) fn verdict(answer: &Answer) {
    let policy = RetryPolicy {
        schedule: vec![Duration::from_secs(60)],
        client_error_attempts: 1,
        retry_after_max: Duration::from_secs(3600),
    };
    let first = Try {
        in_series: 1,
        probe: false,
        since_first: Duration::ZERO,
    };
    for now in [0, 1_785_585_600, i64::MIN, i64::MAX] {
        let verdict = policy::judge(answer, first, &policy, now, 0.5);
        assert!(verdict.retry_after <= policy.retry_after_max);
        if let Next::Retry { after } = verdict.next {
            assert!(after <= policy.retry_after_max && after >= Duration::from_secs(60));
        }
    }
}

/// The body is JSON, holds every field as it was given, and no two events have the same seal.
fn event(fields: &[&str]) {
    let field = |index: usize| fields.get(index).map(|text| (*text).to_owned());
    let number = field(8)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let event = Event {
        id: EventId::from_u128(7),
        kind: field(0).unwrap_or_default(),
        partner_id: field(1).unwrap_or_default(),
        source: field(2),
        occurred_at: number,
        subject_type: field(3),
        subject_id: field(4),
        subject_version: field(8).map(|_| number),
        scope: field(5),
        schema_version: field(6),
        correlation_id: field(7),
        causation: field(9),
        traceparent: field(10),
        test: fields.len().is_multiple_of(2),
        data: "{\"amount\":1.10}".to_owned(),
    };
    let body = envelope::body(&event);
    let read: serde_json::Value = serde_json::from_str(&body).expect("the body is JSON");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    assert_eq!(text(&read["type"]).as_ref(), Some(&event.kind));
    assert_eq!(text(&read["partner_id"]).as_ref(), Some(&event.partner_id));
    assert_eq!(text(&read["source"]), event.source);
    assert_eq!(text(&read["subject"]["type"]), event.subject_type);
    assert_eq!(text(&read["subject"]["id"]), event.subject_id);
    assert_eq!(read["subject"]["version"].as_i64(), event.subject_version);
    assert_eq!(text(&read["scope"]), event.scope);
    assert_eq!(text(&read["correlation_id"]), event.correlation_id);
    assert_eq!(read["test"] == true, event.test);
    assert!(body.ends_with(",\"data\":{\"amount\":1.10}}"));
    // A byte that moves from one field to the next makes another event.
    let seal = envelope::seal(&[9; 32], &event, 1, &[0; 32]);
    let mut other = event.clone();
    if let Some(last) = other.kind.pop() {
        other.partner_id.insert(0, last);
        assert_ne!(envelope::seal(&[9; 32], &other, 1, &[0; 32]), seal);
    }
    let mut other = event;
    std::mem::swap(&mut other.scope, &mut other.schema_version);
    if other.scope != other.schema_version {
        assert_ne!(envelope::seal(&[9; 32], &other, 1, &[0; 32]), seal);
    }
}

/// No answer proves control unless it holds the value.
pub(crate) fn proof(answer: &[u8]) {
    let escaped = answer.windows(2).any(|pair| pair == b"\\u");
    for method in [Method::Challenge, Method::Graph, Method::Slack] {
        let challenge = Challenge {
            method,
            value: CANARY.to_owned(),
            endpoint: "42".to_owned(),
        };
        let proven = challenge.judge(200, Some("text/plain"), answer).is_ok();
        let holds = answer
            .windows(CANARY.len())
            .any(|window| window == CANARY.as_bytes());
        assert!(!proven || holds || escaped);
        assert!(challenge.judge(302, Some("text/plain"), answer).is_err());
        let own = challenge.body();
        assert!(
            challenge
                .judge(200, Some("text/plain"), own.as_bytes())
                .is_err()
        );
    }
}
