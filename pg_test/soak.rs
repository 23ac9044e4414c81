//! A leader that works all day stays as it is: with a steady load of which every tenth request fails, its memory, its
//! connections and what the tables carry along are the same at the end as after the first minutes. It prints both.
//!
//! WEBHOOK_SOAK_SECONDS says for how long; `make campaign` takes a quarter of an hour.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::Cluster,
    dice::Dice,
    invariants::{ALWAYS, AT_REST, NEVER_REPLAYED, SETTLED, violations},
    meter::{OpenFiles, Table, anonymous_kb, number, open_files, tables},
    outbox::Outbox,
    receiver::{Answer, Receiver},
    wait::wait_for,
};

/// Events per second, emitted ten times a second.
const RATE: usize = 100;
/// Endpoints, each of which gets every event.
const ENDPOINTS: usize = 3;
const CAP: usize = 8;
/// Growth that is no leak: what the allocator and the caches of a session still take after the warm-up.
const MEMORY_KB: i64 = 16 * 1024;
/// What the tables that the leader empties as it goes may grow by.
const WORK_BYTES: i64 = 8 << 20;
/// Dead rows that autovacuum has not got to yet, beyond those that make it begin.
const UNSWEPT: i64 = 5_000;
/// Files of tables and indexes that what comes by the clock opens after the warm-up: upkeep, retention, and the days of
/// seven tables with up to six indexes each.
const FILES: usize = 200;
const CATCH_UP: Duration = Duration::from_secs(180);

#[test]
fn memory_files_and_dead_rows_stay_flat_under_a_steady_load_with_failures() {
    let seconds = number("WEBHOOK_SOAK_SECONDS", 60);
    let warm_up = Duration::from_secs((seconds as u64 / 4).clamp(5, 120));
    let cluster = Cluster::plan()
        .setting("autovacuum_naptime", "1s")
        .setting("webhook.max_in_flight_per_endpoint", &CAP.to_string())
        .setting(
            "webhook.retry_schedule",
            &["200ms,1s", &",2s".repeat(30)].concat(),
        )
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let accepted = Arc::new(AtomicUsize::new(0));
    for n in 0..ENDPOINTS {
        let (path, accepted) = (format!("/{n}"), Arc::clone(&accepted));
        shop.endpoint("steady", &receiver.url(&path));
        let mut dice = Dice::new(n as u64);
        receiver.behave(&path, move |_| {
            let status = match dice.below(100) {
                0..8 => 500,
                8 => 503,
                9 => return Answer::reset(),
                _ => 200,
            };
            accepted.fetch_add(usize::from(status == 200), Ordering::SeqCst);
            Answer::status(status).after(Duration::from_millis(dice.below(10)))
        });
    }

    let mut load = Load {
        shop: &mut shop,
        receiver: &receiver,
        begun: Instant::now(),
        emitted: 0,
    };
    load.carry_on(warm_up);
    let first = Figures::take(load.shop);
    let most = load.carry_on(Duration::from_secs(seconds as u64));
    let last = Figures::take(load.shop);
    let emitted = load.emitted;
    show(&first, &last, emitted, seconds);

    wait_for("every event reaches every endpoint", CATCH_UP, || {
        accepted.load(Ordering::SeqCst) >= emitted * ENDPOINTS
    });
    shop.wait_until(&format!(
        "(select count(*) = {} from webhook._delivery where state = 'delivered')",
        emitted * ENDPOINTS
    ));
    shop.wait_until("(select in_flight = 0 and open_batches = 0 from webhook.stat_worker)");
    assert_eq!(accepted.load(Ordering::SeqCst), emitted * ENDPOINTS);
    for invariants in [ALWAYS, SETTLED, AT_REST, NEVER_REPLAYED] {
        assert_eq!(violations(&mut shop.sql, invariants), Vec::<String>::new());
    }
    assert_eq!(first.leader, last.leader, "the leader has ended");
    let growth = last.memory_kb - first.memory_kb;
    assert!(growth < MEMORY_KB, "the leader has grown by {growth} kB");
    // Connections come and go, with what is under way and with what waits to be used again.
    let connections = ENDPOINTS * CAP;
    assert!(
        last.open.others <= first.open.others + connections
            && most <= first.open.others + connections,
        "{:?}, then up to {most}, then {:?}",
        first.open,
        last.open
    );
    // Tables and indexes that were opened stay open; the warm-up has touched all that a day's work touches.
    assert!(
        last.open.files <= first.open.files + FILES,
        "{:?}, then {:?}",
        first.open,
        last.open
    );
    // Autovacuum has a busy machine to share, too; what somebody's old snapshot keeps it from stays for good.
    let mut swept = Vec::new();
    wait_for("dead rows are swept", CATCH_UP, || {
        swept = tables(&mut shop.sql);
        swept.retain(|table| table.dead > table.threshold * 2 + UNSWEPT);
        swept.is_empty()
    });
    for table in &last.tables {
        let before = first.tables.iter().find(|t| t.name == table.name);
        let growth = table.bytes - before.map_or(0, |before| before.bytes);
        let empties = ["_due", "_ledger", "_endpoint_state"].contains(&table.name.as_str());
        assert!(
            !empties || growth < WORK_BYTES,
            "{table:?} has grown by {growth} bytes"
        );
    }
}

/// Emits at a steady rate, whatever a single statement takes.
struct Load<'a, 'c> {
    shop: &'a mut Outbox<'c>,
    receiver: &'a Receiver,
    begun: Instant,
    emitted: usize,
}

impl Load<'_, '_> {
    /// For so long. Returns the most that the leader had open beside files on the disk.
    fn carry_on(&mut self, time: Duration) -> usize {
        let leader = self.shop.leader();
        let end = Instant::now() + time;
        let mut most = 0;
        while Instant::now() < end {
            let due = self.begun.elapsed().as_millis() as usize * RATE / 1_000;
            if due > self.emitted {
                let count = due - self.emitted;
                self.shop.run(&format!(
                    "select count(webhook.emit('order.paid', 'steady', jsonb_build_object('n', n, 'text', repeat('x', 500))))
                       from generate_series(1, {count}) n"
                ));
                self.emitted = due;
            }
            most = most.max(open_files(leader).others);
            // A receiver that remembers everything would be the one that grows.
            self.receiver.forget();
            sleep(Duration::from_millis(100));
        }
        most
    }
}

struct Figures {
    leader: i32,
    memory_kb: i64,
    open: OpenFiles,
    tables: Vec<Table>,
}

impl Figures {
    fn take(shop: &mut Outbox) -> Figures {
        let leader = shop.leader();
        Figures {
            leader,
            memory_kb: anonymous_kb(leader),
            open: open_files(leader),
            tables: tables(&mut shop.sql),
        }
    }
}

fn show(first: &Figures, last: &Figures, emitted: usize, seconds: usize) {
    webhook_outbox_test::say!(
        "soak: {seconds} s after the warm-up, {emitted} events in all to {ENDPOINTS} endpoints; \
         RssAnon {} -> {} kB; open: {} -> {} connections and the like, {} -> {} files of the database",
        first.memory_kb,
        last.memory_kb,
        first.open.others,
        last.open.others,
        first.open.files,
        last.open.files
    );
    let before: BTreeMap<&str, &Table> = first
        .tables
        .iter()
        .map(|table| (table.name.as_str(), table))
        .collect();
    webhook_outbox_test::say!(
        "table                           live rows            dead rows (allowed)            kB"
    );
    let mut empty = 0;
    for table in &last.tables {
        let Some(old) = before.get(table.name.as_str()) else {
            continue;
        };
        if table.live == 0 && table.dead == 0 && old.dead == 0 && table.bytes == old.bytes {
            empty += 1;
            continue;
        }
        webhook_outbox_test::say!(
            "{:28} {:8} -> {:8} {:8} -> {:8} ({:6}) {:8} -> {:8}",
            table.name,
            old.live,
            table.live,
            old.dead,
            table.dead,
            table.threshold,
            old.bytes / 1024,
            table.bytes / 1024
        );
    }
    webhook_outbox_test::say!("and {empty} without rows");
}
