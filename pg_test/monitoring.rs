//! What a monitor sees: the text of `webhook.metrics()`, the same through Debian's exporter in a real Prometheus, the
//! panels and alert rules that are shipped, what a scrape costs, and how far long work has come.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::Value;
use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    monitoring::{Folder, Watcher, promtool, sample},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    say,
    wait::wait_for,
};

#[test]
fn metrics_count_what_happened_in_the_format_of_prometheus_and_name_nobody() {
    // Nothing is tried again while it is counted, however long that takes.
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h,1h")
        .start();
    // A name with everything that the format escapes.
    cluster
        .connect("postgres")
        .batch_execute("create database \"we\"\"ird\\\nname\"")
        .expect("the database");
    let mut shop = Outbox::join(&cluster, "we\"ird\\\nname");
    shop.run("create extension webhook_outbox");
    shop.wait_for_worker("running");
    let receiver = Receiver::http();
    receiver.behave("/refuses", |_| Answer::status(404));
    receiver.behave("/fails", |_| Answer::status(500));
    let good = shop.endpoint("tenant-one", &receiver.url("/takes"));
    let refusing = shop.endpoint("tenant-two", &receiver.url("/refuses"));
    let failing = shop.endpoint("tenant-three", &receiver.url("/fails"));
    for _ in 0..3 {
        let event = shop.emit("order.paid", "tenant-one", "{}");
        shop.wait_for_state(&event, &good, "delivered");
    }
    let dead = shop.emit("order.paid", "tenant-two", "{}");
    shop.wait_for_state(&dead, &refusing, "dead");
    let retried = shop.emit("order.paid", "tenant-three", "{}");
    shop.wait_for_state(&retried, &failing, "retrying");
    shop.emit("order.paid", "tenant-four", "{}");
    wait_for("six events are counted", PATIENCE, || {
        sample(&mut shop, "webhook_events_fanned_out_total") == 6.0
    });
    // What is known of endpoints is written now and then.
    for (health, count) in [("healthy", 1.0), ("failing", 2.0)] {
        let name = format!("webhook_endpoints_registered{{health=\"{health}\"}}");
        wait_for(&name, PATIENCE, || sample(&mut shop, &name) == count);
    }

    let text = shop.text("select webhook.metrics()");
    let told = promtool(&["check", "metrics"], &text);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success() && said.is_empty(), "{said}\n{text}");
    for (name, wanted) in [
        ("webhook_pairs_made_total", 5.0),
        ("webhook_deliveries_total{outcome=\"delivered\"}", 3.0),
        ("webhook_deliveries_total{outcome=\"dead\"}", 1.0),
        ("webhook_attempts_total{outcome=\"delivered\"}", 3.0),
        ("webhook_attempts_total{outcome=\"client_error\"}", 1.0),
        ("webhook_attempts_total{outcome=\"server_error\"}", 1.0),
        ("webhook_attempts_total{outcome=\"dns\"}", 0.0),
        ("webhook_delivery_lag_seconds_count", 3.0),
        ("webhook_delivery_lag_seconds_bucket{le=\"+Inf\"}", 3.0),
        ("webhook_attempt_duration_seconds_count", 5.0),
        ("webhook_leader_up", 1.0),
        ("webhook_in_recovery", 0.0),
        ("webhook_events_unread", 0.0),
        ("webhook_oldest_unread_age_seconds", 0.0),
        ("webhook_open_deliveries{state=\"dead\"}", 1.0),
        ("webhook_open_deliveries{state=\"retrying\"}", 1.0),
        ("webhook_pairs_parked{state=\"waiting\"}", 1.0),
        ("webhook_endpoints_registered{health=\"down\"}", 0.0),
        ("webhook_pauses_active{scope=\"partner\"}", 0.0),
    ] {
        assert_eq!(sample(&mut shop, name), wanted, "{name}");
    }
    let sum = sample(&mut shop, "webhook_delivery_lag_seconds_sum");
    assert!(sum > 0.0 && sum < 90.0, "{sum}");
    assert!(sample(&mut shop, "webhook_leader_last_loop_time_seconds") > 1.7e9);
    assert!(
        text.contains("webhook_build_info{database=\"we\\\"ird\\\\\\nname\","),
        "{text}"
    );
    // Low cardinality is a promise: nobody's name, and never more series.
    for name in [
        "tenant",
        "127.0.0.1",
        "order.paid",
        &good.id.to_string(),
        &dead,
    ] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines < 150, "{lines} series");
    say!("metrics(): {lines} series, {} bytes", text.len());
}

#[test]
fn counters_outlive_the_leader_and_begin_anew_with_the_server() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        shop.restart_leader();
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        wait_for("both are counted", PATIENCE, || {
            sample(&mut shop, "webhook_deliveries_total{outcome=\"delivered\"}") == 2.0
        });
        assert_eq!(sample(&mut shop, "webhook_leader_restarts_total"), 1.0);
        // Another database has counters of its own, and so has the next one in its place.
        let mut other = Outbox::create(&cluster, "other");
        assert_eq!(sample(&mut other, "webhook_events_fanned_out_total"), 0.0);
    }
    cluster
        .connect("postgres")
        .batch_execute("drop database shop with (force)")
        .expect("dropped");
    {
        let mut next = Outbox::create(&cluster, "next");
        assert_eq!(
            sample(&mut next, "webhook_deliveries_total{outcome=\"delivered\"}"),
            0.0
        );
        let endpoint = next.endpoint("acme", &receiver.url("/hook"));
        let event = next.emit("order.paid", "acme", "{}");
        next.wait_for_state(&event, &endpoint, "delivered");
    }
    cluster.restart(Shutdown::Fast);
    let mut next = Outbox::join(&cluster, "next");
    next.wait_for_worker("running");
    assert_eq!(
        sample(&mut next, "webhook_deliveries_total{outcome=\"delivered\"}"),
        0.0
    );
}

#[test]
fn what_a_leader_left_in_doubt_is_counted_as_lost_and_what_is_cancelled_as_cancelled() {
    let cluster = Cluster::plan()
        .setting("webhook.shutdown_grace", "100ms")
        .setting("webhook.retry_schedule", "1h")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.script("/hangs", vec![Answer::hang(), Answer::status(503)]);
    let endpoint = shop.endpoint("acme", &receiver.url("/hangs"));
    let event = shop.emit("order.paid", "acme", "{}");
    // What the receiver has not seen may be known to be unsent, and is then no attempt at all.
    receiver.wait_for(1, PATIENCE);
    wait_for("the request is on the wire", PATIENCE, || {
        sample(&mut shop, "webhook_requests_in_flight") == 1.0
    });
    shop.restart_leader();
    shop.wait_for_attempts(&event, &endpoint, 2);
    for (outcome, count) in [("lost", 1.0), ("server_error", 1.0), ("delivered", 0.0)] {
        let name = format!("webhook_attempts_total{{outcome=\"{outcome}\"}}");
        wait_for(&name, PATIENCE, || sample(&mut shop, &name) == count);
    }
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'test')",
        endpoint.id
    ));
    shop.wait_for_state(&event, &endpoint, "cancelled");
    wait_for("it is counted", PATIENCE, || {
        sample(&mut shop, "webhook_deliveries_total{outcome=\"cancelled\"}") == 1.0
    });
}

#[test]
fn a_scrape_costs_the_same_whatever_waits() {
    let mut cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    let first = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");
    let none = cost(&mut shop);
    drop(shop);
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    let mut costs = Vec::new();
    for _ in 0..2 {
        shop.run(
            "select count(webhook.emit('order.paid', 'acme', '{}')) from generate_series(1, 20000)",
        );
        // As many in the tables behind: written here, because no receiver is needed for what they cost.
        shop.run(&format!(
            "with made as (
               select webhook._event_bound(clock_timestamp() - interval '1 hour' + n * interval '1 millisecond') as id
                 from generate_series((select count(*) from webhook._due) + 1, (select count(*) from webhook._due) + 20000) as n),
             told as (
               insert into webhook._delivery (event_id, endpoint_id, state, attempt_count, series_start, revision)
               select id, {0}, 'dead', 1, 0, 1 from made)
             insert into webhook._due (event_id, endpoint_id, next_attempt_at, attempt_count, series_start, class)
             select id, {0}, now() + interval '1 day', 1, 0, 0 from made",
            endpoint.id
        ));
        shop.run("vacuum analyze webhook._delivery, webhook._event");
        costs.push(cost(&mut shop));
    }
    assert_eq!(sample(&mut shop, "webhook_events_unread"), 10_000.0);
    assert_eq!(
        sample(&mut shop, "webhook_open_deliveries{state=\"dead\"}"),
        10_000.0
    );
    assert_eq!(
        sample(&mut shop, "webhook_pairs_parked{state=\"waiting\"}"),
        10_000.0
    );
    say!(
        "a scrape: {} buffers and {} ms with nothing waiting, {} and {} ms with 60000 rows, {} and {} ms with 120000",
        none.0,
        none.1,
        costs[0].0,
        costs[0].1,
        costs[1].0,
        costs[1].1
    );
    assert!(
        costs[1].0 < costs[0].0 * 5 / 4 + 500,
        "{costs:?} buffers and milliseconds"
    );
    // Counters alone touch no table at all.
    assert!(shop.is(
        "not exists (select from webhook.stat_metrics where type in ('counter', 'histogram') and value < 0)"
    ));
    let plan = shop
        .column("explain select * from webhook.stat_metrics where type = 'counter'")
        .join("\n");
    assert!(
        plan.contains("_counters") && !plan.contains("_gauges"),
        "{plan}"
    );
}

#[test]
fn every_panel_of_the_dashboard_shows_a_series_and_every_rule_is_sound() {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1s,1s,1s")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.behave("/fails", |_| Answer::status(500));
    shop.endpoint("acme", &receiver.url("/takes"));
    shop.endpoint("acme", &receiver.url("/fails"));
    shop.run("create role monitor login; grant pg_monitor to monitor");
    let folder = Folder::new();
    let exporter = exporter(&cluster, &folder);
    let prometheus = prometheus(&exporter, &folder);

    // The exporter tells what metrics() tells: the same names of the same types.
    let told = types(&exporter.get("/metrics"));
    let own = types(&shop.text("select webhook.metrics()"));
    for (name, kind) in &own {
        assert_eq!(
            told.get(name),
            Some(kind),
            "{name}; the exporter says:\n{}",
            exporter.says()
        );
    }
    assert!(
        !exporter.says().contains("level=error"),
        "{}",
        exporter.says()
    );

    let panels = panels();
    assert!(panels.len() > 25, "{panels:?}");
    let delivered = "sum(webhook_deliveries_total{outcome=\"delivered\"})";
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut emitter = shop.another();
        let over = &over;
        threads.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                emitter.emit("order.paid", "acme", "{}");
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut missing: Vec<String> = panels.clone();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("every panel shows a number", PATIENCE * 2, || {
                missing.retain(|expression| !shows(&prometheus, expression));
                missing.is_empty()
            });
            let before = number(&prometheus, delivered);
            wait_for("the counters move", PATIENCE, || {
                number(&prometheus, delivered) > before
            });
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(error) = seen {
            eprintln!("without a series: {missing:#?}\n{}", exporter.says());
            std::panic::resume_unwind(error);
        }
    });
    // The list of databases that Grafana offers is filled from a label of a metric.
    assert!(
        prometheus
            .query("count by (instance) (webhook_leader_up)")
            .iter()
            .any(|series| series["metric"]["instance"].is_string()),
        "{}",
        prometheus.says()
    );
    wait_for("dead letters are about to be alerted", PATIENCE, || {
        !prometheus
            .query("ALERTS{alertname=\"WebhookDeadLetters\"}")
            .is_empty()
    });
    let rules: Value = serde_json::from_str(&prometheus.get("/api/v1/rules")).expect("JSON");
    let rules = &rules["data"]["groups"][0]["rules"];
    let sick: Vec<&Value> = rules
        .as_array()
        .expect("rules")
        .iter()
        .filter(|rule| rule["health"] != "ok")
        .collect();
    assert!(sick.is_empty(), "{sick:?}");
    // None of the others is raised by a database that is well but for a receiver that fails.
    let raised: Vec<String> = prometheus
        .query("ALERTS{severity=\"critical\"}")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(raised.is_empty(), "{raised:?}");
    let said = promtool(
        &[
            "check",
            "rules",
            &examples().join("alerts.yml").display().to_string(),
        ],
        "",
    );
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    say!("{} expressions of {} shown", panels.len(), "dashboard.json");
}

#[test]
fn every_alert_rule_fires_and_is_silent_when_it_should() {
    let tests = examples().join("alerts_test.yml");
    let told = promtool(&["test", "rules", &tests.display().to_string()], "");
    assert!(
        told.status.success(),
        "{}{}",
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr)
    );
    let [tests, rules] = ["alerts_test.yml", "alerts.yml"]
        .map(|file| fs::read_to_string(examples().join(file)).expect("rules and their tests"));
    // What is said of each moment of a rule: nobody is told, or what they are told.
    let moments: Vec<(&str, &str)> = tests
        .split("        alertname: ")
        .skip(1)
        .filter_map(|moment| moment.split_once('\n'))
        .collect();
    for name in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        let of_rule: Vec<&str> = moments
            .iter()
            .filter(|(of, _)| *of == name)
            .map(|(_, expected)| expected.trim_start())
            .collect();
        let silent = |expected: &&&str| expected.starts_with("exp_alerts: []");
        let fires = |expected: &&&str| expected.starts_with("exp_alerts:\n          - exp_labels:");
        assert!(
            of_rule.iter().filter(silent).count() > 0 && of_rule.iter().filter(fires).count() > 0,
            "{name} is not seen both firing and silent"
        );
    }
}

#[test]
fn every_alert_rule_is_described_and_names_metrics_that_there_are() {
    let manual = fs::read_to_string(examples().join("../../docs/monitoring.md")).expect("the page");
    let rules = fs::read_to_string(examples().join("alerts.yml")).expect("the rules");
    let names: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            manual.contains(&format!("| `{name}`")),
            "{name} is not described"
        );
    }
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let families = types(&shop.text("select webhook.metrics()"));
    for name in families.keys() {
        assert!(
            manual.contains(&format!("| `{name}`")),
            "{name} is not described"
        );
    }
    let named = rules
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("webhook_") && *word != "webhook_outbox");
    for word in named {
        let family = word.trim_end_matches("_bucket");
        assert!(families.contains_key(family), "{word} is no metric");
    }
}

#[test]
fn a_monitor_needs_no_more_than_pg_monitor_and_nobody_else_reads_anything() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.run(
        "create role watcher; grant pg_monitor to watcher; create role stranger;
         create role acme; select webhook.grant_access('acme', 'partner', 'acme')",
    );
    let calls = [
        "select webhook.metrics()",
        "select webhook.dashboard()",
        "select * from webhook.stat_metrics",
        "select * from webhook.stat_progress_replay",
        "select * from webhook.stat_progress_adopt",
        "select * from webhook.stat_progress_retention",
        "select * from webhook.stat_progress_expunge",
    ];
    for call in calls {
        shop.run(&format!("set role watcher; {call}; reset role"));
        for role in ["stranger", "acme"] {
            let (code, message) = shop.refusal(&format!("set role {role}; {call}"));
            assert_eq!(code, "42501", "{role}: {call}: {message}");
            shop.run("reset role");
        }
    }
    // Nor more than a transaction that may only read, which is what a GET of PostgREST is.
    shop.run("set role watcher; begin read only; select webhook.dashboard(); select webhook.metrics(); commit");
    let page = shop.text("select webhook.dashboard()");
    assert!(
        page.contains("This role has no right to see them."),
        "{page}"
    );
}

#[test]
fn long_work_shows_how_far_it_has_come_and_vanishes_when_it_is_done() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    for view in ["replay", "adopt", "expunge"] {
        assert_eq!(
            shop.number(&format!(
                "select count(*) from webhook.stat_progress_{view}"
            )),
            0
        );
    }
    let mut last = String::new();
    for _ in 0..40 {
        last = shop.emit_with(
            "order.paid",
            "acme",
            "{}",
            ", subject_type => 'order', subject_id => '7'",
        );
    }
    shop.wait_for_state(&last, &endpoint, "delivered");
    shop.wait_until("(select count(*) = 40 from webhook.deliveries where state = 'delivered')");
    shop.run("select * from webhook.replay_range('acme', since => now() - interval '1 hour', until => now(), reason => 'test', rate => 4)");
    shop.wait_until(
        "exists (select from webhook.stat_progress_replay
                  where phase = 'running' and events_total = 40 and events_done between 1 and 39
                    and percent between 1 and 99.9 and rate_limit = 4)",
    );
    // It says what the list of all replays says.
    assert!(shop.is("count(*) = 1 from webhook.stat_progress_replay p
           join webhook.replays r on r.request_id = p.request_id
          where p.partner_id = 'acme' and p.left_out = 0 and p.per_second > 0
            and p.reached_at between r.started_at - interval '1 hour' and clock_timestamp()"));
    assert_eq!(
        sample(&mut shop, "webhook_jobs_running{kind=\"replay\"}"),
        1.0
    );
    shop.wait_until("not exists (select from webhook.stat_progress_replay)");
    shop.wait_until("(select count(*) = 40 from webhook.deliveries where state = 'delivered' and attempt_count = 2)");

    let erasure = shop
        .number("select webhook.expunge('asked for', subject_type => 'order', subject_id => '7')");
    shop.wait_until(&format!(
        "(select phase = 'to be confirmed' and events_total = 40 and events_done = 40 and percent = 100 and scope = 'subject'
            from webhook.stat_progress_expunge where erasure_id = {erasure})"
    ));
    shop.run(&format!("select webhook.confirm_erasure({erasure})"));
    assert_eq!(
        shop.number("select count(*) from webhook.stat_progress_expunge"),
        0
    );
    // Retention takes a pass soon after the start; nothing is shown between passes.
    shop.wait_until(
        "coalesce((select steps_done <= steps_total and started_at <= clock_timestamp() and phase <> ''
                     from webhook.stat_progress_retention), true)",
    );
}

/// Buffers that a scrape reads, and milliseconds that it takes.
fn cost(shop: &mut Outbox) -> (i64, i64) {
    // Catalogues are cached by the first.
    shop.run("select webhook.metrics()");
    let plan = shop.text("explain (analyze, buffers, format json) select webhook.metrics()");
    let plan: Value = serde_json::from_str(&plan).expect("a plan");
    let buffers = ["Shared Hit Blocks", "Shared Read Blocks"]
        .iter()
        .filter_map(|name| plan[0]["Plan"][*name].as_i64())
        .sum();
    #[allow(clippy::cast_possible_truncation)]
    let took = plan[0]["Execution Time"].as_f64().unwrap_or(f64::NAN) as i64;
    (buffers, took)
}

fn exporter(cluster: &Cluster, folder: &Folder) -> Watcher {
    let queries = fs::read_to_string(examples().join("queries.yaml")).expect("the queries");
    let queries = folder.file("queries.yaml", &queries);
    let source = format!(
        "user=monitor host={} port=5432 dbname=shop sslmode=disable",
        cluster.folder().display()
    );
    Watcher::start(
        "usr/bin/prometheus-postgres-exporter",
        folder,
        "/metrics",
        |command, port| {
            command
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg(format!("--extend.query-path={}", queries.display()))
                .args(["--disable-default-metrics", "--disable-settings-metrics"])
                .args(["--no-collector.database", "--no-collector.bgwriter"])
                .env("DATA_SOURCE_NAME", source);
        },
    )
}

/// With the configuration that is shipped, but for address and pace.
fn prometheus(exporter: &Watcher, folder: &Folder) -> Watcher {
    let shipped = fs::read_to_string(examples().join("prometheus.yml")).expect("the configuration");
    let told = shipped
        .replace("127.0.0.1:9187", &format!("127.0.0.1:{}", exporter.port))
        .replace("15s", "1s");
    assert_ne!(told, shipped);
    let configuration = folder.file("prometheus.yml", &told);
    let rules = fs::read_to_string(examples().join("alerts.yml")).expect("the rules");
    folder.file("alerts.yml", &rules);
    let data = folder.path().join("data");
    Watcher::start("usr/bin/prometheus", folder, "/-/ready", |command, port| {
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    })
}

/// The expressions of the dashboard that is shipped, for all instances and a short while.
fn panels() -> Vec<String> {
    let text = fs::read_to_string(examples().join("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let expressions: Vec<String> = dashboard["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| {
            let expression = target["expr"].as_str().expect("an expression");
            expression
                .replace("$instance", ".*")
                .replace("$__rate_interval", "10s")
        })
        .collect();
    // None stands where this does not look.
    assert_eq!(expressions.len(), text.matches("\"expr\":").count());
    expressions
}

/// Whether an expression gives a series with a number.
fn shows(prometheus: &Watcher, expression: &str) -> bool {
    prometheus
        .query(expression)
        .iter()
        .any(|series| value(series).is_finite())
}

fn number(prometheus: &Watcher, expression: &str) -> f64 {
    prometheus.query(expression).first().map_or(f64::NAN, value)
}

fn value(series: &Value) -> f64 {
    let text = series["value"][1].as_str().unwrap_or_default();
    text.parse().unwrap_or(f64::NAN)
}

/// Names and types of the metrics of this project in a text of the format.
fn types(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| name.starts_with("webhook_"))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

fn examples() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/monitoring"
    ))
}
