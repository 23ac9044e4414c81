//! Headers that an operator adds to an endpoint's requests: which names and values may be sent.
//!
//! A header that says where a request goes, how it is framed, what it is or who signed it is never the operator's.

use std::fmt;

/// Headers per endpoint.
pub const MOST: usize = 20;
/// Bytes of a name.
pub const LONGEST_NAME: usize = 64;
/// Bytes of a value.
pub const LONGEST_VALUE: usize = 2048;

/// Names that are ours, of the connection or of a signature.
const RESERVED: [&str; 25] = [
    "accept-encoding",
    "connection",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "range",
    "signature",
    "signature-input",
    "stripe-signature",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-github-delivery",
    "x-hub-signature",
    "x-hub-signature-256",
    "x-shopify-hmac-sha256",
    "x-shopify-webhook-id",
];
/// Names that begin like this, too.
const RESERVED_PREFIXES: [&str; 6] = ["ce-", "content-", "proxy-", "sec-", "webhook-", "x-slack-"];

/// Why headers are refused. No fault carries a value: it may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More than [`MOST`].
    Many,
    /// Not a name of HTTP, or longer than [`LONGEST_NAME`].
    Name(String),
    /// A name that is not the operator's.
    Reserved(String),
    /// There already, in another case perhaps.
    Twice(String),
    /// The value of this header is empty, too long, or has characters other than visible ASCII and blanks inside.
    Value(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Many => write!(f, "more than {MOST} headers"),
            Self::Name(name) => write!(f, "\"{name}\" is no name of a header"),
            Self::Reserved(name) => write!(f, "the header \"{name}\" is reserved"),
            Self::Twice(name) => write!(f, "the header \"{name}\" is named twice"),
            Self::Value(name) => write!(f, "the value of the header \"{name}\" cannot be sent"),
        }
    }
}

/// Refuses headers that cannot be sent, or may not be.
pub fn check<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), Fault> {
    let mut names: Vec<String> = Vec::new();
    for (name, value) in headers {
        if names.len() == MOST {
            return Err(Fault::Many);
        }
        let shown = || name.chars().take(LONGEST_NAME).collect();
        if !is_token(name) || name.len() > LONGEST_NAME {
            return Err(Fault::Name(shown()));
        }
        let lower = name.to_ascii_lowercase();
        if reserved(&lower) {
            return Err(Fault::Reserved(shown()));
        }
        if names.contains(&lower) {
            return Err(Fault::Twice(shown()));
        }
        let sendable = (1..=LONGEST_VALUE).contains(&value.len())
            && value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
            // What stands at the ends is not part of a value (RFC 9110, section 5.5).
            && value.trim_matches([' ', '\t']).len() == value.len();
        if !sendable {
            return Err(Fault::Value(shown()));
        }
        names.push(lower);
    }
    Ok(())
}

/// Whether a name, in lower case, is not the operator's.
fn reserved(lower: &str) -> bool {
    RESERVED.contains(&lower)
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| lower.starts_with(prefix))
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::profile::Profile;

    #[test]
    fn names_of_ours_and_of_the_connection_are_reserved_in_any_case() {
        for name in [
            "Host",
            "CONTENT-LENGTH",
            "Content-Type",
            "transfer-encoding",
            "Webhook-Id",
            "webhook-anything",
            "ce-id",
            "Signature",
            "Signature-Input",
            "Traceparent",
            "Connection",
            "Proxy-Authorization",
            "User-Agent",
            "X-Slack-Signature",
        ] {
            assert_eq!(check([(name, "x")]), Err(Fault::Reserved(name.to_owned())));
        }
        for profile in Profile::ALL {
            for &name in profile.names() {
                assert_eq!(
                    check([(name, "x")]),
                    Err(Fault::Reserved(name.to_owned())),
                    "{name}"
                );
            }
        }
        assert_eq!(
            check([("Authorization", "Bearer a"), ("X-Tenant", "7")]),
            Ok(())
        );
    }

    #[test]
    fn a_name_counts_once_whatever_its_case() {
        assert_eq!(
            check([("X-A", "1"), ("x-a", "1")]),
            Err(Fault::Twice("x-a".to_owned()))
        );
    }

    #[test]
    fn what_could_start_another_header_is_refused_and_never_quoted() {
        for value in [
            "",
            " a",
            "a ",
            "a\r\nx: y",
            "a\nb",
            "a\0",
            "é",
            &"a".repeat(2049),
        ] {
            let fault = check([("X-A", value)]).unwrap_err();
            assert_eq!(fault, Fault::Value("X-A".to_owned()));
            assert_eq!(
                fault.to_string(),
                "the value of the header \"X-A\" cannot be sent"
            );
        }
        for name in ["", "a b", "a:", "é", "a\r\nb", &"a".repeat(65)] {
            assert!(
                matches!(check([(name, "x")]), Err(Fault::Name(_))),
                "{name}"
            );
        }
        let many: Vec<String> = (0..21).map(|n| format!("x-{n}")).collect();
        assert_eq!(
            check(many.iter().map(|name| (name.as_str(), "x"))),
            Err(Fault::Many)
        );
        assert_eq!(
            check(many.iter().take(20).map(|name| (name.as_str(), "x"))),
            Ok(())
        );
    }

    proptest! {
        #[test]
        fn what_passes_is_one_clean_header_line(name in ".{0,20}", value in ".{0,20}") {
            if check([(name.as_str(), value.as_str())]).is_ok() {
                let line = format!("{name}: {value}");
                prop_assert!(line.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
                prop_assert!(!name.contains([':', ' ']));
            }
        }
    }
}
