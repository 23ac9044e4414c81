//! Drain: how fast a backlog reaches a receiver, from the first arrival to the last recorded delivery, beside the better
//! of two bare clients over ureq in the same round; what it costs in CPU and memory.

use std::time::Instant;

use webhook_outbox_test::meter::median;

use crate::{
    ceiling::ureq_ceiling,
    report::{Report, Target},
    setup::{Outbox, Watch, payload, plan},
    sink::Sink,
};

struct Case {
    name: &'static str,
    partners: usize,
    /// Of each partner.
    endpoints: usize,
    /// Of each partner.
    events: usize,
    /// Of the ceiling.
    target: Option<f64>,
}

const CASES: [Case; 3] = [
    Case {
        name: "50,000 x 1 endpoint",
        partners: 1,
        endpoints: 1,
        events: 50_000,
        target: Some(0.6),
    },
    Case {
        name: "20,000 x 3 endpoints",
        partners: 1,
        endpoints: 3,
        events: 20_000,
        target: None,
    },
    Case {
        name: "50 x 1,000 endpoints",
        partners: 1_000,
        endpoints: 1,
        events: 50,
        target: Some(0.5),
    },
];

/// Connections of the bare client, and requests that the product may have under way.
const AT_ONCE: usize = 16;

/// What one drain took.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Deliveries per second.
    pub rate: f64,
    /// CPU seconds of the leader per 1,000 deliveries.
    pub leader: f64,
    /// CPU seconds of the whole server per 1,000 deliveries.
    pub server: f64,
    /// Most anonymous memory of the leader, MB.
    pub memory: f64,
}

/// Emits with `emit`, which commits `deliveries` at once, and waits until they are recorded.
pub fn drain(
    outbox: &mut Outbox,
    sink: &Sink,
    deliveries: usize,
    emit: impl FnOnce(&mut Outbox),
) -> Drained {
    let before = outbox.recorded();
    sink.forget();
    let watch = Watch::of(outbox.leader());
    emit(outbox);
    // What the emitting session took is not counted; what the leader did before the answer came is lost with it.
    let cpu = outbox.cpu();
    let count = i64::try_from(deliveries).expect("not that many");
    outbox.wait_recorded(before + count);
    let end = Instant::now();
    let after = outbox.cpu();
    let first = sink.first().expect("something came");
    assert!(
        sink.requests() >= deliveries as u64,
        "recorded, and not sent"
    );
    let thousands = deliveries as f64 / 1000.0;
    Drained {
        rate: deliveries as f64 / (end - first).as_secs_f64(),
        leader: (after.0 - cpu.0) / thousands,
        server: (after.1 - cpu.1) / thousands,
        memory: watch.end(),
    }
}

/// Prints the drains.
pub fn report(report: &mut Report, rounds: usize) {
    report.part(
        "drain",
        "a backlog committed at once, 600 B, first arrival to last recorded",
    );
    let sink = Sink::start();
    let body = payload(600);
    let cluster = plan()
        .setting("webhook.max_in_flight", &AT_ONCE.to_string())
        .setting("webhook.max_in_flight_per_partner", &AT_ONCE.to_string())
        .setting("webhook.max_in_flight_per_endpoint", &AT_ONCE.to_string())
        .start();
    let mut outboxes: Vec<Outbox> = Vec::new();
    for (n, case) in CASES.iter().enumerate() {
        let mut outbox = Outbox::create(&cluster, &format!("drain{n}"));
        for partner in 0..case.partners {
            for _ in 0..case.endpoints {
                outbox.endpoint(&format!("p{partner}"), &sink, "/hook", "");
            }
        }
        outbox.settle();
        warm_up(&mut outbox, case, &body);
        outboxes.push(outbox);
    }
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
    let mut drained: Vec<Vec<Drained>> = vec![Vec::new(); CASES.len()];
    for _ in 0..rounds {
        for (n, case) in CASES.iter().enumerate() {
            let ceiling = ureq_ceiling(&sink, AT_ONCE);
            let deliveries = case.partners * case.endpoints * case.events;
            let one = drain(&mut outboxes[n], &sink, deliveries, |outbox| {
                emit(outbox, case, case.events, &body);
            });
            ratios[n].push(one.rate / ceiling.rate);
            costs[n].push(one.server / ceiling.cpu);
            drained[n].push(one);
        }
    }
    for (n, case) in CASES.iter().enumerate() {
        let of = |pick: fn(&Drained) -> f64| {
            let mut values: Vec<f64> = drained[n].iter().map(pick).collect();
            median(&mut values)
        };
        let name = |what: &str| format!("{}: {what}", case.name);
        report.figure(&name("deliveries"), of(|one| one.rate), "1/s");
        let ratio = median(&mut ratios[n]);
        match case.target {
            Some(target) => report.judged(
                &name("of the ureq ceiling"),
                ratio,
                "",
                Target::AtLeast(target),
            ),
            None => report.figure(&name("of the ureq ceiling"), ratio, ""),
        }
        report.figure(&name("CPU of the leader"), of(|one| one.leader), "s/1000");
        report.judged(
            &name("CPU of leader and PostgreSQL"),
            of(|one| one.server),
            "s/1000",
            Target::AtMost(0.15),
        );
        let cost = median(&mut costs[n]);
        report.judged(
            &name("CPU of leader and PostgreSQL, of that client's"),
            cost,
            "",
            Target::AtMost(3.0),
        );
        if n == 0 {
            report.key("drain_per_s", of(|one| one.rate));
            report.key("drain_ratio_1", ratio);
            report.key("cpu_per_1000", of(|one| one.server));
            report.key("cpu_ratio", cost);
        } else if case.partners == 1_000 {
            report.key("drain_ratio_1000", ratio);
        }
        report.figure(
            &name("RssAnon of the leader at most"),
            of(|one| one.memory),
            "MB",
        );
    }
}

fn emit(outbox: &mut Outbox, case: &Case, events: usize, body: &str) {
    outbox.run(&format!(
        "select count(webhook.emit('bench.event', 'p' || p, $data${body}$data$::jsonb))
           from generate_series(1, {events}), generate_series(0, {}) as p",
        case.partners - 1
    ));
}

/// Opens the adaptive windows, the connections and the plans.
fn warm_up(outbox: &mut Outbox, case: &Case, body: &str) {
    let before = outbox.recorded();
    let events = 2_000_usize.div_ceil(case.partners * case.endpoints).max(20);
    emit(outbox, case, events, body);
    let count = case.partners * case.endpoints * events;
    outbox.wait_recorded(before + i64::try_from(count).expect("not that many"));
}
