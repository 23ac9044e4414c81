//! Filters of endpoints at work: what is sent, what is not, what is held, and that nobody else notices.

use std::sync::LazyLock;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
};

#[path = "filters/crashes.rs"]
mod crashes;
#[path = "filters/held.rs"]
mod held;

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
    let dear = endpoint(
        &mut shop,
        "match",
        &receiver,
        "/dear",
        "filter => '$.amount > 100'",
    );
    let orders = endpoint(
        &mut shop,
        "match",
        &receiver,
        "/orders",
        "subject_types => '{order}'",
    );
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
        shop.emit_with(
            "a.b",
            "match",
            r#"{"amount": 100.00000000000000000001}"#,
            order,
        ),
        shop.emit_with(
            "a.b",
            "match",
            r#"{"amount": 100.00000000000000000000}"#,
            order,
        ),
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
        let expected: Vec<String> = expected
            .iter()
            .map(|index| events[*index].clone())
            .collect();
        assert_eq!(got, expected, "{path}");
        // What does not match leaves no trace.
        assert_eq!(deliveries(&mut shop, endpoint), expected.len());
    }
}

#[test]
fn a_changed_filter_leaves_what_it_let_through_before() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "queued",
        &receiver,
        "/hook",
        "filter => '$.n > 1'",
    );
    shop.run(&format!(
        "select webhook.pause('endpoint', '{}', 'later')",
        hook.id
    ));
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
    let hook = endpoint(
        &mut creator,
        "late",
        &receiver,
        "/hook",
        "filter => '$.n > 1'",
    );
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
    let hook = endpoint(
        &mut shop,
        "why",
        &receiver,
        "/hook",
        "event_types => '{a.*}', filter => '$.n > 1'",
    );
    let other = shop.emit("b.c", "why", r#"{"n": 2}"#);
    let small = shop.emit("a.b", "why", r#"{"n": 1}"#);
    let fine = shop.emit("a.b", "why", r#"{"n": 2}"#);
    shop.wait_for_state(&fine, &hook, "delivered");
    shop.wait_for_state(&small, &all, "delivered");
    for (event, steps) in [
        (&early, "time"),
        (&other, "type"),
        (&small, "filter"),
        (&fine, ""),
    ] {
        let failed = shop.column(&format!(
            "select step from webhook.explain('{event}', {}) where passed is distinct from true and step <> 'delivery'",
            hook.id
        ));
        assert_eq!(failed.join(","), steps, "{event}");
        let made = shop.is(&format!(
            "passed from webhook.explain('{event}', {}) where step = 'delivery'",
            hook.id
        ));
        assert_eq!(made, steps.is_empty());
    }
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
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'no more')",
        other.id
    ));
    let requests = receiver.wait_for(2, PATIENCE);
    assert!(
        requests.iter().all(|request| request.target == "/hook"),
        "{requests:?}"
    );
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
                let endpoint =
                    shop.endpoint_with("modes", &path, &format!(", test => {test}{filter}"));
                if held {
                    shop.run(&format!(
                        "select webhook.pause('endpoint', '{}', 'held')",
                        endpoint.id
                    ));
                }
                endpoints.push((test, held, endpoint));
            }
        }
    }
    let subject = ", subject_type => 'order', subject_id => '1'";
    let mut events = Vec::new();
    for test in [false, true] {
        events.push((
            test,
            shop.emit_with(
                "a.b",
                "modes",
                r#"{"n": 1}"#,
                &format!("{subject}, test => {test}"),
            ),
        ));
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
            shop.run(&format!(
                "select webhook.resume('endpoint', '{}')",
                endpoint.id
            ));
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
    let mut failed: Vec<(bool, String, Endpoint)> = Vec::new();
    for test in [false, true] {
        for which in ["all", "failed", "missing"] {
            // One failed event of each mode is there to be found.
            if which == "failed" {
                let path = format!("/{test}/failing");
                receiver.script(&path, vec![Answer::status(404), Answer::status(200)]);
                let endpoint = shop.endpoint_with(
                    "modes",
                    &receiver.url(&path),
                    &format!(", test => {test}, event_types => '{{c.d}}'"),
                );
                let event = shop.emit_with("c.d", "modes", "{}", &format!(", test => {test}"));
                shop.wait_for_state(&event, &endpoint, "dead");
                failed.push((test, event, endpoint));
            }
            let replay = shop.number(&format!(
                "select request_id from webhook.replay_range('modes', now() - interval '1 hour', now(), 'again', which => '{which}', test => {test})"
            ));
            shop.wait_until(&format!(
                "(select state = 'done' from webhook.replays where request_id = {replay})"
            ));
        }
    }
    shop.wait_until("not exists (select from webhook.deliveries where partner_id = 'modes' and state <> 'delivered')");
    for (test, event) in &events {
        for (mode, _, endpoint) in &endpoints {
            assert!(mode == test || shop.delivery(event, endpoint).is_none());
        }
    }
    for (mode, event, endpoint) in &failed {
        assert_eq!(
            shop.wait_for_state(event, endpoint, "delivered").attempts,
            2
        );
        for (other, _, elsewhere) in &failed {
            assert!(mode == other || shop.delivery(event, elsewhere).is_none());
        }
    }
    for request in receiver.requests() {
        let body: serde_json::Value = serde_json::from_str(request.text()).expect("JSON");
        assert_eq!(
            body["test"] == true,
            request.target.starts_with("/true/"),
            "{}",
            request.target
        );
    }
}

fn endpoint(
    shop: &mut Outbox<'_>,
    partner: &str,
    receiver: &Receiver,
    path: &str,
    more: &str,
) -> Endpoint {
    shop.endpoint_with(partner, &receiver.url(path), &format!(", {more}"))
}

fn update(shop: &mut Outbox<'_>, endpoint: &Endpoint, more: &str) {
    shop.run(&format!(
        "select webhook.update_endpoint({}, {more})",
        endpoint.id
    ));
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
