//! An endpoint that fails for long: its owner is warned by other ways than the failing one, then it is disabled, and
//! who puts it back into service is told what it missed. Alerts tell the operator; what tells of trouble makes none.

use std::{
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};

use postgres::fallible_iterator::FallibleIterator;
use serde_json::Value;
use webhook_outbox_test::{
    arrivals::json,
    cluster::Cluster,
    control::heard_about,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

/// Each event fails once while a test looks at it, so that a test decides how many failures there are.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    impatient(
        &mut Outbox::create(&cluster, "shop"),
        "touchy",
        "disable_failures => 10",
        "2 s",
    );
    cluster
});

const TOUCHY: &str = ", event_types => '{order.*,webhook.endpoint.*}', policy => 'touchy'";
const LIFECYCLE: &str = ", event_types => '{webhook.endpoint.*}'";

#[test]
fn an_endpoint_is_warned_at_half_and_disabled_after_its_window_and_its_queue_says_why() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let endpoint = shop.endpoint_with("window", &receiver.url("/hook"), TOUCHY);
    fail_until_warned(&mut shop, "window", &endpoint);
    shop.wait_for_health(
        &endpoint,
        "health = 'failing' and failures >= 5 and warned_at > failing_since",
    );
    shop.wait_for_health(
        &endpoint,
        "disable_at = failing_since + interval '2 s' and last_status = 500 and last_error_category = 'server_error'",
    );
    assert_eq!(shop.alerts(&endpoint), ["endpoint.warning"]);
    assert_eq!(shop.state(&endpoint), "active");
    let waiting = shop.deliveries(&endpoint, "retrying");

    fail_until_disabled(&mut shop, "window", &endpoint);
    shop.wait_for_deliveries(&endpoint, "retrying", 0);
    assert!(shop.deliveries(&endpoint, "cancelled") >= waiting);
    assert!(shop.is(&format!(
        "bool_and(reason like 'the endpoint is disabled: _%' and next_attempt_at is null)
           from webhook.deliveries where endpoint_id = {} and state = 'cancelled'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "state_reason <> '' from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    assert_eq!(shop.health(&endpoint, "health"), "closed");
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.warning", "endpoint.disabled"],
        "each once"
    );
    assert!(shop.is(&format!(
        "bool_and(partner_id = 'window' and detail <> '' and severity in ('info', 'warning', 'critical'))
           from webhook.alerts where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn neither_many_failures_at_once_nor_few_over_a_long_time_disable() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    shop.run(
        "select webhook.create_policy('patient', disable_after => '1 h', disable_failures => 3)",
    );
    let many = shop.endpoint_with("patience", &receiver.url("/hook"), ", policy => 'patient'");
    let few = shop.endpoint_with("patience", &receiver.url("/hook"), ", policy => 'touchy'");
    fail(&mut shop, "patience", &few, 4);
    let limit = "clock_timestamp() > failing_since + interval '2200 ms'";
    shop.wait_for_health(&few, limit);
    // The fifth warns, but there is no tenth.
    fail(&mut shop, "patience", &few, 1);
    shop.wait_for_alert(&few, "endpoint.warning");
    shop.wait_for_health(&many, "failures = 5");
    for endpoint in [&many, &few] {
        assert_eq!(shop.state(endpoint), "active");
    }
    assert!(shop.alerts(&many).is_empty());
    assert_eq!(shop.alerts(&few), ["endpoint.warning"]);
}

#[test]
fn lifecycle_events_reach_other_endpoints_of_the_partner_and_the_operator_and_nobody_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (receiver, stranger) = (Receiver::http(), Receiver::http());
    receiver.behave("/hook", |_| Answer::status(500));
    let failing = shop.endpoint_with("told", &receiver.url("/hook"), TOUCHY);
    let watcher = shop.endpoint_with("told", &receiver.url("/watcher"), LIFECYCLE);
    let star = shop.endpoint("told", &receiver.url("/star"));
    let operator = shop.endpoint_with("_operator", &receiver.url("/operator"), LIFECYCLE);
    let other = shop.endpoint_with("told.other", &stranger.url("/hook"), LIFECYCLE);

    fail_until_warned(&mut shop, "told", &failing);
    receiver.behave("/hook", |_| Answer::status(200));
    let good = shop.emit("order.paid", "told", "{}");
    shop.wait_for_state(&good, &failing, "delivered");
    shop.wait_for_alert(&failing, "endpoint.recovered");
    shop.wait_for_health(
        &failing,
        "health = 'healthy' and failures = 0 and warned_at is null",
    );
    receiver.behave("/hook", |_| Answer::status(500));
    fail_until_warned(&mut shop, "told", &failing);
    fail_until_disabled(&mut shop, "told", &failing);

    let expected = ["disabled", "recovered", "warning", "warning"];
    for (path, partner) in [("/watcher", "told"), ("/operator", "_operator")] {
        wait_for("all lifecycle events arrive", PATIENCE, || {
            about(&receiver, path, &failing).len() >= expected.len()
        });
        let bodies = about(&receiver, path, &failing);
        let mut kinds: Vec<&str> = bodies
            .iter()
            .map(|body| body["type"].as_str().unwrap_or_default())
            .map(|kind| kind.trim_start_matches("webhook.endpoint."))
            .collect();
        kinds.sort_unstable();
        assert_eq!(kinds, expected, "{path}");
        for body in &bodies {
            assert_eq!(body["partner_id"], partner);
            assert_eq!(body["data"]["partner_id"], "told");
            assert_eq!(body["subject"]["type"], "webhook.endpoint");
            assert_eq!(body["subject"]["id"], failing.id.to_string());
            assert!(body.get("test").is_none(), "{body}");
        }
    }
    // Whatever was to come has come to the others by now.
    let last = shop.emit("order.last", "told", "{}");
    shop.wait_for_state(&last, &star, "delivered");
    sleep(Duration::from_millis(300));
    assert!(about(&receiver, "/star", &failing).is_empty());
    assert!(about(&receiver, "/hook", &failing).is_empty());
    assert_eq!(stranger.count(), 0);
    let ids = [&failing, &star, &other].map(|endpoint| endpoint.id.to_string());
    assert!(shop.is(&format!(
        "count(*) = 0 from webhook.deliveries where type like 'webhook.%' and endpoint_id in ({})",
        ids.join(", ")
    )));
    for endpoint in [&watcher, &operator] {
        assert_eq!(shop.state(endpoint), "active");
    }
}

#[test]
fn an_alert_is_notified_to_whoever_listens() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let endpoint = shop.endpoint_with("listened", &receiver.url("/hook"), TOUCHY);
    let mut listener = CLUSTER.connect("shop");
    listener
        .batch_execute("listen webhook_alerts")
        .expect("listen");
    fail_until_warned(&mut shop, "listened", &endpoint);
    let heard = heard_about(&mut listener, &endpoint);
    let rows = shop.rows(&format!(
        "select alert_id, severity, kind from webhook.alerts where endpoint_id = {}",
        endpoint.id
    ));
    assert_eq!(rows.len(), 1, "{rows:?}");
    for (name, value) in ["alert_id", "severity"].iter().zip(&rows[0]) {
        assert_eq!(Some(plain(&heard[name])), *value, "{name} of {heard}");
    }
    assert_eq!(rows[0][2].as_deref(), Some("endpoint.warning"));
    // Whoever can connect may listen: whose alert it is, is not said.
    assert_eq!(
        heard.as_object().map(serde_json::Map::len),
        Some(2),
        "{heard}"
    );
}

#[test]
fn an_alert_that_a_verb_wrote_is_notified_as_well() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("verbal", &receiver.url("/hook"));
    let mut listener = CLUSTER.connect("shop");
    listener
        .batch_execute("listen webhook_alerts")
        .expect("listen");
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'no more')",
        endpoint.id
    ));
    let heard = heard_about(&mut listener, &endpoint);
    assert_eq!(heard["severity"], "info", "{heard}");
}

#[test]
fn nobody_but_the_leader_notifies_neither_emit_nor_a_verb() {
    let mut cluster = Cluster::start_usual();
    Outbox::create(&cluster, "shop");
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("quiet", &receiver.url("/hook"));
    let mut listener = cluster.connect("shop");
    listener
        .batch_execute("listen webhook_alerts")
        .expect("listen");
    // Whoever notifies commits behind a lock of the whole server, one at a time.
    shop.emit("order.paid", "quiet", "{}");
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'no more')",
        endpoint.id
    ));
    assert_eq!(shop.alerts(&endpoint), ["endpoint.disabled"]);
    let mut heard = |time: Duration| {
        let mut notifications = listener.notifications();
        let mut some = notifications.timeout_iter(time);
        let heard = some.next().expect("the connection");
        heard.map(|notification| notification.payload().to_owned())
    };
    assert_eq!(heard(Duration::from_millis(1_500)), None);
    drop(shop);
    cluster.reload(&[("webhook.enabled", "on")]);
    let alert = Outbox::join(&cluster, "shop").text("select alert_id from webhook.alerts");
    let heard = heard(PATIENCE).expect("the leader notifies");
    assert!(heard.contains(&alert), "{heard} of {alert}");
}

#[test]
fn an_alert_that_nobody_can_be_notified_of_stays_and_ends_no_life() {
    let mut shop = Outbox::create(&CLUSTER, "full");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(410), Answer::status(200)]);
    // As when the queue is full: the first try fails, and what is written instead does not.
    shop.run(
        "create sequence public.tries;
         create function public.full() returns trigger language plpgsql as $$
         begin
           if nextval('public.tries') = 1 then
             raise exception using errcode = '54000', message = 'too many notifications in the NOTIFY queue';
           end if;
           return new;
         end $$;
         create trigger full_queue before update on webhook._alert for each row execute function public.full();
         -- The leader minds no other triggers.
         alter table webhook._alert enable always trigger full_queue",
    );
    let leader = shop.leader();
    let endpoint = shop.endpoint("full", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "full", "{}");
    shop.wait_for_state(&event, &endpoint, "dead");
    shop.wait_until("(select count(*) = 1 from webhook.alerts where kind = 'endpoint.disabled')");
    shop.wait_until("(select last_value >= 2 from public.tries)");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    let next = shop.emit("order.paid", "full", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(shop.leader(), leader);
    assert!(
        CLUSTER
            .log()
            .contains("webhook leader could not notify of 1 alerts")
    );
}

#[test]
fn gone_raises_an_alert_and_tells_the_owner_at_once() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(410)]);
    let gone = shop.endpoint("gone", &receiver.url("/hook"));
    shop.endpoint_with("gone", &receiver.url("/watcher"), LIFECYCLE);
    shop.emit("order.paid", "gone", "{}");
    shop.wait_for_alert(&gone, "endpoint.disabled");
    wait_for("the owner is told", PATIENCE, || {
        !about(&receiver, "/watcher", &gone).is_empty()
    });
    let bodies = about(&receiver, "/watcher", &gone);
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["type"], "webhook.endpoint.disabled");
    let reason = bodies[0]["data"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("410"), "{reason}");
    assert_eq!(shop.alerts(&gone), ["endpoint.disabled"]);
}

#[test]
fn who_enables_an_endpoint_again_is_told_of_the_time_that_it_missed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("missed", &receiver.url("/hook"));
    shop.endpoint_with("missed", &receiver.url("/watcher"), LIFECYCLE);
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'moving house')",
        endpoint.id
    ));
    let missed = shop.emit("order.paid", "missed", "{}");
    shop.wait_until(&format!(
        "(select published_at is not null from webhook.events where event_id = '{missed}')"
    ));
    shop.run(&format!(
        "select webhook.enable_endpoint({}, 'there now')",
        endpoint.id
    ));
    let next = shop.emit("order.paid", "missed", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    assert_eq!(shop.delivery(&missed, &endpoint), None);
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.disabled", "endpoint.missed"]
    );
    wait_for("both events arrive", PATIENCE, || {
        about(&receiver, "/watcher", &endpoint).len() == 2
    });
    let bodies = about(&receiver, "/watcher", &endpoint);
    let of = |kind: &str| {
        let found = bodies.iter().find(|body| body["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {bodies:?}"))["data"].clone()
    };
    assert_eq!(of("webhook.endpoint.disabled")["reason"], "moving house");
    let told = of("webhook.endpoint.missed");
    let (from, to) = (plain(&told["from"]), plain(&told["to"]));
    assert!(
        shop.is(&format!(
            "'{from}'::timestamptz <= emitted_at and emitted_at <= '{to}'::timestamptz
               from webhook.events where event_id = '{missed}'"
        )),
        "{told}"
    );
    // One that was active all the time has missed nothing.
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    assert_eq!(shop.alerts(&endpoint).len(), 2);
}

#[test]
fn failures_of_lifecycle_events_raise_nothing_and_harm_nobody() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/watcher", |_| Answer::status(500));
    impatient(
        &mut shop,
        "nervous",
        "disable_failures => 2, retry_schedule => '200ms,200ms,200ms,200ms'",
        "1 s",
    );
    let endpoint = shop.endpoint("quiet", &receiver.url("/hook"));
    let watcher = shop.endpoint_with(
        "quiet",
        &receiver.url("/watcher"),
        ", event_types => '{webhook.endpoint.*}', policy => 'nervous'",
    );
    let start = Instant::now();
    let mut rounds = 0;
    // Twice the time and far more than the number that would disable it.
    while rounds < 3 || start.elapsed() < Duration::from_secs(2) {
        rounds += 1;
        let id = endpoint.id;
        shop.run(&format!(
            "select webhook.disable_endpoint({id}, 'round {rounds}')"
        ));
        shop.run(&format!("select webhook.enable_endpoint({id})"));
        shop.wait_for_deliveries(&watcher, "dead", rounds * 2);
    }
    assert!(receiver.requests_for("/watcher").len() >= 30);
    assert_eq!(shop.state(&watcher), "active");
    assert!(shop.alerts(&watcher).is_empty());
    assert_eq!(shop.health(&watcher, "coalesce(failures, 0)"), "0");
    assert_eq!(shop.health(&watcher, "warned_at"), "");
    // Nothing was said about the watcher, and so there is no storm.
    assert!(shop.is(&format!(
        "count(*) = 0 from webhook.events where subject_type = 'webhook.endpoint' and subject_id = '{}'",
        watcher.id
    )));
}

#[test]
fn figures_of_an_endpoint_count_what_was_sent_and_what_waits() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("figures", &receiver.url("/hook"));
    for status in [200, 200, 200, 404, 500] {
        receiver.behave("/hook", move |_| Answer::status(status));
        let event = shop.emit("order.paid", "figures", "{}");
        shop.wait_for_attempts(&event, &endpoint, 1);
    }
    shop.wait_until(&format!(
        "(select (partner_id, delivered, failed, dead, due, waiting, held) = ('figures', 3, 2, 1, 0, 1, 0)
                 and success_rate = 0.6 and latency_ms is not null
                 and last_failure_at > last_success_at
            from webhook.stat_endpoint where endpoint_id = {})",
        endpoint.id
    ));
}

/// A policy that disables sooner than any user may ask for: a test cannot wait for a minute.
#[track_caller]
fn impatient(shop: &mut Outbox, name: &str, values: &str, disable_after: &str) {
    shop.run(&format!(
        "select webhook.create_policy('{name}', {values});
         update webhook._policy set disable_after = '{disable_after}' where name = '{name}'"
    ));
}

/// Lets so many events of the partner fail, once each.
#[track_caller]
fn fail(shop: &mut Outbox, partner: &str, endpoint: &Endpoint, count: usize) {
    let events = shop.column(&format!(
        "select webhook.emit('order.paid', '{partner}', '{{}}') from generate_series(1, {count})"
    ));
    for event in &events {
        shop.wait_for_attempts(event, endpoint, 1);
    }
}

/// One failure, then after half of the window four more: the fifth of ten that are allowed, whatever the time.
#[track_caller]
fn fail_until_warned(shop: &mut Outbox, partner: &str, endpoint: &Endpoint) {
    let before = shop.alerts(endpoint).len();
    fail(shop, partner, endpoint, 1);
    shop.wait_for_health(
        endpoint,
        "clock_timestamp() > failing_since + interval '1100 ms'",
    );
    fail(shop, partner, endpoint, 4);
    let about = format!("from webhook.alerts where endpoint_id = {}", endpoint.id);
    shop.wait_until(&format!("(select count(*) > {before} {about})"));
    let kinds = shop.alerts(endpoint);
    assert_eq!(kinds[before..], ["endpoint.warning"]);
}

/// The other five, after the window.
#[track_caller]
fn fail_until_disabled(shop: &mut Outbox, partner: &str, endpoint: &Endpoint) {
    shop.wait_for_health(
        endpoint,
        "clock_timestamp() > failing_since + interval '2100 ms'",
    );
    shop.run(&format!(
        "select webhook.emit('order.paid', '{partner}', '{{}}') from generate_series(1, 8)"
    ));
    shop.wait_for_alert(endpoint, "endpoint.disabled");
    shop.wait_until(&format!(
        "(select state = 'disabled' from webhook.endpoints where endpoint_id = {})",
        endpoint.id
    ));
}

/// The lifecycle events about an endpoint that arrived at a path.
fn about(receiver: &Receiver, path: &str, endpoint: &Endpoint) -> Vec<Value> {
    let id = endpoint.id.to_string();
    receiver
        .requests_for(path)
        .iter()
        .map(json)
        .filter(|body| {
            let kind = body["type"].as_str().unwrap_or_default();
            kind.starts_with("webhook.endpoint.") && body["data"]["endpoint_id"] == id.as_str()
        })
        .collect()
}

/// A number or a text, as text.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
