//! Filters of endpoints at work: what is sent, what is not, what is held, and that nobody else notices.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster
});

const HELD: &str = "'filter' = any (held_by)";

#[test]
fn an_endpoint_gets_what_its_filter_and_subject_types_match_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let dear = endpoint(&mut shop, "match", &receiver, "/dear", "filter => '$.amount > 100'");
    let orders = endpoint(&mut shop, "match", &receiver, "/orders", "subject_types => '{order}'");
    let both = endpoint(
        &mut shop,
        "match",
        &receiver,
        "/both",
        "filter => '$.amount > 100', subject_types => '{order,invoice}'",
    );
    let all = shop.endpoint("match", &receiver.url("/all"));
    let order = ", subject_type => 'order', subject_id => '1'";
    let invoice = ", subject_type => 'invoice', subject_id => '1'";
    // Exact to the last digit, far beyond what a double holds.
    let events = [
        shop.emit_with("a.b", "match", r#"{"amount": 100.00000000000000000001}"#, order),
        shop.emit_with("a.b", "match", r#"{"amount": 100.00000000000000000000}"#, order),
        shop.emit_with("a.b", "match", r#"{"amount": 101}"#, invoice),
        shop.emit("a.b", "match", r#"{"amount": 101}"#),
        shop.emit_with("a.b", "match", r#"{"other": 1}"#, order),
        shop.emit("a.b", "match", r#"{"amount": null}"#),
    ];
    for event in &events {
        shop.wait_for_state(event, &all, "delivered");
    }
    for (endpoint, path, expected) in [
        (&dear, "/dear", vec![0, 2, 3]),
        (&orders, "/orders", vec![0, 1, 4]),
        (&both, "/both", vec![0, 2]),
    ] {
        for event in expected.iter().map(|index| &events[*index]) {
            shop.wait_for_state(event, endpoint, "delivered");
        }
        let mut got: Vec<String> = receiver
            .requests_for(path)
            .iter()
            .map(|request| request.header("webhook-id").expect("an id").to_owned())
            .collect();
        got.sort();
        let expected: Vec<String> = expected.iter().map(|index| events[*index].clone()).collect();
        assert_eq!(got, expected, "{path}");
        // What does not match leaves no trace.
        assert_eq!(deliveries(&mut shop, endpoint), expected.len());
    }
}

#[test]
fn what_cannot_be_decided_is_held_with_an_alert_and_keeps_nothing_else_waiting() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let strict = endpoint(&mut shop, "held", &receiver, "/strict", "filter => '$.amount > 100'");
    let plain = shop.endpoint("held", &receiver.url("/plain"));
    // Each of them is JSON, and none of them can be asked.
    let undecided = [
        emit_json(&mut shop, "held", r#"{"amount": 500, "name": "a\u0000b"}"#),
        emit_json(&mut shop, "held", r#"{"amount": 500, "name": "\ud800"}"#),
        emit_json(&mut shop, "held", r#"{"amount": 1e400000}"#),
        emit_json(&mut shop, "held", r#"{"amount": "500"}"#),
    ];
    let fine = shop.emit("a.b", "held", r#"{"amount": 500}"#);
    shop.wait_for_state(&fine, &strict, "delivered");
    for event in &undecided {
        shop.wait_for_state(event, &plain, "delivered");
        let held = shop.wait_for_state(event, &strict, "pending");
        assert_eq!(held.category.as_deref(), Some("filter"));
        assert_eq!(held.attempts, 0);
        assert_eq!(held.next_attempt_at, None);
        assert!(is_held(&mut shop, event, &strict));
    }
    // One alert for all of them, in our words: no payload.
    let alerts = shop.rows(&format!(
        "select severity, partner_id, detail from webhook.alerts where kind = 'delivery.filter' and endpoint_id = {}",
        strict.id
    ));
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0][1].as_deref(), Some("held"));
    let detail = alerts[0][2].clone().unwrap_or_default();
    assert!(detail.starts_with("the payload cannot be read as jsonb"), "{detail}");
    assert!(!detail.contains("name"), "{detail}");

    // An operator's word: sent as it is, or never.
    let ids: Vec<String> = undecided
        .iter()
        .map(|event| shop.delivery(event, &strict).expect("a delivery").id)
        .collect();
    shop.run(&format!("select webhook.retry('{}', 'send it as it is')", ids[0]));
    shop.run(&format!("select webhook.skip('{}', 'not wanted')", ids[1]));
    shop.wait_for_state(&undecided[0], &strict, "delivered");
    shop.wait_for_state(&undecided[1], &strict, "skipped");
    // Another filter decides about the rest: the one that cannot be read stays.
    update(&mut shop, &strict, r#"filter => '$.amount > 100 || $.amount == "500"'"#);
    shop.wait_for_state(&undecided[3], &strict, "delivered");
    assert!(is_held(&mut shop, &undecided[2], &strict));
    // Without any, everything passes.
    update(&mut shop, &strict, "filter => ''");
    shop.wait_for_state(&undecided[2], &strict, "delivered");
}

#[test]
fn a_held_event_that_a_new_filter_does_not_match_is_cancelled() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(&mut shop, "cancels", &receiver, "/hook", "filter => '$.n > 1'");
    let event = shop.emit("a.b", "cancels", r#"{"n": "two"}"#);
    shop.wait_for_state(&event, &hook, "pending");
    update(&mut shop, &hook, r#"filter => '$.n.type() == "number" && $.n > 1'"#);
    let delivery = shop.wait_for_state(&event, &hook, "cancelled");
    assert_eq!(
        delivery.reason.as_deref(),
        Some("the filter of the endpoint does not match the event")
    );
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_changed_filter_leaves_what_it_let_through_before() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(&mut shop, "queued", &receiver, "/hook", "filter => '$.n > 1'");
    shop.run(&format!("select webhook.pause('endpoint', '{}', 'later')", hook.id));
    let event = shop.emit("a.b", "queued", r#"{"n": 2}"#);
    shop.wait_for_state(&event, &hook, "pending");
    update(&mut shop, &hook, "filter => '$.n > 2'");
    let next = shop.emit("a.b", "queued", r#"{"n": 2}"#);
    let last = shop.emit("a.b", "queued", r#"{"n": 3}"#);
    shop.run(&format!("select webhook.resume('endpoint', '{}')", hook.id));
    shop.wait_for_state(&event, &hook, "delivered");
    shop.wait_for_state(&last, &hook, "delivered");
    assert_eq!(shop.delivery(&next, &hook), None);
    // Whoever names the endpoint has the last word.
    shop.run(&format!("select webhook.replay('{next}', {})", hook.id));
    shop.wait_for_state(&next, &hook, "delivered");
}

#[test]
fn a_new_endpoint_gets_of_what_was_read_before_it_what_its_filter_matches() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let all = shop.endpoint("late", &receiver.url("/all"));
    let mut creator = shop.another();
    creator.run("begin isolation level repeatable read; select count(*) from webhook.endpoints");
    let missed = [
        shop.emit("a.b", "late", r#"{"n": 1}"#),
        shop.emit("a.b", "late", r#"{"n": 2}"#),
        shop.emit("a.b", "late", r#"{"n": "two"}"#),
    ];
    for event in &missed {
        shop.wait_for_state(event, &all, "delivered");
    }
    let hook = endpoint(&mut creator, "late", &receiver, "/hook", "filter => '$.n > 1'");
    creator.run("commit");
    shop.wait_for_state(&missed[1], &hook, "delivered");
    shop.wait_for_state(&missed[2], &hook, "pending");
    assert!(is_held(&mut shop, &missed[2], &hook));
    assert_eq!(shop.delivery(&missed[0], &hook), None);
    assert_eq!(receiver.requests_for("/hook").len(), 1);
}

#[test]
fn explain_says_of_each_pair_what_stood_in_the_way() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let all = shop.endpoint("why", &receiver.url("/all"));
    let early = shop.emit("a.b", "why", r#"{"n": 2}"#);
    shop.wait_for_state(&early, &all, "delivered");
    let hook = endpoint(&mut shop, "why", &receiver, "/hook", "event_types => '{a.*}', filter => '$.n > 1'");
    let other = shop.emit("b.c", "why", r#"{"n": 2}"#);
    let small = shop.emit("a.b", "why", r#"{"n": 1}"#);
    let fine = shop.emit("a.b", "why", r#"{"n": 2}"#);
    shop.wait_for_state(&fine, &hook, "delivered");
    shop.wait_for_state(&small, &all, "delivered");
    for (event, steps) in [(&early, "time"), (&other, "type"), (&small, "filter"), (&fine, "")] {
        let failed = shop.column(&format!(
            "select step from webhook.explain('{event}', {}) where passed is distinct from true and step <> 'delivery'",
            hook.id
        ));
        assert_eq!(failed.join(","), steps, "{event}");
        let made = shop.is(&format!("passed from webhook.explain('{event}', {}) where step = 'delivery'", hook.id));
        assert_eq!(made, steps.is_empty());
    }
}

#[test]
fn order_is_kept_around_what_a_filter_holds() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(&mut shop, "ordered", &receiver, "/hook", "filter => '$.n > 1', ordered => true");
    let subject = ", subject_type => 'order', subject_id => '7'";
    let first = shop.emit_with("a.b", "ordered", r#"{"n": 2}"#, subject);
    let undecided = shop.emit_with("a.b", "ordered", r#"{"n": "x"}"#, subject);
    let last = shop.emit_with("a.b", "ordered", r#"{"n": 3}"#, subject);
    shop.wait_for_state(&first, &hook, "delivered");
    shop.wait_for_state(&undecided, &hook, "pending");
    shop.wait_for_state(&last, &hook, "pending");
    update(&mut shop, &hook, r#"filter => '$.n > 1 || $.n == "x"'"#);
    shop.wait_for_state(&last, &hook, "delivered");
    let got: Vec<String> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-id").expect("an id").to_owned())
        .collect();
    assert_eq!(got, [first, undecided, last]);
}

#[test]
fn the_end_of_the_leader_in_the_middle_of_a_window_changes_no_decision() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut events = Vec::new();
    let hook = {
        let mut shop = Outbox::create(&cluster, "shop");
        receiver.script("/hook", vec![Answer::hang(), Answer::status(200)]);
        let hook = endpoint(&mut shop, "crash", &receiver, "/hook", "filter => '$.n > 5'");
        shop.run("begin");
        for n in 0..12 {
            events.push(shop.emit("a.b", "crash", &format!(r#"{{"n": {n}}}"#)));
        }
        events.push(shop.emit("a.b", "crash", r#"{"n": "x"}"#));
        shop.run("commit");
        receiver.wait_for(1, PATIENCE);
        // Decided about by the filter of their window, whatever was chosen since.
        update(&mut shop, &hook, "filter => '$.n < 3'");
        hook
    };
    cluster.crash();
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    for event in &events[6..12] {
        shop.wait_for_state(event, &hook, "delivered");
    }
    for event in &events[..6] {
        assert_eq!(shop.delivery(event, &hook), None);
    }
    // It was held, and is decided about by the filter of today: which cannot tell, either.
    assert!(is_held(&mut shop, &events[12], &hook));
    let next = shop.emit("a.b", "crash", r#"{"n": 1}"#);
    shop.wait_for_state(&next, &hook, "delivered");
}

#[test]
fn a_killed_leader_decides_about_a_burst_as_if_it_had_lived() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(&mut shop, "burst", &receiver, "/hook", "filter => '$.n > 500'");
    for round in 0..4_usize {
        shop.run(&format!(
            "select webhook.emit('a.b', 'burst', jsonb_build_object('n', n, 'round', {round})) from generate_series(1, 1000) as n"
        ));
        let pid = shop.leader();
        let arrived = receiver.count();
        wait_for("some of them arrive", PATIENCE, || receiver.count() > arrived + 20 * round);
        cluster.signal(pid, Signal::SIGKILL);
        // It takes every session with it.
        wait_for("the leader is gone", PATIENCE, || !cluster.has_process(pid));
        wait_for("the server is back", PATIENCE, || cluster.try_connect("shop").is_ok());
        shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("running");
    }
    shop.wait_until(&format!(
        "(select count(*) = 2000 from webhook.deliveries where endpoint_id = {} and state = 'delivered')",
        hook.id
    ));
    assert_eq!(deliveries(&mut shop, &hook), 2_000);
    let mut ids: Vec<String> = receiver
        .requests()
        .iter()
        .map(|request| {
            let body: serde_json::Value = serde_json::from_str(request.text()).expect("JSON");
            assert!(body["data"]["n"].as_i64() > Some(500), "{body}");
            request.header("webhook-id").expect("an id").to_owned()
        })
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2_000);
}

#[test]
fn the_costliest_filters_on_the_largest_payloads_keep_another_partner_waiting_for_a_moment_only() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    // As dear as a filter may be: just within the bound for a payload of 100,000 values.
    let dear = "exists($[*] ? (@ == -1 || @ == -2))";
    let evil: Vec<Endpoint> = (0..10)
        .map(|n| endpoint(&mut shop, "evil", &receiver, &format!("/evil{n}"), &format!("filter => '{dear}'")))
        .collect();
    let mild = endpoint(&mut shop, "mild", &receiver, "/mild", "filter => '$.n > 1'");
    shop.run(
        "select webhook.emit('a.b', 'evil', (select jsonb_agg(n) from generate_series(1, 38000) as n)) from generate_series(1, 30)",
    );
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let before = Instant::now();
        let event = shop.emit("a.b", "mild", r#"{"n": 2}"#);
        let count = receiver.requests_for("/mild").len();
        shop.wait_for_state(&event, &mild, "delivered");
        assert!(receiver.requests_for("/mild").len() >= count);
        worst = worst.max(before.elapsed());
    }
    println!("slowest of another partner: {worst:?}");
    assert!(worst < Duration::from_secs(5), "{worst:?}");
    // All of them are decided about in the end.
    for endpoint in &evil {
        shop.wait_until(&format!(
            "not exists (select from webhook.deliveries where endpoint_id = {} and {HELD} and state = 'pending')",
            endpoint.id
        ));
    }
    assert_eq!(receiver.count(), receiver.requests_for("/mild").len());
}

#[test]
fn a_payload_with_too_many_values_for_its_filter_is_held() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(&mut shop, "large", &receiver, "/hook", "filter => '$.a == $.b'");
    let small = shop.emit("a.b", "large", r#"{"a": [1, 2], "b": [3, 2]}"#);
    let large = shop.text(
        "select webhook.emit('a.b', 'large', (select jsonb_build_object('a', jsonb_agg(n), 'b', jsonb_agg(-n)) from generate_series(1, 2000) as n))",
    );
    shop.wait_for_state(&small, &hook, "delivered");
    shop.wait_for_state(&large, &hook, "pending");
    assert!(is_held(&mut shop, &large, &hook));
}

#[test]
fn tests_and_lifecycle_events_pass_every_filter() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "about",
        &receiver,
        "/hook",
        "event_types => '{*,webhook.*}', filter => '$.never == true', subject_types => '{nothing}'",
    );
    let other = shop.endpoint("about", &receiver.url("/other"));
    shop.run(&format!("select webhook.send_test({}, 'normal')", hook.id));
    receiver.wait_for(1, PATIENCE);
    shop.run(&format!("select webhook.disable_endpoint({}, 'no more')", other.id));
    let requests = receiver.wait_for(2, PATIENCE);
    assert!(requests.iter().all(|request| request.target == "/hook"), "{requests:?}");
}

#[test]
fn test_events_never_reach_live_endpoints_nor_the_reverse_whatever_the_filter() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let filters = [
        "",
        ", filter => '$.n == 1'",
        ", filter => '$.n == 2'",
        ", filter => '$.n > \"x\"'",
        ", subject_types => '{order}'",
        ", subject_types => '{other}', filter => '$.n == 1'",
    ];
    let mut endpoints = Vec::new();
    for test in [false, true] {
        for (number, filter) in filters.iter().enumerate() {
            for held in [false, true] {
                let path = receiver.url(&format!("/{test}/{number}/{held}"));
                let endpoint = shop.endpoint_with("modes", &path, &format!(", test => {test}{filter}"));
                if held {
                    shop.run(&format!("select webhook.pause('endpoint', '{}', 'held')", endpoint.id));
                }
                endpoints.push((test, held, endpoint));
            }
        }
    }
    let subject = ", subject_type => 'order', subject_id => '1'";
    let mut events = Vec::new();
    for test in [false, true] {
        events.push((test, shop.emit_with("a.b", "modes", r#"{"n": 1}"#, &format!("{subject}, test => {test}"))));
    }
    for (test, event) in &events {
        for (mode, held, endpoint) in &endpoints {
            let replay = format!("select webhook.replay('{event}', {})", endpoint.id);
            if *held {
                // No replay goes to a paused one; a changed filter asks anew.
                update(&mut shop, endpoint, "filter => ''");
            } else if mode == test {
                shop.run(&replay);
            } else {
                assert_eq!(shop.refusal(&replay).0, "55000");
            }
        }
        shop.run(&format!("select webhook.replay('{event}')"));
    }
    for (_, held, endpoint) in &endpoints {
        if *held {
            shop.run(&format!("select webhook.resume('endpoint', '{}')", endpoint.id));
        }
    }
    for (test, event) in &events {
        for (mode, held, endpoint) in &endpoints {
            if mode == test && !held {
                shop.wait_for_state(event, endpoint, "delivered");
            }
            if mode != test {
                assert_eq!(shop.delivery(event, endpoint), None);
            }
        }
    }
    shop.wait_until("not exists (select from webhook.deliveries where partner_id = 'modes' and state <> 'delivered')");
    for request in receiver.requests() {
        let body: serde_json::Value = serde_json::from_str(request.text()).expect("JSON");
        assert_eq!(body["test"] == true, request.target.starts_with("/true/"), "{}", request.target);
    }
}

fn endpoint(shop: &mut Outbox<'_>, partner: &str, receiver: &Receiver, path: &str, more: &str) -> Endpoint {
    shop.endpoint_with(partner, &receiver.url(path), &format!(", {more}"))
}

fn update(shop: &mut Outbox<'_>, endpoint: &Endpoint, more: &str) {
    shop.run(&format!("select webhook.update_endpoint({}, {more})", endpoint.id));
}

fn emit_json(shop: &mut Outbox<'_>, partner: &str, data: &str) -> String {
    shop.text(&format!("select webhook.emit_json('a.b', '{partner}', '{data}')"))
}

fn is_held(shop: &mut Outbox<'_>, event: &str, endpoint: &Endpoint) -> bool {
    shop.is(&format!(
        "exists (select from webhook.deliveries where event_id = '{event}' and endpoint_id = {} and {HELD})",
        endpoint.id
    ))
}

fn deliveries(shop: &mut Outbox<'_>, endpoint: &Endpoint) -> usize {
    let count = shop.number(&format!(
        "select count(*) from webhook.deliveries where endpoint_id = {}",
        endpoint.id
    ));
    usize::try_from(count).expect("a count")
}
