//! Failover: a standby sends nothing and refuses every verb; promoted, it takes up what was open; and the old primary
//! harms nobody when it comes back as it should.

use std::{collections::BTreeMap, time::Duration};

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

#[test]
fn a_standby_sends_nothing_shows_everything_and_refuses_every_verb() {
    let primary = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&primary, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");

    let standby = primary.standby();
    let mut copy = Outbox::join(&standby, "shop");
    let next = shop.emit("order.paid", "a", "{}");
    for event in [&event, &next] {
        copy.wait_for_state(event, &endpoint, "delivered");
    }
    assert!(copy.is("state = 'standby' from webhook.stat_worker"));
    assert!(copy.is("worker = 'standby' from webhook.status()"));
    for view in copy.column(
        "select format('%I', relname) from pg_class where relnamespace = 'webhook'::regnamespace and relkind = 'v' and relname !~ '^_'",
    ) {
        copy.rows(&format!("select * from webhook.{view} limit 1"));
    }
    for verb in [
        "webhook.emit('order.paid', 'a', '{}')",
        "webhook.emit_json('order.paid', 'a', '{}')",
        "webhook.create_endpoint('a', 'https://example.com/', verify => 'none')",
        &format!(
            "webhook.update_endpoint({}, description => 'x')",
            endpoint.id
        ),
        &format!("webhook.disable_endpoint({}, 'x')", endpoint.id),
        &format!("webhook.rotate_secret({})", endpoint.id),
        &format!("webhook.replay('{event}')"),
        "webhook.pause('partner', 'a', 'x')",
        "webhook.create_policy('calm', rate => 1)",
        "webhook.create_event_type('order.made', description => 'x')",
        "webhook.grant_access('pg_monitor', 'read')",
        "webhook.offboard('a', 'x')",
        "webhook.reconcile()",
    ] {
        let (code, message) = copy.refusal(&format!("select {verb}"));
        assert_eq!(code, "25006", "{verb}: {message}");
    }
    assert_eq!(receiver.count(), 2);
}

#[test]
fn the_promoted_standby_sends_what_was_open_and_the_old_primary_follows_it() {
    // What pg_rewind needs: which pages changed, and the log since the standby was made.
    let mut primary = Cluster::plan()
        .setting("wal_log_hints", "on")
        .setting("wal_keep_size", "256MB")
        .start();
    let receiver = Receiver::http();
    let endpoint = warm(&mut Outbox::create(&primary, "shop"), &receiver);
    let standby = primary.standby();
    // Each commit is on the standby before its session goes on: what was acknowledged survives.
    primary.reload(&[("synchronous_standby_names", "*")]);
    let mut shop = Outbox::join(&primary, "shop");
    receiver.script(
        "/hook",
        vec![Answer::status(200).after(Duration::from_millis(20))],
    );
    let mut events = shop.column(
        "select webhook.emit('order.paid', 'a', to_jsonb(n)) from generate_series(1, 400) n",
    );
    receiver.wait_for(300, PATIENCE);
    // One more, of which the old primary can have sent nothing.
    events.push(shop.emit("order.paid", "a", "{}"));
    drop(shop);
    let in_flight = receiver.in_flight();
    primary.crash();
    standby.promote();

    let mut shop = Outbox::join(&standby, "shop");
    shop.wait_for_worker("running");
    for event in &events {
        shop.wait_for_state(event, &endpoint, "delivered");
        // Numbered without gaps; one in doubt is told of.
        let attempts = shop.attempts(event, &endpoint);
        let lost = attempts
            .iter()
            .filter(|a| a.category.as_deref() == Some("lost"));
        assert!(lost.count() <= 1, "{attempts:?}");
    }
    let times = times(&receiver);
    let twice = events.iter().filter(|event| times[*event] > 1).count();
    assert!(events.iter().all(|event| times[event] <= 2));
    // What was on the wire, and the outcomes of about 0.7 s; a request takes 20 ms.
    let bound = 50 + 50 * 35;
    assert!(
        twice <= bound,
        "{twice} twice, {in_flight} were on the wire"
    );
    let told = shop.number(
        "select count(distinct event_id) from webhook.attempts where error_category = 'lost'",
    );
    assert!(
        i64::try_from(twice).expect("a count") <= told,
        "{twice} twice, {told} told"
    );

    // The old primary comes back as what it is from now on, and is silent.
    // pg_rewind brought the other one's settings along.
    rewind(&primary, &standby);
    primary.set("synchronous_standby_names", "");
    primary.start();
    let mut old = Outbox::join(&primary, "shop");
    assert!(old.is("state = 'standby' from webhook.stat_worker"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    old.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(self::times(&receiver)[&event], 1);
}

#[test]
fn an_old_primary_that_comes_back_switched_off_sends_nothing() {
    let mut primary = Cluster::start_usual();
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::hang()]);
    let (endpoint, event) = {
        let mut shop = Outbox::create(&primary, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        receiver.wait_for(1, PATIENCE);
        (endpoint, event)
    };
    let standby = primary.standby();
    wait_for("the standby has the event", PATIENCE, || {
        Outbox::join(&standby, "shop").is(&format!(
            "exists (select from webhook.events where event_id = '{event}')"
        ))
    });
    primary.stop(Shutdown::Immediate);
    receiver.script("/hook", vec![Answer::status(200)]);
    standby.promote();
    Outbox::join(&standby, "shop").wait_for_state(&event, &endpoint, "delivered");
    let sent = receiver.count();

    primary.set("webhook.enabled", "off");
    primary.start();
    let mut old = Outbox::join(&primary, "shop");
    old.wait_for_worker("off");
    old.emit("order.paid", "a", "{}");
    std::thread::sleep(POLLS);
    assert_eq!(receiver.count(), sent);
}

/// An endpoint whose window is open.
fn warm(shop: &mut Outbox, receiver: &Receiver) -> Endpoint {
    let endpoint = shop.endpoint_with("a", &receiver.url("/hook"), ", max_in_flight => 50");
    shop.run("select count(webhook.emit('order.warm', 'a', '{}')) from generate_series(1, 200)");
    shop.wait_until("(select count(*) = 200 from webhook.deliveries where state = 'delivered')");
    receiver.forget();
    endpoint
}

/// How often each event arrived.
fn times(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for request in receiver.requests() {
        let id = request.header("webhook-id").expect("an id").to_owned();
        *times.entry(id).or_default() += 1;
    }
    times
}

/// Takes back what only the crashed server had, with PostgreSQL's own program.
fn rewind(old: &Cluster, new: &Cluster) {
    // Before PostgreSQL 16 it looks for the new timeline in the control file, where a checkpoint puts it.
    new.connect("postgres")
        .batch_execute("checkpoint")
        .expect("a checkpoint");
    let source = format!(
        "host={} port=5432 user=postgres dbname=postgres",
        new.folder().display()
    );
    let output = old
        .program("pg_rewind")
        .args(["-N", "--source-server", &source, "--target-pgdata"])
        .arg(old.data_folder())
        .output()
        .expect("pg_rewind");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    old.follow(new);
}
