//! Who the leader is and whose events it sends: an extension that is replaced, an origin that changes, a lock that nobody
//! else can take, privileges that nobody was given.

use webhook_outbox_test::{cluster::Cluster, outbox::Outbox, receiver::Receiver};

#[test]
fn an_extension_that_is_replaced_at_once_gets_a_leader_that_delivers() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/old"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run("drop extension webhook_outbox; create extension webhook_outbox");
    let endpoint = shop.endpoint("a", &receiver.url("/new"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(receiver.requests_for("/new").len(), 1);
}

#[test]
fn the_first_events_of_a_new_origin_are_sent_although_an_emit_before_them_was_rolled_back() {
    let mut cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    Outbox::create(&cluster, "shop");
    for (node, undone) in [
        (
            "rolled-back",
            "begin; select webhook.emit('a.b', 'a', '{}'); rollback",
        ),
        (
            "savepoint",
            "begin; savepoint s; select webhook.emit('a.b', 'a', '{}'); rollback to s; commit",
        ),
        (
            "prepared",
            "begin; select webhook.emit('a.b', 'a', '{}'); prepare transaction 'p'",
        ),
    ] {
        cluster.reload(&[("webhook.node_name", node)]);
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_until(&format!(
            "(select current_setting('webhook.node_name') = '{node}')"
        ));
        // The new origin has no seal key yet: this emit makes one, and takes it back.
        shop.run(undone);
        if node == "prepared" {
            shop.run("rollback prepared 'p'");
        }
        let endpoint = shop.endpoint("a", &receiver.url("/hook"));
        let event = shop.emit("order.paid", "a", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        assert!(shop.is("fenced = 0 from webhook.stat_queue"), "{node}");
    }
}

#[test]
fn no_user_can_keep_the_leader_out_by_taking_its_lock_first() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let mut user = shop.another();
    shop.wait_for_worker("running");
    assert_eq!(
        shop.number(
            "select count(*) from pg_locks
              where locktype = 'advisory' and pid = (select pid from webhook.stat_worker)"
        ),
        1
    );
    // Every advisory lock that a function of SQL can take with the numbers of the leader's own.
    user.run(
        "select pg_advisory_lock(classid::bigint::int, objid::bigint::int), pg_advisory_lock((classid::bigint << 32) | objid::bigint)
           from pg_locks
          where locktype = 'advisory' and pid = (select pid from webhook.stat_worker)",
    );
    let leader = shop.leader();
    shop.run(&format!("select pg_terminate_backend({leader})"));
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_ne!(shop.leader(), leader);
}

#[test]
fn default_privileges_of_the_installing_role_give_nothing_away() {
    let cluster = Cluster::start_usual();
    let mut database = cluster.create_database("open");
    database
        .batch_execute(
            "create role curious;
             alter default privileges grant select, insert, update on tables to curious;
             alter default privileges grant select on tables to public;
             alter default privileges grant execute on functions to curious;
             create extension webhook_outbox;
             select webhook._add_partition('_event', current_date + 3)",
        )
        .expect("the extension is installed");
    let open: i64 = database
        .query_one(
            "select (select count(*) from pg_class
                      where relnamespace = 'webhook'::regnamespace and relkind in ('r', 'p', 'v')
                        and has_table_privilege('curious', oid, 'select, insert, update'))
                  + (select count(*) from pg_proc
                      where pronamespace = 'webhook'::regnamespace
                        and has_function_privilege('curious', oid, 'execute'))",
            &[],
        )
        .expect("a count")
        .get(0);
    assert_eq!(open, 0);
}
