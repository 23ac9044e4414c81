//! Growth: whether anything costs more because more waits, more endpoints exist, payloads are larger, or somebody's old
//! transaction keeps dead rows alive. The same drain of new events beside backlogs of other sizes, and the drain of the
//! backlogs themselves.

use postgres::Client;
use webhook_outbox_test::meter::median;

use crate::{
    drain::{Drained, drain},
    plot::{self, Axes},
    report::{Report, Target},
    setup::{Outbox, payload, plan},
    sink::Sink,
};

/// Deliveries of one drain.
const SAMPLE: usize = 20_000;
const ROUNDS: usize = 5;
const AT_ONCE: &str = "16";
const SIZES: [usize; 8] = [200, 200, 600, 600, 600, 2_000, 8_000, 64_000];
const PARTNERS: usize = 100;

/// Prints it; `most` is the largest backlog.
pub fn report(report: &mut Report, rounds: usize, most: usize) {
    let free = backlogs(report, rounds, most, false);
    let pinned = backlogs(report, rounds, most, true);
    plot::lines(
        "growth.svg",
        &Axes {
            title: "Drain of new events beside a backlog",
            x: "deliveries that wait (logarithmic)",
            y: "deliveries/s",
            from_zero: true,
        },
        &[("as it is", free), ("behind an old snapshot", pinned)],
    );
    endpoints(
        report,
        rounds,
        if most >= 1_000_000 { 100_000 } else { 10_000 },
    );
    mix(report);
}

/// Drains of new events, and of the backlog itself, at growing backlogs; optionally behind an old snapshot.
fn backlogs(report: &mut Report, rounds: usize, most: usize, pinned: bool) -> Vec<(f64, f64)> {
    let what = if pinned {
        "drain beside backlogs, a transaction pins the xmin horizon"
    } else {
        "drain beside backlogs"
    };
    report.part("growth", what);
    let sink = Sink::start();
    let body = payload(600);
    let mut old: Vec<Client> = Vec::new();
    let mut first: Option<[f64; 2]> = None;
    let mut points = Vec::new();
    let sizes = [1_000, 100_000, most];
    for size in sizes {
        let cluster = plan()
            .setting("webhook.max_in_flight_per_endpoint", AT_ONCE)
            .start();
        let mut outbox = Outbox::create(&cluster, "growth");
        let fresh = outbox.endpoint("fresh", &sink, "/fresh", "");
        let waits = outbox.endpoint("waits", &sink, "/waits", "");
        warm_up(&mut outbox, &["fresh", "waits"], &body);
        outbox.settle();
        if pinned {
            let mut sql = outbox.another();
            sql.batch_execute(
                "begin isolation level repeatable read; select count(*) from webhook.events",
            )
            .expect("a transaction");
            old.push(sql);
        }
        outbox.run(&format!(
            "select webhook.pause('endpoint', '{waits}', 'bench')"
        ));
        let mut left = size;
        while left > 0 {
            let some = left.min(50_000);
            outbox.emit("waits", some, &body);
            left -= some;
        }
        let parked = format!("select due >= {size} from webhook.stat_queue");
        outbox.wait("the backlog is parked", |outbox| outbox.flag(&parked));
        // What autovacuum and the checkpointer do about so many new rows they do once; that is not what is asked here.
        outbox.run("vacuum analyze");
        outbox.run("checkpoint");
        // A drain takes half a second.
        let drained: Vec<(Drained, f64)> = (0..rounds.max(ROUNDS))
            .map(|_| {
                let before = outbox.buffers();
                let one = drain(&mut outbox, &sink, SAMPLE, |outbox| {
                    outbox.emit("fresh", SAMPLE, &body);
                });
                let buffers = (outbox.buffers() - before) as f64 / SAMPLE as f64;
                (one, buffers)
            })
            .collect();
        let mut rates: Vec<f64> = drained.iter().map(|one| one.0.rate).collect();
        let mut buffers: Vec<f64> = drained.iter().map(|one| one.1).collect();
        let memory = drained.iter().map(|one| one.0.memory).fold(0.0, f64::max);
        let rate = median(&mut rates);
        points.push((size as f64, rate));
        let name = format!("{size} waiting");
        report.figure(&format!("{name}: new events"), rate, "1/s");
        report.figure(
            &format!("{name}: buffers per delivery, emit included"),
            median(&mut buffers),
            "",
        );
        let own = from_backlog(&mut outbox, &sink, waits, size);
        report.figure(&format!("{name}: from the backlog itself"), own, "1/s");
        report.judged(
            &format!("{name}: RssAnon of the leader"),
            memory,
            "MB",
            Target::AtMost(300.0),
        );
        let _ = fresh;
        match first {
            None => first = Some([rate, own]),
            Some([few, _]) if size == most => {
                let limit = if pinned { 0.9 } else { 0.95 };
                let key = if pinned {
                    "growth_1m_pinned"
                } else {
                    "growth_1m"
                };
                report.key(key, rate / few);
                report.judged(
                    &format!("{name} / 1,000 waiting"),
                    rate / few,
                    "",
                    Target::AtLeast(limit),
                );
            }
            Some(_) => {}
        }
        drop(outbox);
        old.clear();
    }
    points
}

/// Resumes the endpoint and measures its queue, the first of the ramp left out: at most `SAMPLE` deliveries.
fn from_backlog(outbox: &mut Outbox, sink: &Sink, endpoint: i64, size: usize) -> f64 {
    let before = outbox.recorded();
    sink.forget();
    outbox.run(&format!("select webhook.resume('endpoint', '{endpoint}')"));
    let count = |share: usize| before + i64::try_from(size.min(SAMPLE) * share / 4).expect("few");
    outbox.wait_recorded(count(1));
    let begun = (std::time::Instant::now(), outbox.recorded());
    outbox.wait_recorded(count(4));
    (outbox.recorded() - begun.1) as f64 / begun.0.elapsed().as_secs_f64()
}

/// The same drain with ever more endpoints that have nothing to do with it.
fn endpoints(report: &mut Report, rounds: usize, most: usize) {
    report.part("growth", "drain beside other endpoints");
    let sink = Sink::start();
    let body = payload(600);
    let cluster = plan()
        .setting("webhook.max_in_flight_per_endpoint", AT_ONCE)
        .start();
    let mut outbox = Outbox::create(&cluster, "growth");
    outbox.endpoint("fresh", &sink, "/fresh", "");
    warm_up(&mut outbox, &["fresh"], &body);
    outbox.settle();
    let mut there = 1;
    let mut few = None;
    for count in [10, 1_000, most] {
        outbox.run(&format!(
            "select count(*) from generate_series({there}, {count} - 1) as n,
                    webhook.create_endpoint('other' || n / 20, '{}', verify => 'none')",
            sink.url("/other")
        ));
        there = count;
        let mut rates = Vec::new();
        let mut memory: f64 = 0.0;
        for _ in 0..rounds {
            let one = drain(&mut outbox, &sink, SAMPLE, |outbox| {
                outbox.emit("fresh", SAMPLE, &body);
            });
            rates.push(one.rate);
            memory = memory.max(one.memory);
        }
        let rate = median(&mut rates);
        report.figure(&format!("{count} endpoints: deliveries"), rate, "1/s");
        report.judged(
            &format!("{count} endpoints: RssAnon of the leader"),
            memory,
            "MB",
            Target::AtMost(300.0),
        );
        match few {
            None => few = Some(rate),
            Some(few) => report.figure(&format!("{count} endpoints / 10"), rate / few, ""),
        }
    }
}

/// A batch import: payloads of 200 B to 64 kB, partners as unequal as they are (Zipf).
fn mix(report: &mut Report) {
    report.part(
        "growth",
        "a batch import: 200 B to 64 kB, 100 partners by Zipf's law",
    );
    let sink = Sink::start();
    let cluster = plan()
        .setting("webhook.max_in_flight_per_endpoint", AT_ONCE)
        .start();
    let mut outbox = Outbox::create(&cluster, "growth");
    for partner in 0..PARTNERS {
        outbox.endpoint(&format!("p{partner}"), &sink, "/hook", "");
    }
    outbox.run("create table sizes (n int, data jsonb); create table shares (n int, partner text)");
    for (n, size) in SIZES.into_iter().enumerate() {
        let n = i32::try_from(n).expect("few");
        outbox
            .sql
            .execute(
                "insert into sizes values ($1, $2::text::jsonb)",
                &[&n, &payload(size)],
            )
            .expect("a row");
    }
    // The first partner has a fifth of all, the last one a five-hundredth.
    let mut deliveries = 0;
    for partner in 0..PARTNERS {
        let share = SAMPLE / 5 / (partner + 1);
        deliveries += share;
        outbox.run(&format!(
            "insert into shares select (random() * {SAMPLE})::int, 'p{partner}' from generate_series(1, {share})"
        ));
    }
    let one = drain(&mut outbox, &sink, deliveries, |outbox| {
        outbox.run(&format!(
            "select count(webhook.emit('bench.event', o.partner, s.data))
               from (select * from shares order by n) as o
               join sizes as s on s.n = o.n % {}",
            SIZES.len()
        ));
    });
    let megabytes = sink.bytes() as f64 / 1e6;
    report.figure("deliveries", one.rate, "1/s");
    report.figure("bodies", megabytes * one.rate / deliveries as f64, "MB/s");
    report.figure("CPU of leader and PostgreSQL", one.server, "s/1000");
    report.figure("RssAnon of the leader at most", one.memory, "MB");
}

fn warm_up(outbox: &mut Outbox, partners: &[&str], body: &str) {
    let before = outbox.recorded();
    for partner in partners {
        outbox.emit(partner, 2_000, body);
    }
    outbox.wait_recorded(before + i64::try_from(2_000 * partners.len()).expect("few"));
}
