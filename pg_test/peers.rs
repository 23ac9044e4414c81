//! Public receivers judge what is sent: the CloudEvents SDKs of Python and Node, a verifier of HTTP Message Signatures,
//! ed25519 of libsodium and of OpenSSL, and the libraries of GitHub, Stripe, Slack and Shopify.
//!
//! `make peers` sends them more events (WEBHOOK_PEER_EVENTS). Refuses to use any code of the product.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    judges::verdicts,
    meter::number,
    outbox::{Endpoint, Outbox, PATIENCE, quoted},
    receiver::{Receiver, Request},
};

const FORMATS: [&str; 3] = ["native", "cloudevents-structured", "cloudevents-binary"];
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
/// What receivers of these look for beside the signature: the operator adds it.
const SHOPIFY: &str = r#"{"X-Shopify-Topic": "orders/paid", "X-Shopify-Shop-Domain": "shop.example.com", "X-Shopify-API-Version": "2026-01"}"#;

/// An endpoint and how it is sent to.
struct Hook {
    format: &'static str,
    profile: &'static str,
    /// Of the data.
    shape: &'static str,
    test: bool,
    endpoint: Endpoint,
    path: String,
}

impl Hook {
    /// Events with a payload to cut are of a type of their own.
    fn wants(&self, event: &Event) -> bool {
        self.test == event.test && (self.shape == "full") != event.shaped
    }
}

/// What was given to emit, as a receiver of CloudEvents is to see it.
struct Event {
    id: String,
    test: bool,
    shaped: bool,
    seen: Value,
}

/// What is emitted to the endpoints that get their data cut, and what these are to see of it: the fields, the delta and
/// the name of that.
const CUT: [[&str; 4]; 2] = [
    [
        r#"{"order": 7, "name": "Zoë", "base_version": 6, "before": {"total": "1.10", "gone": 1}, "after": {"total": "2.20"}}"#,
        r#"{"order": 7, "name": "Zoë"}"#,
        r#"{"order": 7, "name": "Zoë", "base_version": 6, "changed": {"total": "2.20"}, "removed": ["gone"]}"#,
        "delta",
    ],
    [
        r#"{"order": 8, "more": null}"#,
        r#"{"order": 8}"#,
        r#"{"order": 8, "more": null}"#,
        "full",
    ],
];

#[test]
fn public_receivers_accept_every_event_in_every_format_and_profile() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let hooks = hooks(&mut shop, &receiver);
    let count = number("WEBHOOK_PEER_EVENTS", 12);
    let mut events: Vec<Event> = Vec::new();
    for n in 0..count {
        let parent = events.last().map(|event| event.id.clone());
        events.push(emit(&mut shop, n, parent.as_deref()));
        if n % 4 == 0 {
            events.push(emit_to_be_cut(&mut shop, n / 4));
        }
    }
    let wanted = |event: &Event| hooks.iter().filter(|hook| hook.wants(event)).count();
    let total: usize = events.iter().map(wanted).sum();
    let requests = receiver.wait_for(total, PATIENCE * 3);
    assert_eq!(requests.len(), total);

    let mut cases = Vec::new();
    for request in &requests {
        let path = request.target.split('?').next().expect("a path");
        let hook = hooks
            .iter()
            .find(|hook| hook.path == path)
            .expect("the endpoint");
        let event = events
            .iter()
            .find(|event| request.header("webhook-id") == Some(event.id.as_str()))
            .expect("the event");
        cases.push(case(&receiver, hook, request, &request.body, Some(event)));
    }
    let mut judged = vec![0; cases.len()];
    for judge in ["python", "node"] {
        for (n, verdict) in verdicts(judge, &cases).iter().enumerate() {
            match verdict.as_str() {
                "ok" => judged[n] += 1,
                "not mine" => {}
                objection => panic!("{judge} about {}: {objection}", cases[n]),
            }
        }
    }
    for (case, judged) in cases.iter().zip(judged) {
        // The two that the Standard Webhooks libraries judge elsewhere.
        let elsewhere = case["format"] == "native" && case["profile"] == "v1";
        let twice = case["profile"] == "v1a" || case["format"] != "native";
        let least = if elsewhere {
            0
        } else if twice {
            2
        } else {
            1
        };
        assert!(judged >= least, "judged by {judged} only: {case}");
    }
    println!(
        "{} requests of {} events were accepted",
        cases.len(),
        events.len()
    );

    // The judges can say no: of the same requests with another body, none is accepted for its signature.
    let forged: Vec<Value> = requests
        .iter()
        .filter_map(|request| {
            let path = request.target.split('?').next()?;
            let hook = hooks.iter().find(|hook| hook.path == path)?;
            let mut body = request.body.clone();
            *body.last_mut()? = b' ';
            (hook.profile != "v1").then(|| case(&receiver, hook, request, &body, None))
        })
        .collect();
    let (python, node) = (verdicts("python", &forged), verdicts("node", &forged));
    for ((case, python), node) in forged.iter().zip(python).zip(node) {
        let refused = [&python, &node]
            .iter()
            .filter(|said| said.starts_with("refused"))
            .count();
        assert!(
            python != "ok" && node != "ok" && refused > 0,
            "{python}, {node}: {case}"
        );
    }
}

fn hooks(shop: &mut Outbox, receiver: &Receiver) -> Vec<Hook> {
    let with_format = FORMATS.map(|format| (format, "v1"));
    let with_profile = PROFILES.map(|profile| ("native", profile));
    let others = [
        ("cloudevents-binary", "rfc9421-ed25519"),
        ("cloudevents-structured", "v1a"),
    ];
    with_format
        .into_iter()
        .chain(with_profile.into_iter().skip(1))
        .chain(others)
        .map(|(format, profile)| (format, profile, "full", false))
        .chain(FORMATS.map(|format| (format, "v1", "full", true)))
        .chain(
            ["thin", "fields", "delta"]
                .into_iter()
                .flat_map(|shape| FORMATS.map(|format| (format, "v1", shape, false)))
                .filter(|(format, ..)| *format != "native"),
        )
        .map(|(format, profile, shape, test)| {
            let path = format!("/{format}/{profile}/{shape}/{test}");
            let kind = if shape == "full" {
                "order.paid"
            } else {
                "order.cut"
            };
            let fields = if shape == "fields" {
                ", fields => '{order,name}'"
            } else {
                ""
            };
            let headers = if profile == "shopify" { SHOPIFY } else { "{}" };
            let more = format!(
                ", format => '{format}', signature => '{profile}', headers => '{headers}', test => {test},
                   event_types => '{{{kind}}}', data_shape => '{shape}'{fields}"
            );
            let url = receiver.url(&format!("{path}?tenant=7&a=b%20c"));
            let endpoint = shop.endpoint_with("peer", &url, &more);
            Hook {
                format,
                profile,
                shape,
                test,
                endpoint,
                path,
            }
        })
        .collect()
}

/// Emits one of many different events.
fn emit(shop: &mut Outbox, n: usize, parent: Option<&str>) -> Event {
    let mut dice = Dice::new(n as u64 + 1);
    let datas = [
        "{}",
        r#"{"order": 7, "price": 1.5}"#,
        r#"{"name": "Zoë 例 😀", "quote": "\"\\/\u0001"}"#,
        r#"[1, 2, [3, {"a": null}]]"#,
        r#""only a text""#,
        "17.25",
        "true",
        "null",
    ];
    let texts = [
        "plain",
        "with blank",
        "Zoë %20 例",
        "quote\"percent%",
        "a/b?c#d",
        "😀",
    ];
    let (data, text) = (datas[n % datas.len()], |dice: &mut Dice| *dice.pick(&texts));
    let (mut more, mut extensions) = (String::new(), json!({ "partnerid": "peer" }));
    let mut give = |name: &str, extension: &str, value: &str| {
        more += &format!(", {name} => {}", quoted(value));
        if !extension.is_empty() {
            extensions[extension] = json!(value);
        }
    };
    let mut subject = Value::Null;
    if dice.percent(70) {
        let id = text(&mut dice);
        give("subject_type", "subjecttype", "order");
        give("subject_id", "subjectid", id);
        give("subject_version", "subjectversion", "9007199254740993");
        subject = json!(format!("order/{id}"));
    }
    if dice.percent(70) {
        give("correlation_id", "correlationid", text(&mut dice));
    }
    if dice.percent(70) {
        give("scope", "scope", text(&mut dice));
        give("schema_version", "schemaversion", text(&mut dice));
    }
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    if dice.percent(50) {
        give("traceparent", "traceparent", trace);
    }
    if let Some(parent) = parent.filter(|_| dice.percent(70)) {
        give("causation", "causationid", parent);
    }
    let source = dice
        .percent(50)
        .then_some("https://shop.example.com/orders?x=1");
    if let Some(source) = source {
        give("source", "", source);
    }
    let test = n % 3 == 1;
    if test {
        more += ", test => true";
    }
    let id = shop.emit_with("order.paid", "peer", data, &more);
    let data: Value = serde_json::from_str(data).expect("the data");
    Event {
        seen: json!({
            "id": id, "type": "order.paid", "source": source.unwrap_or("/webhook_outbox"), "subject": subject,
            "occurred_at": occurred_at(shop, &id), "data": data, "extensions": extensions,
        }),
        id,
        test,
        shaped: false,
    }
}

/// Emits an event for those that get their data cut.
fn emit_to_be_cut(shop: &mut Outbox, n: usize) -> Event {
    let which = n % CUT.len();
    let id = shop.emit("order.cut", "peer", CUT[which][0]);
    Event {
        seen: json!({
            "id": id, "type": "order.cut", "source": "/webhook_outbox", "subject": null,
            "occurred_at": occurred_at(shop, &id), "cut": which, "extensions": { "partnerid": "peer" },
        }),
        id,
        test: false,
        shaped: true,
    }
}

fn occurred_at(shop: &mut Outbox, id: &str) -> String {
    shop.text(&format!(
        "select webhook._rfc3339(occurred_at) from webhook.events where event_id = '{id}'"
    ))
}

/// The event as this endpoint is to see it.
fn seen(hook: &Hook, event: &Event) -> Value {
    let mut seen = event.seen.clone();
    if let Some(which) = seen["cut"].as_u64() {
        let [_, fields, delta, name] = CUT[which as usize];
        let (data, name) = match hook.shape {
            "fields" => (Some(fields), "fields"),
            "delta" => (Some(delta), name),
            _ => (None, "thin"),
        };
        if let Some(data) = data {
            seen["data"] = serde_json::from_str(data).expect("the data");
        }
        seen["extensions"]["datashape"] = json!(name);
    }
    if event.test {
        // A header is a text.
        let is_text = hook.format == "cloudevents-binary";
        seen["extensions"]["test"] = if is_text { json!("true") } else { json!(true) };
    }
    seen
}

fn case(
    receiver: &Receiver,
    hook: &Hook,
    request: &Request,
    body: &[u8],
    event: Option<&Event>,
) -> Value {
    let mut case = json!({
        "format": hook.format,
        "profile": hook.profile,
        "secret": hook.endpoint.secret,
        "key_id": request.header("webhook-key-id"),
        "method": request.method,
        "url": receiver.url(&request.target),
        "headers": request.headers,
        "body": STANDARD.encode(body),
    });
    if let Some(event) = event {
        case["event"] = seen(hook, event);
    }
    case
}
