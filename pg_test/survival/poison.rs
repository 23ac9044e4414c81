//! An event that ends the leader's process whenever it is sent, as a fault in the library would. Every such end takes
//! all sessions of the server with it, so that each look at it needs a new one.

use std::{
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE, quoted},
    receiver::{Answer, Receiver, Request},
    wait::{wait_for, wait_until},
};

use crate::A_WHILE;

static MORTAL: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

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
    let numbers: Vec<_> = deaths
        .iter()
        .map(|request| request.header("webhook-attempt").unwrap_or_default())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
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
