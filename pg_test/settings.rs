//! What settings do to a leader that runs: those of webhook, which it follows, and those of others, which it must
//! not feel.

use std::{
    fs,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

#[test]
fn switched_off_nothing_is_sent_and_switched_on_all_of_it() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = Outbox::create(&cluster, "shop").endpoint("a", &receiver.url("/hook"));
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut sent = Vec::new();
    for restart in [false, true] {
        if restart {
            cluster.restart(Shutdown::Fast);
        }
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        sent.push(shop.emit("order.paid", "a", "{}"));
        // Longer than a poll.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(receiver.connections(), 0);
        assert!(shop.is("hint ~ 'webhook.enabled' from webhook.stat_worker"));
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    for event in &sent {
        shop.wait_for_state(event, &endpoint, "delivered");
    }
    assert_eq!(receiver.count(), 2);
}

#[test]
fn switched_off_in_the_middle_of_a_backlog_it_stops_and_loses_nothing() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![Answer::status(200).after(Duration::from_millis(100))],
    );
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint_with("a", &receiver.url("/hook"), ", max_in_flight => 2");
    shop.run("select webhook.emit('order.paid', 'a', to_jsonb(n)) from generate_series(1, 60) n");
    receiver.wait_for(5, PATIENCE);
    drop(shop);
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    wait_for("what was on the wire has ended", PATIENCE, || {
        shop.is("in_flight = 0 from webhook.stat_worker") && receiver.in_flight() == 0
    });
    let before = receiver.count();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(receiver.count(), before);
    drop(shop);
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until(&format!(
        "(select count(*) = 60 from webhook.deliveries where endpoint_id = {} and state = 'delivered')",
        endpoint.id
    ));
    assert_eq!(receiver.count(), 60);
}

#[test]
fn reload_changes_time_limits_schedule_and_boundary() {
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "")
        .setting("webhook.poll_interval", "100ms")
        .start();
    let receiver = Receiver::http();
    receiver.script("/hang", vec![Answer::hang()]);
    let (hanging, endpoint) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let hanging = shop.endpoint("hang", &receiver.url("/hang"));
        (hanging, shop.endpoint("a", &receiver.url("/hook")))
    };
    cluster.reload(&[("webhook.request_timeout", "300ms")]);
    // Without a schedule the first failure is the last.
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "hang", "{}");
    let delivery = shop.wait_for_state(&event, &hanging, "dead");
    assert_eq!(delivery.category.as_deref(), Some("timeout"));
    drop(shop);

    cluster.reload(&[
        (
            "webhook.retry_schedule",
            "1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s",
        ),
        ("webhook.deny_networks", "127.0.0.0/8"),
        ("webhook.request_timeout", "20s"),
    ]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "a", "{}");
    let delivery = shop.wait_for_state(&event, &endpoint, "retrying");
    assert_eq!(delivery.category.as_deref(), Some("blocked"));
    assert_eq!(receiver.requests_for("/hook").len(), 0);
    drop(shop);
    cluster.reload(&[("webhook.deny_networks", "")]);
    Outbox::join(&cluster, "shop").wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn a_setting_that_cannot_be_is_refused_and_the_old_one_stays() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = Outbox::create(&cluster, "shop").endpoint("a", &receiver.url("/hook"));
    for (name, value) in [
        ("webhook.retry_schedule", "soon"),
        ("webhook.allow_networks", "10.0.0.0/33"),
        ("webhook.allowed_ports", "443,many"),
        ("webhook.nat64", "maybe"),
        ("webhook.max_in_flight", "0"),
    ] {
        cluster.set(name, value);
    }
    let mut shop = Outbox::join(&cluster, "shop");
    shop.run("select pg_reload_conf()");
    wait_for("the log tells of them", PATIENCE, || {
        let log = cluster.log();
        [
            "retry_schedule",
            "allow_networks",
            "allowed_ports",
            "nat64",
            "max_in_flight",
        ]
        .iter()
        .all(|name| {
            log.lines().any(|line| {
                line.contains(name) && line.contains("parameter \"webhook.")
                    || line.contains(name) && line.contains("outside the valid range")
            })
        })
    });
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let (code, _) = shop.refusal("set webhook.allow_http = on");
    assert_eq!(code, "55P02");
    let (code, _) = shop.refusal("set webhook.mispelt = on");
    assert_eq!(code, "42602");
}

#[test]
fn a_file_of_authorities_that_cannot_be_read_leaves_the_old_settings_in_force() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = Outbox::create(&cluster, "shop").endpoint("a", &receiver.url("/hook"));
    for content in [None, Some("no certificate")] {
        let file = cluster.folder().join("authorities.pem");
        if let Some(content) = content {
            fs::write(&file, content).expect("the file");
        }
        cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_until("(select last_error <> '' from webhook.stat_worker)");
        let event = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
}

#[test]
fn settings_of_a_database_or_role_do_not_reach_the_leader() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    for setting in [
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "search_path = ''",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German'",
        "bytea_output = escape",
        "session_replication_role = replica",
        "synchronous_commit = off",
        "standard_conforming_strings = off",
        "row_security = off",
        "check_function_bodies = off",
    ] {
        shop.run(&format!(
            "alter database shop set {setting}; alter role postgres set {setting}"
        ));
    }
    let old = shop.leader();
    shop.run(&format!("select pg_terminate_backend({old})"));
    wait_for("another leader", PATIENCE, || {
        ![0, old].contains(&shop.leader())
    });
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run(&format!("select webhook.replay('{event}')"));
    shop.wait_for_attempts(&event, &endpoint, 2);
    assert_eq!(receiver.count(), 2);
}

#[test]
fn idle_leader_does_nothing_but_poll() {
    let mut cluster = Cluster::plan()
        .setting("autovacuum", "off")
        .setting("webhook.poll_interval", "100ms")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    // The partitions of the next month are made one after the other while there is nothing else to do.
    shop.wait_until(
        "(select count(*) = 6 from pg_class
           where relkind = 'r' and relname ~ to_char(now() at time zone 'UTC' + interval '30 days', 'YYYYMMDD'))",
    );
    drop(shop);
    cluster.reload(&[("webhook.poll_interval", "500ms")]);
    let mut observer = cluster.connect("postgres");
    // The counters come about a second late; a poll that finds the same snapshot reads no table, and the server may
    // leave it out of them.
    let mut look = || -> (i64, i64, Instant) {
        std::thread::sleep(Duration::from_secs(5));
        let row = observer
            .query_one(
                "select xact_commit + xact_rollback, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
                   from pg_stat_database where datname = 'shop'",
                &[],
            )
            .expect("the counters");
        (row.get(0), row.get(1), Instant::now())
    };
    let (before, after) = (look(), look());
    let transactions = after.0 - before.0;
    // Two polls a second, and two to spare.
    let time = after.2 - before.2;
    let polls = i64::try_from(time.as_millis() / 500).expect("a count");
    assert!(
        transactions <= polls + 2,
        "{transactions} transactions in {time:?} of {polls} polls"
    );
    assert_eq!(before.1, after.1, "transactions that wrote");
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until(
        "(select clock_timestamp() - last_loop_at < interval '3 seconds' from webhook.stat_worker)",
    );
}
