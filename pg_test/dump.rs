//! Dump and restore of a filled database: the same rows come back, and nothing old is ever sent from the copy.

use std::{
    fs,
    process::{Command, Output, Stdio},
    time::Duration,
};

use webhook_outbox_test::{
    cluster::Cluster,
    master_key::MasterKeyFile,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
};

use contents::{DUMPED, LEFT_OUT, Rows, rows, rows_of, shape};

#[path = "dump/contents.rs"]
mod contents;

/// A partition of this day is filled: beyond those that the leader makes, which end 30 days ahead.
const FILLED_DAY: &str = "date '2035-01-01'";

#[test]
fn dump_and_restore_give_the_same_rows_back_and_send_nothing_old() {
    let cluster = cluster();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = fill(&mut shop, &receiver);
    let original = Contents::of(&mut shop);
    original.assert_filled();

    let script = dump(&cluster, "shop", "plain");
    let text = fs::read_to_string(&script).expect("the dump");
    for table in LEFT_OUT {
        assert!(shop.is(&format!("exists (select from webhook.{table})")));
        assert!(!text.contains(&format!("COPY webhook.{table} ")), "{table}");
    }
    cluster.create_database("by_psql");
    run_script(&cluster, "by_psql", &script);

    let archive = dump(&cluster, "shop", "custom");
    cluster.create_database("by_pg_restore");
    restore(&cluster, "by_pg_restore", &archive, &["-j2"]);
    // What the dumps were compared with has not changed under them.
    assert_eq!(rows(&mut shop), original.rows);

    // A copy of a copy, whose leader runs already when the rows arrive.
    let archive = dump(&cluster, "by_pg_restore", "custom");
    cluster.create_database("of_a_copy");
    restore(&cluster, "of_a_copy", &archive, &["--section=pre-data"]);
    Outbox::join(&cluster, "of_a_copy").wait_for_worker("running");
    restore(&cluster, "of_a_copy", &archive, &["--section=data", "-j2"]);
    restore(
        &cluster,
        "of_a_copy",
        &archive,
        &["--section=post-data", "-j2"],
    );

    for (database, origins) in [("by_psql", 1), ("by_pg_restore", 1), ("of_a_copy", 2)] {
        let mut copy = Outbox::join(&cluster, database);
        copy.wait_for_worker("running");
        original.assert_same(&mut copy, origins);
        assert_inert(&mut copy, &mut shop, &receiver, &endpoint);
    }
}

#[test]
fn a_copy_in_a_server_that_counts_fewer_transactions_sends_nothing_old_either() {
    let cluster = cluster();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    // The events' transactions lie in the other server's future.
    shop.run(&burn("i < 20000"));
    let endpoint = fill(&mut shop, &receiver);
    let original = Contents::of(&mut shop);
    let script = dump(&cluster, "shop", "plain");
    let other = self::cluster();
    other
        .connect("postgres")
        .batch_execute("create role reader")
        .expect("a role");
    other.create_database("copy");
    run_script(&other, "copy", &script);

    let mut copy = Outbox::join(&other, "copy");
    copy.wait_for_worker("running");
    original.assert_same(&mut copy, 1);
    // This server's transactions pass over those of the events while its leader reads.
    let newest = copy.text("select max(xid) from webhook._event");
    assert!(copy.is(&format!("pg_current_xact_id() < '{newest}'")));
    copy.run(&burn(&format!("pg_current_xact_id() <= '{newest}'")));
    assert_inert(&mut copy, &mut shop, &receiver, &endpoint);
}

/// Uses up transaction ids.
fn burn(condition: &str) -> String {
    format!(
        "do $$
         declare
           i integer := 0;
         begin
           while {condition} loop
             perform pg_current_xact_id();
             i := i + 1;
             commit;
           end loop;
         end
         $$"
    )
}

/// Nothing falls due while the test looks: a retry would change the rows between dump and comparison.
fn cluster() -> Cluster {
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h,2h")
        .setting("webhook.request_timeout", "5min")
        .setting("webhook.first_pass_limit", "200ms")
        .start();
    // Without one CREATE EXTENSION warns, and a restore is to complain of nothing.
    MasterKeyFile::set(&mut cluster, 1);
    cluster
}

/// A database with every kind of row. The endpoint that is returned answers, and belongs to partner "a".
fn fill(shop: &mut Outbox, receiver: &Receiver) -> Endpoint {
    // All that the leader would make in its own time, and one day more than it ever does.
    shop.run(&format!(
        "select webhook._add_partition(parent, day)
           from unnest('{{_event,_event_version,_feed,_delivery,_attempt,_excerpt}}'::text[]) as parent,
                (select (now() at time zone 'UTC')::date + n from generate_series(1, 31) as n
                 union all select {FILLED_DAY}) as d (day)"
    ));
    receiver.script(
        "/late",
        vec![
            Answer::status(503).body("later"),
            Answer::status(200).body("now"),
        ],
    );
    receiver.script(
        "/down",
        vec![Answer::status(500).body("out of \"order\"\r\n\\. \u{1F4A5}")],
    );
    receiver.script("/refuses", vec![Answer::status(404).body("who?")]);
    receiver.script("/gone", vec![Answer::status(410)]);
    receiver.script("/hangs", vec![Answer::hang()]);
    // The policy that CREATE EXTENSION makes is another one here, and none of the pauses concerns what is sent.
    shop.run(
        "select webhook.update_policy('default', disable_failures => 19, description => 'of the shop');
         select webhook.create_policy('brisk', retry_schedule => '1h,3h', rate => 9.5, burst => 3, max_age => '7 days');
         select webhook.pause('partner', 'nobody', 'they asked');
         select webhook.pause('event_type', 'order.lost', 'for now');
         select webhook.resume('event_type', 'order.lost', 'and on')",
    );
    let endpoint = shop.endpoint_with(
        "a",
        &receiver.url("/hook"),
        ", description => E'tab\\there', policy => 'brisk'",
    );
    let late = shop.endpoint("late", &receiver.url("/late"));
    let down = shop.endpoint("down", &receiver.url("/down"));
    let closed = shop.endpoint("closed", &receiver.url("/down"));
    let refuses = shop.endpoint("refuses", &receiver.url("/refuses"));
    let gone = shop.endpoint("gone", &receiver.url("/gone"));
    let hangs = shop.endpoint_with("hangs", &receiver.url("/hangs"), ", max_in_flight => 1");
    let test = shop.endpoint_with(
        "a",
        &receiver.url("/test"),
        ", test => true, event_types => '{order.*}'",
    );
    shop.run("insert into webhook._event_type (name, priority) values ('order.paid', 0), ('order.lost', 1)");

    let every = ", 'order', '7', 3, 'crm', 'eu', '1999-12-31 23:59:59.999999+00', '2', 'c', \
                 'evt_00000000000000000000000000', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'key'";
    let body = "{\"text\": \"\\\\. \\\"\\t\\n\\u2028 \u{1F4A5} {}\", \"n\": 12345678901234567890.123456789}";
    let full = shop.emit_with("order.paid", "a", body, every);
    let trial = shop.emit_with("order.paid", "a", "1", ", test => true");
    shop.run("begin");
    let fenced = shop.emit("order.paid", "a", "1");
    shop.run(&format!(
        "update webhook._event set body = '2' where event_id = '{fenced}'; commit"
    ));
    let postponed = shop.emit("order.paid", "late", "1");
    let retried = shop.emit("order.paid", "down", "1");
    let cancelled = shop.emit("order.paid", "closed", "1");
    let refused = shop.emit("order.paid", "refuses", "1");
    let farewell = shop.emit("order.paid", "gone", "1");
    shop.wait_for_state(&full, &endpoint, "delivered");
    shop.wait_for_state(&trial, &test, "delivered");
    shop.wait_until(&format!(
        "(select fenced = 'seal' from webhook.events where event_id = '{fenced}')"
    ));
    shop.wait_for_state(&postponed, &late, "retrying");
    shop.wait_for_state(&retried, &down, "retrying");
    shop.wait_for_state(&cancelled, &closed, "retrying");
    shop.wait_for_state(&refused, &refuses, "dead");
    shop.wait_for_state(&farewell, &gone, "dead");
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'is closed')",
        closed.id
    ));
    shop.wait_for_state(&cancelled, &closed, "cancelled");
    shop.run(&format!("select webhook.replay('{postponed}')"));
    shop.wait_for_state(&postponed, &late, "delivered");
    // What the leader knows about endpoints is written some seconds later.
    shop.wait_until(
        "(select sum(delivered + failed) from webhook.stat_endpoint) = (select count(*) from webhook.attempts)",
    );
    // The function need not be there.
    shop.run(&format!(
        "insert into webhook._conversion (event_type, from_version, to_version, function_name, function_owner, reason)
         values ('order.paid', '1', '2', 'nowhere.made(jsonb)', 'nobody', 'to be restored');
         insert into webhook._event_version (event_id, version, partner_id, failure, seal, body_sha256, body)
         values ('{full}', '2', 'a', null, '\\x01', '\\x02', E'{{\"a\": \"\\\\u2028\"}}'), ('{full}', '3', 'a', 'it failed', '\\x03', '\\x04', null)"
    ));
    fill_a_later_day(shop);
    // One request hangs while the dump is made, and the others wait for it.
    let waiting =
        shop.column("select webhook.emit('order.paid', 'hangs', '1') from generate_series(1, 3)");
    for event in &waiting {
        shop.wait_for_state(event, &hangs, "pending");
    }
    shop.run(
        "create role reader;
         grant usage on schema webhook to reader;
         grant select on webhook.events to reader;
         grant execute on function webhook.replay(text, bigint) to reader;
         grant select on webhook._event_20350101 to reader;
         revoke select on webhook.stat_queue from pg_monitor",
    );
    endpoint
}

/// The rows that there are once more, as if they were of a later day.
fn fill_a_later_day(shop: &mut Outbox) {
    let mut statements = format!(
        "create temp table moved as
           select e.event_id as old, substr(webhook._event_bound({FILLED_DAY}), 1, 14) || substr(e.event_id, 15) as new
             from webhook._event e;
         insert into webhook._feed
         select webhook._pos_bound({FILLED_DAY}) + row_number() over (), f.published_at, f.test, f.partner_id, m.new, f.type
           from webhook._feed f join moved m on m.old = f.event_id;"
    );
    for table in [
        "_event",
        "_event_version",
        "_delivery",
        "_attempt",
        "_excerpt",
    ] {
        statements.push_str(&format!(
            "insert into webhook.{table}
             select (jsonb_populate_record(t, jsonb_build_object('event_id', m.new))).*
               from webhook.{table} t join moved m on m.old = t.event_id;"
        ));
    }
    shop.run(&statements);
}

/// What the original held.
struct Contents {
    rows: Rows,
    shape: Vec<String>,
    seal_keys: Vec<String>,
    ledger: Vec<String>,
}

impl Contents {
    fn of(shop: &mut Outbox) -> Contents {
        Contents {
            rows: rows(shop),
            shape: shape(shop),
            seal_keys: rows_of(shop, "_seal_key"),
            ledger: rows_of(shop, "_ledger"),
        }
    }

    fn assert_filled(&self) {
        for table in DUMPED {
            assert!(!self.rows[table].is_empty(), "{table} has no row");
        }
        for table in &DUMPED[..6] {
            let places = [
                format!("webhook.{table}_default "),
                format!("webhook.{table}_20350101 "),
            ];
            for place in places {
                let found = self.rows[table].iter().any(|row| row.starts_with(&place));
                assert!(found, "no row in {place}");
            }
        }
        for state in ["delivered", "retrying", "dead", "cancelled", "pending"] {
            let of_state = |row: &String| row.contains(&format!(",{state},"));
            assert!(self.rows["_delivery"].iter().any(of_state), "{state}");
        }
    }

    #[track_caller]
    fn assert_same(&self, copy: &mut Outbox, origins: usize) {
        for (table, rows) in rows(copy) {
            assert_eq!(rows, self.rows[table], "{table}");
        }
        let shape = shape(copy);
        for (here, there) in shape.iter().zip(&self.shape) {
            assert_eq!(here, there);
        }
        assert_eq!(shape.len(), self.shape.len());
        // The keys came with the rows they seal; each database added one of its own.
        let seal_keys = rows_of(copy, "_seal_key");
        assert!(self.seal_keys.iter().all(|key| seal_keys.contains(key)));
        assert_eq!(seal_keys.len(), origins + 1);
        assert_eq!(
            copy.text("select other_origins from webhook.stat_queue"),
            origins.to_string()
        );
        for table in ["_due", "_request"] {
            assert_eq!(rows_of(copy, table), [""; 0], "{table}");
        }
        let ledger = rows_of(copy, "_ledger");
        assert!(!ledger.iter().any(|row| self.ledger.contains(row)));
    }
}

/// Nothing that came with the copy is sent, while the original and the copy's own endpoints go on.
fn assert_inert(copy: &mut Outbox, shop: &mut Outbox, receiver: &Receiver, endpoint: &Endpoint) {
    let sent = receiver.count();
    assert!(copy.is("count(*) > 0 and bool_and(fenced = 'origin') from webhook.events"));
    assert!(copy.is("count(*) > 0 and bool_and(inert) from webhook.endpoints"));
    let old = copy.text("select min(event_id) from webhook.events");
    let (code, message) = copy.refusal(&format!("select webhook.replay('{old}')"));
    assert_eq!(code, "55000", "{message}");

    // Once the copy's leader has read a new event, it has passed by all that was restored.
    let new = copy.emit("order.paid", "a", "{}");
    copy.wait_until(
        "(select (unread_events, queued, in_flight) = (0, 0, 0) from webhook.stat_queue)",
    );
    copy.wait_until(&format!(
        "(select published_at is not null and fenced is null from webhook.events where event_id = '{new}')"
    ));
    let there = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&there, endpoint, "delivered");
    let own = copy.endpoint("a", &receiver.url("/copy"));
    let next = copy.emit("order.paid", "a", "{}");
    copy.wait_for_state(&next, &own, "delivered");
    let requests = receiver.wait_for(sent + 2, PATIENCE);
    let ids = requests[sent..]
        .iter()
        .map(|request| request.header("webhook-id"));
    assert_eq!(ids.collect::<Vec<_>>(), [Some(&*there), Some(&*next)]);
    // The poll, which looks for what was missed, has come round.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(receiver.count(), sent + 2);
    assert!(copy.is(&format!(
        "not exists (select from webhook.deliveries where event_id = '{new}')"
    )));
    assert!(copy.is("not exists (select from webhook._due)"));
}

/// Dumps a database into a file of the cluster's folder.
fn dump(cluster: &Cluster, database: &str, format: &str) -> String {
    let file = cluster.folder().join(format!("{database}.{format}"));
    let file = file.display().to_string();
    succeed(
        cluster
            .program("pg_dump")
            .args(["-F", format, "-f", &file, database]),
    );
    file
}

fn run_script(cluster: &Cluster, database: &str, script: &str) {
    let file = fs::File::open(script).expect("the dump");
    let mut command = cluster.program("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database]);
    succeed(command.stdin(file).stdout(Stdio::null()));
}

fn restore(cluster: &Cluster, database: &str, archive: &str, more: &[&str]) {
    let mut command = cluster.program("pg_restore");
    command
        .args(["--exit-on-error", "-d", database])
        .args(more)
        .arg(archive);
    succeed(&mut command);
}

/// Runs a program that is to succeed and to complain of nothing.
#[track_caller]
fn succeed(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().expect("a program of PostgreSQL");
    let said = String::from_utf8_lossy(&stderr);
    assert!(
        status.success() && said.is_empty(),
        "{command:?}: {status}\n{said}"
    );
}
