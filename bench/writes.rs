//! Writes: bytes of the write-ahead log and row versions that die per delivery, three endpoints, each event's share of
//! what `emit` writes included: when all goes well, when a tenth of the first attempts fails, and of a backlog that takes
//! longer than the first pass, so that deliveries are written before they are made. And the bytes that each row takes on
//! disk, its share of the indexes included, which docs/sizing.md counts on.

use crate::{
    receiver::FAILS_SOMETIMES,
    report::{Report, Target},
    setup::{Outbox, payload, plan},
    sink::Sink,
};

const EVENTS: usize = 10_000;
const ENDPOINTS: usize = 3;

struct Case {
    name: &'static str,
    path: &'static str,
    /// Events of one transaction; the next one begins when they are delivered.
    at_once: usize,
    judged: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "all goes well",
        path: "/hook",
        at_once: 250,
        judged: true,
    },
    Case {
        name: "a tenth fails once",
        path: FAILS_SOMETIMES,
        at_once: 250,
        judged: false,
    },
    Case {
        name: "a backlog",
        path: "/hook",
        at_once: EVENTS,
        judged: false,
    },
];

/// Rows whose size on disk is told.
const ROWS: [(&str, &str); 3] = [
    ("on disk: an event", "_event"),
    ("on disk: its place in the feed", "_feed"),
    ("on disk: a delivery that succeeded at once", "_delivery"),
];

/// Prints it.
pub fn report(report: &mut Report) {
    report.part(
        "writes",
        "per delivery, 600 B, 3 endpoints, a third of emit included",
    );
    let sink = Sink::start();
    let body = payload(600);
    let cluster = plan()
        .setting("full_page_writes", "off")
        .setting("webhook.retry_schedule", "1s,1s,1s")
        .start();
    for (n, case) in CASES.iter().enumerate() {
        let mut outbox = Outbox::create(&cluster, &format!("writes{n}"));
        for _ in 0..ENDPOINTS {
            outbox.endpoint("bench", &sink, case.path, "");
        }
        outbox.settle();
        let mut recorded = 0;
        let mut deliver = |outbox: &mut Outbox, events: usize| {
            recorded += i64::try_from(events * ENDPOINTS).expect("few");
            outbox.emit("bench", events, &body);
            let emitted = outbox.wal();
            outbox.wait_recorded(recorded);
            emitted
        };
        deliver(&mut outbox, 1_000);
        let (dead, wal) = (outbox.dead_rows(), outbox.wal());
        let mut emitted = 0;
        for _ in 0..EVENTS / case.at_once {
            let before = outbox.wal();
            emitted += deliver(&mut outbox, case.at_once) - before;
        }
        let per = |count: i64| count as f64 / (EVENTS * ENDPOINTS) as f64;
        let all = per(outbox.wal() - wal);
        let died = per(outbox.dead_rows() - dead);
        let name = |what: &str| format!("{}: {what}", case.name);
        report.figure(&name("WAL up to the commit"), per(emitted), "B");
        if case.judged {
            report.judged(&name("WAL"), all, "B", Target::AtMost(900.0));
            let limit = Target::AtMost(0.001);
            report.judged(&name("row versions that died"), died, "", limit);
            report.key("wal_per_delivery", all);
            report.key("dead_per_delivery", died);
            for (what, table) in ROWS {
                report.figure(what, outbox.bytes_per_row(table), "B");
            }
        } else {
            report.figure(&name("WAL"), all, "B");
            report.figure(&name("row versions that died"), died, "");
        }
    }
}
