//! The feed: every committed event of a partner once, in one order, whoever reads when and whatever ends meanwhile; and
//! cursors that hold through restarts, crashes, dumps and adoption.
//!
//! A longer run by environment: WEBHOOK_EVENTS (at least so many are emitted), WEBHOOK_KILLS, WEBHOOK_SEED.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    dice::Dice,
    meter::number,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    say,
    scene::{CATCH_UP, Scene, Subscription},
    storm::Ending,
    wait::{wait_for, wait_until},
    witness::Reaction,
};

const EMITTERS: u64 = 8;
const PARTNERS: [&str; 2] = ["alpha", "beta"];
const TYPES: [&str; 3] = ["order.created", "order.updated", "customer.frozen"];
const SUBSCRIPTIONS: [Subscription; 1] = [Subscription {
    path: "/alpha",
    partner: "alpha",
    patterns: &["order.*"],
    more: "",
}];

/// What a reader has read: events in their order, each with its cursor.
type Listing = Vec<(String, String)>;

#[test]
fn every_committed_event_is_listed_once_in_one_order_whoever_ends_meanwhile() {
    let scene = Scene::set(&SUBSCRIPTIONS, &[], |_| Reaction {
        status: Some(200),
        delay: Duration::ZERO,
    });
    // It has written, stays open for the whole run, prepared so that it survives every crash, and commits at its end.
    let mut open = scene.session();
    open.run("begin");
    open.emit_with("order.created", "alpha", "{}", ", correlation_id => 'open'");
    open.run("prepare transaction 'open'");
    drop(open);
    let least = number("WEBHOOK_EVENTS", 3_000);
    let planned = number("WEBHOOK_KILLS", 20);
    let storm = scene.storm(&PARTNERS, &TYPES, 0, Duration::from_millis(20));
    let (mut dice, mut kills) = (Dice::new(scene.seed.wrapping_add(1)), 0);
    let done = AtomicBool::new(false);
    let mut longest = Duration::ZERO;
    let listings: Vec<(&str, Listing)> = thread::scope(|scope| {
        let readers: Vec<_> = (0..4_u64)
            .map(|n| {
                let partner = PARTNERS[usize::from(n % 2 == 1)];
                let (connection, done) = (scene.cluster.connection("shop"), &done);
                let mut dice = Dice::new(scene.seed.wrapping_mul(7).wrapping_add(n));
                scope.spawn(move || {
                    (
                        partner,
                        read_all_the_time(&connection, partner, done, &mut dice),
                    )
                })
            })
            .collect();
        // A panic in here must not leave them reading.
        let ending = Ending(&done);
        storm.blow_until(EMITTERS, scene.seed, |emitted| {
            if kills < planned {
                scene.end_leader(kills % 2 == 1, &mut dice);
                kills += 1;
                return false;
            }
            sleep(Duration::from_millis(20));
            emitted >= least
        });
        // Behind the open transaction nobody waits.
        let begun = Instant::now();
        scene.leader();
        scene.session().run("select webhook.emit('order.created', partner, '{}', correlation_id => 'last') from unnest('{alpha,beta}'::text[]) as partner");
        wait_for(
            "the feed gets there while a transaction is open",
            CATCH_UP,
            || {
                scene
                    .session()
                    .is("(select unread_events = 0 from webhook.stat_queue)")
            },
        );
        longest = longest.max(begun.elapsed());
        scene.session().run("commit prepared 'open'");
        wait_for("the feed gets to the end", CATCH_UP, || {
            scene
                .session()
                .is("(select unread_events = 0 from webhook.stat_queue)")
        });
        drop(ending);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader"))
            .collect()
    });

    let mut committed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for event in scene.events() {
        let partner = PARTNERS.iter().find(|partner| **partner == event.partner);
        committed
            .entry(partner.expect("a partner"))
            .or_default()
            .insert(event.id);
    }
    for (partner, listing) in &listings {
        let listed: Vec<&String> = listing.iter().map(|(event, _)| event).collect();
        let once: BTreeSet<String> = listed.iter().map(|id| (*id).clone()).collect();
        let committed = &committed[partner];
        say!(
            "{partner}: {} committed, {} listed, {} lost, {} twice, {} never committed",
            committed.len(),
            listed.len(),
            committed.difference(&once).count(),
            listed.len() - once.len(),
            once.difference(committed).count()
        );
        assert_eq!(listed.len(), once.len(), "listed twice");
        assert_eq!(once, *committed);
    }
    // Two readers of one feed have read the same in the same order, with the same cursors.
    assert!(
        listings[0].1 == listings[2].1 && listings[1].1 == listings[3].1,
        "the order differs"
    );
    // And so does whoever reads it again, from anywhere.
    let mut session = scene.session();
    for _ in 0..20 {
        let (partner, listing) = dice.pick(&listings);
        let from = usize::try_from(dice.below(listing.len() as u64)).expect("a place");
        let again = session.column(&format!(
            "select event_id from webhook.events_after('{partner}', '{}', 50) where event_id is not null",
            listing[from].1
        ));
        let before: Vec<String> = listing[from + 1..]
            .iter()
            .take(50)
            .map(|(event, _)| event.clone())
            .collect();
        assert_eq!(again, before, "from {}", listing[from].1);
    }
    let exported = session.column("select event_id from webhook.export_events('alpha')");
    assert!(
        exported
            .iter()
            .eq(listings[0].1.iter().map(|(event, _)| event)),
        "the export differs"
    );
    say!(
        "leader ended {kills} times; 4 readers, orders equal; the last events listed {longest:?} after their commit behind an open transaction"
    );
}

#[test]
fn a_crash_takes_back_nothing_that_the_feed_has_shown() {
    // Nobody else flushes the log, and its writer sleeps.
    let cluster = Cluster::plan()
        .setting("fsync", "on")
        .setting("wal_writer_delay", "10s")
        .setting("full_page_writes", "off")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let mut cursor = String::new();
    let mut read: Vec<String> = Vec::new();
    let mut emitted: Vec<String> = Vec::new();
    for _ in 0..2 {
        // A young leader has everything on disk at once, whoever reads it.
        sleep(Duration::from_secs(11));
        // The test means something only if the last rows are not on disk when they are listed: the log is flushed when a
        // page of it is full.
        let mut unsaved = false;
        while !unsaved {
            emitted.push(shop.emit("order.paid", "alpha", "{}"));
            shop.wait_until(&format!(
                "(select count(*) = {} from webhook._feed)",
                emitted.len()
            ));
            unsaved = shop.is("pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()");
        }
        read_on(&mut shop.sql, "alpha", &mut cursor, &mut read);
        assert_eq!(read, emitted, "before the crash");
        let leader = shop.leader();
        cluster.signal(leader, Signal::SIGKILL);
        wait_for("the server goes down", PATIENCE, || {
            shop.sql.simple_query("select").is_err()
        });
        wait_for("the server comes back", CATCH_UP, || {
            cluster.try_connect("shop").is_ok()
        });
        shop = Outbox::join(&cluster, "shop");
        shop.wait_for_worker("running");
        read_on(&mut shop.sql, "alpha", &mut cursor, &mut read);
        assert_eq!(read, emitted, "after the crash");
    }
    // From the beginning it is the same list.
    let again = shop
        .column("select event_id from webhook.events_after('alpha') where event_id is not null");
    assert_eq!(again, emitted);
    say!(
        "{} events listed right before a crash of the server, none taken back",
        read.len()
    );
}

#[test]
fn cursors_hold_in_a_restored_dump_and_through_its_adoption() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let first: Vec<String> = (0..6)
        .map(|_| shop.emit("order.paid", "alpha", "{}"))
        .collect();
    shop.wait_until("(select unread = 6 from webhook.feed_status('alpha'))");
    let page =
        shop.rows("select cursor, event_id from webhook.events_after('alpha', max_events => 3)");
    let cursor = page[2][0].clone().expect("a cursor");
    let end = shop.text("select last_cursor from webhook.feed_status('alpha')");
    let none = shop.text("select cursor from webhook.events_after('quiet')");
    dump_and_restore(&cluster, "shop", "copy");
    // The original goes on: what it gives from now on means nothing in the copy.
    let later = shop.emit("order.paid", "alpha", "{}");
    shop.wait_until("(select unread = 7 from webhook.feed_status('alpha'))");
    let foreign = shop.text("select last_cursor from webhook.feed_status('alpha')");
    let origin = shop.number("select webhook._origin()");

    let mut copy = Outbox::join(&cluster, "copy");
    let after = |copy: &mut Outbox, cursor: &str| {
        copy.column(&format!(
            "select event_id from webhook.events_after('alpha', '{cursor}') where event_id is not null"
        ))
    };
    assert_eq!(after(&mut copy, &cursor), first[3..]);
    assert_eq!(after(&mut copy, &end), Vec::<String>::new());
    let refusal = copy.refusal(&format!(
        "select * from webhook.events_after('alpha', '{foreign}')"
    ));
    assert_eq!(refusal.0, "55000");
    assert!(
        refusal.1.contains("cursor is ahead of this feed"),
        "{refusal:?}"
    );
    copy.wait_for_worker("running");
    let own = copy.emit("order.paid", "alpha", "{}");
    let quiet = copy.emit("order.paid", "quiet", "{}");
    copy.wait_until("(select unread = 7 from webhook.feed_status('alpha'))");
    copy.wait_until("(select unread = 1 from webhook.feed_status('quiet'))");
    assert_eq!(after(&mut copy, &end), std::slice::from_ref(&own));
    assert_eq!(
        copy.column(&format!(
            "select event_id from webhook.events_after('quiet', '{none}')"
        )),
        [quiet]
    );
    // What the original never read before it was dumped comes behind what the feed had.
    drop(shop);
    drop_original(&cluster, "shop");
    copy.run(&format!(
        "select webhook.adopt({origin}, 'send', 'it took over')"
    ));
    copy.wait_until("(select state = 'done' from webhook.adoptions)");
    assert_eq!(after(&mut copy, &end), [own]);
    assert!(!copy.is(&format!(
        "exists (select from webhook.events where event_id = '{later}')"
    )));

    // A database that knows nothing of either.
    let mut other = Outbox::create(&cluster, "other");
    let refusal = other.refusal(&format!(
        "select * from webhook.events_after('quiet', '{none}')"
    ));
    assert_eq!(refusal.0, "22023");
    assert!(
        refusal.1.contains("cursor is of another database"),
        "{refusal:?}"
    );
}

#[test]
fn the_status_of_a_feed_says_who_is_behind_and_why() {
    let mut cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.emit("order.paid", "alpha", "{}");
    shop.wait_until("(select state = 'unread' and unread = 1 from webhook.feed_status('alpha'))");
    let cursor =
        shop.text("select cursor from webhook.events_after('alpha') where event_id is not null");
    let state = format!("select state from webhook.feed_status('alpha', '{cursor}')");
    assert_eq!(shop.text(&state), "current");
    assert!(shop.is("(select state = 'closed' from webhook.partner_status('alpha'))"));
    drop(shop);
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    shop.wait_until("(select state = 'stopped' from webhook.feed_status('alpha'))");
    shop.emit("order.paid", "alpha", "{}");
    let row = shop.rows(&format!(
        "select state, detail, unread, published_until < now() from webhook.feed_status('alpha', '{cursor}')"
    ));
    let row: Vec<_> = row[0]
        .iter()
        .map(|value| value.clone().unwrap_or_default())
        .collect();
    assert_eq!(
        row,
        [
            "stopped",
            "The setting webhook.enabled is off: nothing is sent.",
            "0",
            "t"
        ]
    );
    drop(shop);
    cluster.reload(&[("webhook.enabled", "on")]);
    Outbox::join(&cluster, "shop").wait_until(&format!(
        "(select state = 'unread' and unread = 1 from webhook.feed_status('alpha', '{cursor}'))"
    ));
}

#[test]
fn a_partner_is_synchronised_past_what_is_delivered_and_not_past_what_waits() {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    receiver.script("/fails", vec![Answer::status(503), Answer::status(200)]);
    receiver.behave("/hangs", |_| Answer::hang());
    let good = shop.endpoint_with(
        "alpha",
        &receiver.url("/takes"),
        ", event_types => '{good.*}'",
    );
    let bad = shop.endpoint_with(
        "alpha",
        &receiver.url("/fails"),
        ", event_types => '{bad.*}'",
    );
    let slow = shop.endpoint_with(
        "alpha",
        &receiver.url("/hangs"),
        ", event_types => '{slow.*}'",
    );
    let status = |shop: &mut Outbox<'_>, condition: &str| {
        shop.is(&format!(
            "({condition}) from webhook.partner_status('alpha')"
        ))
    };
    // Everything is delivered: it is past the newest publication, and goes on.
    let settled = "state = 'current' and synchronised_at >= last_published_at and now() - synchronised_at < '1 s'";
    let event = shop.emit("good.event", "alpha", "{}");
    shop.wait_for_state(&event, &good, "delivered");
    wait_for("alpha is synchronised", PATIENCE, || {
        status(&mut shop, settled)
    });

    // One waits for its next attempt: whatever is delivered after it, it is not past that one.
    let waits = shop.emit("bad.event", "alpha", "{}");
    let delivery = shop.wait_for_state(&waits, &bad, "retrying");
    let event = shop.emit("good.event", "alpha", "{}");
    shop.wait_for_state(&event, &good, "delivered");
    let held = |event: &str| {
        format!(
            "state = 'behind' and synchronised_at <= webhook._event_time('{event}')
             and webhook._event_time('{event}') - synchronised_at < '1 min' and synchronised_at < last_published_at"
        )
    };
    assert!(status(&mut shop, &held(&waits)));
    shop.run(&format!("select webhook.retry('{}', 'test')", delivery.id));
    shop.wait_for_state(&waits, &bad, "delivered");
    wait_for("alpha is synchronised again", PATIENCE, || {
        status(&mut shop, settled)
    });

    // One is on the wire and has no row yet: it is before that one as well, until it has one, and after.
    let hangs = shop.emit("slow.event", "alpha", "{}");
    let before = format!("synchronised_at <= webhook._event_time('{hangs}')");
    let mut looks = 0;
    while shop.delivery(&hangs, &slow).is_none() {
        assert!(status(&mut shop, &before), "look {looks}");
        looks += 1;
    }
    assert!(looks > 5, "{looks} looks before it had a row");
    wait_for("it is seen to wait", PATIENCE, || {
        status(&mut shop, &held(&hangs))
    });
    say!("alpha was not past an event in memory in {looks} looks");
}

#[test]
fn a_page_looks_at_a_bounded_number_of_rows_and_still_gets_on() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.run(
        "select count(webhook.emit('order.paid', 'alpha', '{}')) from generate_series(1, 12000)",
    );
    let rare = shop.emit("order.rare", "alpha", "{}");
    shop.wait_until("(select unread >= 10000 from webhook.feed_status('alpha')) and (select unread_events = 0 from webhook.stat_queue)");
    let mut cursor = "null".to_owned();
    let mut pages = Vec::new();
    let found = loop {
        let rows = shop.rows(&format!(
            "select cursor, coalesce(event_id, '') from webhook.events_after('alpha', {cursor}, types => '{{order.rare}}')"
        ));
        assert_eq!(rows.len(), 1, "a row that moves the cursor, or the event");
        pages.push(rows.len());
        cursor = format!("'{}'", rows[0][0].clone().expect("a cursor"));
        match rows[0][1].clone().unwrap_or_default() {
            event if event.is_empty() => {}
            event => break event,
        }
    };
    assert_eq!((found, pages.len()), (rare, 3));
}

/// Pages through a feed until the end of the run, and then to its end.
fn read_all_the_time(
    server: &Config,
    partner: &str,
    done: &AtomicBool,
    dice: &mut Dice,
) -> Listing {
    let mut sql = session(server);
    let mut listing: Listing = Vec::new();
    let mut cursor = "null".to_owned();
    loop {
        let last = done.load(Ordering::SeqCst);
        let size = 1 + dice.below(200);
        // A server that crashed comes back; what was read is kept.
        let Ok(page) = page(&mut sql, partner, &cursor, size) else {
            sql = session(server);
            continue;
        };
        if let Some((_, newest)) = page.last() {
            cursor = format!("'{newest}'");
        }
        let empty = page.is_empty();
        listing.extend(page.into_iter().filter(|(event, _)| !event.is_empty()));
        // Somebody who forgot where he was reads the last page again: nothing has changed in it.
        if dice.percent(10) && listing.len() > 30 {
            let from = listing.len() - 30;
            match self::page(&mut sql, partner, &format!("'{}'", listing[from].1), 29) {
                Ok(again) => assert_eq!(again, listing[from + 1..], "read again"),
                Err(_) => sql = session(server),
            }
        }
        if empty && last {
            return listing;
        }
        if empty {
            sleep(Duration::from_millis(dice.below(10)));
        }
    }
}

/// A session, as soon as the server takes one.
fn session(server: &Config) -> Client {
    wait_until("the server takes a session", CATCH_UP, || {
        server.connect(NoTls).ok()
    })
}

/// Events and cursors of a page; a row that moves the cursor only has an empty event. An error where the server is
/// gone; whatever else goes wrong is a fault.
fn page(
    sql: &mut Client,
    partner: &str,
    cursor: &str,
    size: u64,
) -> Result<Listing, postgres::Error> {
    let query = format!(
        "select coalesce(event_id, ''), cursor from webhook.events_after('{partner}', {cursor}, {size})"
    );
    let rows = sql.simple_query(&query).inspect_err(|error| {
        let own = ["57P01", "57P02", "57P03"];
        let fault = error.code().filter(|code| !own.contains(&code.code()));
        assert!(fault.is_none(), "{cursor}: {error:?}");
    })?;
    Ok(rows
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.to_owned(), row.get(1)?.to_owned())),
            _ => None,
        })
        .collect())
}

/// Reads what there is after the cursor, and moves it.
fn read_on(sql: &mut Client, partner: &str, cursor: &mut String, read: &mut Vec<String>) {
    loop {
        let from = if cursor.is_empty() {
            "null".to_owned()
        } else {
            format!("'{cursor}'")
        };
        let page = page(sql, partner, &from, 100).expect("a page");
        let Some((_, newest)) = page.last() else {
            return;
        };
        cursor.clone_from(newest);
        let events: Vec<String> = page
            .into_iter()
            .map(|(event, _)| event)
            .filter(|event| !event.is_empty())
            .collect();
        if events.is_empty() {
            return;
        }
        read.extend(events);
    }
}
