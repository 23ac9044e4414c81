//! The boundary at its edges: rows of our own beside the SSRF vectors. First and last addresses of blocks and
//! their neighbours, recent rows of the registries, what bypassed other products, odd spellings of hosts.

use std::net::IpAddr;

use super::super::address::{Boundary, Nat64, Ports, parse_networks};
use super::super::refusal::Reason;
use super::super::target::{Host, parse_domains};

fn block(boundary: &Boundary, address: &str) -> Option<&'static str> {
    let address: IpAddr = address.parse().unwrap();
    boundary.vet(address).err().map(|denied| denied.block)
}

#[rustfmt::skip]
const ADDRESSES: &[(&str, Option<&str>)] = &[
    ("0.255.255.255", Some("0.0.0.0/8")), ("1.0.0.0", None),
    ("9.255.255.255", None), ("10.0.0.0", Some("10.0.0.0/8")), ("11.0.0.0", None),
    ("100.63.255.255", None), ("100.127.255.255", Some("100.64.0.0/10")), ("100.128.0.0", None),
    ("126.255.255.255", None), ("127.255.255.255", Some("127.0.0.0/8")), ("128.0.0.0", None),
    ("169.253.255.255", None), ("169.254.0.0", Some("169.254.0.0/16")), ("169.255.0.0", None),
    ("172.15.255.255", None), ("172.31.255.255", Some("172.16.0.0/12")), ("172.32.0.0", None),
    ("191.255.255.255", None), ("192.0.0.7", Some("192.0.0.0/29")), ("192.0.0.11", Some("192.0.0.0/24")), ("192.0.1.0", None),
    ("192.0.2.255", Some("192.0.2.0/24")), ("192.0.3.0", None),
    ("192.88.98.255", None), ("192.88.99.1", Some("192.88.99.0/24")), ("192.88.100.0", None),
    ("192.167.255.255", None), ("192.169.0.0", None),
    ("198.17.255.255", None), ("198.19.255.255", Some("198.18.0.0/15")), ("198.20.0.0", None),
    ("223.255.255.255", None), ("224.0.0.0", Some("224.0.0.0/4")), ("239.255.255.255", Some("224.0.0.0/4")),
    ("240.0.0.0", Some("240.0.0.0/4")), ("255.255.255.254", Some("240.0.0.0/4")),
    // Metadata and other services of clouds.
    ("169.254.169.254", Some("169.254.0.0/16")), ("169.254.170.2", Some("169.254.0.0/16")),
    ("100.100.100.200", Some("100.64.0.0/10")), ("192.0.0.192", Some("192.0.0.0/24")),
    ("168.63.129.15", None), ("168.63.129.16", Some("168.63.129.16/32")), ("168.63.129.17", None),
    ("fd00:ec2::254", Some("fc00::/7")), ("fd20:ce::254", Some("fc00::/7")),
    // IPv6: the edges of 2000::/3 and of what is taken out of it.
    ("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("!2000::/3")), ("2000::", None),
    ("3ffe:ffff::1", None), ("3fff:fff:ffff::1", Some("3fff::/20")), ("3fff:1000::1", None), ("4000::", Some("!2000::/3")),
    ("2001:1ff:ffff::1", Some("2001::/23")), ("2001:200::1", None),
    ("2001:1::4", Some("2001::/23")), ("2001:1::3", Some("2001:1::3/128")),
    ("2001:2:0:ffff::1", Some("2001:2::/48")), ("2001:2:1::1", Some("2001::/23")),
    ("2001:3:ffff::1", Some("2001:3::/32")), ("2001:4:112:ffff::1", Some("2001:4:112::/48")), ("2001:4:113::", Some("2001::/23")),
    ("2001:1f:ffff::1", Some("2001:10::/28")), ("2001:2f:ffff::1", Some("2001:20::/28")),
    ("2001:3f:ffff::1", Some("2001:30::/28")), ("2001:40::1", Some("2001::/23")),
    ("2001:db7:ffff::1", None), ("2001:db8:ffff::1", Some("2001:db8::/32")), ("2001:db9::1", None),
    ("2620:4f:7fff::1", None), ("2620:4f:8000:ffff::1", Some("2620:4f:8000::/48")), ("2620:4f:8001::", None),
    ("5eff::1", Some("!2000::/3")), ("5f00:ffff::1", Some("5f00::/16")), ("5f01::1", Some("!2000::/3")),
    ("100::ffff:ffff:ffff:ffff", Some("100::/64")), ("100:0:0:1::1", Some("100:0:0:1::/64")), ("100:0:0:2::1", Some("!2000::/3")),
    ("fbff::1", Some("!2000::/3")), ("fdff:ffff::1", Some("fc00::/7")), ("fe00::1", Some("!2000::/3")), ("fe7f::1", Some("!2000::/3")),
    ("febf:ffff::1", Some("fe80::/10")), ("feff:ffff::1", Some("fec0::/10")), ("ff0e::1", Some("ff00::/8")),
    // IPv4 inside IPv6.
    ("::2", Some("::/96")), ("::8.8.8.8", Some("::/96")), ("::1:0:0", Some("!2000::/3")),
    ("::ffff:8.8.8.8", None), ("::ffff:100.64.0.1", Some("100.64.0.0/10")), ("::ffff:0.0.0.0", Some("0.0.0.0/32")),
    ("::fffe:8.8.8.8", Some("!2000::/3")), ("::ffff:0:8.8.8.8", Some("::ffff:0:0:0/96")), ("::fffe:0:8.8.8.8", Some("!2000::/3")),
    ("64:ff9b::8.8.8.8", Some("64:ff9b::/96")), ("64:ff9b::1:808:808", Some("!2000::/3")),
    ("64:ff9b:1:ffff:ffff:ffff:a00:1", Some("64:ff9b:1::/48")), ("64:ff9b:2::808:808", Some("!2000::/3")),
    ("2002:808:808::1", Some("2002::/16")), ("2003:a00:1::1", None),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Some("2001::/32")),
    ("2a00:1450::5efe:a00:1", Some("isatap-iid")), ("2a00:1450::200:5efe:a9fe:a9fe", Some("isatap-iid")),
    ("2a00:1450::5efe:808:808", None), ("2a00:1450::5eff:a00:1", None), ("2a00:1450::100:5efe:a00:1", None),
    // A prefix of the operator's own (RFC 6052) cannot be known: that is what deny_networks is for.
    ("2a00:1450:64::a00:1", None),
];

#[test]
fn addresses_at_the_edges_of_the_list_are_on_the_right_side() {
    let boundary = Boundary::default();
    for (address, expected) in ADDRESSES {
        assert_eq!(block(&boundary, address), *expected, "{address}");
    }
}

#[test]
fn nat64_that_is_judged_is_judged_by_every_rule_of_ipv4() {
    let boundary = Boundary {
        nat64: Nat64::Judge,
        allow_networks: parse_networks("10.1.0.0/16").unwrap(),
        deny_networks: parse_networks("8.8.4.0/24, 10.1.2.3").unwrap(),
        own_addresses: vec!["93.184.215.14".parse().unwrap()],
        ..Boundary::default()
    };
    for (address, expected) in [
        ("64:ff9b::808:808", None),
        ("64:ff9b::808:404", Some("deny_networks")),
        ("64:ff9b::a00:1", Some("10.0.0.0/8")),
        ("64:ff9b::a01:1", None),
        ("64:ff9b::a01:203", Some("deny_networks")),
        ("64:ff9b::5db8:d70e", Some("own_addresses")),
        ("64:ff9b::a9fe:a9fe", Some("169.254.0.0/16")),
        ("64:ff9b::", Some("0.0.0.0/32")),
        ("64:ff9b::ffff:ffff", Some("255.255.255.255/32")),
        // Only the well-known prefix, with all its bits, is NAT64.
        ("64:ff9b:0:0:0:5efe:808:808", Some("!2000::/3")),
        ("64:ff9b::1:808:808", Some("!2000::/3")),
        ("64:ff9b:1::808:808", Some("64:ff9b:1::/48")),
        ("::808:808", Some("::/96")),
        ("2002:808:808::", Some("2002::/16")),
    ] {
        assert_eq!(block(&boundary, address), expected, "{address}");
    }
}

#[rustfmt::skip]
const URLS: &[(&str, Result<&str, Reason>)] = &[
    // Digits and dots of other scripts.
    ("https://①②⑦.⓪.⓪.①/", Err(Reason::AddressDenied)),
    ("https://１２７.０.０.１/", Err(Reason::AddressDenied)),
    ("https://127。0。0。1/", Err(Reason::AddressDenied)),
    ("https://169｡254｡169｡254/", Err(Reason::AddressDenied)),
    ("https://8.8.8。8/", Err(Reason::NoncanonicalIp)),
    // Numbers.
    ("https://0/", Err(Reason::AddressDenied)),
    ("https://00000000000/", Err(Reason::AddressDenied)),
    ("https://0xA9FEA9FE/", Err(Reason::AddressDenied)),
    ("https://2852039166/", Err(Reason::AddressDenied)),
    ("https://0251.0376.0251.0376/", Err(Reason::AddressDenied)),
    ("https://169.16689662/", Err(Reason::AddressDenied)),
    ("https://0xa9.254.0251.254/", Err(Reason::AddressDenied)),
    ("https://127.0.0.1./", Err(Reason::AddressDenied)),
    ("https://0x8.8.8.8/", Err(Reason::NoncanonicalIp)),
    ("https://8.526344/", Err(Reason::NoncanonicalIp)),
    ("https://256.256.256.256/", Err(Reason::ParseError)),
    ("https://8.8.8.8.8/", Err(Reason::ParseError)),
    // Brackets.
    ("https://[::127.0.0.1]/", Err(Reason::AddressDenied)),
    ("https://[0:0:0:0:0:ffff:7f00:1]/", Err(Reason::AddressDenied)),
    ("https://[64:ff9b::169.254.169.254]/", Err(Reason::AddressDenied)),
    ("https://[::ffff:127.1]/", Err(Reason::ParseError)),
    ("https://[::ffff:0x7f.0.0.1]/", Err(Reason::ParseError)),
    ("https://[blocked.example.com]/", Err(Reason::ParseError)),
    ("https://[127.0.0.1]/", Err(Reason::ParseError)),
    ("https://[fe80::1%25eth0]/", Err(Reason::ParseError)),
    ("https://[::1]example.com/", Err(Reason::ParseError)),
    ("https://[v1.fe80]/", Err(Reason::ParseError)),
    // Names that another form, or what is mapped away, hides.
    ("https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", Err(Reason::HostLocalhost)),
    ("https://LOCALHOST./", Err(Reason::HostLocalhost)),
    ("https://a.ＬＯＣＡＬＨＯＳＴ/", Err(Reason::HostLocalhost)),
    ("https://loc\u{ad}alhost/", Err(Reason::HostLocalhost)),
    ("https://localho\u{17f}t/", Err(Reason::HostLocalhost)),
    ("https://metadata。google。internal/", Err(Reason::HostInternal)),
    ("https://METADATA.google.ınternal/", Ok("metadata.google.xn--nternal-qfb")),
    ("https://METADATA.google.İnternal/", Ok("metadata.google.xn--internal-o0e")),
    ("https://printer.ⓛⓞⓒⓐⓛ/", Err(Reason::HostInternal)),
    ("https://xn--fiqs8s./", Err(Reason::HostSingleLabel)),
    ("https://example.org.xn--/", Err(Reason::ParseError)),
    ("https://example.com..", Err(Reason::HostInvalid)),
    ("https://example.com\u{ff0f}@evil.com/", Err(Reason::UserinfoPresent)),
    ("https://example.com\u{ff0f}evil.com/", Err(Reason::ParseError)),
    ("https://example.com\u{ff03}x/", Err(Reason::ParseError)),
    ("https://example.com\u{ff1a}444/", Err(Reason::ParseError)),
    ("https://example.com\u{ff20}evil.com/", Err(Reason::ParseError)),
    // Ports.
    ("https://example.com:443:443/", Err(Reason::ParseError)),
    ("https://example.com:４４３/", Err(Reason::ParseError)),
    ("https://example.com:+443/", Err(Reason::ParseError)),
    ("https://example.com:0443/", Ok("example.com")),
    ("https://example.com:65979/", Err(Reason::ParseError)),
    // What is one name, however it is written.
    ("https://EXAMPLE.com./", Ok("example.com")),
    ("https://ℯⓧample.com/", Ok("example.com")),
    ("https://faß.de/", Ok("xn--fa-hia.de")),
    ("https://FA\u{1e9e}.de/", Ok("xn--fa-hia.de")),
    ("https://example.com:/", Ok("example.com")),
    // Names whose addresses the resolver will judge.
    ("https://127.0.0.1.nip.io/", Ok("127.0.0.1.nip.io")),
    ("https://169.254.169.254.sslip.io/", Ok("169.254.169.254.sslip.io")),
    ("https://localtest.me/", Ok("localtest.me")),
];

#[test]
fn urls_are_read_as_the_name_or_address_they_mean() {
    let boundary = Boundary {
        ports: Ports::AnyAllowed,
        ..Boundary::default()
    };
    let mut wrong = Vec::new();
    for (url, expected) in URLS {
        let is = boundary.target(url).map_err(|refusal| refusal.reason);
        let host = is.map(|target| match target.host() {
            Host::Name(name) => name.clone(),
            Host::Ip(ip) => ip.to_string(),
        });
        if host != expected.map(str::to_owned) {
            wrong.push(format!("{url}: {host:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_of_domains_mean_the_same_in_every_spelling() {
    for (list, url, on_it) in [
        ("EXAMPLE.com.", "https://example.com/", true),
        ("example.com", "https://a.EXAMPLE.COM./", true),
        ("faß.de", "https://xn--fa-hia.de/", true),
        ("xn--FA-hia.de", "https://FAẞ.de/", true),
        ("example.com", "https://ⓔxample.com/", true),
        ("example.com", "https://badexample.com/", false),
        ("a.example.com", "https://example.com/", false),
        ("example.com", "https://example.com.de/", false),
        ("xn--mgba3a4f16a.com", "https://xn--mgba3a4f16b.com/", false),
    ] {
        let domains = parse_domains(list).unwrap();
        let denying = Boundary {
            denied_domains: domains.clone(),
            ..Boundary::default()
        };
        let allowing = Boundary {
            allowed_domains: domains,
            ..Boundary::default()
        };
        let denied = denying.target(url).map_err(|refusal| refusal.reason);
        let allowed = allowing.target(url).is_ok();
        assert_eq!(
            (denied == Err(Reason::DomainDenied), allowed),
            (on_it, on_it),
            "{list} {url}"
        );
    }
}
