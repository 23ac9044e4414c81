//! Drain: how fast a backlog of events reaches one receiver, beside a bare client that posts the same
//! number of bodies to the same receiver over as many connections, in the same run, interleaved.
//!
//! Prints deliveries per second from first arrival to last recorded row, their ratio, CPU seconds of the
//! leader per 1,000 deliveries, and WAL bytes per delivery. The ratio counts: machines are noisy.

use std::time::{Duration, Instant};

use postgres::Client;
use webhook_outbox_test::cluster::Cluster;
use webhook_outbox_test::meter::{Bare, cpu_seconds};
use webhook_outbox_test::receiver::Receiver;
use webhook_outbox_test::wait::wait_until;

const EVENTS: usize = 20_000;
const CONNECTIONS: usize = 16;
const ROUNDS: usize = 3;
const BODY: usize = 600;

fn main() {
    let cluster = Cluster::plan()
        .setting(
            "webhook.max_in_flight_per_endpoint",
            &CONNECTIONS.to_string(),
        )
        .setting("fsync", "on")
        .start();
    let mut database = cluster.create_database("drain");
    database
        .batch_execute("create extension webhook_outbox")
        .expect("the extension is installed");
    let receiver = Receiver::http();
    database
        .execute(
            "select webhook.create_endpoint('bench', $1, verify => 'none')",
            &[&receiver.url("/worker")],
        )
        .expect("the endpoint is accepted");
    println!("{EVENTS} events, one endpoint, {CONNECTIONS} connections, {BODY} B");
    println!("round   worker/s     bare/s   ratio   leader CPU s/1000   WAL B/delivery");
    for round in 1..=ROUNDS {
        receiver.forget();
        let bare = bare(&receiver);
        receiver.forget();
        let drained = drain(&mut database, &receiver);
        println!(
            "{round:5} {:10.0} {bare:10.0} {:7.2} {:19.3} {:16.0}",
            drained.rate,
            drained.rate / bare,
            drained.cpu,
            drained.wal
        );
    }
}

struct Drained {
    rate: f64,
    cpu: f64,
    wal: f64,
}

fn drain(database: &mut Client, receiver: &Receiver) -> Drained {
    let data = format!("{{\"text\": \"{}\"}}", "x".repeat(BODY - 20));
    let pid: i32 = one(database, "select pid from webhook.stat_worker");
    let recorded: i64 = one(database, "select delivered from webhook.stat_worker");
    let cpu = cpu_seconds(pid);
    database
        .execute(
            "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2::bigint)",
            &[&data, &i64::try_from(EVENTS).expect("few events")],
        )
        .expect("emit succeeds");
    // What emit wrote is not the worker's.
    let wal: String = one(database, "select pg_current_wal_lsn()::text");
    let target = recorded + i64::try_from(EVENTS).expect("few events");
    wait_until("every event is recorded", Duration::from_secs(120), || {
        let delivered: i64 = one(database, "select delivered from webhook.stat_worker");
        (delivered >= target).then_some(())
    });
    let first = receiver
        .requests()
        .iter()
        .map(|request| request.at)
        .min()
        .expect("something arrived");
    let took = first.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(200));
    let written: i64 = database
        .query_one(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::bigint",
            &[&wal],
        )
        .expect("a position")
        .get(0);
    Drained {
        rate: EVENTS as f64 / took,
        cpu: (cpu_seconds(pid) - cpu) / (EVENTS as f64 / 1000.0),
        wal: written as f64 / EVENTS as f64,
    }
}

/// Requests per second of plain sockets, one thread a connection.
fn bare(receiver: &Receiver) -> f64 {
    let begun = Instant::now();
    let address = receiver.address();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(move || {
                let mut bare = Bare::connect(address);
                let body = "x".repeat(BODY);
                for _ in 0..EVENTS / CONNECTIONS {
                    bare.post("none", &body);
                }
            });
        }
    });
    EVENTS as f64 / begun.elapsed().as_secs_f64()
}

fn one<T: for<'a> postgres::types::FromSql<'a>>(database: &mut Client, query: &str) -> T {
    database.query_one(query, &[]).expect("one row").get(0)
}
