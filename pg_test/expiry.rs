//! Terms of endpoints: the owner is warned once, the endpoint expires in time, its queue is cancelled with the reason,
//! and a renewal puts it into service again.

use std::sync::LazyLock;

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn an_endpoint_expires_in_time_its_owner_is_warned_and_a_renewal_brings_it_back() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/in", vec![Answer::status(503), Answer::status(200)]);
    let witness = shop.endpoint_with(
        "lease",
        &receiver.url("/witness"),
        ", event_types => '{webhook.*}'",
    );
    let endpoint = expiring(&mut shop, "lease", &receiver.url("/in"));
    let waiting = shop.emit("order.paid", "lease", "{}");
    shop.wait_for_state(&waiting, &endpoint, "retrying");
    shop.wait_for_alert(&endpoint, "endpoint.expiring");
    assert_eq!(shop.state(&endpoint), "active");
    shop.wait_for_alert(&endpoint, "endpoint.expired");
    assert!(shop.is(&format!(
        "state = 'expired' and state_reason like 'its term ended at 2%' and state_changed_at >= expires_at
           from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    let cancelled = shop.wait_for_state(&waiting, &endpoint, "cancelled");
    assert!(
        cancelled
            .reason
            .unwrap_or_default()
            .starts_with("the endpoint is expired: its term ended at")
    );
    let missed = shop.emit("order.paid", "lease", "{}");
    shop.wait_until(&format!(
        "exists (select from webhook.events where event_id = '{missed}' and published_at is not null)"
    ));
    let refused = shop.refusal(&format!(
        "select webhook.verify_endpoint({}, 'challenge')",
        endpoint.id
    ));
    assert_eq!(refused.0, "55000", "{refused:?}");

    shop.run(&format!(
        "select webhook.renew_endpoint({}, clock_timestamp() + interval '1 year')",
        endpoint.id
    ));
    let event = shop.emit("order.paid", "lease", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert!(shop.delivery(&missed, &endpoint).is_none());
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.expiring", "endpoint.expired", "endpoint.missed"]
    );
    // Its partner's other endpoint hears of all three; it itself of none.
    wait_for("the lifecycle events arrive", PATIENCE, || {
        receiver.requests_for("/witness").len() == 3
    });
    let told: Vec<String> = receiver
        .requests_for("/witness")
        .iter()
        .map(|request| request.text().to_owned())
        .collect();
    for what in ["expiring", "expired", "missed"] {
        let kind = format!("\"webhook.endpoint.{what}\"");
        assert_eq!(
            told.iter().filter(|body| body.contains(&kind)).count(),
            1,
            "{told:?}"
        );
    }
    assert_eq!(shop.state(&witness), "active");
}

#[test]
fn a_renewal_in_time_keeps_the_endpoint_in_service() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = expiring(&mut shop, "renewer", &receiver.url("/in"));
    let end = shop.text(&format!(
        "select expires_at from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    ));
    shop.wait_for_alert(&endpoint, "endpoint.expiring");
    shop.run(&format!(
        "select webhook.renew_endpoint({}, 'infinity')",
        endpoint.id
    ));
    shop.wait_until(&format!(
        "clock_timestamp() > '{end}'::timestamptz + interval '1 s'"
    ));
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "renewer", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert!(shop.is(&format!(
        "state = 'active' and expires_at is null from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    assert_eq!(shop.alerts(&endpoint), ["endpoint.expiring"]);
}

#[test]
fn an_owner_is_warned_once_whatever_becomes_of_the_leader() {
    // A leader of its own: what others have on the wire is not to end with it.
    let mut shop = Outbox::create(&CLUSTER, "warned");
    let receiver = Receiver::http();
    // A day of a year is left: it is time to warn.
    let endpoint = shop.endpoint_with(
        "warned",
        &receiver.url("/in"),
        ", expires_at => clock_timestamp() + interval '365 days'",
    );
    age(&mut shop, &endpoint, "364 days");
    shop.restart_leader();
    shop.wait_for_alert(&endpoint, "endpoint.expiring");
    shop.restart_leader();
    let event = shop.emit("order.paid", "warned", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(shop.alerts(&endpoint), ["endpoint.expiring"]);
}

#[test]
fn an_endpoint_that_expired_while_no_leader_ran_is_closed_by_the_next_one() {
    let mut shop = Outbox::create(&CLUSTER, "overdue");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "overdue",
        &receiver.url("/in"),
        ", expires_at => clock_timestamp() + interval '1 day'",
    );
    age(&mut shop, &endpoint, "2 days");
    shop.restart_leader();
    shop.wait_for_alert(&endpoint, "endpoint.expired");
    assert_eq!(shop.state(&endpoint), "expired");
}

#[test]
fn a_disabled_endpoint_does_not_expire_and_cannot_be_enabled_after_its_term() {
    let mut shop = Outbox::create(&CLUSTER, "off");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with(
        "off",
        &receiver.url("/in"),
        ", expires_at => clock_timestamp() + interval '1 day'",
    );
    shop.run(&format!(
        "select webhook.disable_endpoint({}, 'a dispute')",
        endpoint.id
    ));
    age(&mut shop, &endpoint, "2 days");
    shop.restart_leader();
    let (state, message) =
        shop.refusal(&format!("select webhook.enable_endpoint({})", endpoint.id));
    assert_eq!(state, "55000", "{message}");
    shop.run(&format!(
        "select webhook.renew_endpoint({}, 'infinity')",
        endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "disabled");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    let event = shop.emit("order.paid", "off", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.disabled", "endpoint.missed"]
    );
}

/// An endpoint whose term ends in ten seconds, the last of a hundred minutes: its owner is warned at once, and there is
/// time to see that before the end.
fn expiring(shop: &mut Outbox<'_>, partner: &str, url: &str) -> Endpoint {
    shop.run("begin");
    let endpoint = shop.endpoint_with(
        partner,
        url,
        ", expires_at => clock_timestamp() + interval '10 s'",
    );
    shop.run(&format!(
        "update webhook._endpoint set renewed_at = renewed_at - interval '100 minutes' where endpoint_id = {};
         commit",
        endpoint.id
    ));
    endpoint
}

/// Makes an endpoint older than it is: nobody waits for days.
fn age(shop: &mut Outbox<'_>, endpoint: &Endpoint, by: &str) {
    shop.run(&format!(
        "update webhook._endpoint
            set renewed_at = renewed_at - interval '{by}', expires_at = expires_at - interval '{by}'
          where endpoint_id = {}",
        endpoint.id
    ));
}
