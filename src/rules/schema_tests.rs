use serde_json::json;

use super::*;

fn compiled(schema: &str) -> Schema {
    Schema::compile(&parse(schema).expect("JSON")).unwrap_or_else(|why| panic!("{schema}: {why}"))
}

fn refusal(schema: &str) -> String {
    match Schema::compile(&parse(schema).expect("JSON")) {
        Ok(_) => panic!("{schema} was accepted"),
        Err(why) => why,
    }
}

#[test]
fn numbers_are_judged_by_their_digits() {
    for (schema, payload, valid) in [
        (r#"{"multipleOf": 0.01}"#, "1.10", true),
        (r#"{"multipleOf": 0.01}"#, "1070468.14", true),
        (r#"{"multipleOf": 0.01}"#, "0.10000000000000000001", false),
        (r#"{"multipleOf": 2}"#, "9007199254740993", false),
        (r#"{"multipleOf": 3}"#, "1e400", false),
        (r#"{"minimum": 0}"#, "-0", true),
        (r#"{"exclusiveMinimum": 0}"#, "1e-400", true),
        (
            r#"{"maximum": 9223372036854775807}"#,
            "9223372036854775808",
            false,
        ),
        (
            r#"{"maximum": 9007199254740992}"#,
            "9007199254740993",
            false,
        ),
        (
            r#"{"maximum": 0.1}"#,
            "0.10000000000000000000000000001",
            false,
        ),
        (r#"{"maximum": 1e400}"#, "1e401", false),
        (r#"{"maximum": 1e400}"#, "9e399", true),
        (r#"{"const": 1}"#, "1.0", true),
        (r#"{"const": 1e400}"#, "12345678901234567890123", false),
        (r#"{"const": 1e400}"#, "10e399", true),
        (r#"{"enum": [1, 0.1]}"#, "0.10000000000000000000001", false),
        (r#"{"const": [1, 2]}"#, "[1, 2]", true),
        (r#"{"const": [1, 2]}"#, "1", false),
        (
            r#"{"uniqueItems": true}"#,
            "[12345678901234567890123, 1e400, 1]",
            true,
        ),
        (
            r#"{"uniqueItems": true}"#,
            "[1e400, {\"a\": 1}, 10e399]",
            false,
        ),
        (
            r#"{"uniqueItems": true}"#,
            r#"[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]"#,
            false,
        ),
        (r#"{"uniqueItems": false}"#, "[1, 1]", true),
        (r#"{"type": "integer"}"#, "1e400", true),
        (r#"{"type": "integer"}"#, "1.0", true),
        (r#"{"type": "integer"}"#, "1e-400", false),
        (
            r#"{"type": "integer"}"#,
            "12345678901234567890123456789012345678901234567890",
            true,
        ),
        (
            r#"{"type": "integer"}"#,
            "12345678901234567890123456789012345678901234567890.5",
            false,
        ),
        (
            r#"{"type": "number"}"#,
            r#"{"$serde_json::private::Number": "5"}"#,
            false,
        ),
    ] {
        assert_eq!(
            compiled(schema).check_text(payload).is_ok(),
            valid,
            "{schema} {payload}"
        );
    }
}

#[test]
fn a_violation_names_the_place_and_the_rule_and_not_the_value() {
    let schema = compiled(
        r#"{"type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {"id": {"type": "string"}, "lines": {"items": {"properties": {"n": {"minimum": 1}}}},
                           "kind": {"enum": ["a"]}, "at": {"format": "date-time"}, "p": {"pattern": "^x$"}}}"#,
    );
    for (payload, path, reason) in [
        (
            r#"{"id": "1", "lines": [{"n": 2}, {"n": -4711}]}"#,
            "/lines/1/n",
            "outside",
        ),
        (r#"{}"#, "", "lacks the required member \"id\""),
        (r#"{"id": 4711}"#, "/id", "type"),
        (
            r#"{"id": "1", "kind": "4711"}"#,
            "/kind",
            "none of the values",
        ),
        (r#"{"id": "1", "at": "4711"}"#, "/at", "\"date-time\""),
        (r#"{"id": "1", "p": "4711"}"#, "/p", "\"pattern\""),
        (r#"{"id": "1", "more": "4711"}"#, "", "\"more\""),
        (r#"{"id": "4711", "id": "1"}"#, "/id", "twice"),
    ] {
        let violation = schema.check_text(payload).expect_err(payload);
        assert_eq!(violation.path, path, "{payload}");
        assert!(violation.reason.contains(reason), "{violation:?}");
        assert!(!violation.reason.contains("4711"), "{violation:?}");
    }
}

#[test]
fn both_drafts_are_told_apart_and_no_other_is_taken() {
    let tuple =
        r#"{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}"#;
    assert!(compiled(tuple).check(&json!([1])).is_err());
    let tuple = r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]}"#;
    assert!(compiled(tuple).check(&json!([1])).is_err());
    assert!(
        compiled(r#"{"prefixItems": [{"type": "string"}]}"#)
            .check(&json!([1]))
            .is_err()
    );
    for uri in [
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://example.com/schema",
        "",
    ] {
        assert!(
            refusal(&format!(r#"{{"$schema": "{uri}"}}"#)).contains("$schema"),
            "{uri}"
        );
    }
}

#[test]
fn nothing_outside_the_schema_is_looked_up() {
    for reference in [
        "https://example.com/schema.json",
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json",
        "#/$defs/missing",
    ] {
        refusal(&format!(r#"{{"$ref": "{reference}"}}"#));
    }
}

#[test]
fn schemas_that_are_none_are_refused() {
    for schema in [
        r#"{"type": "strin"}"#,
        r#"{"minimum": "1"}"#,
        r#"{"multipleOf": 0}"#,
        r#"{"multipleOf": 1234567890123456789}"#,
        r#"{"required": "id"}"#,
        r#"{"pattern": "("}"#,
        r#"{"pattern": "(?=x)y"}"#,
        r#"{"pattern": "((((a{100}){100}){100}){100})"}"#,
        r#"[]"#,
        r#"3"#,
    ] {
        refusal(schema);
    }
    let deep = format!("{}true{}", r#"{"not":"#.repeat(200), "}".repeat(200));
    refusal(&deep);
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    for schema in [
        r##"{"$ref": "#"}"##,
        r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}"##,
        r##"{"allOf": [{"$ref": "#"}]}"##,
    ] {
        // Refused, or without an effect: not endless.
        if let Ok(schema) = Schema::compile(&parse(schema).expect("JSON")) {
            let _ = schema.check(&json!({"a": 1}));
        }
    }
}

#[test]
fn a_recursive_schema_reaches_the_deepest_payload() {
    let schema = compiled(r##"{"type": "array", "items": {"$ref": "#"}}"##);
    let nested =
        |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    let within = std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || {
            assert!(schema.check_text(&nested(1000, "")).is_ok());
            assert!(schema.check_text(&nested(999, "1")).is_err());
            let violation = schema.check_text(&nested(1001, "")).expect_err("too deep");
            assert!(violation.reason.contains("nested too deeply"));
        });
    within.expect("a thread").join().expect("no overflow");
}

#[test]
fn a_pattern_takes_linear_time() {
    let schema = compiled(r#"{"pattern": "^(a+)+$"}"#);
    let begun = std::time::Instant::now();
    assert!(
        schema
            .check(&json!(format!("{}b", "a".repeat(100_000))))
            .is_err()
    );
    assert!(begun.elapsed() < std::time::Duration::from_secs(2));
}
