//! What waits in the leader's memory is bounded by bytes: large payloads for a receiver that hangs stay in their
//! tables, and all of them are delivered when it answers.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    cluster::Cluster,
    meter::anonymous_kb,
    outbox::Outbox,
    receiver::{Answer, Receiver},
    say,
    wait::wait_for,
};

const EVENTS: usize = 2_000;
/// Bytes of each payload: 400 MB in all.
const BYTES: usize = 200_000;
/// How long the receiver takes while it hangs: longer than the request may.
const HANGS: Duration = Duration::from_secs(10);
/// How long it is looked at while it hangs: attempts time out and are parked and claimed again.
const WATCH: Duration = Duration::from_secs(12);
/// 64 MB of new messages are 335, and a batch that was begun when there was room goes beyond them. Without bounds there would
/// be 2,000.
const MOST_PAIRS: i64 = 450;
const MOST_KB: i64 = 150 * 1024;

#[test]
fn large_payloads_for_a_receiver_that_hangs_fill_no_memory_and_all_arrive_when_it_answers() {
    let cluster = Cluster::plan()
        .setting("webhook.request_timeout", "2s")
        .setting(
            "webhook.retry_schedule",
            &["1s", &",2s".repeat(30)].concat(),
        )
        .setting("max_wal_size", "4GB")
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let (hangs, arrived) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(Mutex::new(HashSet::new())),
    );
    let (is_hanging, ids) = (Arc::clone(&hangs), Arc::clone(&arrived));
    receiver.behave("/hook", move |request| {
        if is_hanging.load(Ordering::SeqCst) {
            return Answer::status(200).after(HANGS);
        }
        let id = request.header("webhook-id").unwrap_or_default().to_owned();
        ids.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        Answer::status(200)
    });
    let endpoint = shop.endpoint("large", &receiver.url("/hook"));
    let other = shop.endpoint("small", &receiver.url("/other"));
    let first = shop.emit("order.paid", "small", "{}");
    shop.wait_for_state(&first, &other, "delivered");
    let leader = shop.leader();
    let before = anonymous_kb(leader);

    let (mut most_pairs, mut most_kb) = (0, 0);
    let look = |shop: &mut Outbox, most_pairs: &mut i64, most_kb: &mut i64| {
        // A receiver that remembers what it got would be the one that grows.
        receiver.forget();
        *most_kb = (*most_kb).max(anonymous_kb(leader) - before);
        *most_pairs =
            (*most_pairs).max(shop.number("select queued + in_flight from webhook.stat_queue"));
    };
    let mut emitted = HashSet::new();
    while emitted.len() < EVENTS {
        emitted.extend(shop.column(&format!(
            "select webhook.emit('file.made', 'large', jsonb_build_object('n', n, 'text', repeat('x', {BYTES})))
               from generate_series(1, 50) n"
        )));
        look(&mut shop, &mut most_pairs, &mut most_kb);
    }
    let end = Instant::now() + WATCH;
    while Instant::now() < end {
        look(&mut shop, &mut most_pairs, &mut most_kb);
        sleep(Duration::from_millis(50));
    }
    say!(
        "memory: at most {most_pairs} pairs of {EVENTS}, and {most_kb} kB more than before, while it hung"
    );
    assert!(
        most_pairs > 0 && most_pairs <= MOST_PAIRS,
        "{most_pairs} pairs"
    );
    assert!(most_kb < MOST_KB, "the leader has grown by {most_kb} kB");
    // Nobody else waits for it.
    let second = shop.emit("order.paid", "small", "{}");
    shop.wait_for_state(&second, &other, "delivered");
    let none = arrived
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty();
    assert!(none, "it has answered");

    hangs.store(false, Ordering::SeqCst);
    wait_for("all of it arrives", Duration::from_secs(120), || {
        look(&mut shop, &mut most_pairs, &mut most_kb);
        arrived.lock().unwrap_or_else(PoisonError::into_inner).len() >= EVENTS
    });
    assert!(*arrived.lock().unwrap_or_else(PoisonError::into_inner) == emitted);
    shop.wait_for_deliveries(&endpoint, "delivered", EVENTS as i64);
    say!("memory: at most {most_pairs} pairs and {most_kb} kB more until all of it had arrived");
    assert!(most_pairs <= MOST_PAIRS, "{most_pairs} pairs");
    assert!(most_kb < MOST_KB, "the leader has grown by {most_kb} kB");
    assert_eq!(shop.leader(), leader);
}
