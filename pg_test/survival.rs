//! What the leader survives and what it does not let others suffer from: rows that nobody should have written, results
//! that cannot be stored, an owner that is dropped, and an event that ends the process whenever it is sent.

use std::{sync::LazyLock, thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE, quoted},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

#[path = "survival/poison.rs"]
mod poison;

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

#[test]
fn a_row_that_nobody_should_have_written_stops_nothing() {
    let mut shop = Outbox::create(&CLUSTER, "rows");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("sound", &receiver.url("/sound"));
    let known = shop.emit("order.paid", "sound", "{}");
    shop.wait_for_state(&known, &endpoint, "delivered");
    let life = "select (pid, incarnation, restarts)::text from webhook.stat_worker";
    let before = shop.text(life);

    let mut changes = Vec::new();
    for change in ["event_id = 'evt_?'", "partner_id = ''", "body = 'no JSON'"] {
        changes.push(format!(
            "select set_config('test.event', webhook.emit('order.paid', 'odd', '{{}}'), true);
             update webhook._event set {change} where event_id = current_setting('test.event')"
        ));
    }
    for (partner, change) in [
        ("url", "url = 'no URL'"),
        ("types", r#"event_types = '{**,"",a..b}'"#),
        ("policy", "policy = 'nobody''s'"),
        ("keys", "description = 'its keys are gone'"),
    ] {
        let path = format!("/{partner}");
        let id = shop.endpoint(partner, &receiver.url(&path)).id;
        changes.push(format!(
            "update webhook._endpoint set {change}, changed_xid = pg_current_xact_id() where endpoint_id = {id};
             delete from webhook._secret where endpoint_id = {id} and '{partner}' = 'keys';
             select webhook.emit('order.paid', '{partner}', '{{}}')"
        ));
    }
    for values in [
        format!("{}, 'evt_?', now(), 0, 0, 1", endpoint.id),
        format!("0, '{known}', now(), -1, 99, 7"),
        format!(
            "{}, 'evt_01ARZ3NDEKTSV4RRFFQ69G5FAV', '-infinity', 0, 0, 1",
            endpoint.id
        ),
    ] {
        changes.push(format!(
            "insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class)
             values ({values})"
        ));
    }
    for values in [
        format!("'retry', '{{evt_?}}', '{{{}}}'", endpoint.id),
        format!("'skip', '{{{known},null}}', '{{0,null}}'"),
        "'close', null, null".to_owned(),
        "'replay', null, null".to_owned(),
        "'pause', null, null".to_owned(),
    ] {
        changes.push(format!(
            "insert into webhook._request (request_id, origin, verb, event_ids, endpoint_ids)
             values (webhook._new_id(), webhook._origin(), {values})"
        ));
    }
    for change in &changes {
        // A constraint that refuses it is as good.
        let written = shop.sql.batch_execute(&format!("begin; {change}; commit"));
        if written.is_err() {
            shop.run("rollback");
        }
        let event = shop.emit("order.paid", "sound", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        assert_eq!(shop.text(life), before, "{change}");
    }
    sleep(A_WHILE);
    assert_eq!(shop.text(life), before);
    assert_told(&mut shop);
    let event = shop.emit("order.paid", "sound", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    wait_for(
        "the event of a policy that is gone arrives",
        PATIENCE,
        || receiver.requests_for("/policy").len() == 1,
    );
    let sent = ["/sound", "/url", "/types", "/policy", "/keys"]
        .map(|path| receiver.requests_for(path).len());
    // A policy that is gone is the default one.
    assert_eq!(sent, [changes.len() + 2, 0, 0, 1, 0]);
    assert_eq!(receiver.count(), sent.iter().sum::<usize>());
}

/// Whoever looks for what he wrote finds what became of it.
#[track_caller]
fn assert_told(shop: &mut Outbox) {
    // Two events that can be named, and one that cannot.
    shop.wait_until(
        "(select count(*) = 3 and count(event_id) = 2 and bool_and(severity = 'critical')
            from webhook.alerts where kind = 'event.fenced')",
    );
    shop.wait_until("(select count(*) = 3 from webhook._fenced)");
    // The endpoints that cannot be sent to: each attempt says why.
    for (partner, category, detail) in [
        ("url", "blocked", "URL"),
        ("keys", "internal", "endpoint has no signing key"),
    ] {
        shop.wait_until(&format!(
            "(select (d.state, d.last_error_category) = ('retrying', '{category}') and d.attempt_count > 0
                     and a.error_category = '{category}' and a.status is null and a.detail ~ '{detail}'
                from webhook.events e
                join webhook.deliveries d using (event_id)
                join webhook.attempts a on a.event_id = d.event_id and a.endpoint_id = d.endpoint_id and a.attempt_no = 1
               where e.partner_id = '{partner}')"
        ));
    }
    // What asks for nothing that can be understood is refused, and says so; what is understood in part, too.
    shop.wait_until(
        "(select count(*) = 5 and bool_and(state = 'refused' and result <> '' and finished_at is not null)
            from webhook.requests)",
    );
    // Rows of the due table are looked for by a new life; what names no event is removed, once, with a complaint.
    shop.restart_leader();
    shop.wait_until("not exists (select from webhook._due where event_id = 'evt_?')");
    assert_last_error(shop, "1 rows of webhook._due named no event");
    assert!(
        CLUSTER
            .log()
            .contains("1 rows of webhook._due named no event")
    );
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
fn a_row_that_is_there_already_is_kept_and_keeps_no_other_result_from_being_stored() {
    let mut shop = Outbox::create(&CLUSTER, "twice");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let paths = ["/twice", "/once"];
    let endpoints = paths.map(|path| {
        receiver.script(path, vec![Answer::status(200).held(&gate)]);
        shop.endpoint("twice", &receiver.url(path))
    });
    let life = "select (pid, incarnation, restarts, last_error)::text from webhook.stat_worker";
    let before = shop.text(life);
    let event = shop.emit("order.paid", "twice", "{}");
    wait_for("both requests are on the wire", PATIENCE, || {
        receiver.in_flight() == 2
    });
    // No result of this life: another one could have written it before it ended.
    shop.run(&format!(
        "insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision, delivered_at,
                                        last_latency_ms, last_status)
         values ({}, '{event}', 'delivered', 1, 0, 1, '2020-01-01', 7, 299)",
        endpoints[0].id
    ));
    gate.open();
    let stored = shop.wait_for_state(&event, &endpoints[1], "delivered");
    assert_eq!(stored.status, Some(200));
    let kept = shop.wait_for_state(&event, &endpoints[0], "delivered");
    assert_eq!(kept.status, Some(299));
    // The life goes on, and so does everything else.
    let next = shop.emit("order.paid", "twice", "{}");
    for endpoint in &endpoints {
        shop.wait_for_state(&next, endpoint, "delivered");
    }
    assert_eq!(shop.text(life), before);
    assert_eq!(receiver.count(), 4);
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

/// Waits until the last error of the leader speaks of a constraint.
#[track_caller]
fn assert_last_error(shop: &mut Outbox, constraint: &str) {
    shop.wait_until(&format!(
        "(select last_error ~ {} from webhook.stat_worker)",
        quoted(constraint)
    ));
}
