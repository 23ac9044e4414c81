//! Fairness: how long the events of small partners take when one partner has a hundred thousand queued (WEBHOOK_ROWS).
//!
//! Fifty partners have one endpoint each and emit one event each, a transaction for each. Three times in a round: alone;
//! right after the big partner has committed all of its events in one transaction, within the same second; and when
//! all of those are parked. Its endpoint takes 20 ms for a request, so its queue lasts. Each round has a server of its
//! own. Printed: from commit to arrival, and the ratio of the slowest to the slowest alone.
//!
//! WEBHOOK_ROUNDS: 3.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::report::{Report, Target};
use postgres::Client;
use webhook_outbox_test::{
    cluster::Cluster,
    meter::{median, number},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

const SMALL: usize = 50;
/// The slowest event of a small partner, and its ratios to the slowest alone: the same second, already parked. Far below
/// what waiting for the queue would take, which is minutes.
const SLOWEST_MS: f64 = 1_000.0;
const RATIOS: [f64; 2] = [25.0, 10.0];
const DEADLINE: Duration = Duration::from_secs(300);

/// Prints it.
pub fn report(report: &mut Report) {
    let (rounds, rows) = (number("WEBHOOK_ROUNDS", 3), number("WEBHOOK_ROWS", 100_000));
    report.part(
        "fairness",
        &format!(
            "one partner with {rows} queued events, {SMALL} partners with one each: commit to arrival of theirs, ms"
        ),
    );
    let (mut same_second, mut parked) = (Vec::new(), Vec::new());
    let mut slowest = Vec::new();
    for round in 1..=rounds {
        let times = run(rows);
        println!("{round}: alone           {}", times[0]);
        println!(
            "   the same second {}, ratio {:8.1}",
            times[1],
            times[1].max / times[0].max
        );
        println!(
            "   already parked  {}, ratio {:8.1}",
            times[2],
            times[2].max / times[0].max
        );
        same_second.push(times[1].max / times[0].max);
        parked.push(times[2].max / times[0].max);
        slowest.push(times[1].max);
    }
    let (same_second, parked) = (median(&mut same_second), median(&mut parked));
    // The ratio of two short times says little where both are short: the time itself is bounded, too.
    report.judged(
        "slowest of the small ones, the same second",
        median(&mut slowest),
        "ms",
        Target::AtMost(SLOWEST_MS),
    );
    report.judged(
        "slowest / slowest alone, the same second",
        same_second,
        "",
        Target::AtMost(RATIOS[0]),
    );
    report.judged(
        "slowest / slowest alone, already parked",
        parked,
        "",
        Target::AtMost(RATIOS[1]),
    );
    report.key("fairness_same_second_ratio", same_second);
    report.key("fairness_parked_ratio", parked);
}

fn run(rows: usize) -> [Times; 3] {
    let cluster = Cluster::start_usual();
    let mut sql = cluster.create_database("bench");
    sql.batch_execute("create extension webhook_outbox")
        .expect("the extension is installed");
    let (big, small) = (Receiver::http(), Receiver::http());
    big.behave("/big", |_| {
        Answer::status(200).after(Duration::from_millis(20))
    });
    let endpoint = |sql: &mut Client, partner: &str, url: &str| {
        sql.execute(
            "select webhook.create_endpoint($1, $2, verify => 'none')",
            &[&partner, &url],
        )
        .expect("the endpoint is accepted");
    };
    endpoint(&mut sql, "big", &big.url("/big"));
    for n in 0..SMALL {
        endpoint(
            &mut sql,
            &format!("small-{n}"),
            &small.url(&format!("/{n}")),
        );
    }
    // Connections, plans and caches are warm when it counts.
    for _ in 0..3 {
        small_ones(&mut sql, &small);
    }
    let alone = small_ones(&mut sql, &small);
    sql.execute(
        "select count(webhook.emit('bench.event', 'big', jsonb_build_object('n', n)))
           from generate_series(1, $1::bigint) n",
        &[&(rows as i64)],
    )
    .expect("emit succeeds");
    let same_second = small_ones(&mut sql, &small);
    wait_for("all of it is parked", DEADLINE, || {
        let query = "select unread_events = 0 and queued < 100 from webhook.stat_queue";
        sql.query_one(query, &[]).expect("one row").get(0)
    });
    let parked = small_ones(&mut sql, &small);
    let left: i64 = sql
        .query_one("select count(*) from webhook._due", &[])
        .expect("one row")
        .get(0);
    println!("   {left} were still queued at the end");
    [alone, same_second, parked]
}

/// One event of each small partner, and how long each took.
fn small_ones(sql: &mut Client, receiver: &Receiver) -> Times {
    receiver.forget();
    let mut committed: HashMap<String, Instant> = HashMap::new();
    for n in 0..SMALL {
        let partner = format!("small-{n}");
        let row = sql.query_one("select webhook.emit('bench.event', $1, '{}')", &[&partner]);
        let id: String = row.expect("emit succeeds").get(0);
        committed.insert(id, Instant::now());
    }
    let requests = receiver.wait_for(SMALL, DEADLINE);
    let times = requests.iter().map(|request| {
        let id = request.header("webhook-id").unwrap_or_default();
        let wait = request.at.saturating_duration_since(committed[id]);
        wait.as_secs_f64() * 1000.0
    });
    Times::of(times.collect())
}

struct Times {
    p50: f64,
    p90: f64,
    max: f64,
}

impl Times {
    fn of(mut values: Vec<f64>) -> Times {
        values.sort_by(f64::total_cmp);
        Times {
            p50: values[values.len() / 2],
            p90: values[values.len() * 9 / 10],
            max: values[values.len() - 1],
        }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "p50 {:9.2}, p90 {:9.2}, max {:9.2}",
            self.p50, self.p90, self.max
        )
    }
}
