//! A full disk: emit fails in the caller's transaction, which knows of it; what was committed is sent when there is
//! room again, without anybody's help.

use std::time::Duration;

use webhook_outbox_test::{
    cluster::{Cluster, SMALL_DISK},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
};

#[test]
fn on_a_full_disk_emit_fails_and_what_was_committed_is_sent_when_there_is_room_again() {
    let cluster = Cluster::plan()
        .small_disk(64)
        .setting("webhook.request_timeout", "3s")
        .setting("webhook.retry_schedule", &["1s"; 30].join(","))
        .start();
    let receiver = Receiver::http();
    cluster
        .connect("postgres")
        .batch_execute(&format!("create tablespace small location '{SMALL_DISK}'"))
        .expect("a tablespace");
    cluster
        .connect("postgres")
        .batch_execute("create database shop tablespace small")
        .expect("a database");
    let mut shop = Outbox::join(&cluster, "shop");
    shop.run("create extension webhook_outbox");
    shop.wait_for_worker("running");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let first = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");

    // One is on the wire while the disk becomes full.
    receiver.script("/hook", vec![Answer::hang()]);
    let hanging = shop.emit("order.paid", "a", "{}");
    receiver.wait_for(2, PATIENCE);
    shop.run("create table filler (page text); alter table filler alter page set storage plain");
    let mut pages = 1000;
    while pages > 0 {
        let fill =
            format!("insert into filler select repeat('x', 8000) from generate_series(1, {pages})");
        if shop.sql.batch_execute(&fill).is_err() {
            pages /= 10;
        }
    }
    let mut kept = Vec::new();
    let refused = loop {
        match shop.sql.query_one(
            "select webhook.emit('order.paid', 'a', jsonb_build_object('a', repeat('x', 5000)))",
            &[],
        ) {
            Ok(row) => kept.push(row.get::<_, String>(0)),
            Err(error) => break error.code().map(|code| code.code().to_owned()),
        }
        assert!(kept.len() < 10_000, "the disk is not full");
    };
    assert_eq!(refused.as_deref(), Some("53100"));
    receiver.script("/hook", vec![Answer::status(200)]);
    // The request on the wire ends now, and what follows has to be written where there may be no room.
    std::thread::sleep(Duration::from_secs(4));
    shop.run("drop table filler");
    for event in kept.iter().chain([&hanging]) {
        shop.wait_for_state(event, &endpoint, "delivered");
        shop.attempts(event, &endpoint);
    }
    let next = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
    shop.wait_for_worker("running");
    // Nothing but what was committed.
    assert_eq!(receiver.ids().len(), kept.len() + 3);
}
