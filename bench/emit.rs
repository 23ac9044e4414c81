//! Emit: what it costs beside a plain INSERT of the same payload, in one large statement and in many small transactions.
//! Nothing is delivered meanwhile: what the worker takes is measured elsewhere.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use postgres::Client;
use webhook_outbox_test::meter::median;

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
    for durable in ["on", "off"] {
        for clients in [1, 8] {
            let connect = || {
                let mut sql = cluster.connect("emit");
                sql.batch_execute(&format!("set synchronous_commit = {durable}"))
                    .expect("a setting");
                sql
            };
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..RUNS {
                for (kind, rates) in [PLAIN, EMIT].into_iter().zip(&mut rates) {
                    rates.push(transactions(kind, clients, connect));
                }
            }
            let [plain, emit] = rates.map(|mut rates| median(&mut rates));
            let name = format!("{clients} clients, synchronous_commit {durable}");
            report.figure(&format!("{name}: plain"), plain, "tps");
            report.figure(&format!("{name}: emit"), emit, "tps");
            let name = format!("{name}: emit / plain");
            if clients == 8 && durable == "on" {
                report.judged(&name, emit / plain, "", Target::AtLeast(0.9));
            } else {
                report.figure(&name, emit / plain, "");
            }
        }
    }
}

const PLAIN: &str = "insert into plain (payload) values ($1::text::jsonb)";
const EMIT: &str = "select webhook.emit('bench.event', 'bench', $1::text::jsonb)";

/// Microseconds per row that emit adds in one statement.
fn bulk(report: &mut Report, sql: &mut Client) {
    let kinds = [
        "insert into plain (payload) select $1::text::jsonb from generate_series(1, $2)",
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
        "select count(webhook.emit('bench.checked', 'bench', $1::text::jsonb)) from generate_series(1, $2)",
        "select count(webhook.emit('bench.event', 'bench', $1::text::jsonb,
                                   idempotency_key => gen_random_uuid()::text)) from generate_series(1, $2)",
    ];
    let (data, rows) = (payload(600), i32::try_from(ROWS).expect("not that many"));
    let mut fastest = [f64::MAX; 4];
    for _ in 0..STATEMENTS {
        for (kind, fastest) in kinds.iter().zip(&mut fastest) {
            let begun = Instant::now();
            sql.execute(*kind, &[&data, &rows]).expect("it succeeds");
            *fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / ROWS as f64);
        }
    }
    let [plain, emit, checked, keyed] = fastest;
    report.figure("plain INSERT, per row", plain, "us");
    report.judged("emit adds", emit - plain, "us", Target::AtMost(15.0));
    report.judged(
        "validation of a 30-line schema adds to that",
        checked - emit,
        "us",
        Target::AtMost(25.0),
    );
    report.figure("an idempotency key adds to that", keyed - emit, "us");
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

/// Transactions per second.
fn transactions(kind: &str, clients: usize, connect: impl Fn() -> Client + Sync) -> f64 {
    let (done, data) = (AtomicU64::new(0), payload(600));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut sql = connect();
                let statement = sql.prepare(kind).expect("a valid statement");
                while begun.elapsed() < SPAN {
                    sql.execute(&statement, &[&data]).expect("it succeeds");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner() as f64 / begun.elapsed().as_secs_f64()
}
