//! Why a URL was refused: a code for programs and one line for people.
//!
//! Responsible for the vocabulary only. Refuses to decide, and holds no part of the URL that could
//! be a secret.

use std::fmt;

/// Why a URL was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub reason: Reason,
    /// One line for the operator and the tenant, without path, query or userinfo.
    pub detail: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}

/// The codes of a refusal, in the order in which they are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The text has a control, blank or invisible character.
    ControlOrWhitespace,
    /// The text has a backslash.
    Backslash,
    /// The URL is over 2048 bytes.
    TooLong,
    /// The scheme is neither https nor http.
    SchemeNotAllowed,
    /// The text is not `scheme://host`.
    MalformedAuthority,
    /// It is no URL.
    ParseError,
    /// Clear-text http, which the operator did not allow.
    HttpNotAllowed,
    /// Credentials, even empty ones.
    UserinfoPresent,
    /// The host is percent-encoded.
    PercentEncodedHost,
    /// A fragment, even an empty one.
    FragmentPresent,
    /// Port 0, or a port that is not allowed.
    PortNotAllowed,
    /// An IP literal that the boundary denies.
    AddressDenied,
    /// A public IPv4 address in an unusual spelling.
    NoncanonicalIp,
    /// localhost and below.
    HostLocalhost,
    /// .internal, .local, .home.arpa.
    HostInternal,
    /// Other names that are never public.
    HostSpecialUse,
    /// The public name of a metadata service.
    HostMetadata,
    /// A single label.
    HostSingleLabel,
    /// An empty label, a hyphen at a label's end, or a character outside a-z 0-9 - _ .
    HostInvalid,
    /// A label over 63 or a name over 253 bytes.
    HostTooLong,
    /// On the operator's list of denied domains.
    DomainDenied,
    /// Outside the operator's list of allowed domains.
    DomainNotAllowed,
}

impl Reason {
    /// The code as stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlOrWhitespace => "control_or_whitespace",
            Self::Backslash => "backslash",
            Self::TooLong => "too_long",
            Self::SchemeNotAllowed => "scheme_not_allowed",
            Self::MalformedAuthority => "malformed_authority",
            Self::ParseError => "parse_error",
            Self::HttpNotAllowed => "http_not_allowed",
            Self::UserinfoPresent => "userinfo_present",
            Self::PercentEncodedHost => "percent_encoded_host",
            Self::FragmentPresent => "fragment_present",
            Self::PortNotAllowed => "port_not_allowed",
            Self::AddressDenied => "address_denied",
            Self::NoncanonicalIp => "noncanonical_ip",
            Self::HostLocalhost => "host_localhost",
            Self::HostInternal => "host_internal",
            Self::HostSpecialUse => "host_special_use",
            Self::HostMetadata => "host_metadata",
            Self::HostSingleLabel => "host_single_label",
            Self::HostInvalid => "host_invalid",
            Self::HostTooLong => "host_too_long",
            Self::DomainDenied => "domain_denied",
            Self::DomainNotAllowed => "domain_not_allowed",
        }
    }
}

/// A refusal as the result of a check.
pub(super) fn refuse<T>(reason: Reason, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail))
}
