//! Tests of `cloudevents` beside its vectors.

use proptest::prelude::*;

use super::*;

fn text(name: &str, value: &str) -> (String, Value) {
    (name.to_owned(), Value::Text(value.to_owned()))
}

fn with(more: Vec<(String, Value)>) -> Result<CloudEvent<'static>, Fault> {
    let mut attributes = vec![text("id", "1"), text("source", "/s"), text("type", "t")];
    attributes.extend(more);
    CloudEvent::new(attributes, None)
}

#[test]
fn only_lower_case_names_that_nothing_else_uses_are_attributes() {
    for name in [
        "",
        "Id",
        "a_b",
        "data",
        "data_base64",
        "specversion",
        "id",
        "é",
    ] {
        assert_eq!(
            with(vec![text(name, "x")]).unwrap_err(),
            Fault::Name,
            "{name}"
        );
    }
    assert!(with(vec![text("a1", "x")]).is_ok());
}

#[test]
fn values_are_of_the_type_that_the_standard_gives_them() {
    for (name, value) in [
        ("subject", "a\u{7}b"),
        ("subject", "\u{fffe}"),
        ("ext", "a\nb"),
        ("dataschema", "a b"),
        ("datacontenttype", "application/json\r\nx: y"),
        ("datacontenttype", "é"),
        ("time", "2026-02-29T00:00:00Z"),
        ("time", "2026-01-01T24:00:00Z"),
        ("time", "2026-01-01 00:00:00Z"),
        ("time", "2026-01-01T00:00:00"),
        ("time", "2026-01-01T00:00:00.Z"),
        ("time", "2026-01-01T00:00:00+0200"),
        ("time", "2026-01-01T00:00:00Zx"),
        ("time", "é026-01-01T00:00:00Z"),
    ] {
        assert_eq!(
            with(vec![text(name, value)]).unwrap_err(),
            Fault::Value,
            "{name}: {value}"
        );
    }
    for value in [
        "2024-02-29T23:59:60Z",
        "2026-01-01t00:00:00.5z",
        "2026-01-01T00:00:00-00:30",
    ] {
        assert!(with(vec![text("time", value)]).is_ok(), "{value}");
    }
    assert_eq!(
        with(vec![("subject".to_owned(), Value::Integer(1))]).unwrap_err(),
        Fault::Value
    );
}

#[test]
fn a_text_becomes_a_uri_reference_once_and_stays_one() {
    for (given, expected) in [
        ("billing", "billing"),
        ("billing service", "billing%20service"),
        ("https://example.com/a?b#c", "https://example.com/a?b#c"),
        ("urn:x:y", "urn:x:y"),
        ("1:2", "1%3A2"),
        ("a#b#c", "a%23b%23c"),
        ("50%", "50%25"),
        ("a%20b", "a%20b"),
        ("Zoë", "Zo%C3%AB"),
        ("[::1]", "%5B%3A%3A1%5D"),
    ] {
        assert_eq!(uri_reference(given), expected);
        assert_eq!(uri_reference(expected), expected);
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_visible_ascii_and_decodes_to_the_same(value in ".{0,40}") {
        let header = encode(&value);
        prop_assert!(header.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'"'));
        prop_assert_eq!(decode(&header).unwrap(), value);
    }

    #[test]
    fn every_text_has_a_uri_reference(value in ".{1,40}") {
        let reference = uri_reference(&value);
        prop_assert!(is_uri_reference(&reference), "{}", reference);
        prop_assert!(with(vec![text("dataschema", &reference)]).is_ok());
    }

    #[test]
    fn both_modes_carry_the_same_and_the_data_verbatim(
        subject in "\\PC{1,30}", number: i32, flag: bool, data in "\\PC{0,20}",
    ) {
        let json = serde_json::to_string(&data).unwrap();
        let attributes = vec![
            text("id", "1"), text("source", "/s"), text("type", "t"), text("subject", &subject),
            ("n".to_owned(), Value::Integer(number)), ("b".to_owned(), Value::Boolean(flag)),
        ];
        let Ok(event) = CloudEvent::new(attributes, Some(Data::Json(&json))) else {
            // Noncharacters are the only printable ones that a string may not hold.
            prop_assert!(subject.chars().any(forbidden));
            return Ok(());
        };
        let structured: serde_json::Value = serde_json::from_slice(&event.structured().body).unwrap();
        let binary = event.binary();
        prop_assert_eq!(&binary.body, json.as_bytes());
        prop_assert_eq!(&structured["data"], &serde_json::Value::String(data));
        for (name, header) in binary.headers.iter().filter_map(|(n, v)| Some((n.strip_prefix("ce-")?, v))) {
            let value = decode(header).unwrap();
            match &structured[name] {
                serde_json::Value::String(text) => prop_assert_eq!(text, &value),
                other => prop_assert_eq!(other.to_string(), value),
            }
        }
    }

    #[test]
    fn no_text_makes_anything_panic(value in ".{0,40}") {
        let _ = decode(&value);
        for name in ["id", "source", "time", "datacontenttype", "x"] {
            let _ = with(vec![text(name, &value)]);
        }
        let _ = is_timestamp(&value);
    }

    #[test]
    fn no_time_of_almost_the_right_form_makes_anything_panic(
        value in "[0-9é]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9é]{0,3}(\\.[0-9]{0,3})?([Zz]|[+-][0-9:é]{0,6})?",
    ) {
        let _ = is_timestamp(&value);
    }
}
