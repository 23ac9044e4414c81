//! The one place that says what follows from an outcome: retry, dead letter, or done.
//!
//! Pure: the time and the dice are arguments, the policy is a value. It knows nothing of queues, of how often
//! a batch has already died, or of an endpoint's health; those who do may be stricter, never more lenient.
//! An [`EndpointPolicy`] is all that is decided per endpoint; who carries out the other parts is not said here.
//! The table of all categories and their verdicts stands at [`Category`]; the tests go through it row by row.

use std::time::Duration;

use crate::rules::delivery::{Answer, Category};
use crate::rules::health::Patience;
use crate::rules::retry_after::{self, RetryAfter};
use crate::rules::scheduler::rate::Rate;

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

/// Everything an endpoint's policy says, nothing left open.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPolicy {
    /// When a delivery is tried again.
    pub retry: RetryPolicy,
    /// Its own ceiling of concurrent requests; none = that of the server.
    pub max_in_flight: Option<usize>,
    /// How often a request may start; none = as often as it can.
    pub rate: Option<Rate>,
    /// What is older is not sent any more; none = everything is.
    pub max_age: Option<Duration>,
    /// How much failing is too much.
    pub patience: Patience,
}

/// A policy as it is written down: what is none there is left to the one it stands on.
#[derive(Clone, Debug, Default)]
pub struct PolicyRow {
    /// The waits between attempts.
    pub schedule: Option<Vec<Duration>>,
    /// Attempts for a receiver's persistent "no".
    pub client_error_attempts: Option<u32>,
    /// The longest wait a receiver may ask for.
    pub retry_after_max: Option<Duration>,
    /// Concurrent requests to one endpoint.
    pub max_in_flight: Option<usize>,
    /// Requests per second.
    pub rate: Option<f64>,
    /// Requests at once after a rest.
    pub burst: Option<u32>,
    /// Nothing older is sent.
    pub max_age: Option<Duration>,
    /// An endpoint is disabled after so long without a success.
    pub disable_after: Option<Duration>,
    /// And after so many failures.
    pub disable_failures: Option<u32>,
}

impl EndpointPolicy {
    /// An endpoint's own policy stands on the default one, value by value, and that on the settings.
    pub fn resolve(
        settings: &RetryPolicy,
        disable_after: Duration,
        default: &PolicyRow,
        own: Option<&PolicyRow>,
    ) -> EndpointPolicy {
        let none = PolicyRow::default();
        let own = own.unwrap_or(&none);
        let schedule = own.schedule.as_ref().or(default.schedule.as_ref());
        EndpointPolicy {
            retry: RetryPolicy {
                schedule: schedule.unwrap_or(&settings.schedule).clone(),
                client_error_attempts: own
                    .client_error_attempts
                    .or(default.client_error_attempts)
                    .unwrap_or(settings.client_error_attempts),
                retry_after_max: own
                    .retry_after_max
                    .or(default.retry_after_max)
                    .unwrap_or(settings.retry_after_max),
            },
            max_in_flight: own.max_in_flight.or(default.max_in_flight),
            rate: rate_of(own.rate.or(default.rate), own.burst.or(default.burst)),
            max_age: own.max_age.or(default.max_age),
            patience: Patience {
                disable_after: own
                    .disable_after
                    .or(default.disable_after)
                    .unwrap_or(disable_after),
                failures: own
                    .disable_failures
                    .or(default.disable_failures)
                    .unwrap_or(DISABLE_FAILURES),
            },
        }
    }
}

/// Whether an event is too old to be sent; times in Unix microseconds.
pub fn expired(emitted_at: i64, now: i64, max_age: Option<Duration>) -> bool {
    let age = u128::try_from(now.saturating_sub(emitted_at)).unwrap_or(0);
    max_age.is_some_and(|max_age| age > max_age.as_micros())
}

/// Which try of a delivery an answer belongs to. A replay starts a new series, so the number is not always
/// the one the receiver saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Its number in the current series, from 1; failed probes are not counted.
    pub in_series: u32,
    /// It was a probe of a shut endpoint: it does not use up the schedule, and what follows goes by time.
    pub probe: bool,
    /// Since the first attempt of the series began, failed probes included.
    pub since_first: Duration,
}

/// What follows from one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind of trouble; none when the event was delivered.
    pub category: Option<Category>,
    /// What is to be done.
    pub next: Next,
    /// The wait the receiver asked for, cut to the policy's limit; zero when it asked for none. It holds
    /// for the endpoint, not for this delivery alone.
    pub retry_after: Duration,
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

/// Judges the answer to one try of a delivery.
///
/// `dice` in 0..1 spreads the retries of many deliveries: it adds up to 20 % to the wait and never takes
/// anything away, so that the documented schedule is a lower bound. A failed probe says nothing about its
/// delivery: its wait is the one of the schedule at that time, and it is dead when the whole schedule has
/// passed.
pub fn judge(
    answer: &Answer,
    tried: Try,
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
                    retry_after: Duration::ZERO,
                };
            }
        },
        Answer::Failure { category, .. } => (*category, Duration::ZERO),
    };
    let after_wait = |index: Option<usize>| match index.and_then(|index| policy.schedule.get(index))
    {
        Some(wait) => Next::Retry {
            after: jittered(*wait, dice).max(retry_after),
        },
        None => Next::Dead,
    };
    let by_count = || after_wait(usize::try_from(tried.in_series.saturating_sub(1)).ok());
    let by_schedule = || {
        if tried.probe {
            after_wait(Some(waits_passed(&policy.schedule, tried.since_first)))
        } else {
            by_count()
        }
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
            if tried.in_series >= policy.client_error_attempts {
                Next::Dead
            } else {
                by_count()
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
        retry_after,
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

/// A wait with its jitter.
fn jittered(wait: Duration, dice: f64) -> Duration {
    // Anything but a number in 0..1 would make the multiplication panic or break the promise of 20 %.
    let dice = if dice.is_finite() {
        dice.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let most = wait / JITTER_PART;
    wait.saturating_add(most.mul_f64(dice).min(most))
}

/// How many waits of the schedule, one after the other, have passed after this time.
fn waits_passed(schedule: &[Duration], time: Duration) -> usize {
    let mut end = Duration::ZERO;
    schedule
        .iter()
        .take_while(|wait| {
            end = end.saturating_add(**wait);
            end <= time
        })
        .count()
}

fn rate_of(per_second: Option<f64>, burst: Option<u32>) -> Option<Rate> {
    let per_second = per_second.filter(|rate| rate.is_finite() && *rate > 0.0)?;
    Some(Rate {
        per_second,
        burst: burst.map_or(per_second.ceil(), f64::from).max(1.0),
    })
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

/// The beginning of a text from a user, short and plain enough for a message of one line.
fn shown(entry: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    entry.chars().take(40).map(plain).collect()
}

/// Jitter is at most one part in so many of the wait: 20 %.
const JITTER_PART: u32 = 5;
/// Failures before an endpoint is disabled, where no policy says otherwise.
const DISABLE_FAILURES: u32 = 20;
const MAX_ENTRIES: usize = 50;
const MAX_WAIT: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
#[path = "endpoint_policy_tests.rs"]
mod endpoint_tests;
#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
