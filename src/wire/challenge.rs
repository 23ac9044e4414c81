//! One challenge on the wire: through the same client, boundary and threads as an event, signed in the same
//! way, and not to be taken for one: its id begins with `chl_`, it names no delivery and no attempt.

use std::sync::Arc;

use crate::rules::challenge::{Challenge, MAX_ANSWER};
use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::signing::{self, SigningKey};
use crate::rules::target::{Refusal, Target};
use crate::wire::classify;
use crate::wire::client::{Bounds, Client};
use crate::wire::send::{wall_clock, without_request};

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
    /// The keys that sign, in order; never empty.
    pub keys: Arc<Vec<SigningKey>>,
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
    if job.keys.is_empty() {
        let answer = classify::internal("endpoint has no signing key");
        return (without_request(now, answer), NOT_SENT);
    }
    let body = job.challenge.body();
    let timestamp = now.div_euclid(1_000_000);
    let mut headers = job.challenge.headers();
    let signature =
        signing::signature_header(&job.keys, &job.message_id, timestamp, body.as_bytes());
    headers.push(("webhook-id".to_owned(), job.message_id.clone()));
    headers.push(("webhook-timestamp".to_owned(), timestamp.to_string()));
    headers.push(("webhook-signature".to_owned(), signature));
    let bounds = Bounds {
        time: job.challenge.method.patience(),
        // One byte more tells an answer that is too long.
        excerpt: MAX_ANSWER + 1,
    };
    let (mut outcome, kind) = client.post_within(target, &headers, body.as_bytes(), now, &bounds);
    outcome.key_ids = job.keys.iter().map(|key| key.id).collect();
    // What was read is good for this one comparison: it holds the value and is kept nowhere.
    let read = std::mem::take(&mut outcome.excerpt);
    let proof = match &outcome.answer {
        Answer::Status { code, .. } => job.challenge.judge(*code, kind.as_deref(), &read),
        Answer::Failure { .. } => Err("there was no answer"),
    };
    (outcome, proof)
}
