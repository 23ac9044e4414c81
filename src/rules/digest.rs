//! `Content-Digest` (RFC 9530): the digests of a body, written and checked.
//!
//! Of the registered algorithms the two that are not deprecated. A digest says that the body is whole; who made it, a
//! signature that covers the header says, and nothing else: a digest alone verifies nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use sha2::{Digest, Sha256, Sha512};

/// An algorithm of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The algorithm with this key of the registry, which is lower case; none for those that are deprecated.
    pub fn parse(key: &str) -> Option<Algorithm> {
        match key {
            "sha-256" => Some(Self::Sha256),
            "sha-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }

    fn digest(self, body: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(body).to_vec(),
            Self::Sha512 => Sha512::digest(body).to_vec(),
        }
    }
}

/// The value of the header.
pub fn content_digest(body: &[u8], algorithms: &[Algorithm]) -> String {
    let members: Vec<String> = algorithms
        .iter()
        .map(|algorithm| {
            format!(
                "{}=:{}:",
                algorithm.key(),
                STANDARD.encode(algorithm.digest(body))
            )
        })
        .collect();
    members.join(", ")
}

/// Whether the header fits the body: it holds a digest that we know, and each of those that we know fits.
pub fn fits(header: &str, body: &[u8]) -> bool {
    let Ok(dictionary) = Parser::new(header).parse::<Dictionary>() else {
        return false;
    };
    let mut known = dictionary
        .iter()
        .filter_map(|(key, entry)| Some((Algorithm::parse(key.as_str())?, entry)))
        .peekable();
    known.peek().is_some()
        && known.all(|(algorithm, entry)| match entry {
            ListEntry::Item(item) => match &item.bare_item {
                BareItem::ByteSequence(bytes) => *bytes == algorithm.digest(body),
                _ => false,
            },
            ListEntry::InnerList(_) => false,
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_digest_that_nobody_knows_or_that_is_wrong_fits_nothing() {
        let right = content_digest(b"{}", &[Algorithm::Sha256]);
        assert!(fits(&right, b"{}"));
        assert!(fits(&format!("md5=:AAAA:, {right}"), b"{}"));
        for header in [
            "",
            "md5=:mZFLkyvTelC5g8XnyQrpOw==:",
            "sha-256=1",
            "sha-256",
            "sha-256=(:AA==:)",
            "sha-256=:AA==:",
            "%",
        ] {
            assert!(!fits(header, b"{}"), "{header}");
        }
        assert!(!fits(&format!("{right}, sha-512=:AA==:"), b"{}"));
    }

    proptest! {
        #[test]
        fn a_digest_fits_its_body_and_no_other(body in proptest::collection::vec(any::<u8>(), 0..60), more: u8) {
            for algorithms in [&[Algorithm::Sha256][..], &[Algorithm::Sha512, Algorithm::Sha256]] {
                let header = content_digest(&body, algorithms);
                prop_assert!(fits(&header, &body));
                let mut other = body.clone();
                other.push(more);
                prop_assert!(!fits(&header, &other));
            }
        }

        #[test]
        fn no_header_makes_the_check_panic(header in ".{0,60}") {
            let _ = fits(&header, b"");
        }
    }
}
