//! Tests of the envelope: its exact text, the payload's bytes, and what the seal notices.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

const SHA: [u8; 32] = [3; 32];

fn full() -> Event {
    Event {
        id: "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        kind: "customer.created".to_string(),
        partner_id: "acme".to_string(),
        source: Some("crm".to_string()),
        occurred_at: 1_796_001_058_123_456,
        subject_type: Some("customer".to_string()),
        subject_id: Some("42".to_string()),
        subject_version: Some(9_007_199_254_740_993),
        scope: Some("eu".to_string()),
        schema_version: Some("2".to_string()),
        correlation_id: Some("order-7".to_string()),
        causation: Some("evt_0".to_string()),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_string()),
        test: true,
        data: "{\"a\": 1}".to_string(),
    }
}

fn bare() -> Event {
    Event {
        source: None,
        subject_type: None,
        subject_id: None,
        subject_version: None,
        scope: None,
        schema_version: None,
        correlation_id: None,
        causation: None,
        traceparent: None,
        test: false,
        ..full()
    }
}

#[test]
fn members_come_in_the_documented_order() {
    assert_eq!(
        body(&full()),
        concat!(
            r#"{"event_id":"evt_01ARZ3NDEKTSV4RRFFQ69G5FAV","type":"customer.created","#,
            r#""source":"crm","occurred_at":"2026-11-30T01:10:58.123456Z","partner_id":"acme","#,
            r#""subject":{"type":"customer","id":"42","version":9007199254740993},"scope":"eu","#,
            r#""schema_version":"2","correlation_id":"order-7","test":true,"data":{"a": 1}}"#,
        )
    );
}

#[test]
fn absent_members_are_left_out_and_test_stands_on_test_events_only() {
    assert_eq!(
        body(&bare()),
        concat!(
            r#"{"event_id":"evt_01ARZ3NDEKTSV4RRFFQ69G5FAV","type":"customer.created","#,
            r#""occurred_at":"2026-11-30T01:10:58.123456Z","partner_id":"acme","data":{"a": 1}}"#,
        )
    );
}

#[test]
fn a_subject_has_the_parts_it_was_given() {
    let only_version = Event {
        subject_version: Some(-1),
        ..bare()
    };
    assert!(body(&only_version).contains(r#""subject":{"version":-1},"data""#));
    let only_id = Event {
        subject_id: Some(String::new()),
        ..bare()
    };
    assert!(body(&only_id).contains(r#""subject":{"id":""},"data""#));
}

#[test]
fn texts_are_escaped_and_stay_themselves() {
    let nasty = "\"\\/\n\t\u{8}\u{1}\u{7f}\u{2028}é😀,\"data\":{";
    let event = Event {
        source: Some(nasty.to_string()),
        ..bare()
    };
    let read: HashMap<String, serde_json::Value> = serde_json::from_str(&body(&event)).unwrap();
    assert_eq!(read["source"], nasty);
    assert_eq!(read.len(), 6);
}

#[test]
fn payload_bytes_are_never_touched() {
    for data in [
        "1e400",
        "-0",
        "1.10",
        "12345678901234567890.123456789",
        r#"{"n":12345678901234567890123,"m":1E+2}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"u":"https:\/\/example.com"}"#,
        r#"{"e":"\ud800","f":"\u00e9é😀"}"#,
        "{\"c\":\"e\u{301}\"}",
        "null",
        "\"hi\"",
        "[1,2 , 3]",
        "{\r\n  \"a\": 1\r\n}",
        "{}",
    ] {
        let event = Event {
            data: data.to_string(),
            ..full()
        };
        assert_eq!(payload_of(&body(&event)), data);
    }
    let spaced = Event {
        data: "\n {\"a\":1}\t".to_string(),
        ..bare()
    };
    assert!(body(&spaced).ends_with("\"data\":\n {\"a\":1}\t}"));
}

#[test]
fn a_year_without_four_digits_is_not_clamped() {
    let event = Event {
        occurred_at: i64::MAX,
        ..bare()
    };
    assert!(body(&event).contains(r#""occurred_at":"+294247-01-10T04:00:54.775807Z""#));
}

#[test]
fn the_format_of_the_seal_is_fixed() {
    // Stored seals must hold for ever: a change of these bytes makes every kept event look forged.
    let seal = seal(b"key", &full(), -7, &SHA);
    let hex: String = seal.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "053b114aa9ca7fea893046c0058d0555");
}

#[test]
fn the_seal_changes_with_every_field() {
    type Change = fn(&mut Event);
    let some = || Some("other".to_string());
    let original = seal(b"key", &full(), 1, &SHA);
    let changes: [(&str, Change); 14] = [
        ("id", |e| e.id = e.id.next()),
        ("kind", |e| e.kind.push('x')),
        ("partner_id", |e| e.partner_id.push('x')),
        ("source", |e| e.source = None),
        ("occurred_at", |e| e.occurred_at += 1),
        ("subject_type", |e| e.subject_type = None),
        ("subject_id", |e| e.subject_id = None),
        ("subject_version", |e| e.subject_version = None),
        ("scope", |e| e.scope = None),
        ("schema_version", |e| e.schema_version = None),
        ("correlation_id", |e| e.correlation_id = None),
        ("causation", |e| e.causation = None),
        ("traceparent", |e| e.traceparent = None),
        ("test", |e| e.test = false),
    ];
    let mut seals = vec![original];
    for (field, change) in changes {
        let mut event = full();
        change(&mut event);
        let changed = seal(b"key", &event, 1, &SHA);
        assert!(!seals.contains(&changed), "{field}");
        seals.push(changed);
    }
    // Another value, as well as none.
    let fields: [fn(&mut Event) -> &mut Option<String>; 8] = [
        |e| &mut e.source,
        |e| &mut e.subject_type,
        |e| &mut e.subject_id,
        |e| &mut e.scope,
        |e| &mut e.schema_version,
        |e| &mut e.correlation_id,
        |e| &mut e.causation,
        |e| &mut e.traceparent,
    ];
    for field in fields {
        for value in [some(), Some(String::new())] {
            let mut event = full();
            *field(&mut event) = value;
            let changed = seal(b"key", &event, 1, &SHA);
            assert!(!seals.contains(&changed));
            seals.push(changed);
        }
    }
    for changed in [
        seal(b"kez", &full(), 1, &SHA),
        seal(b"key", &full(), 2, &SHA),
        seal(b"key", &full(), 1, &[4; 32]),
    ] {
        assert!(!seals.contains(&changed));
        seals.push(changed);
    }
}

#[test]
fn the_seal_holds_without_the_payload() {
    let expunged = Event {
        data: String::new(),
        ..full()
    };
    assert_eq!(
        seal(b"key", &expunged, 1, &SHA),
        seal(b"key", &full(), 1, &SHA)
    );
}

#[test]
fn an_erased_payload_leaves_the_envelope_and_says_that_it_is_gone() {
    let with = body(&full());
    let without = body(&Event {
        data: String::new(),
        ..full()
    });
    let envelope = with.strip_suffix(&format!("\"data\":{}}}", full().data));
    assert_eq!(
        without,
        format!(
            "{}\"expunged\":true}}",
            envelope.expect("the data comes last")
        )
    );
}

fn payload_of(body: &str) -> String {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(body).unwrap();
    members["data"].get().to_string()
}

/// JSON texts that a parser which re-serialises would change.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        "\"(\\\\u[0-9a-fA-F]{4}|\\\\[nrt/\\\\]|[a-z]){0,8}\"",
        Just("null".to_string()),
        Just("true".to_string()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(" ,\n"))),
            proptest::collection::vec(("[a-c]", inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\" :{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

prop_compose! {
    fn any_event()(
        bits: u128, texts in proptest::collection::vec(any::<String>(), 2),
        options in proptest::collection::vec(any::<Option<String>>(), 8),
        occurred_at: i64, subject_version: Option<i64>, test: bool, data in any_json(),
    ) -> Event {
        let mut options = options.into_iter();
        let mut option = || options.next().flatten();
        Event {
            id: EventId::from_u128(bits),
            kind: texts[0].clone(),
            partner_id: texts[1].clone(),
            source: option(),
            occurred_at,
            subject_type: option(),
            subject_id: option(),
            subject_version,
            scope: option(),
            schema_version: option(),
            correlation_id: option(),
            causation: option(),
            traceparent: option(),
            test,
            data,
        }
    }
}

proptest! {
    #[test]
    fn every_body_is_json_with_the_payload_byte_for_byte(event in any_event()) {
        let text = body(&event);
        prop_assert_eq!(payload_of(&text), event.data.clone());
        prop_assert_eq!(body(&event), text);
    }

    #[test]
    fn every_body_says_what_the_event_says(event in any_event()) {
        let event = Event { data: "0".to_string(), ..event };
        let read: serde_json::Value = serde_json::from_str(&body(&event)).unwrap();
        prop_assert_eq!(&read["event_id"], &event.id.to_string());
        prop_assert_eq!(&read["type"], &event.kind);
        prop_assert_eq!(&read["partner_id"], &event.partner_id);
        prop_assert_eq!(read["source"].as_str(), event.source.as_deref());
        prop_assert_eq!(read["subject"]["type"].as_str(), event.subject_type.as_deref());
        prop_assert_eq!(read["subject"]["id"].as_str(), event.subject_id.as_deref());
        prop_assert_eq!(read["subject"]["version"].as_i64(), event.subject_version);
        prop_assert_eq!(read["scope"].as_str(), event.scope.as_deref());
        prop_assert_eq!(read["schema_version"].as_str(), event.schema_version.as_deref());
        prop_assert_eq!(read["correlation_id"].as_str(), event.correlation_id.as_deref());
        prop_assert_eq!(read.get("test").is_some(), event.test);
        prop_assert!(read.get("causation").is_none() && read.get("traceparent").is_none());
    }

    #[test]
    fn different_events_have_different_seal_inputs(a in any_event(), b in any_event()) {
        let same = Event { data: String::new(), ..a.clone() } == Event { data: String::new(), ..b.clone() };
        prop_assert_eq!(seal_input(&a, 1, &SHA) == seal_input(&b, 1, &SHA), same);
    }

    #[test]
    fn moving_a_character_to_the_next_field_changes_the_seal_input(
        kind in "[a-z]{1,5}", partner in "[a-z]{0,5}", letter in "[a-z]",
    ) {
        let a = Event { kind: format!("{kind}{letter}"), partner_id: partner.clone(), ..bare() };
        let b = Event { kind, partner_id: format!("{letter}{partner}"), ..bare() };
        prop_assert_ne!(seal_input(&a, 1, &SHA), seal_input(&b, 1, &SHA));
    }
}
