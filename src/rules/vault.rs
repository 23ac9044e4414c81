//! Keys at rest: how a signing or seal key is stored, in clear or under a master key that is not in the database.
//!
//! XChaCha20-Poly1305: its nonce of 24 bytes may be drawn at random. The associated data says which row the key
//! belongs to, so that a ciphertext opens in its own row only. The nonce is an argument; files are read elsewhere.
//! No error carries key material.

use std::error::Error;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::rules::signing::Algorithm;

/// Bytes of a nonce.
pub const NONCE: usize = 24;
/// Bytes of the id of a master key.
const ID: usize = 8;
/// Bytes of an authentication tag.
const TAG: usize = 16;
/// Master keys in one file.
const MOST: usize = 16;
/// First byte of a key stored in clear.
const CLEAR: u8 = 0;
/// First byte of a key stored as master key id, nonce, ciphertext and tag.
const ENCRYPTED: u8 = 1;

/// The row that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A signing key of an endpoint.
    Signing {
        /// Id of the key.
        key_id: i64,
        /// Its endpoint.
        endpoint_id: i64,
    },
    /// The private key of a pair of an endpoint.
    Pair {
        /// Id of the key.
        key_id: i64,
        /// Its endpoint.
        endpoint_id: i64,
    },
    /// A key that an inbox source is verified with.
    Inbox {
        /// Id of the key.
        key_id: i64,
        /// Its source.
        source_id: i64,
    },
    /// A key that seals events.
    Seal {
        /// Id of the key.
        key_id: i64,
        /// The origin it seals for.
        origin: i64,
    },
}

impl Place {
    /// The place of an endpoint's key of this kind.
    pub const fn of_endpoint(algorithm: Algorithm, key_id: i64, endpoint_id: i64) -> Place {
        match algorithm {
            Algorithm::HmacSha256 => Self::Signing {
                key_id,
                endpoint_id,
            },
            Algorithm::Ed25519 => Self::Pair {
                key_id,
                endpoint_id,
            },
        }
    }

    /// Id of the key.
    pub const fn key_id(self) -> i64 {
        match self {
            Self::Signing { key_id, .. }
            | Self::Pair { key_id, .. }
            | Self::Inbox { key_id, .. }
            | Self::Seal { key_id, .. } => key_id,
        }
    }

    fn associated_data(self) -> Vec<u8> {
        let (kind, key_id, owner) = match self {
            Self::Signing {
                key_id,
                endpoint_id,
            } => (&b"signing"[..], key_id, endpoint_id),
            // A label of its own: the bytes of one kind of key, which a receiver may hold, must never serve as the other.
            Self::Pair {
                key_id,
                endpoint_id,
            } => (&b"ed25519"[..], key_id, endpoint_id),
            Self::Inbox { key_id, source_id } => (&b"inbox"[..], key_id, source_id),
            Self::Seal { key_id, origin } => (&b"seal"[..], key_id, origin),
        };
        let mut data = b"webhook_outbox vault 1\n".to_vec();
        data.extend(kind);
        data.push(b'\n');
        data.extend(key_id.to_be_bytes());
        data.extend(owner.to_be_bytes());
        data
    }
}

struct MasterKey {
    id: [u8; ID],
    key: Zeroizing<[u8; 32]>,
}

impl MasterKey {
    fn new(key: Zeroizing<[u8; 32]>) -> MasterKey {
        let mut hash = Sha256::new();
        hash.update(b"webhook_outbox master key id 1\n");
        hash.update(&key[..]);
        let digest: [u8; 32] = hash.finalize().into();
        let mut id = [0; ID];
        id.copy_from_slice(&digest[..ID]);
        MasterKey { id, key }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(Key::from_slice(&self.key[..]))
    }
}

/// The master keys of a file: the first encrypts, all decrypt. Overwritten when dropped.
pub struct MasterKeys(Vec<MasterKey>);

impl MasterKeys {
    /// Reads lines of base64 (standard, padded) of 32 bytes each; nothing is repaired, nothing else may stand there
    /// but the last line's end.
    pub fn parse(text: &[u8]) -> Result<MasterKeys, KeyFileFault> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return Err(KeyFileFault::Empty);
        }
        let mut keys = Vec::new();
        for (line, encoded) in text.split(|byte| *byte == b'\n').enumerate() {
            if line == MOST {
                return Err(KeyFileFault::TooMany);
            }
            keys.push(read_key(encoded).ok_or(KeyFileFault::Line(line + 1))?);
        }
        Ok(MasterKeys(keys))
    }

    /// Id of the key that encrypts, in hexadecimal.
    pub fn current_id(&self) -> String {
        self.0.first().map(|key| hex(&key.id)).unwrap_or_default()
    }

    fn find(&self, id: &[u8]) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKeys(..)")
    }
}

/// What is wrong with a file of master keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFileFault {
    /// It holds nothing.
    Empty,
    /// This line, from 1, is not the base64 of 32 bytes.
    Line(usize),
    /// It holds more keys than are accepted.
    TooMany,
}

impl fmt::Display for KeyFileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Line(line) => write!(
                f,
                "has a line {line} that is not the base64 of exactly 32 bytes"
            ),
            Self::TooMany => write!(f, "holds more than {MOST} keys"),
        }
    }
}

impl Error for KeyFileFault {}

/// The form in which a key is stored, encrypted where there is a master key.
pub fn store(
    masters: Option<&MasterKeys>,
    place: Place,
    nonce: [u8; NONCE],
    key: &[u8],
) -> Result<Vec<u8>, Unstorable> {
    let Some(masters) = masters else {
        let mut stored = Vec::with_capacity(1 + key.len());
        stored.push(CLEAR);
        stored.extend(key);
        return Ok(stored);
    };
    let master = masters.0.first().ok_or(Unstorable)?;
    let sealed = master
        .cipher()
        .encrypt(
            XNonce::from_slice(&nonce),
            Payload {
                msg: key,
                aad: &place.associated_data(),
            },
        )
        .map_err(|_| Unstorable)?;
    let mut stored = Vec::with_capacity(1 + ID + NONCE + sealed.len());
    stored.push(ENCRYPTED);
    stored.extend(master.id);
    stored.extend(nonce);
    stored.extend(sealed);
    Ok(stored)
}

/// Nothing that can be stored; only a key of impossible length can be the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unstorable;

/// The key that is stored.
pub fn open(
    masters: Option<&MasterKeys>,
    place: Place,
    stored: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Locked> {
    match stored.split_first() {
        Some((&CLEAR, key)) => Ok(Zeroizing::new(key.to_vec())),
        Some((&ENCRYPTED, rest)) if rest.len() >= ID + NONCE + TAG => {
            let (id, rest) = rest.split_at(ID);
            let (nonce, sealed) = rest.split_at(NONCE);
            let masters = masters.ok_or(Locked::NoMasterKey)?;
            let master = masters
                .find(id)
                .ok_or_else(|| Locked::OtherMasterKey(hex(id)))?;
            master
                .cipher()
                .decrypt(
                    XNonce::from_slice(nonce),
                    Payload {
                        msg: sealed,
                        aad: &place.associated_data(),
                    },
                )
                .map(Zeroizing::new)
                .map_err(|_| Locked::Altered)
        }
        _ => Err(Locked::Malformed),
    }
}

/// Whether a key is stored as it would be stored today.
pub fn up_to_date(masters: &MasterKeys, stored: &[u8]) -> bool {
    let current = masters.0.first().map(|master| &master.id[..]);
    stored.first() == Some(&ENCRYPTED) && stored.get(1..=ID) == current
}

/// Why a stored key cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is encrypted, and there is no master key.
    NoMasterKey,
    /// It is encrypted under a master key that is not at hand.
    OtherMasterKey(String),
    /// It was changed after it was written, or moved here from another row.
    Altered,
    /// Its form is unknown.
    Malformed,
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMasterKey => {
                f.write_str("it is encrypted, and \"webhook.master_key_file\" is empty")
            }
            Self::OtherMasterKey(id) => write!(
                f,
                "it is encrypted under the master key {id}, which is not in the file named by \"webhook.master_key_file\""
            ),
            Self::Altered => f.write_str("it was changed, or belongs to another row"),
            Self::Malformed => f.write_str("its form is not one that this version knows"),
        }
    }
}

impl Error for Locked {}

fn read_key(encoded: &[u8]) -> Option<MasterKey> {
    // Decoding needs room for whole groups of three bytes.
    let mut buffer = Zeroizing::new([0; 33]);
    if encoded.len() != 44 || STANDARD.decode_slice(encoded, &mut buffer[..]) != Ok(32) {
        return None;
    }
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&buffer[..32]);
    Some(MasterKey::new(key))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "vault_tests.rs"]
mod tests;
