//! After the storm: what the tables say of a leader that has nothing more to do while something is paused, and how an
//! operator brings everything to its end.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use webhook_outbox_test::{
    invariants::{ALWAYS, SETTLED, violations},
    outbox::quoted,
    scene::Scene,
    wait::wait_until,
};

use crate::{CLOSING, PARTNERS, SUBSCRIPTIONS, TYPES, place_of};

/// A probe may have to wait for a minute.
const CATCH_UP: Duration = Duration::from_secs(240);

/// One of each kind is paused, one endpoint is closed, and all else is left alone: what the tables say then must be
/// as it says about a leader that has nothing more to do.
pub fn come_to_rest_while_paused(scene: &Scene) {
    let mut shop = scene.session();
    resume_all(scene);
    let paused = scene.endpoints[place_of("/beta/all")];
    let closing = scene.endpoints[place_of(CLOSING)];
    // What an endpoint misses while it is closed has no row.
    shop.wait_until("(select unread_events = 0 from webhook.stat_queue)");
    shop.run(&format!(
        "select webhook.pause('event_type', 'order.updated', 'to see it rest');
         select webhook.pause('endpoint', '{paused}', 'to see it rest');
         select webhook.disable_endpoint({closing}, 'the campaign is over');"
    ));
    // Some of it for those that are paused, and none for the one that closes.
    for (n, kind) in TYPES.iter().enumerate() {
        for partner in &PARTNERS[..3] {
            if SUBSCRIPTIONS[place_of(CLOSING)].wants(partner, kind) {
                continue;
            }
            let more = format!(
                ", correlation_id => 'rest-{partner}-{n}', subject_type => 'account', subject_id => 'rest'"
            );
            shop.emit_with(kind, partner, "{}", &more);
        }
    }
    let idle = format!(
        "(select in_flight = 0 and queued = 0 and open_batches = 0 from webhook.stat_worker)
         and (select unread_events = 0 from webhook.stat_queue)
         and not exists (select from webhook._due where hold = 0 and endpoint_id <> {paused})"
    );
    let end = Instant::now() + CATCH_UP;
    let mut unsettled = Vec::new();
    while Instant::now() < end {
        sleep(Duration::from_millis(100));
        if !shop.is(&idle) {
            continue;
        }
        unsettled = violations(&mut shop.sql, SETTLED);
        if unsettled.is_empty() {
            break;
        }
    }
    assert_eq!(
        unsettled,
        Vec::<String>::new(),
        "what does not come to rest"
    );
    assert!(shop.is(&idle), "the leader does not come to rest");
    assert_eq!(violations(&mut shop.sql, ALWAYS), Vec::<String>::new());
    webhook_outbox_test::say!(
        "at rest while something is paused: {:?}",
        shop.rows("select hold, count(*) from webhook._due group by 1 order by 1")
    );
}

fn resume_all(scene: &Scene) {
    let mut shop = scene.session();
    for row in shop.rows("select scope, nullif(target, '') from webhook.pauses") {
        let scope = quoted(row[0].as_deref().unwrap_or_default());
        let target = row[1].as_deref().map_or("null".to_owned(), quoted);
        shop.run(&format!(
            "select webhook.resume({scope}, {target}, 'it is over')"
        ));
    }
}

/// Resumes everything, has every dead letter and everything in quarantine tried again until there are none, and closes
/// what died at the endpoint that is closed.
pub fn settle_everything(scene: &Scene, closing: i64) {
    resume_all(scene);
    let mut shop = scene.session();
    let expected = scene.expected(&scene.events());
    let asked = "not exists (select from webhook.requests where state = 'pending')";
    wait_until("every delivery is settled", CATCH_UP, || {
        if !shop.is(asked) {
            return None;
        }
        let list = |ids: Vec<String>| format!("array['{}']::text[]", ids.join("','"));
        let dead = shop.column(&format!(
            "select delivery_id from webhook.dead_letters where endpoint_id <> {closing}
             union all
             select delivery_id from webhook.deliveries
              where state in ('pending', 'retrying') and 'quarantine' = any (held_by)
              limit 5000"
        ));
        if !dead.is_empty() {
            shop.run(&format!(
                "select webhook.retry({}, 'at the end')",
                list(dead)
            ));
            return None;
        }
        let closed = shop.column(&format!(
            "select delivery_id from webhook.dead_letters where endpoint_id = {closing} limit 5000"
        ));
        if !closed.is_empty() {
            shop.run(&format!(
                "select webhook.close({}, 'at the end')",
                list(closed)
            ));
            return None;
        }
        let open = shop.number(
            "select count(*) from webhook.deliveries where state in ('pending', 'retrying', 'dead')",
        );
        let all = shop.number("select count(*) from webhook.deliveries");
        (open == 0 && usize::try_from(all).is_ok_and(|all| all >= expected.len())).then_some(())
    });
}
