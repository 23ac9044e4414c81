//! What an adoption inherits beside events: keys that cannot be decrypted here, and proofs that were demanded there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    master_key::MasterKeyFile,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, Receiver},
};

const PATIENCE_TO_PROVE: u64 = 10;

#[test]
fn an_adoption_whose_seal_key_cannot_be_decrypted_waits_and_keeps_nobody_elses_retry_waiting() {
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1s,1s,1s")
        .start();
    let file = MasterKeyFile::set(&mut cluster, 1);
    let receiver = Receiver::http();
    let (held, old, unproven) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let unproven =
            shop.endpoint_with("u", &receiver.url("/unproven"), ", verify => 'challenge'");
        wait_for_tries(&mut shop, &unproven, 1);
        let old = shop.endpoint("old", &receiver.url("/old"));
        shop.run(&format!(
            "select webhook.pause('endpoint', '{}', 'a test')",
            old.id
        ));
        shop.wait_until("(select bool_and(state = 'done') from webhook.requests)");
        let held = shop.emit("order.paid", "old", "{}");
        shop.wait_for_state(&held, &old, "pending");
        (held, old, unproven)
    };
    // Another machine: the copy's own keys are under another master key, the original's is not there.
    file.write(&[2]);
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    let mut copy = Outbox::join(&cluster, "copy");
    let own = copy.endpoint("own", &receiver.url("/own"));
    adopt(&mut copy);
    copy.wait_until(
        "(select last_error like 'could not decrypt seal key%' from webhook.stat_worker)",
    );

    receiver.script("/own", vec![Answer::status(503), Answer::status(200)]);
    let event = copy.emit("order.paid", "own", "{}");
    let delivery = copy.wait_for_state(&event, &own, "delivered");
    assert_eq!(delivery.attempts, 2);
    assert!(copy.is("(select bool_and(state <> 'done') from webhook.adoptions)"));
    assert!(receiver.requests_for("/old").is_empty());
    // A challenge that no key can sign is not sent, and nobody is blamed for it.
    assert!(copy.is(&format!(
        "count(*) = 1 from webhook.verifications where endpoint_id = {}",
        unproven.id
    )));

    file.write(&[2, 1]);
    copy.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
    copy.run(&format!("select webhook.resume('endpoint', '{}')", old.id));
    copy.wait_for_state(&held, &old, "delivered");
    assert_eq!(receiver.requests_for("/old").len(), 1);
    wait_for_tries(&mut copy, &unproven, 2);
}

#[test]
fn the_time_to_prove_control_begins_anew_with_an_adoption() {
    let mut cluster = Cluster::plan()
        .setting(
            "webhook.verification_timeout",
            &format!("{PATIENCE_TO_PROVE}s"),
        )
        .start();
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/in", move |request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match asked["challenge"].as_str() {
            Some(value) if of_receiver.load(Ordering::SeqCst) => Answer::status(200).body(value),
            _ => Answer::status(200),
        }
    });
    let endpoint = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint_with("a", &receiver.url("/in"), ", verify => 'challenge'");
        wait_for_tries(&mut shop, &endpoint, 1);
        endpoint
    };
    cluster.reload(&[("webhook.enabled", "off")]);
    Outbox::join(&cluster, "shop").wait_for_worker("off");
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    // As long as nobody could prove anything.
    sleep(Duration::from_secs(PATIENCE_TO_PROVE));
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    adopt(&mut copy);
    copy.wait_until("(select bool_and(state = 'done') from webhook.adoptions)");
    wait_for_tries(&mut copy, &endpoint, 2);
    assert_eq!(copy.state(&endpoint), "unverified");
    willing.store(true, Ordering::SeqCst);
    copy.run(&format!("select webhook.verify_endpoint({})", endpoint.id));
    copy.wait_until(&format!(
        "(select state = 'active' from webhook.endpoints where endpoint_id = {})",
        endpoint.id
    ));
}

fn adopt(copy: &mut Outbox) {
    copy.run(
        "select webhook.adopt(origin, 'send', 'the old one burnt down')
           from webhook.stat_fenced where reason = 'origin'",
    );
}

fn wait_for_tries(shop: &mut Outbox, endpoint: &Endpoint, count: usize) {
    shop.wait_until(&format!(
        "count(*) >= {count} from webhook.verifications where endpoint_id = {} and result = 'failed'",
        endpoint.id
    ));
}
