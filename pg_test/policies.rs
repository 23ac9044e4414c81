//! Policies: named sets of values that endpoints share. What a policy leaves out is that of the policy "default", and
//! what that leaves out is the server's setting. A change counts from the next outcome on, without any restart.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    arrivals::numbers,
    cluster::Cluster,
    outbox::Outbox,
    receiver::{Answer, Receiver},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn an_endpoint_follows_the_schedule_of_its_policy() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    shop.run("select webhook.create_policy('quick', retry_schedule => '100ms,150ms')");
    let quick = shop.endpoint_with("schedules", &receiver.url("/hook"), ", policy => 'quick'");
    let plain = shop.endpoint("schedules", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "schedules", "{}");
    let dead = shop.wait_for_state(&event, &quick, "dead");
    assert_eq!(dead.attempts, 3);
    assert_eq!(
        dead.reason.as_deref(),
        Some("no attempt is left in the schedule")
    );
    let waiting = shop.wait_for_state(&event, &plain, "retrying");
    assert_eq!(waiting.attempts, 1);
    assert!(shop.is(&format!(
        "policy = 'quick' from webhook.endpoints where endpoint_id = {}",
        quick.id
    )));
    assert!(shop.is(&format!(
        "policy is null from webhook.endpoints where endpoint_id = {}",
        plain.id
    )));
}

#[test]
fn a_policy_says_how_often_a_refusal_is_tried_again_and_how_long_a_receiver_may_ask_to_wait() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/refuses", |_| Answer::status(404));
    receiver.behave("/asks", |_| {
        Answer::status(500).header("Retry-After", "1000")
    });
    shop.run(
        "select webhook.create_policy('stubborn', retry_schedule => '100ms,100ms,100ms',
                                      client_error_attempts => 3, retry_after_max => '300 s')",
    );
    let of = |path: &str| receiver.url(path);
    let stubborn = ", policy => 'stubborn'";
    let refuses = shop.endpoint_with("refusals", &of("/refuses"), stubborn);
    let asks = shop.endpoint_with("refusals", &of("/asks"), stubborn);
    let plain = shop.endpoint("refusals", &of("/refuses"));
    let event = shop.emit("order.paid", "refusals", "{}");
    assert_eq!(shop.wait_for_state(&event, &refuses, "dead").attempts, 3);
    assert_eq!(shop.wait_for_state(&event, &plain, "dead").attempts, 1);
    shop.wait_for_state(&event, &asks, "retrying");
    let attempt = &shop.attempts(&event, &asks)[0];
    let wait = attempt.next_attempt_at.expect("a plan") - attempt.started_at;
    // A machine that is busy adds to it.
    assert!((300.0..400.0).contains(&wait), "{wait} s");
}

#[test]
fn a_policy_limits_the_requests_at_once_and_the_endpoint_has_the_last_word() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let service = Duration::from_millis(50);
    shop.run("select webhook.create_policy('narrow', max_in_flight => 3)");
    for (partner, more, most) in [
        ("narrow.policy", ", policy => 'narrow'", 3),
        ("narrow.own", ", policy => 'narrow', max_in_flight => 1", 1),
    ] {
        let receiver = Receiver::http();
        receiver.behave("/hook", move |_| Answer::status(200).after(service));
        let endpoint = shop.endpoint_with(partner, &receiver.url("/hook"), more);
        emit(&mut shop, partner, 40);
        shop.wait_for_deliveries(&endpoint, "delivered", 40);
        let peak = receiver.peak();
        assert!((1..=most).contains(&peak), "{partner}: {peak}");
        assert!(most == 1 || peak > 1, "{partner}: {peak}");
    }
}

#[test]
fn a_policy_limits_the_requests_per_second() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("select webhook.create_policy('steady', rate => 10, burst => 2)");
    let endpoint = shop.endpoint_with("steady", &receiver.url("/hook"), ", policy => 'steady'");
    let begun = std::time::Instant::now();
    emit(&mut shop, "steady", 40);
    shop.wait_for_deliveries(&endpoint, "delivered", 40);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 40);
    // 38 of them had to wait for a tenth of a second each.
    let time = requests[39].at - begun;
    assert!(time >= Duration::from_millis(3700), "{time:?}");
}

#[test]
fn what_is_older_than_the_policy_allows_is_given_up_without_an_attempt() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("select webhook.create_policy('fresh', max_age => '20 s')");
    let endpoint = shop.endpoint_with("aged", &receiver.url("/hook"), ", policy => 'fresh'");
    shop.have_done(&format!(
        "pause('endpoint', '{}', 'for a while')",
        endpoint.id
    ));
    let old =
        shop.column("select webhook.emit('order.paid', 'aged', '1') from generate_series(1, 5)");
    shop.wait_for_deliveries(&endpoint, "pending", 5);
    // The limit moves instead of the clock.
    shop.wait_until(&format!(
        "(select clock_timestamp() - emitted_at > interval '1200 ms' from webhook.events where event_id = '{}')",
        old[4]
    ));
    shop.run("select webhook.update_policy('fresh', max_age => '1 s')");
    shop.have_done(&format!("resume('endpoint', '{}')", endpoint.id));
    for event in &old {
        let dead = shop.wait_for_state(event, &endpoint, "dead");
        assert_eq!(dead.category.as_deref(), Some("expired"));
        assert_eq!((dead.attempts, dead.status), (0, None));
    }
    shop.run("select webhook.update_policy('fresh', max_age => '1 h')");
    let young = shop.emit("order.paid", "aged", "2");
    shop.wait_for_state(&young, &endpoint, "delivered");
    assert_eq!(numbers(&receiver.requests()), [2]);
}

#[test]
fn a_change_of_a_policy_counts_without_a_restart() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let life = shop.text("select incarnation from webhook.stat_worker");
    shop.run("select webhook.create_policy('changing')");
    let with = ", policy => 'changing'";
    let endpoint = shop.endpoint_with("changing", &receiver.url("/hook"), with);
    let slow = shop.emit("order.paid", "changing", "{}");
    shop.wait_for_state(&slow, &endpoint, "retrying");
    shop.run("select webhook.update_policy('changing', retry_schedule => '100ms')");
    let quick = shop.emit("order.paid", "changing", "{}");
    assert_eq!(shop.wait_for_state(&quick, &endpoint, "dead").attempts, 2);
    // What a policy had set can be taken back.
    shop.run("select webhook.update_policy('changing', reset => '{retry_schedule}')");
    let slow_again = shop.emit("order.paid", "changing", "{}");
    shop.wait_for_state(&slow_again, &endpoint, "retrying");
    // So can the choice of the policy.
    shop.run(&format!(
        "select webhook.create_policy('another', retry_schedule => '100ms,100ms');
         select webhook.update_endpoint({}, policy => 'another')",
        endpoint.id
    ));
    let other = shop.emit("order.paid", "changing", "{}");
    assert_eq!(shop.wait_for_state(&other, &endpoint, "dead").attempts, 3);
    shop.run(&format!(
        "select webhook.update_endpoint({}, policy => '')",
        endpoint.id
    ));
    let plain = shop.emit("order.paid", "changing", "{}");
    shop.wait_for_state(&plain, &endpoint, "retrying");
    assert_eq!(
        shop.text("select incarnation from webhook.stat_worker"),
        life
    );
}

#[test]
fn the_default_policy_reaches_every_endpoint_that_says_nothing_else() {
    let mut shop = Outbox::create(&CLUSTER, "default_policy");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(404));
    shop.run(
        "select webhook.create_policy('own', client_error_attempts => 1, retry_schedule => '100ms,100ms,100ms');
         select webhook.create_policy('empty')",
    );
    let [plain, empty, own] = ["", ", policy => 'empty'", ", policy => 'own'"]
        .map(|more| shop.endpoint_with("defaults", &receiver.url("/hook"), more));
    let before = shop.emit("order.paid", "defaults", "{}");
    for endpoint in [&plain, &empty, &own] {
        assert_eq!(shop.wait_for_state(&before, endpoint, "dead").attempts, 1);
    }
    shop.run(
        "select webhook.update_policy('default', client_error_attempts => 2, retry_schedule => '100ms,100ms')",
    );
    let after = shop.emit("order.paid", "defaults", "{}");
    for (endpoint, attempts) in [(&plain, 2), (&empty, 2), (&own, 1)] {
        let dead = shop.wait_for_state(&after, endpoint, "dead");
        assert_eq!(dead.attempts, attempts);
    }
    shop.run("select webhook.update_policy('default', reset => '{client_error_attempts,retry_schedule}')");
    let last = shop.emit("order.paid", "defaults", "{}");
    assert_eq!(shop.wait_for_state(&last, &plain, "dead").attempts, 1);
}

#[test]
fn a_policy_that_makes_no_sense_is_refused_and_one_in_use_stays() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("select webhook.create_policy('kept', retry_schedule => '5s,5m', description => 'for the patient')");
    let endpoint = shop.endpoint_with("kept", &receiver.url("/hook"), ", policy => 'kept'");
    let url = receiver.url("/other");
    for (statement, code) in [
        ("create_policy('kept')".to_owned(), "42710"),
        ("create_policy(null)".to_owned(), "22004"),
        (
            "create_policy('p', retry_schedule => 'soon')".to_owned(),
            "22023",
        ),
        (
            "create_policy('p', client_error_attempts => 0)".to_owned(),
            "22023",
        ),
        ("create_policy('p', max_in_flight => 0)".to_owned(), "22023"),
        ("create_policy('p', rate => 0)".to_owned(), "22023"),
        (
            "create_policy('p', rate => 1, burst => 0)".to_owned(),
            "22023",
        ),
        ("create_policy('p', max_age => '-1 s')".to_owned(), "22023"),
        ("update_policy('nowhere', rate => 1)".to_owned(), "42704"),
        (
            "update_policy('kept', reset => '{colour}')".to_owned(),
            "22023",
        ),
        ("delete_policy('nowhere')".to_owned(), "42704"),
        ("delete_policy('kept')".to_owned(), "55000"),
        ("delete_policy('default')".to_owned(), "55000"),
        (
            format!("create_endpoint('kept', '{url}', policy => 'nowhere', verify => 'none')"),
            "42704",
        ),
        (
            format!("update_endpoint({}, policy => 'nowhere')", endpoint.id),
            "42704",
        ),
    ] {
        let (found, message) = shop.refusal(&format!("select webhook.{statement}"));
        assert_eq!(found, code, "{statement}: {message}");
    }
    assert!(shop.is(
        "(retry_schedule, description) = ('5s,5m', 'for the patient') from webhook.policies where name = 'kept'"
    ));
    shop.run(&format!(
        "select webhook.delete_endpoint({}, 'no more');
         select webhook.delete_policy('kept')",
        endpoint.id
    ));
    assert_eq!(
        shop.column("select name from webhook.policies where name in ('kept', 'default')"),
        ["default"]
    );
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_rate_limit_of_one_endpoint_delays_no_other() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    shop.run("select webhook.create_policy('crawling', rate => 0.1, burst => 1)");
    let crawling = shop.endpoint_with("rates", &receiver.url("/a"), ", policy => 'crawling'");
    let free = shop.endpoint("rates", &receiver.url("/b"));
    let begun = std::time::Instant::now();
    emit(&mut shop, "rates", 50);
    shop.wait_for_deliveries(&free, "delivered", 50);
    let sent = receiver.requests_for("/a").len();
    // One at once, and one more for each ten seconds that this has taken.
    assert!(
        sent <= 2 + begun.elapsed().as_secs() as usize / 10,
        "{sent}"
    );
    // Given its head, it goes on at once: it does not sleep until the time by the old rate.
    shop.run("select webhook.update_policy('crawling', rate => 1000, burst => 100)");
    shop.wait_for_deliveries(&crawling, "delivered", 50);
}

/// Emits events with the numbers from 1 as their payload.
fn emit(shop: &mut Outbox, partner: &str, count: usize) {
    shop.run(&format!(
        "select webhook.emit('order.paid', '{partner}', to_jsonb(n)) from generate_series(1, {count}) n"
    ));
}
