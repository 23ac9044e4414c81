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
    receiver::{Answer, Receiver, Request},
    verifier::{by_rust, objections},
    wait::wait_for,
};

const CHALLENGE: &str = "application/webhook-challenge+json";

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

/// Here a proof is due within seconds.
static HASTY: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.verification_timeout", "3s")
        .start();
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
    assert_eq!(challenges.len(), 2);
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
fn a_new_url_waits_for_its_proof_while_the_old_one_is_served() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/old", echo);
    receiver.behave("/new", move |request| {
        if is_challenge(request) && !of_receiver.load(Ordering::SeqCst) {
            return Answer::status(200);
        }
        echo(request)
    });
    let endpoint = shop.endpoint_with("mover", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    let first = shop.emit("order.paid", "mover", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");
    assert_eq!(shop.state(&endpoint), "active");
    assert!(shop.is(&format!(
        "url = '{}' and pending_host = '{}' from webhook.endpoints where endpoint_id = {}",
        receiver.url("/old"),
        receiver.address(),
        endpoint.id
    )));
    // What else is changed meanwhile does not touch the proof under way.
    shop.run(&format!(
        "select webhook.update_endpoint({}, description => 'moving')",
        endpoint.id
    ));
    willing.store(true, Ordering::SeqCst);
    shop.have_done(&format!("verify_endpoint({})", endpoint.id));
    shop.wait_until(&format!(
        "(select url = '{}' and pending_host is null and state = 'active' and description = 'moving'
            from webhook.endpoints where endpoint_id = {})",
        receiver.url("/new"),
        endpoint.id
    ));
    wait_for("the leader serves the new URL", PATIENCE, || {
        let event = shop.emit("order.paid", "mover", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        receiver
            .requests_for("/new")
            .iter()
            .any(|request| request.header("webhook-id") == Some(&*event))
    });
    assert!(
        receiver
            .requests_for("/old")
            .iter()
            .any(|request| request.header("webhook-id") == Some(&*first))
    );
}

#[test]
fn an_operator_may_vouch_for_a_url_and_is_named() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/in", vec![Answer::status(200)]);
    let endpoint = shop.endpoint_with("vouched", &receiver.url("/in"), ", verify => 'challenge'");
    let event = shop.emit("order.paid", "vouched", "{}");
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    shop.run(&format!(
        "select webhook.verify_endpoint({}, 'none', 'they showed it on the telephone')",
        endpoint.id
    ));
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert!(shop.is(&format!(
        "(method, overridden_by, result) = ('none', session_user, 'overridden')
           from webhook.verifications where endpoint_id = {} and result <> 'failed'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "(actor, reason) = (session_user, 'they showed it on the telephone') and after ->> 'state' = 'active'
           from webhook.audit_log where object_id = '{}' and verb = 'verify_endpoint'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "(verify, verified_by) = ('challenge', 'none') from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    // The proof that was under way is void; the next URL needs one again.
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/next")
    ));
    assert!(shop.is(&format!(
        "pending_host is not null from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn disabling_and_enabling_is_no_way_around_the_proof() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("detour", &receiver.url("/in"), ", verify => 'challenge'");
    shop.run(&format!(
        "select webhook.disable_endpoint({id}, 'for now'); select webhook.enable_endpoint({id})",
        id = endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "unverified");
    shop.emit("order.paid", "detour", "{}");
    shop.wait_for_deliveries(&endpoint, "pending", 1);
    assert!(receiver.requests().iter().all(is_challenge));
}

#[test]
fn a_stranger_gets_no_more_than_three_challenges_a_minute() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("insistent", &receiver.url("/in"), ", verify => 'challenge'");
    let mut replies = Vec::new();
    for tries in 1..=5 {
        wait_for_tries(&mut shop, &endpoint, "failed", tries.min(3));
        replies.push(
            shop.have_done(&format!("verify_endpoint({})", endpoint.id))
                .result,
        );
    }
    assert!(
        replies[4].contains("three a minute is the limit"),
        "{replies:?}"
    );
    // Neither does another URL of the same host, or a new life of the leader, get around it.
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/other")
    ));
    shop.restart_leader();
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(receiver.count(), 3);
}

#[test]
fn an_endpoint_in_service_can_be_checked_again_by_a_later_life_of_the_leader() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/in", echo);
    let endpoint = shop.endpoint_with("again", &receiver.url("/in"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.restart_leader();
    for tries in 2..=3 {
        shop.have_done(&format!("verify_endpoint({})", endpoint.id));
        wait_for_tries(&mut shop, &endpoint, "proven", tries);
    }
    assert!(shop.is(&format!(
        "verified_at = (select max(started_at) from webhook.verifications v where v.endpoint_id = e.endpoint_id)
           from webhook.endpoints e where endpoint_id = {}",
        endpoint.id
    )));
    // One that does not answer is told in the evidence; nobody demanded a proof, so nothing closes.
    receiver.script("/in", vec![Answer::status(200)]);
    shop.run(&format!("select webhook.verify_endpoint({})", endpoint.id));
    assert_eq!(shop.state(&endpoint), "active");
}

#[test]
fn a_proof_of_a_new_url_does_not_enable_what_answered_410_at_the_old_one() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/old", |request| {
        if is_challenge(request) {
            return echo(request);
        }
        Answer::status(410)
    });
    receiver.behave("/new", move |request| {
        if is_challenge(request) && !of_receiver.load(Ordering::SeqCst) {
            return Answer::status(200);
        }
        echo(request)
    });
    let endpoint = shop.endpoint_with("gone", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    shop.emit("order.paid", "gone", "{}");
    wait_for_state(&mut shop, &endpoint, "disabled");
    willing.store(true, Ordering::SeqCst);
    wait_for_tries(&mut shop, &endpoint, "proven", 2);
    shop.wait_until(&format!(
        "(select url = '{}' from webhook.endpoints where endpoint_id = {})",
        receiver.url("/new"),
        endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "disabled");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    assert_eq!(shop.state(&endpoint), "active");
    wait_for("the leader serves the new URL", PATIENCE, || {
        let event = shop.emit("order.paid", "gone", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        true
    });
}

#[test]
fn an_unconfirmed_endpoint_closes_and_can_be_proven_later() {
    let mut shop = Outbox::join(&HASTY, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("late", &receiver.url("/in"), ", verify => 'challenge'");
    shop.emit("order.paid", "late", "{}");
    wait_for_state(&mut shop, &endpoint, "expired");
    shop.wait_for_deliveries(&endpoint, "cancelled", 1);
    assert!(shop.is(&format!(
        "state_reason = 'control of its URL was not proven in time' from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.expiring", "endpoint.expired"]
    );
    assert!(receiver.requests().iter().all(is_challenge));
    receiver.behave("/in", echo);
    shop.run(&format!("select webhook.verify_endpoint({})", endpoint.id));
    wait_for_state(&mut shop, &endpoint, "active");
    let event = shop.emit("order.paid", "late", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.wait_for_alert(&endpoint, "endpoint.missed");
}

#[test]
fn a_new_url_that_nobody_confirms_is_dropped_and_the_old_one_goes_on() {
    let mut shop = Outbox::join(&HASTY, "shop");
    let receiver = Receiver::http();
    receiver.behave("/old", echo);
    let endpoint = shop.endpoint_with("stays", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    shop.wait_for_alert(&endpoint, "endpoint.unconfirmed");
    assert!(shop.is(&format!(
        "(url, state) = ('{}', 'active') and pending_host is null from webhook.endpoints where endpoint_id = {}",
        receiver.url("/old"),
        endpoint.id
    )));
    let event = shop.emit("order.paid", "stays", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn an_open_transaction_on_the_endpoint_delays_its_proof_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let mut slow = false;
    receiver.behave("/in", move |request| {
        // The second answer comes when the endpoint is locked already.
        let wait = Duration::from_secs(if std::mem::replace(&mut slow, true) {
            2
        } else {
            0
        });
        echo(request).after(wait)
    });
    let other = shop.endpoint("other.one", &receiver.url("/other"));
    let endpoint = shop.endpoint_with("locked", &receiver.url("/in"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.have_done(&format!("verify_endpoint({})", endpoint.id));
    wait_for("the second challenge arrives", PATIENCE, || {
        receiver.requests_for("/in").len() == 2
    });
    let mut admin = shop.another();
    admin.run(&format!(
        "begin; select webhook.update_endpoint({}, description => 'thinking')",
        endpoint.id
    ));
    std::thread::sleep(Duration::from_secs(4));
    let event = shop.emit("order.paid", "other.one", "{}");
    shop.wait_for_state(&event, &other, "delivered");
    assert!(!tried(&mut shop, &endpoint, "proven", 2));
    admin.run("commit");
    wait_for_tries(&mut shop, &endpoint, "proven", 2);
}

#[test]
fn a_leader_that_dies_between_challenge_and_record_asks_again() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.behave("/in", |request| echo(request).after(Duration::from_secs(1)));
    let endpoint = shop.endpoint_with("acme", &receiver.url("/in"), ", verify => 'challenge'");
    let event = shop.emit("order.paid", "acme", "{}");
    receiver.wait_for(1, PATIENCE);
    let leader = shop.leader();
    cluster.signal(leader, Signal::SIGKILL);
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
