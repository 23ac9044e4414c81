//! Outage: an endpoint is down while a hundred thousand deliveries for it pile up and become overdue (WEBHOOK_ROWS; a
//! million in `make campaign`), and then it comes back.
//!
//! Printed: what the backlog costs while the endpoint is down (requests, row versions written in the due table, CPU),
//! the ramp of the first seconds, the most requests at once beside the cap, the rate of the drain, and the leader's
//! memory. Whoever comes back is not well at once: for the first two seconds each request takes 100 ms, so that the ramp
//! can be seen, and then 2 ms.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use crate::report::{Report, Target};
use postgres::Client;
use webhook_outbox_test::{
    cluster::Cluster,
    meter::{anonymous_kb, cpu_seconds, number, tables},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

const CAP: usize = 8;
/// Events of one transaction.
const CHUNK: usize = 10_000;
/// How long the costs of the outage are counted for.
const WATCH: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_millis(100);
/// Samples of the ramp that are shown.
const RAMP: usize = 30;
/// Of which these are its beginning: the probe, and what it lets follow.
const RAMP_BEGINS: usize = 2;
/// What a request takes at first, and later.
const SERVICE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(2)];
/// Requests that are the first ones: two seconds of them at full width.
const FIRST: usize = 2 * 10 * CAP;

/// Prints it.
pub fn report(report: &mut Report) {
    let rows = number("WEBHOOK_ROWS", 100_000);
    let cluster = Cluster::plan()
        .setting("webhook.max_in_flight_per_endpoint", &CAP.to_string())
        .setting("max_wal_size", "4GB")
        .start();
    let mut sql = cluster.create_database("bench");
    sql.batch_execute("create extension webhook_outbox")
        .expect("the extension is installed");
    let receiver = Receiver::http();
    let (up, accepted) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_up, count) = (Arc::clone(&up), Arc::clone(&accepted));
    receiver.behave("/hook", move |_| {
        if !is_up.load(Ordering::SeqCst) {
            return Answer::status(503);
        }
        let later = count.fetch_add(1, Ordering::SeqCst) >= FIRST;
        Answer::status(200).after(SERVICE[usize::from(later)])
    });
    sql.execute(
        "select webhook.create_endpoint('bench', $1, verify => 'none')",
        &[&receiver.url("/hook")],
    )
    .expect("the endpoint is accepted");
    report.part(
        "outage",
        &format!("{rows} deliveries for an endpoint that is down, at most {CAP} requests at once"),
    );
    pile_up(&mut sql, rows);
    let leader: i32 = one(&mut sql, "select pid from webhook.stat_worker");
    let mut memory = anonymous_kb(leader);
    while_down(&mut sql, &receiver, leader);

    let flipped = Instant::now();
    up.store(true, Ordering::SeqCst);
    wait_for("a probe finds it well", Duration::from_secs(120), || {
        accepted.load(Ordering::SeqCst) > 0
    });
    let begun = Instant::now();
    println!(
        "back: the first success came {:.1} s after it was well",
        (begun - flipped).as_secs_f64()
    );
    // At least 200/s, or something is wrong.
    let deadline = Duration::from_secs(120 + rows as u64 / 200);
    let (mut widths, mut peak) = (Vec::new(), 0);
    while accepted.load(Ordering::SeqCst) < rows {
        sleep(SAMPLE);
        let most = receiver.peak();
        // Also the requests: a million of them are a gigabyte.
        receiver.forget();
        peak = peak.max(most);
        if widths.len() < RAMP {
            widths.push(most);
        }
        memory = memory.max(anonymous_kb(leader));
        assert!(
            begun.elapsed() < deadline,
            "{} of {rows} were sent",
            accepted.load(Ordering::SeqCst)
        );
    }
    let took = begun.elapsed().as_secs_f64();
    wait_for("all of it is recorded", Duration::from_secs(60), || {
        one(&mut sql, "select not exists (select from webhook._due)")
    });
    println!(
        "ramp, most requests at once in each {SAMPLE:?}: {}",
        widths
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    );
    println!(
        "drained in {took:.1} s, {:.0}/s; at most {peak} requests at once, the cap is {CAP}; leader RssAnon at most {memory} kB",
        rows as f64 / took
    );
    let megabytes = memory as f64 / 1024.0;
    report.judged(
        "RssAnon of the leader at most",
        megabytes,
        "MB",
        Target::AtMost(300.0),
    );
    report.key("rss_mb_1m_due", megabytes);
    let dead: i64 = one(
        &mut sql,
        "select count(*) from webhook.deliveries where state <> 'delivered'",
    );
    report.judged(
        "most requests at once",
        peak as f64,
        "",
        Target::AtMost(CAP as f64),
    );
    // It starts with one request, which is answered after 100 ms, then two, and opens its window from there.
    let first = widths.iter().take(RAMP_BEGINS).max();
    let later = widths.iter().skip(RAMP_BEGINS).max();
    report.judged(
        "requests at once when it begins",
        first.map_or(CAP, |most| *most) as f64,
        "",
        Target::AtMost(CAP as f64 / 2.0),
    );
    report.judged(
        "most requests at once after that",
        later.map_or(0, |most| *most) as f64,
        "",
        Target::AtLeast(CAP as f64 / 2.0 + 1.0),
    );
    report.judged(
        "deliveries not delivered",
        dead as f64,
        "",
        Target::AtMost(0.0),
    );
    let twice = accepted.load(Ordering::SeqCst) - rows;
    report.judged("requests too many", twice as f64, "", Target::AtMost(0.0));
    report.key("outage_drain_per_s", rows as f64 / took);
}

/// Emits, and waits until every pair has its row.
fn pile_up(sql: &mut Client, rows: usize) {
    let data = format!("{{\"text\": \"{}\"}}", "x".repeat(200));
    let mut left = rows;
    while left > 0 {
        let count = left.min(CHUNK);
        sql.execute(
            "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2::bigint)",
            &[&data, &(count as i64)],
        )
        .expect("emit succeeds");
        left -= count;
    }
    wait_for("all of it waits", Duration::from_secs(600), || {
        let waiting: i64 = one(sql, "select count(*) from webhook._due");
        usize::try_from(waiting).is_ok_and(|waiting| waiting == rows)
    });
}

/// What the backlog costs while nothing can be sent.
fn while_down(sql: &mut Client, receiver: &Receiver, leader: i32) {
    // What was counted while it piled up is to be reported first.
    sleep(Duration::from_secs(2));
    receiver.forget();
    let (updated, cpu) = (updates(sql), cpu_seconds(leader));
    sleep(WATCH);
    let (requests, spent) = (receiver.count(), cpu_seconds(leader) - cpu);
    // The statistics of the leader may be a second late.
    sleep(Duration::from_secs(2));
    println!(
        "down, in {WATCH:?}: {requests} requests, {} row versions written in _due, {:.1} % of a core; RssAnon {} kB",
        updates(sql) - updated,
        100.0 * spent / WATCH.as_secs_f64(),
        anonymous_kb(leader)
    );
}

fn updates(sql: &mut Client) -> i64 {
    let due = tables(sql).into_iter().find(|table| table.name == "_due");
    due.expect("the due table").updated
}

fn one<T: for<'a> postgres::types::FromSql<'a>>(sql: &mut Client, query: &str) -> T {
    sql.query_one(query, &[]).expect("one row").get(0)
}
