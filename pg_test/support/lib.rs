//! What the tests stand on: private PostgreSQL clusters, receivers that misbehave to order, a name server whose
//! answers a test chooses, and the public libraries that judge what arrives. It knows the product only from
//! outside (SQL and HTTP), refuses to share any of its code, and leaves no process and no folder behind.
//!
//! A fault of the house itself is a panic with the reason: a test that cannot run fails, it is never skipped.

pub mod arrivals;
pub mod cluster;
pub mod control;
pub mod copying;
pub mod dice;
pub mod dns;
pub mod example;
pub mod explanation;
pub mod invariants;
pub mod judges;
pub mod kills;
pub mod master_key;
pub mod meter;
pub mod monitoring;
pub mod outbox;
pub mod past;
pub mod proxy;
pub mod psql;
pub mod receiver;
pub mod reckoning;
pub mod scene;
pub mod segment;
pub mod storm;
pub mod tls;
pub mod verifier;
pub mod wait;
pub mod witness;

mod place;

/// Prints a line past the test runner, which keeps to itself what `println!` of a passing test says. For
/// the counts of long runs, which are worth reading when all is well.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Nobody to tell is no reason to fail.
        let _ = writeln!(std::io::stdout().lock(), $($text)*);
    }};
}
