//! Names that users give (event types, partners, patterns of event types), and which type a pattern matches.
//!
//! Names end up in headers, logs and index keys, so they are short ASCII. This file knows names only: it looks
//! at no event and no endpoint.

/// Whether an endpoint that asks for `pattern` gets events of the type `kind`.
///
/// A pattern is an exact name, a prefix with everything below it at any depth (`customer.*`), or `*`: every
/// type but `webhook.*`. Lifecycle and test events must be asked for by name: an endpoint that wants
/// everything of the business wants nothing about the webhooks themselves.
pub fn type_matches(pattern: &str, kind: &str) -> bool {
    if pattern == "*" {
        return !kind.starts_with("webhook.");
    }
    match pattern.strip_suffix(".*") {
        Some(prefix) => kind
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|rest| !rest.is_empty()),
        None => pattern == kind,
    }
}

/// Whether `name` may be an event type: 1-128 of `A-Za-z0-9_-`, in non-empty parts separated by full stops.
pub fn valid_type(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.split('.').all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        })
}

/// Whether `pattern` may stand in the event types of an endpoint: `*`, an event type, or one followed by `.*`.
pub fn valid_pattern(pattern: &str) -> bool {
    pattern == "*"
        || pattern.len() <= MAX_NAME && valid_type(pattern.strip_suffix(".*").unwrap_or(pattern))
}

/// Whether `name` may be a partner id: 1-128 of `A-Za-z0-9_.:-`. See [`reserved_partner`], too.
pub fn valid_partner(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

/// Whether the partner id is one of ours (`_operator`): a leading `_` is not for users.
pub fn reserved_partner(name: &str) -> bool {
    name.starts_with('_')
}

const MAX_NAME: usize = 128;

/// Whether a text is a W3C `traceparent` of version 00 (Trace Context section 3.2): lower-case hex,
/// neither id all zero. It is sent as a header, so nothing else may pass.
pub fn valid_traceparent(text: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let id = |part: &str, length: usize| hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.split('-').collect();
    matches!(parts.as_slice(), ["00", trace, parent, flags]
        if id(trace, 32) && id(parent, 16) && hex(flags, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, kind, expected) in [
            ("customer.created", "customer.created", true),
            ("customer.created", "customer.create", false),
            ("customer.created", "Customer.created", false),
            ("customer.created", "customer.created.v2", false),
            ("customer.*", "customer.created", true),
            ("customer.*", "customer.address.changed", true),
            ("customer.*", "customer", false),
            ("customer.*", "customer.", false),
            ("customer.*", "customers.created", false),
            ("customer.*", "my.customer.created", false),
            ("customer.address.*", "customer.address.changed", true),
            ("customer.address.*", "customer.created", false),
            ("*", "customer.created", true),
            ("*", "webhook", true),
            ("*", "webhooks.x", true),
            ("*", "webhook.test", false),
            ("*", "webhook.endpoint.disabled", false),
            ("webhook.*", "webhook.test", true),
            ("webhook.test", "webhook.test", true),
        ] {
            assert_eq!(type_matches(pattern, kind), expected, "{pattern} {kind}");
        }
    }

    #[test]
    fn event_types_are_short_dotted_ascii_names() {
        for name in ["a", "customer.created", "A-1_b.c", &"a".repeat(128)] {
            assert!(valid_type(name), "{name}");
            assert!(valid_pattern(name), "{name}");
        }
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a*",
            "*",
            "a.*",
            "a\n",
            "é",
            "a/b",
            "a:b",
            &"a".repeat(129),
        ] {
            assert!(!valid_type(name), "{name}");
        }
    }

    #[test]
    fn a_wildcard_stands_alone_or_last() {
        for pattern in ["*", "a.*", "a.b.*"] {
            assert!(valid_pattern(pattern), "{pattern}");
        }
        for pattern in ["", "**", ".*", "a*", "*.a", "a.*.b", "a.*.*", "a..*", " *"] {
            assert!(!valid_pattern(pattern), "{pattern}");
        }
        assert!(valid_pattern(&format!("{}.*", "a".repeat(126))));
        assert!(!valid_pattern(&format!("{}.*", "a".repeat(127))));
    }

    #[test]
    fn partner_ids_are_short_ascii_names_and_a_leading_underscore_is_reserved() {
        for name in ["a", "acme:eu-1", "_operator", "1.2", &"p".repeat(128)] {
            assert!(valid_partner(name), "{name}");
        }
        for name in ["", "a b", "a/b", "é", "a\0", &"p".repeat(129)] {
            assert!(!valid_partner(name), "{name}");
        }
        assert!(reserved_partner("_operator"));
        assert!(!reserved_partner("operator_"));
    }

    proptest! {
        #[test]
        fn a_prefix_pattern_matches_everything_below_it(
            prefix in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}", rest in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}",
        ) {
            let pattern = format!("{prefix}.*");
            let kind = format!("{prefix}.{rest}");
            prop_assert!(type_matches(&pattern, &kind));
            prop_assert!(!type_matches(&pattern, &prefix));
        }
    }

    #[test]
    fn a_traceparent_is_accepted_only_in_its_exact_form() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(valid_traceparent(good));
        for bad in [
            "",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx: y",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert!(!valid_traceparent(bad), "{bad:?}");
        }
    }
}
