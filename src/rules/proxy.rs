//! The egress proxy, as the operator names it: where it listens, and what it wants to be told.
//!
//! Refuses to judge where it is: it is the operator's own machine, so the boundary does not hold for it. No
//! message quotes what was written, which may hold a password.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::host_name;

/// More is no line with a name and a password.
const MAX_CREDENTIALS: usize = 1024;

/// A proxy that speaks HTTP and tunnels by CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// A name, or an address without brackets. A name is looked up as the system does it: it may be in a
    /// hosts file or a search domain.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What it is told about who asks.
    pub credentials: Option<Credentials>,
}

/// Reads `webhook.proxy`: `http://host:port`, or nothing.
pub fn parse_proxy(text: &str) -> Result<Option<Proxy>, String> {
    const FORM: &str = "the proxy is written http://host:port";
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if text.contains('@') {
        return Err(
            "credentials would be shown and logged here; write them into the file that \
             webhook.proxy_credentials_file names"
                .to_owned(),
        );
    }
    let (host, port) = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http"))
        .map(|(_, rest)| rest.strip_suffix('/').unwrap_or(rest))
        .and_then(|authority| authority.rsplit_once(':'))
        .ok_or(FORM)?;
    // `parse` alone takes "+3128".
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|port| digits && *port != 0)
        .ok_or("the port of the proxy is not valid")?;
    let host = match url::Host::parse(host) {
        Ok(url::Host::Domain(name)) if host_name::check_labels(&name).is_ok() => name,
        Ok(url::Host::Ipv4(v4)) if v4.to_string() == host => v4.to_string(),
        Ok(url::Host::Ipv6(v6)) => v6.to_string(),
        _ => return Err("the host of the proxy is not valid".to_owned()),
    };
    Ok(Some(Proxy {
        host,
        port,
        credentials: None,
    }))
}

/// Name and password for a proxy; shown to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(Zeroizing<String>);

impl Credentials {
    /// Reads the one line `name:password`.
    pub fn parse(bytes: &[u8]) -> Result<Credentials, String> {
        const FORM: &str = "proxy credentials are one line, name:password";
        let text = std::str::from_utf8(bytes).map_err(|_| "proxy credentials are not UTF-8")?;
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.len() > MAX_CREDENTIALS || !line.contains(':') || line.chars().any(char::is_control)
        {
            return Err(FORM.to_owned());
        }
        Ok(Credentials(Zeroizing::new(STANDARD.encode(line))))
    }

    /// The value of Proxy-Authorization (RFC 7617).
    pub fn basic(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("Basic {}", *self.0))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_strictly() {
        for (text, expected) in [
            ("http://squid:3128", Some(("squid", 3128))),
            (
                " HTTP://Proxy.Corp.Example:80/ ",
                Some(("proxy.corp.example", 80)),
            ),
            ("http://10.0.0.1:8080", Some(("10.0.0.1", 8080))),
            ("http://[fd00::1]:8080", Some(("fd00::1", 8080))),
            ("", None),
            ("  ", None),
        ] {
            let read = parse_proxy(text).unwrap();
            let read = read.as_ref().map(|proxy| (proxy.host.as_str(), proxy.port));
            assert_eq!(read, expected, "{text}");
        }
        for wrong in [
            "squid:3128",
            "https://squid:3128",
            "socks5://squid:1080",
            "http://squid",
            "http://squid:",
            "http://squid:0",
            "http://squid:+80",
            "http://squid:65536",
            "http://:3128",
            "http://squid:3128/path",
            "http://squid:3128?x",
            "http://squid:3128#x",
            "http://squid:3128//",
            "http://a b:3128",
            "http://a\r\nb:3128",
            "http://127.1:3128",
            "http://0x7f000001:3128",
            "http://fd00::1:8080",
            "http://squid/:3128",
            "http://squid\\:3128",
            "direct",
        ] {
            assert!(parse_proxy(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_message_shows_what_was_written() {
        for text in [
            "http://sesame:sesame@squid:3128",
            "sesame@squid",
            "http://squid:sesame",
            "sesame://squid:1",
            "http://sesame sesame:1",
        ] {
            let why = parse_proxy(text).unwrap_err();
            assert!(!why.contains("sesame"), "{why}");
        }
        let why = Credentials::parse(b"sesame").unwrap_err();
        assert!(!why.contains("sesame"), "{why}");
        let shown = format!("{:?}", Credentials::parse(b"user:sesame").unwrap());
        assert!(
            !shown.contains("sesame") && !shown.contains("dXNlc"),
            "{shown}"
        );
    }

    #[test]
    fn credentials_are_one_line_with_a_colon() {
        let basic = |text: &str| Credentials::parse(text.as_bytes()).map(|c| c.basic().to_string());
        // The example of RFC 7617, section 2.
        let expected = Ok("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned());
        assert_eq!(basic("Aladdin:open sesame"), expected);
        assert_eq!(basic("Aladdin:open sesame\n"), expected);
        assert_eq!(basic("Aladdin:open sesame\r\n"), expected);
        assert!(basic("a:b:c").is_ok() && basic(":").is_ok());
        for wrong in ["", "\n", "name", "a:b\nc:d", "a:b\n\n", "a:\0", "a:b\u{7f}"] {
            assert!(basic(wrong).is_err(), "{wrong:?}");
        }
        assert!(Credentials::parse(b"a:\xff").is_err());
        assert!(basic(&format!("a:{}", "x".repeat(2000))).is_err());
    }
}
