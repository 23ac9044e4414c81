//! Payloads made to be mangled: from emit through validation to the receiver they are the same bytes (jsonb's normal form
//! for emit), or they are refused with a clear error. Never another value.

use std::collections::{HashMap, HashSet};

use postgres::error::SqlState;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    say,
    wait::wait_for,
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
    // Takes everything that it can read: what it cannot is held and told, and nothing is changed on the way through it.
    let choosy = shop.endpoint_with(
        "acme",
        &receiver.url("/filtered"),
        ", filter => 'exists($)'",
    );
    // Accepts everything, and looks at all of it.
    shop.run(
        r##"select webhook.create_event_type('bound.payload');
            select webhook.add_schema('bound.payload', '1', '{"$defs": {"any": {"uniqueItems": false, "multipleOf": 1e-400, "not": {"const": "no such value"},
              "items": {"$ref": "#/$defs/any"}, "additionalProperties": {"$ref": "#/$defs/any"}}}, "$ref": "#/$defs/any"}', '{}', mode => 'enforce')"##,
    );
    let (mut wanted, mut refused) = (HashMap::new(), 0);
    // What a filter can read: whatever PostgreSQL takes for jsonb.
    let mut readable = HashSet::new();
    for (payload, fate) in cases() {
        let short: String = payload.chars().take(60).collect();
        for kind in ["free.payload", "bound.payload"] {
            let normal = shop
                .sql
                .query_one("select $1::text::jsonb::text", &[&payload]);
            let emit = format!("select webhook.emit_json('{kind}', 'acme', $1::text::json)");
            match shop.sql.query_one(&emit, &[&payload]) {
                Ok(row) => {
                    if normal.is_ok() {
                        readable.insert(row.get::<_, String>(0));
                    }
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
            let emit = format!("select webhook.emit('{kind}', 'acme', $1::text::jsonb)");
            match (normal, shop.sql.query_one(&emit, &[&payload])) {
                (Ok(normal), Ok(row)) => {
                    readable.insert(row.get::<_, String>(0));
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
                    assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{short}");
                    refused += 1;
                }
                (Err(error), Ok(_)) => panic!("{short}: jsonb says {error}, emit accepts it"),
            }
        }
    }
    wait_for("every payload arrives", PATIENCE * 2, || {
        receiver.requests_for("/in").len() >= wanted.len()
    });
    // What a filter cannot read (a number or a text that no jsonb holds) waits, and is told; the rest goes through it.
    shop.wait_until(&format!(
        "(select count(*) = 0 from webhook.deliveries
           where state <> 'delivered' and not (endpoint_id = {} and 'filter' = any (held_by)))",
        choosy.id
    ));
    assert_eq!(receiver.requests_for("/in").len(), wanted.len());
    let passed: HashSet<String> = receiver
        .requests_for("/filtered")
        .iter()
        .map(|request| request.header("webhook-id").expect("an id").to_owned())
        .collect();
    let shown = |ids: std::collections::hash_set::Difference<'_, String, _>| -> Vec<String> {
        ids.map(|id| wanted[id].chars().take(60).collect())
            .collect()
    };
    assert!(
        passed == readable && readable.len() < wanted.len(),
        "not passed: {:?}, passed nevertheless: {:?}",
        shown(readable.difference(&passed)),
        shown(passed.difference(&readable))
    );
    let filtered = passed.len();
    for request in receiver.requests() {
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
    say!(
        "torture: {} payloads arrived byte for byte, {filtered} of them through a filter as well, {refused} were refused",
        wanted.len()
    );
}

#[test]
fn every_payload_is_converted_cut_and_shaped_byte_for_byte_or_waits() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shapes");
    shop.run(
        r"select webhook.create_event_type('kept.payload');
          select webhook.add_schema('kept.payload', version, 'true', '{}', mode => 'off') from unnest('{1,2,3}'::text[]) as version;
          create role torturer;
          create schema torture authorization torturer;
          set role torturer;
          create function torture.same(json) returns json language sql immutable as 'select $1';
          create function torture.same(jsonb) returns jsonb language sql immutable as 'select $1';
          reset role;
          select webhook.create_conversion('kept.payload', '1', '2', 'torture.same(json)', 'every byte');
          select webhook.create_conversion('kept.payload', '1', '3', 'torture.same(jsonb)', 'the normal form')",
    );
    for (path, kinds, more) in [
        (
            "/two",
            "kept",
            r#"schema_versions => '{"kept.payload": "2"}', format => 'cloudevents-structured'"#,
        ),
        (
            "/three",
            "kept",
            r#"schema_versions => '{"kept.payload": "3"}'"#,
        ),
        (
            "/raw",
            "kept",
            r#"schema_versions => '{"kept.payload": "2"}', format => 'cloudevents-binary'"#,
        ),
        ("/thin", "kept", "data_shape => 'thin'"),
        (
            "/cut",
            "cut",
            "data_shape => 'fields', fields => '{k.v,no.such}', format => 'cloudevents-binary'",
        ),
        ("/delta", "delta", "data_shape => 'delta'"),
    ] {
        let more = format!(", event_types => '{{{kinds}.*}}', {more}");
        shop.endpoint_with("acme", &receiver.url(path), &more);
    }
    // What stands behind "data": at each path by event; none = it has to wait.
    let mut wanted: HashMap<(&str, String), String> = HashMap::new();
    let mut waiting = 0;
    for (payload, fate) in cases() {
        let mut emit = |kind: &str, data: &str| -> String {
            let emit =
                format!("select webhook.emit_json('{kind}.payload', 'acme', $1::text::json)");
            let row = shop.sql.query_one(&emit, &[&data]);
            row.unwrap_or_else(|error| {
                panic!("{error}: {}", payload.chars().take(60).collect::<String>())
            })
            .get(0)
        };
        // What two readers would read differently is not converted, and what jsonb cannot say is no jsonb.
        let event = emit("kept", &payload);
        let inside = emit(
            "cut",
            &format!(r#"{{"a": 1.10, "k" : {{"x": {{}}, "v":{payload}}} }}"#),
        );
        let after = emit(
            "delta",
            &format!(
                r#"{{"base_version": "b", "before": {{"v": {{"other": 0}}}}, "after": {{"v":{payload}}}}}"#
            ),
        );
        let normal = shop
            .sql
            .query_one("select $1::text::jsonb::text", &[&payload]);
        match (fate, normal) {
            (Fate::Sent, Ok(normal)) => {
                wanted.insert(("/three", event.clone()), normal.get(0));
            }
            _ => waiting += 1,
        }
        if fate == Fate::Sent {
            wanted.insert(("/two", event.clone()), payload.clone());
            wanted.insert(("/raw", event.clone()), payload.clone());
        } else {
            waiting += 2;
        }
        wanted.insert(("/thin", event), String::new());
        let value = payload.trim_end();
        wanted.insert(("/cut", inside), format!(r#"{{"k" : {{"v":{value}}}}}"#));
        wanted.insert(
            ("/delta", after),
            format!(r#"{{"base_version": "b","changed":{{"v":{value}}},"removed":[]}}"#),
        );
    }
    receiver.wait_for(wanted.len(), PATIENCE * 2);
    shop.wait_until(&format!(
        "(select count(*) = {waiting} from webhook.deliveries where held_by = '{{conversion}}' and attempt_count = 0)"
    ));
    shop.wait_until(&format!(
        "(select count(*) = {} from webhook.deliveries where state = 'delivered')",
        wanted.len()
    ));
    for ((path, event), data) in &wanted {
        let requests = receiver.requests_for(path);
        let request = requests
            .iter()
            .find(|request| request.header("webhook-id") == Some(event))
            .unwrap_or_else(|| panic!("{path} got no {event}"));
        let body = std::str::from_utf8(&request.body).expect("UTF-8");
        let start: String = body.chars().take(300).collect();
        match *path {
            "/raw" | "/cut" => assert!(body == data, "{path} {start}"),
            "/thin" => assert!(!body.contains("\"data\":"), "{start}"),
            _ => assert!(
                body.ends_with(&format!(",\"data\":{data}}}")),
                "{path} {start}"
            ),
        }
    }
    assert_eq!(receiver.count(), wanted.len());
    say!(
        "torture: {} requests in every shape had the bytes they must have, {waiting} deliveries wait",
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
