//! What our own sender sends under every signature profile, and our own receiver: `verify` believes it as it came over
//! the wire, and nothing that was changed; an inbox source of the profile takes it in.

use std::sync::LazyLock;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE, quoted},
    receiver::{Receiver, Request},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

const PROFILES: [&str; 9] = [
    "v1",
    "v1a",
    "rfc9421-hmac-sha256",
    "rfc9421-ed25519",
    "github",
    "github-sha1",
    "stripe",
    "slack",
    "shopify",
];

#[test]
fn what_is_sent_under_each_profile_is_believed_and_received_once_under_it() {
    let mut shop = Outbox::create(&CLUSTER, "shop");
    let receiver = Receiver::http();
    for profile in PROFILES {
        let url = receiver.url(&format!("/{profile}"));
        let endpoint = shop.endpoint_with(profile, &url, &format!(", signature => '{profile}'"));
        let event = shop.emit_with(
            "order.paid",
            profile,
            r#"{"total": 1.10, "name": "Zoë 例"}"#,
            ", subject_type => 'order', subject_id => '7', subject_version => 2",
        );
        shop.wait_for_state(&event, &endpoint, "delivered");
        let request = receiver
            .requests_for(&format!("/{profile}"))
            .pop()
            .expect("a request");
        let call = |key: &str, body: &str| {
            format!(
                "select webhook.explain_signature('{profile}', array[{}], {}, {body}, url => {})",
                quoted(key),
                headers(&request),
                quoted(&url)
            )
        };
        let body = bytes(&request);
        assert_eq!(
            shop.text(&call(&endpoint.secret, &body)),
            "valid",
            "{profile}"
        );
        for changed in [
            format!("{body} || ' '"),
            format!("substring({body} from 2)"),
        ] {
            let found = shop.text(&call(&endpoint.secret, &changed));
            assert_ne!(found, "valid", "{profile}");
        }

        // As an inbox source: whatever the profile, our body says which event it is.
        shop.run(&format!(
            "select webhook.create_inbox_source('{profile}', '{profile}', '{profile}', id_from => 'body:/event_id', type_from => 'body:/type');
             select webhook.add_inbox_key('{profile}', {})",
            quoted(&endpoint.secret)
        ));
        let receive = format!(
            "select r.result || ' ' || coalesce(r.event_id, r.reason)
               from webhook.receive('{profile}', {}, {body}, url => {}) as r",
            headers(&request),
            quoted(&url)
        );
        assert_eq!(
            shop.text(&receive),
            format!("accepted {event}"),
            "{profile}"
        );
        assert_eq!(
            shop.text(&receive),
            format!("duplicate {event}"),
            "{profile}"
        );
        assert!(shop.is(&format!(
            "e.type = i.type and i.subject_version = 2 and i.partner_id = e.partner_id
               from webhook.events e join webhook.inbox i using (event_id) where e.event_id = '{event}'"
        )));
    }
    assert_eq!(
        receiver.wait_for(PROFILES.len(), PATIENCE).len(),
        PROFILES.len()
    );
}

/// The header lines as a listener hands them on.
fn headers(request: &Request) -> String {
    let mut lines = serde_json::Map::new();
    for (name, value) in &request.headers {
        let values = lines
            .entry(name.to_ascii_lowercase())
            .or_insert_with(|| serde_json::Value::Array(Vec::new()));
        if let serde_json::Value::Array(values) = values {
            values.push(value.as_str().into());
        }
    }
    format!(
        "{}::jsonb",
        quoted(&serde_json::Value::Object(lines).to_string())
    )
}

fn bytes(request: &Request) -> String {
    let hex: String = request
        .body
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("'\\x{hex}'::bytea")
}
