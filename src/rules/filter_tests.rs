//! What may be a filter and what may not, in the spelling that PostgreSQL 15 gives back; and what it costs.

use proptest::prelude::*;

use super::*;

#[test]
fn predicates_of_paths_and_literals_are_filters() {
    for text in [
        r#"($."amount" > 100)"#,
        r#"strict ($."a"[0] == null)"#,
        r#"($."a" == -1.5)"#,
        r#"("x" == $."a")"#,
        r#"($ == 1)"#,
        r#"($.* == 2)"#,
        r#"($[*] == "paid")"#,
        r#"($."a"[last]."b" != 2)"#,
        r#"($."a"[1 to last - 1] == 1)"#,
        r#"($."a"[-1] == 1)"#,
        r#"($."a"."b" == "x" && !($."c" == true) || exists ($."d"?(@."e" > -1.5)))"#,
        r#"($."a" > 1) is unknown"#,
        r#"($."a" == 1 && $."b" == 2) is unknown"#,
        r#"($."a".type() == "number" && $."a" > 1)"#,
        r#"($."a".size() >= 2)"#,
        r#"($."a" starts with "x")"#,
        r#"exists ($."a")"#,
        r#"!(exists ($."a"))"#,
        r#"($."a"?(@ > 1)?(@ < 3) == 2)"#,
        r#"($."a"?(@."b" == 1 || @."c" == 2 && @."d" == 3) == 4)"#,
        r#"($."a\"b\\" == "\"")"#,
        r#"($."**"."+"."$x" == " like_regex ")"#,
        r#"($."old" != $."new")"#,
        r#"($."a"?(exists (@."b"?(@ == 1)))."c" == "é")"#,
    ] {
        assert!(
            Filter::parse(text).is_ok(),
            "{text}: {:?}",
            Filter::parse(text)
        );
    }
}

#[test]
fn what_yields_values_or_could_take_long_is_refused() {
    for (text, fault) in [
        (r#"$."a""#, Fault::NotPredicate),
        ("true", Fault::NotPredicate),
        (r#"$."a"?(@ > 1)"#, Fault::NotPredicate),
        (r#"($."a" && $."b" == 1)"#, Fault::NotPredicate),
        (r#"($."a" like_regex "x" flag "i")"#, Fault::Regex),
        (r#"($."a"?(@."b" like_regex "(a+)+$") == 1)"#, Fault::Regex),
        (
            r#"exists ($."a"?(exists (@."b"?(@ like_regex "x"))))"#,
            Fault::Regex,
        ),
        (r#"($."a".** == 1)"#, Fault::Recursion),
        (r#"($."a".**{2 to last}."b" == 1)"#, Fault::Recursion),
        (r#"($."a" + 1 > 2)"#, Fault::Arithmetic),
        (r#"(2 > $."a" * $."a")"#, Fault::Arithmetic),
        (r#"(-$."a" > 2)"#, Fault::Arithmetic),
        (
            r#"($."a".datetime() > "2020-01-01".datetime())"#,
            Fault::Method("datetime".to_owned()),
        ),
        (
            r#"($."a".keyvalue()."key" == "x")"#,
            Fault::Method("keyvalue".to_owned()),
        ),
        (
            r#"($."a".double() > 1)"#,
            Fault::Method("double".to_owned()),
        ),
        (r#"($"a" == 1)"#, Fault::Variable),
        (r#"($."a"[0,1] == 1)"#, Fault::Subscript),
        (r#"($."a"[$."b"] == 1)"#, Fault::Subscript),
        (r#"($."a"[last - $."b"] == 1)"#, Fault::Subscript),
        (r#"exists ($[*]?(@."a" == $."b"))"#, Fault::Root),
        (
            r#"exists ($[*]?(exists ($[*]?(exists ($[*])))))"#,
            Fault::Root,
        ),
        (r#"("x".type() == "string")"#, Fault::Unsupported),
        (r#"(($."a" > 1) == true)"#, Fault::Unsupported),
        (r#"(($."a" > 1).type() == "boolean")"#, Fault::Unsupported),
        (r#"exists (1)"#, Fault::Unsupported),
        ("", Fault::Unsupported),
        ("(", Fault::Unsupported),
        (r#"($."a" == 1"#, Fault::Unsupported),
        (r#"($."a" == 1) 2"#, Fault::Unsupported),
        (r#"($."a == 1)"#, Fault::Unsupported),
    ] {
        assert_eq!(Filter::parse(text), Err(fault), "{text}");
    }
    assert_eq!(
        Filter::parse(&format!("{}$ == 1{}", "(".repeat(1_000), ")".repeat(1_000))),
        Err(Fault::Large)
    );
    assert_eq!(
        Filter::parse(&format!("($ == {})", "1".repeat(5_000))),
        Err(Fault::Large)
    );
}

#[test]
fn the_cost_grows_with_the_payload_and_with_its_square_where_two_paths_are_compared() {
    let cost = |text, values| Filter::parse(text).expect("a filter").cost(values);
    let line = r#"($."a" > 100)"#;
    assert_eq!(cost(line, 10), 30);
    assert_eq!(cost(line, 1_000), 3_000);
    let square = r#"($."a" == $."b")"#;
    assert_eq!(cost(square, 10), 40 + 100);
    assert_eq!(cost(square, 1_000), 4_000 + 1_000_000);
    assert_eq!(cost(square, u64::MAX), u64::MAX);
    assert!(Filter::parse(square).expect("a filter").fits(700));
    assert!(!Filter::parse(square).expect("a filter").fits(1_000));
    assert!(Filter::parse(line).expect("a filter").fits(100_000));
}

#[test]
fn no_payload_has_more_values_than_are_counted() {
    for (data, expected) in [
        ("1", 1),
        ("[]", 2),
        ("[1]", 2),
        ("[1,2]", 3),
        (r#"{"a":1,"b":[2,{"c":3}]}"#, 6),
        (r#""a,b""#, 2),
    ] {
        assert_eq!(values(data), expected, "{data}");
    }
}

fn predicate() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        "(\\$(\\.\"[a-z]{1,3}\"|\\[\\*\\]|\\[[0-9]\\]|\\.\\*){0,4})",
        Just(r#"$."list"[*]?(@."x" > 1)."y""#.to_owned()),
    ];
    let literal = prop_oneof!["-?[1-9][0-9]{0,3}", "\"[a-z&|$@ ]{0,5}\"", "true|null"];
    let leaf = prop_oneof![
        (path.clone(), "==|!=|<|<=|>|>=", literal).prop_map(|(l, op, r)| format!("({l} {op} {r})")),
        path.prop_map(|path| format!("exists ({path})")),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), "&&|\\|\\|", inner.clone())
                .prop_map(|(l, op, r)| format!("({l} {op} {r})")),
            inner.clone().prop_map(|inner| format!("!({inner})")),
            inner.prop_map(|inner| format!("({inner}) is unknown")),
        ]
    })
}

proptest! {
    #[test]
    fn every_combination_of_allowed_pieces_is_a_filter(text in predicate()) {
        prop_assert!(Filter::parse(&text).is_ok(), "{}", text);
    }

    #[test]
    fn one_refused_piece_refuses_the_whole(
        text in predicate(),
        piece in prop_oneof![
            Just(r#"($."a" like_regex "x")"#),
            Just(r#"($.** == 1)"#),
            Just(r#"($."a" + 1 == 2)"#),
            Just(r#"exists ($[*]?($."b" == 1))"#),
        ],
        first in any::<bool>(),
    ) {
        let (left, right) = if first { (piece, text.as_str()) } else { (text.as_str(), piece) };
        let whole = format!("({left} && {right})");
        prop_assert!(Filter::parse(&whole).is_err(), "{}", whole);
    }

    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,200}") {
        let _ = Filter::parse(&text);
    }

    #[test]
    fn no_mixture_of_tokens_is_too_strange(
        tokens in proptest::collection::vec(
            proptest::sample::select(vec!["$", "@", ".", "\"a\"", "[", "]", "(", ")", "?", "*", "**", "1", "last", "to", "==", "&&", "!", "exists", "is", "unknown", "starts", "with", "-", ",", "type", "\"", "\\", "é"]),
            0..40,
        ),
    ) {
        let _ = Filter::parse(&tokens.join(""));
        let _ = Filter::parse(&tokens.join(" "));
    }
}
