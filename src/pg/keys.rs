//! SQL functions that make keys and encrypt them anew, declared in sql/33_key.sql.
//!
//! A key in clear is never an argument, a parameter or a constant of a statement, where settings of the log or other
//! extensions could show it: it is made here and leaves as it is stored. The one text in clear is the result that
//! create_endpoint, rotate_secret and revoke_secret hand to their caller.

use std::cell::RefCell;

use pgrx::pg_sys;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::error::Raise;
use super::{outbox, vault};
use crate::rules::ed25519::KeyPair;
use crate::rules::profile::Profile;
use crate::rules::signing::{Algorithm, Secret};
use crate::rules::vault::{Place, up_to_date};

thread_local! {
    /// The secret just made, until the statement after it hands it out.
    static MADE: RefCell<Option<(i64, Zeroizing<String>)>> = const { RefCell::new(None) };
}

/// Leaves a text for `_take_secret`, once.
pub fn hand_out(key_id: i64, text: Zeroizing<String>) {
    MADE.set(Some((key_id, text)));
}

/// Makes a signing key; returns it as it is stored.
#[pg_extern(sql = false)]
fn make_secret(key_id: i64, endpoint_id: i64) -> Vec<u8> {
    let masters = vault::master_keys();
    let mut random = Zeroizing::new([0; 32]);
    vault::fill(&mut random[..]);
    let secret = Secret::generate(*random);
    let place = Place::Signing {
        key_id,
        endpoint_id,
    };
    let stored = vault::store(masters.as_ref(), place, secret.as_bytes());
    MADE.set(Some((key_id, Zeroizing::new(secret.expose()))));
    stored
}

/// Makes a pair of keys; returns the private one as it is stored, and the public one, which is what is handed out.
#[pg_extern(sql = false)]
fn make_key_pair(
    key_id: i64,
    endpoint_id: i64,
) -> TableIterator<'static, (name!(stored, Vec<u8>), name!(public_key, String))> {
    let masters = vault::master_keys();
    let mut seed = Zeroizing::new([0; 32]);
    vault::fill(&mut seed[..]);
    let place = Place::Pair {
        key_id,
        endpoint_id,
    };
    let stored = vault::store(masters.as_ref(), place, &seed[..]);
    let public = KeyPair::from_seed(&seed).public();
    MADE.set(Some((key_id, Zeroizing::new(public.expose()))));
    TableIterator::once((stored, public.expose()))
}

/// The kind of key that a signature profile needs; null when there is no such profile.
#[pg_extern(sql = false)]
fn key_kind(signature: &str) -> Option<&'static str> {
    Profile::parse(signature).map(|profile| profile.algorithm().as_str())
}

/// Tells PostgreSQL that `take_secret_wrapper` follows the version 1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_take_secret_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &pg_sys::Pg_finfo_record { api_version: 1 }
}

/// The text of the signing key that this session has just made, once. By hand, because a `String` that is returned
/// would be copied and left behind as it is.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn take_secret_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the type is that of the SQL declaration; fcinfo is the one PostgreSQL passed.
    let key_id = unsafe { pgrx::fcinfo::pg_getarg::<i64>(fcinfo, 0) };
    match MADE.take() {
        Some((made, text)) if Some(made) == key_id => text.as_str().into_datum(),
        _ => None,
    }
    // SAFETY: as above.
    .unwrap_or_else(|| unsafe { pgrx::fcinfo::pg_return_null(fcinfo) })
}

/// Makes a key that seals events; returns it as it is stored.
#[pg_extern(sql = false)]
fn make_seal_key(key_id: i64, origin: i64) -> Vec<u8> {
    let masters = vault::master_keys();
    let mut key = Zeroizing::new([0; 32]);
    vault::fill(&mut key[..]);
    vault::store(masters.as_ref(), Place::Seal { key_id, origin }, &key[..])
}

/// A signing key as it would be stored today; null when it cannot be decrypted.
#[pg_extern(sql = false)]
fn reencrypted_secret(key_id: i64, endpoint_id: i64, kind: &str, stored: &[u8]) -> Option<Vec<u8>> {
    let kind = Algorithm::parse(kind)?;
    reencrypted(Place::of_endpoint(kind, key_id, endpoint_id), stored)
}

/// A seal key as it would be stored today; null when it cannot be decrypted.
#[pg_extern(sql = false)]
fn reencrypted_seal_key(key_id: i64, origin: i64, stored: &[u8]) -> Option<Vec<u8>> {
    reencrypted(Place::Seal { key_id, origin }, stored)
}

/// Id of the master key that encrypts; an error when there is none.
#[pg_extern(sql = false)]
fn master_key_id() -> String {
    needed().current_id()
}

/// Makes every session read the seal key again once this transaction has committed.
#[pg_extern(sql = false)]
fn forget_seal_key() {
    outbox::announce_seal_key();
}

pub fn reencrypted(place: Place, stored: &[u8]) -> Option<Vec<u8>> {
    let masters = needed();
    if up_to_date(&masters, stored) {
        return Some(stored.to_vec());
    }
    let key = crate::rules::vault::open(Some(&masters), place, stored).ok()?;
    Some(vault::store(Some(&masters), place, &key))
}

fn needed() -> crate::rules::vault::MasterKeys {
    vault::master_keys().unwrap_or_else(|| {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "there is no master key",
        )
        .detail("The setting \"webhook.master_key_file\" is empty.")
        .hint("Set it to a file with the base64 of 32 random bytes, and reload the configuration.")
        .raise()
    })
}
