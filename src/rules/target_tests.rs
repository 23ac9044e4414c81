//! Tests of `rules::target` and `rules::host_name`, apart from the vectors.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::super::address::{Boundary, Ports, parse_networks};
use super::{Host, Reason, parse_domains, parse_ports};

fn any_port() -> Boundary {
    Boundary {
        ports: Ports::AnyAllowed,
        ..Boundary::default()
    }
}

fn reason(boundary: &Boundary, url: &str) -> Option<Reason> {
    boundary.target(url).err().map(|refusal| refusal.reason)
}

#[test]
fn an_accepted_url_gives_its_canonical_parts() {
    let target = any_port()
        .target("HTTPS://BÜCHER.example.com.:8444/a/../ü?x=1")
        .unwrap();
    assert_eq!(
        target.url(),
        "https://xn--bcher-kva.example.com:8444/%C3%BC?x=1"
    );
    assert_eq!(
        *target.host(),
        Host::Name("xn--bcher-kva.example.com".into())
    );
    assert_eq!(target.port(), 8444);
    assert!(target.https());
    assert_eq!(target.authority(), "xn--bcher-kva.example.com:8444");
}

#[test]
fn the_default_port_is_not_in_the_host_header() {
    let authority = |url| any_port().target(url).unwrap().authority();
    assert_eq!(authority("https://example.com:443/x"), "example.com");
    assert_eq!(authority("https://example.com?x"), "example.com");
    assert_eq!(
        authority("https://[2606:4700:4700:0::1111]:8443/"),
        "[2606:4700:4700::1111]:8443"
    );
}

#[test]
fn only_ports_443_and_8443_pass_by_default() {
    let strict = Boundary::default();
    assert_eq!(reason(&strict, "https://example.com/"), None);
    assert_eq!(reason(&strict, "https://example.com:8443/"), None);
    let refused = Some(Reason::PortNotAllowed);
    assert_eq!(reason(&strict, "https://example.com:8444/"), refused);
    assert_eq!(reason(&strict, "https://example.com:80/"), refused);
    assert_eq!(reason(&any_port(), "https://example.com:8444/"), None);
    assert_eq!(reason(&any_port(), "https://example.com:6667/"), refused);
}

#[test]
fn clear_text_needs_both_the_setting_and_the_port() {
    let mut boundary = Boundary {
        allow_http: true,
        ..Boundary::default()
    };
    let url = "http://example.com/";
    assert_eq!(reason(&boundary, url), Some(Reason::PortNotAllowed));
    boundary.ports = Ports::Only(vec![80, 443]);
    let target = boundary.target(url).unwrap();
    assert!(!target.https());
    assert_eq!(target.port(), 80);
    assert_eq!(target.authority(), "example.com");
}

#[test]
fn a_list_of_domains_admits_them_and_their_subdomains_only() {
    let boundary = Boundary {
        allowed_domains: parse_domains("Example.com., BÜCHER.example").unwrap(),
        ..Boundary::default()
    };
    for inside in ["https://example.com/", "https://a.b.EXAMPLE.com/"] {
        assert_eq!(reason(&boundary, inside), None, "{inside}");
    }
    for outside in [
        "https://notexample.com/",
        "https://example.com.evil.net/",
        "https://8.8.8.8/",
    ] {
        let refused = Some(Reason::DomainNotAllowed);
        assert_eq!(reason(&boundary, outside), refused, "{outside}");
    }
}

#[test]
fn a_denied_domain_is_denied_however_it_is_written_and_whatever_is_allowed() {
    let boundary = Boundary {
        denied_domains: parse_domains("Blocked.Example.COM., böse.example.net").unwrap(),
        allowed_domains: parse_domains("example.com, example.net, EXAMPLE.org.").unwrap(),
        ..any_port()
    };
    for (url, expected) in [
        ("https://blocked.example.com/", Some(Reason::DomainDenied)),
        ("https://Blocked.Example.COM./", Some(Reason::DomainDenied)),
        (
            "https://a.b.BLOCKED.example.com:444/",
            Some(Reason::DomainDenied),
        ),
        ("https://ⓑlocked.example.com/", Some(Reason::DomainDenied)),
        ("https://blocked。example．com/", Some(Reason::DomainDenied)),
        (
            "https://bo\u{308}se.example.net/",
            Some(Reason::DomainDenied),
        ),
        (
            "https://XN--BSE-SNA.example.net/",
            Some(Reason::DomainDenied),
        ),
        ("https://[blocked.example.com]/", Some(Reason::ParseError)),
        (
            "https://blocked%2eexample.com/",
            Some(Reason::PercentEncodedHost),
        ),
        (
            "https://blocked.example.com.evil.net/",
            Some(Reason::DomainNotAllowed),
        ),
        ("https://unblocked.example.com/", None),
        ("https://example.com./", None),
        ("https://a.Example.ORG/", None),
    ] {
        assert_eq!(reason(&boundary, url), expected, "{url}");
    }
}

#[test]
fn a_literal_of_the_host_itself_is_refused_with_the_port_of_the_database_server() {
    let boundary = Boundary {
        allow_networks: parse_networks("127.0.0.0/8").unwrap(),
        own_port: 5432,
        ..any_port()
    };
    assert_eq!(reason(&boundary, "https://127.0.0.1:5433/"), None);
    assert_eq!(
        reason(&boundary, "https://127.0.0.1:5432/"),
        Some(Reason::AddressDenied)
    );
}

#[test]
fn an_allowed_network_admits_its_literals_but_not_the_names_of_the_local_host() {
    let boundary = Boundary {
        allow_networks: parse_networks("127.0.0.0/8,::1").unwrap(),
        ..Boundary::default()
    };
    let target = boundary.target("https://127.0.0.1:8443/x").unwrap();
    assert_eq!(*target.host(), Host::Ip(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(reason(&boundary, "https://[::1]/"), None);
    assert_eq!(
        reason(&boundary, "https://localhost/"),
        Some(Reason::HostLocalhost)
    );
    assert_eq!(
        reason(&boundary, "https://127.1/"),
        Some(Reason::NoncanonicalIp)
    );
}

#[test]
fn an_ipv4_address_with_a_trailing_dot_is_refused() {
    assert_eq!(
        reason(&any_port(), "https://8.8.8.8./"),
        Some(Reason::NoncanonicalIp)
    );
}

#[test]
fn a_url_that_grows_over_the_limit_when_encoded_is_refused() {
    let url = format!("https://example.com/{}", "ü".repeat(1000));
    assert!(url.len() <= 2048);
    assert_eq!(reason(&any_port(), &url), Some(Reason::TooLong));
}

#[test]
fn a_refusal_never_shows_the_path_the_query_or_the_userinfo() {
    for url in [
        "https://sesame@example.com/sesame?sesame",
        "https://example.com:22/sesame?sesame#sesame",
        "https://127.0.0.1/sesame?sesame",
        "https://0x08080808/sesame",
        "https://localhost/sesame?sesame",
        "https://x.test/sesame",
        "https://a..example.com/sesame",
        "https://example.com:sesame/sesame",
        "http://example.com/sesame",
        "https:///sesame",
        "https://[sesame]/sesame",
        "https://example.com/ses\\ame",
        "sesame:sesame@example.com/sesame",
        "sesame",
        " https://example.com/sesame",
    ] {
        let refusal = any_port().target(url).unwrap_err();
        assert!(!refusal.to_string().contains("sesame"), "{url}: {refusal}");
    }
    let target = any_port().target("https://example.com/sesame").unwrap();
    assert_eq!(format!("{target:?}"), "Target(https://example.com/...)");
}

#[test]
fn ports_are_read_strictly() {
    assert_eq!(parse_ports("443,8443"), Ok(Ports::default()));
    assert_eq!(
        parse_ports(" 8443 , 443,443"),
        Ok(Ports::Only(vec![443, 8443]))
    );
    assert_eq!(parse_ports(" * "), Ok(Ports::AnyAllowed));
    for wrong in [
        "", "443,", "0", "65536", "+443", "-1", "https", "443;8443", "*,443",
    ] {
        assert!(parse_ports(wrong).is_err(), "{wrong}");
    }
    assert_eq!(parse_ports("443,x").unwrap_err(), "invalid port \"x\"");
}

#[test]
fn domains_are_stored_the_way_a_host_is() {
    assert_eq!(parse_domains(" "), Ok(vec![]));
    assert_eq!(
        parse_domains("Example.COM., bücher.example.com"),
        Ok(vec![
            "example.com".to_owned(),
            "xn--bcher-kva.example.com".to_owned()
        ])
    );
    for wrong in [
        "*.example.com",
        ".example.com",
        "8.8.8.8",
        "[::1]",
        "a b.com",
        "a/b",
    ] {
        assert!(parse_domains(wrong).is_err(), "{wrong}");
    }
}

/// Text that often gets past the first checks: the parts are drawn from what parsers disagree on.
fn url_like() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        "[a-zA-Z0-9-]{1,8}(\\.[a-zA-Z0-9-]{1,8}){1,3}\\.?",
        "[0-9x.]{1,12}",
        "[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}",
        "\\[[0-9a-f:.]{2,20}\\]",
        "\\PC{1,12}\\.com",
        "[a-z]{1,5}[@%#:;$'*`\"{}]{1,2}[a-z.]{1,5}",
    ];
    let port = prop_oneof![
        Just(String::new()),
        "[0-9]{0,5}".prop_map(|p| format!(":{p}"))
    ];
    let rest = prop_oneof![
        Just(String::new()),
        "[/?][a-z./%?&=+;'\"<>^`{|}~\\[\\]-]{0,20}",
        "[/?]\\PC{0,20}",
    ];
    let scheme = prop_oneof![
        Just("https://"),
        Just("http://"),
        Just("HTTPS://"),
        Just("https:/")
    ];
    (scheme, host, port, rest).prop_map(|(s, h, p, r)| format!("{s}{h}{p}{r}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn judging_never_panics_whatever_the_text(text in any::<String>(), tail in "\\PC*") {
        let _ = any_port().target(&text);
        let _ = any_port().target(&format!("https://{text}"));
        let _ = any_port().target(&format!("https://example.com{tail}"));
        let _ = parse_ports(&text);
        let _ = parse_domains(&text);
        let _ = parse_networks(&text);
    }

    #[test]
    fn an_accepted_url_is_accepted_again_unchanged(url in url_like()) {
        let boundary = Boundary { allow_http: true, ..any_port() };
        if let Ok(target) = boundary.target(&url) {
            prop_assert_eq!(boundary.target(target.url()), Ok(target.clone()));
            prop_assert!(target.url().is_ascii());
            prop_assert!(!target.url().bytes().any(|b| b <= b' ' || b == 0x7f));
            if let Host::Ip(ip) = target.host() {
                prop_assert!(boundary.vet(*ip).is_ok());
            }
        }
    }
}
