//! The leader waits until what it sends is on disk, wherever the write-ahead log ends just then.

use webhook_outbox_test::{cluster::Cluster, outbox::Outbox, receiver::Receiver};

/// Bytes of a page of the log behind its header, and what records are rounded up to.
const PAGE: i64 = 8192 - 24;
const STEP: i64 = 8;

/// Bytes of records so far. The headers of segments are left out: they shift a few tries of the sweep.
const RECORDS: &str = "select ((n / 8192) * (8192 - 24) + greatest(n % 8192 - 24, 0))::bigint
     from (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as n) now";

#[test]
fn an_adoption_goes_on_wherever_in_a_page_the_log_ends() {
    let mut cluster = Cluster::plan()
        // Nobody else writes, and nobody else waits for the disk.
        .setting("synchronous_commit", "off")
        .setting("full_page_writes", "off")
        .setting("autovacuum", "off")
        .setting("checkpoint_timeout", "1h")
        .start();
    let receiver = Receiver::http();
    let old = {
        let mut shop = Outbox::create(&cluster, "shop");
        shop.endpoint("acme", &receiver.url("/hook"));
        shop.text("select webhook._origin()")
    };
    cluster.reload(&[("webhook.node_name", "elsewhere")]);
    let mut shop = Outbox::join(&cluster, "shop");
    // The life that saw the old name ends first.
    shop.wait_until("(select state = 'running' and incarnation = 2 from webhook.stat_worker)");
    let life = "select (pid, incarnation, restarts)::text from webhook.stat_worker";
    let before = shop.text(life);
    let mut next = shop.number(RECORDS);
    // How far behind the start of the transaction the leader finds the end is the same every time, and not known.
    for guess in 0..PAGE / STEP {
        let pad = STEP + (-(next + guess * STEP)).rem_euclid(PAGE);
        shop.run(&format!(
            "begin; select pg_logical_emit_message(false, '', repeat('x', {pad}));
             select webhook.adopt({old}, 'skip', 'a sweep'); commit"
        ));
        shop.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
        next = shop.number(RECORDS);
    }
    assert_eq!(shop.text(life), before);
}
