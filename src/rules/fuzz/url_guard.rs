//! The boundary under any URL, any address and any setting.
//!
//! Input: a byte of flags, then texts separated by NUL, which no text of PostgreSQL holds: the URL, the networks
//! allowed and denied, the domains allowed and denied, the ports, the proxy, addresses separated by blanks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::CANARY;
use crate::rules::address::{Boundary, Nat64, Ports, parse_networks};
use crate::rules::proxy::{Credentials, parse_proxy};
use crate::rules::target::{Host, Target, parse_domains, parse_ports};

/// Checks one input; returns the target, if the URL was accepted.
pub fn run(data: &[u8]) -> Option<Target> {
    let (&flags, rest) = data.split_first()?;
    let text = String::from_utf8_lossy(rest);
    let mut fields = text.split('\0');
    let mut next = || fields.next().unwrap_or_default();
    let url = next();
    let mut boundary = Boundary {
        allow_http: flags & 1 != 0,
        nat64: if flags & 2 == 0 {
            Nat64::Deny
        } else {
            Nat64::Judge
        },
        allow_networks: networks(next()),
        deny_networks: networks(next()),
        allowed_domains: domains(next()),
        denied_domains: domains(next()),
        ports: ports(next()).unwrap_or(Ports::AnyAllowed),
        ..Boundary::default()
    };
    proxy(next());
    credentials(rest);
    let addresses: Vec<IpAddr> = next()
        .split(' ')
        .filter_map(|text| text.parse().ok())
        .collect();
    if flags & 4 != 0 {
        boundary.own_addresses = addresses.first().copied().into_iter().collect();
        boundary.own_port = 443;
    }
    for ip in addresses {
        address(&boundary, ip);
    }
    let target = boundary.target(url).ok();
    match &target {
        Some(target) => accepted(&boundary, target),
        None => refused(&boundary, url),
    }
    target
}

fn accepted(boundary: &Boundary, target: &Target) {
    let url = target.url();
    assert_eq!(boundary.target(url).as_ref(), Ok(target), "read again");
    assert!(url.len() <= 2048 && url.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!url.contains(['#', '\\']), "{url}");
    let (scheme, known_port) = if target.https() {
        ("https://", 443)
    } else {
        ("http://", 80)
    };
    assert!(target.https() || boundary.allow_http, "clear text");
    // Cut by hand: what the parser says of itself proves nothing.
    let rest = url.strip_prefix(scheme).expect("the scheme comes first");
    let end = rest.find(['/', '?']).expect("a canonical URL has a path");
    let (authority, path) = rest.split_at(end);
    assert!(path.starts_with('/'), "{url}");
    assert_eq!(authority, target.authority());
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']').expect("closed"),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = port.strip_prefix(':').map_or(known_port, |digits| {
        assert!(digits != known_port.to_string() && !digits.starts_with('0'));
        digits.parse().expect("a port is a number")
    });
    assert_eq!(port, target.port());
    assert_ne!(port, 0);
    if let Ports::Only(list) = &boundary.ports {
        assert!(list.contains(&port), "port {port}");
    }
    match target.host() {
        Host::Ip(ip) => {
            assert_eq!(host.parse(), Ok(*ip));
            assert_eq!(boundary.vet_socket(SocketAddr::new(*ip, port)), Ok(()));
            assert!(boundary.allowed_domains.is_empty());
            reachable(boundary, *ip);
        }
        Host::Name(name) => {
            assert_eq!(host, name);
            accepted_name(boundary, name);
        }
    }
}

fn accepted_name(boundary: &Boundary, name: &str) {
    let labels: Vec<&str> = name.split('.').collect();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    assert!(labels.len() >= 2 && name.len() <= 253, "{name}");
    for label in &labels {
        assert!((1..=63).contains(&label.len()), "{name}");
        assert!(label.chars().all(plain), "{name}");
    }
    // What ends in a number is an IPv4 address to some reader (inet_aton, URL standard).
    let last = labels.last().expect("at least two");
    let digits = last
        .strip_prefix("0x")
        .map_or(last.bytes().all(|b| b.is_ascii_digit()), |hex| {
            hex.bytes().all(|b| b.is_ascii_hexdigit())
        });
    assert!(!digits, "{name}");
    assert!(name.parse::<IpAddr>().is_err(), "{name}");
    assert!(
        !["localhost", "local", "internal", "test", "onion"].contains(last),
        "{name}"
    );
    let within = |domain: &String| {
        let domain: Vec<&str> = domain.split('.').collect();
        labels.ends_with(&domain)
    };
    assert!(!boundary.denied_domains.iter().any(within), "{name}");
    assert!(
        boundary.allowed_domains.is_empty() || boundary.allowed_domains.iter().any(within),
        "{name}"
    );
}

/// A refusal shows neither userinfo nor path nor query, whatever is wrong with the URL.
fn refused(boundary: &Boundary, url: &str) {
    let silent = |url: &str| {
        if let Err(refusal) = boundary.target(url) {
            assert!(!refusal.detail.contains(CANARY), "{}", refusal.detail);
            assert!(!refusal.detail.chars().any(char::is_control));
            assert!(refusal.detail.len() < 4096);
            return true;
        }
        false
    };
    if url.contains(CANARY) {
        return;
    }
    silent(&format!("{url}?{CANARY}"));
    silent(&format!("{url}/{CANARY}"));
    if let Some((scheme, rest)) = url.split_once("://") {
        for user in [CANARY.to_owned(), format!("{CANARY}:{CANARY}")] {
            assert!(
                silent(&format!("{scheme}://{user}@{rest}")),
                "userinfo: {url}"
            );
        }
    }
}

fn address(boundary: &Boundary, ip: IpAddr) {
    let verdict = boundary.vet(ip);
    let mapped = match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        v6 => v6,
    };
    // A denied network of IPv6 may hold the mapped form alone ("::/0"): then only that is denied.
    if !contains(&boundary.deny_networks, mapped) {
        assert_eq!(verdict, boundary.vet(mapped), "{ip}");
        assert_eq!(verdict, boundary.vet(ip.to_canonical()), "{ip}");
    }
    if verdict.is_ok() {
        reachable(boundary, ip);
    }
    if boundary.vet_socket(SocketAddr::new(ip, 443)).is_ok() {
        assert!(verdict.is_ok(), "{ip}");
        let own = boundary.own_port == 443 && (is_own(boundary, ip) || ip.is_loopback());
        assert!(!own, "{ip}");
    }
    let IpAddr::V4(v4) = ip.to_canonical() else {
        return;
    };
    // An address that is denied is denied in each of its disguises, unless an operator opens the disguise itself.
    if boundary.vet(v4.into()).is_err() {
        for disguise in disguises(v4) {
            let opened = contains(&boundary.allow_networks, disguise);
            let judged = boundary.vet(disguise);
            assert!(judged.is_err() || opened, "{ip} as {disguise}");
            if contains(&boundary.deny_networks, v4.into()) {
                assert!(judged.is_err(), "{ip} as {disguise}");
            }
        }
    }
}

/// Every form but the mapped one, which is the address itself.
fn disguises(v4: Ipv4Addr) -> Vec<IpAddr> {
    let bits = u128::from(u32::from(v4));
    let forms = [
        bits,
        0xffff_0000_u128 << 32 | bits,
        0x0064_ff9b_u128 << 96 | bits,
        0x2002_u128 << 112 | bits << 80 | 1,
        0x2001_0000_u128 << 96 | bits << 64 | 1,
        0x2001_0000_u128 << 96 | 0x0808_0808 << 64 | (bits ^ 0xffff_ffff),
        0x2a00_1450_u128 << 96 | 0x5efe_u128 << 32 | bits,
    ];
    let mut forms: Vec<IpAddr> = forms
        .into_iter()
        .map(|bits| IpAddr::V6(Ipv6Addr::from(bits)))
        .collect();
    // An address in the documentation blocks behind ISATAP and the like is denied by the listed block alone.
    forms.retain(|form| !matches!(form, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()));
    forms
}

/// An address that may be reached is none that the standard library calls special, unless an operator opened it.
fn reachable(boundary: &Boundary, ip: IpAddr) {
    let mut plain = ip.to_canonical();
    assert!(!contains(&boundary.deny_networks, plain), "{ip}");
    assert!(!contains(&boundary.deny_networks, ip), "{ip}");
    if contains(&boundary.allow_networks, plain) {
        return;
    }
    assert!(!is_own(boundary, ip), "{ip}");
    if let (Nat64::Judge, IpAddr::V6(v6)) = (boundary.nat64, plain)
        && let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = v6.segments()
    {
        plain = IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
        if contains(&boundary.allow_networks, plain) {
            return;
        }
    }
    assert!(!special(plain), "{ip}");
}

fn special(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || v4.is_multicast()
                || first == 0
                || first >= 240
                || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.segments()[0] & 0xe000 != 0x2000
        }
    }
}

fn is_own(boundary: &Boundary, ip: IpAddr) -> bool {
    let own = &boundary.own_addresses;
    own.iter()
        .any(|own| own.to_canonical() == ip.to_canonical())
}

fn contains(networks: &[IpNet], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&ip))
}

fn networks(text: &str) -> Vec<IpNet> {
    let Ok(networks) = parse_networks(text) else {
        return Vec::new();
    };
    assert_eq!(parse_networks(&joined(&networks)), Ok(networks.clone()));
    let items = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    for (item, network) in items.zip(&networks) {
        assert_eq!(network.addr(), network.network(), "{item}");
        let first: IpAddr = item
            .split('/')
            .next()
            .and_then(|address| address.parse().ok())
            .expect("a network begins with an address");
        assert!(
            network.contains(&first.to_canonical()) || network.contains(&first),
            "{item}"
        );
    }
    networks
}

fn domains(text: &str) -> Vec<String> {
    let Ok(domains) = parse_domains(text) else {
        return Vec::new();
    };
    assert_eq!(parse_domains(&joined(&domains)), Ok(domains.clone()));
    for domain in &domains {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        assert!(!domain.is_empty() && domain.bytes().all(plain), "{domain}");
        assert!(!domain.starts_with('.') && !domain.ends_with('.'));
        assert!(domain.parse::<IpAddr>().is_err());
    }
    domains
}

fn ports(text: &str) -> Option<Ports> {
    let ports = parse_ports(text).ok()?;
    if let Ports::Only(list) = &ports {
        assert!(!list.is_empty() && !list.contains(&0));
        assert!(list.is_sorted_by(|a, b| a < b));
        assert_eq!(parse_ports(&joined(list)).as_ref(), Ok(&ports));
    }
    Some(ports)
}

fn proxy(text: &str) {
    let text = &text.replace(CANARY, "");
    let credentials = format!("http://{CANARY}:{CANARY}@{text}");
    for secret in [credentials, format!("{text}/{CANARY}@")] {
        let error = parse_proxy(&secret).expect_err("credentials are refused");
        assert!(!error.contains(CANARY), "{error}");
    }
    let Ok(Some(proxy)) = parse_proxy(text) else {
        return;
    };
    let host = match proxy.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => format!("[{v6}]"),
        _ => proxy.host.clone(),
    };
    assert_ne!(proxy.port, 0);
    let again = parse_proxy(&format!("http://{host}:{}", proxy.port));
    assert_eq!(again, Ok(Some(proxy)));
}

fn credentials(bytes: &[u8]) {
    let Ok(credentials) = Credentials::parse(bytes) else {
        return;
    };
    let basic = credentials.basic();
    assert!(
        basic
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    );
    let sent = basic
        .strip_prefix("Basic ")
        .and_then(super::secrets::decode);
    let sent = sent.expect("the base64 of the line");
    assert!(bytes.starts_with(&sent) && sent.contains(&b':'));
    assert!(
        bytes[sent.len()..]
            .iter()
            .all(|byte| b"\r\n".contains(byte))
    );
}

fn joined<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join(",")
}
