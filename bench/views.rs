//! Views: each promised look-up beside many deliveries: how many buffers its plan touched, how long it took, and
//! whether it read a large table from end to end.

use std::time::Instant;

use postgres::SimpleQueryMessage;
use serde_json::Value;

use crate::{
    report::{Report, Target},
    setup::{Outbox, payload, plan},
    sink::Sink,
};

const PARTNERS: usize = 100;
/// Rows from which a table counts as large.
const LARGE: f64 = 10_000.0;

/// Prints it, with this many deliveries.
pub fn report(report: &mut Report, deliveries: usize) {
    report.part(
        "views",
        &format!("the promised look-ups at {deliveries} deliveries"),
    );
    let sink = Sink::start();
    let body = payload(200);
    let cluster = plan()
        .setting("webhook.max_in_flight_per_endpoint", "16")
        .start();
    let mut outbox = Outbox::create(&cluster, "views");
    for partner in 0..PARTNERS {
        outbox.endpoint(&format!("p{partner}"), &sink, "/hook", "");
    }
    let chunk = 100_000.min(deliveries);
    for done in (0..deliveries).step_by(chunk) {
        outbox.run(&format!(
            "select count(webhook.emit('bench.kind' || n % 8, 'p' || n % {PARTNERS}, $data${body}$data$::jsonb,
                                       subject_type => 'order', subject_id => 'o-' || n / 4,
                                       correlation_id => 'c-' || n / 2))
               from generate_series({done}, {done} + {chunk} - 1) as n"
        ));
        outbox.wait_recorded(i64::try_from(done + chunk).expect("not that many"));
    }
    outbox.run("vacuum (analyze)");
    let pick = |outbox: &mut Outbox, query: &str| -> String {
        outbox.sql.query_one(query, &[]).expect("a row").get(0)
    };
    let event = pick(
        &mut outbox,
        "select event_id from webhook._event where partner_id = 'p7' offset 50 limit 1",
    );
    let endpoint = pick(
        &mut outbox,
        "select endpoint_id::text from webhook.endpoints where partner_id = 'p7'",
    );
    let look_ups = [
        (
            "event by id",
            format!("select * from webhook.events where event_id = '{event}'"),
        ),
        (
            "events of a partner, newest first",
            "select * from webhook.list_events('p7', max_rows => 50)".to_owned(),
        ),
        (
            "events of a subject",
            "select * from webhook.events where subject_type = 'order' and subject_id = 'o-77'"
                .to_owned(),
        ),
        (
            "events of a correlation id",
            "select * from webhook.events where correlation_id = 'c-77'".to_owned(),
        ),
        (
            "deliveries of an event",
            format!("select * from webhook.deliveries where event_id = '{event}'"),
        ),
        (
            "deliveries of an endpoint, newest first",
            format!(
                "select * from webhook.list_deliveries(endpoint_id => {endpoint}, max_rows => 50)"
            ),
        ),
        (
            "deliveries that are not delivered",
            "select * from webhook.deliveries where state = 'retrying' limit 50".to_owned(),
        ),
        (
            "attempts of a delivery",
            format!(
                "select * from webhook.attempts where event_id = '{event}' and endpoint_id = {endpoint}"
            ),
        ),
        (
            "dead letters of an endpoint",
            format!("select * from webhook.dead_letters where endpoint_id = {endpoint}"),
        ),
        ("the queue", "select * from webhook.stat_queue".to_owned()),
        (
            "alerts",
            "select * from webhook.alerts order by at desc limit 50".to_owned(),
        ),
        (
            "audit log",
            "select * from webhook.audit_log order by at desc limit 50".to_owned(),
        ),
    ];
    for (name, query) in look_ups {
        // The second time, when catalogues and plans are known.
        let mut plan = Value::Null;
        for _ in 0..2 {
            let query = format!("explain (analyze, buffers, timing off, format json) {query}");
            let lines = outbox
                .sql
                .simple_query(&query)
                .unwrap_or_else(|error| panic!("{query}: {error}"));
            let text: Vec<&str> = lines
                .iter()
                .filter_map(|line| match line {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                })
                .collect();
            plan = serde_json::from_str(&text.join("\n")).expect("a plan in JSON");
        }
        let top = &plan[0]["Plan"];
        let count = |what: &str| top[what].as_f64().unwrap_or(0.0);
        let buffers = count("Shared Hit Blocks") + count("Shared Read Blocks");
        let ms = plan[0]["Execution Time"].as_f64().unwrap_or(0.0);
        report.figure(&format!("{name}: time"), ms, "ms");
        report.figure(&format!("{name}: buffers"), buffers, "");
        report.judged(
            &format!("{name}: large tables read from end to end"),
            whole_tables(top) as f64,
            "",
            Target::AtMost(0.0),
        );
    }
    reconcile(report, &mut outbox);
}

/// A reconciliation of everything, run hourly as it may be: how long it takes, and that it finds nothing wrong.
fn reconcile(report: &mut Report, outbox: &mut Outbox) {
    let begun = Instant::now();
    let found = outbox.number(
        "select coalesce(sum(found), 0)::bigint from webhook.reconcile(settle => '0', repair => false)",
    );
    let seconds = begun.elapsed().as_secs_f64();
    report.figure("reconcile() over all of it", seconds, "s");
    report.judged(
        "reconcile(): false alarms",
        found as f64,
        "",
        Target::AtMost(0.0),
    );
    assert_eq!(found, 0, "nothing is wrong here");
}

/// Nodes that read a table of many rows from its beginning to its end.
fn whole_tables(node: &Value) -> usize {
    let rows = |what: &str| node[what].as_f64().unwrap_or(0.0);
    let read = rows("Actual Rows") + rows("Rows Removed by Filter");
    let here = node["Node Type"] == "Seq Scan" && read >= LARGE;
    let below = node["Plans"].as_array();
    usize::from(here) + below.map_or(0, |nodes| nodes.iter().map(whole_tables).sum())
}
