//! What else may be the matter with a server: no worker is free, a database takes no writes, somebody who is no
//! superuser owns and restores it.

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Outbox, PATIENCE},
    receiver::Receiver,
    wait::wait_for,
};

#[test]
fn without_a_free_worker_the_view_says_so_and_the_leader_starts_when_one_is_free() {
    let mut cluster = Cluster::plan()
        .setting("max_worker_processes", "2")
        .setting("max_logical_replication_workers", "0")
        .start();
    let receiver = Receiver::http();
    let mut north = Outbox::create(&cluster, "north");
    cluster.create_database("south");
    let (endpoint, event) = {
        let mut south = Outbox::join(&cluster, "south");
        south.run("create extension webhook_outbox");
        let endpoint = south.endpoint("a", &receiver.url("/hook"));
        let event = south.emit("order.paid", "a", "{}");
        south.wait_for_worker("no worker slot");
        assert!(south.is("hint ~ 'max_worker_processes' from webhook.stat_worker"));
        assert!(south.is("advice ~ 'max_worker_processes' from webhook.status()"));
        (endpoint, event)
    };
    // It takes the place of one that leaves, by itself.
    north.run("drop extension webhook_outbox");
    drop(north);
    let mut south = Outbox::join(&cluster, "south");
    south.wait_for_state(&event, &endpoint, "delivered");
    south.wait_for_worker("running");
    drop(south);

    cluster.set("max_worker_processes", "1");
    cluster.restart(Shutdown::Fast);
    let mut south = Outbox::join(&cluster, "south");
    let event = south.emit("order.paid", "a", "{}");
    south.wait_for_worker("no worker slot");
    drop(south);
    cluster.set("max_worker_processes", "8");
    cluster.restart(Shutdown::Fast);
    Outbox::join(&cluster, "south").wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn in_a_database_that_is_read_only_for_its_users_the_leader_goes_on() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    shop.run("alter database shop set default_transaction_read_only = on");
    let leader = shop.leader();
    shop.run(&format!("select pg_terminate_backend({leader})"));
    wait_for("another leader", PATIENCE, || {
        let new = shop.leader();
        new != 0 && new != leader
    });
    // This session began before; a new one is refused.
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let mut late = shop.another();
    for verb in [
        "webhook.emit('order.paid', 'a', '{}')",
        &format!("webhook.replay('{event}')"),
        "webhook.pause('partner', 'a', 'x')",
    ] {
        let (code, message) = late.refusal(&format!("select {verb}"));
        assert_eq!(code, "25006", "{verb}: {message}");
    }
    late.run("begin; set transaction read write");
    let event = late.emit("order.paid", "a", "{}");
    late.run("commit");
    late.wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn a_transaction_that_was_prepared_is_sent_once_it_is_committed_also_after_a_crash() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let (endpoint, kept) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        shop.run("begin");
        let kept = shop.emit("order.paid", "a", "{}");
        shop.run("prepare transaction 'kept'; begin");
        shop.emit("order.paid", "a", "{}");
        shop.run("prepare transaction 'taken back'");
        // Others do not wait for it.
        let other = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&other, &endpoint, "delivered");
        (endpoint, kept)
    };
    cluster.crash();
    cluster.start();
    let mut shop = Outbox::join(&cluster, "shop");
    let other = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&other, &endpoint, "delivered");
    assert_eq!(receiver.ids().len(), 2);
    shop.run("commit prepared 'kept'");
    shop.run("rollback prepared 'taken back'");
    shop.wait_for_state(&kept, &endpoint, "delivered");
    assert_eq!(receiver.ids().len(), 3);
}

#[test]
fn an_owner_who_is_no_superuser_dumps_and_restores_a_database_whose_extension_is_there() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run("create role keeper login; create table note (id int); alter table note owner to keeper; grant create on schema public to keeper");
    let file = cluster.folder().join("keeper.dump").display().to_string();
    // The tables are not his: he gets all but them, and PostgreSQL says why.
    let refused = cluster
        .program("pg_dump")
        .args(["-U", "keeper", "-Fc", "-f", &file, "shop"])
        .output()
        .expect("pg_dump");
    assert!(!refused.status.success());
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("permission denied"),
        "{}",
        String::from_utf8_lossy(&refused.stderr)
    );
    let dumped = cluster
        .program("pg_dump")
        .args(["-U", "keeper", "-Fc", "-N", "webhook", "-f", &file, "shop"])
        .output()
        .expect("pg_dump");
    assert!(
        dumped.status.success(),
        "{}",
        String::from_utf8_lossy(&dumped.stderr)
    );
    // A superuser creates the extension, which is not trusted; the owner restores his own.
    cluster
        .create_database("copy")
        .batch_execute("create extension webhook_outbox; grant create on schema public to keeper")
        .expect("the extension");
    let restored = cluster
        .program("pg_restore")
        .args([
            "-U",
            "keeper",
            "--no-comments",
            "-t",
            "note",
            "-d",
            "copy",
            &file,
        ])
        .output()
        .expect("pg_restore");
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    let mut copy = Outbox::join(&cluster, "copy");
    assert!(copy.is("count(*) = 0 from note"));
    let endpoint = copy.endpoint("a", &receiver.url("/copy"));
    let event = copy.emit("order.paid", "a", "{}");
    copy.wait_for_state(&event, &endpoint, "delivered");
}
