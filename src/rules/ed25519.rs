//! Asymmetric signing keys, ed25519 (RFC 8032), in the texts of Standard Webhooks: `whsk_` for a private key, `whpk_`
//! for a public one.
//!
//! The private half never leaves the database: [`KeyPair::parse`] and [`KeyPair::expose`] exist for receivers' tests
//! and for keys that are brought along. Nothing here throws dice or stores anything, and no error carries a key.

use std::error::Error;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

/// Bytes of a seed, and of a public key.
pub const LENGTH: usize = 32;

/// A private key with its public half; overwritten when dropped.
#[derive(Clone)]
pub struct KeyPair(SigningKey);

impl KeyPair {
    /// The pair that these random bytes make.
    pub fn from_seed(seed: &[u8; LENGTH]) -> KeyPair {
        KeyPair(SigningKey::from_bytes(seed))
    }

    /// The pair of a seed as it is stored.
    pub fn from_slice(seed: &[u8]) -> Result<KeyPair, KeyError> {
        let seed = Zeroizing::new(<[u8; LENGTH]>::try_from(seed).map_err(|_| KeyError::Length)?);
        Ok(KeyPair::from_seed(&seed))
    }

    /// Reads `whsk_` and the base64 of the seed, followed by the public key or not; nothing is repaired, and a public
    /// key that is not the seed's is refused: signing with a wrong one gives the private key away.
    pub fn parse(text: &str) -> Result<KeyPair, KeyError> {
        let encoded = text.strip_prefix(PRIVATE).ok_or(KeyError::Encoding)?;
        if encoded.len() > 88 {
            return Err(KeyError::Length);
        }
        let mut buffer = Zeroizing::new([0; 66]);
        let length = STANDARD
            .decode_slice(encoded, &mut buffer[..])
            .map_err(|_| KeyError::Encoding)?;
        let (seed, public) = match length {
            LENGTH => (&buffer[..LENGTH], None),
            64 => (&buffer[..LENGTH], Some(&buffer[LENGTH..64])),
            _ => return Err(KeyError::Length),
        };
        let pair = KeyPair::from_slice(seed)?;
        match public {
            Some(public) if public != pair.0.verifying_key().as_bytes() => Err(KeyError::Mismatch),
            _ => Ok(pair),
        }
    }

    /// The seed, for storing it.
    pub fn seed(&self) -> Zeroizing<[u8; LENGTH]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The text of the private key.
    pub fn expose(&self) -> Zeroizing<String> {
        let bytes = Zeroizing::new(self.0.to_keypair_bytes());
        // As long as it becomes: a growing text would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(PRIVATE.len() + 88));
        text.push_str(PRIVATE);
        STANDARD.encode_string(&bytes[..], &mut text);
        text
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// The signature of a text.
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.0.sign(text).to_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

/// The half of a pair that everybody may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads `whpk_` and the base64 of the key.
    pub fn parse(text: &str) -> Result<PublicKey, KeyError> {
        let encoded = text.strip_prefix(PUBLIC).ok_or(KeyError::Encoding)?;
        if encoded.len() > 44 {
            return Err(KeyError::Length);
        }
        let mut buffer = [0; 33];
        let length = STANDARD
            .decode_slice(encoded, &mut buffer)
            .map_err(|_| KeyError::Encoding)?;
        PublicKey::from_slice(&buffer[..length])
    }

    /// The key with these bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<PublicKey, KeyError> {
        let bytes = bytes.try_into().map_err(|_| KeyError::Length)?;
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::Point)?;
        // Under a key of small order some signatures hold for every text.
        if key.is_weak() {
            return Err(KeyError::Point);
        }
        Ok(PublicKey(key))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; LENGTH] {
        self.0.as_bytes()
    }

    /// The text that receivers get.
    pub fn expose(&self) -> String {
        format!("{PUBLIC}{}", STANDARD.encode(self.0.as_bytes()))
    }

    /// Whether a signature is of this text. Strict: one text has one signature, which nobody can rewrite into another.
    pub fn verify(&self, text: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_strict(text, &signature).is_ok())
    }
}

/// Why a text is no key; the text stays out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Without its prefix, or not standard base64 with padding.
    Encoding,
    /// Not 32 bytes, nor, of a private key, 64.
    Length,
    /// The public half does not belong to the private one.
    Mismatch,
    /// No point of the curve, or one of small order.
    Point,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoding => {
                "key is not \"whsk_\" or \"whpk_\" followed by standard base64 with padding"
            }
            Self::Length => "key does not have the length of an ed25519 key",
            Self::Mismatch => "public half of the key does not belong to its private half",
            Self::Point => "public key is no ed25519 key",
        })
    }
}

impl Error for KeyError {}

const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_pair_never_shows_itself() {
        let pair = KeyPair::from_seed(&[7; 32]);
        assert_eq!(format!("{pair:?}"), "KeyPair(..)");
    }

    #[test]
    fn keys_of_small_order_and_points_off_the_curve_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        // y = 2 belongs to no point.
        let mut off = [0; 32];
        off[0] = 2;
        for bytes in [identity, [0; 32], off] {
            assert_eq!(PublicKey::from_slice(&bytes).unwrap_err(), KeyError::Point);
        }
        for text in ["whpk_", "whpk_AAAA", "AAAA", "whsk_AAAA", "whpk_%"] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn texts_round_trip(seed: [u8; 32]) {
            let pair = KeyPair::from_seed(&seed);
            let again = KeyPair::parse(&pair.expose()).unwrap();
            prop_assert_eq!(&*again.seed(), &seed);
            prop_assert_eq!(PublicKey::parse(&pair.public().expose()).unwrap(), pair.public());
        }

        #[test]
        fn a_changed_text_or_signature_is_never_accepted(
            seed: [u8; 32], mut text in proptest::collection::vec(any::<u8>(), 1..60), at: prop::sample::Index, bit in 0u8..8,
        ) {
            let pair = KeyPair::from_seed(&seed);
            let mut signature = pair.sign(&text);
            prop_assert!(pair.public().verify(&text, &signature));
            let in_signature = at.index(64);
            signature[in_signature] ^= 1 << bit;
            prop_assert!(!pair.public().verify(&text, &signature));
            signature[in_signature] ^= 1 << bit;
            let in_text = at.index(text.len());
            text[in_text] ^= 1 << bit;
            prop_assert!(!pair.public().verify(&text, &signature));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,100}") {
            let _ = KeyPair::parse(&text);
            let _ = KeyPair::parse(&format!("whsk_{text}"));
            let _ = PublicKey::parse(&format!("whpk_{text}"));
        }
    }
}
