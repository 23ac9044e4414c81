//! How many requests an endpoint gets at once, learnt from its answers: it begins with one, is left alone but for a
//! probe while it is down, costs nothing meanwhile, and gets its backlog back at a pace that it stands.

use std::{
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    arrivals::{assert_ramp, numbers},
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, ClosedPort, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        // Retries come soon and go on for longer than any test.
        .setting("webhook.retry_schedule", &["3s"; 50].join(","))
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// Probes come after 1, 2, 4, 8 s: what waits for one, waits.
const OUTAGE: Duration = Duration::from_secs(120);

#[test]
fn a_new_endpoint_gets_one_request_first_and_more_as_it_answers() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let service = Duration::from_millis(150);
    receiver.behave("/hook", move |_| Answer::status(200).after(service));
    let endpoint = shop.endpoint("new", &receiver.url("/hook"));
    assert_eq!(shop.health(&endpoint, "health"), "unknown");
    emit(&mut shop, "new", 100);
    shop.wait_for_deliveries(&endpoint, "delivered", 100);
    let arrivals = receiver.requests().iter().map(|r| r.at).collect();
    assert_ramp(arrivals, service);
    assert!((4..=8).contains(&receiver.peak()), "{}", receiver.peak());
    shop.wait_for_health(&endpoint, "health = 'healthy' and adaptive_window > 1");
}

#[test]
fn the_backlog_of_a_down_endpoint_costs_a_probe_now_and_then_and_no_write() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(503));
    let endpoint = shop.endpoint("down", &receiver.url("/hook"));
    let start = Instant::now();
    emit(&mut shop, "down", 200);
    shop.wait_until(&format!(
        "(select count(*) = 200 from webhook.deliveries
           where endpoint_id = {} and state in ('pending', 'retrying'))",
        endpoint.id
    ));
    shop.wait_for_health(
        &endpoint,
        "health = 'down' and adaptive_window = 0 and probe_at is not null",
    );
    let count = receiver.count();
    let before = shop.due_versions(&endpoint);
    assert_eq!(before.len(), 200);
    // Three probes more, or two and the one that was under way.
    receiver.wait_for(count + 3, OUTAGE);
    let after = shop.due_versions(&endpoint);
    let probes = receiver.count() - count;
    assert_eq!(after.len(), 200);
    let written = before
        .iter()
        .filter(|(event, version)| after.get(*event) != Some(*version))
        .count();
    assert!(written <= probes + 1, "{written} rows, {probes} probes");
    let all = receiver.count();
    assert!(all <= most_requests(start.elapsed()), "{all} requests");
    assert_eq!(receiver.peak(), 1, "probes go alone");
    // Each of them is a numbered attempt; none but the first used up the schedule.
    shop.wait_until(&format!(
        "(select sum(attempt_count) >= 4 and sum(attempt_count) - sum(series_start) = 1
            from webhook.deliveries where endpoint_id = {})",
        endpoint.id
    ));
    // Counted at once: a probe turns one into the other meanwhile.
    let open = format!(
        "select count(*) from webhook.deliveries
          where endpoint_id = {} and state in ('pending', 'retrying')",
        endpoint.id
    );
    assert_eq!(shop.number(&open), 200);
}

#[test]
fn a_host_that_refuses_connections_is_not_hammered() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let closed = ClosedPort::take();
    let url = format!("http://{}/hook", closed.address());
    let endpoint = shop.endpoint("refusing", &url);
    let start = Instant::now();
    emit(&mut shop, "refusing", 200);
    shop.wait_until(&format!(
        "(select count(*) = 200 from webhook.deliveries where endpoint_id = {})",
        endpoint.id
    ));
    shop.wait_for_health(
        &endpoint,
        "health = 'down' and last_error_category = 'connect_refused'",
    );
    let attempts = format!(
        "select count(*) from webhook.attempts where endpoint_id = {}",
        endpoint.id
    );
    shop.wait_until(&format!("({attempts}) >= 3"));
    let made = usize::try_from(shop.number(&attempts)).expect("a count");
    assert!(made <= most_requests(start.elapsed()), "{made} attempts");
}

#[test]
fn a_backlog_is_drained_with_a_ramp_after_the_outage_and_nothing_of_it_died() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let service = Duration::from_millis(100);
    let healthy = Arc::new(AtomicBool::new(false));
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let (of_receiver, log) = (Arc::clone(&healthy), Arc::clone(&accepted));
    receiver.behave("/hook", move |request| {
        if !of_receiver.load(Ordering::SeqCst) {
            return Answer::status(503);
        }
        log.lock().expect("the log").push(request.at);
        Answer::status(200).after(service)
    });
    let endpoint = shop.endpoint("outage", &receiver.url("/hook"));
    emit(&mut shop, "outage", 100);
    receiver.wait_for(3, OUTAGE);
    shop.wait_until(&format!(
        "(select sum(series_start) >= 2 and bool_and(state in ('pending', 'retrying'))
            from webhook.deliveries where endpoint_id = {})",
        endpoint.id
    ));
    healthy.store(true, Ordering::SeqCst);
    shop.wait_for_deliveries_within(&endpoint, "delivered", 100, OUTAGE);
    let accepted = accepted.lock().expect("the log").clone();
    assert_eq!(accepted.len(), 100);
    assert_ramp(accepted, service);
    shop.wait_for_health(
        &endpoint,
        "health = 'healthy' and adaptive_window >= 1 and probe_at is null and failures = 0",
    );
    // What was a probe shows all of its attempts.
    assert!(shop.is(&format!(
        "count(*) >= 3 from webhook.attempts where endpoint_id = {} and status = 503",
        endpoint.id
    )));
}

#[test]
fn nothing_is_sent_before_the_time_that_a_busy_endpoint_asked_for_is_over() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let busy = Answer::status(429).header("Retry-After", "4");
    receiver.script("/hook", vec![busy, Answer::status(200)]);
    let endpoint = shop.endpoint("busy", &receiver.url("/hook"));
    emit(&mut shop, "busy", 20);
    shop.wait_for_deliveries_within(&endpoint, "delivered", 20, OUTAGE);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 21);
    let wait = requests[1].at - requests[0].at;
    assert!(wait >= Duration::from_secs(4), "{wait:?}");
}

#[test]
fn a_slow_endpoint_comes_down_to_one_request_at_a_time_and_never_to_none() {
    let cluster = Cluster::plan()
        .setting("webhook.first_pass_limit", "300ms")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| {
        Answer::status(200).after(Duration::from_millis(20))
    });
    let endpoint = shop.endpoint("slow", &receiver.url("/hook"));
    // A busy machine may make a quick answer a slow one.
    let mut quick = 0;
    wait_for("it is given several at once", OUTAGE, || {
        emit(&mut shop, "slow", 80);
        quick += 80;
        shop.wait_for_deliveries(&endpoint, "delivered", quick);
        receiver.peak() >= 2
    });
    let service = Duration::from_millis(700);
    receiver.behave("/hook", move |_| Answer::status(200).after(service));
    receiver.forget();
    emit(&mut shop, "slow", 26);
    shop.wait_for_deliveries_within(&endpoint, "delivered", quick + 26, OUTAGE);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 26);
    // 8, 4, 2 at once, and then each for itself.
    for pair in requests[20..].windows(2) {
        let apart = pair[1].at - pair[0].at;
        assert!(apart >= service, "{apart:?}");
    }
    shop.wait_for_health(&endpoint, "health = 'healthy' and adaptive_window = 1");
}

#[test]
fn the_next_life_of_the_leader_knows_that_an_endpoint_is_down() {
    // A leader of its own: what others have on the wire is not to end with it.
    let mut shop = Outbox::create(&CLUSTER, "restarted");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| {
        Answer::status(503).header("Retry-After", "600")
    });
    let endpoint = shop.endpoint("restarted", &receiver.url("/hook"));
    emit(&mut shop, "restarted", 50);
    shop.wait_for_deliveries(&endpoint, "pending", 49);
    shop.wait_for_health(&endpoint, "health = 'down'");
    let probe_at = shop.health(&endpoint, "probe_at");
    shop.restart_leader();
    // It lives and reads.
    let event = shop.emit("order.paid", "restarted", "0");
    shop.wait_for_state(&event, &endpoint, "pending");
    sleep(Duration::from_secs(1));
    assert_eq!(receiver.count(), 1);
    assert_eq!(shop.health(&endpoint, "health"), "down");
    assert_eq!(shop.health(&endpoint, "probe_at"), probe_at);
}

#[test]
fn a_delivery_at_a_down_endpoint_dies_when_the_time_of_its_schedule_is_over() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(503));
    shop.run("select webhook.create_policy('brief', retry_schedule => '500ms,500ms,500ms')");
    let endpoint = shop.endpoint_with("dying", &receiver.url("/hook"), ", policy => 'brief'");
    let event = shop.emit("order.paid", "dying", "{}");
    let dead = shop.wait_for_state(&event, &endpoint, "dead");
    assert!(dead.reason.is_some());
    let attempts = shop.attempts(&event, &endpoint);
    let (first, last) = (&attempts[0], attempts.last().expect("an attempt"));
    let (begin, end) = (first.started_at, last.started_at);
    assert!(end - begin >= 1.4, "{attempts:?}");
    assert_eq!(last.outcome, "dead");
    let earlier = &attempts[..attempts.len() - 1];
    assert!(!earlier.is_empty() && earlier.iter().all(|a| a.outcome == "retry"));
}

#[test]
fn an_answer_of_500_is_about_one_message_and_the_others_go_on() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |request| {
        let odd = numbers(std::slice::from_ref(request))[0] % 2 == 1;
        Answer::status(if odd { 500 } else { 200 })
    });
    let endpoint = shop.endpoint("neutral", &receiver.url("/hook"));
    emit(&mut shop, "neutral", 60);
    shop.wait_for_deliveries(&endpoint, "delivered", 30);
    shop.wait_for_deliveries(&endpoint, "retrying", 30);
    shop.wait_for_health(&endpoint, "health <> 'down' and adaptive_window >= 1");
    // None of them was a probe.
    assert!(shop.is(&format!(
        "max(series_start) = 0 from webhook.deliveries where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn a_down_endpoint_takes_nothing_from_the_others_of_its_partner() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/down", |_| Answer::status(502));
    let down = shop.endpoint("beside", &receiver.url("/down"));
    let up = shop.endpoint("beside", &receiver.url("/up"));
    emit(&mut shop, "beside", 300);
    shop.wait_for_health(&down, "health = 'down'");
    shop.wait_for_deliveries(&up, "delivered", 300);
    let start = Instant::now();
    let event = shop.emit("order.paid", "beside", "0");
    shop.wait_for_state(&event, &up, "delivered");
    assert!(start.elapsed() < PATIENCE / 3, "{:?}", start.elapsed());
    assert_eq!(shop.deliveries(&down, "delivered"), 0);
}

/// Emits events with the numbers from 1 as their payload.
fn emit(shop: &mut Outbox, partner: &str, count: usize) {
    shop.run(&format!(
        "select webhook.emit('order.paid', '{partner}', to_jsonb(n)) from generate_series(1, {count}) n"
    ));
}

/// The most requests that an endpoint which never accepts can have got in this time: one, then probes after 1, 2, 4 s
/// and so on; and one to spare.
fn most_requests(time: Duration) -> usize {
    let mut count = 2;
    let (mut at, mut wait) = (Duration::from_secs(1), Duration::from_secs(1));
    while at <= time {
        count += 1;
        wait = (wait * 2).min(Duration::from_secs(60));
        at += wait;
    }
    count
}
