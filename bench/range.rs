//! Live traffic beside a replay: events emitted at a steady rate, from the answer to the commit to the arrival of the
//! request, alone and while a range of events of the same partner is replayed to the same endpoint. The ratio of the p99
//! counts; it should stay below 1.5. In the middle of the replay the leader is ended once, and at its end the counts
//! must be exact.
//!
//! WEBHOOK_EVENTS: events replayed (100,000). WEBHOOK_LIVE_RATE: live events per second (200). WEBHOOK_REPLAY_RATE:
//! deliveries per second of the replay (300). WEBHOOK_SECONDS: how long live traffic is measured alone (30).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use crate::report::{Report, Target};
use nix::sys::signal::Signal;
use postgres::{Client, NoTls};
use webhook_outbox_test::{
    cluster::Cluster,
    meter::number,
    receiver::{Answer, Receiver},
    wait::wait_for,
};

const LONG: Duration = Duration::from_secs(1_200);

/// When live events arrived, by id; and when they were committed.
#[derive(Clone, Default)]
struct Clockwork {
    committed: Arc<Mutex<HashMap<String, Instant>>>,
    arrived: Arc<Mutex<HashMap<String, Instant>>>,
}

/// Prints it.
pub fn report(report: &mut Report) {
    report.part("range", "a replay of a range beside live traffic");
    let events = number("WEBHOOK_EVENTS", 100_000);
    let live_rate = number("WEBHOOK_LIVE_RATE", 200);
    let replay_rate = number("WEBHOOK_REPLAY_RATE", 300);
    let seconds = number("WEBHOOK_SECONDS", 30);
    let cluster = Cluster::plan().setting("fsync", "on").start();
    let receiver = Receiver::http();
    let times = Clockwork::default();
    let arrived = Arc::clone(&times.arrived);
    receiver.behave("/hook", move |request| {
        let id = request.header("webhook-id").unwrap_or_default().to_owned();
        arrived
            .lock()
            .expect("the times")
            .entry(id)
            .or_insert_with(Instant::now);
        Answer::status(200)
    });
    let mut sql = cluster.create_database("shop");
    sql.batch_execute("create extension webhook_outbox")
        .expect("the extension");
    sql.execute(
        "select webhook.create_endpoint('acme', $1, verify => 'none')",
        &[&receiver.url("/hook")],
    )
    .expect("an endpoint");
    sql.batch_execute(&format!(
        "select count(webhook.emit('order.old', 'acme', '{{}}')) from generate_series(1, {events})"
    ))
    .expect("old events");
    wait_until_delivered(&mut sql, events);
    receiver.forget();

    let alone = {
        let stop = Arc::new(AtomicBool::new(false));
        let emitter = emit(&cluster, &times, live_rate, &stop);
        sleep(Duration::from_secs(seconds as u64));
        stop.store(true, Ordering::SeqCst);
        emitter.join().expect("the emitter");
        settle(&times)
    };
    println!("live alone: {}", describe(&alone));

    let stop = Arc::new(AtomicBool::new(false));
    let emitter = emit(&cluster, &times, live_rate, &stop);
    let begun = Instant::now();
    let replay: i64 = sql
        .query_one(
            "select request_id from webhook.replay_range('acme', now() - interval '1 day', now(), 'bench', types => '{order.old}', rate => $1)",
            &[&i32::try_from(replay_rate).expect("a rate")],
        )
        .expect("a replay")
        .get(0);
    let mut ended = false;
    let mut beside = Vec::new();
    wait_for("the replay is done", LONG, || {
        sleep(Duration::from_millis(200));
        receiver.forget();
        let row = sql
            .query_one(
                "select state, again from webhook.replays where request_id = $1",
                &[&replay],
            )
            .expect("the replay");
        let again: i64 = row.get(1);
        if !ended && again > i64::try_from(events / 2).unwrap_or(0) {
            // What is measured is live traffic beside a replay, not beside a leader that starts.
            beside.extend(settle(&times));
            let pid: i32 = sql
                .query_one("select pid from webhook.stat_worker", &[])
                .expect("the leader")
                .get(0);
            cluster.signal(pid, Signal::SIGTERM);
            wait_for("another leader runs", Duration::from_secs(30), || {
                sql.query_one(
                    "select coalesce(pid, 0) <> $1 and state = 'running' from webhook.stat_worker",
                    &[&pid],
                )
                .is_ok_and(|row| row.get(0))
            });
            sleep(Duration::from_secs(3));
            settle(&times);
            ended = true;
        }
        row.get::<_, String>(0) == "done"
    });
    beside.extend(settle(&times));
    let took = begun.elapsed();
    stop.store(true, Ordering::SeqCst);
    emitter.join().expect("the emitter");
    println!(
        "live beside a replay of {events} in {took:.0?}: {}",
        describe(&beside)
    );
    wait_for("everything is delivered", LONG, || {
        sleep(Duration::from_millis(200));
        sql.query_one("select not exists (select from webhook._due)", &[])
            .is_ok_and(|row| row.get(0))
    });
    let row = sql
        .query_one(
            "select r.looked_at, r.again, r.made, r.under_way,
                    (select count(*) from webhook._delivery d where d.series_start = 0 and d.event_id in (select f.event_id from webhook._feed f where f.type = 'order.old')),
                    (select count(*) from webhook._delivery d where d.state <> 'delivered')
               from webhook.replays r where r.request_id = $1",
            &[&replay],
        )
        .expect("the counts");
    let counts: Vec<i64> = (0..6).map(|n| row.get(n)).collect();
    println!(
        "leader ended in the middle: {ended}; looked at {}, again {}, made {}, under way {}; without a new series {}, not delivered {}",
        counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]
    );
    let ratio = percentile(&beside, 99) / percentile(&alone, 99);
    report.judged(
        "p99 beside a replay / alone",
        ratio,
        "",
        Target::AtMost(1.5),
    );
    report.key("replay_p99_ratio", ratio);
    assert!(ended, "the leader ended in the middle");
    let all = i64::try_from(events).expect("not that many");
    // Every event once more, none made, none left out, nothing undelivered.
    assert_eq!(
        (counts[0], counts[1], counts[2], counts[4], counts[5]),
        (all, all, 0, 0, 0)
    );
}

/// A session that emits live events at a steady rate and notes when each was committed.
fn emit(
    cluster: &Cluster,
    times: &Clockwork,
    rate: usize,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let (connection, times, stop) = (cluster.connection("shop"), times.clone(), Arc::clone(stop));
    thread::spawn(move || {
        let mut sql: Client = connection.connect(NoTls).expect("a session");
        let begun = Instant::now();
        let mut n = 0_u32;
        while !stop.load(Ordering::SeqCst) {
            let due = begun + Duration::from_secs_f64(f64::from(n) / rate as f64);
            sleep(due.saturating_duration_since(Instant::now()));
            let id: String = sql
                .query_one("select webhook.emit('order.live', 'acme', '{}')", &[])
                .expect("an event")
                .get(0);
            times
                .committed
                .lock()
                .expect("the times")
                .insert(id, Instant::now());
            n += 1;
        }
    })
}

/// Milliseconds of the live events since the last call, sorted; those on their way are waited for.
fn settle(times: &Clockwork) -> Vec<f64> {
    let mut taken = Vec::new();
    let committed: Vec<(String, Instant)> =
        times.committed.lock().expect("the times").drain().collect();
    for (id, at) in committed {
        wait_for("a live event arrives", Duration::from_secs(60), || {
            times.arrived.lock().expect("the times").contains_key(&id)
        });
        let arrived = times.arrived.lock().expect("the times")[&id];
        taken.push(arrived.saturating_duration_since(at).as_secs_f64() * 1e3);
    }
    taken
}

fn wait_until_delivered(sql: &mut Client, events: usize) {
    wait_for("the old events are delivered", LONG, || {
        sleep(Duration::from_millis(500));
        let row = sql
            .query_one(
                "select count(*) from webhook._delivery where state = 'delivered'",
                &[],
            )
            .expect("a count");
        row.get::<_, i64>(0) == i64::try_from(events).unwrap_or(0)
    });
}

fn percentile(values: &[f64], share: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * share / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

fn describe(values: &[f64]) -> String {
    format!(
        "{} events, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        values.len(),
        percentile(values, 50),
        percentile(values, 99),
        percentile(values, 100)
    )
}
