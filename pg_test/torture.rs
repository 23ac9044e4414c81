//! Payloads made to be mangled: from emit through validation to the receiver they are the same bytes (jsonb's normal form
//! for emit), or they are refused with a clear error. Never another value.

use std::collections::HashMap;

use postgres::error::SqlState;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    say,
};

/// What is to become of a payload under a schema that accepts everything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sent,
    /// Sent without a schema; refused by emit where there is one, because readers would disagree about it.
    SentUnlessValidated,
}

fn cases() -> Vec<(String, Fate)> {
    use Fate::{Sent, SentUnlessValidated};
    let sent = [
        "1.10",
        "-0",
        "-0.0",
        "1e400",
        "1E-400",
        "1e+5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "9007199254740993",
        "0.1000000000000000055511151231257827",
        "12345678901234567890123456789012345678901234567890",
        "123456789012345678901234567890.12345678901234567890",
        "true",
        "null",
        "\"\"",
        "[]",
        "{}",
        " { \"b\" : 1 ,\n\t\"a\":[ ] } ",
        r#"{"\"\\\/\b\f\n\r\t": "\"\\\/\b\f\n\r\t"}"#,
        r#"{"": {"": [[], {}]}}"#,
        r#"{"$serde_json::private::Number": "5", "$serde_json::private::RawValue": "5"}"#,
        r#"{"__proto__": {"constructor": 1}}"#,
        r#""\u00e9\ud83d\ude00\u2028\u2029\uffff\ufeff""#,
        "\"\u{feff}\u{202e}\u{200d}e\u{301}\u{e9}\u{7f}\"",
        "\"<script>&amp;</script>'%00\"",
        r#"{"é": 1, "e\u0301": 2, "É": 3}"#,
    ];
    let mut cases: Vec<(String, Fate)> =
        sent.iter().map(|text| ((*text).to_owned(), Sent)).collect();
    // A character of every plane, as itself and escaped; the ends of each plane are no characters, and pass as well.
    let planes = (0..=16_u32).flat_map(|plane| {
        [
            plane * 0x10000 + 0x2a6,
            plane * 0x10000 + 0xfffe,
            plane * 0x10000 + 0xffff,
        ]
    });
    let planes: String = planes.filter_map(char::from_u32).collect();
    let mut units = [0; 2];
    let escaped: String = planes
        .chars()
        .flat_map(|c| {
            c.encode_utf16(&mut units)
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<Vec<_>>()
        })
        .collect();
    cases.push((format!("{{\"{planes}\": \"{planes}\"}}"), Sent));
    cases.push((
        format!(
            "[\"{escaped}\", \"{}\"]",
            escaped.to_uppercase().replace("\\U", "\\u")
        ),
        Sent,
    ));
    cases.push((format!("{{\"{}\": 1}}", "k".repeat(100_000)), Sent));
    cases.push((format!("[{}]", vec!["0.1"; 50_000].join(",")), Sent));
    cases.push((format!("{}{}", "[".repeat(1000), "]".repeat(1000)), Sent));
    cases.push((
        format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000)),
        Sent,
    ));
    cases.push((
        format!("{}1{}", "[".repeat(2000), "]".repeat(2000)),
        SentUnlessValidated,
    ));
    cases.push((
        r#"{"a": 1, "a": 2, "\u0061": 3}"#.to_owned(),
        SentUnlessValidated,
    ));
    cases.push((
        r#"{"a": [{"b": {}, "b": []}]}"#.to_owned(),
        SentUnlessValidated,
    ));
    for lone in [
        r"\ud800",
        r"\udc00",
        r"\ud800\ud800",
        r"\udc00\ud800",
        r"\ud800A",
        r"x\udfff",
    ] {
        cases.push((format!("[\"{lone}\"]"), SentUnlessValidated));
        cases.push((format!("{{\"{lone}\": 1}}"), SentUnlessValidated));
    }
    cases.push((r#"["\u0000"]"#.to_owned(), Sent));
    cases
}

#[test]
fn every_payload_arrives_byte_for_byte_or_is_refused() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "torture");
    shop.endpoint("acme", &receiver.url("/in"));
    // Accepts everything, and looks at all of it.
    shop.run(
        r##"select webhook.create_event_type('bound.payload');
            select webhook.add_schema('bound.payload', '1', '{"$defs": {"any": {"uniqueItems": false, "multipleOf": 1e-400, "not": {"const": "no such value"},
              "items": {"$ref": "#/$defs/any"}, "additionalProperties": {"$ref": "#/$defs/any"}}}, "$ref": "#/$defs/any"}', '{}', mode => 'enforce')"##,
    );
    let (mut wanted, mut refused) = (HashMap::new(), 0);
    for (payload, fate) in cases() {
        let short: String = payload.chars().take(60).collect();
        for kind in ["free.payload", "bound.payload"] {
            let emit = format!("select webhook.emit_json('{kind}', 'acme', $1::text::json)");
            match shop.sql.query_one(&emit, &[&payload]) {
                Ok(row) => {
                    assert!(
                        fate == Fate::Sent || kind == "free.payload",
                        "{kind} {short} was accepted"
                    );
                    wanted.insert(row.get::<_, String>(0), payload.clone());
                }
                Err(error) => {
                    assert!(
                        fate == Fate::SentUnlessValidated && kind == "bound.payload",
                        "{kind} {short}: {error:?}"
                    );
                    assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{short}");
                    refused += 1;
                }
            }
            // emit: what jsonb accepts arrives in jsonb's own spelling; what it does not is its own clear error.
            let normal = shop
                .sql
                .query_one("select $1::text::jsonb::text", &[&payload]);
            let emit = format!("select webhook.emit('{kind}', 'acme', $1::text::jsonb)");
            match (normal, shop.sql.query_one(&emit, &[&payload])) {
                (Ok(normal), Ok(row)) => {
                    wanted.insert(row.get::<_, String>(0), normal.get::<_, String>(0));
                }
                (Err(of_jsonb), Err(error)) => {
                    assert_eq!(of_jsonb.code(), error.code(), "{short}");
                    refused += 1;
                }
                // Too deep for the schema.
                (Ok(_), Err(error)) => {
                    assert!(
                        fate == Fate::SentUnlessValidated && kind == "bound.payload",
                        "{kind} {short}: {error:?}"
                    );
                    refused += 1;
                }
                (Err(error), Ok(_)) => panic!("{short}: jsonb says {error}, emit accepts it"),
            }
        }
    }
    let requests = receiver.wait_for(wanted.len(), PATIENCE * 2);
    for request in requests {
        let id = request.header("webhook-id").expect("an id");
        let data = wanted.get(id).expect("an event of this test");
        let body = std::str::from_utf8(&request.body).expect("UTF-8");
        let end = format!("\"data\":{data}}}");
        assert!(
            body.ends_with(&end),
            "{} is not {}",
            &body[..body.len().min(400)],
            &end[..end.len().min(200)]
        );
    }
    shop.wait_until("(select count(*) = 0 from webhook.deliveries where state <> 'delivered')");
    say!(
        "torture: {} payloads arrived byte for byte, {refused} were refused",
        wanted.len()
    );
}

#[test]
fn limits_of_a_schema_hold_where_floats_would_not() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "limits");
    shop.run(
        r#"select webhook.create_event_type('a.b');
           select webhook.add_schema('a.b', '1', '{"properties": {
             "cents": {"type": "number", "multipleOf": 0.01, "description": "x"},
             "big": {"type": "integer", "maximum": 9223372036854775807, "description": "x"},
             "exact": {"const": 9007199254740993, "description": "x"}}}', '{}', mode => 'enforce')"#,
    );
    for (data, good) in [
        (r#"{"cents": 1.10}"#, true),
        (r#"{"cents": 1e400}"#, true),
        (r#"{"cents": 0.10000000000000000001}"#, false),
        (r#"{"big": 9223372036854775807}"#, true),
        (r#"{"big": 9223372036854775808}"#, false),
        (r#"{"big": 1e400}"#, false),
        (r#"{"big": -1e400}"#, true),
        (r#"{"exact": 9007199254740993.0}"#, true),
        (r#"{"exact": 9007199254740992}"#, false),
    ] {
        for function in ["emit", "emit_json"] {
            let emit = format!("select webhook.{function}('a.b', 'acme', '{data}')");
            assert_eq!(shop.sql.batch_execute(&emit).is_ok(), good, "{emit}");
        }
    }
}
