//! Replays of a range: everything of it, what failed, or what is missing, at a bounded rate, each delivery once, whatever
//! ends meanwhile.
//!
//! A longer run by environment: WEBHOOK_EVENTS, WEBHOOK_KILLS, WEBHOOK_SEED.

use std::{
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    meter::number,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    say,
    scene::CATCH_UP,
    wait::{wait_for, wait_until},
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "200ms")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn everything_of_a_range_is_sent_again_once_at_its_rate() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("rated", &receiver.url("/hook"));
    emit_many(&mut shop, "order.paid", "rated", 300);
    shop.wait_for_deliveries(&endpoint, "delivered", 300);
    let dry = shop.rows("select endpoint_id, events, deliveries, complete, request_id from webhook.replay_range('rated', now() - interval '1 hour', now(), 'r', dry_run => true)");
    let dry: Vec<Vec<String>> = dry.into_iter().map(texts).collect();
    assert_eq!(dry, [[&endpoint.id.to_string(), "300", "300", "t", ""]]);
    let begun = Instant::now();
    let replay = replay(
        &mut shop,
        "'rated', now() - interval '1 hour', now(), 'they lost a disk', rate => 100",
    );
    shop.wait_until(&format!(
        "(select state = 'done' from webhook.replays where request_id = {replay})"
    ));
    let took = begun.elapsed();
    // The last deliveries are made by then; the burst is at most two fifths of a second.
    assert!(took > Duration::from_millis(2_500), "{took:?}");
    receiver.wait_for(600, PATIENCE);
    shop.wait_for_deliveries(&endpoint, "delivered", 300);
    shop.wait_until(
        "(select bool_and(attempt_count = 2) from webhook.deliveries where partner_id = 'rated')",
    );
    assert_eq!(receiver.count(), 600);
    assert_eq!(
        counts(&mut shop, replay),
        "estimate 300, looked at 300, made 0, again 300, under way 0, unwanted 0, closed 0, expunged 0, fenced 0"
    );
    assert!(shop.is(&format!(
        "state = 'done' and deliveries = 300 and result = '300 to be sent again, 0 made' from webhook.requests where request_id = {replay}"
    )));
    assert!(shop.is(&format!(
        "actor = session_user and reason = 'they lost a disk' and after ->> 'rate' = '100' from webhook.audit_log where verb = 'replay_range' and request_id = {replay}"
    )));
}

#[test]
fn what_an_endpoint_missed_is_made_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "missed",
        &receiver.url("/hook"),
        ", event_types => '{order.*}'",
    );
    emit_many(&mut shop, "order.paid", "missed", 3);
    shop.wait_for_deliveries(&endpoint, "delivered", 3);
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'being rebuilt')",
        endpoint.id
    ));
    emit_many(&mut shop, "order.paid", "missed", 5);
    emit_many(&mut shop, "invoice.paid", "missed", 2);
    shop.run("select webhook.emit('order.paid', 'missed', '{}', test => true)");
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue)");
    let refused = shop.refusal(&format!(
        "select webhook.replay_range('missed', now() - interval '1 hour', now(), 'back', endpoint_id => {})",
        endpoint.id
    ));
    assert_eq!(refused.0, "55000");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    let all = format!(
        "'missed', now() - interval '1 hour', now(), 'back', which => 'missing', types => '{{order.*,invoice.*}}', endpoint_id => {}",
        endpoint.id
    );
    let first = finished(&mut shop, &all);
    assert_eq!(
        counts(&mut shop, first),
        "estimate 10, looked at 10, made 5, again 0, under way 0, unwanted 0, closed 0, expunged 0, fenced 0"
    );
    shop.wait_for_deliveries(&endpoint, "delivered", 8);
    receiver.wait_for(8, PATIENCE);
    let second = finished(&mut shop, &all);
    assert!(counts(&mut shop, second).contains("made 0, again 0"));
    assert_eq!(receiver.count(), 8);
}

#[test]
fn what_a_filter_refused_was_not_missed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "picky",
        &receiver.url("/hook"),
        ", filter => '$.total >= 100', subject_types => '{order}'",
    );
    let emit = |shop: &mut Outbox, subject: &str, total: i32| {
        shop.run(&format!(
            "select webhook.emit('order.paid', 'picky', '{{\"total\": {total}}}', subject_type => '{subject}', subject_id => '1')"
        ));
    };
    emit(&mut shop, "order", 5);
    emit(&mut shop, "order", 100);
    shop.wait_for_deliveries(&endpoint, "delivered", 1);
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'being rebuilt')",
        endpoint.id
    ));
    emit(&mut shop, "order", 6);
    emit(&mut shop, "invoice", 200);
    emit(&mut shop, "order", 101);
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue)");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    for which in ["missing", "all"] {
        let again = usize::from(which == "all");
        let replay = finished(
            &mut shop,
            &format!("'picky', now() - interval '1 hour', now(), 'back', which => '{which}'"),
        );
        let said = counts(&mut shop, replay);
        let made = format!(
            "made {}, again {}, under way 0, unwanted 3,",
            1 - again,
            2 * again
        );
        assert!(said.contains(&made), "{which}: {said}");
        receiver.wait_for(2 + 2 * again, PATIENCE);
        shop.wait_for_deliveries(&endpoint, "delivered", 2);
    }
    assert_eq!(receiver.count(), 4);
}

#[test]
fn what_failed_is_sent_again_and_what_cannot_be_is_counted() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        [200, 404, 404, 404, 200].map(Answer::status).to_vec(),
    );
    let endpoint = shop.endpoint("failed", &receiver.url("/hook"));
    let mut events = Vec::new();
    for _ in 0..4 {
        let event = shop.emit("order.paid", "failed", "{}");
        shop.wait_until(&format!(
            "exists (select from webhook.deliveries where event_id = '{event}')"
        ));
        events.push(event);
    }
    shop.wait_for_deliveries(&endpoint, "dead", 3);
    shop.run(&format!(
        "update webhook._event set body = null where event_id = '{}'",
        events[1]
    ));
    shop.run(&format!(
        "insert into webhook._fenced (event_id, reason) values ('{}', 'somebody changed it')",
        events[2]
    ));
    let replay = finished(
        &mut shop,
        "'failed', now() - interval '1 hour', now(), 'mended', which => 'failed'",
    );
    assert_eq!(
        counts(&mut shop, replay),
        "estimate 4, looked at 4, made 0, again 1, under way 0, unwanted 0, closed 0, expunged 1, fenced 1"
    );
    shop.wait_for_state(&events[3], &endpoint, "delivered");
    assert_eq!(receiver.count(), 5);
    // By type, and no more than that.
    let none = finished(
        &mut shop,
        "'failed', now() - interval '1 hour', now(), 'mended', types => '{invoice.*}'",
    );
    assert!(counts(&mut shop, none).starts_with("estimate 0, looked at 0"));
}

#[test]
fn what_costs_no_delivery_costs_no_transaction_either() {
    // A server of its own: nobody else's transactions count.
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("sparse", &receiver.url("/hook"));
    emit_many(&mut shop, "order.paid", "sparse", 1_000);
    shop.wait_for_deliveries(&endpoint, "delivered", 1_000);
    shop.wait_until("not exists (select from webhook.requests where state = 'pending')");
    let before = shop.number("select pg_current_xact_id()::text");
    let replay = finished(
        &mut shop,
        "'sparse', now() - interval '1 hour', now(), 'to be sure', which => 'failed', rate => 1",
    );
    let spent = shop.number("select pg_current_xact_id()::text") - before;
    assert!(
        counts(&mut shop, replay).starts_with("estimate 1000, looked at 1000, made 0, again 0")
    );
    // The leader's housekeeping writes as well, but nothing for each of a thousand.
    assert!(spent < 500, "{spent} transactions");
}

#[test]
fn nothing_is_made_for_an_event_whose_deliveries_are_not_kept_any_more() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("edge", &receiver.url("/hook"));
    let model = shop.emit("order.paid", "edge", "{}");
    shop.wait_for_state(&model, &endpoint, "delivered");
    // As if the walk came by just after midnight: its delivery has gone with its day.
    let old = shop.old_event(&model, 65);
    shop.run(&format!(
        "update webhook._feed set pos = webhook._pos_bound(clock_timestamp() - interval '1 minute') where event_id = '{old}'"
    ));
    for which in ["missing", "all"] {
        let replay = finished(
            &mut shop,
            &format!(
                "'edge', now() - interval '30 minutes', now() - interval '50 seconds', 'r', which => '{which}'"
            ),
        );
        assert!(shop.is(&format!(
            "made = 0 and expired = 1 from webhook.replays where request_id = {replay}"
        )));
    }
    assert!(shop.delivery(&old, &endpoint).is_none());
}

#[test]
fn every_partner_is_meant_where_none_is_named() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    for partner in ["alpha", "beta", "gamma"] {
        shop.endpoint(partner, &receiver.url("/hook"));
        emit_many(&mut shop, "order.paid", partner, 100);
    }
    receiver.wait_for(300, PATIENCE);
    shop.wait_until("(select count(*) = 300 from webhook.deliveries where state = 'delivered')");
    let replay = finished(
        &mut shop,
        "null, now() - interval '1 hour', now(), 'all of them', rate => 1000",
    );
    assert!(
        counts(&mut shop, replay).starts_with("estimate 300, looked at 300, made 0, again 300")
    );
    receiver.wait_for(600, PATIENCE);
    shop.wait_until("(select count(*) = 300 from webhook.deliveries where state = 'delivered' and attempt_count = 2)");
}

#[test]
fn a_cancelled_replay_makes_no_more() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("cancelled", &receiver.url("/hook"));
    emit_many(&mut shop, "order.paid", "cancelled", 500);
    shop.wait_for_deliveries(&endpoint, "delivered", 500);
    let replay = replay(
        &mut shop,
        "'cancelled', now() - interval '1 hour', now(), 'wrong partner', rate => 20",
    );
    shop.wait_until(&format!(
        "(select again > 5 from webhook.replays where request_id = {replay})"
    ));
    let reply = shop.have_done(&format!("cancel_replay({replay}, 'a mistake')"));
    assert_eq!(reply.state, "done");
    let made = shop.number(&format!(
        "select again from webhook.replays where request_id = {replay} and state = 'cancelled'"
    ));
    assert!((6..200).contains(&made), "{made}");
    assert!(shop.is(&format!("state = 'done' and result like 'cancelled: {made} to be sent again%' from webhook.requests where request_id = {replay}")));
    receiver.wait_for(500 + usize::try_from(made).expect("a count"), PATIENCE);
    sleep(Duration::from_millis(700));
    assert_eq!(
        receiver.count(),
        500 + usize::try_from(made).expect("a count")
    );
    let refused = shop.refusal(&format!("select webhook.cancel_replay({replay}, 'again')"));
    assert_eq!(refused.0, "55000");
}

#[test]
fn a_replay_goes_on_where_it_was_when_the_leader_is_ended_in_the_middle() {
    let events = number("WEBHOOK_EVENTS", 3_000);
    let kills = number("WEBHOOK_KILLS", 6);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a clock");
    let seed = number(
        "WEBHOOK_SEED",
        usize::try_from(now.as_millis()).expect("a time"),
    );
    let mut dice = Dice::new(seed as u64);
    let mut cluster = Cluster::plan()
        .setting("fsync", "on")
        .setting(
            "webhook.retry_schedule",
            &["200ms", &",500ms".repeat(20)].concat(),
        )
        .start();
    let receiver = Receiver::http();
    {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("alpha", &receiver.url("/hook"));
        emit_many(&mut shop, "order.paid", "alpha", events);
        shop.wait_for_deliveries_within(
            &endpoint,
            "delivered",
            i64::try_from(events).expect("a count"),
            CATCH_UP,
        );
    }
    let mut shop = Outbox::join(&cluster, "shop");
    let lost_before =
        shop.number("select count(*) from webhook.attempts where error_category = 'lost'");
    assert_eq!(lost_before, 0);
    let replay = replay(
        &mut shop,
        "'alpha', now() - interval '1 hour', now(), 'drill', rate => 500",
    );
    drop(shop);
    for n in 0..kills {
        sleep(Duration::from_millis(100 + dice.below(700)));
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("running");
        // The view may still name one that has just ended.
        let leader = wait_until("a leader goes on", PATIENCE, || {
            Some(shop.leader()).filter(|leader| *leader != 0 && cluster.has_process(*leader))
        });
        drop(shop);
        if n % 3 == 2 {
            cluster.crash();
            cluster.start();
        } else {
            let how = if n % 3 == 1 {
                Signal::SIGKILL
            } else {
                Signal::SIGTERM
            };
            cluster.signal(leader, how);
            wait_for("the leader is gone", PATIENCE, || {
                !cluster.has_process(leader)
            });
            wait_for("the server takes sessions", CATCH_UP, || {
                cluster.try_connect("shop").is_ok()
            });
        }
    }
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for("the replay is done", CATCH_UP * 3, || {
        shop.is(&format!(
            "(select state = 'done' from webhook.replays where request_id = {replay})"
        ))
    });
    wait_for("everything is delivered", CATCH_UP, || {
        shop.is("not exists (select from webhook._due) and (select in_flight = 0 and queued = 0 and open_batches = 0 from webhook.stat_worker)")
    });
    // One first try, one of the replay, and what the ends of the leader left in doubt.
    let wrong = shop.number(
        "select count(*) from webhook._delivery d
          where d.state <> 'delivered'
             or d.attempt_count <> 2 + (select count(*) from webhook._attempt a
                                         where a.event_id = d.event_id and a.endpoint_id = d.endpoint_id and a.outcome <> 'delivered')",
    );
    let lost = shop.number("select count(*) from webhook._attempt where error_category = 'lost'");
    say!(
        "WEBHOOK_SEED={seed}: {events} events replayed, leader ended {kills} times: {}; {lost} attempts in doubt, {wrong} deliveries with a series too many or too few",
        counts(&mut shop, replay)
    );
    assert_eq!(wrong, 0);
    let row = counts(&mut shop, replay);
    assert!(
        row.contains(&format!(
            "looked at {events}, made 0, again {events}, under way 0"
        )),
        "{row}"
    );
}

fn emit_many(shop: &mut Outbox, kind: &str, partner: &str, count: usize) {
    shop.run(&format!(
        "select count(webhook.emit('{kind}', '{partner}', '{{}}')) from generate_series(1, {count})"
    ));
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue)");
}

fn replay(shop: &mut Outbox, arguments: &str) -> i64 {
    shop.number(&format!(
        "select request_id from webhook.replay_range({arguments})"
    ))
}

fn finished(shop: &mut Outbox, arguments: &str) -> i64 {
    let replay = replay(shop, arguments);
    shop.wait_until(&format!(
        "(select state = 'done' from webhook.replays where request_id = {replay})"
    ));
    replay
}

fn counts(shop: &mut Outbox, replay: i64) -> String {
    shop.text(&format!(
        "select format('estimate %s, looked at %s, made %s, again %s, under way %s, unwanted %s, closed %s, expunged %s, fenced %s',
                       estimate, looked_at, made, again, under_way, unwanted, closed, expunged, fenced)
           from webhook.replays where request_id = {replay}"
    ))
}

fn texts(row: Vec<Option<String>>) -> Vec<String> {
    row.into_iter().map(Option::unwrap_or_default).collect()
}
