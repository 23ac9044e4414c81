//! What follows from what comes back: delivered, tried again, or given up, and the evidence that is kept of it.

use std::{
    net::TcpListener,
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use webhook_outbox_test::{
    cluster::Cluster,
    outbox::{Attempt, Endpoint, Outbox},
    receiver::{Answer, Receiver},
    tls::Authority,
};

/// Waits so long that nothing is tried a second time while a test looks at it.
static SLOW: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "100s,200s,300s")
        .setting("webhook.retry_after_max", "3600")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// Goes through its schedule at once.
static QUICK: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "200ms,200ms")
        .setting("webhook.request_timeout", "1s")
        .setting("webhook.client_error_attempts", "2")
        .start();
    Outbox::create(&cluster, "shop");
    cluster
});

/// The first wait of the slow schedule with its jitter, and what a busy machine may add to it.
const FIRST_WAIT: (f64, f64) = (100.0, 121.0);

#[test]
fn each_status_has_its_verdict() {
    let table: &[(&[u16], &str, &str)] = &[
        (&[200, 201, 202, 204, 206, 226, 299], "delivered", ""),
        (
            &[300, 301, 302, 303, 304, 307, 308, 399],
            "dead",
            "redirect",
        ),
        (
            &[400, 401, 403, 404, 405, 409, 413, 422, 451, 499],
            "dead",
            "client_error",
        ),
        (&[408], "retrying", "request_timeout"),
        (&[425], "retrying", "too_early"),
        (&[429], "retrying", "rate_limited"),
        (&[500, 501, 502, 503, 504, 599], "retrying", "server_error"),
        (&[101, 600, 799, 999], "retrying", "protocol"),
    ];
    let mut shop = Outbox::join(&SLOW, "shop");
    let receiver = Receiver::http();
    let mut endpoints = Vec::new();
    for (statuses, state, category) in table {
        for status in *statuses {
            let path = format!("/{status}");
            receiver.script(&path, vec![Answer::status(*status)]);
            let endpoint = shop.endpoint("statuses", &receiver.url(&path));
            endpoints.push((*status, endpoint, *state, *category));
        }
    }
    let event = shop.emit("order.paid", "statuses", "{}");
    for (status, endpoint, state, category) in endpoints {
        let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
        assert_eq!(delivery.state, state, "{status}");
        assert_eq!(delivery.category.unwrap_or_default(), category, "{status}");
        // A status that is none of HTTP's is not shown as one.
        assert!(
            delivery.status == Some(status) || category == "protocol",
            "{status}"
        );
        let attempts = shop.attempts(&event, &endpoint);
        assert_eq!(attempts.len(), 1, "{status}");
        assert_eq!(
            attempts[0].next_attempt_at, delivery.next_attempt_at,
            "{status}"
        );
        let outcome = if state == "retrying" { "retry" } else { state };
        assert_eq!(attempts[0].outcome, outcome, "{status}");
        match state {
            "retrying" => assert_wait(&attempts[0], FIRST_WAIT, &status.to_string()),
            _ => assert_eq!(delivery.next_attempt_at, None, "{status}"),
        }
        if state == "dead" {
            let reason = delivery.reason.unwrap_or_default();
            assert_eq!(reason, "the receiver refuses the request", "{status}");
        }
        assert_eq!(
            receiver.requests_for(&format!("/{status}")).len(),
            1,
            "{status}"
        );
    }
}

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
fn retry_after_is_honoured_where_it_has_a_meaning_and_never_shortens_the_wait() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let date = |offset: i64| {
        let at = i64::try_from(now.as_secs()).expect("a time") + offset;
        format!("{at}")
    };
    let mut shop = Outbox::join(&SLOW, "shop");
    let mut http_date = |offset: i64| {
        shop.text(&format!(
            "select to_char(to_timestamp({}) at time zone 'UTC', 'Dy, DD Mon YYYY HH24:MI:SS') || ' GMT'",
            date(offset)
        ))
    };
    let (soon, past) = (http_date(500), http_date(-500));
    let table: &[(u16, &str, (f64, f64))] = &[
        (429, "200", (200.0, 202.0)),
        (503, "200", (200.0, 202.0)),
        (500, "200", (200.0, 202.0)),
        (408, "200", (200.0, 202.0)),
        (425, "200", (200.0, 202.0)),
        (429, "5", FIRST_WAIT),
        (429, "0", FIRST_WAIT),
        // By the receiver's clock: this test's start plus 500 s.
        (429, &soon, (440.0, 502.0)),
        (429, &past, FIRST_WAIT),
        (429, "soon", FIRST_WAIT),
        (429, "-5", FIRST_WAIT),
        (429, "1e3", FIRST_WAIT),
        (429, "100000", (3600.0, 3602.0)),
        (429, "99999999999999999999999", (3600.0, 3602.0)),
    ];
    let receiver = Receiver::http();
    let mut endpoints = Vec::new();
    for (number, (status, value, bounds)) in table.iter().enumerate() {
        let path = format!("/{number}");
        receiver.script(
            &path,
            vec![Answer::status(*status).header("Retry-After", value)],
        );
        let endpoint = shop.endpoint("retry-after", &receiver.url(&path));
        endpoints.push((format!("{status} {value}"), endpoint, *bounds));
    }
    receiver.script(
        "/no",
        vec![Answer::status(404).header("Retry-After", "200")],
    );
    let no = shop.endpoint("retry-after", &receiver.url("/no"));
    let event = shop.emit("order.paid", "retry-after", "{}");
    for (what, endpoint, bounds) in endpoints {
        shop.wait_for_state(&event, &endpoint, "retrying");
        assert_wait(&shop.attempts(&event, &endpoint)[0], bounds, &what);
    }
    shop.wait_for_state(&event, &no, "dead");
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
        waits.iter().all(|wait| (100.0..121.0).contains(wait)),
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

#[test]
fn each_failure_has_its_category_and_the_schedule_ends_in_a_dead_letter() {
    let mut shop = Outbox::join(&QUICK, "shop");
    let receiver = Receiver::http();
    let tls = Receiver::https(Authority::new().receiver(&["127.0.0.1"]));
    let closed = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address");
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
        (format!("http://{closed}/"), "connect_refused", "connect"),
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
        // A failure that shuts the endpoint's window makes the next attempt a probe: it follows the schedule by
        // time, which may be over after the second.
        let shuts = ["timeout", "connect_refused", "tls"].contains(category);
        let most = if shuts { 2..=3 } else { 3..=3 };
        assert!(
            most.contains(&delivery.attempts),
            "{url}: {}",
            delivery.attempts
        );
        assert_eq!(delivery.category.as_deref(), Some(*category), "{url}");
        assert_eq!(
            delivery.reason.as_deref(),
            Some("no attempt is left in the schedule")
        );
        let attempts = shop.attempts(&event, endpoint);
        let outcomes: Vec<&str> = attempts.iter().map(|attempt| &*attempt.outcome).collect();
        let (last, before) = outcomes.split_last().expect("attempts");
        assert_eq!(*last, "dead", "{url}");
        assert!(before.iter().all(|outcome| *outcome == "retry"), "{url}");
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
                latency >= 950.0,
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
    receiver.script("/404", vec![Answer::status(404)]);
    receiver.script("/302", vec![Answer::redirect(302, "/404")]);
    receiver.script("/mended", vec![Answer::status(401), Answer::status(200)]);
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

#[test]
fn an_excerpt_of_the_answer_is_kept_whatever_its_bytes_are() {
    let mut shop = Outbox::join(&SLOW, "shop");
    let receiver = Receiver::http();
    let odd = b"<p>a\0b\xff\xfe\x1b[31m \xc3\xa9\r\n\xf0\x9f\x90".to_vec();
    let long = "0123456789abcde\n".repeat(10_000);
    let forever = Answer::status(500).endless_body(1000, Duration::ZERO);
    receiver.script("/odd", vec![Answer::status(500).body(odd)]);
    receiver.script("/long", vec![Answer::status(400).body(long.clone())]);
    receiver.script("/forever", vec![forever]);
    receiver.script("/empty", vec![Answer::status(500)]);
    let mut of = |path: &str| shop.endpoint("excerpts", &receiver.url(path));
    let endpoints = [of("/odd"), of("/long"), of("/forever"), of("/empty")];
    let event = shop.emit("order.paid", "excerpts", "{}");
    let excerpts = endpoints.map(|endpoint| {
        let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
        assert!(delivery.status.is_some(), "{delivery:?}");
        shop.text(&format!(
            "select webhook.read_excerpt('{}', 1)",
            delivery.id
        ))
    });
    assert_eq!(
        excerpts[0],
        "<p>a\u{fffd}b\u{fffd}\u{fffd}?[31m é?\n\u{fffd}"
    );
    assert_eq!(excerpts[1], long[..4096]);
    assert_eq!(excerpts[2], "x".repeat(4096));
    assert_eq!(excerpts[3], "");
}

/// Whether the next attempt was planned so many seconds after the end of this one.
#[track_caller]
fn assert_wait(attempt: &Attempt, (low, high): (f64, f64), what: &str) {
    let end = attempt.started_at + attempt.latency_ms.unwrap_or_default() / 1000.0;
    let wait = attempt.next_attempt_at.expect("a plan") - end;
    assert!(
        (low..high).contains(&wait),
        "{what}: {wait} s instead of {low} to {high}"
    );
}
