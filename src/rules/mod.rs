//! The rules: everything webhook_outbox decides, as plain functions of their arguments.
//!
//! Refuses to do input or output, to look at a clock, to throw dice, and to know PostgreSQL.
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod address;
pub mod challenge;
pub mod cloudevents;
pub mod compatibility;
pub mod dashboard;
pub mod decimal;
pub mod delivery;
pub mod digest;
pub mod ed25519;
pub mod envelope;
pub mod erasure;
pub mod fields;
pub mod filter;
pub mod forbidden;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod headers;
pub mod health;
pub mod histogram;
mod host_name;
pub mod http_signature;
pub mod id_hash;
pub mod ids;
pub mod inbound;
pub mod json;
pub mod keyring;
pub mod legacy_signature;
pub mod matching;
pub mod policy;
pub mod profile;
pub mod proxy;
pub mod receive;
pub mod redaction;
mod refusal;
pub mod retry_after;
pub mod revision;
pub mod scheduler;
pub mod schema;
pub mod selection;
pub mod shape;
pub mod signing;
pub mod snapshot;
pub mod target;
pub mod term;
pub mod time;
pub mod vault;
#[cfg(test)]
mod vectors;
