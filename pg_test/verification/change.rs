//! What becomes of a proof when things change: another URL, an operator who vouches, a detour, an insistent caller, a
//! proof that never comes.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Gate, Receiver, Request},
    wait::wait_for,
};

use crate::{CLUSTER, echo, is_challenge, tried, wait_for_state, wait_for_tries};

/// Here a proof is due within seconds.
static HASTY: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.verification_timeout", "10s")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn a_new_url_waits_for_its_proof_while_the_old_one_is_served() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/old", echo);
    receiver.behave("/new", move |request| {
        if is_challenge(request) && !of_receiver.load(Ordering::SeqCst) {
            return Answer::status(200);
        }
        echo(request)
    });
    let endpoint = shop.endpoint_with("mover", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    let first = shop.emit("order.paid", "mover", "{}");
    shop.wait_for_state(&first, &endpoint, "delivered");
    assert_eq!(shop.state(&endpoint), "active");
    assert!(shop.is(&format!(
        "url = '{}' and pending_host = '{}' from webhook.endpoints where endpoint_id = {}",
        receiver.url("/old"),
        receiver.address(),
        endpoint.id
    )));
    // What else is changed meanwhile does not touch the proof under way.
    shop.run(&format!(
        "select webhook.update_endpoint({}, description => 'moving')",
        endpoint.id
    ));
    willing.store(true, Ordering::SeqCst);
    shop.have_done(&format!("verify_endpoint({})", endpoint.id));
    shop.wait_until(&format!(
        "(select url = '{}' and pending_host is null and state = 'active' and description = 'moving'
            from webhook.endpoints where endpoint_id = {})",
        receiver.url("/new"),
        endpoint.id
    ));
    wait_for("the leader serves the new URL", PATIENCE, || {
        let event = shop.emit("order.paid", "mover", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        receiver
            .requests_for("/new")
            .iter()
            .any(|request| request.header("webhook-id") == Some(&*event))
    });
    assert!(
        receiver
            .requests_for("/old")
            .iter()
            .any(|request| request.header("webhook-id") == Some(&*first))
    );
}

#[test]
fn an_operator_may_vouch_for_a_url_and_is_named() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.script("/in", vec![Answer::status(200)]);
    let endpoint = shop.endpoint_with("vouched", &receiver.url("/in"), ", verify => 'challenge'");
    let event = shop.emit("order.paid", "vouched", "{}");
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    shop.run(&format!(
        "select webhook.verify_endpoint({}, 'none', 'they showed it on the telephone')",
        endpoint.id
    ));
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert!(shop.is(&format!(
        "(method, overridden_by, result) = ('none', session_user, 'overridden')
           from webhook.verifications where endpoint_id = {} and result <> 'failed'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "(actor, reason) = (session_user, 'they showed it on the telephone') and after ->> 'state' = 'active'
           from webhook.audit_log where object_id = '{}' and verb = 'verify_endpoint'",
        endpoint.id
    )));
    assert!(shop.is(&format!(
        "(verify, verified_by) = ('challenge', 'none') from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    // The proof that was under way is void; the next URL needs one again.
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/next")
    ));
    assert!(shop.is(&format!(
        "pending_host is not null from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn disabling_and_enabling_is_no_way_around_the_proof() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("detour", &receiver.url("/in"), ", verify => 'challenge'");
    shop.run(&format!(
        "select webhook.disable_endpoint({id}, 'for now'); select webhook.enable_endpoint({id})",
        id = endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "unverified");
    shop.emit("order.paid", "detour", "{}");
    shop.wait_for_deliveries(&endpoint, "pending", 1);
    assert!(receiver.requests().iter().all(is_challenge));
}

#[test]
fn a_stranger_gets_no_more_than_three_challenges_a_minute() {
    // A leader of its own: what others have on the wire is not to end with it.
    let mut shop = Outbox::create(&CLUSTER, "insistent");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("insistent", &receiver.url("/in"), ", verify => 'challenge'");
    let mut replies = Vec::new();
    for tries in 1..=5 {
        wait_for_tries(&mut shop, &endpoint, "failed", tries.min(3));
        replies.push(
            shop.have_done(&format!("verify_endpoint({})", endpoint.id))
                .result,
        );
    }
    assert!(
        replies[4].contains("three a minute is the limit"),
        "{replies:?}"
    );
    // Neither does another URL of the same host, or a new life of the leader, get around it.
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/other")
    ));
    shop.restart_leader();
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(receiver.count(), 3);
}

#[test]
fn an_endpoint_in_service_can_be_checked_again_by_a_later_life_of_the_leader() {
    let mut shop = Outbox::create(&CLUSTER, "again");
    let receiver = Receiver::http();
    receiver.behave("/in", echo);
    let endpoint = shop.endpoint_with("again", &receiver.url("/in"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.restart_leader();
    for tries in 2..=3 {
        shop.have_done(&format!("verify_endpoint({})", endpoint.id));
        wait_for_tries(&mut shop, &endpoint, "proven", tries);
    }
    assert!(shop.is(&format!(
        "verified_at = (select max(started_at) from webhook.verifications v where v.endpoint_id = e.endpoint_id)
           from webhook.endpoints e where endpoint_id = {}",
        endpoint.id
    )));
    // One that does not answer is told in the evidence; nobody demanded a proof, so nothing closes.
    receiver.script("/in", vec![Answer::status(200)]);
    shop.run(&format!("select webhook.verify_endpoint({})", endpoint.id));
    assert_eq!(shop.state(&endpoint), "active");
}

#[test]
fn a_proof_of_a_new_url_does_not_enable_what_answered_410_at_the_old_one() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let willing = Arc::new(AtomicBool::new(false));
    let of_receiver = Arc::clone(&willing);
    receiver.behave("/old", |request| {
        if is_challenge(request) {
            return echo(request);
        }
        Answer::status(410)
    });
    receiver.behave("/new", move |request| {
        if is_challenge(request) && !of_receiver.load(Ordering::SeqCst) {
            return Answer::status(200);
        }
        echo(request)
    });
    let endpoint = shop.endpoint_with("gone", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    wait_for_tries(&mut shop, &endpoint, "failed", 1);
    shop.emit("order.paid", "gone", "{}");
    wait_for_state(&mut shop, &endpoint, "disabled");
    willing.store(true, Ordering::SeqCst);
    wait_for_tries(&mut shop, &endpoint, "proven", 2);
    shop.wait_until(&format!(
        "(select url = '{}' from webhook.endpoints where endpoint_id = {})",
        receiver.url("/new"),
        endpoint.id
    ));
    assert_eq!(shop.state(&endpoint), "disabled");
    shop.run(&format!("select webhook.enable_endpoint({})", endpoint.id));
    assert_eq!(shop.state(&endpoint), "active");
    wait_for("the leader serves the new URL", PATIENCE, || {
        let event = shop.emit("order.paid", "gone", "{}");
        shop.wait_for_state(&event, &endpoint, "delivered");
        true
    });
}

#[test]
fn an_unconfirmed_endpoint_closes_and_can_be_proven_later() {
    let mut shop = Outbox::join(&HASTY, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint_with("late", &receiver.url("/in"), ", verify => 'challenge'");
    shop.emit("order.paid", "late", "{}");
    wait_for_state(&mut shop, &endpoint, "expired");
    shop.wait_for_deliveries(&endpoint, "cancelled", 1);
    assert!(shop.is(&format!(
        "state_reason = 'control of its URL was not proven in time' from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
    assert_eq!(
        shop.alerts(&endpoint),
        ["endpoint.expiring", "endpoint.expired"]
    );
    assert!(receiver.requests().iter().all(is_challenge));
    receiver.behave("/in", echo);
    shop.run(&format!("select webhook.verify_endpoint({})", endpoint.id));
    wait_for_state(&mut shop, &endpoint, "active");
    let event = shop.emit("order.paid", "late", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.wait_for_alert(&endpoint, "endpoint.missed");
}

#[test]
fn another_signature_and_other_headers_are_proven_anew_while_the_endpoint_stays_in_service() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    receiver.behave("/in", echo);
    type Seen = fn(&Request) -> bool;
    let cases: [(&str, &str, Seen); 3] = [
        (
            "headers",
            "update_endpoint(?, headers => '{\"x-gate\": \"open\"}')",
            |r| r.header("x-gate") == Some("open"),
        ),
        (
            "profile",
            "update_endpoint(?, signature => 'github')",
            |r| r.header("x-hub-signature-256").is_some(),
        ),
        ("kind", "rotate_secret(?, signature => 'v1a')", |r| {
            r.header("webhook-signature")
                .is_some_and(|signature| signature.starts_with("v1a,"))
        }),
    ];
    for (partner, change, seen) in cases {
        let endpoint = shop.endpoint_with(partner, &receiver.url("/in"), ", verify => 'challenge'");
        wait_for_tries(&mut shop, &endpoint, "proven", 1);
        wait_for_state(&mut shop, &endpoint, "active");
        let asked = |shop: &mut Outbox| {
            shop.number(&format!(
                "select proof_generation from webhook._endpoint where endpoint_id = {}",
                endpoint.id
            ))
        };
        let call = |change: &str| {
            format!(
                "select webhook.{}",
                change.replace('?', &endpoint.id.to_string())
            )
        };
        // What changes nothing of this, or nothing at all, asks for nothing.
        let before = asked(&mut shop);
        for harmless in [
            "update_endpoint(?, signature => 'v1', headers => '{}')",
            "update_endpoint(?, description => 'the same')",
            "rotate_secret(?, signature => 'v1')",
            "rotate_secret(?, '0')",
        ] {
            shop.run(&call(harmless));
        }
        assert_eq!(asked(&mut shop), before, "{partner}");
        receiver.forget();
        shop.run(&call(change));
        assert_eq!(asked(&mut shop), before + 1, "{partner}");
        assert_eq!(shop.state(&endpoint), "active", "{partner}");
        wait_for_tries(&mut shop, &endpoint, "proven", 2);
        let challenges = receiver.requests();
        assert!(
            challenges.len() == 1 && is_challenge(&challenges[0]) && seen(&challenges[0]),
            "{partner}: {challenges:?}"
        );
        // Given again, it is no change.
        shop.run(&call(change));
        assert_eq!(asked(&mut shop), before + 1, "{partner}");
    }
    // Where nobody was asked, nobody is.
    let vouched = shop.endpoint("nobody", &receiver.url("/vouched"));
    shop.run(&format!(
        "select webhook.update_endpoint({id}, signature => 'github', headers => '{{\"x-gate\": \"open\"}}');
         select webhook.rotate_secret({id}, signature => 'v1a')",
        id = vouched.id
    ));
    assert!(shop.is(&format!(
        "proof_asked_at is null from webhook._endpoint where endpoint_id = {}",
        vouched.id
    )));
}

#[test]
fn an_endpoint_whose_new_headers_nobody_confirms_closes() {
    let mut shop = Outbox::join(&HASTY, "shop");
    let receiver = Receiver::http();
    receiver.behave("/in", |request| match request.header("x-gate") {
        None => echo(request),
        Some(_) => Answer::status(200),
    });
    let endpoint = shop.endpoint_with("shut", &receiver.url("/in"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, headers => '{{\"x-gate\": \"open\"}}')",
        endpoint.id
    ));
    let event = shop.emit("order.paid", "shut", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    wait_for_state(&mut shop, &endpoint, "expired");
    assert!(shop.is(&format!(
        "state_reason = 'control of its URL was not proven in time' from webhook.endpoints where endpoint_id = {}",
        endpoint.id
    )));
}

#[test]
fn a_new_url_that_nobody_confirms_is_dropped_and_the_old_one_goes_on() {
    let mut shop = Outbox::join(&HASTY, "shop");
    let receiver = Receiver::http();
    receiver.behave("/old", echo);
    let endpoint = shop.endpoint_with("stays", &receiver.url("/old"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.run(&format!(
        "select webhook.update_endpoint({}, url => '{}')",
        endpoint.id,
        receiver.url("/new")
    ));
    shop.wait_for_alert(&endpoint, "endpoint.unconfirmed");
    assert!(shop.is(&format!(
        "(url, state) = ('{}', 'active') and pending_host is null from webhook.endpoints where endpoint_id = {}",
        receiver.url("/old"),
        endpoint.id
    )));
    let event = shop.emit("order.paid", "stays", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn an_open_transaction_on_the_endpoint_delays_its_proof_and_nothing_else() {
    let mut shop = Outbox::join(&CLUSTER, "shop");
    let receiver = Receiver::http();
    let gate = Gate::shut();
    let (of_receiver, mut second) = (gate.clone(), false);
    receiver.behave("/in", move |request| {
        // The second answer comes when the endpoint is locked already.
        if std::mem::replace(&mut second, true) {
            return echo(request).held(&of_receiver);
        }
        echo(request)
    });
    let other = shop.endpoint("other.one", &receiver.url("/other"));
    let endpoint = shop.endpoint_with("locked", &receiver.url("/in"), ", verify => 'challenge'");
    wait_for_state(&mut shop, &endpoint, "active");
    shop.have_done(&format!("verify_endpoint({})", endpoint.id));
    wait_for("the second challenge arrives", PATIENCE, || {
        receiver.requests_for("/in").len() == 2
    });
    let mut admin = shop.another();
    admin.run(&format!(
        "begin; select webhook.update_endpoint({}, description => 'thinking')",
        endpoint.id
    ));
    gate.open();
    wait_for("the second challenge is answered", PATIENCE, || {
        receiver.in_flight() == 0
    });
    std::thread::sleep(Duration::from_secs(2));
    let event = shop.emit("order.paid", "other.one", "{}");
    shop.wait_for_state(&event, &other, "delivered");
    assert!(!tried(&mut shop, &endpoint, "proven", 2));
    admin.run("commit");
    wait_for_tries(&mut shop, &endpoint, "proven", 2);
}
