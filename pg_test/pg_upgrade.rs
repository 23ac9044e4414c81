//! pg_upgrade to the server under test from PostgreSQL 15: everything is there, and, since the server has a new
//! identity, nothing is sent before somebody says that it takes over.

use std::time::Duration;

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::Outbox,
    receiver::{Answer, Receiver},
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

#[test]
fn an_upgraded_server_has_everything_and_sends_what_was_open_once_adopted() {
    let mut new = Cluster::start_usual();
    if new.major() == 15 {
        // There is no older one to come from; the runs against later versions come from this one.
        return;
    }
    let mut old = Cluster::plan().version_15().start();
    let receiver = Receiver::http();
    receiver.script("/open", vec![Answer::status(503)]);
    let (done, open, sent, waiting) = {
        let mut shop = Outbox::create(&old, "shop");
        let done = shop.endpoint("a", &receiver.url("/done"));
        let open = shop.endpoint("b", &receiver.url("/open"));
        let sent = shop.emit("order.paid", "a", "{}");
        let waiting = shop.emit("order.paid", "b", "{}");
        shop.wait_for_state(&sent, &done, "delivered");
        // It is probed again and again until the server stops.
        shop.wait_for_attempts(&waiting, &open, 1);
        (done, open, sent, waiting)
    };
    // Without its leader, which makes partitions.
    old.set("shared_preload_libraries", "");
    old.restart(Shutdown::Fast);
    for database in ["shop", "postgres", "template1"] {
        forget_column_versions(&old, database);
    }
    old.stop(Shutdown::Fast);
    new.stop(Shutdown::Fast);
    let before = receiver.count();
    receiver.script("/open", vec![Answer::status(200)]);

    new.upgrade_from(&old);
    new.start();
    let mut shop = Outbox::join(&new, "shop");
    shop.wait_for_worker("running");
    assert_eq!(
        shop.delivery(&sent, &done).expect("a delivery").state,
        "delivered"
    );
    let tried = receiver.requests_for("/open").len();
    assert_eq!(shop.attempts(&waiting, &open).len(), tried);
    assert!(shop.is("bool_and(fenced = 'origin') and count(*) = 2 from webhook.events"));
    assert!(shop.is("bool_and(inert) and count(*) = 2 from webhook.endpoints"));
    std::thread::sleep(POLLS);
    assert_eq!(receiver.count(), before);

    let origin = shop.text("select distinct origin from webhook._event");
    shop.run(&format!(
        "select webhook.adopt({origin}, 'send', 'the server was upgraded')"
    ));
    shop.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
    shop.wait_for_state(&waiting, &open, "delivered");
    let next = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&next, &done, "delivered");
    assert_eq!(receiver.count(), before + 2);
}

/// Debian's 15.20 counts the changes of every column of every table in pg_attribute, which the releases of later
/// versions that there are refuse to restore: with it no table can be upgraded, ours or not.
fn forget_column_versions(old: &Cluster, database: &str) {
    old.connect(database)
        .batch_execute(
            r"set allow_system_table_mods = on;
              update pg_attribute set attoptions = null where attoptions::text like '{pg\_attver=%}'",
        )
        .expect("the versions of columns are forgotten");
}
