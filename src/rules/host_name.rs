//! The names a URL may not use as its host, and the form a host name must have.
//!
//! Responsible for what can be told from a name alone. Refuses to resolve it: public names that
//! answer with a private address (localtest.me, nip.io) pass here and are caught by the address.

use super::refusal::{Reason, Refusal, refuse};

/// Reads `webhook.allowed_domains` and `webhook.denied_domains`: names separated by commas; each also stands for its
/// subdomains. Names are stored the way a URL's host is.
pub fn parse_domains(text: &str) -> Result<Vec<String>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let Ok(url::Host::Domain(name)) = url::Host::parse(item) else {
                return Err(format!("invalid domain \"{item}\""));
            };
            let name = name.strip_suffix('.').unwrap_or(&name);
            check_labels(name)
                .map(|()| name.to_owned())
                .map_err(|_| format!("invalid domain \"{item}\""))
        })
        .collect()
}

/// Judges a name by itself. The answers of DNS would be refused for most of these as well; saying
/// so at once is kinder, and a hosts file or a search domain can't open what is refused here.
pub(super) fn check(name: &str) -> Result<(), Refusal> {
    let refuse_name = |reason, what: &str| refuse(reason, format!("host name \"{name}\" {what}"));
    if within(name, "localhost") {
        return refuse_name(Reason::HostLocalhost, "means the local host");
    }
    if INTERNAL.iter().any(|domain| within(name, domain)) {
        return refuse_name(Reason::HostInternal, "is in an internal domain");
    }
    // A bare "intranet" is a single label first of all: some search domain may complete it.
    let dotted = name.contains('.');
    if dotted && SPECIAL_USE.iter().any(|domain| within(name, domain)) {
        return refuse_name(Reason::HostSpecialUse, "is in a special-use domain");
    }
    if METADATA.iter().any(|domain| within(name, domain)) {
        return refuse_name(Reason::HostMetadata, "belongs to a metadata service");
    }
    check_labels(name)?;
    if !dotted {
        return refuse_name(Reason::HostSingleLabel, "is a single label");
    }
    Ok(())
}

/// What DNS and TLS can carry; the parser lets more through.
pub(super) fn check_labels(name: &str) -> Result<(), Refusal> {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    for label in name.split('.') {
        let hyphened = label.starts_with('-') || label.ends_with('-');
        if label.is_empty() || hyphened || !label.bytes().all(plain) {
            return refuse(Reason::HostInvalid, "host name is not valid");
        }
    }
    if name.len() > 253 || name.split('.').any(|label| label.len() > 63) {
        return refuse(Reason::HostTooLong, "host name is too long");
    }
    Ok(())
}

/// Whether `name` is `domain` or below it, label by label.
pub(super) fn within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Private by registration (RFC 6762, RFC 8375, ICANN in 2024 for .internal) and alive in most
/// networks.
const INTERNAL: &[&str] = &["internal", "local", "home.arpa"];

/// The IANA special-use domain names (all of .arpa is infrastructure, RFC 3172), then what RFC 6762
/// appendix G, ICANN's name collision reports, hosts files and cluster DNS know as private.
#[rustfmt::skip]
const SPECIAL_USE: &[&str] = &[
    "alt", "arpa", "example", "invalid", "onion", "test",
    "corp", "home", "intranet", "lan", "mail", "private",
    "localdomain", "localdomain4", "localdomain6", "svc",
];

/// Public names whose answer is a link-local metadata address.
const METADATA: &[&str] = &[
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "api.metadata.cloud.ibm.com",
];
