//! Point-in-time recovery: a base backup and the archived log up to a point bring back the original with its identity. What
//! the original sent after the point is sent again, under the same ids and with the same bytes, and what it emitted after the
//! point is gone; switched off at its first start, the recovered server can be looked at before it sends anything.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

/// Several polls of the leader: sleeping proves a non-event.
const POLLS: Duration = Duration::from_millis(2_500);

#[test]
fn a_recovered_server_sends_what_was_open_at_its_point_under_the_same_ids_once_switched_on() {
    let mut original = Cluster::plan()
        .setting("archive_mode", "on")
        .setting("webhook.retry_schedule", &["1s"; 40].join(","))
        .start();
    let archive = original.folder().join("archive").display().to_string();
    original.reload(&[(
        "archive_command",
        &format!("mkdir -p {archive} && cp %p {archive}/%f"),
    )]);
    let receiver = Receiver::http();
    receiver.script("/slow", vec![Answer::status(500)]);
    let mut shop = Outbox::create(&original, "shop");
    let good = shop.endpoint_with(
        "acme",
        &receiver.url("/good"),
        ", event_types => '{order.*}'",
    );
    let slow = shop.endpoint_with(
        "acme",
        &receiver.url("/slow"),
        ", event_types => '{bill.*}'",
    );
    let before_backup = shop.emit("order.paid", "acme", r#"{"n": 1}"#);
    shop.wait_for_state(&before_backup, &good, "delivered");

    let mut recovered = original.base_backup();

    // In the log alone: delivered, tried once, and not sent before the point.
    let before_point = shop.emit("order.paid", "acme", r#"{"n": 2}"#);
    let open = shop.emit("bill.sent", "acme", r#"{"n": 3}"#);
    shop.wait_for_state(&before_point, &good, "delivered");
    shop.wait_for_state(&open, &slow, "retrying");
    let hold =
        shop.number("select webhook.pause('partner', 'acme', 'a moment before the mistake')");
    shop.reply(hold);
    let held = shop.emit("order.paid", "acme", r#"{"n": 4}"#);
    shop.wait_for_state(&held, &good, "pending");
    shop.run("select pg_create_restore_point('before_the_mistake')");

    // After the point: the original sends both, and one more that nobody will remember.
    receiver.script("/slow", vec![Answer::status(200)]);
    let go_on = shop.number("select webhook.resume('partner', 'acme', 'now')");
    shop.reply(go_on);
    shop.wait_for_state(&open, &slow, "delivered");
    shop.wait_for_state(&held, &good, "delivered");
    let forgotten = shop.emit("order.paid", "acme", r#"{"n": 5}"#);
    shop.wait_for_state(&forgotten, &good, "delivered");
    let sent = bodies(&receiver);
    let last = shop.text("select pg_walfile_name(pg_switch_wal())");
    shop.wait_until(&format!(
        "(select last_archived_wal >= '{last}' from pg_stat_archiver)"
    ));
    drop(shop);
    original.stop(Shutdown::Fast);
    receiver.forget();

    recovered.recover_at_start(&[
        ("archive_mode", "off"),
        ("restore_command", &format!("cp {archive}/%f %p")),
        ("recovery_target_name", "before_the_mistake"),
        ("recovery_target_action", "promote"),
        ("webhook.enabled", "off"),
    ]);
    recovered.start();
    recovered.wait_for_end_of_recovery();

    // Looked at while it is off: it is the original of that moment, nothing is fenced, and nothing leaves.
    let mut shop = Outbox::join(&recovered, "shop");
    shop.wait_for_worker("off");
    for (event, endpoint, state) in [
        (&before_backup, &good, "delivered"),
        (&before_point, &good, "delivered"),
        (&open, &slow, "retrying"),
    ] {
        let delivery = shop.delivery(event, endpoint).expect("a delivery");
        assert_eq!(delivery.state, state, "{event}");
    }
    assert!(shop.is("count(*) = 4 and bool_and(fenced is null) from webhook.events"));
    assert!(shop.is(&format!(
        "not exists (select from webhook.events where event_id = '{forgotten}')"
    )));
    assert!(shop.is("count(*) = 0 from webhook.stat_fenced"));
    assert!(shop.is("not bool_or(inert) from webhook.endpoints"));
    sleep(POLLS);
    assert_eq!(receiver.count(), 0, "it is off");
    drop(shop);

    recovered.reload(&[("webhook.enabled", "on")]);
    let mut shop = Outbox::join(&recovered, "shop");
    shop.wait_for_worker("running");
    // The pause of that moment holds, and is lifted here once more.
    shop.wait_for_state(&held, &good, "pending");
    shop.run("select webhook.resume('partner', 'acme', 'looked at')");
    for (event, endpoint) in [(&held, &good), (&open, &slow)] {
        shop.wait_for_state(event, endpoint, "delivered");
    }
    let new = shop.emit("order.paid", "acme", r#"{"n": 6}"#);
    shop.wait_for_state(&new, &good, "delivered");
    wait_for("nothing is on the wire", PATIENCE, || {
        receiver.in_flight() == 0
    });
    sleep(POLLS);
    let mut again = bodies(&receiver);
    assert!(again.remove(&new).is_some());
    let wanted: BTreeMap<_, _> = [&held, &open]
        .map(|event| (event.clone(), sent[event].clone()))
        .into();
    assert_eq!(again, wanted, "the same ids and bytes, and nothing else");
    assert_eq!(receiver.count(), 3, "each of them once");
    assert!(!sent.contains_key(&new), "the id of a new event is new");
}

/// The body that arrived last for each event.
fn bodies(receiver: &Receiver) -> BTreeMap<String, Vec<u8>> {
    receiver
        .requests()
        .into_iter()
        .map(|request| {
            let id = request.header("webhook-id").expect("an id").to_owned();
            (id, request.body)
        })
        .collect()
}
