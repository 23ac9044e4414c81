//! Latency: from the answer to a commit to the arrival of the request, beside a bare client that posts the same bytes
//! right after the same commit. The difference counts.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use webhook_outbox_test::{cluster::Cluster, meter::Bare};

use crate::{
    plot::{self, Axes},
    report::{Report, Target},
    setup::{Outbox, payload, plan},
    sink::Sink,
};

/// Commits before it counts.
const WARM_UP: usize = 50;

struct Load {
    name: String,
    /// Commits per second, and events in each.
    commits: u32,
    events: usize,
    /// Commits that count.
    count: usize,
}

/// Prints the latencies; `half` is half of the rate at which the one-endpoint backlog drains.
pub fn report(report: &mut Report, half: f64) {
    report.part(
        "latency",
        "answer to the commit until arrival, 600 B, one endpoint",
    );
    let cluster = plan()
        .setting("webhook.max_in_flight_per_endpoint", "16")
        .start();
    let calm = Load {
        name: "50/s".to_owned(),
        commits: 50,
        events: 1,
        count: 1_000,
    };
    measure(report, &cluster, &calm, true);
    // One session cannot commit that often: more events in each commit.
    let busy = Load {
        name: format!("{half:.0}/s, half of the drain, 100 commits/s"),
        commits: 100,
        events: ((half / 100.0) as usize).max(1),
        count: 1_000,
    };
    measure(report, &cluster, &busy, false);
}

fn measure(report: &mut Report, cluster: &Cluster, load: &Load, judged: bool) {
    let sink = Sink::start();
    let mut outbox = Outbox::create(cluster, &format!("latency{}", load.commits));
    outbox.endpoint("bench", &sink, "/worker", "");
    outbox.settle();
    let bare = Sink::start();
    let mut client = Bare::connect(bare.address());
    let data = payload(600);
    let emit = outbox
        .sql
        .prepare("select webhook.emit('bench.event', 'bench', $1::text::jsonb) from generate_series(1, $2)")
        .expect("a valid statement");
    let events = i32::try_from(load.events).expect("not that many");
    let mut committed: HashMap<String, Instant> = HashMap::new();
    let begun = Instant::now();
    for n in 0..load.count + WARM_UP {
        let due = Duration::from_secs(1) / load.commits * u32::try_from(n).expect("not that many");
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let rows = outbox
            .sql
            .query(&emit, &[&data, &events])
            .expect("emit succeeds");
        let at = Instant::now();
        let first: String = rows[0].get(0);
        if n == WARM_UP {
            sink.record(true);
            bare.record(true);
        }
        client.post(&first, &data);
        if n >= WARM_UP {
            committed.extend(rows.iter().map(|row| (row.get(0), at)));
        }
    }
    let all = i64::try_from((load.count + WARM_UP) * load.events).expect("not that many");
    outbox.wait_recorded(all);
    let late = |sink: &Sink| {
        let arrivals = sink.take_arrivals().into_iter();
        Quantiles::of(
            arrivals
                .filter_map(|(id, came)| Some((came, committed.get(&id)?)))
                // A request may arrive before the emitter has read the answer to its own commit.
                .map(|(came, at)| came.saturating_duration_since(*at).as_secs_f64() * 1000.0)
                .collect(),
        )
    };
    let (worker, client) = (late(&sink), late(&bare));
    let distribution = |quantiles: &Quantiles| {
        let all = quantiles.1.len() as f64;
        let points = quantiles.1.iter().enumerate();
        points
            .map(|(n, ms)| (*ms, (n + 1) as f64 * 100.0 / all))
            .collect()
    };
    plot::lines(
        &format!(
            "latency-{}.svg",
            load.commits * u32::try_from(load.events).unwrap_or(1)
        ),
        &Axes {
            title: &format!("Answer to the commit until arrival, {}", load.name),
            x: "ms (logarithmic)",
            y: "% of events",
            from_zero: true,
        },
        &[
            ("worker", distribution(&worker)),
            ("bare client", distribution(&client)),
        ],
    );
    for (n, name) in ["p50", "p90", "p99", "max"].into_iter().enumerate() {
        report.figure(&format!("{}: {name}", load.name), worker.0[n], "ms");
        report.figure(
            &format!("{}: {name}, bare client", load.name),
            client.0[n],
            "ms",
        );
        let added = worker.0[n] - client.0[n];
        let name = format!("{}: {name}, added", load.name);
        match (judged, n) {
            (true, 0) => {
                report.judged(&name, added, "ms", Target::AtMost(2.0));
                report.key("latency_added_p50_ms", added);
            }
            (true, 2) => {
                report.judged(&name, added, "ms", Target::AtMost(6.0));
                report.key("latency_added_p99_ms", added);
            }
            _ => report.figure(&name, added, "ms"),
        }
    }
}

/// p50, p90, p99 and the greatest; and all of them, in order.
struct Quantiles([f64; 4], Vec<f64>);

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Quantiles {
        assert!(!values.is_empty(), "nothing arrived");
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |share: usize| values[(values.len() * share / 100).min(last)];
        Quantiles([at(50), at(90), at(99), values[last]], values)
    }
}
