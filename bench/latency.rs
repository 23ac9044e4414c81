//! Commit to arrival: how long after a commit the request stands at the receiver, beside a bare client
//! that posts the same bytes right after the same commit in the same run.
//!
//! Prints p50, p90, p99 and max of both and their differences, in milliseconds. Machines are noisy: the
//! difference within one run counts, never the figure alone. Also prints what an idle leader does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use webhook_outbox_test::cluster::Cluster;
use webhook_outbox_test::meter::{Bare, cpu_seconds};
use webhook_outbox_test::receiver::Receiver;

/// Events per second and in all.
const RATE: u32 = 50;
const EVENTS: usize = 1_000;
/// Events before the measuring begins: connections, plans and caches are warm then.
const WARM_UP: usize = 50;

fn main() {
    let cluster = Cluster::start_usual();
    let mut database = cluster.create_database("latency");
    let receiver = Receiver::http();
    database
        .batch_execute("create extension webhook_outbox")
        .expect("the extension is installed");
    database
        .execute(
            "select webhook.create_endpoint('bench', $1, verify => 'none')",
            &[&receiver.url("/worker")],
        )
        .expect("the endpoint is accepted");
    let mut bare = Bare::connect(receiver.address());
    let data = format!("{{\"text\": \"{}\"}}", "x".repeat(580));
    let emit = database
        .prepare("select webhook.emit('bench.event', 'bench', $1::text::jsonb)")
        .expect("the statement is valid");

    let mut committed: HashMap<String, Instant> = HashMap::new();
    let mut bare_ms = Vec::new();
    let begun = Instant::now();
    for n in 0..EVENTS + WARM_UP {
        let due = Duration::from_secs(1) / RATE * u32::try_from(n).expect("few events");
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let id: String = database
            .query_one(&emit, &[&data])
            .expect("emit succeeds")
            .get(0);
        let at = Instant::now();
        bare.post(&id, &data);
        if n >= WARM_UP {
            committed.insert(id, at);
        }
    }
    receiver.wait_for((EVENTS + WARM_UP) * 2, Duration::from_secs(30));
    let mut worker_ms = Vec::new();
    for request in receiver.requests() {
        let id = request.header("webhook-id").unwrap_or_default();
        let Some(at) = committed.get(id) else {
            continue;
        };
        // A request may arrive before the emitter has read the answer to its own commit.
        let ms = request.at.saturating_duration_since(*at).as_secs_f64() * 1000.0;
        if request.target == "/worker" {
            worker_ms.push(ms);
        } else {
            bare_ms.push(ms);
        }
    }
    let (worker, bare) = (Quantiles::of(worker_ms), Quantiles::of(bare_ms));
    println!("commit to arrival, ms, {EVENTS} events at {RATE}/s, one endpoint, 600 B");
    println!("            p50      p90      p99      max");
    println!("worker  {worker}");
    println!("bare    {bare}");
    println!(
        "added   {:8.2} {:8.2} {:8.2} {:8.2}",
        worker.p50 - bare.p50,
        worker.p90 - bare.p90,
        worker.p99 - bare.p99,
        worker.max - bare.max
    );
    idle(&mut database);
}

/// Transactions that a leader with nothing to do runs per second, and its CPU time.
fn idle(database: &mut postgres::Client) {
    std::thread::sleep(Duration::from_secs(5));
    let pid: i32 = database
        .query_one("select pid from webhook.stat_worker", &[])
        .expect("the leader runs")
        .get(0);
    let (before, begun) = (cpu_seconds(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(20));
    let spent = cpu_seconds(pid) - before;
    println!(
        "idle leader: {:.3} % of a core over {:.0} s",
        100.0 * spent / begun.elapsed().as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
}

struct Quantiles {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Quantiles {
        assert_eq!(values.len(), EVENTS, "every event arrives once");
        values.sort_by(f64::total_cmp);
        let at = |share: usize| values[(values.len() * share / 100).min(values.len() - 1)];
        Quantiles {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: values[values.len() - 1],
        }
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:8.2} {:8.2} {:8.2} {:8.2}",
            self.p50, self.p90, self.p99, self.max
        )
    }
}
