//! One partner commits very many events at once: the others' do not wait behind them, and none of the flood is
//! read twice or not at all, whatever happens meanwhile.

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    invariants::{ALWAYS, violations},
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    wait::wait_for,
};

const FLOOD: i64 = 20_000;
/// Partners with an event each now and then.
const SMALL: usize = 5;
/// The flood is being read apart and not read to its end.
const AMID: &str = "exists (select from webhook._ledger a where a.kind = 'aside'
       and not exists (select from webhook._ledger j where j.stream = a.stream and j.kind = 'joined'))
     and (select unread_events > 1000 from webhook.stat_queue)";

#[test]
fn an_event_committed_after_a_flood_of_another_partner_arrives_long_before_its_end() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("big", &receiver.url("/big"));
    let small = shop.endpoint("small", &receiver.url("/small"));
    flood(&mut shop);
    // What arrived before it was emitted it could not overtake.
    let sent = receiver.count();
    let event = shop.emit("order.created", "small", "{}");
    shop.wait_for_state(&event, &small, "delivered");
    let before = receiver
        .requests()
        .iter()
        .skip(sent)
        .take_while(|request| request.target != "/small")
        .count();
    assert!(
        before < usize::try_from(FLOOD / 3).unwrap_or(0),
        "{before} events of the flood arrived first"
    );
    // Its own partner's later events come after it, and everything in the end.
    shop.emit("order.created", "big", "{}");
    wait_for_rest(&mut shop, FLOOD + 2);
    shop.wait_until("not exists (select from webhook._ledger a where a.kind = 'aside' and not exists (select from webhook._ledger j where j.stream = a.stream and j.kind = 'joined'))");
    assert_eq!(
        violations(&mut shop.another().sql, ALWAYS),
        Vec::<String>::new()
    );
}

#[test]
fn a_flood_is_read_exactly_once_however_often_the_leader_ends_in_it() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("big", &receiver.url("/big"));
    for n in 0..SMALL {
        shop.endpoint(&format!("small-{n}"), &receiver.url(&format!("/{n}")));
    }
    flood(&mut shop);
    let mut emitted = FLOOD;
    let mut amid = 0;
    for round in 0..6 {
        for n in 0..SMALL {
            shop.emit("order.created", &format!("small-{n}"), "{}");
            emitted += 1;
        }
        // A second flood of somebody else, while the first one is read.
        if round == 1 {
            shop.run("select count(webhook.emit('order.created', 'small-0', '{}')) from generate_series(1, 5000)");
            emitted += 5_000;
        }
        // A fast leader has read most of it by now: there has to be something in the middle of which it can end.
        if shop.is("(select unread_events < 3000 from webhook.stat_queue)") {
            flood(&mut shop);
            emitted += FLOOD;
        }
        wait_for("the flood is read apart, or all is read", PATIENCE, || {
            shop.is(&format!(
                "({AMID}) or (select unread_events = 0 from webhook.stat_queue)"
            ))
        });
        amid += usize::from(shop.is(AMID));
        if round % 2 == 0 {
            shop.restart_leader();
        } else {
            cluster.signal(shop.leader(), Signal::SIGKILL);
            wait_for("the server has ended its sessions", PATIENCE, || {
                shop.sql.simple_query("select 1").is_err()
            });
            wait_for("the server is back", PATIENCE, || {
                cluster.try_connect("shop").is_ok()
            });
            shop = Outbox::join(&cluster, "shop");
            shop.wait_for_worker("running");
        }
    }
    assert!(amid > 1, "the leader ended {amid} times amid the flood");
    wait_for_rest(&mut shop, emitted);
    assert_eq!(
        shop.number("select count(*) from (select event_id from webhook._feed group by 1 having count(*) <> 1) as f"),
        0
    );
    assert_eq!(shop.number("select count(*) from webhook._feed"), emitted);
    assert_eq!(
        violations(&mut shop.another().sql, ALWAYS),
        Vec::<String>::new()
    );
}

#[test]
fn an_endpoint_that_appears_amid_its_partners_flood_gets_every_event_of_it_once() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("big", &receiver.url("/big"));
    let mut administrator = shop.another();
    // Its transaction does not see the flood, so that all of it is the endpoint's.
    administrator.run("begin isolation level repeatable read; select txid_current()");
    let late = administrator.endpoint("big", &receiver.url("/late"));
    let mut events = 0;
    // Again, should all of it have been read between two looks.
    wait_for("the flood is being read apart", PATIENCE, || {
        if shop.is("(select unread_events = 0 from webhook.stat_queue)") {
            flood(&mut shop);
            events += FLOOD;
        }
        shop.is(AMID)
    });
    administrator.run("commit");
    wait_for_rest(&mut shop, 2 * events);
    let of_late = |shop: &mut Outbox, what: &str| {
        shop.number(&format!(
            "select {what} from webhook._delivery where endpoint_id = {}",
            late.id
        ))
    };
    assert_eq!(of_late(&mut shop, "count(*)"), events);
    assert_eq!(of_late(&mut shop, "max(attempt_count)::bigint"), 1);
    assert_eq!(
        receiver.requests_for("/late").len(),
        usize::try_from(events).unwrap_or(0)
    );
}

fn flood(shop: &mut Outbox) {
    shop.run(&format!(
        "select count(webhook.emit('order.created', 'big', jsonb_build_object('n', n))) from generate_series(1, {FLOOD}) as n"
    ));
}

/// Until everything is delivered: so many deliveries, and nothing that waits.
fn wait_for_rest(shop: &mut Outbox, deliveries: i64) {
    wait_for("every event is delivered", PATIENCE * 4, || {
        shop.is(&format!(
            "(select count(*) from webhook._delivery where state = 'delivered') = {deliveries}"
        ))
    });
    shop.wait_until("(select unread_events = 0 and queued = 0 from webhook.stat_queue)");
}
