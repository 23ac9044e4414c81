//! A metric is worth what it tells: each one is caused to move and read before, meanwhile and after. The format, the
//! exporter and the cost of a scrape are the matter of monitoring.rs; what the inbox counts is that of receiving.rs.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    master_key::MasterKeyFile,
    monitoring::sample,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

#[test]
fn every_metric_moves_with_what_it_tells() {
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.first_pass_limit", "60s")
        .setting("webhook.request_timeout", "15s")
        .start();
    let receiver = Receiver::http();
    receiver.behave("/hangs", |_| Answer::hang());
    receiver.behave("/gone", |_| Answer::status(410));
    {
        let mut shop = Outbox::create(&cluster, "shop");
        the_start_of_the_leader_is_told(&mut shop);
        results_are_counted_by_their_transactions(&mut shop, &receiver);
        a_gap_is_open_until_it_is_repaired(&mut shop);
        a_fenced_event_and_its_alert_are_counted(&mut shop);
        an_endpoint_that_is_gone_raises_one_alert(&mut shop, &receiver);
    }
    what_waits_for_a_receiver_that_hangs_is_told(&mut cluster, &receiver);
    a_request_is_pending_while_the_leader_is_switched_off(&mut cluster);
    keys_are_in_clear_until_they_are_encrypted(&mut cluster);
}

#[test]
fn a_metric_has_one_type_whoever_asks() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let told = shop.text("select webhook.metrics()");
    let rows = shop.rows("select distinct family, type from webhook.stat_metrics");
    assert!(rows.len() > 30, "{rows:?}");
    for row in rows {
        let (family, kind) = (
            row[0].clone().unwrap_or_default(),
            row[1].clone().unwrap_or_default(),
        );
        assert!(
            told.contains(&format!("# TYPE {family} {kind}\n")),
            "{family} is no {kind} in {told}"
        );
        // Only what never falls but by a restart ends so.
        assert_eq!(family.ends_with("_total"), kind == "counter", "{family}");
    }
}

#[test]
fn a_foreign_origin_is_counted_in_a_copy_until_it_is_adopted() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{event}')"
    ));
    assert_eq!(sample(&mut shop, "webhook_origins_foreign"), 0.0);
    dump_and_restore(&cluster, "shop", "copy");
    assert_eq!(sample(&mut shop, "webhook_origins_foreign"), 0.0);
    drop(shop);
    drop_original(&cluster, "shop");
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    wait_until_sample(&mut copy, "webhook_origins_foreign", 1.0);
    copy.run(
        "select webhook.adopt(origin, 'skip', 'test') from webhook.stat_fenced where reason = 'origin'",
    );
    wait_until_sample(&mut copy, "webhook_origins_foreign", 0.0);
}

fn the_start_of_the_leader_is_told(shop: &mut Outbox<'_>) {
    let name = "webhook_leader_start_time_seconds";
    let first = sample(shop, name);
    assert!(
        shop.is(&format!(
            "abs(extract(epoch from started_at) - {first}) < 0.001
             and extract(epoch from clock_timestamp()) - {first} between 0 and 60
           from webhook.stat_worker"
        )),
        "{first}"
    );
    shop.restart_leader();
    let second = sample(shop, name);
    assert!(second > first, "{second} after {first}");
}

fn results_are_counted_by_their_transactions(shop: &mut Outbox<'_>, receiver: &Receiver) {
    let name = "webhook_result_flushes_total";
    // A leader that comes after another one has written down what that one left in doubt.
    let before = sample(shop, name);
    assert!(before <= 1.0, "{before}");
    let endpoint = shop.endpoint("acme", &receiver.url("/takes"));
    for flushes in [1.0, 2.0, 3.0] {
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        wait_until_sample(shop, name, before + flushes);
    }
    // One request after the other takes one thread.
    assert_eq!(sample(shop, "webhook_threads"), 1.0);
}

fn a_gap_is_open_until_it_is_repaired(shop: &mut Outbox<'_>) {
    let name = "webhook_findings_open";
    let reconcile = |repair: bool| {
        format!("select * from webhook.reconcile(null, settle => '0', repair => {repair})")
    };
    shop.run(&reconcile(false));
    assert_eq!(sample(shop, name), 0.0);
    shop.run("delete from webhook._delivery where event_id = (select min(event_id) from webhook._delivery)");
    shop.run(&reconcile(false));
    assert_eq!(sample(shop, name), 1.0);
    shop.run(&reconcile(true));
    wait_for("the gap is repaired", PATIENCE, || {
        shop.run(&reconcile(true));
        sample(shop, name) == 0.0
    });
}

fn a_fenced_event_and_its_alert_are_counted(shop: &mut Outbox<'_>) {
    let names = [
        "webhook_events_fenced",
        "webhook_events_fenced_total",
        "webhook_alerts_total{kind=\"event.fenced\"}",
    ];
    for name in names {
        assert_eq!(sample(shop, name), 0.0, "{name}");
    }
    shop.run(
        "begin;
         create temporary table forged on commit drop as select webhook.emit('order.paid', 'acme', '1') as id;
         update webhook._event e set body = '2' from forged f where e.event_id = f.id;
         commit",
    );
    for name in names {
        wait_until_sample(shop, name, 1.0);
    }
    assert!(shop.is(
        "value = 1 from webhook.stat_metrics where metric = 'webhook_alerts_total' and labels = '{\"kind\": \"event.fenced\"}'"
    ));
}

fn an_endpoint_that_is_gone_raises_one_alert(shop: &mut Outbox<'_>, receiver: &Receiver) {
    let disabled = "webhook_alerts_total{kind=\"endpoint.disabled\"}";
    assert_eq!(sample(shop, disabled), 0.0);
    let endpoint = shop.endpoint("left", &receiver.url("/gone"));
    let event = shop.emit("order.paid", "left", "{}");
    shop.wait_for_state(&event, &endpoint, "dead");
    wait_until_sample(shop, disabled, 1.0);
    assert_eq!(
        sample(shop, "webhook_alerts_total{kind=\"endpoint.warning\"}"),
        0.0
    );
}

/// Five events for an endpoint that takes one request at a time and answers none: what is in memory, and then, when the
/// first pass is over, in the tables.
fn what_waits_for_a_receiver_that_hangs_is_told(cluster: &mut Cluster, receiver: &Receiver) {
    let mut shop = Outbox::create(cluster, "hangs");
    let endpoint = shop.endpoint_with("acme", &receiver.url("/hangs"), ", max_in_flight => 1");
    let memory = |shop: &mut Outbox<'_>| {
        [
            "webhook_requests_in_flight",
            "webhook_threads",
            "webhook_pairs_queued",
            "webhook_batches_open",
            "webhook_oldest_due_age_seconds",
        ]
        .map(|name| sample(shop, name))
    };
    assert_eq!(memory(&mut shop), [0.0; 5]);
    shop.run("select webhook.emit('order.paid', 'acme', '{}') from generate_series(1, 5)");
    let mut seen = [0.0; 5];
    wait_for("one is on the wire and four wait", PATIENCE, || {
        seen = memory(&mut shop);
        seen == [1.0, 1.0, 4.0, 1.0, 0.0]
    });
    drop(shop);
    cluster.reload(&[("webhook.first_pass_limit", "100ms")]);
    let mut shop = Outbox::join(cluster, "hangs");
    let age = "webhook_oldest_due_age_seconds";
    wait_for("the oldest is due", PATIENCE, || {
        sample(&mut shop, age) > 0.0
    });
    let began = Instant::now();
    let first = sample(&mut shop, age);
    sleep(Duration::from_millis(300));
    let second = sample(&mut shop, age);
    let passed = began.elapsed().as_secs_f64();
    assert!(
        second - first >= 0.3 && second - first <= passed,
        "{first} and {second} after {passed} seconds"
    );
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'test')",
        endpoint.id
    ));
    // What is on the wire ends with its timeout.
    for name in [
        age,
        "webhook_pairs_queued",
        "webhook_requests_in_flight",
        "webhook_batches_open",
    ] {
        wait_until_sample(&mut shop, name, 0.0);
    }
}

fn a_request_is_pending_while_the_leader_is_switched_off(cluster: &mut Cluster) {
    let name = "webhook_requests_pending";
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(cluster, "shop");
    shop.wait_for_worker("off");
    assert_eq!(sample(&mut shop, name), 0.0);
    assert_eq!(sample(&mut shop, "webhook_leader_up"), 0.0);
    shop.run("select webhook.pause('partner', 'acme', 'test')");
    assert_eq!(sample(&mut shop, name), 1.0);
    drop(shop);
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(cluster, "shop");
    wait_until_sample(&mut shop, name, 0.0);
    assert_eq!(
        sample(&mut shop, "webhook_pauses_active{scope=\"partner\"}"),
        1.0
    );
}

fn keys_are_in_clear_until_they_are_encrypted(cluster: &mut Cluster) {
    let name = "webhook_keys_in_clear";
    assert_eq!(sample(&mut Outbox::join(cluster, "shop"), name), 1.0);
    let _file = MasterKeyFile::set(cluster, 1);
    let mut shop = Outbox::join(cluster, "shop");
    shop.wait_until("current_setting('webhook.master_key_file') <> ''");
    // What was there before stays as it was stored until it is encrypted.
    assert_eq!(sample(&mut shop, name), 1.0);
    shop.run("select * from webhook.reencrypt_secrets()");
    assert_eq!(sample(&mut shop, name), 0.0);
}

#[track_caller]
fn wait_until_sample(shop: &mut Outbox<'_>, name: &str, wanted: f64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let last = sample(shop, name);
        if last == wanted {
            return;
        }
        assert!(Instant::now() < end, "{name} stays {last}, not {wanted}");
        sleep(Duration::from_millis(20));
    }
}
