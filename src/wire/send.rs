//! What one attempt says: the clock is read, the body signed and the headers of the contract put
//! together at the moment of sending, not when the job was queued, for receivers refuse a timestamp
//! that is minutes old. Knows nothing of sockets; see `client`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::signing;
use crate::wire::classify;
use crate::wire::client::Client;
use crate::wire::job::{Fault, Job};

/// How old a stale test is: well outside the five minutes that receivers commonly tolerate.
const STALE_SECONDS: i64 = 3_600;

/// Makes one attempt.
pub(super) fn send(client: &Client, job: &Job) -> Outcome {
    let now = wall_clock();
    let target = match &job.target {
        Ok(target) => target,
        Err(refusal) => {
            return without_request(
                now,
                Answer::Failure {
                    category: Category::Blocked,
                    phase: None,
                    detail: refusal.detail.clone(),
                },
            );
        }
    };
    // An unsigned event is worth nothing to an honest receiver, and teaches it to skip the check.
    if job.keys.is_empty() {
        return without_request(now, classify::internal("endpoint has no signing key"));
    }
    let mut outcome = client.post(target, &headers(job, now), job.body.as_bytes(), now);
    outcome.key_ids = job.keys.iter().map(|key| key.id).collect();
    outcome
}

/// An outcome for which nothing was sent.
pub(super) fn without_request(now: i64, answer: Answer) -> Outcome {
    Outcome {
        started_at: now,
        latency_us: 0,
        answer,
        excerpt: Vec::new(),
        response_bytes: 0,
        key_ids: Vec::new(),
    }
}

/// Microseconds since 1970, by the wall clock: receivers compare it with theirs.
pub(super) fn wall_clock() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |before| -before)
        }
    }
}

fn headers(job: &Job, now: i64) -> Vec<(String, String)> {
    let message_id = job.pair.event.to_string();
    let mut timestamp = now.div_euclid(1_000_000);
    if job.fault == Some(Fault::Stale) {
        timestamp -= STALE_SECONDS;
    }
    let signed = match job.fault {
        // In the right form and by the right keys, but not of these bytes.
        Some(Fault::BadSignature) => job.body.as_bytes().get(1..).unwrap_or_default(),
        _ => job.body.as_bytes(),
    };
    let signature = signing::signature_header(&job.keys, &message_id, timestamp, signed);
    let key_ids: Vec<String> = job.keys.iter().map(|key| key.id.to_string()).collect();
    let mut headers = vec![
        ("webhook-id".to_owned(), message_id),
        ("webhook-timestamp".to_owned(), timestamp.to_string()),
        ("webhook-signature".to_owned(), signature),
        ("webhook-delivery".to_owned(), job.pair.to_string()),
        ("webhook-attempt".to_owned(), job.attempt.to_string()),
        ("webhook-key-id".to_owned(), key_ids.join(" ")),
    ];
    if let Some(traceparent) = &job.traceparent {
        headers.push(("traceparent".to_owned(), traceparent.clone()));
    }
    headers
}
