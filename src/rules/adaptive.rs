//! How many requests an endpoint may run at once, learnt from its answers: slow-down, circuit breaker and
//! ramp in one rule (additive increase, multiplicative decrease).
//!
//! Pure: times are arguments in Unix microseconds, dice are arguments. It knows no queue and sends nothing.
//! What an answer says about a window stands in the table at [`Category`]; [`push`] is its last column.

use std::time::Duration;

use crate::rules::delivery::Category;

/// What an answer says about its endpoint's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// It did well: more at once.
    Up,
    /// It did well, but slowly: fewer at once, though never none.
    Slow,
    /// It is overloaded, away or asks for less: half as many at once.
    Down,
    /// It answers: nothing about its capacity, but it is there.
    Neutral,
    /// Nothing is learnt: the endpoint was not asked, or did not get to say anything about itself.
    Nothing,
}

/// What an answer of this category and status means that took so long; without a category it is a 2xx.
pub fn push(
    category: Option<Category>,
    status: Option<u16>,
    took: Duration,
    slow: Duration,
) -> Push {
    match category {
        None if took > slow => Push::Slow,
        None => Push::Up,
        Some(
            Category::Dns
            | Category::ConnectRefused
            | Category::ConnectTimeout
            | Category::ConnectFailed
            | Category::Tls
            | Category::Timeout
            | Category::RateLimited,
        ) => Push::Down,
        Some(Category::ServerError) if matches!(status, Some(502..=504)) => Push::Down,
        Some(
            Category::ServerError
            | Category::RequestTimeout
            | Category::TooEarly
            | Category::ClientError
            | Category::Redirect
            | Category::Protocol,
        ) => Push::Neutral,
        Some(
            Category::Blocked
            | Category::Internal
            | Category::Gone
            | Category::Lost
            | Category::Filter
            | Category::Conversion
            | Category::Expired,
        ) => Push::Nothing,
    }
}

/// The window of one endpoint: open at a size of at least 1, or shut and probed by one request at a time.
#[derive(Clone, Debug)]
pub struct AdaptiveWindow {
    /// At least 1 and at most [`LARGEST`] while open; 0 while shut.
    size: f64,
    /// No answer has made it smaller yet: each success adds 1, so that the size doubles per round trip.
    doubling: bool,
    /// When it last became smaller. A request from before that is part of the overload already answered.
    decreased_at: i64,
    /// Only while shut.
    shut: Option<Shut>,
    /// The wait before the next probe, jitter left out: [`PROBE_FIRST`] to [`PROBE_LONGEST`].
    probe_wait: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Shut {
    /// What began before is not a probe.
    since: i64,
    /// Before this no probe is sent.
    probe_at: i64,
}

impl AdaptiveWindow {
    /// The window of an endpoint nothing is known about: one request, doubling.
    pub fn new() -> Self {
        AdaptiveWindow {
            doubling: true,
            ..AdaptiveWindow::reopened()
        }
    }

    /// The window of an endpoint that came back: one request, growing by 1 per window of successes.
    pub fn reopened() -> Self {
        AdaptiveWindow {
            size: 1.0,
            doubling: false,
            decreased_at: i64::MIN,
            shut: None,
            probe_wait: PROBE_FIRST,
        }
    }

    /// A window as it was written down, whatever stands there: below 1 (or no number) it is shut, and
    /// without a time of the next probe that is sent at once.
    pub fn restored(size: f64, probe_at: Option<i64>, probe_wait: Duration) -> Self {
        let open = size >= 1.0;
        AdaptiveWindow {
            size: if open { size.min(LARGEST) } else { 0.0 },
            shut: (!open).then_some(Shut {
                since: i64::MIN,
                probe_at: probe_at.unwrap_or(AT_ONCE),
            }),
            probe_wait: probe_wait.clamp(PROBE_FIRST, PROBE_LONGEST),
            ..AdaptiveWindow::reopened()
        }
    }

    /// Its size; 0 when it is shut.
    pub fn size(&self) -> f64 {
        self.size
    }

    /// Whether only probes are sent.
    pub fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// When it may be probed next; none while it is open.
    pub fn probe_at(&self) -> Option<i64> {
        self.shut.map(|shut| shut.probe_at)
    }

    /// How long it waited for the latest probe, jitter left out.
    pub fn probe_wait(&self) -> Duration {
        self.probe_wait
    }

    /// How many requests may run at once, all in all: while shut one probe, when it is due.
    pub fn room(&self, cap: usize, now: i64) -> usize {
        match self.shut {
            Some(shut) if now < shut.probe_at => 0,
            Some(_) => cap.min(1),
            // Between 1 and LARGEST: nothing is cut off but the fraction.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            None => cap.min((self.size as usize).max(1)),
        }
    }

    /// How many may run before long: while the size still doubles nothing speaks against the cap, and what
    /// waits must not be taken for stuck because the first requests go one by one.
    pub fn prospect(&self, cap: usize, now: i64) -> usize {
        if self.doubling {
            cap
        } else {
            self.room(cap, now)
        }
    }

    /// Learns from the answer to a request that began at `began`. True when the window shut or opened.
    pub fn moved(
        &mut self,
        push: Push,
        began: i64,
        now: i64,
        cap: usize,
        retry_after: Duration,
        dice: f64,
    ) -> bool {
        if let Some(shut) = self.shut {
            return self.moved_shut(shut, push, began, now, retry_after, dice);
        }
        #[allow(clippy::cast_precision_loss)]
        let most = (cap.max(1) as f64).min(LARGEST);
        self.size = self.size.min(most);
        match push {
            Push::Up => {
                let more = if self.doubling { 1.0 } else { 1.0 / self.size };
                self.size = (self.size + more).min(most);
            }
            Push::Slow => {
                self.doubling = false;
                // A size of 1 stays and is no decrease: it must not shield from one that is.
                if began >= self.decreased_at && self.size > 1.0 {
                    self.size = (self.size / 2.0).max(1.0);
                    self.decreased_at = now;
                }
            }
            Push::Down if began >= self.decreased_at => {
                self.doubling = false;
                self.decreased_at = now;
                self.size /= 2.0;
                if self.size < 1.0 {
                    self.size = 0.0;
                    self.probe_wait = PROBE_FIRST;
                    self.shut = Some(Shut {
                        since: now,
                        probe_at: probe_at(now, PROBE_FIRST, retry_after, dice),
                    });
                    return true;
                }
            }
            Push::Down | Push::Neutral | Push::Nothing => {}
        }
        false
    }

    fn moved_shut(
        &mut self,
        shut: Shut,
        push: Push,
        began: i64,
        now: i64,
        retry_after: Duration,
        dice: f64,
    ) -> bool {
        let probe = began >= shut.since;
        match push {
            // Of whatever time: the receiver is alive.
            Push::Up | Push::Slow => self.open(),
            Push::Neutral if probe => self.open(),
            Push::Down | Push::Nothing if probe => {
                self.probe_wait = self.probe_wait.saturating_mul(2).min(PROBE_LONGEST);
                self.shut = Some(Shut {
                    probe_at: probe_at(now, self.probe_wait, retry_after, dice),
                    ..shut
                });
                return false;
            }
            Push::Down | Push::Nothing | Push::Neutral => return false,
        }
        true
    }

    /// Keeps the time of the last decrease, so that stragglers from before cannot shut it again.
    fn open(&mut self) {
        *self = AdaptiveWindow {
            decreased_at: self.decreased_at,
            ..AdaptiveWindow::reopened()
        };
    }
}

impl Default for AdaptiveWindow {
    fn default() -> Self {
        AdaptiveWindow::new()
    }
}

fn probe_at(now: i64, wait: Duration, retry_after: Duration, dice: f64) -> i64 {
    // Many endpoints behind one host shut together: jitter keeps their probes apart.
    let jitter = match dice {
        dice if dice.is_finite() => (wait / JITTER_PART).mul_f64(dice.clamp(0.0, 1.0)),
        _ => Duration::ZERO,
    };
    let wait = wait.saturating_add(jitter).max(retry_after);
    now.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX))
}

/// The wait before the first probe of a window that shut.
pub const PROBE_FIRST: Duration = Duration::from_secs(1);
/// The longest wait between two probes, Retry-After left out.
pub const PROBE_LONGEST: Duration = Duration::from_secs(60);
/// No window is larger: far above every cap, far below where adding 1 gets lost.
const LARGEST: f64 = 1_000_000.0;
/// A time that has always come.
const AT_ONCE: i64 = 0;
/// Jitter is at most one part in so many of the wait: 20 %.
const JITTER_PART: u32 = 5;

#[cfg(test)]
#[path = "adaptive_tests.rs"]
mod tests;
