//! What one attempt says: the clock is read, the body signed and the headers of the contract put
//! together at the moment of sending, not when the job was queued, for receivers refuse a timestamp
//! that is minutes old. Knows nothing of sockets; see `client`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::rules::delivery::{Answer, Category, Outcome};
use crate::rules::profile::{Outgoing, Profile, Signed};
use crate::rules::signing::SigningKey;
use crate::rules::target::Target;
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
    let (headers, key_ids) = match headers(job, target, now) {
        Ok(made) => made,
        Err(detail) => return without_request(now, classify::internal(detail)),
    };
    let mut outcome = client.post(target, &headers, job.body.as_bytes(), now);
    outcome.key_ids = key_ids;
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

/// Names and values.
pub type Headers = Vec<(String, String)>;

/// The headers of an attempt, and the keys that signed it.
pub(super) fn headers(
    job: &Job,
    target: &Target,
    now: i64,
) -> Result<(Headers, Vec<i64>), &'static str> {
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
    let outgoing = Outgoing {
        id: &message_id,
        timestamp,
        url: target.url(),
        headers: &job.headers,
        body: signed,
    };
    let signed = sign(job.profile, &job.keys, &outgoing)?;
    let key_ids: Vec<String> = signed.key_ids.iter().map(i64::to_string).collect();
    let mut headers = signed.headers;
    headers.push(("webhook-delivery".to_owned(), job.pair.to_string()));
    headers.push(("webhook-attempt".to_owned(), job.attempt.to_string()));
    headers.push(("webhook-key-id".to_owned(), key_ids.join(" ")));
    headers.extend(job.headers.iter().cloned());
    headers.extend(job.extra.iter().cloned());
    Ok((headers, signed.key_ids))
}

/// The headers of an attempt as a client with this user agent sends them, in the order of the wire.
pub fn on_the_wire(
    job: &Job,
    target: &Target,
    now: i64,
    user_agent: &str,
) -> Result<Headers, &'static str> {
    let (own, _) = headers(job, target, now)?;
    let (kind, others): (Headers, Headers) = own
        .into_iter()
        .partition(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let mut all = vec![("host".to_owned(), target.authority())];
    // Without one the client says what its bodies are.
    all.push(
        kind.into_iter()
            .last()
            .unwrap_or_else(|| ("content-type".to_owned(), "application/json".to_owned())),
    );
    all.push(("user-agent".to_owned(), user_agent.to_owned()));
    all.push(("content-length".to_owned(), job.body.len().to_string()));
    all.extend(others);
    Ok(all)
}

/// Signs what is to be sent; an unsigned event is worth nothing to an honest receiver, and teaches it to skip the
/// check.
pub(super) fn sign(
    profile: Profile,
    keys: &[SigningKey],
    outgoing: &Outgoing<'_>,
) -> Result<Signed, &'static str> {
    let signed = profile.sign(keys, outgoing)?;
    if signed.key_ids.is_empty() {
        return Err("endpoint has no signing key");
    }
    Ok(signed)
}
