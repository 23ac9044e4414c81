use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn numbers_keep_their_digits() {
    for number in [
        "1.10",
        "1e+400",
        "-0",
        "9223372036854775808",
        "1e+5",
        "0.10000000000000000000000000000000000000000000000001",
        "12345678901234567890123456789012345678901234567890",
    ] {
        let value = parse(&format!("[{number}]")).expect("a value");
        assert_eq!(value[0].as_number().expect("a number").as_str(), number);
    }
}

#[test]
fn names_that_other_libraries_give_a_meaning_are_names() {
    for name in [
        "$serde_json::private::Number",
        "$serde_json::private::RawValue",
    ] {
        let value = parse(&format!(r#"{{"{name}": "5"}}"#)).expect("a value");
        assert_eq!(value.as_object().expect("an object")[name], "5");
    }
}

#[test]
fn what_two_readers_would_read_differently_has_no_value() {
    for (text, path, reason) in [
        (
            r#"{"a": [1, {"b": 1, "b": 2}]}"#,
            "/a/1/b",
            "stands there twice",
        ),
        (r#"{"a": 1, "\u0061": 2}"#, "/a", "stands there twice"),
        (r#"["x", "\ud800"]"#, "/1", "half of a surrogate pair"),
        (r#"{"x": "\udc00\ud800"}"#, "/x", "half of a surrogate pair"),
        (r#"{"\ud800": 1}"#, "/\\ud800", "half of a surrogate pair"),
        (r#"{"x": "\ud800\u0041"}"#, "/x", "half of a surrogate pair"),
    ] {
        let fault = parse(text).expect_err(text);
        assert!(fault.reason.contains(reason), "{text}: {fault:?}");
        assert_eq!(path_at(text, fault.at), path, "{text}");
    }
}

#[test]
fn every_plane_and_every_escape_is_decoded() {
    let text = r#"["\u0000\b\f\n\r\t\"\\\/\ud83d\ude00\uffff", "😀𐀀\u{10FFFF}"]"#;
    let text = text.replace("\\u{10FFFF}", "\u{10FFFF}");
    let value = parse(&text).expect("a value");
    assert_eq!(value[0], "\0\u{8}\u{c}\n\r\t\"\\/😀\u{ffff}");
    assert_eq!(value[1], "😀𐀀\u{10FFFF}");
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
    assert!(parse(&nested(1_000_000)).is_err());
    assert_eq!(tokens(&nested(1_000_000)).count(), 2_000_000);
}

#[test]
fn long_paths_are_cut() {
    let key = "k".repeat(5000);
    let text = format!(r#"{{"{key}": "\ud800"}}"#);
    let fault = parse(&text).expect_err("half a pair");
    assert_eq!(path_at(&text, fault.at).chars().count(), MAX_PATH + 1);
}

#[test]
fn nonsense_ends() {
    for text in [
        "", "]", "{", "\"", "\"\\", "[1,", "nul", "{\"a\"}", "\\", "é",
    ] {
        let _ = parse(text);
        let _ = path_at(text, text.len());
        for (_, token) in tokens(text) {
            if let Token::Key(inside) | Token::Text(inside) = token {
                let _ = decoded(inside);
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<String>().prop_map(|s| json!(s)),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in any_value()) {
        prop_assert_eq!(parse(&value.to_string()), Ok(value.clone()));
        let pretty = serde_json::to_string_pretty(&value).expect("JSON");
        prop_assert_eq!(parse(&pretty), Ok(value));
    }

    #[test]
    fn nothing_makes_it_panic(text in any::<String>()) {
        let _ = parse(&text);
        let _ = path_at(&text, text.len() / 2);
    }
}
