//! What the server may be made to connect to: nothing inside, whatever a name resolves to, wherever a receiver
//! points and whatever the server's environment says. Needs a mount namespace and a name server of its own; where
//! those cannot be had, it fails.

use std::{net::IpAddr, sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    dns::{DnsServer, Kind, Record, Reply},
    outbox::{Endpoint, Outbox, PATIENCE},
    receiver::{Answer, Receiver},
    tls::Authority,
    wait::wait_for,
};

/// A server with the boundary as it is by default, but for the ports, because receivers of tests have any.
static STRICT: LazyLock<(DnsServer, Cluster)> = LazyLock::new(|| {
    let dns = DnsServer::start();
    let cluster = Cluster::plan()
        .without("webhook.allow_http")
        .without("webhook.allow_networks")
        .setting("webhook.retry_schedule", "1h")
        .name_server(dns.address())
        .start();
    Outbox::create(&cluster, "shop");
    (dns, cluster)
});

/// A server that may reach the loopback network.
static OPEN: LazyLock<(DnsServer, Cluster)> = LazyLock::new(|| {
    let dns = DnsServer::start();
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", &["1s"; 50].join(","))
        .setting("webhook.connect_timeout", "3s")
        .name_server(dns.address())
        .start();
    Outbox::create(&cluster, "shop");
    (dns, cluster)
});

const PUBLIC: &str = "93.184.215.14";

#[test]
fn a_name_that_leads_inside_is_blocked_and_no_socket_is_opened() {
    let (dns, cluster) = &*STRICT;
    let mut shop = Outbox::join(cluster, "shop");
    // Not answered: an attempt to connect would be seen by the receivers.
    let v4 = Receiver::http();
    let v6 = Receiver::on("::1".parse().expect("an address"), None);
    let table: &[(&str, &[&str])] = &[
        ("loopback", &["127.0.0.1"]),
        ("among-public", &[PUBLIC, "127.0.0.1"]),
        ("public-last", &["10.0.0.7", PUBLIC]),
        ("private", &["192.168.1.1"]),
        ("metadata", &["169.254.169.254"]),
        ("shared", &["100.64.0.1"]),
        ("unspecified", &["0.0.0.0"]),
        ("loopback6", &["::1"]),
        ("mapped", &["::ffff:127.0.0.1"]),
        ("unique-local", &["fd00:ec2::254"]),
        ("link-local", &["fe80::1"]),
        ("nat64", &["64:ff9b::7f00:1"]),
        (
            "mixed",
            &[PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::1"],
        ),
    ];
    let mut endpoints = Vec::new();
    for (name, addresses) in table {
        let host = format!("{name}.partner.net");
        // It does not resolve while it is registered, so that only the delivery can notice.
        let url = format!("https://{host}:{}/hook", v4.address().port());
        endpoints.push((name, shop.endpoint("inside", &url)));
        dns.addresses(&host, &parsed(addresses));
    }
    let url = format!("https://alias.partner.net:{}/hook", v6.address().port());
    endpoints.push((&"alias", shop.endpoint("inside", &url)));
    let alias = vec![
        Record::Alias("real.partner.net".into()),
        Record::Address([127, 0, 0, 1].into()),
    ];
    dns.answer(
        "alias.partner.net",
        Kind::A,
        vec![Reply::Records(60, alias)],
    );

    let event = shop.emit("order.paid", "inside", "{}");
    for (name, endpoint) in &endpoints {
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        assert_eq!(delivery.state, "retrying", "{name}");
        assert_eq!(delivery.category.as_deref(), Some("blocked"), "{name}");
        assert_eq!(delivery.status, None, "{name}");
        let attempt = shop.attempts(&event, endpoint).remove(0);
        assert_eq!(attempt.phase.as_deref(), Some("resolve"), "{name}");
        // At the first one: it says that the URL is wrong, not that the receiver is ill.
        shop.wait_for_alert(endpoint, "endpoint.blocked");
        assert!(
            shop.is(&format!(
                "(severity, partner_id) = ('critical', 'inside') and detail !~ '[0-9]'
                   from webhook.alerts where endpoint_id = {}",
                endpoint.id
            )),
            "{name}"
        );
    }
    let next = shop.emit("order.paid", "inside", "{}");
    for (name, endpoint) in &endpoints {
        shop.wait_for_attempts(&next, endpoint, 1);
        assert_eq!(shop.alerts(endpoint), ["endpoint.blocked"], "{name}");
    }
    assert_eq!((v4.connections(), v6.connections()), (0, 0));
}

#[test]
fn a_name_that_leads_inside_cannot_be_registered_and_nobody_is_told_where_it_leads() {
    let (dns, cluster) = &*STRICT;
    let mut shop = Outbox::join(cluster, "shop");
    dns.addresses("registered.partner.net", &parsed(&["10.11.12.13"]));
    dns.addresses("fine.partner.net", &parsed(&[PUBLIC]));
    let create = |host: &str| {
        format!(
            "select webhook.create_endpoint('registered', 'https://{host}/hook', verify => 'none')"
        )
    };
    let (code, message) = shop.refusal(&create("registered.partner.net"));
    assert_eq!(code, "22023");
    assert!(!message.contains("10.11"), "{message}");
    shop.run(&create("fine.partner.net"));
    for host in [
        "127.0.0.1",
        "[::1]",
        "10.0.0.1",
        "localhost",
        "169.254.169.254",
        "0x7f.1",
        "2130706433",
    ] {
        assert_eq!(shop.refusal(&create(host)).0, "22023", "{host}");
    }
    let update = "from webhook.endpoints where partner_id = 'registered'";
    for url in [
        "https://registered.partner.net/hook",
        "http://fine.partner.net/hook",
    ] {
        let (code, _) = shop.refusal(&format!(
            "select webhook.update_endpoint(endpoint_id, '{url}') {update}"
        ));
        assert_eq!(code, "22023", "{url}");
    }
}

#[test]
fn plain_http_is_refused_unless_it_is_allowed() {
    let (_, cluster) = &*STRICT;
    let mut shop = Outbox::join(cluster, "shop");
    let (code, message) = shop.refusal(
        "select webhook.create_endpoint('plain', 'http://hooks.partner.net/', verify => 'none')",
    );
    assert_eq!(code, "22023");
    assert!(message.contains("https"), "{message}");
}

#[test]
fn a_name_without_an_address_is_tried_again_until_it_has_one() {
    let (dns, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    dns.answer("broken.partner.net", Kind::A, vec![Reply::Failure]);
    dns.answer("broken.partner.net", Kind::Aaaa, vec![Reply::Failure]);
    dns.answer("silent.partner.net", Kind::A, vec![Reply::Silence]);
    dns.answer(
        "empty.partner.net",
        Kind::Aaaa,
        vec![Reply::Records(0, Vec::new())],
    );
    let names = ["missing", "broken", "silent", "empty"].map(|name| format!("{name}.partner.net"));
    let endpoints: Vec<Endpoint> = names
        .iter()
        .map(|name| shop.endpoint("unresolved", &receiver.url_at(name, "/hook")))
        .collect();
    let event = shop.emit("order.paid", "unresolved", "{}");
    for (name, endpoint) in names.iter().zip(&endpoints) {
        shop.wait_for_attempts(&event, endpoint, 1);
        let attempt = shop.attempts(&event, endpoint).remove(0);
        assert_eq!(attempt.category.as_deref(), Some("dns"), "{name}");
        assert_eq!(attempt.phase.as_deref(), Some("resolve"), "{name}");
        dns.addresses(name, &parsed(&["127.0.0.1"]));
    }
    for endpoint in &endpoints {
        shop.wait_for_state(&event, endpoint, "delivered");
    }
    assert_eq!(receiver.count(), 4);
    // Names are looked up as they are, without the machine's search list.
    assert!(
        dns.questions()
            .iter()
            .all(|question| question.name.ends_with("partner.net"))
    );
}

#[test]
fn a_name_that_moves_inside_after_its_registration_is_blocked() {
    let (dns, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let good = Reply::addresses(["127.0.0.1".parse::<IpAddr>().expect("an address")]);
    let bad = Reply::addresses(["10.0.0.1".parse::<IpAddr>().expect("an address")]);
    dns.answer(
        "moving.partner.net",
        Kind::A,
        vec![good.clone(), bad.clone()],
    );
    let endpoint = shop.endpoint("moving", &receiver.url_at("moving.partner.net", "/hook"));
    let event = shop.emit("order.paid", "moving", "{}");
    let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
    assert_eq!(delivery.category.as_deref(), Some("blocked"));
    assert_eq!(receiver.connections(), 0);
    // It comes back: the retry finds it.
    dns.answer("moving.partner.net", Kind::A, vec![good]);
    shop.wait_for_state(&event, &endpoint, "delivered");
    // And goes again: what was vetted is not trusted for long.
    dns.answer("moving.partner.net", Kind::A, vec![bad]);
    wait_for("the name is looked up again and blocked", PATIENCE, || {
        let event = shop.emit("order.paid", "moving", "{}");
        // Idle connections are closed by the receiver, as any would after a while.
        receiver.script("/hook", vec![Answer::status(200).and_close()]);
        let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
        delivery.category.as_deref() == Some("blocked")
    });
}

#[test]
fn a_redirect_inside_is_neither_followed_nor_looked_up() {
    let (dns, cluster) = &*OPEN;
    let mut shop = Outbox::join(cluster, "shop");
    let receiver = Receiver::http();
    let inside = Receiver::http();
    let targets = [
        inside.url("/latest/meta-data/"),
        inside.url_at("secret.partner.net", "/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ];
    dns.addresses("secret.partner.net", &parsed(&["127.0.0.1"]));
    let mut endpoints = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        let path = format!("/{number}");
        receiver.script(&path, vec![Answer::redirect(307, target)]);
        endpoints.push(shop.endpoint("redirected", &receiver.url(&path)));
    }
    let event = shop.emit("order.paid", "redirected", "{}");
    for endpoint in &endpoints {
        let delivery = shop.wait_for_state(&event, endpoint, "dead");
        assert_eq!(
            (delivery.status, delivery.category.as_deref()),
            (Some(307), Some("redirect"))
        );
    }
    assert_eq!((inside.connections(), receiver.count()), (0, targets.len()));
    assert!(
        dns.questions()
            .iter()
            .all(|question| question.name != "secret.partner.net")
    );
}

#[test]
fn proxy_variables_of_the_server_change_nothing() {
    let proxy = Receiver::http();
    let mut plan = Cluster::plan();
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        let value = format!("http://{}", proxy.address());
        plan = plan
            .environment(name, &value)
            .environment(&name.to_uppercase(), &value);
    }
    let mut cluster = plan
        .environment("NO_PROXY", "")
        .environment("no_proxy", "")
        .start();
    let authority = Authority::new();
    let file = cluster.folder().join("authority.pem");
    authority.write_pem(&file);
    Outbox::create(&cluster, "shop");
    cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
    let mut shop = Outbox::join(&cluster, "shop");
    let receivers = [
        Receiver::http(),
        Receiver::https(authority.receiver(&["127.0.0.1"])),
    ];
    let endpoints: Vec<Endpoint> = receivers
        .iter()
        .map(|receiver| shop.endpoint("a", &receiver.url("/hook")))
        .collect();
    let event = shop.emit("order.paid", "a", "{}");
    for endpoint in &endpoints {
        shop.wait_for_state(&event, endpoint, "delivered");
    }
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn tls_trusts_the_named_authorities_and_only_for_the_right_name() {
    let dns = DnsServer::start();
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.poll_interval", "100ms")
        .without("webhook.allow_http")
        .name_server(dns.address())
        .start();
    let authority = Authority::new();
    let file = cluster.folder().join("authority.pem");
    authority.write_pem(&file);
    let good = Receiver::https(authority.receiver(&["good.partner.net"]));
    let wrong = Receiver::https(authority.receiver(&["other.partner.net", "127.0.0.1"]));
    let expired = Receiver::https(authority.expired_receiver(&["expired.partner.net"]));
    let unknown = Receiver::https(Authority::new().receiver(&["unknown.partner.net"]));
    let receivers = [
        ("good", &good),
        ("wrong", &wrong),
        ("expired", &expired),
        ("unknown", &unknown),
    ];
    let endpoints: Vec<Endpoint> = {
        let mut shop = Outbox::create(&cluster, "shop");
        let register = |(name, receiver): &(&str, &Receiver)| {
            let host = format!("{name}.partner.net");
            dns.addresses(&host, &parsed(&["127.0.0.1"]));
            shop.endpoint("a", &receiver.url_at(&host, "/hook"))
        };
        receivers.iter().map(register).collect()
    };
    cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
    let mut shop = Outbox::join(&cluster, "shop");
    // There is one try only.
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoints[0], "delivered");
    let host = format!("good.partner.net:{}", good.address().port());
    assert_eq!(good.requests()[0].header("host"), Some(&*host));
    for ((name, receiver), endpoint) in receivers.iter().zip(&endpoints).skip(1) {
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("tls"), "{name}");
        assert_eq!(receiver.count(), 0, "{name}");
        let detail = shop
            .attempts(&event, endpoint)
            .remove(0)
            .detail
            .unwrap_or_default();
        let expected = match *name {
            "wrong" => "name",
            "expired" => "expired",
            // Both authorities have the same name, so that only the signature tells them apart.
            _ => "not valid",
        };
        assert!(detail.contains(expected), "{name}: {detail}");
    }
    // Without the file the authority is nobody.
    drop(shop);
    cluster.reload(&[("webhook.ca_file", "")]);
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for(
        "the leader trusts the authority no longer",
        PATIENCE,
        || {
            let event = shop.emit("order.paid", "a", "{}");
            let delivery = shop.wait_for_attempts(&event, &endpoints[0], 1);
            std::thread::sleep(Duration::from_millis(50));
            delivery.category.as_deref() == Some("tls")
        },
    );
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses
        .iter()
        .map(|address| address.parse().expect("an address"))
        .collect()
}
