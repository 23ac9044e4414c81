//! What the crew is given and gives back: one attempt to make, one attempt (or challenge) made.

use std::sync::Arc;

use crate::rules::delivery::Outcome;
use crate::rules::ids::Pair;
use crate::rules::profile::Profile;
use crate::rules::signing::SigningKey;
use crate::rules::target::{Refusal, Target};

/// What is wrong with a request on purpose, so that its receiver can be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It arrives twice.
    Duplicate,
    /// Its timestamp is older than any receiver should accept.
    Stale,
    /// Its signature is of another body.
    BadSignature,
    /// Its body is no JSON; the signature is good.
    Malformed,
}

/// One attempt to make.
pub struct Job {
    /// Comes back with the outcome; means nothing here.
    pub ticket: u64,
    /// Where to; `Err` becomes a `blocked` outcome without a socket.
    pub target: Result<Arc<Target>, Refusal>,
    /// The delivery.
    pub pair: Pair,
    /// The number of the attempt.
    pub attempt: u32,
    /// What says what the body is, and what it belongs to: content type, attributes, tracing.
    pub headers: Arc<Vec<(String, String)>>,
    /// What the operator adds for this endpoint.
    pub extra: Arc<Vec<(String, String)>>,
    /// How it is signed.
    pub profile: Profile,
    /// The exact bytes to sign and send.
    pub body: Arc<str>,
    /// The keys that sign, newest first; never empty.
    pub keys: Arc<Vec<SigningKey>>,
    /// What is wrong with it on purpose.
    pub fault: Option<Fault>,
    /// How many jobs of its endpoint may run at once; what is given beyond waits for one of them to end well.
    pub room: usize,
    /// Up to which erasure its payload was looked for; the gate of the crew compares it.
    pub looked_through: u64,
}

/// One attempt made.
pub struct Done {
    /// The ticket of its job.
    pub ticket: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// Of a challenge: whether the answer proves control, and if not, what is wrong with it.
    pub proof: Option<Result<(), &'static str>>,
}
