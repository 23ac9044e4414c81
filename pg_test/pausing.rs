//! Pausing an endpoint, a partner, an event type or everything: nothing of it leaves while the rest goes on, what waits
//! is not written again, and its end sends what has gathered, in order and with a ramp. And what ends a queue for good.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    arrivals::{assert_ramp, numbers, types},
    cluster::Cluster,
    outbox::{Outbox, PATIENCE, quoted},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn a_paused_endpoint_gets_nothing_while_another_of_its_partner_gets_all() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let paused = shop.endpoint("endpoints", &receiver.url("/paused"));
    let other = shop.endpoint("endpoints", &receiver.url("/other"));
    let reply = shop.have_done(&format!("pause('endpoint', '{}', 'they move')", paused.id));
    emit(&mut shop, "order.paid", "endpoints", 1..=20);
    shop.wait_for_deliveries(&other, "delivered", 20);
    shop.wait_for_deliveries(&paused, "pending", 20);
    assert!(receiver.requests_for("/paused").is_empty());
    assert!(shop.is(&format!(
        "(verb, scope, target, reason) = ('pause', 'endpoint', '{}', 'they move')
           from webhook.requests where request_id = {}",
        paused.id, reply.id
    )));
    assert!(shop.is(&format!(
        "(state, state_reason) = ('paused', 'they move') from webhook.endpoints where endpoint_id = {}",
        paused.id
    )));
    assert!(shop.is(&format!(
        "(reason, paused_by) = ('they move', 'postgres') and paused_at < clock_timestamp()
           from webhook.pauses where scope = 'endpoint' and target = '{}'",
        paused.id
    )));
    assert_eq!(shop.health(&paused, "health"), "held");
    shop.have_done(&format!(
        "resume('endpoint', '{}', 'they are there')",
        paused.id
    ));
    shop.wait_for_deliveries(&paused, "delivered", 20);
    assert!(
        shop.is(
            "count(*) = 0 from webhook.pauses where scope = 'endpoint' and reason = 'they move'"
        )
    );
}

#[test]
fn a_paused_partner_gets_nothing_while_others_get_all_and_a_restart_changes_nothing() {
    // A leader of its own: what others have on the wire is not to end with it.
    let mut shop = Outbox::create(&CLUSTER, "partners");
    let receiver = Receiver::http();
    let paused = shop.endpoint("partners", &receiver.url("/paused"));
    let other = shop.endpoint("partners.other", &receiver.url("/other"));
    shop.have_done("pause('partner', 'partners', 'a dispute')");
    shop.wait_for_health(&paused, "paused_by_scope = '{partner}'");
    emit(&mut shop, "order.paid", "partners", 1..=10);
    shop.wait_for_deliveries(&paused, "pending", 10);
    shop.restart_leader();
    for partner in ["partners", "partners.other"] {
        emit(&mut shop, "order.paid", partner, 11..=20);
    }
    shop.wait_for_deliveries(&other, "delivered", 10);
    shop.wait_for_deliveries(&paused, "pending", 20);
    assert!(receiver.requests_for("/paused").is_empty());
    assert!(shop.is(
        "reason = 'a dispute' from webhook.pauses where (scope, target) = ('partner', 'partners')"
    ));
    // The endpoint itself is as active as it was.
    assert!(shop.is(&format!(
        "state = 'active' from webhook.endpoints where endpoint_id = {}",
        paused.id
    )));
    shop.have_done("resume('partner', 'partners')");
    shop.wait_for_deliveries(&paused, "delivered", 20);
}

#[test]
fn a_paused_type_waits_while_others_pass_and_leaves_in_the_order_of_its_events() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let alone = ", max_in_flight => 1";
    let endpoint = shop.endpoint_with("types", &receiver.url("/hook"), alone);
    shop.have_done("pause('event_type', 'stock.changed', 'counting')");
    for number in 1..=10 {
        emit(&mut shop, "stock.changed", "types", number..=number);
        // The type alone, no pattern.
        emit(&mut shop, "stock.changed.twice", "types", number..=number);
        emit(&mut shop, "stock", "types", number..=number);
    }
    shop.wait_for_deliveries(&endpoint, "delivered", 20);
    shop.wait_for_deliveries(&endpoint, "pending", 10);
    assert!(!types(&receiver.requests()).contains(&"stock.changed".to_owned()));
    assert!(shop.is(&format!(
        "bool_and(held_by = '{{event_type}}') from webhook.deliveries
          where endpoint_id = {} and type = 'stock.changed'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "held = 10 from webhook.stat_endpoint where endpoint_id = {}",
        endpoint.id
    )));
    receiver.forget();
    shop.have_done("resume('event_type', 'stock.changed')");
    shop.wait_for_deliveries(&endpoint, "delivered", 30);
    assert_eq!(numbers(&receiver.requests()), Vec::from_iter(1..=10));
}

#[test]
fn everything_can_be_paused_at_once() {
    let mut shop = Outbox::create(&CLUSTER, "standstill");
    let receiver = Receiver::http();
    let endpoints = ["a", "b", "c"].map(|partner| shop.endpoint(partner, &receiver.url("/hook")));
    shop.have_done("pause('all', null, 'the house is on fire')");
    for partner in ["a", "b", "c"] {
        emit(&mut shop, "order.paid", partner, 1..=5);
    }
    for endpoint in &endpoints {
        shop.wait_for_deliveries(endpoint, "pending", 5);
        assert_eq!(shop.health(endpoint, "paused_by_scope"), "{all}");
    }
    shop.restart_leader();
    emit(&mut shop, "order.paid", "a", 6..=6);
    shop.wait_for_deliveries(&endpoints[0], "pending", 6);
    // Two pauses over one endpoint: both have to end.
    shop.have_done("pause('partner', 'a', 'and the partner, too')");
    assert_eq!(receiver.count(), 0);
    shop.have_done("resume('all')");
    shop.wait_for_deliveries(&endpoints[1], "delivered", 5);
    shop.wait_for_deliveries(&endpoints[2], "delivered", 5);
    assert_eq!(shop.deliveries(&endpoints[0], "pending"), 6);
    shop.have_done("resume('partner', 'a')");
    shop.wait_for_deliveries(&endpoints[0], "delivered", 6);
    assert_eq!(receiver.count(), 16);
}

#[test]
fn pausing_an_endpoint_or_a_partner_writes_no_row_of_what_waits() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let endpoint = shop.endpoint("untouched", &receiver.url("/hook"));
    emit(&mut shop, "order.paid", "untouched", 1..=100);
    shop.wait_for_deliveries(&endpoint, "retrying", 100);
    let before = shop.due_versions(&endpoint);
    assert_eq!(before.len(), 100);
    for (scope, target) in [
        ("endpoint", endpoint.id.to_string()),
        ("partner", "untouched".to_owned()),
    ] {
        shop.have_done(&format!("pause('{scope}', '{target}', 'a while')"));
        assert_eq!(shop.due_versions(&endpoint), before, "{scope}");
        shop.have_done(&format!("resume('{scope}', '{target}')"));
        assert_eq!(shop.due_versions(&endpoint), before, "{scope}");
    }
}

#[test]
fn from_the_time_that_the_request_shows_nothing_starts_any_more() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| {
        Answer::status(200).after(Duration::from_millis(20))
    });
    let endpoint = shop.endpoint("stream", &receiver.url("/hook"));
    let (stop, mut emitter) = (AtomicBool::new(false), shop.another());
    scope(|threads| {
        threads.spawn(|| {
            // Ends also if nobody says so, because the test has failed.
            let start = Instant::now();
            while !stop.load(Ordering::SeqCst) && start.elapsed() < PATIENCE * 2 {
                emit(&mut emitter, "order.paid", "stream", 1..=3);
                sleep(Duration::from_millis(5));
            }
        });
        receiver.wait_for(50, PATIENCE);
        let reply = shop.have_done("pause('partner', 'stream', 'stop')");
        // Events go on to be emitted: two seconds after the pause are a long time.
        sleep(Duration::from_secs(3));
        stop.store(true, Ordering::SeqCst);
        assert!(shop.is(&format!(
            "count(*) = 0 from webhook.attempts
              where endpoint_id = {} and started_at > (select finished_at + interval '2 s'
                                                         from webhook.requests where request_id = {})",
            endpoint.id, reply.id
        )));
        assert_eq!(receiver.in_flight(), 0);
    });
    shop.have_done("resume('partner', 'stream')");
    let emitted = shop.number("select count(*) from webhook.events where partner_id = 'stream'");
    shop.wait_for_deliveries(&endpoint, "delivered", emitted);
}

#[test]
fn what_gathered_leaves_by_priority_and_then_in_the_order_of_its_events() {
    // A database of its own, because everything is paused.
    let mut shop = Outbox::create(&CLUSTER, "gathered");
    shop.run("select webhook.create_event_type('alarm.raised', priority => 0)");
    for scope in ["endpoint", "partner", "all"] {
        gather_and_leave(&mut shop, scope);
    }
}

/// Pauses the scope, lets events gather, and ends the pause.
fn gather_and_leave(shop: &mut Outbox, scope: &str) {
    let receiver = Receiver::http();
    let alone = ", max_in_flight => 1";
    let endpoint = shop.endpoint_with(scope, &receiver.url("/hook"), alone);
    let target = match scope {
        "endpoint" => format!("'{}'", endpoint.id),
        "partner" => quoted(scope),
        _ => "null".to_owned(),
    };
    shop.have_done(&format!("pause('{scope}', {target}, 'later')"));
    for number in 1..=15 {
        emit(shop, "order.paid", scope, number..=number);
        if number % 3 == 0 {
            emit(shop, "alarm.raised", scope, number..=number);
        }
    }
    shop.wait_for_deliveries(&endpoint, "pending", 20);
    assert_eq!(receiver.count(), 0, "{scope}");
    shop.have_done(&format!("resume('{scope}', {target})"));
    shop.wait_for_deliveries(&endpoint, "delivered", 20);
    let requests = receiver.requests();
    let kinds = types(&requests);
    let (alarms, orders): (Vec<_>, Vec<_>) = numbers(&requests)
        .into_iter()
        .zip(&kinds)
        .partition(|(_, kind)| *kind == "alarm.raised");
    let only =
        |of: Vec<(i64, &String)>| of.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(only(alarms), [3, 6, 9, 12, 15], "{scope}");
    assert_eq!(only(orders), Vec::from_iter(1..=15), "{scope}");
    // Alarms first; that one order in some alarms may pass is what keeps orders from starving.
    assert_eq!(kinds[0], "alarm.raised", "{scope}");
    let last_alarm = kinds.iter().rposition(|kind| kind == "alarm.raised");
    assert!(last_alarm <= Some(6), "{scope}: {kinds:?}");
}

#[test]
fn what_gathered_leaves_with_a_ramp() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let service = Duration::from_millis(100);
    receiver.behave("/hook", move |_| Answer::status(200).after(service));
    let endpoint = shop.endpoint("ramp", &receiver.url("/hook"));
    shop.have_done(&format!("pause('endpoint', '{}', 'later')", endpoint.id));
    emit(&mut shop, "order.paid", "ramp", 1..=80);
    shop.wait_for_deliveries(&endpoint, "pending", 80);
    shop.have_done(&format!("resume('endpoint', '{}')", endpoint.id));
    shop.wait_for_deliveries(&endpoint, "delivered", 80);
    assert_ramp(receiver.requests().iter().map(|r| r.at).collect(), service);
    assert!(receiver.peak() > 2, "{}", receiver.peak());
}

#[test]
fn narrowing_the_event_types_cancels_what_does_not_match_any_more() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/hook", |_| Answer::status(500));
    let endpoint = shop.endpoint("narrowed", &receiver.url("/hook"));
    emit(&mut shop, "order.paid", "narrowed", 1..=10);
    emit(&mut shop, "stock.low", "narrowed", 1..=10);
    shop.wait_for_deliveries(&endpoint, "retrying", 20);
    shop.run(&format!(
        "select webhook.update_endpoint({}, event_types => '{{order.*}}')",
        endpoint.id
    ));
    shop.wait_for_deliveries(&endpoint, "cancelled", 10);
    assert!(shop.is(&format!(
        "bool_and(type = 'stock.low' and reason <> '' and next_attempt_at is null)
           from webhook.deliveries where endpoint_id = {} and state = 'cancelled'",
        endpoint.id
    )));
    assert_eq!(shop.deliveries(&endpoint, "retrying"), 10);
}

#[test]
fn deleting_a_paused_endpoint_cancels_what_it_held_and_says_why() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("deleted", &receiver.url("/hook"));
    shop.have_done(&format!("pause('endpoint', '{}', 'later')", endpoint.id));
    emit(&mut shop, "order.paid", "deleted", 1..=10);
    shop.wait_for_deliveries(&endpoint, "pending", 10);
    shop.run(&format!(
        "select webhook.delete_endpoint({}, 'they left')",
        endpoint.id
    ));
    shop.wait_for_deliveries(&endpoint, "cancelled", 10);
    assert!(shop.is(&format!(
        "bool_and(reason like '%they left') from webhook.deliveries where endpoint_id = {}",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "count(*) = 0 from webhook.pauses where target = '{}'",
        endpoint.id
    )));
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_pause_that_makes_no_sense_is_refused() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let [active, disabled] = ["/a", "/b"].map(|path| shop.endpoint("senses", &receiver.url(path)));
    let (active, disabled) = (active.id, disabled.id);
    shop.run(&format!(
        "select webhook.disable_endpoint({disabled}, 'off')"
    ));
    shop.have_done("pause('partner', 'senses', 'once')");
    for (statement, code) in [
        ("pause('partner', 'senses', 'twice')".to_owned(), "55000"),
        ("resume('partner', 'senses.other')".to_owned(), "55000"),
        ("resume('event_type', 'no.such')".to_owned(), "55000"),
        (format!("resume('endpoint', '{active}')"), "55000"),
        (format!("pause('endpoint', '{disabled}', 'why')"), "55000"),
        ("pause('endpoint', '1', 'why')".to_owned(), "42704"),
        ("pause('endpoint', 'one', 'why')".to_owned(), "22023"),
        ("pause('universe', 'x', 'why')".to_owned(), "22023"),
        ("pause('event_type', 'stock.*', 'why')".to_owned(), "22023"),
        ("pause('partner', null, 'why')".to_owned(), "22004"),
        ("pause('partner', 'senses.other', null)".to_owned(), "22004"),
        ("pause('partner', 'senses.other', '')".to_owned(), "22023"),
    ] {
        let (found, message) = shop.refusal(&format!("select webhook.{statement}"));
        assert_eq!(found, code, "{statement}: {message}");
    }
    // A pause that is rolled back has never been.
    shop.run("begin; select webhook.pause('event_type', 'rolled.back', 'no'); rollback");
    let other = shop.endpoint("senses.other", &receiver.url("/c"));
    let event = shop.emit("rolled.back", "senses.other", "{}");
    shop.wait_for_state(&event, &other, "delivered");
    wait_for("no request waits", PATIENCE, || {
        shop.is("pending_requests = 0 from webhook.stat_queue")
    });
}

/// Emits events with these numbers as their payload, in one statement.
fn emit(shop: &mut Outbox, kind: &str, partner: &str, numbers: std::ops::RangeInclusive<usize>) {
    shop.run(&format!(
        "select webhook.emit('{kind}', '{partner}', to_jsonb(n)) from generate_series({}, {}) n",
        numbers.start(),
        numbers.end()
    ));
}
