//! Streams that were set aside, everybody's stream and an adoption: whichever is ahead of the other, no event is read
//! twice, and none is left out.

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    invariants::{ALWAYS, violations},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

/// Some stream is apart from everybody's.
const APART: &str = "exists (select from webhook._ledger a where a.kind = 'aside'
       and not exists (select from webhook._ledger j where j.stream = a.stream and j.kind = 'joined'))";

#[test]
fn a_flood_that_is_read_to_its_end_before_the_rest_of_its_window_is_not_read_again() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("big", &receiver.url("/big"));
    // One transaction, so one window: the flood comes first, and much of everybody else after it.
    shop.run(
        "begin;
         select count(webhook.emit('order.created', 'big', '{}')) from generate_series(1, 2000);
         select count(webhook.emit('order.created', 'small-' || n % 40, '{}')) from generate_series(1, 16000) as n;
         commit",
    );
    wait_for_rest(&mut shop, 18_000);
    assert!(shop.is("exists (select from webhook._ledger where kind = 'aside')"));
    assert_once(&mut shop, &receiver, 18_000, 2_000);
}

#[test]
fn a_stream_that_is_ahead_of_everybodys_place_in_the_ledger_goes_on_from_its_own() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    Outbox::create(&cluster, "shop").endpoint("big", &receiver.url("/big"));
    let mut big = 0;
    // Once more, should the stream join before the leader has noticed that it is switched off.
    let mut shop = loop {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("running");
        flood(&mut shop, 20_000);
        big += 20_000;
        // Until it reads windows in which nobody else has an event.
        wait_for("the stream is some windows farther", PATIENCE, || {
            flood(&mut shop, 3_000);
            big += 3_000;
            shop.is(&format!(
                "{APART} and (select count(distinct l.cur::text) > 2 from webhook._ledger l where l.stream <> 0)"
            ))
        });
        drop(shop);
        cluster.reload(&[("webhook.enabled", "off")]);
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        if shop.is(APART) {
            break shop;
        }
        assert!(big < 500_000, "the stream has joined too early");
        drop(shop);
        cluster.reload(&[("webhook.enabled", "on")]);
    };
    // More than one batch for everybody's stream, and something for the other one.
    shop.run("select count(webhook.emit('order.created', 'small-' || n % 40, '{}')) from generate_series(1, 6000) as n");
    flood(&mut shop, 100);
    big += 100;
    let leader = shop.leader();
    shop.run(&format!("select pg_terminate_backend({leader})"));
    drop(shop);
    wait_for("the leader has ended", PATIENCE, || {
        !cluster.has_process(leader)
    });
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for_rest(&mut shop, big + 6_000);
    assert_once(&mut shop, &receiver, big + 6_000, big);
}

#[test]
fn an_adoption_leaves_to_a_stream_what_it_has_still_to_read() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let old = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.endpoint("old", &receiver.url("/old"));
        let old = shop.emit("order.created", "old", "{}");
        shop.wait_until(&format!(
            "exists (select from webhook.deliveries where event_id = '{old}' and state = 'delivered')"
        ));
        old
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    {
        let mut copy = Outbox::join(&cluster, "copy");
        copy.endpoint("big", &receiver.url("/big"));
        let first = copy.emit("order.created", "big", "{}");
        copy.wait_until(&format!(
            "exists (select from webhook.deliveries where event_id = '{first}' and state = 'delivered')"
        ));
    }
    cluster.reload(&[("webhook.enabled", "off")]);
    {
        let mut copy = Outbox::join(&cluster, "copy");
        copy.wait_for_worker("off");
        // The stream reads by transactions, the adoption by events: what is last for one is first for the other.
        let mut earlier = copy.another();
        earlier.run("begin; select txid_current()");
        flood(&mut copy, 10_000);
        flood(&mut earlier, 9_999);
        earlier.run("commit");
        copy.run(
            "select webhook.adopt(origin, 'send', 'the old one burnt down')
               from webhook.stat_fenced where reason = 'origin'",
        );
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    wait_for("the adoption is done", PATIENCE * 4, || {
        copy.is("(select count(*) = 1 and bool_and(state = 'done') from webhook.adoptions)")
    });
    wait_for_rest(&mut copy, 20_001);
    assert_once(&mut copy, &receiver, 20_001, 20_000);
    let new = copy.emit("order.created", "old", "{}");
    copy.wait_until(&format!(
        "exists (select from webhook.deliveries where event_id = '{new}' and state = 'delivered')"
    ));
    let ids: Vec<_> = receiver
        .requests_for("/old")
        .iter()
        .map(|request| request.header("webhook-id").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(ids, [old, new]);
}

#[test]
fn requests_about_events_that_a_stream_has_still_to_read_keep_no_other_one_waiting() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let endpoint = Outbox::create(&cluster, "shop").endpoint("big", &receiver.url("/big"));
    cluster.reload(&[("webhook.enabled", "off")]);
    {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("off");
        flood(&mut shop, 20_000);
        // More than are looked at in one round.
        shop.run(&format!(
            "select count(*)
               from (select event_id from webhook.events order by event_id desc limit 150) as e
              cross join lateral webhook.replay(e.event_id, {});
             select webhook.pause('event_type', 'order.paid', 'a test')",
            endpoint.id
        ));
    }
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until("(select state = 'done' from webhook.requests where verb = 'pause')");
    wait_for_rest(&mut shop, 20_000);
    shop.wait_until("(select bool_and(state = 'done') from webhook.requests)");
    // The pause came last, and first.
    assert!(shop.is(
        "(select count(*) = 150 and max(p.finished_at) < min(r.finished_at)
            from webhook.requests r, webhook.requests p where r.verb = 'replay' and p.verb = 'pause')"
    ));
}

#[test]
fn a_stream_that_cannot_look_for_deliveries_just_now_reads_the_same_again_in_the_same_life() {
    // What waits, waits in memory, and what has no room there is not read yet.
    let cluster = Cluster::plan()
        .setting("webhook.first_pass_limit", "60s")
        .setting("webhook.request_timeout", "5min")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("big", &receiver.url("/big"));
    // The flood stands still before it is over, until it has met the lock.
    let gate = Gate::shut();
    let (held, mut arrived) = (Answer::status(200).held(&gate), 0);
    receiver.behave("/big", move |_| {
        arrived += 1;
        if arrived > 9_000 {
            held.clone()
        } else {
            Answer::status(200)
        }
    });
    let leader = shop.leader();
    flood(&mut shop, 24_000);
    shop.wait_until(APART);
    // From now on the stream looks for what is there already before it makes a delivery.
    shop.endpoint("big", &receiver.url("/new"));
    let mut locker = shop.another();
    let mut locks = 0;
    while shop.is(APART) && locks < 20 {
        locker.run(
            "begin; lock table webhook._delivery in access exclusive mode; select pg_sleep(0.3); commit;
             select pg_sleep(0.3)",
        );
        locks += 1;
        if locks > 2 && shop.is("(select last_error ~ 'lock timeout' from webhook.stat_worker)") {
            gate.open();
        }
    }
    assert!(locks > 2, "the stream was over too early");
    assert!(shop.is("(select last_error ~ 'lock timeout' from webhook.stat_worker)"));
    wait_for_rest(&mut shop, 24_000);
    assert_once(&mut shop, &receiver, 24_000, 24_000);
    assert_eq!(shop.leader(), leader);
}

fn flood(shop: &mut Outbox, events: i64) {
    shop.run(&format!(
        "select count(webhook.emit('order.created', 'big', '{{}}')) from generate_series(1, {events})"
    ));
}

fn wait_for_rest(shop: &mut Outbox, events: i64) {
    wait_for("everything is read and sent", PATIENCE * 4, || {
        shop.is(&format!(
            "(select (unread_events, queued, in_flight, due) = (0, 0, 0, 0) from webhook.stat_queue)
         and (select count(*) >= {events} from webhook._feed)"
        ))
    });
    shop.wait_until(&format!("not {APART}"));
}

#[track_caller]
fn assert_once(shop: &mut Outbox, receiver: &Receiver, events: i64, big: i64) {
    let twice = "select count(*) from (select from webhook._feed group by event_id having count(*) <> 1) as f";
    assert_eq!(shop.number(twice), 0, "events twice in the feed");
    assert_eq!(shop.number("select count(*) from webhook._feed"), events);
    assert_eq!(
        shop.number("select count(*) from webhook.deliveries where state = 'delivered' and partner_id = 'big' and attempt_count = 1"),
        big
    );
    assert_eq!(
        receiver.requests_for("/big").len(),
        usize::try_from(big).unwrap_or(0)
    );
    assert_eq!(
        violations(&mut shop.another().sql, ALWAYS),
        Vec::<String>::new()
    );
}
