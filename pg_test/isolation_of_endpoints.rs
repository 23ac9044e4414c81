//! One endpoint's trouble is its own: neither the others' deliveries nor the feed wait for it, and no administrator's
//! open transaction stops the leader.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    // What hangs, hangs for as long as a test has something to do meanwhile.
    let cluster = Cluster::plan()
        .setting("webhook.request_timeout", "10min")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// What a busy machine may take for something that should take some milliseconds.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn a_slow_and_a_hanging_receiver_delay_neither_others_nor_the_feed() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (slow, hanging, quick) = (Receiver::http(), Receiver::http(), Receiver::http());
    for receiver in [&slow, &hanging, &quick] {
        shop.endpoint("apart", &receiver.url("/hook"));
    }
    warm_up(&mut shop, "apart", &[&slow, &hanging, &quick], 3);
    let gate = Gate::shut();
    slow.script("/hook", vec![Answer::status(200).held(&gate)]);
    hanging.script("/hook", vec![Answer::hang()]);
    // More than the slow ones can take at once.
    shop.run(
        "select webhook.emit('order.paid', 'apart', to_jsonb(n)) from generate_series(1, 50) n",
    );
    quick.wait_for(50, PATIENCE);
    wait_for("both of the others are busy", PATIENCE, || {
        slow.in_flight() == 8 && hanging.in_flight() == 8
    });
    let mut times = Vec::new();
    for round in 1..=20 {
        let start = Instant::now();
        let event = shop.emit("order.paid", "apart", "{}");
        quick.wait_for(50 + round, PATIENCE);
        times.push(start.elapsed());
        shop.wait_until(&format!(
            "(select published_at is not null from webhook.events where event_id = '{event}')"
        ));
    }
    // Most of them: the machine may stand still for a moment.
    times.sort_unstable();
    assert!(times[times.len() / 2] < AT_ONCE, "{times:?}");
    assert_eq!((slow.in_flight(), hanging.in_flight()), (8, 8));
    gate.open();
    // It gets all of it in its own time, at most eight at once.
    slow.wait_for(40, PATIENCE);
    assert_eq!((slow.peak(), hanging.peak()), (8, 8));
}

#[test]
fn a_partner_with_many_slow_endpoints_leaves_room_for_the_others() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let (hanging, quick) = (Receiver::http(), Receiver::http());
    for path in 0..20 {
        shop.endpoint("crowd", &hanging.url(&format!("/{path}")));
    }
    warm_up(&mut shop, "crowd", &[&hanging], 20);
    for path in 0..20 {
        hanging.script(&format!("/{path}"), vec![Answer::hang()]);
    }
    let endpoint = shop.endpoint("crowd.other", &quick.url("/hook"));
    shop.run(
        "select webhook.emit('order.paid', 'crowd', to_jsonb(n)) from generate_series(1, 20) n",
    );
    wait_for("the partner has its 64 requests", PATIENCE, || {
        hanging.in_flight() == 64
    });
    let event = shop.emit("order.paid", "crowd.other", "{}");
    quick.wait_for(1, PATIENCE);
    shop.wait_for_state(&event, &endpoint, "delivered");
    // They hang still: nothing of theirs had to end for it.
    assert_eq!((hanging.in_flight(), hanging.peak()), (64, 64));
}

#[test]
fn an_open_transaction_that_changes_an_endpoint_stops_nothing() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/changed", vec![Answer::status(410)]);
    receiver.script("/moved", vec![Answer::status(410)]);
    let changed = shop.endpoint("admin", &receiver.url("/changed"));
    let moved = shop.endpoint("admin", &receiver.url("/moved"));
    let other = shop.endpoint("admin", &receiver.url("/other"));
    let mut admin = shop.another();
    admin.run(&format!(
        "begin;
         select webhook.update_endpoint({}, description => 'new');
         select webhook.update_endpoint({}, url => '{}');
         update webhook._endpoint set description = 'newer';
         lock table webhook._endpoint in exclusive mode",
        changed.id,
        moved.id,
        receiver.url("/new")
    ));
    let event = shop.emit("order.paid", "admin", "{}");
    shop.wait_for_state(&event, &other, "delivered");
    // Even the finding that they are gone is written meanwhile.
    for endpoint in [&changed, &moved] {
        shop.wait_for_state(&event, endpoint, "dead");
    }
    for endpoint in [&changed, &moved] {
        assert_eq!(shop.state(endpoint), "disabled");
    }
    admin.run("commit");
    // A new URL is another receiver: the change came later than the finding, and voids it.
    shop.wait_until(&format!(
        "(select state = 'active' and description = 'newer' from webhook.endpoints where endpoint_id = {})",
        moved.id
    ));
    let next = shop.emit("order.paid", "admin", "{}");
    shop.wait_for_state(&next, &moved, "delivered");
    assert_eq!(receiver.requests_for("/new").len(), 1);
    // A description says nothing about whether it is gone: the finding stays.
    assert!(shop.is(&format!(
        "state = 'disabled' and description = 'newer' from webhook.endpoints where endpoint_id = {}",
        changed.id
    )));
    assert_eq!(shop.delivery(&next, &changed), None);
    assert_eq!(receiver.requests_for("/changed").len(), 1);
}

#[test]
fn disabling_one_endpoint_cancels_its_own_queue_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    // The fourth is on the wire when the endpoint is disabled.
    let gate = Gate::shut();
    let mut answers = vec![Answer::status(200); 3];
    answers.push(Answer::status(200).held(&gate));
    receiver.script("/one", answers);
    let [one, two] = ["/one", "/two"]
        .map(|path| shop.endpoint_with("queues", &receiver.url(path), ", max_in_flight => 1"));
    shop.run(
        "select webhook.emit('order.paid', 'queues', to_jsonb(n)) from generate_series(1, 30) n",
    );
    wait_for("the fourth is on the wire", PATIENCE, || {
        receiver.requests_for("/one").len() == 4
    });
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'moved away')",
        one.id
    ));
    shop.wait_for_a_round();
    gate.open();
    let count = |state: &str, id: i64| {
        format!(
            "(select count(*) from webhook.deliveries where endpoint_id = {id} and state = '{state}')"
        )
    };
    shop.wait_until(&format!("{} = 30", count("delivered", two.id)));
    shop.wait_until(&format!(
        "{} + {} = 30",
        count("delivered", one.id),
        count("cancelled", one.id)
    ));
    assert!(shop.is(&format!(
        "every(reason = 'the endpoint is disabled: moved away' and next_attempt_at is null)
           from webhook.deliveries where endpoint_id = {} and state = 'cancelled'",
        one.id
    )));
    let delivered = shop.number(&format!("select {}", count("delivered", one.id)));
    assert_eq!(delivered, 4);
    assert_eq!(
        receiver.requests_for("/one").len(),
        usize::try_from(delivered).expect("a count")
    );
}

/// An endpoint begins with one request at a time: with quick successes it comes to stand as many as it may get.
fn warm_up(shop: &mut Outbox<'_>, partner: &str, receivers: &[&Receiver], endpoints: usize) {
    const EVENTS: usize = 40;
    shop.run(&format!(
        "select count(webhook.emit('order.warm', '{partner}', '{{}}')) from generate_series(1, {EVENTS})"
    ));
    shop.wait_until(&format!(
        "(select count(*) = {} from webhook.deliveries where partner_id = '{partner}' and state = 'delivered')",
        EVENTS * endpoints
    ));
    for receiver in receivers {
        receiver.forget();
    }
}
