//! The life of the leader among the other things that happen to a server: it comes where it is needed, leaves when
//! it is asked to, and keeps nobody from doing anything.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

#[test]
fn fast_shutdown_waits_for_hanging_requests_no_longer_than_its_grace() {
    let mut cluster = Cluster::plan()
        .setting("webhook.shutdown_grace", "2s")
        .setting("webhook.request_timeout", "60s")
        .start();
    let receiver = Receiver::http();
    let (endpoint, events) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint_with("a", &receiver.url("/hook"), ", max_in_flight => 50");
        // An endpoint begins with one request at a time.
        shop.run(
            "select count(webhook.emit('order.warm', 'a', '{}')) from generate_series(1, 200)",
        );
        shop.wait_until(
            "(select count(*) = 200 from webhook.deliveries where state = 'delivered')",
        );
        receiver.forget();
        receiver.script("/hook", vec![Answer::hang()]);
        let events = shop.column(
            "select webhook.emit('order.paid', 'a', to_jsonb(n)) from generate_series(1, 50) n",
        );
        wait_for("fifty requests hang", PATIENCE, || {
            receiver.in_flight() == 50
        });
        (endpoint, events)
    };
    let took = cluster.stop(Shutdown::Fast);
    // Half of what the requests would take: the machine may be busy.
    assert!(took < Duration::from_secs(30), "it took {took:?}");

    // They may have arrived: each is told of, numbered, and sent again.
    receiver.script("/hook", vec![Answer::status(200)]);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    for event in &events {
        shop.wait_for_state(event, &endpoint, "delivered");
        let attempts = shop.attempts(event, &endpoint);
        assert_eq!(attempts.len(), 2, "{attempts:?}");
        assert_eq!(attempts[0].category.as_deref(), Some("lost"));
        assert_eq!(attempts[1].outcome, "delivered");
    }
    assert_eq!(receiver.count(), 100);
}

#[test]
fn requests_that_end_within_the_grace_are_recorded_before_the_shutdown() {
    let mut cluster = Cluster::plan()
        .setting("webhook.shutdown_grace", "30s")
        .start();
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![Answer::status(200).after(Duration::from_secs(1))],
    );
    let (endpoint, event) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        receiver.wait_for(1, PATIENCE);
        (endpoint, event)
    };
    // The clients have left, so that a smart shutdown has only the leader to wait for.
    cluster.restart(Shutdown::Smart);
    let mut shop = Outbox::join(&cluster, "shop");
    let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!((delivery.attempts, receiver.count()), (1, 1));
}

#[test]
fn immediate_shutdown_during_a_request_tells_of_it_and_sends_it_again() {
    let mut cluster = Cluster::plan()
        .setting("webhook.shutdown_grace", "60s")
        .start();
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::hang()]);
    let (endpoint, event) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        receiver.wait_for(1, PATIENCE);
        (endpoint, event)
    };
    // No grace: the request on the wire is cut off.
    let took = cluster.stop(Shutdown::Immediate);
    assert!(took < Duration::from_secs(30), "it took {took:?}");
    receiver.script("/hook", vec![Answer::status(200)]);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let attempts: Vec<_> = shop
        .attempts(&event, &endpoint)
        .into_iter()
        .map(|attempt| (attempt.outcome, attempt.category, attempt.status))
        .collect();
    assert_eq!(
        attempts,
        [
            ("retry".to_owned(), Some("lost".to_owned()), None),
            ("delivered".to_owned(), None, Some(200)),
        ]
    );
    let ids: Vec<_> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-id").map(str::to_owned))
        .collect();
    assert_eq!(ids, [Some(event.clone()), Some(event)]);
}

#[test]
fn when_only_the_postmaster_dies_leader_and_launcher_end_by_themselves_also_during_a_request() {
    let mut cluster = Cluster::plan()
        .setting("webhook.request_timeout", "10min")
        .start();
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::hang()]);
    let (endpoint, event) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        receiver.wait_for(1, PATIENCE);
        (endpoint, event)
    };
    // A leader that went on would hold the shared memory, and the server could not be started again.
    cluster.kill_postmaster();
    receiver.script("/hook", vec![Answer::status(200)]);
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(
        shop.attempts(&event, &endpoint)
            .first()
            .and_then(|attempt| attempt.category.clone()),
        Some("lost".to_owned())
    );
    prove_delivery(&mut shop);
}

#[test]
fn extension_can_be_dropped_during_a_request_and_created_again() {
    let cluster = Cluster::plan()
        .setting("webhook.request_timeout", "10min")
        .start();
    let receiver = Receiver::http();
    receiver.script("/hang", vec![Answer::hang()]);
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("a", &receiver.url("/hang"));
    shop.emit("order.paid", "a", "{}");
    receiver.wait_for(1, PATIENCE);

    let start = Instant::now();
    shop.run("drop extension webhook_outbox cascade");
    assert!(start.elapsed() < PATIENCE);
    wait_for_leaders(&cluster, 0);
    for _ in 0..2 {
        shop.run("create extension webhook_outbox");
        shop.wait_for_worker("running");
        prove_delivery(&mut shop);
        shop.run("drop extension webhook_outbox");
        wait_for_leaders(&cluster, 0);
    }
}

#[test]
fn databases_can_be_renamed_copied_and_dropped_although_the_leader_is_connected() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    drop(shop);
    let mut other = cluster.connect("postgres");
    let mut run = |statement: &str| {
        other
            .batch_execute(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    };
    run("alter database shop rename to store");
    let mut store = Outbox::join(&cluster, "store");
    store.wait_for_worker("running");
    let event = store.emit("order.paid", "a", "{}");
    store.wait_for_state(&event, &endpoint, "delivered");
    drop(store);

    run("create database copy template store");
    let mut store = Outbox::join(&cluster, "store");
    store.wait_for_worker("running");
    drop(store);

    let start = Instant::now();
    run("drop database store");
    run("drop database copy");
    assert!(start.elapsed() < PATIENCE);
    wait_for_leaders(&cluster, 0);
    // The place of the one is taken by the next.
    prove_delivery(&mut Outbox::create(&cluster, "store"));
}

#[test]
fn a_database_can_be_moved_to_another_tablespace_although_the_leader_is_connected() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let before = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&before, &endpoint, "delivered");
    let leader = shop.leader();
    drop(shop);

    let mut other = cluster.connect("postgres");
    for statement in [
        // A folder of its own inside the data folder does for a test.
        "set allow_in_place_tablespaces = on",
        "create tablespace elsewhere location ''",
        "alter database shop set tablespace elsewhere",
    ] {
        other
            .batch_execute(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let mut shop = Outbox::join(&cluster, "shop");
    assert!(shop.is(
        "t.spcname = 'elsewhere' from pg_database d join pg_tablespace t on t.oid = d.dattablespace where d.datname = 'shop'"
    ));
    shop.wait_for_worker("running");
    assert_ne!(shop.leader(), leader, "it has left, and is back");
    let after = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&after, &endpoint, "delivered");
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_template_that_has_the_extension_gets_no_leader_but_what_is_made_of_it_does() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    Outbox::join(&cluster, "template1").run("create extension webhook_outbox");
    for name in ["north", "south"] {
        cluster.create_database(name);
        let mut outbox = Outbox::join(&cluster, name);
        let endpoint = outbox.endpoint("a", &receiver.url("/hook"));
        let event = outbox.emit("order.paid", "a", "{}");
        outbox.wait_for_state(&event, &endpoint, "delivered");
    }
    wait_for_leaders(&cluster, 2);
}

#[test]
fn leader_that_was_terminated_comes_back() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    for _ in 0..2 {
        prove_delivery(&mut shop);
        let old = shop.leader();
        let life = shop.number("select incarnation from webhook.stat_worker");
        shop.run(&format!("select pg_terminate_backend({old})"));
        wait_for("another leader", PATIENCE, || {
            let new = shop.leader();
            new != 0 && new != old
        });
        shop.wait_until(&format!(
            "(select incarnation = {} from webhook.stat_worker)",
            life + 1
        ));
    }
    prove_delivery(&mut shop);
    assert!(shop.is("restarts = 2 from webhook.stat_worker"));
}

#[test]
fn launcher_that_was_terminated_comes_back() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let launcher = "select coalesce(max(pid), 0) from pg_stat_activity where backend_type = 'webhook_outbox launcher'";
    let old = shop.number(launcher);
    shop.run(&format!("select pg_terminate_backend({old})"));
    wait_for("another launcher", PATIENCE, || {
        let new = shop.number(launcher);
        new != 0 && new != old
    });
    prove_delivery(&mut shop);
    // It takes charge of a leader that it did not start itself, and of new ones.
    let leader = shop.leader();
    shop.run(&format!("select pg_terminate_backend({leader})"));
    prove_delivery(&mut shop);
    prove_delivery(&mut Outbox::create(&cluster, "store"));
    wait_for_leaders(&cluster, 2);
}

#[test]
fn leader_that_was_killed_comes_back_with_the_server() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    prove_delivery(&mut shop);
    cluster.signal(shop.leader(), Signal::SIGKILL);
    // The postmaster restarts all of its processes after such an end.
    wait_for("the session ends", PATIENCE, || {
        shop.sql.batch_execute("select 1").is_err()
    });
    wait_for("the server accepts connections", PATIENCE, || {
        cluster.try_connect("shop").is_ok()
    });
    prove_delivery(&mut Outbox::join(&cluster, "shop"));
}

#[test]
fn without_preloading_events_are_kept_and_the_view_says_what_to_do() {
    let mut cluster = Cluster::plan().without("shared_preload_libraries").start();
    let receiver = Receiver::http();
    let (endpoint, event) = {
        cluster.create_database("shop");
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        assert!(shop.is(
            "state = 'not preloaded' and hint ~ 'shared_preload_libraries' from webhook.stat_worker"
        ));
        assert!(shop.is(
            "worker = 'not preloaded' and advice ~ 'shared_preload_libraries' from webhook.status()"
        ));
        (endpoint, event)
    };
    assert!(
        cluster
            .log()
            .contains("WARNING:  webhooks will not be sent"),
        "{}",
        cluster.log_tail(20)
    );
    cluster.set("shared_preload_libraries", "webhook_outbox");
    cluster.restart(Shutdown::Fast);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn each_database_has_a_leader_of_its_own() {
    let mut cluster = Cluster::start_usual();
    let receivers = [Receiver::http(), Receiver::http()];
    let mut sent = Vec::new();
    for (name, receiver) in ["north", "south"].into_iter().zip(&receivers) {
        let mut outbox = Outbox::create(&cluster, name);
        let endpoint = outbox.endpoint("a", &receiver.url("/hook"));
        sent.push((name, endpoint, outbox.emit("order.paid", "a", "{}")));
    }
    for (name, endpoint, event) in &sent {
        Outbox::join(&cluster, name).wait_for_state(event, endpoint, "delivered");
    }
    wait_for_leaders(&cluster, 2);
    // A restart finds both again, without anybody emitting.
    cluster.restart(Shutdown::Fast);
    wait_for_leaders(&cluster, 2);
    for ((name, endpoint, _), receiver) in sent.iter().zip(&receivers) {
        let mut outbox = Outbox::join(&cluster, name);
        let event = outbox.emit("order.paid", "a", "{}");
        outbox.wait_for_state(&event, endpoint, "delivered");
        assert_eq!(receiver.count(), 2, "{name}");
    }
}

#[test]
fn a_transaction_of_a_new_extension_is_led_from_its_commit_on() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    cluster.create_database("shop");
    let mut shop = Outbox::join(&cluster, "shop");
    shop.run("begin; create extension webhook_outbox; rollback");
    shop.run("begin; create extension webhook_outbox");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.run("commit");
    shop.wait_for_state(&event, &endpoint, "delivered");
    wait_for_leaders(&cluster, 1);
}

/// Waits until so many leaders run in the whole cluster.
fn wait_for_leaders(cluster: &Cluster, count: i64) {
    let query =
        "select count(*) from pg_stat_activity where backend_type = 'webhook_outbox leader'";
    let mut client = cluster.connect("postgres");
    wait_for(
        "the leaders are as many as they should be",
        PATIENCE,
        || {
            client
                .query_one(query, &[])
                .expect("the leaders")
                .get::<_, i64>(0)
                == count
        },
    );
}

/// Sends an event of a new partner to a new receiver.
fn prove_delivery(outbox: &mut Outbox) {
    let receiver = Receiver::http();
    let partner = format!("p{}", receiver.address().port());
    let endpoint: Endpoint = outbox.endpoint(&partner, &receiver.url("/hook"));
    let event = outbox.emit("order.paid", &partner, "{}");
    outbox.wait_for_state(&event, &endpoint, "delivered");
    let ids: HashSet<_> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-id").map(str::to_owned))
        .collect();
    assert_eq!(ids, HashSet::from([Some(event)]));
}
