//! Rows of the feed and of deliveries that succeed at once, which the leader writes many at a time without a statement:
//! they are what a statement writes, and what an operator has added to the tables is obeyed.

use webhook_outbox_test::{cluster::Cluster, outbox::Outbox, receiver::Receiver};

/// Everything of a delivery that must not depend on how its row was written.
const SAME: &str = "count(distinct to_jsonb(d) - array['event_id', 'last_attempt_at', 'delivered_at', 'last_latency_ms', 'last_body_sha256'])";

#[test]
fn rows_of_a_batch_are_whole_and_in_every_index() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    for path in ["/1", "/2", "/3"] {
        shop.endpoint("acme", &receiver.url(path));
    }
    shop.run(
        "select count(webhook.emit('order.paid', 'acme', '{}')) from generate_series(1, 3000)",
    );
    shop.wait_until("count(*) = 9000 from webhook._delivery where state = 'delivered'");
    assert!(shop.is("count(*) = 3000 from webhook._feed"));
    assert!(shop.is(
        "bool_and(attempt_count = 1 and series_start = 0 and last_status = 200 and last_latency_ms >= 0
              and delivered_at >= last_attempt_at and next_attempt_at is null and last_error_category is null
              and reason is null and last_response_bytes = 0 and cardinality(last_key_ids) = 1 and length(last_body_sha256) = 32)
         from webhook._delivery"
    ));
    assert!(shop.is(
        "count(*) = 0 from webhook._event e full join webhook._feed f using (event_id)
          where (e.partner_id, e.type, e.test) is distinct from (f.partner_id, f.type, f.test)"
    ));
    let request = &receiver.requests()[0];
    assert!(shop.is(&format!(
        "count(*) = 3 from webhook._delivery where event_id = '{}'
            and last_body_sha256 = sha256(convert_to('{}', 'UTF8'))",
        request.header("webhook-id").expect("an event id"),
        request.text()
    )));
    shop.run("set enable_seqscan = off");
    assert!(shop.is("count(*) = 3000 from webhook._delivery d where endpoint_id = (select min(endpoint_id) from webhook._endpoint)"));
    assert!(shop.is("count(*) = 9000 from webhook._delivery d where event_id > ''"));
    assert!(shop.is("count(*) = 3000 from webhook._feed where partner_id = 'acme' and pos > 0"));
    assert!(shop.is("count(*) = 3000 from webhook._feed where type = 'order.paid' and pos > 0"));
    assert!(
        shop.is("count(*) = 0 from webhook._delivery where state = 'dead' or state <> 'delivered'")
    );
    // Not every build of PostgreSQL brings it along.
    if shop.is("count(*) = 1 from pg_available_extensions where name = 'amcheck'") {
        shop.run(
            "create extension amcheck;
             select bt_index_check(i.indexrelid, true)
               from pg_index i join pg_inherits h on h.inhrelid = i.indrelid
              where h.inhparent in ('webhook._delivery'::regclass, 'webhook._feed'::regclass, 'webhook._event'::regclass)",
        );
    }
}

#[test]
fn what_an_operator_added_is_obeyed_and_the_row_is_the_same() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    let deliver = |shop: &mut Outbox<'_>| {
        let event = shop.emit("order.paid", "acme", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        event
    };
    let mut events = vec![deliver(&mut shop)];
    shop.run(
        "create table told (tab text, event text);
         create function tell() returns trigger language plpgsql as
           $$ begin insert into public.told values (tg_argv[0], new.event_id); return null; end $$;
         create trigger tell after insert on webhook._delivery for each row execute function tell('delivery');
         create trigger tell after insert on webhook._feed for each row execute function tell('feed');
         alter table webhook._delivery enable always trigger tell;
         alter table webhook._feed enable always trigger tell",
    );
    let told = deliver(&mut shop);
    assert_eq!(
        shop.column(&format!(
            "select tab from told where event = '{told}' order by 1"
        )),
        ["delivery", "feed"]
    );
    shop.run(
        "drop trigger tell on webhook._delivery; drop trigger tell on webhook._feed;
         alter table webhook._delivery_default add constraint checked check (attempt_count > 0)",
    );
    let checked = deliver(&mut shop);
    shop.run(
        "alter table webhook._delivery_default drop constraint checked;
         alter table webhook._delivery add column more integer; alter table webhook._delivery drop column more",
    );
    let altered = deliver(&mut shop);
    events.extend([told, checked, altered]);
    let list = events.join("', '");
    assert!(shop.is(&format!(
        "count(*) = 4 and {SAME} = 1 from webhook._delivery d where event_id in ('{list}')"
    )));
    assert!(shop.is(&format!(
        "count(*) = 4 and count(distinct to_jsonb(f) - array['event_id', 'pos', 'published_at']) = 1
           from webhook._feed f where event_id in ('{list}')"
    )));
}

#[test]
fn rows_of_one_batch_go_into_the_partitions_of_their_days() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    shop.endpoint("acme", &receiver.url("/hook"));
    shop.run("alter system set webhook.enabled = off");
    shop.run("select pg_reload_conf()");
    shop.wait_for_worker("off");
    let events: Vec<String> = (0..20)
        .map(|_| shop.emit("order.paid", "acme", "{}"))
        .collect();
    // As if midnight had been between two of them.
    shop.run(
        "do $$ declare day regclass; begin
           for day in select inhrelid from pg_inherits where inhparent = 'webhook._delivery'::regclass and inhrelid <> 'webhook._delivery_default'::regclass loop
             execute format('alter table webhook._delivery detach partition %s', day);
           end loop;
         end $$;
         create table webhook.second (like webhook._delivery_default including all)",
    );
    shop.run(&format!(
        "alter table webhook._delivery attach partition webhook.second for values from ('{}') to ('evt_ZZZZZZZZZZZZZZZZZZZZZZZZZZ')",
        events[10]
    ));
    shop.run("alter system reset webhook.enabled");
    shop.run("select pg_reload_conf()");
    shop.wait_until("count(*) = 20 from webhook._delivery where state = 'delivered'");
    for (half, leaf) in [
        (&events[..10], "_delivery_default"),
        (&events[10..], "second"),
    ] {
        assert_eq!(
            shop.column(&format!("select event_id from webhook.{leaf} order by 1")),
            half
        );
    }
}

#[test]
fn a_row_that_is_there_already_stays_and_keeps_no_other_from_being_written() {
    let cluster = Cluster::start_usual();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("acme", &receiver.url("/hook"));
    shop.run("alter system set webhook.enabled = off");
    shop.run("select pg_reload_conf()");
    shop.wait_for_worker("off");
    let events: Vec<String> = (0..5)
        .map(|_| shop.emit("order.paid", "acme", "{}"))
        .collect();
    shop.run(&format!(
        "insert into webhook._delivery (event_id, endpoint_id, state, reason, attempt_count, series_start, revision)
         values ('{}', {}, 'skipped', 'by hand', 0, 0, 1)",
        events[2], endpoint.id
    ));
    shop.run("alter system reset webhook.enabled");
    shop.run("select pg_reload_conf()");
    shop.wait_until("count(*) = 5 from webhook._delivery");
    assert_eq!(
        shop.column("select state from webhook._delivery order by event_id"),
        [
            "delivered",
            "delivered",
            "skipped",
            "delivered",
            "delivered"
        ]
    );
    let next = shop.emit("order.paid", "acme", "{}");
    shop.wait_for_state(&next, &endpoint, "delivered");
}
