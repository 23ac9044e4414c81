//! webhook_outbox: a PostgreSQL extension that makes a database a trustworthy webhook sender.
//!
//! Three rooms, one direction: `rules` decides and knows nothing of the world, `wire` talks HTTP
//! and knows nothing of PostgreSQL, `pg` connects both to the server. Only `pg` may use pgrx, which
//! is an optional dependency: `cargo test --no-default-features` builds the other two without it.

pub mod rules;
pub mod wire;

#[cfg(any(
    feature = "pg13",
    feature = "pg14",
    feature = "pg15",
    feature = "pg16",
    feature = "pg17",
    feature = "pg18"
))]
mod pg;
