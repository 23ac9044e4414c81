//! Long work is seen while it is under way, and no longer: each `stat_progress_*` has its row while the leader is held in the
//! middle by a lock, and none when it has been let go. (The replay, which is slowed down by its own rate, is in monitoring.rs.)

use std::{thread::sleep, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    copying::{drop_original, dump_and_restore},
    outbox::Outbox,
    receiver::Receiver,
};

/// Long enough for work that is not held to be over: sleeping proves a non-event.
const A_WHILE: Duration = Duration::from_millis(1_500);

#[test]
fn a_pass_of_retention_is_seen_while_a_step_is_held_and_vanishes_after_it() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("acme", &receiver.url("/in"));
    let event = shop.emit("order.paid", "acme", "{}");
    // Nothing is old before something was read.
    shop.wait_for_state(&event, &endpoint, "delivered");
    // The leader waits for no lock longer than 100 ms; here it asks until it gets this one.
    shop.run(
        "alter function webhook._expire_keys(timestamptz, integer, integer) rename to _expire_keys_at_once;
         create function webhook._expire_keys(before timestamptz, page integer, pages integer) returns integer language plpgsql as $$
         begin
           while not pg_catalog.pg_try_advisory_xact_lock(7) loop
             perform pg_catalog.pg_sleep(0.02);
           end loop;
           return webhook._expire_keys_at_once(before, page, pages);
         end $$",
    );
    shop.wait_until("not exists (select from webhook.stat_progress_retention)");
    shop.run("select pg_advisory_lock(7)");
    let asked = shop.text("select clock_timestamp()");
    shop.begin_pass();
    // Two steps are left: this one, and the payloads.
    let held = format!(
        "count(*) = 1 and bool_and(phase = 'deleting idempotency keys' and steps_done > 10 and steps_total = steps_done + 2
                                   and started_at between timestamptz '{asked}' - interval '10 seconds' and clock_timestamp())
           from webhook.stat_progress_retention"
    );
    shop.wait_until(&format!("(select {held})"));
    sleep(A_WHILE);
    assert!(shop.is(&held), "it is still held");
    shop.run("select pg_advisory_unlock(7)");
    shop.wait_until("not exists (select from webhook.stat_progress_retention)");
    // The leader is as well as before.
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn an_erasure_is_seen_while_its_sweep_is_held_until_it_is_confirmed() {
    let cluster = Cluster::start_usual();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("acme", &receiver.url("/in"));
    let event = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert!(shop.is("count(*) = 0 from webhook.stat_progress_expunge"));
    shop.run("begin; select webhook.expunge('asked for', partner_id => 'acme')");
    let mut other = shop.another();
    std::thread::scope(|scope| {
        // It is in the queue for the table before the leader can be, and gets it at the commit.
        let holder =
            scope.spawn(|| other.run("begin; lock table webhook._tombstone in share mode"));
        shop.wait_until(
            "exists (select from pg_locks where relation = 'webhook._tombstone'::regclass and not granted)",
        );
        shop.run("commit");
        holder.join().expect("the holder");
    });
    let sweeping = "count(*) = 1 and bool_and(phase = 'sweeping' and scope = 'partner' and events_total = 1 and events_done = 0 and percent = 0
                                              and started_at < clock_timestamp())
                      from webhook.stat_progress_expunge";
    assert!(shop.is(sweeping));
    sleep(A_WHILE);
    assert!(shop.is(sweeping), "it is still held");
    other.run("commit");
    shop.wait_until(
        "(select phase = 'to be confirmed' and events_done = 1 and percent = 100 from webhook.stat_progress_expunge)",
    );
    shop.run("select webhook.confirm_erasure(erasure_id) from webhook.erasures");
    assert!(shop.is("count(*) = 0 from webhook.stat_progress_expunge"));
}

#[test]
fn an_adoption_is_seen_while_its_deliveries_are_held_and_vanishes_after_it() {
    let mut cluster = Cluster::plan().setting("webhook.enabled", "off").start();
    let receiver = Receiver::http();
    cluster.create_database("shop");
    let endpoint = {
        let mut shop = Outbox::join(&cluster, "shop");
        shop.run("create extension webhook_outbox");
        let endpoint = shop.endpoint("acme", &receiver.url("/in"));
        for _ in 0..3 {
            shop.emit("order.paid", "acme", "{}");
        }
        endpoint
    };
    dump_and_restore(&cluster, "shop", "copy");
    drop_original(&cluster, "shop");
    cluster.reload(&[("webhook.enabled", "on")]);
    let mut copy = Outbox::join(&cluster, "copy");
    copy.wait_for_worker("running");
    assert!(copy.is("count(*) = 0 from webhook.stat_progress_adopt"));
    let mut other = copy.another();
    other.run("begin; lock table webhook._due in share mode");
    copy.wait_until("(select count(*) = 1 from webhook.stat_fenced where reason = 'origin')");
    copy.run("select webhook.adopt(origin, 'send', 'a test') from webhook.stat_fenced where reason = 'origin'");
    let held = "count(*) = 1 and bool_and(p.phase = 'running' and p.mode = 'send' and p.origin = a.origin and p.events_done = 0
                                          and p.deliveries = 0 and p.started_at <= clock_timestamp())
                  from webhook.stat_progress_adopt p join webhook.adoptions a on a.request_id = p.request_id";
    copy.wait_until(&format!("(select {held})"));
    sleep(A_WHILE);
    assert!(copy.is(held), "it is still held");
    other.run("commit");
    copy.wait_until("not exists (select from webhook.stat_progress_adopt)");
    assert!(copy.is("count(*) = 1 and min(state) = 'done' from webhook.adoptions"));
    copy.wait_until(&format!(
        "(select count(*) = 3 from webhook.deliveries where endpoint_id = {} and state = 'delivered')",
        endpoint.id
    ));
}
