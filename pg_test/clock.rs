//! The clock of the machine is set: nothing is lost, nothing waits for a day that was only in the clock, and times of
//! what happened are those of the clock at that moment.

use std::{fs, path::Path};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

/// Debian's libfaketime, which every process of the server has loaded.
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketime.so.1";

#[test]
fn a_clock_that_is_set_forward_and_back_stops_no_delivery() {
    let clock = std::env::temp_dir().join(format!("webhook.clock.{}", std::process::id()));
    set(&clock, "+0");
    let cluster = Cluster::plan()
        .environment("LD_PRELOAD", LIBRARY)
        .environment("FAKETIME_TIMESTAMP_FILE", &clock.display().to_string())
        .environment("FAKETIME_NO_CACHE", "1")
        // What counts how long something takes is no clock that anybody sets.
        .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .setting("webhook.retry_schedule", "2s,2s,2s")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let real = "extract(epoch from clock_timestamp())::bigint";
    let before = shop.number(&format!("select {real}"));
    for step in ["+2h", "-1d", "+0"] {
        // One that waits for its second attempt while the clock is set.
        receiver.script("/hook", vec![Answer::status(503), Answer::status(200)]);
        let retried = shop.emit("order.paid", "a", "{}");
        shop.wait_for_attempts(&retried, &endpoint, 1);
        set(&clock, step);
        wait_for("the server has the new time", PATIENCE, || {
            let now = shop.number(&format!("select {real}"));
            match step {
                "+2h" => now > before + 3_600,
                "-1d" => now < before - 3_600,
                _ => (now - before).abs() < 3_600,
            }
        });
        let new = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&new, &endpoint, "delivered");
        shop.wait_for_state(&retried, &endpoint, "delivered");
        let attempts = shop.attempts(&retried, &endpoint);
        assert_eq!(attempts.len(), 2, "{step}: {attempts:?}");
    }
    assert!(shop.is("state = 'running' and restarts = 0 from webhook.stat_worker"));
    assert_eq!(receiver.count(), 9);
    let _ = fs::remove_file(clock);
}

fn set(file: &Path, offset: &str) {
    let new = file.with_extension("new");
    fs::write(&new, format!("{offset}\n")).expect("the clock");
    fs::rename(&new, file).expect("the clock");
}
