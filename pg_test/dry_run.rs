//! A dry run shows what is sent: header by header, byte by byte, but for what is new in each request.

use std::sync::LazyLock;

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Receiver, Request},
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

/// Three versions with conversions from the second one, and a fourth that nothing leads to.
const CATALOGUE: &str = r#"
    select webhook.create_event_type('order.paid');
    select webhook.add_schema('order.paid', version, 'true', '{}', current => version = '2') from unnest('{1,2,3,4}'::text[]) as version;
    create role dry_converter;
    create schema conversions authorization dry_converter;
    set role dry_converter;
    create function conversions.down(jsonb) returns jsonb language sql immutable as $$select ($1 - 'id') || jsonb_build_object('order', $1 -> 'id')$$;
    create function conversions.up(jsonb) returns jsonb language plpgsql immutable as $$
    begin
      if $1 ->> 'id' = 'bad' then
        raise exception 'no such order';
      end if;
      return $1;
    end $$;
    reset role;
    select webhook.create_conversion('order.paid', '2', '1', 'conversions.down(jsonb)', 'old receivers');
    select webhook.create_conversion('order.paid', '2', '3', 'conversions.up(jsonb)', 'new receivers');
"#;

/// What differs from request to request.
const OWN: [&str; 8] = [
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "webhook-delivery",
    "signature",
    "signature-input",
    "stripe-signature",
    "ce-id",
];

#[test]
fn a_dry_run_shows_the_request_that_is_sent() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let data = r#"{"price": 1.10, "name": "Zoë", "n": 12345678901234567890.123}"#;
    let more = ", subject_type => 'order', subject_id => 'ö 1', subject_version => 3, source => 'shop floor',
        correlation_id => 'c 1', traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
        occurred_at => '2026-01-02 03:04:05.678+00', schema_version => '2'";
    for (format, signature) in [
        ("native", "v1"),
        ("native", "stripe"),
        ("native", "v1a"),
        ("cloudevents-structured", "github"),
        ("cloudevents-binary", "rfc9421-hmac-sha256"),
    ] {
        let partner = format!("dry.{format}.{signature}");
        let path = format!("/{format}/{signature}");
        let endpoint = shop.endpoint_with(
            &partner,
            &receiver.url(&path),
            &format!(", format => '{format}', signature => '{signature}', headers => '{{\"X-Tenant\": \"7\"}}'"),
        );
        let (sent, shown, body) = shown_and_sent(
            &mut shop,
            &receiver,
            &path,
            &endpoint,
            &Given {
                partner: &partner,
                data,
                more,
                is_binary: format == "cloudevents-binary",
            },
        );
        // The signature is a good one, of the bytes that are shown.
        if signature == "v1" {
            let mut request = sent.clone();
            request.headers.clone_from(&shown);
            request.body = body.into_bytes();
            assert_eq!(
                verifier::objections(&endpoint.secret, &[request]),
                Vec::<String>::new()
            );
        }
    }
    assert_eq!(
        shop.number("select count(*) from webhook.list_events('dry.native.v1')"),
        1
    );
}

#[test]
fn a_dry_run_shows_the_data_that_each_shape_and_each_version_has() {
    let mut shop = Outbox::create(&CLUSTER, "versions");
    let receiver = Receiver::http();
    shop.run(CATALOGUE);
    let data = r#"{"id": "o-1", "base_version": 6, "before": {"total": 1.10, "gone": 1}, "after": {"total": 2.20}}"#;
    // What each sends, so that a dry run and a sender that err in the same way are found out.
    for (name, more, wanted) in [
        (
            "fields",
            "data_shape => 'fields', fields => '{id}'",
            Some(r#"{"id": "o-1"}"#),
        ),
        ("thin", "data_shape => 'thin'", None),
        (
            "delta",
            "data_shape => 'delta'",
            Some(
                r#"{"id": "o-1", "changed":{"total": 2.20},"removed":["gone"],"base_version": 6}"#,
            ),
        ),
        (
            "older",
            r#"schema_versions => '{"order.paid": "1"}'"#,
            Some(
                r#"{"after": {"total": 2.20}, "order": "o-1", "before": {"gone": 1, "total": 1.10}, "base_version": 6}"#,
            ),
        ),
        (
            "older.fields",
            r#"schema_versions => '{"order.paid": "1"}', data_shape => 'fields', fields => '{order}'"#,
            Some(r#"{"order": "o-1"}"#),
        ),
    ] {
        for format in ["native", "cloudevents-binary"] {
            let partner = format!("{name}.{format}");
            let path = format!("/{name}/{format}");
            let endpoint = shop.endpoint_with(
                &partner,
                &receiver.url(&path),
                &format!(", format => '{format}', {more}"),
            );
            let (_, _, body) = shown_and_sent(
                &mut shop,
                &receiver,
                &path,
                &endpoint,
                &Given {
                    partner: &partner,
                    data,
                    more: ", occurred_at => '2026-01-02 03:04:05.678+00'",
                    is_binary: format == "cloudevents-binary",
                },
            );
            let shown = match format {
                "native" => serde_json::from_str::<Value>(&body).expect("JSON")["data"].take(),
                _ if body.is_empty() => Value::Null,
                _ => serde_json::from_str(&body).expect("JSON"),
            };
            let wanted = wanted.map_or(Value::Null, |data| {
                serde_json::from_str(data).expect("JSON")
            });
            assert_eq!(shown, wanted, "{partner}");
        }
    }
    // What the leader would hold is shown as held, with the reason, and without a request.
    for (name, version, data, why) in [
        (
            "absent",
            "4",
            data,
            "no conversion leads to schema version \"4\"",
        ),
        ("failing", "3", r#"{"id": "bad"}"#, "SQLSTATE P0001"),
    ] {
        let endpoint = shop.endpoint_with(
            name,
            &receiver.url("/held"),
            &format!(r#", schema_versions => '{{"order.paid": "{version}"}}'"#),
        );
        assert!(
            shop.is(&format!(
                "matched is null and reason ~ '{why}' and url is null and headers is null and body is null
                   from webhook.dry_run('order.paid', '{name}', '{data}')"
            )),
            "{name}: {:?}",
            shop.rows(&format!("select * from webhook.dry_run('order.paid', '{name}', '{data}')"))
        );
        let event = shop.emit("order.paid", name, data);
        shop.wait_until(&format!(
            "(select held_by = '{{conversion}}' from webhook.deliveries where event_id = '{event}' and endpoint_id = {})",
            endpoint.id
        ));
    }
    assert!(receiver.requests_for("/held").is_empty());
}

/// What is given to a dry run, and then to emit.
struct Given<'a> {
    partner: &'a str,
    data: &'a str,
    more: &'a str,
    is_binary: bool,
}

/// A dry run and the request that follows, which must be the same but for what is new in each: the request, the
/// headers and the body that were shown.
#[track_caller]
fn shown_and_sent(
    shop: &mut Outbox<'_>,
    receiver: &Receiver,
    path: &str,
    endpoint: &Endpoint,
    given: &Given<'_>,
) -> (Request, Vec<(String, String)>, String) {
    let Given {
        partner,
        data,
        more,
        is_binary,
    } = given;
    let dry = shop.rows(&format!(
        "select d.endpoint_id, d.matched, d.reason, d.url, d.headers, d.body
           from webhook.dry_run('order.paid', '{partner}', '{data}'{more}) as d"
    ));
    assert_eq!(dry.len(), 1);
    let dry: Vec<String> = dry[0]
        .iter()
        .map(|value| value.clone().unwrap_or_default())
        .collect();
    assert_eq!(
        dry[..4],
        [
            endpoint.id.to_string(),
            "t".to_owned(),
            String::new(),
            receiver.url(path)
        ]
    );
    assert_eq!(receiver.requests_for(path).len(), 0);
    let event = shop.emit_with("order.paid", partner, data, more);
    shop.wait_for_state(&event, endpoint, "delivered");
    receiver.wait_for(1, PATIENCE);
    let sent = receiver.requests_for(path).remove(0);

    let shown = members(shop, &dry[4]);
    let shown_id = shown
        .iter()
        .find(|(name, _)| name == "webhook-id")
        .expect("an id")
        .1
        .clone();
    assert_ne!(shown_id, event);
    // Ids have one length, so that only their characters differ.
    let body = dry[5].replace(&shown_id, &event);
    assert_eq!(body.as_bytes(), sent.body, "{partner}");
    let names = |headers: &[(String, String)]| -> Vec<String> {
        headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect()
    };
    assert_eq!(names(&shown), names(&sent.headers), "{partner}");
    for ((name, shown), (_, sent)) in shown.iter().zip(&sent.headers) {
        let name = name.to_ascii_lowercase();
        let of_body = name == "content-digest"
            || name.starts_with("x-hub-signature")
            || name == "x-github-delivery";
        let new = OWN.contains(&name.as_str()) || (of_body && !*is_binary);
        if !new {
            assert_eq!(shown, sent, "{partner}: {name}");
        }
    }
    (sent, shown, dry[5].clone())
}

/// Names and values of a JSON object in their order.
fn members(shop: &mut Outbox<'_>, object: &str) -> Vec<(String, String)> {
    let rows = shop.rows(&format!(
        "select key, value from json_each_text('{}') with ordinality as m (key, value, place) order by place",
        object.replace('\'', "''")
    ));
    rows.into_iter()
        .map(|row| {
            (
                row[0].clone().unwrap_or_default(),
                row[1].clone().unwrap_or_default(),
            )
        })
        .collect()
}
