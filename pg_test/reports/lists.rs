//! The operator's lists: deny wins over allow, names are one whatever their spelling, a reload counts at once.

use webhook_outbox_test::{
    cluster::Cluster,
    dns::DnsServer,
    outbox::{Outbox, quoted},
    receiver::Receiver,
};

use crate::{first_category, parsed};

/// smokescreen CVE-2022-24825 and CVE-2022-29188.
#[test]
fn a_denied_name_is_denied_in_every_spelling_at_registration_and_at_delivery() {
    let dns = DnsServer::start();
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .name_server(dns.address())
        .start();
    let receiver = Receiver::http();
    let port = receiver.address().port();
    let names = [
        "blocked.partner.net",
        "sub.blocked.partner.net",
        "free.partner.net",
    ];
    let endpoints = {
        let mut shop = Outbox::create(&cluster, "shop");
        names.map(|name| {
            dns.addresses(name, &parsed(&["127.0.0.1"]));
            shop.endpoint(name, &receiver.url_at(name, "/hook"))
        })
    };
    cluster.reload(&[
        ("webhook.denied_domains", "BLOCKED.Partner.NET."),
        ("webhook.allowed_domains", "partner.net"),
    ]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_a_round();
    for (host, says) in [
        ("blocked.partner.net", "denied domain"),
        ("Blocked.Partner.NET.", "denied domain"),
        ("a.b.BLOCKED.partner.net", "denied domain"),
        ("ⓑlocked.partner.net", "denied domain"),
        ("blocked。partner．net", "denied domain"),
        ("[blocked.partner.net]", "does not parse"),
        ("blocked%2epartner.net", "percent-encoded"),
        ("blocked.partner.net.evil.net", "not in an allowed domain"),
        ("127.0.0.1", "not in an allowed domain"),
    ] {
        let url = quoted(&format!("http://{host}:{port}/hook"));
        let (code, message) = shop.refusal(&format!(
            "select webhook.create_endpoint('spellings', {url}, verify => 'none')"
        ));
        assert_eq!(code, "22023", "{host}");
        assert!(message.contains(says), "{host}: {message}");
    }
    for ((name, endpoint), expected) in
        names
            .iter()
            .zip(&endpoints)
            .zip([Some("blocked"), Some("blocked"), None])
    {
        let category = first_category(&mut shop, name, endpoint);
        assert_eq!(category.as_deref(), expected, "{name}");
    }
    assert_eq!(receiver.count(), 1);
    let (code, _) = shop.refusal("alter system set webhook.denied_domains = '*.partner.net'");
    assert_eq!(code, "22023");
}

/// smokescreen 236.
#[test]
fn deny_wins_over_allow_for_literals_and_for_names() {
    let dns = DnsServer::start();
    let cluster = Cluster::plan()
        .setting("webhook.allow_networks", "192.168.0.0/16, 127.0.0.0/8")
        .setting("webhook.deny_networks", "192.168.1.5, 127.0.0.5/32")
        .setting("webhook.retry_schedule", "1h")
        .name_server(dns.address())
        .start();
    let mut shop = Outbox::create(&cluster, "shop");
    dns.addresses("denied.partner.net", &parsed(&["192.168.1.5"]));
    dns.addresses("both.partner.net", &parsed(&["192.168.1.4", "192.168.1.5"]));
    dns.addresses("mapped.partner.net", &parsed(&["::ffff:192.168.1.5"]));
    dns.addresses("allowed.partner.net", &parsed(&["192.168.1.4"]));
    let create = |host: &str| {
        format!("select webhook.create_endpoint('lists', 'https://{host}/', verify => 'none')")
    };
    for host in [
        "192.168.1.5",
        "[::ffff:192.168.1.5]",
        "[64:ff9b::c0a8:105]",
        "denied.partner.net",
        "both.partner.net",
        "mapped.partner.net",
        "10.0.0.1",
    ] {
        assert_eq!(shop.refusal(&create(host)).0, "22023", "{host}");
    }
    for host in ["192.168.1.4", "allowed.partner.net"] {
        shop.run(&create(host));
    }
    // And on the wire.
    let receiver = Receiver::on("127.0.0.5".parse().expect("an address"), None);
    let good = Receiver::http();
    let denied = shop.endpoint("wire", &receiver.url_at("later.partner.net", "/hook"));
    dns.addresses("later.partner.net", &parsed(&["127.0.0.5"]));
    let allowed = shop.endpoint("wire", &good.url("/hook"));
    let event = shop.emit("order.paid", "wire", "{}");
    shop.wait_for_state(&event, &allowed, "delivered");
    let delivery = shop.wait_for_attempts(&event, &denied, 1);
    assert_eq!(delivery.category.as_deref(), Some("blocked"));
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn a_reload_drops_vetted_answers_and_kept_connections_at_once() {
    let dns = DnsServer::start();
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .setting("webhook.poll_interval", "100ms")
        .name_server(dns.address())
        .start();
    let receiver = Receiver::http();
    dns.addresses("hooks.partner.net", &parsed(&["127.0.0.1"]));
    let endpoint = {
        let mut shop = Outbox::create(&cluster, "shop");
        let endpoint = shop.endpoint("a", &receiver.url_at("hooks.partner.net", "/hook"));
        assert_eq!(first_category(&mut shop, "a", &endpoint), None);
        endpoint
    };
    assert_eq!((receiver.count(), receiver.open_connections()), (1, 1));
    for (setting, shut, open) in [
        ("webhook.deny_networks", "127.0.0.1", ""),
        ("webhook.allow_networks", "", "127.0.0.0/8"),
        ("webhook.denied_domains", "hooks.partner.net", ""),
        ("webhook.allowed_domains", "partner.org", ""),
        ("webhook.allow_http", "off", "on"),
        ("webhook.allowed_ports", "443", "*"),
    ] {
        let before = receiver.count();
        cluster.reload(&[(setting, shut)]);
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_a_round();
        let category = first_category(&mut shop, "a", &endpoint);
        assert_eq!(category.as_deref(), Some("blocked"), "{setting}");
        assert_eq!(receiver.count(), before, "{setting}");
        drop(shop);
        cluster.reload(&[(setting, open)]);
        let mut shop = Outbox::join(&cluster, "shop");
        shop.wait_for_a_round();
        assert_eq!(first_category(&mut shop, "a", &endpoint), None, "{setting}");
    }
}
