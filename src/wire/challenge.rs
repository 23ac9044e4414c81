//! One challenge on the wire: through the same client, boundary and threads as an event, signed in the same
//! way, and not to be taken for one: its id begins with `chl_`, it names no delivery and no attempt.

use std::sync::Arc;

use crate::rules::challenge::{Challenge, MAX_ANSWER};
use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::profile::{Outgoing, Profile};
use crate::rules::signing::SigningKey;
use crate::rules::target::{Refusal, Target};
use crate::wire::classify;
use crate::wire::client::{Bounds, Client};
use crate::wire::send::{sign, wall_clock, without_request};

/// One challenge to send.
pub struct ChallengeJob {
    /// Comes back with the outcome; means nothing here.
    pub ticket: u64,
    /// Where to, the query of the form included; `Err` becomes a `blocked` outcome without a socket.
    pub target: Result<Arc<Target>, Refusal>,
    /// The id that is signed, `chl_...`.
    pub message_id: String,
    /// What is sent and what must come back.
    pub challenge: Challenge,
    /// The keys that sign, newest first; never empty.
    pub keys: Arc<Vec<SigningKey>>,
    /// How it is signed: as the endpoint's events are.
    pub profile: Profile,
    /// What the operator adds for this endpoint.
    pub extra: Arc<Vec<(String, String)>>,
}

/// Sends it; says what happened, and whether the answer proves control.
pub(super) fn send(client: &Client, job: &ChallengeJob) -> (Outcome, Result<(), &'static str>) {
    const NOT_SENT: Result<(), &str> = Err("nothing was sent");
    let now = wall_clock();
    let target = match &job.target {
        Ok(target) => target,
        Err(refusal) => {
            let answer = Answer::Failure {
                category: Category::Blocked,
                phase: None,
                detail: refusal.detail.clone(),
            };
            return (without_request(now, answer), NOT_SENT);
        }
    };
    let body = job.challenge.body();
    let mut headers = job.challenge.headers();
    let outgoing = Outgoing {
        id: &job.message_id,
        timestamp: now.div_euclid(1_000_000),
        url: target.url(),
        headers: &headers,
        body: body.as_bytes(),
    };
    let signed = match sign(job.profile, &job.keys, &outgoing) {
        Ok(signed) => signed,
        Err(detail) => return (without_request(now, classify::internal(detail)), NOT_SENT),
    };
    headers.extend(signed.headers);
    headers.extend(job.extra.iter().cloned());
    let bounds = Bounds {
        time: job.challenge.method.patience(),
        // One byte more tells an answer that is too long.
        excerpt: MAX_ANSWER + 1,
    };
    let (mut outcome, kind) = client.post_within(target, &headers, body.as_bytes(), now, &bounds);
    outcome.key_ids = signed.key_ids;
    // What was read is good for this one comparison: it holds the value and is kept nowhere.
    let read = std::mem::take(&mut outcome.excerpt);
    let proof = match &outcome.answer {
        Answer::Status { code, .. } => job.challenge.judge(*code, kind.as_deref(), &read),
        Answer::Failure { .. } => Err("there was no answer"),
    };
    (outcome, proof)
}
