//! A dry run shows what is sent: header by header, byte by byte, but for what is new in each request.

use std::sync::LazyLock;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    verifier,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

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
                receiver.url(&path)
            ]
        );
        assert_eq!(receiver.requests_for(&path).len(), 0);
        let event = shop.emit_with("order.paid", &partner, data, more);
        shop.wait_for_state(&event, &endpoint, "delivered");
        receiver.wait_for(1, PATIENCE);
        let sent = receiver.requests_for(&path).remove(0);

        let shown = members(&mut shop, &dry[4]);
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
            let new = OWN.contains(&name.as_str()) || (of_body && format != "cloudevents-binary");
            if !new {
                assert_eq!(shown, sent, "{partner}: {name}");
            }
        }
        // The signature is a good one, of the bytes that are shown.
        if signature == "v1" {
            let mut request = sent.clone();
            request.headers.clone_from(&shown);
            request.body = dry[5].clone().into_bytes();
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
