//! Tests of `revision`: each shape of the data in each format.

use super::*;
use crate::rules::ids::EventId;
use crate::rules::shape::{Shape, shape, shape_of};

fn event(data: &str) -> Event {
    Event {
        id: EventId::new(1_700_000_000_000, 7),
        kind: "order.paid".to_owned(),
        partner_id: "acme".to_owned(),
        source: None,
        occurred_at: 1_700_000_000_123_456,
        subject_type: Some("order".to_owned()),
        subject_id: Some("o-1".to_owned()),
        subject_version: Some(7),
        scope: None,
        schema_version: Some("2".to_owned()),
        correlation_id: None,
        causation: None,
        traceparent: None,
        test: false,
        data: data.to_owned(),
    }
}

fn revision(data_shape: &str, fields: Option<&[&str]>) -> Revision {
    let fields: Option<Vec<String>> =
        fields.map(|fields| fields.iter().map(|&field| field.to_owned()).collect());
    Revision::read(
        Some("native"),
        Some(data_shape),
        fields.as_deref(),
        Some(r#"{"order.paid": "1", "odd": 5}"#),
    )
}

fn header<'s>(shape: &'s Shape, name: &str) -> Option<&'s str> {
    let found = shape.headers.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| value.as_str())
}

const CHANGE: &str =
    r#"{"order": "o-1", "base_version": 6, "before": {"total": 1.10}, "after": {"total": 1e400}}"#;

#[test]
fn the_bytes_of_each_data_shape_are_fixed() {
    // A change of these bytes breaks retries of what was sent before.
    let event = event(CHANGE);
    let start = format!(
        "{{\"event_id\":\"{}\",\"type\":\"order.paid\",\"occurred_at\":\"2023-11-14T22:13:20.123456Z\",\"partner_id\":\"acme\",\"subject\":{{\"type\":\"order\",\"id\":\"o-1\",\"version\":7}},\"schema_version\":\"2\"",
        event.id
    );
    for (name, fields, end) in [
        ("full", None, format!(",\"data\":{CHANGE}}}")),
        ("thin", None, ",\"data_shape\":\"thin\"}".to_owned()),
        (
            "fields",
            Some(&["order", "after.total"][..]),
            r#","data_shape":"fields","data":{"order": "o-1","after": {"total": 1e400}}}"#.to_owned(),
        ),
        (
            "delta",
            None,
            r#","data_shape":"delta","data":{"order": "o-1","base_version": 6,"changed":{"total": 1e400},"removed":[]}}"#
                .to_owned(),
        ),
    ] {
        let data = revision(name, fields).data;
        let native = shape_of(&event, Format::Native, &data);
        assert_eq!(native.body, format!("{start}{end}"), "{name}");
        assert_eq!(header(&native, "content-type"), Some("application/json"));
    }
    let full = shape_of(&event, Format::Native, &DataShape::Full);
    assert_eq!(full, shape(&event, Format::Native));
}

#[test]
fn a_delta_without_a_base_is_full_and_says_so() {
    let event = event(r#"{"total": 1.10}"#);
    let native = shape_of(&event, Format::Native, &DataShape::Delta);
    assert!(
        native
            .body
            .ends_with(r#","data_shape":"full","data":{"total": 1.10}}"#),
        "{}",
        native.body
    );
}

#[test]
fn cloud_events_name_the_shape_and_need_no_data() {
    let event = event(CHANGE);
    for (name, data) in [
        ("thin", None),
        ("fields", Some(r#"{"after": {"total": 1e400}}"#)),
        (
            "delta",
            Some(r#"{"order": "o-1","base_version": 6,"changed":{"total": 1e400},"removed":[]}"#),
        ),
    ] {
        let fields = (name == "fields").then_some(&["after.total"][..]);
        let shape_data = revision(name, fields).data;
        let structured = shape_of(&event, Format::Structured, &shape_data);
        assert!(
            structured
                .body
                .contains(&format!(",\"datashape\":\"{name}\""))
        );
        assert_eq!(
            structured.body.contains("\"datacontenttype\""),
            data.is_some()
        );
        assert_eq!(
            structured.body.split_once(",\"data\":").map(|(_, end)| end),
            data.map(|data| format!("{data}}}")).as_deref()
        );
        let binary = shape_of(&event, Format::Binary, &shape_data);
        assert_eq!(header(&binary, "ce-datashape"), Some(name));
        assert_eq!(binary.body, data.unwrap_or_default());
        assert_eq!(header(&binary, "content-type").is_some(), data.is_some());
    }
    assert_eq!(header(&shape(&event, Format::Binary), "ce-datashape"), None);
}

#[test]
fn a_pin_is_of_one_type_and_asks_for_nothing_where_the_event_has_it() {
    let revision = revision("full", None);
    let mut event = event("{}");
    let wanted = revision.wanted("order.paid");
    assert_eq!(wanted.other_version(&event).map(AsRef::as_ref), Some("1"));
    event.schema_version = Some("1".to_owned());
    assert_eq!(wanted.other_version(&event), None);
    event.schema_version = None;
    assert_eq!(wanted.other_version(&event).map(AsRef::as_ref), Some("1"));
    assert_eq!(revision.wanted("order.paid.late").version, None);
    // Nonsense is a version that no event has: it is held, not sent as it is.
    assert_eq!(revision.wanted("odd").version.as_deref(), Some(""));
    assert!(revision.pins_any() && !Revision::default().pins_any());
}

#[test]
fn what_cannot_be_read_sends_too_little() {
    assert_eq!(DataShape::read(Some("other"), None), DataShape::Thin);
    assert_eq!(DataShape::read(Some("fields"), None), DataShape::Thin);
    let broken = [String::from("a..b")];
    assert_eq!(
        DataShape::read(Some("fields"), Some(&broken)),
        DataShape::Thin
    );
}
