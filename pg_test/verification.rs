//! Proof of control: an endpoint gets nothing but challenges until somebody answers one rightly, in each of three
//! forms. What is no answer to this very challenge proves nothing; a new URL waits while the old one is served.

use std::{
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver, Request},
    verifier::{by_rust, objections},
    wait::wait_for,
};

#[path = "verification/change.rs"]
mod change;

const CHALLENGE: &str = "application/webhook-challenge+json";

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn nothing_but_challenges_is_sent_until_one_is_echoed_then_the_queue_drains() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/in", move |request| {
        if is_challenge(request) && of_receiver.load(Ordering::SeqCst) {
            return echo(request);
        }
        Answer::status(200)
    });
    let endpoint = shop.endpoint_with("held", &receiver.url("/in"), ", verify => 'challenge'");
    assert_eq!(shop.state(&endpoint), "unverified");
    let events: Vec<String> = (1..=3)
        .map(|n| shop.emit("order.paid", "held", &format!("{{\"n\": {n}}}")))
        .collect();
    shop.wait_for_deliveries(&endpoint, "pending", 3);
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    assert_eq!(shop.state(&endpoint), "unverified");
    assert!(receiver.requests().iter().all(is_challenge));
    assert_eq!(shop.health(&endpoint, "health"), "held");

    willing.store(true, Ordering::SeqCst);
    shop.have_done(&format!("verify_endpoint({})", endpoint.id));
    wait_for_state(&mut shop, &endpoint, "active");
    shop.wait_for_deliveries(&endpoint, "delivered", 3);
    assert!(shop.is(&format!(
        "(verified_by, verify) = ('challenge', 'challenge') and verified_at < clock_timestamp()
           from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));

    // A challenge is no event, in any way: by its type, its id, its headers, its rows.
    let (challenges, sent): (Vec<Request>, Vec<Request>) =
        receiver.requests().into_iter().partition(is_challenge);
    // One that failed is followed by another after five seconds, whoever asks for more.
    assert!(challenges.len() >= 2);
    for challenge in &challenges {
        let id = challenge.header("webhook-id").expect("an id");
        assert!(id.starts_with("chl_"), "{id}");
        assert!(challenge.header("webhook-delivery").is_none());
        assert!(challenge.header("webhook-attempt").is_none());
        assert_eq!(
            challenge.header("webhook-challenge"),
            Some(&*value(challenge))
        );
        assert!(shop.is(&format!(
            "count(*) = 1 from webhook.verifications where verification_id = {}",
            id.trim_start_matches("chl_")
        )));
    }
    assert_ne!(value(&challenges[0]), value(&challenges[1]));
    assert_eq!(
        objections(&endpoint.secret, &challenges),
        Vec::<String>::new()
    );
    let ids: Vec<&str> = sent.iter().filter_map(|r| r.header("webhook-id")).collect();
    assert!(ids.iter().all(|id| id.starts_with("evt_")));
    assert_eq!(sent.len(), events.len());
    assert!(shop.is(&format!(
        "count(*) = 3 from webhook.attempts where endpoint_id = {}",
        endpoint.id
    )));
    // The counters are written now and then.
    shop.wait_until(&format!(
        "(select (delivered, failed) = (3, 0) from webhook.stat_endpoint where endpoint_id = {})",
        endpoint.id
    ));
}

#[test]
fn each_method_is_proven_in_its_own_form() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    type Case = (&'static str, &'static str, fn(&Request) -> Answer);
    let cases: [Case; 6] = [
        ("challenge", "/text", |r| Answer::status(200).body(value(r))),
        ("challenge", "/json", |r| json(200, &value(r))),
        ("graph", "/graph?tenant=7", |r| plain().body(value(r))),
        ("slack", "/slack-text", |r| {
            Answer::status(200).body(value(r))
        }),
        ("slack", "/slack-json", |r| json(200, &value(r))),
        ("slack", "/slack-form", |r| {
            Answer::status(200)
                .header("content-type", "application/x-www-form-urlencoded")
                .body(format!("challenge={}", value(r)))
        }),
    ];
    for (method, path, answer) in cases {
        receiver.behave(path.split('?').next().unwrap_or(path), answer);
        let endpoint = shop.endpoint_with(
            "forms",
            &receiver.url(path),
            &format!(", verify => '{method}'"),
        );
        wait_for_state(&mut shop, &endpoint, "active");
        let seen = receiver.requests();
        let seen = seen.last().expect("the challenge");
        assert!(seen.target.starts_with(path), "{}", seen.target);
        assert_eq!(seen.method, "POST");
        // The Python library wants JSON, which the empty body of Graph's form is not.
        let verdicts = by_rust(&endpoint.secret, std::slice::from_ref(seen));
        assert_eq!(verdicts, [Ok(())], "{method}");
        match method {
            "graph" => {
                assert!(seen.target.starts_with("/graph?tenant=7&validationToken="));
                assert!(seen.body.is_empty());
            }
            "slack" => {
                let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
                assert_eq!(body["type"], "url_verification");
            }
            _ => assert_eq!(seen.header("content-type"), Some(CHALLENGE)),
        }
        assert!(shop.is(&format!(
            "(method, result, status, error_category) is not distinct from ('{method}', 'proven', 200::smallint, null)
               and latency_ms >= 0 and host = '{}' from webhook.verifications where endpoint_id = {}",
            receiver.address(),
            endpoint.id
        )));
    }
}

#[test]
fn what_is_no_answer_to_this_very_challenge_proves_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let elsewhere = Receiver::http();
    elsewhere.behave("/in", echo);
    let location = elsewhere.url("/in");
    let older = Mutex::new(String::from("none yet"));
    type Behaviour = Box<dyn FnMut(&Request) -> Answer + Send>;
    // Method, path, what the receiver does, and what the evidence says.
    let cases: Vec<(&str, &str, Behaviour, &str)> = vec![
        (
            "challenge",
            "/silent",
            Box::new(|_| Answer::status(204)),
            "detail = 'the answer is empty' and status = 204",
        ),
        (
            "challenge",
            "/ok",
            Box::new(|_| Answer::status(200).body("OK")),
            "detail like '%not the value%' and error_category is null",
        ),
        (
            "challenge",
            "/mirror",
            Box::new(|r| Answer::status(200).body(r.body.clone())),
            "detail = 'the answer is the request itself'",
        ),
        (
            "challenge",
            "/part",
            Box::new(|r| Answer::status(200).body(value(r)[1..].to_owned())),
            "detail like '%not the value%'",
        ),
        (
            "challenge",
            "/moved",
            Box::new(move |_| Answer::redirect(307, &location)),
            "error_category = 'redirect' and status = 307",
        ),
        (
            "challenge",
            "/huge",
            Box::new(|r| Answer::status(200).body(format!("{}{}", value(r), " ".repeat(100_000)))),
            "detail like '%longer than 4 kB%'",
        ),
        (
            "challenge",
            "/endless",
            Box::new(|_| Answer::status(200).endless_body(1000, Duration::from_millis(1))),
            "status = 200",
        ),
        (
            "challenge",
            "/error",
            Box::new(|r| Answer::status(500).body(value(r))),
            "error_category = 'server_error' and status = 500",
        ),
        (
            "challenge",
            "/reset",
            Box::new(|_| Answer::reset()),
            "error_category is not null and status is null",
        ),
        (
            "challenge",
            "/older",
            Box::new(move |r| {
                let mut older = older.lock().expect("the older value");
                Answer::status(200).body(std::mem::replace(&mut *older, value(r)))
            }),
            "detail like '%not the value%'",
        ),
        (
            "graph",
            "/graph-json",
            Box::new(|r| {
                Answer::status(200)
                    .header("content-type", "application/json")
                    .body(value(r))
            }),
            "detail = 'the answer is not text/plain'",
        ),
        (
            "graph",
            "/graph-202",
            Box::new(|r| {
                Answer::status(202)
                    .header("content-type", "text/plain")
                    .body(value(r))
            }),
            "detail = 'the status is not 200'",
        ),
        (
            "slack",
            "/slack-slow",
            Box::new(|_| Answer::hang()),
            "error_category = 'timeout' and started_at < clock_timestamp() - interval '3 s'",
        ),
        (
            "slack",
            "/slack-mirror",
            Box::new(|r| Answer::status(200).body(r.body.clone())),
            "detail = 'the answer is the request itself'",
        ),
    ];
    let mut made = Vec::new();
    for (method, path, behaviour, evidence) in cases {
        receiver.behave(path, behaviour);
        let endpoint = shop.endpoint_with(
            &format!("wrong{}", path.replace('/', ".")),
            &receiver.url(path),
            &format!(", verify => '{method}'"),
        );
        made.push((endpoint, path, evidence));
    }
    for (endpoint, path, evidence) in made {
        // Two tries: an answer to the first one is no answer to the second.
        wait_for_tries(&mut shop, &endpoint, "failed", 2);
        assert!(
            shop.is(&format!(
                "bool_and({evidence}) from webhook.verifications where endpoint_id = {}",
                endpoint.id
            )),
            "{path}: {:?}",
            shop.rows(&format!(
                "select result, status, error_category, detail from webhook.verifications where endpoint_id = {}",
                endpoint.id
            ))
        );
        assert_eq!(shop.state(&endpoint), "unverified", "{path}");
    }
    assert_eq!(elsewhere.count(), 0, "a redirect is not followed");
}

#[test]
fn a_leader_that_dies_between_challenge_and_record_asks_again() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let of_receiver = gate.clone();
    receiver.behave("/in", move |request| echo(request).held(&of_receiver));
    let endpoint = shop.endpoint_with("acme", &receiver.url("/in"), ", verify => 'challenge'");
    let event = shop.emit("order.paid", "acme", "{}");
    receiver.wait_for(1, PATIENCE);
    let leader = shop.leader();
    cluster.signal(leader, Signal::SIGKILL);
    // Until the postmaster has noticed, a new session would be ended like this one.
    wait_for("the server ends its sessions", PATIENCE, || {
        shop.sql.simple_query("select 1").is_err()
    });
    gate.open();
    wait_for("the server recovers", PATIENCE, || {
        cluster.try_connect("shop").is_ok()
    });
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let challenges: Vec<Request> = receiver
        .requests()
        .into_iter()
        .filter(is_challenge)
        .collect();
    assert_eq!(challenges.len(), 2);
    assert_ne!(value(&challenges[0]), value(&challenges[1]));
    assert!(tried(&mut shop, &endpoint, "proven", 1));
}

#[test]
fn a_challenge_is_held_to_the_same_boundary_as_an_event() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint_with("acme", &receiver.url("/in"), ", verify => 'challenge'");
        wait_for_tries(&mut shop, &endpoint, "failed", 1);
        endpoint
    };
    cluster.reload(&[("webhook.deny_networks", "127.0.0.0/8")]);
    receiver.behave("/in", echo);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until(&format!(
        "exists (select from webhook.verifications where endpoint_id = {} and error_category = 'blocked'
                    and status is null and detail is not null)",
        endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "unverified");
    // Whatever arrived, arrived before.
    let answered = shop.number(&format!(
        "select count(*) from webhook.verifications where endpoint_id = {} and status is not null",
        endpoint.id
    ));
    assert_eq!(i64::try_from(receiver.count()), Ok(answered));
}

/// Answers a challenge rightly, and everything else with 200.
fn echo(request: &Request) -> Answer {
    if is_challenge(request) {
        return Answer::status(200).body(value(request));
    }
    Answer::status(200)
}

fn json(status: u16, value: &str) -> Answer {
    Answer::status(status)
        .header("content-type", "application/json")
        .body(format!("{{\"challenge\": \"{value}\"}}"))
}

fn plain() -> Answer {
    Answer::status(200).header("content-type", "text/plain; charset=utf-8")
}

fn is_challenge(request: &Request) -> bool {
    request.header("content-type") == Some(CHALLENGE)
}

/// The value to be echoed, in whichever form it came.
fn value(request: &Request) -> String {
    if let Some((_, value)) = request.target.split_once("validationToken=") {
        return value.to_owned();
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["challenge"].as_str().unwrap_or_default().to_owned()
}

fn tried(shop: &mut Outbox<'_>, endpoint: &Endpoint, result: &str, count: usize) -> bool {
    shop.is(&format!(
        "count(*) >= {count} from webhook.verifications where endpoint_id = {} and result = '{result}'",
        endpoint.id
    ))
}

#[track_caller]
fn wait_for_tries(shop: &mut Outbox<'_>, endpoint: &Endpoint, result: &str, count: usize) {
    wait_for(&format!("{count} tries {result}"), PATIENCE, || {
        tried(shop, endpoint, result, count)
    });
}

#[track_caller]
fn wait_for_state(shop: &mut Outbox<'_>, endpoint: &Endpoint, state: &str) {
    shop.wait_until(&format!(
        "(select state = '{state}' from webhook.endpoints where endpoint_id = {})",
        endpoint.id
    ));
}
