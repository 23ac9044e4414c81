//! A hostile receiver from outside: every way in which an attempt can fail, and what is made of each (the matrix),
//! what an answer without an end costs, and what a receiver has to expect after it.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver, Request},
    verifier,
    wait::wait_for,
};

#[path = "fault_matrix/answers.rs"]
mod answers;
#[path = "fault_matrix/connections.rs"]
mod connections;
#[path = "fault_matrix/matrix.rs"]
mod matrix;
#[path = "fault_matrix/peer.rs"]
mod peer;
#[path = "fault_matrix/statuses.rs"]
mod statuses;

/// Tries again at once.
static QUICK: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", &["200ms"; 20].join(","))
        // Less than "late", more than a busy machine takes.
        .setting("webhook.request_timeout", "6s")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn answers_without_an_end_cost_the_leader_no_memory() {
    const AT_ONCE: i64 = 32;
    let mut shop = Outbox::join(&QUICK, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "gigabytes",
        &receiver.url("/hook"),
        &format!(", max_in_flight => {AT_ONCE}"),
    );
    let mut round = |receiver: &Receiver, answer: Answer| {
        receiver.script("/hook", vec![answer]);
        let events = shop.column(&format!(
            "select webhook.emit('order.paid', 'gigabytes', to_jsonb(n)) from generate_series(1, {AT_ONCE}) n"
        ));
        let leader = shop.leader();
        let mut most = 0;
        for event in &events {
            wait_for("the event is delivered", PATIENCE, || {
                most = most.max(anonymous_kb(leader));
                let delivery = shop.delivery(event, &endpoint);
                delivery.is_some_and(|delivery| delivery.state == "delivered")
            });
        }
        most.max(anonymous_kb(leader))
    };
    let late = Duration::from_millis(300);
    // Threads, connections and plans are there after this.
    let before = round(&receiver, Answer::status(200).after(late));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    let piece = "x".repeat(1 << 20);
    let endless = Answer::repeating(head, piece, Duration::ZERO).after(late);
    let most = round(&receiver, endless);
    // What came of each is 64 kB; all of it together would be 32 GB.
    assert!(
        most < before + (16 << 10),
        "{before} kB before, {most} kB at most"
    );
}

#[test]
fn what_was_accepted_before_the_attempt_failed_comes_again_under_the_same_id() {
    let mut shop = Outbox::join(&QUICK, "shop");
    let failures = [
        (
            "late",
            Answer::status(200).after(Duration::from_secs(600)),
            "timeout",
        ),
        ("reset", Answer::reset(), "protocol"),
        (
            "cut",
            Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nacc"),
            "protocol",
        ),
        ("error", Answer::status(500), "server_error"),
    ];
    for (name, failure, category) in failures {
        let receiver = Receiver::http();
        let accepted: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let books = Arc::clone(&accepted);
        receiver.behave("/hook", move |request| {
            // It is in the books before anything is answered.
            let id = request.header("webhook-id").unwrap_or_default().to_owned();
            match books.lock().expect("the books").insert(id) {
                true => failure.clone(),
                false => Answer::status(200).body("known"),
            }
        });
        let endpoint = shop.endpoint(name, &receiver.url("/hook"));
        let event = shop.emit("order.paid", name, r#"{"amount": 1}"#);
        let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
        assert_eq!(delivery.attempts, 2, "{name}");
        let attempts = shop.attempts(&event, &endpoint);
        assert_eq!(attempts[0].outcome, "retry", "{name}");
        assert_eq!(attempts[0].category.as_deref(), Some(category), "{name}");
        assert_eq!(attempts[1].status, Some(200), "{name}");

        let requests = receiver.requests();
        assert_eq!(requests.len(), 2, "{name}");
        for same in ["webhook-id", "webhook-delivery", "webhook-key-id", "host"] {
            assert_eq!(requests[0].header(same), requests[1].header(same), "{name}");
        }
        assert_eq!(requests[0].header("webhook-attempt"), Some("1"), "{name}");
        assert_eq!(requests[1].header("webhook-attempt"), Some("2"), "{name}");
        assert_eq!(requests[0].body, requests[1].body, "{name}");
        let none = Vec::<String>::new();
        assert_eq!(
            verifier::objections(&endpoint.secret, &requests),
            none,
            "{name}"
        );
        assert_eq!(
            *accepted.lock().expect("the books"),
            BTreeSet::from([event]),
            "{name}"
        );
    }
}

#[test]
fn events_of_an_endpoint_arrive_in_any_order_and_the_version_in_the_body_tells_the_newest() {
    const EVENTS: i64 = 40;
    let mut shop = Outbox::join(&QUICK, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |request| {
        // Every fifth fails at first, and some take their time: they are overtaken.
        let first = request.header("webhook-attempt") == Some("1");
        match version(request) {
            n if n % 5 == 0 && first => Answer::status(500),
            n if n % 7 == 0 => Answer::status(200).after(Duration::from_millis(150)),
            _ => Answer::status(200),
        }
    });
    let endpoint = shop.endpoint("orders", &receiver.url("/hook"));
    let events = shop.column(&format!(
        "select webhook.emit('order.changed', 'orders', to_jsonb(n), subject_type => 'order', subject_id => '7',
                             subject_version => n)
           from generate_series(1, {EVENTS}) n"
    ));
    for event in &events {
        shop.wait_for_state(event, &endpoint, "delivered");
    }
    let requests = receiver.requests();
    let accepted: Vec<i64> = requests
        .iter()
        .filter(|request| {
            version(request) % 5 != 0 || request.header("webhook-attempt") != Some("1")
        })
        .map(version)
        .collect();
    assert!(!accepted.is_sorted(), "{accepted:?}");
    let mut sorted = accepted;
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=EVENTS).collect::<Vec<_>>());
    // Who keeps the highest version only has the newest state in the end.
    let newest = requests.iter().max_by_key(|request| version(request));
    let newest = newest.expect("a request").text();
    let newest: Value = serde_json::from_str(newest).expect("JSON");
    assert_eq!(newest["data"], EVENTS);
}

/// The version of the subject of the event in a request.
fn version(request: &Request) -> i64 {
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    body["subject"]["version"].as_i64().expect("a version")
}

/// Memory of a process that is neither shared nor of a file, in kB.
fn anonymous_kb(pid: i32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok())
        .expect("a line RssAnon")
}
