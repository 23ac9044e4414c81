//! Reading keys for the leader: those of endpoints and those that seal events, decrypted here.
//!
//! What cannot be decrypted is no error of a statement: one endpoint's key must not stop the others' deliveries. A
//! seal key is another matter: events whose key exists and cannot be had must wait, or they would be fenced for good.

use std::collections::{HashMap, HashSet};

use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::statement::{select, statement};
use super::unix_micros;
use crate::pg::error::Raise;
use crate::pg::vault::Vault;
use crate::rules::ed25519::KeyPair;
use crate::rules::signing::{Algorithm, Key, Secret};
use crate::rules::vault::Place;

statement!(
    SIGNING_KEYS,
    [Vec<i64>],
    "select s.endpoint_id, s.key_id, s.secret, s.valid_until, s.kind
       from webhook._secret as s
      where s.endpoint_id = any ($1)
        and s.secret is not null
        and (s.valid_until is null or s.valid_until > pg_catalog.clock_timestamp())
      order by s.endpoint_id, s.valid_until desc nulls first, s.key_id desc"
);

statement!(
    SEAL_KEYS,
    [Vec<i64>],
    "select k.key_id, k.origin, k.key
       from webhook._seal_key as k
      where k.key_id = any ($1)"
);

statement!(
    STORED_SEAL_KEYS,
    [Vec<i64>],
    "select k.key_id from webhook._seal_key as k where k.key_id = any ($1)"
);

/// A key of an endpoint.
pub struct KeyRow {
    pub id: i64,
    /// Microseconds since 1970; none = without an end.
    pub valid_until: Option<i64>,
    /// The key, or why it cannot be had.
    pub key: Result<Key, String>,
}

/// Seal keys by their ids.
pub type SealKeys = HashMap<i64, Zeroizing<Vec<u8>>>;

/// The valid keys of endpoints, newest first.
pub fn signing_keys(endpoints: Vec<i64>) -> HashMap<i64, Vec<KeyRow>> {
    select(&SIGNING_KEYS, &[endpoints.into()], |rows| {
        let mut keys: HashMap<i64, Vec<KeyRow>> = HashMap::new();
        let vault = Vault::read();
        for row in rows {
            let read = || {
                Some((
                    row.get::<i64>(1).ok().flatten()?,
                    row.get::<i64>(2).ok().flatten()?,
                    Zeroizing::new(row.get::<Vec<u8>>(3).ok().flatten()?),
                ))
            };
            let Some((endpoint_id, key_id, stored)) = read() else {
                continue;
            };
            let kind = row.get::<String>(5).ok().flatten().unwrap_or_default();
            let key = match Algorithm::parse(&kind) {
                Some(kind) => vault
                    .open(Place::of_endpoint(kind, key_id, endpoint_id), &stored)
                    .map_err(|unopened| unopened.why)
                    .and_then(|bytes| key(kind, &bytes)),
                None => Err("it is of a kind that this version does not know".to_owned()),
            };
            // Most endpoints have one; a vector that grows has room for four.
            let of_endpoint = keys
                .entry(endpoint_id)
                .or_insert_with(|| Vec::with_capacity(1));
            of_endpoint.push(KeyRow {
                id: key_id,
                valid_until: row
                    .get::<TimestampWithTimeZone>(4)
                    .ok()
                    .flatten()
                    .map(unix_micros),
                key,
            });
        }
        keys
    })
}

/// Those of these seal keys that are stored, whether or not they can be decrypted.
pub fn stored_seal_keys(ids: Vec<i64>) -> HashSet<i64> {
    select(&STORED_SEAL_KEYS, &[ids.into()], |rows| {
        rows.filter_map(|row| row.get::<i64>(1).ok().flatten())
            .collect()
    })
}

fn key(kind: Algorithm, bytes: &[u8]) -> Result<Key, String> {
    match kind {
        Algorithm::HmacSha256 => Secret::from_bytes(bytes)
            .map(Key::from)
            .map_err(|error| error.to_string()),
        Algorithm::Ed25519 => KeyPair::from_slice(bytes)
            .map(Key::from)
            .map_err(|error| error.to_string()),
    }
}

/// Those of the `needed` keys that are not known yet. An error when one of these origins exists and cannot be
/// decrypted; it passes, because the file may be mended.
pub fn seal_keys(origins: &[i64], needed: impl Iterator<Item = i64>, known: &SealKeys) -> SealKeys {
    let mut missing: Vec<i64> = needed.filter(|id| !known.contains_key(id)).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return SealKeys::new();
    }
    select(&SEAL_KEYS, &[missing.into()], |rows| {
        let vault = Vault::read();
        let mut keys = SealKeys::new();
        for row in rows {
            let read = || {
                Some((
                    row.get::<i64>(1).ok().flatten()?,
                    row.get::<i64>(2).ok().flatten()?,
                    Zeroizing::new(row.get::<Vec<u8>>(3).ok().flatten()?),
                ))
            };
            let Some((key_id, of, stored)) = read() else {
                continue;
            };
            match vault.open(Place::Seal { key_id, origin: of }, &stored) {
                Ok(key) => {
                    keys.insert(key_id, key);
                }
                Err(unopened) if origins.contains(&of) && !unopened.lasting => Raise::new(
                    PgSqlErrorCode::ERRCODE_IO_ERROR,
                    format!("could not decrypt seal key {key_id}: {}", unopened.why),
                )
                .raise(),
                // A key of another database came with a copy; what it sealed is not sent from here. One that
                // somebody changed seals nothing any more.
                Err(_) => {}
            }
        }
        keys
    })
}
