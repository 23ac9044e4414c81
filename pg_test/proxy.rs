//! Requests through the operator's proxy: all of them, to vetted addresses only, and what the proxy does wrong is
//! charged to nobody. The last test puts the database into a segment that can reach the proxy and nothing else.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use webhook_outbox_test::{
    cluster::{Cluster, Plan},
    dns::DnsServer,
    outbox::{Outbox, PATIENCE},
    proxy::{Manner, Proxy},
    receiver::Receiver,
    segment::{GATEWAY, INSIDE, Outside},
    tls::Authority,
    wait::wait_for,
};

/// Tries again soon.
fn quick() -> Plan {
    Cluster::plan()
        .setting(
            "webhook.retry_schedule",
            "300ms,300ms,300ms,300ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s",
        )
        .setting("webhook.connect_timeout", "3s")
        .setting("webhook.poll_interval", "100ms")
}

#[test]
fn every_request_goes_through_the_proxy_from_the_reload_on_and_directly_after_the_next() {
    let proxy = Proxy::start();
    let mut cluster = quick().start();
    let authority = Authority::new();
    let file = cluster.folder().join("authority.pem");
    authority.write_pem(&file);
    let receivers = [
        Receiver::http(),
        Receiver::https(authority.receiver(&["127.0.0.1"])),
    ];
    let endpoints = {
        let mut shop = Outbox::create(&cluster, "shop");
        receivers
            .each_ref()
            .map(|receiver| shop.endpoint("a", &receiver.url("/hook")))
    };
    cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
    let emit = |cluster: &Cluster| {
        let mut shop = Outbox::join(cluster, "shop");
        // What was set counts for the first attempt.
        shop.wait_for_a_round();
        let event = shop.emit("order.paid", "a", "{}");
        for endpoint in &endpoints {
            let delivery = shop.wait_for_state(&event, endpoint, "delivered");
            assert_eq!(delivery.attempts, 1);
        }
    };
    emit(&cluster);
    assert!(proxy.heads().is_empty());
    // Connections of the direct way are open, and not used any more.
    cluster.reload(&[("webhook.proxy", &proxy.url())]);
    emit(&cluster);
    emit(&cluster);
    let mut heads = proxy.heads();
    heads.sort();
    let mut expected = receivers
        .each_ref()
        .map(|receiver| {
            let target = receiver.address();
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
        })
        .to_vec();
    expected.sort();
    assert_eq!(heads, expected);
    // And back.
    cluster.reload(&[("webhook.proxy", "")]);
    emit(&cluster);
    assert_eq!(proxy.heads().len(), 2);
    for receiver in &receivers {
        assert_eq!((receiver.count(), receiver.connections()), (4, 3));
    }
    // A test request takes the same way.
    cluster.reload(&[("webhook.proxy", &proxy.url())]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    shop.run(&format!("select webhook.send_test({})", endpoints[0].id));
    receivers[0].wait_for(5, PATIENCE);
    assert_eq!(proxy.heads().len(), 3);
}

#[test]
fn what_the_proxy_does_wrong_is_our_own_fault_and_not_charged_to_the_endpoint() {
    let proxy = Proxy::start();
    let mut cluster = quick()
        .setting("webhook.proxy", &proxy.url())
        .setting("webhook.connect_timeout", "1500ms")
        .start();
    let receiver = Receiver::http();
    let mut shop = Outbox::create(&cluster, "shop");
    let endpoint = shop.endpoint("a", &receiver.url("/hook"));
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    let say = |text: &str| Manner::Say(text.into());
    let table = [
        ("closed", Manner::Close, "closed"),
        (
            "403",
            say("HTTP/1.1 403 evil\r\ncontent-length: 4\r\n\r\nevil"),
            "(403)",
        ),
        (
            "407",
            say("HTTP/1.1 407 evil\r\ncontent-length: 0\r\n\r\n"),
            "(407)",
        ),
        (
            "500",
            say("HTTP/1.1 500 evil\r\ncontent-length: 0\r\n\r\n"),
            "(500)",
        ),
        (
            "502",
            say("HTTP/1.1 502 evil\r\ncontent-length: 0\r\n\r\n"),
            "(502)",
        ),
        ("garbage", say("SSH-2.0-evil\r\n\r\n"), "HTTP"),
        ("late", say(""), "in time"),
    ];
    for (name, manner, says) in table {
        // A connection through the proxy is kept: another endpoint has none.
        let receiver = Receiver::http();
        let endpoint = shop.endpoint(name, &receiver.url("/hook"));
        proxy.behave(manner);
        let event = shop.emit("order.paid", name, "{}");
        shop.wait_for_attempts(&event, &endpoint, 2);
        let attempts = shop.attempts(&event, &endpoint);
        for attempt in &attempts {
            assert_eq!(attempt.category.as_deref(), Some("internal"), "{name}");
            assert_eq!(attempt.phase.as_deref(), Some("connect"), "{name}");
            assert_eq!(attempt.status, None, "{name}");
            let detail = attempt.detail.clone().unwrap_or_default();
            assert!(
                detail.contains(says) && !detail.contains("evil"),
                "{name}: {detail}"
            );
        }
        assert_eq!(receiver.connections(), 0, "{name}");
        proxy.behave(Manner::Tunnel);
        let delivery = shop.wait_for_state(&event, &endpoint, "delivered");
        assert!(delivery.attempts > 2, "{name}");
        // Nothing of it is held against the endpoint.
        shop.wait_until(&format!(
            "(select health = 'healthy' and failures = 0 and adaptive_window >= 1 and failing_since is null
                     and last_failure_at is null
                from webhook.endpoint_health where endpoint_id = {})",
            endpoint.id
        ));
        assert!(shop.is(&format!(
            "(select failed = 0 and delivered = 1 from webhook.stat_endpoint where endpoint_id = {})",
            endpoint.id
        )));
    }
    assert!(shop.is("not exists (select from webhook.alerts where kind like 'endpoint%')"));
    // And one that is not there.
    drop(shop);
    let gone = {
        let gone = Proxy::start();
        gone.url()
    };
    cluster.reload(&[("webhook.proxy", &gone)]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "a", "{}");
    let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
    assert_eq!(delivery.category.as_deref(), Some("internal"));
    drop(shop);
    cluster.reload(&[("webhook.proxy", &proxy.url())]);
    Outbox::join(&cluster, "shop").wait_for_state(&event, &endpoint, "delivered");
}

#[test]
fn boundary_holds_with_a_proxy_and_the_proxy_is_exempt_from_it() {
    let dns = DnsServer::start();
    // An address that may not be reached otherwise.
    let proxy = Proxy::at(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0)));
    let cluster = quick()
        .setting("webhook.proxy", &proxy.url())
        .setting("webhook.allow_networks", "127.0.0.1/32")
        .setting("webhook.retry_schedule", "1h")
        .name_server(dns.address())
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    let receiver = Receiver::http();
    let table: &[(&str, &[&str])] = &[
        ("private", &["10.0.0.7"]),
        ("mixed", &["127.0.0.1", "192.168.1.1"]),
        ("metadata", &["169.254.169.254"]),
        ("proxy", &["127.0.0.2"]),
    ];
    let good = shop.endpoint("a", &receiver.url_at("good.partner.net", "/hook"));
    dns.addresses(
        "good.partner.net",
        &["127.0.0.1".parse().expect("an address")],
    );
    let mut inside = Vec::new();
    for (name, addresses) in table {
        let host = format!("{name}.partner.net");
        inside.push((name, shop.endpoint("a", &receiver.url_at(&host, "/hook"))));
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect();
        dns.addresses(&host, &addresses);
    }
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &good, "delivered");
    for (name, endpoint) in &inside {
        let delivery = shop.wait_for_attempts(&event, endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("blocked"), "{name}");
    }
    assert_eq!((receiver.count(), proxy.heads().len()), (1, 1));
    let host = format!("good.partner.net:{}", receiver.address().port());
    assert_eq!(receiver.requests()[0].header("host"), Some(&*host));
}

#[test]
fn credentials_come_from_their_file_and_show_nowhere() {
    const PASSWORD: &str = "open sesame";
    let proxy = Proxy::start();
    // Basic, of Aladdin:open sesame (RFC 7617, 2).
    let line = "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    proxy.behave(Manner::TunnelFor(line.to_owned()));
    let mut cluster = quick().setting("webhook.proxy", &proxy.url()).start();
    let receiver = Receiver::http();
    let endpoint = Outbox::create(&cluster, "shop").endpoint("a", &receiver.url("/hook"));
    let file = cluster.folder().join("credentials");
    write(&file, &format!("Aladdin:{PASSWORD}\n"));
    let event = {
        let mut shop = Outbox::join(&cluster, "shop");
        let event = shop.emit("order.paid", "a", "{}");
        let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
        assert_eq!(delivery.category.as_deref(), Some("internal"));
        event
    };
    let name = file.display().to_string();
    cluster.reload(&[("webhook.proxy_credentials_file", &name)]);
    Outbox::join(&cluster, "shop").wait_for_state(&event, &endpoint, "delivered");
    assert!(
        receiver.requests()[0]
            .header("proxy-authorization")
            .is_none()
    );

    // A file that cannot be used leaves the old credentials in force.
    write(&file, &format!("{PASSWORD}\nand more\n"));
    cluster.reload(&[("webhook.poll_interval", "900ms")]);
    let mut shop = Outbox::join(&cluster, "shop");
    wait_for("the leader complains of the file", PATIENCE, || {
        cluster.log().contains("proxy credentials are one line")
    });
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    drop(shop);

    // Credentials in the setting itself are refused, without showing them.
    let wrong = format!("http://Aladdin:{}@127.0.0.1:1", PASSWORD.replace(' ', ""));
    cluster.reload(&[("webhook.proxy", &wrong)]);
    wait_for("the setting is refused", PATIENCE, || {
        cluster
            .log()
            .contains("invalid value for parameter \"webhook.proxy\"")
    });
    let mut shop = Outbox::join(&cluster, "shop");
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    shop.run("set log_min_error_statement = panic");
    let (code, message) = shop.refusal(&format!("alter system set webhook.proxy = '{wrong}'"));
    assert_eq!(code, "22023");
    assert!(
        message.contains("webhook.proxy_credentials_file"),
        "{message}"
    );
    for text in [message, cluster.log()] {
        assert!(
            !text.contains("sesame") && !text.contains("QWxhZGRpb"),
            "{text}"
        );
    }
    let views = shop.rows(
        "select detail from webhook.attempts union all select last_error from webhook.stat_worker",
    );
    assert!(!format!("{views:?}").contains("sesame"));
}

#[test]
fn database_in_an_isolated_segment_reaches_receivers_through_the_proxy_and_nothing_else() {
    const RECEIVER: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
    let outside = Outside::leave(&[RECEIVER]);
    let authority = Authority::new();
    let tls = authority.receiver(&["hooks.partner.net"]);
    let (dns, proxy, receiver, database) = outside.run(move || {
        (
            DnsServer::at(GATEWAY),
            Proxy::at(SocketAddr::from((GATEWAY, 3128))),
            Receiver::at(SocketAddr::from((RECEIVER, 443)), Some(tls)),
            // What a second look-up would find.
            Receiver::at(SocketAddr::from((GATEWAY, 443)), None),
        )
    });
    dns.addresses("hooks.partner.net", &[RECEIVER.into()]);
    dns.addresses("inside.partner.net", &[GATEWAY.into()]);
    // The boundary as it is by default.
    let mut cluster = quick()
        .without("webhook.allow_http")
        .without("webhook.allow_networks")
        .without("webhook.allowed_ports")
        .setting("webhook.proxy", &proxy.url())
        .name_server(GATEWAY)
        .start();
    let file = cluster.folder().join("authority.pem");
    authority.write_pem(&file);
    let (endpoint, inside) = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", "https://hooks.partner.net/hook");
        // It is of no use to say so at once: the name moves after its registration.
        dns.addresses("moving.partner.net", &[RECEIVER.into()]);
        let inside = shop.endpoint("b", "https://moving.partner.net/hook");
        dns.addresses("moving.partner.net", &[GATEWAY.into()]);
        (endpoint, inside)
    };
    cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "a", "{}");
    shop.wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(
        proxy.heads(),
        ["CONNECT 93.184.215.14:443 HTTP/1.1\r\nHost: 93.184.215.14:443\r\n\r\n"]
    );
    assert_eq!(
        receiver.requests()[0].header("host"),
        Some("hooks.partner.net")
    );
    let event = shop.emit("order.paid", "b", "{}");
    let delivery = shop.wait_for_attempts(&event, &inside, 1);
    assert_eq!(delivery.category.as_deref(), Some("blocked"));
    assert_eq!(database.connections(), 0);

    // The server's own address, which here is known: a network does not open it, its own line does, and the port
    // of the database server stays shut.
    drop(shop);
    let own = |cluster: &Cluster, port: &str| {
        Outbox::join(cluster, "shop")
            .sql
            .batch_execute(&format!(
                "select webhook.create_endpoint('own', 'https://{INSIDE}:{port}/', verify => 'none')"
            ))
            .is_ok()
    };
    let neighbour = |cluster: &Cluster| {
        Outbox::join(cluster, "shop")
            .sql
            .batch_execute(&format!(
                "select webhook.create_endpoint('own', 'https://{GATEWAY}/', verify => 'none')"
            ))
            .is_ok()
    };
    assert!(!own(&cluster, "443") && !neighbour(&cluster));
    cluster.reload(&[
        ("webhook.allow_networks", "10.0.0.0/8"),
        ("webhook.allowed_ports", "443,5432"),
    ]);
    assert!(!own(&cluster, "443") && neighbour(&cluster));
    cluster.reload(&[("webhook.allow_networks", &format!("10.0.0.0/8,{INSIDE}"))]);
    assert!(own(&cluster, "443") && !own(&cluster, "5432"));

    // Without the proxy there is no way out.
    cluster.reload(&[("webhook.proxy", ""), ("webhook.allow_networks", "")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    let event = shop.emit("order.paid", "a", "{}");
    let delivery = shop.wait_for_attempts(&event, &endpoint, 1);
    assert_eq!(delivery.category.as_deref(), Some("connect_failed"));
    drop(shop);
    cluster.reload(&[("webhook.proxy", &proxy.url())]);
    Outbox::join(&cluster, "shop").wait_for_state(&event, &endpoint, "delivered");
    assert_eq!(receiver.count(), 2);
}

/// Writes a file that the server can read.
fn write(path: &PathBuf, text: &str) {
    fs::write(path, text).expect("a file for the server");
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("its permissions");
}
