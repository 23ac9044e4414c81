//! SQL functions that take or make the keys of inbox sources, declared in sql/39_inbox.sql.
//!
//! A key is given by its caller or made here. From then on it is held in this session's memory until the statement that
//! stores it asks for it, encrypted: no statement of ours has it as an argument or a parameter, where a log could show it.

use std::cell::RefCell;

use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::error::bad_argument;
use super::receive::{known_profile, own_key};
use super::{keys, vault};
use crate::rules::profile::Profile;
use crate::rules::receive::is_text_keyed;
use crate::rules::signing::Secret;
use crate::rules::vault::Place;

thread_local! {
    static HELD: RefCell<Option<(i64, Zeroizing<String>)>> = const { RefCell::new(None) };
}

/// Holds a key, a new one where none is given, and says of what kind it is.
#[pg_extern(sql = false)]
fn hold_inbox_key(key_id: i64, profile: &str, key: Option<String>) -> &'static str {
    let profile = known_profile(profile);
    let text = match key {
        Some(key) => Zeroizing::new(key),
        None => {
            if matches!(profile, Profile::V1a | Profile::HttpEd25519) {
                bad_argument("argument \"key\" must be given for this profile")
                    .detail("The sender holds the private key, and its public half is needed: \"whpk_\" and base64.")
                    .raise();
            }
            let mut random = Zeroizing::new([0; 32]);
            vault::fill(&mut random[..]);
            let made = Zeroizing::new(Secret::generate(*random).expose());
            keys::hand_out(key_id, made.clone());
            made
        }
    };
    let public = own_key(profile, &text).is_public();
    HELD.set(Some((key_id, text)));
    if public {
        "ed25519"
    } else if is_text_keyed(profile) {
        "text"
    } else {
        "hmac-sha256"
    }
}

/// The key that is held, as it is stored; once.
#[pg_extern(sql = false)]
fn held_inbox_key(key_id: i64, source_id: i64) -> Option<Vec<u8>> {
    let (held, text) = HELD.take()?;
    if held != key_id {
        return None;
    }
    let masters = vault::master_keys();
    let place = Place::Inbox { key_id, source_id };
    Some(vault::store(masters.as_ref(), place, text.as_bytes()))
}

/// A key as it would be stored today; null when it cannot be decrypted.
#[pg_extern(sql = false)]
fn reencrypted_inbox_key(key_id: i64, source_id: i64, stored: &[u8]) -> Option<Vec<u8>> {
    keys::reencrypted(Place::Inbox { key_id, source_id }, stored)
}
