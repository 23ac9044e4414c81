//! What the leader survives and what it does not let others suffer from: rows that nobody should have written, results
//! that cannot be stored, an owner that is dropped, and an event that ends the process whenever it is sent.

use std::{
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE, quoted},
    receiver::{Answer, Receiver, Request},
    wait::{wait_for, wait_until},
};

/// Long enough for what should not happen.
const A_WHILE: Duration = Duration::from_secs(2);

/// A server of which each test has a database of its own.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    Cluster::plan()
        .setting("webhook.retry_schedule", "200ms,1h,1h")
        .setting("webhook.max_endpoints_per_partner", "100")
        // What is answered at once is recorded at once.
        .setting("webhook.result_flush_interval", "500ms")
        .start()
});

/// A server of its own for the event that ends the process: all sessions end with it.
static MORTAL: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn a_row_that_nobody_should_have_written_stops_nothing() {
    let mut shop = Outbox::create(&CLUSTER, "rows");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("sound", &receiver.url("/sound"));
    let odd = shop.endpoint("odd", &receiver.url("/odd"));
    let known = shop.emit("order.paid", "sound", "{}");
    shop.wait_for_state(&known, &endpoint, "delivered");
    let life = "(pid, incarnation, restarts)::text from webhook.stat_worker";
    let before = shop.text(&format!("select {life}"));
    let emit = "webhook.emit('order.paid', 'odd', '{}')";
    let of_odd = format!(
        "changed_xid = pg_current_xact_id() where endpoint_id = {}",
        odd.id
    );
    let (id, request) = (odd.id, "select webhook._new_id(), ");
    let due = "insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class)";
    let asked = "insert into webhook._request (request_id, verb, origin, event_ids, endpoint_ids)";
    let bad_rows = [
        format!("update webhook._event set event_id = 'evt_?' where event_id = {emit}"),
        format!("update webhook._event set partner_id = '' where event_id = {emit}"),
        format!("update webhook._event set body = 'no JSON' where event_id = {emit}"),
        format!("update webhook._endpoint set url = 'no URL', {of_odd}; select {emit}"),
        format!(
            "update webhook._endpoint set event_types = '{{**,\"\",a..b}}', {of_odd}; select {emit}"
        ),
        format!("update webhook._endpoint set policy = 'nobody''s', {of_odd}; select {emit}"),
        format!("delete from webhook._secret where endpoint_id = {id}; select {emit}"),
        format!("{due} values ({id}, 'evt_?', now(), 0, 0, 1)"),
        format!("{due} values (0, '{known}', now(), -1, 99, 7)"),
        format!("{due} values ({id}, 'evt_01ARZ3NDEKTSV4RRFFQ69G5FAV', '-infinity', 0, 0, 1)"),
        format!("{asked} {request} 'retry', webhook._origin(), '{{evt_?}}', '{{{id}}}'"),
        format!("{asked} {request} 'skip', webhook._origin(), '{{{known},null}}', '{{0,null}}'"),
        format!("{asked} {request} 'close', webhook._origin(), null, null"),
        format!("{asked} {request} 'replay', webhook._origin(), null, null"),
        format!("{asked} {request} 'pause', webhook._origin(), null, null"),
    ];
    for bad_row in &bad_rows {
        let written = shop.sql.batch_execute(&format!("begin; {bad_row}; commit"));
        // A constraint that refuses it is as good.
        if written.is_err() {
            shop.run("rollback");
        }
        let event = shop.emit("order.paid", "sound", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
    }
    sleep(A_WHILE);
    assert_eq!(shop.text(&format!("select {life}")), before);
    let event = shop.emit("order.paid", "sound", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(receiver.requests_for("/sound").len(), bad_rows.len() + 2);
    // None of the odd ones was to be sent, except with what it does not depend on.
    let sent = receiver.requests_for("/odd").len();
    assert!(sent <= 1, "{sent} requests");
}

#[test]
fn an_excerpt_that_cannot_be_stored_is_left_out_and_the_attempt_is_recorded() {
    let mut shop = Outbox::create(&CLUSTER, "excerpts");
    shop.run(
        "alter table webhook._excerpt add constraint unspeakable check (body !~ 'unspeakable')",
    );
    let receiver = Receiver::http();
    let table = [(200, "delivered"), (404, "dead"), (500, "retrying")];
    let mut endpoints = Vec::new();
    for (status, state) in table {
        for word in ["unspeakable", "harmless"] {
            let path = format!("/{status}/{word}");
            let answer = Answer::status(status).body(word);
            receiver.script(&path, vec![answer]);
            endpoints.push((
                shop.endpoint("words", &receiver.url(&path)),
                status,
                state,
                word,
            ));
        }
    }
    let leader = shop.leader();
    let event = shop.emit("order.paid", "words", "{}");
    for (endpoint, status, state, word) in &endpoints {
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        let what = format!("{status} {word}");
        // The second attempt of a retried one follows soon.
        assert!(delivery.state == *state, "{what}: {delivery:?}");
        assert_eq!(delivery.status, Some(*status), "{what}");
        let attempt = shop.attempts(&event, endpoint).remove(0);
        assert_eq!(attempt.status, Some(*status), "{what}");
        let kept = shop.text(&format!(
            "select webhook.read_excerpt('{}', 1)",
            delivery.id
        ));
        let expected = if *word == "harmless" { word } else { "" };
        assert_eq!(kept, expected, "{what}");
    }
    assert_eq!(shop.leader(), leader);
    assert_last_error(&mut shop, "unspeakable");
}

#[test]
fn a_result_that_cannot_be_stored_is_isolated_told_and_settled_by_the_next_life() {
    let mut shop = Outbox::create(&CLUSTER, "teapots");
    shop.run("alter table webhook._delivery add constraint no_teapots check (last_status <> 418)");
    let receiver = Receiver::http();
    receiver.script("/first", vec![Answer::status(418)]);
    receiver.script("/second", vec![Answer::status(500), Answer::status(418)]);
    // Answered at the same time and recorded together.
    let mut endpoints: Vec<Endpoint> = (0..50)
        .map(|n| shop.endpoint("kitchen", &receiver.url(&format!("/{n}"))))
        .collect();
    let bad = ["/first", "/second"].map(|path| shop.endpoint("kitchen", &receiver.url(path)));
    let leader = shop.leader();
    let event = shop.emit("tea.ordered", "kitchen", "{}");
    for endpoint in &endpoints {
        shop.wait_for_state(&event, endpoint, "delivered");
    }
    for endpoint in &bad {
        shop.wait_until(&format!(
            "(select count(*) = 1 from webhook.alerts
               where (kind, severity, event_id, endpoint_id, partner_id)
                   = ('delivery.unrecorded', 'critical', '{event}', {}, 'kitchen'))",
            endpoint.id
        ));
    }
    assert_last_error(&mut shop, "no_teapots");
    // What had no row has none, what had one has it as it was, and nobody is bothered again and again.
    assert_eq!(shop.delivery(&event, &bad[0]), None);
    assert_eq!(
        shop.delivery(&event, &bad[1])
            .map(|delivery| delivery.attempts),
        Some(1)
    );
    sleep(A_WHILE);
    let sent = |path: &str| receiver.requests_for(path).len();
    assert_eq!((sent("/first"), sent("/second")), (1, 2));
    let next = shop.emit("order.paid", "kitchen", "{}");
    for endpoint in &endpoints {
        shop.wait_for_state(&next, endpoint, "delivered");
    }
    assert_eq!(shop.leader(), leader);

    shop.run("alter table webhook._delivery drop constraint no_teapots");
    shop.restart_leader();
    for (endpoint, expected) in bad.iter().zip([
        &["lost", "client_error"][..],
        &["server_error", "lost", "client_error"],
    ]) {
        for event in [&event, &next] {
            shop.wait_for_state(event, endpoint, "dead");
        }
        let attempts = shop.attempts(&event, endpoint);
        let categories: Vec<&str> = attempts
            .iter()
            .filter_map(|attempt| attempt.category.as_deref())
            .collect();
        assert_eq!(categories, expected);
    }
    endpoints.extend(bad);
    let all = 2 * endpoints.len();
    assert_eq!(
        shop.number("select count(*) from webhook.deliveries"),
        i64::try_from(all).expect("a count")
    );
    assert!(shop.is("every(state in ('delivered', 'dead')) from webhook.deliveries"));
}

#[test]
fn the_owner_of_the_extension_can_be_dropped_while_the_leader_runs() {
    CLUSTER.create_database("owned");
    let mut shop = Outbox::join(&CLUSTER, "owned");
    shop.run(
        "create role chief superuser;
         set session authorization chief;
         create extension webhook_outbox;
         reset session authorization",
    );
    shop.wait_for_worker("running");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(500), Answer::status(200)]);
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let first = shop.emit("order.paid", "a", "{}");
    shop.wait_for_attempts(&first, &endpoint, 1);
    assert!(
        shop.is("extowner = 'chief'::regrole from pg_extension where extname = 'webhook_outbox'")
    );
    shop.run(
        "reassign owned by chief to postgres;
         drop owned by chief;
         drop role chief",
    );
    let second = shop.emit("order.paid", "a", "{}");
    for event in [&first, &second] {
        shop.wait_for_state(event, &endpoint, "delivered");
    }
    shop.wait_for_worker("running");
    assert!(
        shop.is(
            "extowner = 'postgres'::regrole from pg_extension where extname = 'webhook_outbox'"
        )
    );
}

#[test]
fn an_event_that_ends_the_process_is_held_after_four_deaths_and_all_others_are_delivered() {
    const OTHERS: usize = 20;
    /// How long the others are on the wire.
    const DELAY: Duration = Duration::from_millis(100);
    let receiver = Receiver::http();
    receiver.behave("/deadly", |request| match is_poison(request) {
        true => {
            kill_leader();
            Answer::close()
        }
        false => Answer::status(200).after(DELAY),
    });
    receiver.behave("/other", |_| Answer::status(200).after(DELAY));
    let (deadly, other) = {
        let mut shop = Outbox::join(&MORTAL, "shop");
        (
            shop.endpoint("a", &receiver.url("/deadly")),
            shop.endpoint("a", &receiver.url("/other")),
        )
    };
    let statement = format!(
        "select webhook.emit('order.paid', 'a', jsonb_build_object('poison', n = {0}))
           from generate_series(0, {OTHERS}) n order by n",
        OTHERS / 2
    );
    let events = Outbox::join(&MORTAL, "shop").column(&statement);
    let poison = &events[OTHERS / 2];

    // Every death ends all sessions, so that each look needs a new one.
    let held = format!(
        "held_by = '{{quarantine}}' and state = 'retrying' and next_attempt_at is null and attempt_count = 4
           from webhook.deliveries where event_id = '{poison}' and endpoint_id = {}",
        deadly.id
    );
    wait_for("the event is held", PATIENCE * 2, || look(&held));
    let delivered = format!(
        "count(*) = {} from webhook.deliveries where state = 'delivered'",
        2 * OTHERS + 1
    );
    wait_for("everything else is delivered", PATIENCE * 2, || {
        look(&delivered)
    });

    let deaths = of_poison(&receiver);
    assert_eq!(deaths.len(), 4);
    for (n, request) in deaths.iter().enumerate() {
        assert_eq!(
            request.header("webhook-attempt"),
            Some(&*(n + 1).to_string())
        );
    }
    // The last time it was sent, no other one that might have been to blame was on the wire.
    let last = deaths[3].at;
    let beside = receiver.requests().into_iter().filter(|request| {
        let attempt: usize = request
            .header("webhook-attempt")
            .and_then(|number| number.parse().ok())
            .expect("a number");
        !(is_poison(request) && request.target == "/deadly")
            && attempt > 3
            && request.at <= last
            && last.duration_since(request.at) < DELAY
    });
    assert_eq!(beside.count(), 0);

    let mut shop = Outbox::join(&MORTAL, "shop");
    shop.wait_for_worker("running");
    let alerts = shop.rows(&format!(
        "select kind, partner_id from webhook.alerts where event_id = '{poison}' and endpoint_id = {}",
        deadly.id
    ));
    let alert = ["delivery.quarantined", "a"].map(|text| Some(text.to_owned()));
    assert_eq!(alerts, [alert.to_vec()]);
    assert_eq!(shop.number("select count(*) from webhook.alerts"), 1);
    // It stays held, and holds nobody up.
    let next = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&next, &deadly, "delivered");
    shop.wait_for_state(&next, &other, "delivered");
    sleep(A_WHILE);
    assert_eq!(of_poison(&receiver).len(), 4);

    receiver.behave("/deadly", |_| Answer::status(200));
    let delivery = shop.delivery(poison, &deadly).expect("its row");
    let reason = quoted("the receiver was mended");
    shop.have_done(&format!("retry('{}', {reason})", delivery.id));
    let delivery = shop.wait_for_state(poison, &deadly, "delivered");
    assert_eq!(delivery.attempts, 5);
    assert!(shop.is(&format!(
        "held_by is null from webhook.deliveries where delivery_id = '{}'",
        delivery.id
    )));
    let attempts = shop.attempts(poison, &deadly);
    assert!(
        attempts[..4]
            .iter()
            .all(|attempt| attempt.category.as_deref() == Some("lost")),
        "{attempts:?}"
    );
    assert_eq!(attempts[4].status, Some(200));
}

/// Waits until the last error of the leader speaks of a constraint.
#[track_caller]
fn assert_last_error(shop: &mut Outbox, constraint: &str) {
    shop.wait_until(&format!(
        "(select last_error ~ {} from webhook.stat_worker)",
        quoted(constraint)
    ));
}

fn is_poison(request: &Request) -> bool {
    request.text().contains(r#""poison": true"#)
}

/// The requests that ended the process.
fn of_poison(receiver: &Receiver) -> Vec<Request> {
    let mut requests = receiver.requests_for("/deadly");
    requests.retain(is_poison);
    requests
}

/// Ends the leader as a fault in it would, and waits until it is gone.
fn kill_leader() {
    let query = "select pid from pg_stat_activity
                  where backend_type = 'webhook_outbox leader' and datname = 'shop'";
    let pid = wait_until("there is a leader", PATIENCE, || {
        let mut sql = MORTAL.try_connect("shop").ok()?;
        let pid: i32 = sql.query_opt(query, &[]).ok()??.get(0);
        Some(pid)
    });
    MORTAL.signal(pid, Signal::SIGKILL);
    let end = Instant::now() + PATIENCE;
    // A panic here would end only the thread of the receiver.
    while MORTAL.has_process(pid) && Instant::now() < end {
        sleep(Duration::from_millis(1));
    }
}

/// Whether a condition holds; no when the server is just coming back.
fn look(condition: &str) -> bool {
    let Ok(mut sql) = MORTAL.try_connect("shop") else {
        return false;
    };
    sql.query_one(&format!("select {condition}"), &[])
        .is_ok_and(|row| row.get::<_, Option<bool>>(0) == Some(true))
}
