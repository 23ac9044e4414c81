//! Tests of `selection`.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn select(paths: &[&str], text: &str) -> String {
    Fields::parse(paths.iter().copied())
        .expect("paths")
        .select(text)
}

#[test]
fn what_is_kept_is_kept_byte_for_byte() {
    let data = r#" { "id" : 1.10 , "big":12345678901234567890123456789012345678901234567890,
      "a": {"b" : -0, "c": [1e400, "\ud800"], "b":2}, "list":[{"n":1,"x":2},3,[{"n" :4}],{}], "id": "\u00e9" }"#;
    for (paths, kept) in [
        (&["id"][..], r#"{"id" : 1.10,"id": "\u00e9"}"#),
        (
            &["big"],
            r#"{"big":12345678901234567890123456789012345678901234567890}"#,
        ),
        (&["a.b"], r#"{"a": {"b" : -0,"b":2}}"#),
        (&["a.c", "a.c.x"], r#"{"a": {"c": [1e400, "\ud800"]}}"#),
        (
            &["a", "a.b"],
            r#"{"a": {"b" : -0, "c": [1e400, "\ud800"], "b":2}}"#,
        ),
        (&["list.n"], r#"{"list":[{"n":1},[{"n" :4}],{}]}"#),
        (&["nothing", "id.deeper"], "{}"),
        (&["a.nothing"], r#"{"a": {}}"#),
    ] {
        assert_eq!(select(paths, data), kept, "{paths:?}");
    }
}

#[test]
fn names_with_dots_backslashes_and_escapes_are_names() {
    let data = r#"{"a.b":1,"a":{"b":2},"\\":3,"\u00e9":4,"":5,"x\ud800":6}"#;
    assert_eq!(select(&[r"a\.b"], data), r#"{"a.b":1}"#);
    assert_eq!(select(&["a.b"], data), r#"{"a":{"b":2}}"#);
    assert_eq!(select(&[r"\\"], data), r#"{"\\":3}"#);
    assert_eq!(select(&["é"], data), r#"{"\u00e9":4}"#);
}

#[test]
fn of_what_has_no_members_nothing_is_kept() {
    for data in ["1", "\"a\"", "null", " true ", "1e400"] {
        assert_eq!(select(&["a"], data), "{}");
    }
    assert_eq!(select(&["a"], "[1,{\"a\":2,\"b\":3}]"), "[{\"a\":2}]");
    assert_eq!(select(&["a"], "[]"), "[]");
}

#[test]
fn depth_is_no_trouble() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let kept = select(&["a"], &format!("{{\"a\":{deep},\"b\":1}}"));
    assert_eq!(kept, format!("{{\"a\":{deep}}}"));
    assert_eq!(select(&["a"], &format!("{{\"b\":{deep}}}")), "{}");
    let hollow = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(select(&["a"], &deep), hollow);
}

#[test]
fn paths_that_are_none_are_refused() {
    assert_eq!(Fields::parse([]), Err(PathFault::Count));
    assert_eq!(Fields::parse(["a"; 101]), Err(PathFault::Count));
    let long = "x".repeat(513);
    for path in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "\\",
        "a\\",
        "a\\b",
        &long,
        &["a"; 17].join("."),
    ] {
        assert_eq!(
            Fields::parse([path]),
            Err(PathFault::Path(path.to_owned())),
            "{path}"
        );
    }
    assert!(Fields::parse([["a"; 16].join(".").as_str(), "a b", "é", r"\\\."]).is_ok());
}

#[test]
fn a_difference_is_what_after_has_otherwise() {
    let data = r#"{"order":"o-1", "base_version" : 6, "before": {"a":1.10,"b":[1, 2],"c":{"x":1},"gone":1}, "after":{"a":1.1,"b":[1,2],"c":{"x":2},"new" : null},"more":[1e400]}"#;
    assert_eq!(
        difference(data).as_deref(),
        Some(
            r#"{"order":"o-1","base_version" : 6,"changed":{"a":1.1,"c":{"x":2},"new" : null},"removed":["gone"],"more":[1e400]}"#
        )
    );
    // Where it goes is where "after" was.
    let none = r#"{"after":{},"before":{},"base_version":"v1"}"#;
    assert_eq!(
        difference(none).as_deref(),
        Some(r#"{"changed":{},"removed":[],"base_version":"v1"}"#)
    );
}

#[test]
fn without_a_base_there_is_no_difference() {
    for data in [
        "1",
        "[]",
        "{}",
        r#"{"before":{},"after":{}}"#,
        r#"{"base_version":null,"before":{},"after":{}}"#,
        r#"{"base_version":{},"before":{},"after":{}}"#,
        r#"{"base_version":1,"before":null,"after":{}}"#,
        r#"{"base_version":1,"before":{},"after":[]}"#,
        r#"{"base_version":1,"before":{},"after":{},"changed":1}"#,
        r#"{"base_version":1,"before":{},"after":{},"removed":1}"#,
        r#"{"base_version":1,"before":{},"after":{},"after":{}}"#,
        r#"{"base_version":1,"before":{"a":1,"\u0061":2},"after":{}}"#,
        r#"{"base_version":1,"before":{},"after":{"\ud800":1}}"#,
    ] {
        assert_eq!(difference(data), None, "{data}");
    }
}

/// What is to be kept, by a parsed value: slower, and with another reader.
fn reference(value: &Value, paths: &[Vec<String>]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, value) in members {
                let rest: Vec<Vec<String>> = paths
                    .iter()
                    .filter(|path| path.first() == Some(name))
                    .map(|path| path[1..].to_vec())
                    .collect();
                if rest.iter().any(Vec::is_empty) {
                    kept.insert(name.clone(), value.clone());
                } else if !rest.is_empty()
                    && let Some(value) = reference(value, &rest)
                {
                    kept.insert(name.clone(), value);
                }
            }
            Some(Value::Object(kept))
        }
        Value::Array(elements) => Some(Value::Array(
            elements
                .iter()
                .filter_map(|element| reference(element, paths))
                .collect(),
        )),
        _ => None,
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-c.\\\\\"é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec(("[a-c.\\\\]{1,2}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-c.\\\\]{1,2}", 1..4)
}

proptest! {
    #[test]
    fn a_selection_is_what_another_reader_would_keep(data in json(), paths in prop::collection::vec(path(), 1..6), pretty: bool) {
        let written: Vec<String> = paths
            .iter()
            .map(|path| {
                path.iter()
                    .map(|step| step.replace('\\', "\\\\").replace('.', "\\."))
                    .collect::<Vec<_>>()
                    .join(".")
            })
            .collect();
        let fields = Fields::parse(written.iter().map(String::as_str)).expect("paths");
        let text = if pretty { serde_json::to_string_pretty(&data) } else { serde_json::to_string(&data) }.expect("JSON");
        let kept: Value = serde_json::from_str(&fields.select(&text)).expect("JSON again");
        let wanted = reference(&data, &paths).unwrap_or_else(|| Value::Object(Map::new()));
        prop_assert_eq!(kept, wanted);
    }

    #[test]
    fn a_difference_leads_from_before_to_after(
        before in prop::collection::btree_map("[a-d]", json(), 0..5),
        after in prop::collection::btree_map("[a-d]", json(), 0..5),
    ) {
        let data = serde_json::json!({"base_version": 1, "before": before, "after": after});
        let told: Value = serde_json::from_str(&difference(&data.to_string()).expect("a difference")).expect("JSON");
        let mut made: Map<String, Value> = data["before"].as_object().expect("an object").clone();
        for name in told["removed"].as_array().expect("names") {
            prop_assert!(made.remove(name.as_str().expect("a name")).is_some());
        }
        for (name, value) in told["changed"].as_object().expect("members") {
            prop_assert_ne!(made.insert(name.clone(), value.clone()), Some(value.clone()));
        }
        prop_assert_eq!(&Value::Object(made), &data["after"]);
    }

    #[test]
    fn no_text_is_too_strange(text in "[\\[\\]{}\",:a1\\\\ ]{0,40}") {
        let fields = Fields::parse(["a", "a.a"]).expect("paths");
        let _ = fields.select(&text);
        let _ = difference(&text);
    }
}
