//! What is hidden, what is kept, and that nothing a receiver sends takes long.

use super::*;

fn hidden(text: &str) -> String {
    redact(text, &[])
}

#[test]
fn a_credential_behind_a_telling_name_is_hidden_with_its_scheme() {
    for text in [
        "x-auth-token: Bearer q1w2e3r4t5",
        "secret=Basic q1w2e3r4t5",
        "token: Bearer Bearer q1w2e3r4t5",
        "Bearer bearer q1w2e3r4t5",
        r#"{\"secret\": Bearer q1w2e3r4t5}"#,
    ] {
        assert!(!hidden(text).contains("q1w2"), "{}", hidden(text));
    }
}

#[test]
fn values_of_telling_names_are_hidden_in_json_forms_headers_and_xml() {
    for (text, shown) in [
        (
            r#"{"password":"x y","n":1}"#,
            r#"{"password":"[redacted]","n":1}"#,
        ),
        (
            r#"{"Access_Token" : "p\"q", "n":1}"#,
            r#"{"Access_Token" : "[redacted]", "n":1}"#,
        ),
        (
            r#"{"tokens":["a","b"],"n":1}"#,
            r#"{"tokens":"[redacted]","n":1}"#,
        ),
        (
            r#"{"secret":{"a":{"b":1}},"n":1}"#,
            r#"{"secret":"[redacted]","n":1}"#,
        ),
        (r#"{"credential":12345}"#, r#"{"credential":"[redacted]"}"#),
        (
            r#"{"e":"{\"api_key\":\"k\",\"n\":1}"}"#,
            r#"{"e":"{\"api_key\":"[redacted]",\"n\":1}"}"#,
        ),
        ("a=1&api-key=k&b=2", r#"a=1&api-key="[redacted]"&b=2"#),
        (
            "{'passwd': 'x', 'n': 1}",
            r#"{'passwd': "[redacted]", 'n': 1}"#,
        ),
        (
            "Set-Cookie: a=1; b=2\nVary: x",
            "Set-Cookie: \"[redacted]\"\nVary: x",
        ),
        (
            "Authorization: Digest a, b\nVary: x",
            "Authorization: \"[redacted]\"\nVary: x",
        ),
        (
            "<apiKey>k</apiKey><n>1</n>",
            r#"<apiKey>"[redacted]"</apiKey><n>1</n>"#,
        ),
        (
            r#"{"client_secret":"cut of"#,
            r#"{"client_secret":"[redacted]""#,
        ),
        (r#":secret => "x""#, r#":secret => "[redacted]""#),
    ] {
        assert_eq!(hidden(text), shown, "{text}");
    }
}

#[test]
fn secrets_with_a_beginning_of_their_own_are_hidden_anywhere() {
    for (text, shown) in [
        ("key whsec_MfKQ9r8GKYqrTwjUPD8I!", "key [redacted]!"),
        ("got eyJhbGciOi.eyJzdWIi.c2ln", "got [redacted]"),
        (
            "use Bearer abc.def-1, please",
            "use Bearer [redacted], please",
        ),
        ("BASIC dXNlcjpwYXNz", "BASIC [redacted]"),
        ("sk_live_0123456789", "[redacted]"),
    ] {
        assert_eq!(hidden(text), shown, "{text}");
    }
}

#[test]
fn harmless_text_is_kept_as_it_is() {
    for text in [
        "",
        "ok",
        "the token is missing",
        "bearer of news",
        "eyJ",
        "unbasic training",
        "{\"error\":\"unknown_field\",\"count\":3}",
        "é \u{1f980} 漢字\n\ttab",
    ] {
        assert_eq!(hidden(text), text);
    }
    assert_eq!(hidden("a\x1b[31m\r\x07\u{9b}"), "a?[31m???");
}

#[test]
fn the_names_of_the_setting_are_hidden_as_well() {
    let more = parse_names(" IBAN, x-partner-pin ,,").expect("names");
    assert_eq!(more, ["iban", "x-partner-pin"]);
    assert_eq!(
        redact("{\"iban\":\"DE02\"}\nX-Partner-Pin: 12", &more),
        "{\"iban\":\"[redacted]\"}\nX-Partner-Pin: \"[redacted]\""
    );
    for refused in [
        "a",
        "with blank",
        "ünicode",
        &"x".repeat(65),
        &"ab,".repeat(101),
    ] {
        assert!(parse_names(refused).is_err(), "{refused}");
    }
}

#[test]
fn no_input_panics_or_takes_more_than_linear_time() {
    let pieces = [
        "secret",
        "\"",
        "\\",
        ":",
        "=",
        ">",
        "[",
        "{",
        "]",
        "}",
        " ",
        "é",
        "token",
        "bearer ",
        "eyJ",
        "'",
        "\u{1f980}",
        "\n",
    ];
    let mut seed = 7_u64;
    for _ in 0..2000 {
        let mut text = String::new();
        for _ in 0..40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        hidden(&text);
    }
    // Each of these would be quadratic if a value were looked through more than once.
    for piece in [
        "token",
        "token:",
        "token: \"",
        "secret\\\\",
        "token=[",
        "eyJ",
        "bearer   ",
        "cookie ",
    ] {
        let long = piece.repeat(200_000 / piece.len());
        let begun = std::time::Instant::now();
        hidden(&long);
        assert!(
            begun.elapsed().as_millis() < 2_000,
            "{piece}: {:?}",
            begun.elapsed()
        );
    }
}
