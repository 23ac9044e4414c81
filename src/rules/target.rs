//! The URL half of the SSRF boundary: parses a URL into a `Target`, or refuses it with a reason.
//!
//! Responsible for everything that can be told from the text: scheme, authority, port, host name,
//! IP literals. Refuses to resolve names: a name accepted here may still resolve to a denied
//! address, which `rules::address` judges when the connection is made. Once a `Target` exists
//! nobody looks at the text again. No message carries the path, the query or the userinfo: they
//! often hold a secret.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use url::Url;

use super::address::{Boundary, Ports};
use super::host_name;
use super::refusal::refuse;

pub use super::host_name::parse_domains;
pub use super::refusal::{Reason, Refusal};

/// The longest URL accepted, in bytes, both as given and in its canonical form.
const MAX_URL: usize = 2048;

impl Boundary {
    /// Judges a URL. The raw text comes first, because the parser silently repairs what other
    /// parsers read differently: it drops TAB, CR and LF, trims blanks, takes `\` for `/`, and
    /// skips extra slashes and an empty userinfo.
    pub fn target(&self, url: &str) -> Result<Target, Refusal> {
        let (scheme, authority) = check_raw_text(url)?;
        let parsed = Url::parse(url).map_err(|error| {
            // The parser's words are fixed texts and never quote the URL.
            Refusal::new(Reason::ParseError, format!("URL does not parse: {error}"))
        })?;
        if scheme == Scheme::Http && !self.allow_http {
            return refuse(Reason::HttpNotAllowed, "scheme http is not allowed");
        }
        check_userinfo_and_fragment(url, authority)?;
        let port = self.check_port(&parsed)?;
        let (parsed, host) = self.check_host(parsed, authority)?;
        if parsed.as_str().len() > MAX_URL {
            return too_long();
        }
        Ok(Target {
            url: parsed.into(),
            host,
            port,
            scheme,
        })
    }

    fn check_port(&self, parsed: &Url) -> Result<u16, Refusal> {
        let port = parsed.port_or_known_default().unwrap_or(0);
        let permitted = match &self.ports {
            Ports::AnyAllowed => !BAD_PORTS.contains(&port),
            Ports::Only(list) => list.contains(&port),
        };
        if port == 0 || !permitted {
            return refuse(
                Reason::PortNotAllowed,
                format!("port {port} is not allowed"),
            );
        }
        Ok(port)
    }

    /// Judges the host and takes the trailing dot off the URL.
    fn check_host(&self, mut parsed: Url, authority: &str) -> Result<(Url, Host), Refusal> {
        let name = match parsed.host() {
            Some(url::Host::Domain(name)) => name.to_owned(),
            Some(url::Host::Ipv4(v4)) => {
                let host = self.check_literal(v4.into(), &parsed)?;
                // Text that only some parsers read as this address (octal, hex, one number, other
                // digits, a trailing dot) means another host to the next parser.
                let (text, _) = authority.split_once(':').unwrap_or((authority, ""));
                if text != v4.to_string() {
                    return refuse(
                        Reason::NoncanonicalIp,
                        format!("IPv4 address is not written as \"{v4}\""),
                    );
                }
                return Ok((parsed, host));
            }
            Some(url::Host::Ipv6(v6)) => {
                let host = self.check_literal(v6.into(), &parsed)?;
                return Ok((parsed, host));
            }
            None => return refuse(Reason::ParseError, "URL has no host"),
        };
        // One trailing dot only says that the name is absolute, which it is anyway. It goes here,
        // because TLS libraries differ on it.
        let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
        host_name::check(&name)?;
        let on = |list: &[String]| list.iter().any(|domain| host_name::within(&name, domain));
        if on(&self.denied_domains) {
            return refuse(
                Reason::DomainDenied,
                format!("host name \"{name}\" is in a denied domain"),
            );
        }
        if !self.allowed_domains.is_empty() && !on(&self.allowed_domains) {
            return refuse(
                Reason::DomainNotAllowed,
                format!("host name \"{name}\" is not in an allowed domain"),
            );
        }
        if parsed.set_host(Some(&name)).is_err() {
            return refuse(Reason::HostInvalid, "host name is not valid");
        }
        Ok((parsed, Host::Name(name)))
    }

    fn check_literal(&self, ip: IpAddr, url: &Url) -> Result<Host, Refusal> {
        let port = url.port_or_known_default().unwrap_or(0);
        self.vet_socket(SocketAddr::new(ip, port))
            .map_err(|denied| {
                Refusal::new(
                    Reason::AddressDenied,
                    format!("address {ip} is denied: {denied}"),
                )
            })?;
        if !self.allowed_domains.is_empty() {
            return refuse(
                Reason::DomainNotAllowed,
                format!("address {ip} is not in an allowed domain"),
            );
        }
        Ok(Host::Ip(ip))
    }
}

/// A URL that the boundary accepted. Its fields are private: there is no other way to make one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Canonical: lower-case ASCII host without a trailing dot, no default port, no userinfo, no
    /// fragment, everything else percent-encoded.
    url: String,
    host: Host,
    port: u16,
    scheme: Scheme,
}

impl Target {
    /// Where to connect, and for a name also the name TLS must prove.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, given or by default.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether TLS is spoken.
    pub fn https(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// The canonical URL. It may hold a secret in its path or query.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The value of the Host header: the host, and the port unless it is the default.
    pub fn authority(&self) -> String {
        let rest = &self.url[self.scheme.prefix().len()..];
        rest.split(['/', '?']).next().unwrap_or(rest).to_owned()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Target({}{}/...)",
            self.scheme.prefix(),
            self.authority()
        )
    }
}

/// The host of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name: lower-case ASCII, at least two labels, no trailing dot.
    Name(String),
    /// An address written into the URL, already vetted.
    Ip(IpAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn prefix(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }
}

/// Reads `webhook.allowed_ports`: ports separated by commas, or `*` for every port that is not on
/// the Fetch standard's list of bad ports.
pub fn parse_ports(text: &str) -> Result<Ports, String> {
    if text.trim() == "*" {
        return Ok(Ports::AnyAllowed);
    }
    let mut ports = Vec::new();
    for item in text.split(',').map(str::trim) {
        // `parse` alone takes "+443".
        let digits = item.bytes().all(|byte| byte.is_ascii_digit());
        match item.parse::<u16>() {
            Ok(port) if digits && port != 0 => ports.push(port),
            _ => return Err(format!("invalid port \"{item}\"")),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(Ports::Only(ports))
}

/// Everything that must be looked for before the parser repairs it. Returns the scheme and the
/// text between `://` and the path.
fn check_raw_text(url: &str) -> Result<(Scheme, &str), Refusal> {
    if url.chars().any(is_blank_or_invisible) {
        return refuse(
            Reason::ControlOrWhitespace,
            "URL contains a control, blank or invisible character",
        );
    }
    if url.contains('\\') {
        return refuse(Reason::Backslash, "URL contains a backslash");
    }
    if url.len() > MAX_URL {
        return too_long();
    }
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return refuse(Reason::ParseError, "URL has no scheme");
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        // The text is not quoted: in "user:password@host" it is the user.
        _ => return refuse(Reason::SchemeNotAllowed, "scheme of the URL is not allowed"),
    };
    match rest.strip_prefix("//") {
        Some(rest) if !rest.starts_with('/') => {
            Ok((scheme, rest.split(['/', '?', '#']).next().unwrap_or(rest)))
        }
        _ => refuse(
            Reason::MalformedAuthority,
            "URL does not start with scheme, two slashes and a host",
        ),
    }
}

fn check_userinfo_and_fragment(url: &str, authority: &str) -> Result<(), Refusal> {
    if authority.contains('@') {
        return refuse(Reason::UserinfoPresent, "URL contains credentials");
    }
    if authority.contains('%') {
        return refuse(Reason::PercentEncodedHost, "host is percent-encoded");
    }
    if url.contains('#') {
        return refuse(Reason::FragmentPresent, "URL contains a fragment");
    }
    Ok(())
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Characters that the parser drops or that a reader can't see. The joiners U+200C and U+200D and
/// the soft hyphen are left to the parser: some scripts and emoji need them in a path.
fn is_blank_or_invisible(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(
            c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        )
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn too_long<T>() -> Result<T, Refusal> {
    refuse(Reason::TooLong, format!("URL is over {MAX_URL} bytes"))
}

/// Fetch standard, "port blocking", with 4190 and 6679, the additions of 2024.
#[rustfmt::skip]
const BAD_PORTS: &[u16] = &[
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
];

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
