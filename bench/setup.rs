//! What every part starts from: a private server as somebody would run it, events of a given size, and the counters of
//! the server and of the system.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use postgres::Client;
use webhook_outbox_test::{
    cluster::{Cluster, Plan},
    meter::anonymous_kb,
};

use crate::sink::Sink;

/// As long as anything here may take.
const DEADLINE: Duration = Duration::from_secs(3600);

/// A server that keeps its promises to the disk, with memory as on a small machine.
pub fn plan() -> Plan {
    Cluster::plan()
        .setting("fsync", "on")
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "8GB")
        .setting("checkpoint_timeout", "30min")
        .setting("webhook.max_endpoints_per_partner", "100000")
        .setting("webhook.validation", "off")
        .setting("webhook.forbidden_keys_mode", "off")
}

/// A JSON object of so many bytes.
pub fn payload(bytes: usize) -> String {
    let frame = r#"{"text": ""}"#.len();
    format!(
        r#"{{"text": "{}"}}"#,
        "x".repeat(bytes.saturating_sub(frame))
    )
}

/// A database with the extension and a leader that runs.
pub struct Outbox<'c> {
    /// A session in it.
    pub sql: Client,
    /// The server.
    pub cluster: &'c Cluster,
    name: String,
}

impl<'c> Outbox<'c> {
    /// Creates the database.
    pub fn create(cluster: &'c Cluster, name: &str) -> Outbox<'c> {
        let mut sql = cluster.create_database(name);
        sql.batch_execute("create extension webhook_outbox")
            .expect("the extension is installed");
        let mut outbox = Outbox {
            sql,
            cluster,
            name: name.to_owned(),
        };
        outbox.wait("the leader runs", |outbox| {
            outbox
                .flag("select coalesce(bool_or(state = 'running'), false) from webhook.stat_worker")
        });
        outbox
    }

    /// Another session.
    pub fn another(&self) -> Client {
        self.cluster.connect(&self.name)
    }

    /// Runs statements.
    pub fn run(&mut self, statements: &str) {
        if let Err(error) = self.sql.batch_execute(statements) {
            panic!("{statements}: {error}");
        }
    }

    /// One number.
    pub fn number(&mut self, query: &str) -> i64 {
        match self.sql.query_one(query, &[]) {
            Ok(row) => row.get(0),
            Err(error) => panic!("{query}: {error}"),
        }
    }

    /// One truth value.
    pub fn flag(&mut self, query: &str) -> bool {
        match self.sql.query_one(query, &[]) {
            Ok(row) => row.get(0),
            Err(error) => panic!("{query}: {error}"),
        }
    }

    /// Creates an endpoint of a partner; `more` are further arguments.
    pub fn endpoint(&mut self, partner: &str, sink: &Sink, path: &str, more: &str) -> i64 {
        self.number(&format!(
            "select endpoint_id from webhook.create_endpoint('{partner}', '{}', verify => 'none' {more})",
            sink.url(path)
        ))
    }

    /// Emits so many events of one partner in one transaction.
    pub fn emit(&mut self, partner: &str, count: usize, data: &str) {
        self.run(&format!(
            "select count(webhook.emit('bench.event', '{partner}', $data${data}$data$::jsonb))
               from generate_series(1, {count})"
        ));
    }

    /// The process that delivers.
    pub fn leader(&mut self) -> i32 {
        i32::try_from(self.number("select pid::bigint from webhook.stat_worker")).expect("a pid")
    }

    /// Deliveries that this life of the leader has recorded.
    pub fn recorded(&mut self) -> i64 {
        self.number("select delivered from webhook.stat_worker")
    }

    /// Returns when so many are recorded.
    pub fn wait_recorded(&mut self, count: i64) {
        self.wait("deliveries are recorded", |outbox| {
            outbox.recorded() >= count
        });
    }

    /// Returns when a new installation has made the partitions of the days to come, a few at a time: what is measured
    /// before has them in it. They are made once an event was read; this one is of a partner without endpoints.
    pub fn settle(&mut self) {
        self.emit("nobody", 1, "{}");
        let mut seen = (0, Instant::now());
        self.wait("the partitions are there", |outbox| {
            let count = outbox.number("select count(*) from pg_inherits");
            if count != seen.0 {
                seen = (count, Instant::now());
            }
            seen.1.elapsed() > Duration::from_secs(5)
        });
    }

    /// Returns when the condition holds.
    pub fn wait(&mut self, what: &str, mut condition: impl FnMut(&mut Outbox) -> bool) {
        let begun = Instant::now();
        while !condition(self) {
            assert!(begun.elapsed() < DEADLINE, "in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Bytes of the write-ahead log so far.
    pub fn wal(&mut self) -> i64 {
        self.number("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    }

    /// Buffers that this database has looked at so far. The counters of a session come late: a second passes first.
    pub fn buffers(&mut self) -> i64 {
        std::thread::sleep(Duration::from_millis(1_500));
        self.number(
            "select blks_hit + blks_read from pg_stat_database where datname = current_database()",
        )
    }

    /// Bytes of the partitions that have rows, indexes and TOAST included, by row.
    pub fn bytes_per_row(&mut self, table: &str) -> f64 {
        let bytes = self.number(&format!(
            "select sum(pg_total_relation_size(relid))::bigint from pg_partition_tree('webhook.{table}')
              where isleaf and pg_relation_size(relid) > 0"
        ));
        let rows = self.number(&format!("select count(*) from webhook.{table}"));
        bytes as f64 / rows as f64
    }

    /// Dead rows that the statistics know of in the extension's tables.
    pub fn dead_rows(&mut self) -> i64 {
        std::thread::sleep(Duration::from_millis(1_500));
        self.number(
            "select sum(n_tup_upd + n_tup_del)::bigint from pg_stat_all_tables where schemaname = 'webhook'",
        )
    }

    /// CPU seconds of the leader, and of the whole server with it.
    pub fn cpu(&mut self) -> (f64, f64) {
        let leader = self.leader();
        (
            webhook_outbox_test::meter::cpu_seconds(leader),
            server_seconds(self.cluster.postmaster()),
        )
    }
}

/// The most anonymous memory that a process had while this lived, looked at 20 times a second.
pub struct Watch {
    most: Arc<AtomicI64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look at a process.
    pub fn of(pid: i32) -> Watch {
        let (most, ended) = (
            Arc::new(AtomicI64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen, stop) = (Arc::clone(&most), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                seen.fetch_max(anonymous_kb(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Watch {
            most,
            ended,
            thread: Some(thread),
        }
    }

    /// Ends it; in MB.
    pub fn end(mut self) -> f64 {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the process is still there");
        }
        self.most.load(Ordering::Relaxed) as f64 / 1024.0
    }
}

/// CPU seconds of a postmaster, its children, and those of them that have ended.
fn server_seconds(postmaster: i32) -> f64 {
    let folder = std::fs::read_dir("/proc").expect("the system's processes");
    let pids = folder.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str().and_then(|name| name.parse::<i32>().ok())
    });
    let mut ticks = 0.0;
    for pid in pids {
        // One that has ended meanwhile is its parent's affair.
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let after = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<i64> = after
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0) as f64;
        if pid == postmaster {
            ticks += at(11) + at(12) + at(13) + at(14);
        } else if fields.get(1) == Some(&i64::from(postmaster)) {
            ticks += at(11) + at(12);
        }
    }
    ticks / 100.0
}
