//! What follows from what comes back over the attempts of a delivery: when it is tried again and when it is given up.
//! What each single failure is called and what is kept of it stands in faults.rs.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Endpoint, Outbox},
    receiver::{Answer, ClosedPort, Receiver},
    tls::Authority,
};

/// Waits so long that nothing is tried a second time while a test looks at it.
static SLOW: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "100s,200s,300s")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// Goes through its schedule at once.
static QUICK: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "200ms,200ms")
        .setting("webhook.request_timeout", "4s")
        .setting("webhook.connect_timeout", "4s")
        .setting("webhook.client_error_attempts", "2")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

#[test]
fn redirect_is_recorded_and_not_followed() {
    let mut shop = Outbox::join(&SLOW, "shop");
    let receiver = Receiver::http();
    let elsewhere = Receiver::http();
    let mut endpoints = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        for (kind, location) in [
            ("away", elsewhere.url("/target")),
            ("here", "/target".to_owned()),
        ] {
            let path = format!("/{kind}/{status}");
            receiver.script(
                &path,
                vec![Answer::redirect(status, &location).body("moved")],
            );
            endpoints.push((status, shop.endpoint("redirects", &receiver.url(&path))));
        }
    }
    let event = shop.emit("order.paid", "redirects", "{}");
    for (status, endpoint) in &endpoints {
        let delivery = shop.wait_for_state(&event, endpoint, "dead");
        assert_eq!(delivery.status, Some(*status));
        assert_eq!(delivery.category.as_deref(), Some("redirect"));
    }
    assert_eq!(elsewhere.connections(), 0);
    assert_eq!(receiver.count(), endpoints.len());
    assert!(receiver.requests_for("/target").is_empty());
}

#[test]
fn jitter_adds_up_to_a_fifth_and_spreads_the_retries() {
    let mut shop = Outbox::join(&SLOW, "shop");
    let receiver = Receiver::http();
    receiver.script("/hook", vec![Answer::status(500)]);
    let endpoint = shop.endpoint("jitter", &receiver.url("/hook"));
    shop.run(
        "select webhook.emit('order.paid', 'jitter', to_jsonb(n)) from generate_series(1, 100) n",
    );
    shop.wait_until(&format!(
        "(select count(*) = 100 from webhook.attempts where endpoint_id = {})",
        endpoint.id
    ));
    let waits: Vec<f64> = shop
        .column(&format!(
            "select extract(epoch from next_attempt_at - started_at) from webhook.attempts where endpoint_id = {}",
            endpoint.id
        ))
        .iter()
        .map(|wait| wait.parse().expect("a number"))
        .collect();
    assert!(
        // A busy machine adds to it.
        waits.iter().all(|wait| (100.0..150.0).contains(wait)),
        "{waits:?}"
    );
    // The chance that a hundred even throws leave a fifth of the range empty is 2e-10.
    for part in 0..5 {
        let low = 100.0 + f64::from(part) * 4.0;
        assert!(
            waits.iter().any(|wait| (low..low + 4.2).contains(wait)),
            "{waits:?}"
        );
    }
}

/// Failures that shut the window of an endpoint that gets one request at a time, and the wait before its first probe.
const SHUTS: [&str; 3] = ["timeout", "connect_refused", "tls"];
const FIRST_PROBE: f64 = 1.0;

#[test]
fn each_failure_has_its_category_and_the_schedule_ends_in_a_dead_letter() {
    let mut shop = Outbox::join(&QUICK, "shop");
    let receiver = Receiver::http();
    let tls = Receiver::https(Authority::new().receiver(&["127.0.0.1"]));
    let closed = ClosedPort::take();
    receiver.script("/reset", vec![Answer::reset()]);
    receiver.script("/close", vec![Answer::close()]);
    receiver.script("/babble", vec![Answer::raw("hm\r\n\r\n")]);
    receiver.script("/hang", vec![Answer::hang()]);
    receiver.script("/500", vec![Answer::status(500)]);
    receiver.script(
        "/stalled",
        vec![Answer::status(200).slow_body("abc", 1, Duration::from_secs(60))],
    );
    receiver.script(
        "/short",
        vec![Answer::raw(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        )],
    );
    let table = [
        (receiver.url("/reset"), "protocol", "headers"),
        (receiver.url("/close"), "protocol", "headers"),
        (receiver.url("/babble"), "protocol", "headers"),
        (receiver.url("/short"), "protocol", "body"),
        (receiver.url("/hang"), "timeout", "headers"),
        (receiver.url("/stalled"), "timeout", "body"),
        (receiver.url("/500"), "server_error", ""),
        (
            format!("http://{}/", closed.address()),
            "connect_refused",
            "connect",
        ),
        (tls.url("/"), "tls", "tls"),
        // It waits for a request in plain text.
        (
            receiver.url("/").replace("http:", "https:"),
            "timeout",
            "tls",
        ),
    ];
    let endpoints: Vec<Endpoint> = table
        .iter()
        .map(|(url, ..)| shop.endpoint("failures", url))
        .collect();
    let event = shop.emit("order.paid", "failures", "{}");
    for ((url, category, phase), endpoint) in table.iter().zip(&endpoints) {
        let delivery = shop.wait_for_state(&event, endpoint, "dead");
        assert_eq!(delivery.category.as_deref(), Some(*category), "{url}");
        assert_eq!(
            delivery.reason.as_deref(),
            Some("no attempt is left in the schedule")
        );
        let attempts = shop.attempts(&event, endpoint);
        let outcomes: Vec<&str> = attempts.iter().map(|attempt| &*attempt.outcome).collect();
        if SHUTS.contains(category) {
            // The next attempt is a probe, which waits its own time and goes by the time of the schedule: that is
            // over by then.
            assert_eq!(outcomes, ["retry", "dead"], "{url}");
            let end = attempts[0].started_at + attempts[0].latency_ms.unwrap_or_default() / 1000.0;
            let wait = attempts[1].started_at - end;
            assert!(wait >= FIRST_PROBE, "{url}: probed after {wait} s");
        } else {
            assert_eq!(outcomes, ["retry", "retry", "dead"], "{url}");
        }
        assert_eq!(delivery.attempts, attempts.len(), "{url}");
        for attempt in &attempts {
            assert_eq!(attempt.category.as_deref(), Some(*category), "{url}");
            assert_eq!(
                attempt.phase.as_deref().unwrap_or_default(),
                *phase,
                "{url}"
            );
            assert!(
                attempt.detail.is_some() || attempt.status.is_some(),
                "{url}"
            );
            let latency = attempt.latency_ms.unwrap_or_default();
            assert_eq!(
                latency >= 3_950.0,
                *category == "timeout",
                "{url} took {latency} ms"
            );
        }
        // An attempt begins when it was planned, never before.
        for pair in attempts.windows(2) {
            assert!(
                pair[1].started_at >= pair[0].next_attempt_at.expect("a plan"),
                "{attempts:?}"
            );
        }
    }
    assert_eq!(tls.count(), 0);
    let dead =
        shop.number("select count(*) from webhook.list_deliveries('failures', state => 'dead')");
    assert_eq!(dead, i64::try_from(table.len()).expect("a count"));
}

#[test]
fn client_errors_get_as_many_attempts_as_the_setting_says() {
    let mut shop = Outbox::join(&QUICK, "shop");
    let receiver = Receiver::http();
    // What they ask for does not delay it: Retry-After means something else here, or nothing.
    let hour = |answer: Answer| answer.header("Retry-After", "3600");
    receiver.script("/404", vec![hour(Answer::status(404))]);
    receiver.script("/302", vec![hour(Answer::redirect(302, "/404"))]);
    receiver.script(
        "/mended",
        vec![hour(Answer::status(401)), Answer::status(200)],
    );
    let dead = ["/404", "/302"].map(|path| shop.endpoint("refusals", &receiver.url(path)));
    let mended = shop.endpoint("refusals", &receiver.url("/mended"));
    let event = shop.emit("order.paid", "refusals", "{}");
    for endpoint in &dead {
        assert_eq!(shop.wait_for_state(&event, endpoint, "dead").attempts, 2);
    }
    assert_eq!(
        shop.wait_for_state(&event, &mended, "delivered").attempts,
        2
    );
}
