//! Tests of `rules::address`, apart from the vectors.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use proptest::prelude::*;

use super::{BLOCKS, Boundary, Form, Nat64, embedded_ipv4, parse_networks};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(text: &str) -> Vec<IpNet> {
    parse_networks(text).unwrap()
}

fn block(boundary: &Boundary, text: &str) -> Option<&'static str> {
    boundary.vet(ip(text)).err().map(|denied| denied.block)
}

#[test]
fn every_row_of_the_list_is_a_network_and_stands_once() {
    let mut seen = BTreeSet::new();
    for row in BLOCKS {
        let net: IpNet = row.network.parse().unwrap();
        assert_eq!(net.addr(), net.network(), "{}", row.network);
        assert!(seen.insert(net), "{} stands twice", row.network);
        assert!(!row.category.is_empty() && !row.source.is_empty());
    }
}

#[test]
fn an_operator_deny_wins_over_an_operator_allow() {
    let boundary = Boundary {
        allow_networks: nets("192.168.0.0/16"),
        deny_networks: nets("192.168.1.5"),
        ..Boundary::default()
    };
    assert_eq!(block(&boundary, "192.168.1.4"), None);
    assert_eq!(block(&boundary, "192.168.1.5"), Some("deny_networks"));
    assert_eq!(
        block(&boundary, "::ffff:192.168.1.5"),
        Some("deny_networks")
    );
    assert_eq!(block(&boundary, "192.169.0.1"), None);
    assert_eq!(block(&boundary, "10.0.0.1"), Some("10.0.0.0/8"));
}

#[test]
fn an_operator_deny_reaches_public_addresses_in_every_spelling() {
    let boundary = Boundary {
        allow_networks: nets("64:ff9b::/96, 2002::/16"),
        deny_networks: nets("8.8.8.0/24"),
        ..Boundary::default()
    };
    for text in [
        "8.8.8.8",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:4860:4860::5efe:8.8.8.8",
    ] {
        assert_eq!(block(&boundary, text), Some("deny_networks"), "{text}");
    }
    assert_eq!(block(&boundary, "64:ff9b::8.8.9.8"), None);
}

#[test]
fn a_mapped_network_in_a_setting_means_the_ipv4_network() {
    assert_eq!(nets("::ffff:10.0.0.0/104"), nets("10.0.0.0/8"));
    assert_eq!(nets("::ffff:10.0.0.1"), nets("10.0.0.1/32"));
    let by_hand = Boundary {
        deny_networks: vec!["::ffff:8.8.8.0/120".parse().unwrap()],
        ..Boundary::default()
    };
    assert_eq!(block(&by_hand, "::ffff:8.8.8.8"), Some("deny_networks"));
}

#[test]
fn allowing_all_of_ipv6_does_not_allow_mapped_ipv4() {
    let boundary = Boundary {
        allow_networks: nets("::/0"),
        ..Boundary::default()
    };
    assert_eq!(block(&boundary, "::ffff:127.0.0.1"), Some("127.0.0.0/8"));
    assert_eq!(block(&boundary, "fd00::1"), None);
}

#[test]
fn the_hosts_own_addresses_are_denied_unless_the_operator_allows_them() {
    let mut boundary = Boundary {
        own_addresses: vec![
            ip("::ffff:93.184.215.14"),
            ip("2606:2800:21f:cb07:6820:80da:af6b:8b2c"),
        ],
        ..Boundary::default()
    };
    assert_eq!(block(&boundary, "93.184.215.14"), Some("own_addresses"));
    assert_eq!(
        block(&boundary, "2001:4860:4860::5efe:93.184.215.14"),
        Some("own_addresses")
    );
    assert_eq!(
        block(&boundary, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"),
        Some("own_addresses")
    );
    // A network that holds more than this address was not meant for it.
    boundary.allow_networks = nets("93.184.0.0/16, 2000::/3");
    for own in [
        "93.184.215.14",
        "::ffff:93.184.215.14",
        "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
        "2001:4860:4860::5efe:93.184.215.14",
    ] {
        assert_eq!(block(&boundary, own), Some("own_addresses"), "{own}");
    }
    assert_eq!(block(&boundary, "93.184.215.15"), None);
    boundary.allow_networks = nets("93.184.215.14");
    assert_eq!(block(&boundary, "93.184.215.14"), None);
}

#[test]
fn a_network_opens_the_hosts_own_loopback_addresses() {
    let mut boundary = Boundary {
        own_addresses: vec![ip("127.0.0.1"), ip("::1")],
        ..Boundary::default()
    };
    assert_eq!(block(&boundary, "127.0.0.1"), Some("own_addresses"));
    boundary.allow_networks = nets("127.0.0.0/8");
    assert_eq!(block(&boundary, "127.0.0.1"), None);
    assert_eq!(block(&boundary, "::1"), Some("own_addresses"));
    boundary.allow_networks = nets("::1");
    assert_eq!(block(&boundary, "::1"), None);
    boundary.deny_networks = nets("::1");
    assert_eq!(block(&boundary, "::1"), Some("deny_networks"));
}

#[test]
fn the_port_of_the_database_server_is_denied_on_its_own_host_whatever_is_allowed() {
    let boundary = Boundary {
        allow_networks: nets("0.0.0.0/0, ::/0, 10.0.0.5"),
        own_addresses: vec![ip("127.0.0.1"), ip("10.0.0.5")],
        own_port: 5432,
        ..Boundary::default()
    };
    let block = |text: &str, port| {
        let socket = SocketAddr::new(ip(text), port);
        boundary.vet_socket(socket).err().map(|denied| denied.block)
    };
    for own in [
        "10.0.0.5",
        "::ffff:10.0.0.5",
        "64:ff9b::10.0.0.5",
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "0.0.0.0",
        "::",
    ] {
        assert_eq!(block(own, 5432), Some("own_port"), "{own}");
    }
    assert_eq!(block("10.0.0.5", 443), None);
    assert_eq!(block("10.0.0.6", 5432), None);
    // Without a port there is nothing to deny: 0 is none.
    let unknown = Boundary {
        own_port: 0,
        ..boundary.clone()
    };
    assert!(
        unknown
            .vet_socket(SocketAddr::new(ip("10.0.0.5"), 5432))
            .is_ok()
    );
}

#[test]
fn nat64_is_denied_by_default_and_judged_by_its_ipv4_address_on_request() {
    let strict = Boundary::default();
    assert_eq!(block(&strict, "64:ff9b::8.8.8.8"), Some("64:ff9b::/96"));
    let judging = Boundary {
        nat64: Nat64::Judge,
        ..Boundary::default()
    };
    assert_eq!(block(&judging, "64:ff9b::8.8.8.8"), None);
    assert_eq!(block(&judging, "64:ff9b::127.0.0.1"), Some("127.0.0.0/8"));
    assert_eq!(
        block(&judging, "64:ff9b:1::808:808"),
        Some("64:ff9b:1::/48")
    );
}

#[test]
fn networks_are_read_strictly() {
    assert_eq!(nets(""), []);
    assert_eq!(nets(" 10.0.0.0/8 ,fd00::/8, "), nets("10.0.0.0/8,fd00::/8"));
    assert_eq!(
        parse_networks("10.0.0.1/8").unwrap_err(),
        "invalid network \"10.0.0.1/8\": bits are set to the right of the mask"
    );
    for wrong in ["10.0.0.0/33", "10.1", "0x7f000001", "fe80::1%eth0", "host"] {
        assert!(parse_networks(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_network_that_others_would_read_as_octal_is_refused() {
    for wrong in ["010.0.0.0/8", "192.084.7.7/32", "10.00.0.0/8", "010.0.0.1"] {
        assert!(parse_networks(wrong).is_err(), "{wrong}");
    }
}

fn private_ipv4() -> impl Strategy<Value = Ipv4Addr> {
    let within = |net: u32, length: u32| any::<u32>().prop_map(move |r| net | (r >> length));
    prop_oneof![
        within(0x0a00_0000, 8),
        within(0xac10_0000, 12),
        within(0xc0a8_0000, 16),
        within(0x7f00_0000, 8),
        within(0xa9fe_0000, 16),
        within(0x6440_0000, 10),
        within(0x0000_0000, 8),
        within(0xe000_0000, 4),
        within(0xf000_0000, 4),
        Just(0xa83f_8110),
    ]
    .prop_map(Ipv4Addr::from)
}

/// Every spelling of `v4` as an IPv6 address; `prefix` and `rest` fill what the form leaves open.
fn embeddings(v4: Ipv4Addr, prefix: u64, rest: u64) -> Vec<Ipv6Addr> {
    let low = u128::from(u32::from(v4));
    let upper = u128::from(prefix) << 64;
    [
        low,
        0xffff << 32 | low,
        0xffff_0000 << 32 | low,
        0x0064_ff9b << 96 | low,
        0x0064_ff9b_0001 << 80 | u128::from(rest) & ((1 << 80) - 1),
        0x2002 << 112 | low << 80 | u128::from(rest),
        0x2001_0000 << 96 | u128::from(prefix >> 32) << 32 | low ^ 0xffff_ffff,
        0x2001_0000 << 96 | low << 64 | u128::from(rest),
        upper | 0x0000_5efe << 32 | low,
        upper | 0x0200_5efe << 32 | low,
    ]
    .map(Ipv6Addr::from)
    .into()
}

proptest! {
    #[test]
    fn vetting_never_panics_whatever_the_address_and_the_lists(
        v6: u128, v4: u32, net: u128, length in 0u8..=128, judge: bool, own: u128,
    ) {
        let net = IpNet::new(Ipv6Addr::from(net).into(), length).unwrap().trunc();
        for (allow, deny) in [(vec![net], vec![]), (vec![], vec![net]), (vec![net], vec![net])] {
            let boundary = Boundary {
                allow_networks: allow,
                deny_networks: deny,
                own_addresses: vec![Ipv6Addr::from(own).into()],
                nat64: if judge { Nat64::Judge } else { Nat64::Deny },
                ..Boundary::default()
            };
            let _ = boundary.vet(Ipv6Addr::from(v6).into());
            let _ = boundary.vet(Ipv4Addr::from(v4).into());
        }
    }

    #[test]
    fn a_private_ipv4_address_is_denied_in_every_embedding(
        v4 in private_ipv4(), prefix: u64, rest: u64,
    ) {
        for nat64 in [Nat64::Deny, Nat64::Judge] {
            let boundary = Boundary { nat64, ..Boundary::default() };
            prop_assert!(boundary.vet(v4.into()).is_err());
            // Half of the ISATAP prefixes are made global unicast, where nothing else denies.
            for prefix in [prefix, prefix >> 3 | 1 << 61] {
                for spelling in embeddings(v4, prefix, rest) {
                    prop_assert!(boundary.vet(spelling.into()).is_err(), "{}", spelling);
                }
            }
        }
    }

    #[test]
    fn a_denied_network_is_denied_whatever_is_allowed(
        base: u128, length in 0u8..=128, host: u128, four: bool,
    ) {
        let host = |length: u32, bits: u32| {
            if length >= bits { 0 } else { host & (u128::MAX >> (128 - bits + length)) }
        };
        let (net, member) = if four {
            let net = IpNet::new(Ipv4Addr::from(base as u32).into(), length % 33).unwrap().trunc();
            let IpAddr::V4(first) = net.addr() else { unreachable!() };
            let bits = host(u32::from(length % 33), 32) as u32;
            (net, IpAddr::V4(Ipv4Addr::from(u32::from(first) | bits)))
        } else {
            let net = IpNet::new(Ipv6Addr::from(base).into(), length).unwrap().trunc();
            let IpAddr::V6(first) = net.addr() else { unreachable!() };
            let bits = host(u32::from(length), 128);
            (net, IpAddr::V6(Ipv6Addr::from(u128::from(first) | bits)))
        };
        prop_assert!(net.contains(&member));
        let boundary = Boundary {
            allow_networks: nets("0.0.0.0/0,::/0"),
            deny_networks: vec![net],
            ..Boundary::default()
        };
        prop_assert_eq!(boundary.vet(member).unwrap_err().block, "deny_networks");
    }

    #[test]
    fn a_mapped_address_is_judged_exactly_as_its_ipv4_address(v4: u32) {
        let v4 = Ipv4Addr::from(v4);
        let boundary = Boundary::default();
        prop_assert_eq!(
            boundary.vet(v4.to_ipv6_mapped().into()),
            boundary.vet(v4.into())
        );
    }

    #[test]
    fn an_embedded_address_is_found_again(v4: u32, prefix: u64, rest: u64) {
        let v4 = Ipv4Addr::from(v4);
        for spelling in embeddings(v4, prefix | 1 << 63, rest) {
            let local_nat64 = spelling.segments()[..3] == [0x64, 0xff9b, 1];
            if spelling.to_ipv4_mapped().is_some() || local_nat64 {
                continue;
            }
            let found = embedded_ipv4(spelling);
            prop_assert!(found.iter().any(|&(_, seen)| seen == v4), "{}: {:?}", spelling, found);
        }
        let isatap = Ipv6Addr::from(u128::from(prefix) << 64 | 0x5efe << 32 | u128::from(u32::from(v4)));
        prop_assert!(embedded_ipv4(isatap).contains(&(Form::Isatap, v4)));
    }
}
