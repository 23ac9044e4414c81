//! The end of a leader in the middle of it, and what a partner's filters cost another one.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

use super::{CLUSTER, HELD, deliveries, endpoint, is_held, update};

#[test]
fn the_end_of_the_leader_in_the_middle_of_a_window_changes_no_decision() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut events = Vec::new();
    let hook = {
        let mut shop = Outbox::create(&cluster, "shop");
        receiver.script("/hook", vec![Answer::hang(), Answer::status(200)]);
        let hook = endpoint(
            &mut shop,
            "crash",
            &receiver,
            "/hook",
            "filter => '$.n > 5'",
        );
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
    shop.wait_for_state(&events[12], &hook, "pending");
    assert!(is_held(&mut shop, &events[12], &hook));
    let next = shop.emit("a.b", "crash", r#"{"n": 1}"#);
    shop.wait_for_state(&next, &hook, "delivered");
}

#[test]
fn a_killed_leader_decides_about_a_burst_as_if_it_had_lived() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let hook = endpoint(
        &mut shop,
        "burst",
        &receiver,
        "/hook",
        "filter => '$.n > 500'",
    );
    for round in 0..4_usize {
        let arrived = receiver.count();
        shop.run(&format!(
            "select webhook.emit('a.b', 'burst', jsonb_build_object('n', n, 'round', {round})) from generate_series(1, 1000) as n"
        ));
        let pid = shop.leader();
        wait_for("some of them arrive", PATIENCE, || {
            receiver.count() > arrived + 20 * round
        });
        cluster.signal(pid, Signal::SIGKILL);
        // It takes every session with it.
        wait_for("the session has ended", PATIENCE, || {
            shop.sql.batch_execute("select 1").is_err()
        });
        wait_for("the server is back", PATIENCE, || {
            cluster.try_connect("shop").is_ok()
        });
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
        .map(|n| {
            endpoint(
                &mut shop,
                "evil",
                &receiver,
                &format!("/evil{n}"),
                &format!("filter => '{dear}'"),
            )
        })
        .collect();
    let mild = endpoint(&mut shop, "mild", &receiver, "/mild", "filter => '$.n > 1'");
    shop.run(
        "select webhook.emit('a.b', 'evil', (select jsonb_agg(n) from generate_series(1, 38000) as n)) from generate_series(1, 30)",
    );
    let begun = Instant::now();
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let before = Instant::now();
        let event = shop.emit("a.b", "mild", r#"{"n": 2}"#);
        let count = receiver.requests_for("/mild").len();
        shop.wait_for_state(&event, &mild, "delivered");
        assert!(receiver.requests_for("/mild").len() >= count);
        worst = worst.max(before.elapsed());
    }
    // All of them are decided about in the end.
    for endpoint in &evil {
        shop.wait_until(&format!(
            "not exists (select from webhook.deliveries where endpoint_id = {} and {HELD} and state = 'pending')",
            endpoint.id
        ));
    }
    // Not behind all of it, however long that takes the machine.
    let all = begun.elapsed();
    println!("slowest of another partner: {worst:?}, all of it: {all:?}");
    assert!(
        worst < Duration::from_secs(5) || worst < all / 4,
        "{worst:?} of {all:?}"
    );
    assert_eq!(receiver.count(), receiver.requests_for("/mild").len());
}
