//! Emit: what it costs beside a plain INSERT of the same payload, in one large statement and in many small transactions.
//! Nothing is delivered meanwhile: what the worker takes is measured elsewhere.

use std::time::{Duration, Instant};

use postgres::Client;
use webhook_outbox_test::{cluster::Cluster, meter::median};

use crate::{
    report::{Report, Target},
    setup::{payload, plan},
};

/// Rows of one statement, and statements of each kind, of which the fastest counts.
const ROWS: usize = 100_000;
const STATEMENTS: usize = 9;
/// How long a run of many small transactions takes, and how many of each kind there are.
const SPAN: Duration = Duration::from_secs(3);
const RUNS: usize = 3;
const MILLION: usize = 1_000_000;

/// Thirty lines, as a schema of a real event has them.
const SCHEMA: &str = r#"{
  "type": "object",
  "required": ["text"],
  "properties": {
    "text": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "What is said."},
    "customer_id": {"type": "string", "pattern": "^c-[0-9]+$", "description": "Who it is about."},
    "currency": {"type": "string", "minLength": 3, "maxLength": 3, "description": "ISO 4217."},
    "state": {"enum": ["open", "paid", "void"], "description": "Where it stands."},
    "lines": {
      "type": "array",
      "description": "What was ordered.",
      "maxItems": 100,
      "items": {
        "type": "object",
        "required": ["sku", "count"],
        "properties": {
          "sku": {"type": "string", "description": "What."},
          "count": {"type": "integer", "minimum": 1, "description": "How many."}
        }
      }
    },
    "customer": {
      "type": "object",
      "description": "Who ordered it.",
      "properties": {
        "name": {"type": "string", "description": "As on the invoice."},
        "country": {"type": "string", "description": "ISO 3166."}
      }
    }
  }
}"#;

/// Prints the costs.
pub fn report(report: &mut Report) {
    report.part(
        "emit",
        "beside a plain INSERT of the same payload, 600 B, nothing delivered",
    );
    let cluster = plan().setting("webhook.enabled", "off").start();
    let mut sql = cluster.create_database("emit");
    sql.batch_execute("create extension webhook_outbox")
        .expect("the extension is installed");
    sql.batch_execute(
        "create table plain (id uuid primary key default gen_random_uuid(),
                             payload jsonb not null, emitted_at timestamptz not null default now())",
    )
    .expect("a table");
    sql.execute(
        "select webhook.add_schema('bench.checked', '1', $1::text::jsonb, '{\"text\": \"x\"}', mode => 'enforce',
                                   change_note => 'First version.')
           from webhook.create_event_type('bench.checked')",
        &[&SCHEMA],
    )
    .expect("a sound schema");
    bulk(report, &mut sql);
    million(report, &mut sql);
    let kinds = kinds();
    for durable in ["on", "off"] {
        for clients in [1, 8] {
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..RUNS {
                for (kind, rates) in kinds.clone().into_iter().zip(&mut rates) {
                    rates.push(transactions(&cluster, &kind, clients, durable));
                }
            }
            let [plain, emit] = rates.map(|mut rates| median(&mut rates));
            let name = format!("{clients} clients, synchronous_commit {durable}");
            report.figure(&format!("{name}: plain"), plain, "tps");
            report.figure(&format!("{name}: emit"), emit, "tps");
            let name = format!("{name}: emit / plain");
            if clients == 8 && durable == "on" {
                report.judged(&name, emit / plain, "", Target::AtLeast(0.9));
                report.key("emit_ratio_sync8", emit / plain);
            } else {
                report.figure(&name, emit / plain, "");
            }
        }
    }
}

/// The two transactions that are compared.
fn kinds() -> [String; 2] {
    let data = payload(600);
    [
        format!("insert into plain (payload) values ('{data}')"),
        format!("select webhook.emit('bench.event', 'bench', '{data}'::jsonb)"),
    ]
}

/// Microseconds per row that emit adds in one statement.
fn bulk(report: &mut Report, sql: &mut Client) {
    let kinds = [
        "insert into plain (payload) select $1::text::jsonb from generate_series(1, $2)",
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb,
                                   idempotency_key => gen_random_uuid()::text)) from generate_series(1, $2)",
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
        "select count(webhook.emit('bench.checked', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
    ];
    let (data, rows) = (payload(600), i32::try_from(ROWS).expect("not that many"));
    let filled = filled();
    let mut fastest = [f64::MAX; 5];
    for _ in 0..STATEMENTS {
        for (n, (kind, fastest)) in kinds.iter().zip(&mut fastest).enumerate() {
            let data = if n < 3 { &data } else { &filled };
            let begun = Instant::now();
            sql.execute(*kind, &[data, &rows]).expect("it succeeds");
            *fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / ROWS as f64);
        }
    }
    let [plain, emit, keyed, unchecked, checked] = fastest;
    report.figure("plain INSERT, per row", plain, "us");
    report.judged("emit adds", emit - plain, "us", Target::AtMost(15.0));
    report.key("emit_added_us", emit - plain);
    report.judged(
        "validation by a 30-line schema, every member there, adds",
        checked - unchecked,
        "us",
        Target::AtMost(25.0),
    );
    report.figure("an idempotency key adds to that", keyed - emit, "us");
}

/// A payload of some 600 B with every member that the schema knows.
fn filled() -> String {
    let lines: Vec<String> = (1..=4)
        .map(|n| format!(r#"{{"sku": "part-{n}", "count": {n}}}"#))
        .collect();
    format!(
        r#"{{"text": "{}", "customer_id": "c-4711", "currency": "EUR", "state": "open", "lines": [{}],
            "customer": {{"name": "Ada Lovelace", "country": "GB"}}}}"#,
        "x".repeat(320),
        lines.join(", ")
    )
}

fn million(report: &mut Report, sql: &mut Client) {
    let rows = i32::try_from(MILLION).expect("not that many");
    let begun = Instant::now();
    sql.execute(
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
        &[&payload(600), &rows],
    )
    .expect("it succeeds");
    let seconds = begun.elapsed().as_secs_f64();
    report.figure("one statement of 1,000,000 events", seconds, "s");
    report.figure("  per event", seconds * 1e6 / MILLION as f64, "us");
}

/// Transactions per second, by PostgreSQL's own pgbench.
fn transactions(cluster: &Cluster, kind: &str, clients: usize, durable: &str) -> f64 {
    let script = cluster.folder().join("transaction.sql");
    std::fs::write(&script, format!("{kind};\n")).expect("a folder of the cluster's");
    let span = SPAN.as_secs().to_string();
    let (clients, threads) = (clients.to_string(), clients.min(2).to_string());
    let output = cluster
        .program("pgbench")
        .args(["--no-vacuum", "--protocol=prepared", "--time", &span])
        .args(["--client", &clients, "--jobs", &threads, "--file"])
        .arg(&script)
        .arg("emit")
        .env("PGOPTIONS", format!("-c synchronous_commit={durable}"))
        .output()
        .expect("pgbench starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse().ok());
    rate.unwrap_or_else(|| {
        panic!(
            "pgbench says no rate: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}
