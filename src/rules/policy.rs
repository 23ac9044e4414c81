//! The one place that says what follows from an outcome: retry, dead letter, or done.
//!
//! Pure: the time and the dice are arguments, the policy is a value. It knows nothing of queues, of how often
//! a batch has already died, or of an endpoint's health; those who do may be stricter, never more lenient.
//! The table of all categories and their verdicts stands at [`Category`]; the tests go through it row by row.

use std::time::Duration;

use crate::rules::delivery::{Answer, Category};
use crate::rules::retry_after::{self, RetryAfter};

/// How often and when a delivery is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The waits between attempts: entry 0 stands between the first attempt and the second. Empty: no retry.
    pub schedule: Vec<Duration>,
    /// How many attempts a receiver's persistent "no" (other 4xx, 3xx) gets; 0 counts as 1.
    pub client_error_attempts: u32,
    /// The longest wait a receiver may ask for with Retry-After.
    pub retry_after_max: Duration,
}

/// Reads a schedule such as `5s,5m,30m,2h`: whole numbers with a unit of `ms`, `s`, `m`, `h` or `d`.
///
/// Each wait is more than 0 and at most 30 days, there are at most 50 of them, and an empty text is an empty
/// schedule. The error is a primary message in PostgreSQL's style.
pub fn parse_schedule(text: &str) -> Result<Vec<Duration>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let schedule: Vec<Duration> = text
        .split(',')
        .map(|entry| parse_wait(entry.trim()))
        .collect::<Result<_, _>>()?;
    if schedule.len() > MAX_ENTRIES {
        return Err(format!(
            "retry schedule has {} waits, more than {MAX_ENTRIES}",
            schedule.len()
        ));
    }
    Ok(schedule)
}

/// What follows from one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind of trouble; none when the event was delivered.
    pub category: Option<Category>,
    /// What is to be done.
    pub next: Next,
}

/// What is to be done after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the receiver has it.
    Delivered,
    /// Try again.
    Retry {
        /// How long to wait, counted from the end of the attempt.
        after: Duration,
    },
    /// Give up: the delivery becomes a dead letter.
    Dead,
    /// Give up, and send nothing more to this endpoint (410).
    DeadAndDisable,
    /// Keep it and do not try by itself: a content rule failed, and only an operator can mend that.
    Hold,
}

/// Judges the answer to attempt number `attempt_in_series` (from 1) of the current series.
///
/// A replay starts a new series, so the number is not always the one the receiver saw. `dice` in 0..1 spreads
/// the retries of many deliveries: it adds up to 20 % to the wait and never takes anything away, so that the
/// documented schedule is a lower bound.
pub fn judge(
    answer: &Answer,
    attempt_in_series: u32,
    policy: &RetryPolicy,
    now_unix: i64,
    dice: f64,
) -> Verdict {
    let (category, retry_after) = match answer {
        Answer::Status { code, retry_after } => match category_of(*code) {
            Some(category) => (
                category,
                asked_wait(category, retry_after, policy, now_unix),
            ),
            None => {
                return Verdict {
                    category: None,
                    next: Next::Delivered,
                };
            }
        },
        Answer::Failure { category, .. } => (*category, Duration::ZERO),
    };
    let by_schedule = || match scheduled_wait(attempt_in_series, policy, dice) {
        Some(wait) => Next::Retry {
            after: wait.max(retry_after),
        },
        None => Next::Dead,
    };
    let next = match category {
        Category::Dns
        | Category::ConnectRefused
        | Category::ConnectTimeout
        | Category::ConnectFailed
        | Category::Tls
        | Category::Timeout
        | Category::Protocol
        | Category::ServerError
        | Category::RateLimited
        | Category::RequestTimeout
        | Category::TooEarly
        | Category::Blocked
        | Category::Internal => by_schedule(),
        Category::ClientError | Category::Redirect => {
            if attempt_in_series >= policy.client_error_attempts {
                Next::Dead
            } else {
                by_schedule()
            }
        }
        // The receiver may have nothing of it and is not to blame: waiting would only make it late. What
        // bounds the repetition is the count of deaths on one batch, which the leader keeps.
        Category::Lost => Next::Retry {
            after: Duration::ZERO,
        },
        Category::Gone => Next::DeadAndDisable,
        Category::Filter | Category::Conversion => Next::Hold,
        Category::Expired => Next::Dead,
    };
    Verdict {
        category: Some(category),
        next,
    }
}

/// The category of a status; none for 2xx.
///
/// A status without a meaning of its own here is judged by its class (RFC 9110, section 15). A 1xx is never a
/// final answer, and below 100 or from 600 on there is no class: that is not HTTP.
pub fn category_of(status: u16) -> Option<Category> {
    Some(match status {
        200..=299 => return None,
        300..=399 => Category::Redirect,
        408 => Category::RequestTimeout,
        410 => Category::Gone,
        425 => Category::TooEarly,
        429 => Category::RateLimited,
        400..=499 => Category::ClientError,
        500..=599 => Category::ServerError,
        _ => Category::Protocol,
    })
}

/// The wait a receiver asked for, cut to the policy's limit; 0 when it asked for nothing we honour.
fn asked_wait(
    category: Category,
    lines: &[String],
    policy: &RetryPolicy,
    now_unix: i64,
) -> Duration {
    // Elsewhere the header means something else (3xx) or promises nothing (other 4xx).
    if !matches!(
        category,
        Category::ServerError
            | Category::RateLimited
            | Category::RequestTimeout
            | Category::TooEarly
    ) {
        return Duration::ZERO;
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    match retry_after::parse(&lines, now_unix) {
        RetryAfter::Delay(seconds) => Duration::from_secs(seconds).min(policy.retry_after_max),
        RetryAfter::Saturate => policy.retry_after_max,
        RetryAfter::Ignored => Duration::ZERO,
    }
}

/// The wait after this attempt, jitter included; nothing when the schedule is used up.
fn scheduled_wait(attempt_in_series: u32, policy: &RetryPolicy, dice: f64) -> Option<Duration> {
    let index = usize::try_from(attempt_in_series.saturating_sub(1)).ok()?;
    let wait = *policy.schedule.get(index)?;
    // Anything but a number in 0..1 would make the multiplication panic or break the promise of 20 %.
    let dice = if dice.is_finite() {
        dice.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let most = wait / JITTER_PART;
    Some(wait.saturating_add(most.mul_f64(dice).min(most)))
}

fn parse_wait(entry: &str) -> Result<Duration, String> {
    let malformed = || {
        format!(
            "retry schedule entry \"{}\" is not a whole number with a unit of ms, s, m, h or d",
            shown(entry)
        )
    };
    let digits = entry.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = entry.split_at(digits);
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(malformed()),
    };
    if number.is_empty() {
        return Err(malformed());
    }
    // Only too big a number fails here, and that is out of range like any other.
    let millis = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .unwrap_or(u64::MAX);
    let wait = Duration::from_millis(millis);
    if wait.is_zero() || wait > MAX_WAIT {
        return Err(format!(
            "retry schedule entry \"{}\" is not more than 0 and at most 30 d",
            shown(entry)
        ));
    }
    Ok(wait)
}

/// The beginning of a text from a user, short enough for a message of one line.
fn shown(entry: &str) -> String {
    entry.chars().take(40).collect()
}

/// Jitter is at most one part in so many of the wait: 20 %.
const JITTER_PART: u32 = 5;
const MAX_ENTRIES: usize = 50;
const MAX_WAIT: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
