//! What got past the boundary of other webhook senders, by their public reports, tried on this one from outside: real
//! DNS, real sockets, real registrations. `boundary.rs` has the general rules; here is one test per report.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::LazyLock,
    time::Duration,
};

use webhook_outbox_test::{
    cluster::Cluster,
    dns::{DnsServer, Kind, Reply},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
};

#[path = "reports/lists.rs"]
mod lists;

/// A server with the boundary as it is by default, but for the ports, because receivers of tests have any.
static STRICT: LazyLock<(DnsServer, Cluster)> = LazyLock::new(|| {
    let dns = DnsServer::start();
    let cluster = Cluster::plan()
        .without("webhook.allow_http")
        .without("webhook.allow_networks")
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.max_endpoints_per_partner", "1000")
        .name_server(dns.address())
        .start();
    Outbox::create(&cluster, "shop");
    (dns, cluster)
});

/// A server that may reach 127.0.0.1 and nothing else of the loopback network.
static OPEN: LazyLock<(DnsServer, Cluster)> = LazyLock::new(|| {
    let dns = DnsServer::start();
    let cluster = Cluster::plan()
        .setting("webhook.allow_networks", "127.0.0.1/32")
        .setting(
            "webhook.retry_schedule",
            "100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms,100ms",
        )
        .setting("webhook.max_endpoints_per_partner", "1000")
        .name_server(dns.address())
        .start();
    Outbox::create(&cluster, "shop");
    (dns, cluster)
});

const GOOD: &str = "127.0.0.1";
const BAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// gitea CVE-2026-22874, ech0 GHSA-r2x7-427f-rq69, formbricks 7877 and 8095, and answers of more addresses than anybody
/// looks at.
#[test]
fn names_of_internal_services_in_any_encoding_are_refused_at_registration_and_at_delivery() {
    let (dns, cluster) = &*STRICT;
    let mut shop = Outbox::join(cluster, "shop");
    let trap = Receiver::http();
    let port = trap.address().port();
    let mut many = vec!["93.184.215.14"; 17];
    many.push(GOOD);
    let mut many6 = vec!["2606:2800:21f:cb07:6820:80da:af6b:8b2c"; 8];
    many6.push("::1");
    let table: [(&str, &[&str]); 11] = [
        ("alibaba.partner.net", &["100.100.100.200"]),
        ("azure.partner.net", &["168.63.129.16"]),
        ("nat64.partner.net", &["64:ff9b::a9fe:a9fe"]),
        ("teredo.partner.net", &["2001::5601:5601"]),
        ("6to4.partner.net", &["2002:a9fe:a9fe::1"]),
        ("10.0.0.1.nip.io", &["10.0.0.1"]),
        ("169.254.169.254.sslip.io", &["169.254.169.254"]),
        ("two-families.partner.net", &["93.184.215.14", "fd00::1"]),
        ("second.partner.net", &["8.8.8.8", GOOD]),
        ("many.partner.net", &many),
        ("many6.partner.net", &many6),
    ];
    let mut endpoints = Vec::new();
    for (name, addresses) in table {
        let url = format!("https://{name}:{port}/hook");
        // It does not resolve while it is registered, so that the delivery must notice.
        endpoints.push((name, shop.endpoint("services", &url)));
        dns.addresses(name, &parsed(addresses));
        let (code, message) = shop.refusal(&format!(
            "select webhook.create_endpoint('services', '{url}', verify => 'none')"
        ));
        assert_eq!(code, "22023", "{name}");
        assert!(message.contains("leads to an address"), "{name}: {message}");
    }
    let event = shop.emit("order.paid", "services", "{}");
    for (name, endpoint) in &endpoints {
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("blocked"), "{name}");
        // A test request is refused in the same way.
        let rows = shop.rows(&format!(
            "select event_id from webhook.send_test({})",
            endpoint.id
        ));
        let test = rows[0][0].clone().expect("an event");
        let delivery = shop.wait_for_attempts(&test, endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("blocked"), "{name}");
    }
    assert_eq!(trap.connections(), 0);
}

/// PortOS 409 and AutoResearchClaw 269, with a time to live of 0: each look-up is answered otherwise, and each of the
/// thousand names is tried by itself.
#[test]
fn names_that_flip_between_look_ups_lead_to_the_good_address_or_nowhere() {
    const NAMES: usize = 1000;
    let (dns, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let port = receiver.address().port();
    let trap = Receiver::at(SocketAddr::from((BAD, port)), None);
    let addresses = |list: &[&str]| Reply::addresses(parsed(list));
    let bad = BAD.to_string();
    let mut endpoints = Vec::new();
    for number in 0..NAMES {
        let host = format!("flip{number}.partner.net");
        endpoints.push(shop.endpoint("flips", &format!("http://{host}:{port}/hook")));
        let replies = match number % 4 {
            0 => vec![addresses(&[GOOD]), addresses(&[&bad])],
            1 => vec![addresses(&[&bad]), addresses(&[GOOD])],
            2 => vec![
                addresses(&[GOOD, &bad]),
                addresses(&[&bad, GOOD]),
                addresses(&[GOOD]),
            ],
            _ => vec![addresses(&[&bad]), addresses(&[&bad]), addresses(&[GOOD])],
        };
        dns.answer(&host, Kind::A, replies);
        let six = if number % 2 == 0 {
            vec![]
        } else {
            vec!["fd00::1"]
        };
        dns.answer(&host, Kind::Aaaa, vec![addresses(&six), addresses(&[])]);
    }
    let event = shop.emit("order.paid", "flips", "{}");
    for endpoint in &endpoints {
        shop.wait_for_attempts(&event, endpoint, 1);
    }
    let rows = shop.rows(&format!(
        "select coalesce(error_category, status::text), count(*)
           from webhook.attempts where event_id = '{event}' group by 1 order by 1"
    ));
    let categories: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(
        categories,
        [Some("200".to_owned()), Some("blocked".to_owned())]
    );
    assert_eq!(trap.connections(), 0);
    // Every one of them comes to rest at the good address, but those that ended at the bad one.
    for (number, endpoint) in endpoints.iter().enumerate().filter(|(n, _)| n % 4 != 0) {
        let delivery = shop.wait_for_state(&event, endpoint, "delivered");
        assert!(delivery.attempts > 1, "{number}");
    }
    assert_eq!(trap.connections(), 0);
    // Nothing was spared a look-up: each attempt of a name has its own questions.
    let attempts = shop.number(&format!(
        "select count(*) from webhook.attempts where event_id = '{event}'"
    ));
    let asked = dns
        .questions()
        .iter()
        .filter(|question| question.kind == 1 && question.name.starts_with("flip"))
        .count();
    assert!(attempts > 1000 && asked >= 1000, "{attempts}, {asked}");
}

/// gogs CVE-2022-1285, formbricks 7877, Apicurio 9655: a good first URL that points inside.
#[test]
fn redirects_of_any_kind_are_recorded_and_not_followed_by_deliveries_nor_by_tests() {
    let (_, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let inside = Receiver::http();
    for status in 300..=308 {
        for (kind, location) in [
            (
                "metadata",
                "http://169.254.169.254/latest/meta-data/".to_owned(),
            ),
            ("inside", inside.url("/secret")),
            ("relative", "/elsewhere".to_owned()),
        ] {
            let path = format!("/{status}/{kind}");
            receiver.script(&path, vec![Answer::redirect(status, &location)]);
            let partner = format!("redirect-{status}-{kind}");
            let endpoint = shop.endpoint(&partner, &receiver.url(&path));
            let event = shop.emit("order.paid", &partner, "{}");
            let rows = shop.rows(&format!(
                "select event_id from webhook.send_test({})",
                endpoint.id
            ));
            let test = rows[0][0].clone().expect("an event");
            for event in [&event, &test] {
                let delivery = shop.wait_for_state(event, &endpoint, "dead");
                assert_eq!(delivery.category.as_deref(), Some("redirect"), "{path}");
                assert_eq!(delivery.status, Some(status), "{path}");
                assert_eq!(delivery.attempts, 1, "{path}");
            }
            assert_eq!(receiver.requests_for(&path).len(), 2, "{path}");
        }
    }
    assert_eq!(inside.connections(), 0);
    assert!(receiver.requests_for("/elsewhere").is_empty());
}

/// plane GHSA-6485-m23r-fx8q and documenso 2901: the URL is changed after it was checked, by the function and behind
/// its back.
#[test]
fn url_that_is_changed_later_is_checked_again_and_a_row_changed_by_hand_is_blocked_when_it_is_sent()
{
    let (_, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let trap = Receiver::at(SocketAddr::from((BAD, receiver.address().port())), None);
    let port = trap.address().port();
    let urls = [
        format!("http://{BAD}:{port}/hook"),
        format!("http://[::ffff:7f00:2]:{port}/hook"),
        format!("http://[::ffff:{BAD}]:{port}/hook"),
        format!("http://[::{BAD}]:{port}/hook"),
        format!("http://0x7f000002:{port}/hook"),
        format!("http://127.2:{port}/hook"),
        format!("http://localhost:{port}/hook"),
        "file:///etc/passwd".to_owned(),
        format!("http://user:sesame@{BAD}:{port}/hook"),
        format!("http://{GOOD}:{port}/\r\nx-injected: 1"),
        format!("http://{GOOD}:{port}/ HTTP/1.1\nx-injected: 1\n\n"),
        String::new(),
    ];
    let mut endpoints = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let partner = format!("changed{number}");
        let endpoint = shop.endpoint(&partner, &receiver.url("/hook"));
        let literal = webhook_outbox_test::outbox::quoted(url);
        for verb in [
            format!("select webhook.update_endpoint({}, {literal})", endpoint.id),
            format!("select webhook.create_endpoint('{partner}', {literal}, verify => 'none')"),
        ] {
            let (code, message) = shop.refusal(&verb);
            assert!(code == "22023" || code == "22004", "{verb}: {code}");
            assert!(!message.contains("sesame"), "{message}");
        }
        shop.run(&format!(
            "update webhook._endpoint
                set url = {literal}, generation = generation + 1, changed_xid = pg_current_xact_id()
              where endpoint_id = {}",
            endpoint.id
        ));
        endpoints.push((url, partner, endpoint));
    }
    for (url, partner, endpoint) in &endpoints {
        let event = shop.emit("order.paid", partner, "{}");
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("blocked"), "{url:?}");
        let detail = shop.attempts(&event, endpoint).remove(0).detail;
        assert!(!detail.unwrap_or_default().contains("sesame"), "{url:?}");
    }
    assert_eq!((trap.connections(), receiver.connections()), (0, 0));
}

/// netbox 22746, OpenWA 403: a value of a header that starts another one.
#[test]
fn nothing_that_a_caller_gives_can_start_another_header() {
    let (_, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let endpoint = shop.endpoint("headers", &receiver.url("/hook"));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for evil in [r"\r\nx-injected: 1", r"\nx-injected: 1", r"\r", r"\t", "é"] {
        for argument in [
            format!("traceparent => E'{parent}{evil}'"),
            format!("traceparent => E'{evil}{parent}'"),
            format!("idempotency_key => E'a{evil}', traceparent => E'{evil}'"),
        ] {
            let (code, _) = shop.refusal(&format!(
                "select webhook.emit('order.paid', 'headers', '{{}}', {argument})"
            ));
            assert_eq!(code, "22023", "{argument}");
        }
        for call in [
            format!("select webhook.emit(E'order.paid{evil}', 'headers', '{{}}')"),
            format!("select webhook.emit('order.paid', E'headers{evil}', '{{}}')"),
            format!(
                "select webhook.create_endpoint(E'headers{evil}', '{}')",
                receiver.url("/")
            ),
        ] {
            assert_eq!(shop.refusal(&call).0, "22023", "{call}");
        }
        // A row that was changed by hand is not what was emitted.
        let event = shop.emit_with(
            "order.paid",
            "held",
            "{}",
            &format!(", traceparent => '{parent}'"),
        );
        shop.run(&format!(
            "update webhook._event set traceparent = E'{parent}{evil}' where event_id = '{event}'"
        ));
    }
    // Whatever may stand in a body stays there, escaped.
    let event = shop.emit_with(
        "order.paid",
        "headers",
        r#"{"a": "\r\nx-injected: 1\r\n\r\n"}"#,
        &format!(r", subject_type => 'order', subject_id => E'1\r\nx-injected: 1', traceparent => '{parent}'"),
    );
    shop.wait_for_state(&event, &endpoint, "delivered");
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].header("x-injected").is_none());
    assert_eq!(requests[0].header("traceparent"), Some(parent));
}

/// outpost 974, Rocket.Chat 38944: an answer that is all body.
#[test]
fn large_body_of_an_error_is_cut_and_its_attempt_is_kept() {
    let (_, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![
            Answer::status(500).body("x".repeat(10 << 20)),
            Answer::status(200).endless_body(1 << 16, Duration::ZERO),
        ],
    );
    let endpoint = shop.endpoint("large", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "large", "{}");
    let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
    let attempts = shop.attempts(&event, &endpoint);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].status, Some(500));
    assert_eq!(attempts[0].category.as_deref(), Some("server_error"));
    for number in [1, 2] {
        let size = shop.number(&format!(
            "select length(webhook.read_excerpt('{}', {number}))",
            delivery.id
        ));
        assert_eq!(size, 4096);
    }
    receiver.wait_for(2, PATIENCE);
    assert_eq!(receiver.count(), 2);
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses
        .iter()
        .map(|address| address.parse().expect("an address"))
        .collect()
}

/// The endpoint's first attempt at a new event.
fn first_category(shop: &mut Outbox, partner: &str, endpoint: &Endpoint) -> Option<String> {
    let event = shop.emit("order.paid", partner, "{}");
    shop.wait_for_attempts(&event, endpoint, 1).category
}
