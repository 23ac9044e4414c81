//! Idle: what a worker with nothing to do costs.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::meter::cpu_seconds;

use crate::{
    report::{Report, Target},
    setup::{Outbox, plan},
};

const SPAN: Duration = Duration::from_secs(20);

/// Prints it.
pub fn report(report: &mut Report) {
    report.part("idle", "a leader with nothing to do, over 20 s");
    let cluster = plan().start();
    let mut outbox = Outbox::create(&cluster, "idle");
    outbox.settle();
    // What this session did meanwhile is counted by then.
    sleep(Duration::from_secs(5));
    let leader = outbox.leader();
    // The transactions of the database, of which this session's own are left out: it asks twice.
    let asked = |outbox: &mut Outbox| {
        outbox.number(
            "select (xact_commit + xact_rollback)::bigint from pg_stat_database where datname = current_database()",
        )
    };
    let (ticks, begun, before) = (cpu_seconds(leader), Instant::now(), asked(&mut outbox));
    sleep(SPAN);
    let share = (cpu_seconds(leader) - ticks) / begun.elapsed().as_secs_f64();
    let transactions = (asked(&mut outbox) - before - 1).max(0) as f64;
    report.judged("of a core", share * 100.0, "%", Target::AtMost(0.1));
    report.key("idle_cpu_pct", share * 100.0);
    report.figure(
        "transactions of the database",
        transactions / begun.elapsed().as_secs_f64(),
        "1/s",
    );
}
