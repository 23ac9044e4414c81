//! The receiving side under concurrency and over time: an event is taken in once and has one effect, whoever sends it
//! how often; our own sender, the receiver example and a handler work together; keys stay secret; strangers leave
//! no more than counters.

use std::{
    net::TcpListener,
    sync::{Barrier, LazyLock, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postgres::Client;
use standardwebhooks::Webhook;
use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    example::Example,
    master_key::MasterKeyFile,
    monitoring::sample,
    outbox::{Outbox, quoted},
    say,
    wait::wait_for,
};

const SOON: Duration = Duration::from_secs(90);

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

/// A source "shop" with a key of its own, returned.
fn source(shop: &mut Outbox<'_>) -> String {
    shop.run("select webhook.create_inbox_source('shop', 'v1', 'acme')");
    shop.text("select new_key from webhook.add_inbox_key('shop')")
}

/// Headers as the public library signs them, now.
fn signed(secret: &str, id: &str, body: &str) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let now = i64::try_from(now.as_secs()).expect("a time");
    let library = Webhook::new(secret).expect("the library takes the key");
    let signature = library.sign(id, now, body.as_bytes()).expect("signed");
    serde_json::json!({ "Webhook-Id": id, "Webhook-Timestamp": now.to_string(), "Webhook-Signature": signature }).to_string()
}

fn receive(client: &mut Client, source: &str, headers: &str, body: &str) -> String {
    let query = "select concat_ws(' ', result, http_status, reason)
                   from webhook.receive($1::text, $2::text::jsonb, convert_to($3::text, 'UTF8'))";
    client
        .query_one(query, &[&source, &headers, &body])
        .expect("receive answers whatever it is given")
        .get(0)
}

#[test]
fn eight_sessions_that_receive_one_event_take_it_in_once() {
    const SESSIONS: usize = 8;
    const EVENTS: usize = 100;
    let mut shop = Outbox::create(&CLUSTER, "at_once");
    let secret = source(&mut shop);
    shop.run("select webhook.create_inbox_handler('books')");
    let start = Barrier::new(SESSIONS);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            let mut session = shop.another();
            let (secret, start, results) = (&secret, &start, &results);
            scope.spawn(move || {
                for event in 0..EVENTS {
                    let id = format!("evt_{event}");
                    let body = format!(r#"{{"n":{event}}}"#);
                    let headers = signed(secret, &id, &body);
                    start.wait();
                    let result = receive(&mut session.sql, "shop", &headers, &body);
                    results.lock().expect("results").push((event, result));
                }
            });
        }
    });
    let results = results.into_inner().expect("results");
    for event in 0..EVENTS {
        let of = |wanted: &str| {
            results
                .iter()
                .filter(|(of, result)| *of == event && result == wanted)
                .count()
        };
        assert_eq!((of("accepted 202"), of("duplicate 200")), (1, 7), "{event}");
    }
    assert!(shop.is(&format!(
        "count(*) = {EVENTS} and count(distinct event_id) = {EVENTS} and count(*) filter (where state = 'pending') = {EVENTS}
           from webhook.inbox"
    )));
    assert!(shop.is(&format!(
        "accepted = {EVENTS} and duplicates = 7 * {EVENTS} and rejected = 0 from webhook.stat_inbox where handler is null"
    )));
    // Six sessions that do not fail and do not wait for each other take them on: one side effect for each event.
    shop.run("create table effect (event_id text, session integer)");
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for number in 0..6_u64 {
            let mut session = shop.another();
            let start = &start;
            scope.spawn(move || {
                start.wait();
                take_all(&mut session, number);
            });
        }
    });
    assert!(shop.is(&format!(
        "count(*) = {EVENTS} and count(distinct event_id) = {EVENTS} from effect"
    )));
    assert!(shop.is(&format!(
        "count(*) = {EVENTS} and bool_and(state = 'processed' and attempts = 1) from webhook.inbox"
    )));
    let took_part = shop.number("select count(distinct session) from effect");
    assert!(took_part > 1, "one session alone did everything");
    say!(
        "receiving: {} results, one acceptance and one effect per event, by {took_part} sessions",
        results.len()
    );
}

/// Claims two at a time, has the effect and finishes in one transaction, until nothing is open.
fn take_all(session: &mut Outbox<'_>, number: u64) {
    loop {
        let claimed =
            session.rows("select claim_id, event_id from webhook.claim_inbox('books', 2)");
        if claimed.is_empty() {
            if session.is(
                "not exists (select from webhook.inbox where state in ('pending', 'claimed', 'retrying'))",
            ) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        for claim in claimed {
            let (claim, event) = (
                claim[0].clone().unwrap_or_default(),
                claim[1].clone().unwrap_or_default(),
            );
            session.run(&format!(
                "begin; insert into effect values ({}, {number}); select webhook.finish_inbox({claim}); commit",
                quoted(&event)
            ));
        }
    }
}

#[test]
fn an_event_has_one_effect_whatever_becomes_of_the_handlers() {
    const EVENTS: i64 = 200;
    let mut shop = Outbox::create(&CLUSTER, "effects");
    let secret = source(&mut shop);
    shop.run(
        "select webhook.create_inbox_handler('books', retry_schedule => '1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms,1ms');
         create table effect (event_id text, session integer)",
    );
    for event in 0..EVENTS {
        let (id, body) = (format!("evt_{event}"), "{}");
        assert_eq!(
            receive(&mut shop.sql, "shop", &signed(&secret, &id, body), body),
            "accepted 202"
        );
    }
    thread::scope(|scope| {
        for number in 0..6_u64 {
            let mut session = shop.another();
            scope.spawn(move || work(&mut session, number));
        }
    });
    assert!(shop.is(&format!(
        "count(*) = {EVENTS} and count(distinct event_id) = {EVENTS} from effect"
    )));
    assert!(shop.is(&format!(
        "count(*) = {EVENTS} and bool_and(state = 'processed') from webhook.inbox"
    )));
    let troubled = shop.number("select count(*) from webhook.inbox where attempts > 1");
    assert!(troubled > 20, "{troubled} events had a second attempt");
    say!("receiving: {EVENTS} events, {troubled} in trouble, one effect each");
}

/// Claims and finishes until nothing is open, and dies, fails and outlives its lease at random.
fn work(session: &mut Outbox<'_>, number: u64) {
    let mut dice = Dice::new(number + 1);
    loop {
        let claimed = session
            .rows("select claim_id, event_id from webhook.claim_inbox('books', 1, '1 hour')");
        let Some(claim) = claimed.first() else {
            if session.is("not exists (select from webhook.inbox where state in ('pending', 'claimed', 'retrying'))") {
                return;
            }
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let (claim, event) = (
            claim[0].clone().unwrap_or_default(),
            claim[1].clone().unwrap_or_default(),
        );
        let effect = format!("insert into effect values ({}, {number})", quoted(&event));
        // No time passes: a lease ends when the dice say so, and not because the machine is busy.
        let lease_ends = format!(
            "update webhook._inbox_run set next_attempt_at = clock_timestamp() where claim_id = {claim}"
        );
        match dice.below(8) {
            // It does its work, and dies before it is done.
            0 => session.run(&format!(
                "begin; {effect}; select webhook.finish_inbox({claim}); rollback; {lease_ends}"
            )),
            1 => session.run(&format!(
                "select webhook.finish_inbox({claim}, 'failed', 'no luck')"
            )),
            // Its lease ends: when another has claimed the event, its own work must not stay.
            2 => {
                session.run(&lease_ends);
                thread::sleep(Duration::from_millis(dice.below(10)));
                let done = session.sql.batch_execute(&format!(
                    "begin; {effect}; select webhook.finish_inbox({claim}); commit"
                ));
                if let Err(error) = done {
                    assert_eq!(error.code().map(|code| code.code()), Some("55000"));
                    session.run("rollback");
                }
            }
            _ => session.run(&format!(
                "begin; {effect}; select webhook.finish_inbox({claim}); commit"
            )),
        }
    }
}

#[test]
fn an_event_that_comes_again_after_days_and_out_of_order_is_recognised() {
    let mut shop = Outbox::create(&CLUSTER, "days");
    let secret = source(&mut shop);
    shop.run("select webhook.create_inbox_handler('books')");
    let body = |version: i64| {
        format!(
            r#"{{"type":"order.paid","subject":{{"type":"order","id":"7","version":{version}}}}}"#
        )
    };
    let take = |shop: &mut Outbox<'_>, version: i64| {
        let (id, body) = (format!("evt_{version}"), body(version));
        receive(&mut shop.sql, "shop", &signed(&secret, &id, &body), &body)
    };
    let process = |shop: &mut Outbox<'_>| {
        shop.column(
            "select c.event_id || ' ' || webhook.finish_inbox(c.claim_id) from webhook.claim_inbox('books', 10) as c",
        )
    };
    assert_eq!(take(&mut shop, 2), "accepted 202");
    assert_eq!(process(&mut shop), ["evt_2 processed"]);
    // A hundred days pass: retries, replays and recovery all end before the retention of 120.
    let pass = |days: u32| {
        format!(
            "update webhook._inbox set received_at = received_at - interval '{days} days';
             update webhook._inbox_subject set changed_at = changed_at - interval '{days} days';
             update webhook._inbox_count set day = day - {days}"
        )
    };
    shop.run(&pass(100));
    shop.run("select webhook._trim_inbox(now() - interval '120 days', 1000)");
    assert_eq!(take(&mut shop, 2), "duplicate 200");
    assert_eq!(take(&mut shop, 1), "accepted 202");
    assert_eq!(process(&mut shop), [""; 0]);
    assert!(shop.is("state = 'stale' from webhook.inbox where event_id = 'evt_1'"));
    assert_eq!(take(&mut shop, 3), "accepted 202");
    assert_eq!(process(&mut shop), ["evt_3 processed"]);
    // After the retention the oldest is forgotten, and only that.
    shop.run(&pass(30));
    shop.run("select webhook._trim_inbox(now() - interval '120 days', 1000)");
    assert_eq!(
        shop.column("select event_id from webhook.inbox order by 1"),
        ["evt_1", "evt_3"]
    );
    assert_eq!(take(&mut shop, 3), "duplicate 200");
}

#[test]
fn strangers_leave_counters_and_no_more_of_those_than_sessions() {
    let mut shop = Outbox::create(&CLUSTER, "strangers");
    let secret = source(&mut shop);
    let stranger = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut session = shop.another();
            scope.spawn(move || {
                for n in 0..250 {
                    let (id, body) = (
                        format!("evt_{n}"),
                        format!(r#"{{"card":"confidential {n}"}}"#),
                    );
                    let result = receive(
                        &mut session.sql,
                        "shop",
                        &signed(stranger, &id, &body),
                        &body,
                    );
                    assert_eq!(result, "rejected 401 no_match");
                }
            });
        }
    });
    assert_eq!(
        shop.number("select sum(total) from webhook.inbox_rejections where reason = 'no_match'"),
        1_000
    );
    let rows = shop.number("select count(*) from webhook._inbox_count");
    assert!(rows <= 4, "{rows} rows");
    assert_eq!(shop.number("select count(*) from webhook._inbox"), 0);
    assert!(
        shop.is(
            "not exists (select from webhook._inbox_count c where c::text ~ 'confidential|evt_')"
        )
    );
    // The leader may put yesterday's rows together; the sum stays.
    shop.run("update webhook._inbox_count set day = day - 2; select webhook._trim_inbox(now() - interval '120 days', 10)");
    assert_eq!(shop.number("select count(*) from webhook._inbox_count"), 1);
    assert_eq!(
        shop.number("select rejected from webhook.stat_inbox where handler is null"),
        1_000
    );
    assert_eq!(
        receive(&mut shop.sql, "shop", &signed(&secret, "evt_1", "{}"), "{}"),
        "accepted 202"
    );
}

#[test]
fn keys_of_sources_are_encrypted_bound_to_their_source_and_in_no_log() {
    let mut cluster = Cluster::plan()
        .setting("log_min_duration_statement", "0")
        .setting("log_statement", "all")
        .start();
    Outbox::create(&cluster, "keys");
    let mut shop = Outbox::join(&cluster, "keys");
    let secret = source(&mut shop);
    assert!(shop.is("not encrypted from webhook.inbox_keys"));
    drop(shop);
    let file = MasterKeyFile::set(&mut cluster, 1);
    let mut shop = Outbox::join(&cluster, "keys");
    wait_for("the master key is in force", SOON, || {
        shop.is("current_setting('webhook.master_key_file') <> ''")
    });
    assert!(shop.is("secrets >= 1 and unreadable = 0 from webhook.reencrypt_secrets()"));
    assert!(shop.is("encrypted and master_key_id is not null from webhook.inbox_keys"));
    let take = |shop: &mut Outbox<'_>, source: &str, secret: &str, id: &str| {
        receive(&mut shop.sql, source, &signed(secret, id, "{}"), "{}")
    };
    assert_eq!(take(&mut shop, "shop", &secret, "evt_1"), "accepted 202");
    // A ciphertext that is moved to another source opens nothing there.
    shop.run(
        "select webhook.create_inbox_source('other', 'v1', 'globex');
         insert into webhook._inbox_key (key_id, source_id, kind, key)
         select k.key_id + 1, s.source_id, k.kind, k.key from webhook._inbox_key k, webhook._inbox_source s where s.name = 'other'",
    );
    assert_eq!(
        take(&mut shop, "other", &secret, "evt_1"),
        "rejected 503 key_unavailable"
    );
    // Without the master key nothing is refused for good: the sender comes again.
    file.write(&[2]);
    assert_eq!(
        take(&mut shop, "shop", &secret, "evt_2"),
        "rejected 503 key_unavailable"
    );
    file.write(&[2, 1]);
    assert_eq!(take(&mut shop, "shop", &secret, "evt_2"), "accepted 202");
    let log = cluster.log();
    assert!(log.contains("add_inbox_key"), "the log has the statements");
    assert!(!log.contains(&secret[6..]), "a key is in the log");
}

#[test]
fn our_sender_the_receiver_example_and_a_handler_work_together() {
    let mut shop = Outbox::create(&CLUSTER, "together");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/hooks/shop");
    shop.run("select webhook.create_inbox_source('shop', 'v1', 'acme')");
    // The endpoint's secret is the source's key; its challenge is answered by what receive says.
    let endpoint = shop.endpoint_with("acme", &url, ", verify => 'challenge'");
    shop.run(&format!(
        "select webhook.add_inbox_key('shop', {})",
        quoted(&endpoint.secret)
    ));
    shop.run(
        "create role front login; create role books login;
         select webhook.grant_access('front', 'receive'); select webhook.grant_access('books', 'handle')",
    );
    shop.run(&std::fs::read_to_string(Example::path("inbox/handler.sql")).expect("the handler"));
    shop.run("grant insert on booking to books");
    let receiver = listener(port, &endpoint.secret);
    shop.wait_until("state = 'active' and verified_by = 'challenge' from webhook.endpoints");
    receiver.says("challenge");

    let paid = shop.emit_with(
        "order.paid",
        "acme",
        r#"{"total": 1.10}"#,
        ", subject_type => 'order', subject_id => '7', subject_version => 1, correlation_id => 'c-7'",
    );
    let broken = shop.emit_with(
        "order.paid",
        "acme",
        r#"{"total": "much"}"#,
        ", subject_type => 'order', subject_id => '8', subject_version => 1",
    );
    let other = shop.emit("order.made", "acme", "{}");
    for event in [&paid, &broken, &other] {
        receiver.says(&format!("accepted {event}"));
        shop.wait_for_state(event, &endpoint, "delivered");
    }
    shop.run(&format!("select webhook.replay('{paid}')"));
    receiver.says(&format!("duplicate {paid}"));

    assert_inbox(&mut shop, [3, 1, 0, 0, 0, 0], [2, 0]);
    let mut books = CLUSTER
        .connection("together")
        .user("books")
        .connect(postgres::NoTls)
        .expect("a session");
    books
        .batch_execute("call book_orders()")
        .expect("the handler");
    books
        .batch_execute("call book_orders()")
        .expect("the handler");
    assert_eq!(
        shop.column("select event_id || ' ' || order_id || ' ' || total from booking"),
        [format!("{paid} 7 1.10")]
    );
    let rows = shop.column(
        "select e.event_id || ' ' || i.source || ' ' || i.state || ' ' || coalesce(i.handler || ': ' || i.note, 'nobody')
           from webhook.events e join webhook.inbox i using (event_id) order by e.event_id",
    );
    assert_eq!(
        rows,
        [
            format!("{paid} shop processed books: booked"),
            format!("{broken} shop dead books: SQLSTATE 22P02"),
            format!("{other} shop unhandled nobody"),
        ]
    );
    assert!(shop.is("accepted = 3 and duplicates = 1 and rejected = 0 from webhook.stat_inbox where handler is null"));
    assert!(shop.is("processed = 1 and failures = 1 and dead = 1 from webhook.stat_inbox where handler = 'books'"));
    assert_inbox(&mut shop, [3, 1, 0, 1, 1, 0], [0, 1]);

    // The database says no, or is not there: the sender comes again.
    shop.run("select webhook.update_inbox_source('shop', enabled => false)");
    let late = shop.emit("order.made", "acme", "{}");
    let delivery = shop.wait_for_attempts(&late, &endpoint, 1);
    assert_eq!((delivery.status, &*delivery.state), (Some(503), "retrying"));
    // A key that is revoked: 401, which is for good.
    shop.run(
        "select webhook.update_inbox_source('shop', enabled => true);
         select webhook.add_inbox_key('shop');
         select webhook.revoke_inbox_key(min(key_id), 'leaked') from webhook.inbox_keys",
    );
    let refused = shop.emit("order.made", "acme", "{}");
    let delivery = shop.wait_for_state(&refused, &endpoint, "dead");
    assert_eq!(delivery.status, Some(401));
    // What was refused with 503 and with 401 is counted, and not in what was accepted.
    assert_inbox(&mut shop, [3, 1, 2, 1, 1, 0], [0, 1]);
    // Another day begins with nothing; what is dead stays so.
    shop.run("update webhook._inbox_count set day = day - 1");
    assert_inbox(&mut shop, [0; 6], [0, 1]);
}

/// What metrics() says of the inbox: events of today by result, and open ones, unfinished and dead.
#[track_caller]
fn assert_inbox(shop: &mut Outbox<'_>, today: [i32; 6], open: [i32; 2]) {
    let results = [
        "accepted",
        "duplicate",
        "rejected",
        "processed",
        "failed",
        "stale",
    ];
    for (result, wanted) in results.into_iter().zip(today) {
        let name = format!("webhook_inbox_events_today{{result=\"{result}\"}}");
        assert_eq!(sample(shop, &name), f64::from(wanted), "{name}");
    }
    for (state, wanted) in ["unfinished", "dead"].into_iter().zip(open) {
        let name = format!("webhook_inbox_open{{state=\"{state}\"}}");
        assert_eq!(sample(shop, &name), f64::from(wanted), "{name}");
    }
}

/// The receiver example with the right to receive and no other.
fn listener(port: u16, secret: &str) -> Example {
    let connection = CLUSTER.connection("together");
    let host = match connection.get_hosts().first() {
        Some(postgres::config::Host::Unix(path)) => path.display().to_string(),
        Some(postgres::config::Host::Tcp(name)) => name.clone(),
        None => panic!("the cluster has no address"),
    };
    let server_port = connection.get_ports().first().copied().unwrap_or(5432);
    let database = format!("host={host} port={server_port} dbname=together user=front");
    let listener = Example::start(
        "inbox/receiver.py",
        &[&port.to_string(), &database],
        ("WEBHOOK_SECRET", secret),
    );
    listener.says(&format!("listening on http://127.0.0.1:{port}/"));
    listener
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}
