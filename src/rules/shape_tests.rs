//! Tests of `shape`.

use proptest::option::of;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::rules::ids::EventId;

fn event() -> Event {
    Event {
        id: EventId::new(1_700_000_000_000, 7),
        kind: "customer.frozen".to_owned(),
        partner_id: "acme".to_owned(),
        source: Some("billing service".to_owned()),
        occurred_at: 1_700_000_000_123_456,
        subject_type: Some("customer".to_owned()),
        subject_id: Some("cus_1 é".to_owned()),
        subject_version: Some(5_000_000_000),
        scope: None,
        schema_version: Some("2".to_owned()),
        correlation_id: Some("request 4711".to_owned()),
        causation: Some(EventId::new(1_600_000_000_000, 1).to_string()),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        test: false,
        data: "{\"price\": 1.10, \"a\":1,\"a\":2}".to_owned(),
    }
}

fn header<'a>(shape: &'a Shape, name: &str) -> Option<&'a str> {
    let found = shape.headers.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| value.as_str())
}

#[test]
fn an_erased_payload_leaves_attributes_without_data() {
    let event = Event {
        data: String::new(),
        ..event()
    };
    let structured = shape(&event, Format::Structured);
    let json: Json = serde_json::from_str(&structured.body).expect("JSON");
    assert_eq!(json["expunged"], true);
    assert_eq!(json["id"], event.id.to_string());
    assert!(json.get("data").is_none() && json.get("datacontenttype").is_none());
    let binary = shape(&event, Format::Binary);
    assert!(binary.body.is_empty());
    assert_eq!(header(&binary, "ce-expunged"), Some("true"));
    assert_eq!(header(&binary, "content-type"), None);
}

#[test]
fn the_bytes_of_each_format_are_fixed() {
    // A change of these bytes breaks retries of what was sent before, and every receiver.
    let event = event();
    let structured = shape(&event, Format::Structured);
    assert_eq!(
        structured.body,
        concat!(
            "{\"specversion\":\"1.0\",\"id\":\"", "evt_01HF7YAT0000000000000000007", "\",\"source\":\"billing%20service\",",
            "\"type\":\"customer.frozen\",\"subject\":\"customer/cus_1 é\",\"time\":\"2023-11-14T22:13:20.123456Z\",",
            "\"datacontenttype\":\"application/json\",\"partnerid\":\"acme\",\"subjecttype\":\"customer\",\"subjectid\":\"cus_1 é\",",
            "\"subjectversion\":\"5000000000\",\"schemaversion\":\"2\",\"correlationid\":\"request 4711\",",
            "\"causationid\":\"", "evt_01F8MECHZX0000000000000001", "\",",
            "\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\",",
            "\"data\":{\"price\": 1.10, \"a\":1,\"a\":2}}",
        )
        .replace("evt_01HF7YAT0000000000000000007", &event.id.to_string())
        .replace("evt_01F8MECHZX0000000000000001", event.causation.as_deref().unwrap()),
    );
    assert_eq!(
        header(&structured, "content-type"),
        Some("application/cloudevents+json")
    );
    let binary = shape(&event, Format::Binary);
    assert_eq!(binary.body, event.data);
    let names: Vec<&str> = binary
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "content-type",
            "ce-specversion",
            "ce-id",
            "ce-source",
            "ce-type",
            "ce-subject",
            "ce-time",
            "ce-partnerid",
            "ce-subjecttype",
            "ce-subjectid",
            "ce-subjectversion",
            "ce-schemaversion",
            "ce-correlationid",
            "ce-causationid",
            "ce-traceparent",
            "traceparent",
            "webhook-correlation-id",
            "webhook-causation-id",
        ]
    );
    assert_eq!(
        header(&binary, "ce-subject"),
        Some("customer/cus_1%20%C3%A9")
    );
    let native = shape(&event, Format::Native);
    assert_eq!(native.body, envelope::body(&event));
    assert_eq!(header(&native, "content-type"), Some("application/json"));
}

#[test]
fn every_format_carries_what_ties_it_to_an_operation() {
    for format in Format::ALL {
        let shape = shape(&event(), format);
        assert_eq!(
            header(&shape, "traceparent"),
            event().traceparent.as_deref()
        );
        assert_eq!(
            header(&shape, "webhook-correlation-id"),
            Some("request%204711")
        );
        assert_eq!(
            header(&shape, "webhook-causation-id"),
            event().causation.as_deref()
        );
        assert_eq!(Format::parse(format.as_str()), Some(format));
    }
    let nothing = Event {
        traceparent: None,
        correlation_id: None,
        causation: None,
        ..event()
    };
    assert_eq!(shape(&nothing, Format::Native).headers.len(), 1);
}

proptest! {
    #[test]
    fn whatever_emit_accepts_is_a_cloud_event_whose_modes_agree(
        source in of(".{1,20}"), subject in of((".{1,20}", ".{1,20}")), version in of(any::<i64>()),
        scope in of(".{1,20}"), schema_version in of(".{1,20}"), correlation_id in of(".{1,20}"), test: bool,
        occurred_at in -62_135_596_800_000_000i64..253_402_300_800_000_000,
    ) {
        let event = Event {
            source, occurred_at, scope, schema_version, correlation_id, test,
            subject_version: version,
            subject_type: subject.as_ref().map(|(kind, _)| kind.clone()),
            subject_id: subject.map(|(_, id)| id),
            ..event()
        };
        let structured = shape(&event, Format::Structured);
        prop_assert_eq!(header(&structured, "content-type"), Some("application/cloudevents+json"));
        let members: serde_json::Map<String, Json> = serde_json::from_str(&structured.body).unwrap();
        let binary = shape(&event, Format::Binary);
        prop_assert_eq!(&binary.body, &event.data);
        for (name, value) in &members {
            let found = header(&binary, &format!("ce-{name}")).map(|value| cloudevents::decode(value).unwrap());
            match (name.as_str(), value) {
                ("data" | "datacontenttype", _) => prop_assert_eq!(found, None),
                (_, Json::String(text)) => prop_assert_eq!(found.as_ref(), Some(text)),
                (_, other) => prop_assert_eq!(found, Some(other.to_string())),
            }
        }
        let attributes = binary.headers.iter().filter(|(name, _)| name.starts_with("ce-")).count();
        prop_assert_eq!(attributes, members.len() - 2);
        for (name, value) in &binary.headers {
            prop_assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{}: {}", name, value);
        }
    }
}
