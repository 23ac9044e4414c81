//! A token bucket: so many requests per second, so many at once after a rest.
//!
//! Kept as the time at which the bucket would be full again (the generic cell rate algorithm of ATM), in
//! whole picoseconds: a count of tokens as a float drifts, and then the time at which the next token is
//! said to be there may be one at which it is still refused.

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Tokens per second; more than 0.
    pub per_second: f64,
    /// Tokens a full bucket holds; at least 1.
    pub burst: f64,
}

/// Tokens of one [`Rate`]. Times are microseconds; one that lies before an earlier one counts as that.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Picoseconds until the next token; at least 1.
    each: i128,
    /// Picoseconds in which the tokens of a full bucket come, the last one left out.
    rest: i128,
    /// When it is full again, in picoseconds. A token is there while that is at most `rest` ahead.
    full_at: i128,
    /// The latest time it was asked for a token, microseconds.
    seen: i64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: Rate) -> Self {
        let (each, rest) = parts(rate);
        Bucket {
            each,
            rest,
            full_at: ALWAYS_FULL,
            seen: i64::MIN,
        }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: i64) -> bool {
        self.seen = self.seen.max(now);
        let from = self.full_from(now);
        if from - self.rest > picoseconds(self.seen) {
            return false;
        }
        self.full_at = from + self.each;
        true
    }

    /// The token that was taken last comes back.
    pub fn give_back(&mut self) {
        self.full_at -= self.each;
    }

    /// The earliest time from `now` on at which there is a token.
    pub fn ready_at(&self, now: i64) -> i64 {
        self.ready_after(0, now)
    }

    /// The same when so many tokens are taken before, each as early as possible.
    pub fn ready_after(&self, tokens: usize, now: i64) -> i64 {
        let others = i128::try_from(tokens).unwrap_or(i128::MAX);
        let at = (self.full_from(now) - self.rest).saturating_add(others.saturating_mul(self.each));
        let whole = at.div_euclid(PICOSECONDS) + i128::from(at.rem_euclid(PICOSECONDS) > 0);
        // A time before the latest one counts as that, here as when it is taken.
        if whole <= i128::from(self.seen) {
            return now;
        }
        i64::try_from(whole).unwrap_or(i64::MAX).max(now)
    }

    /// How many tokens can be taken from `now` to `until`.
    pub fn tokens_until(&self, now: i64, until: i64) -> usize {
        let ahead = picoseconds(until.max(self.seen)) + self.rest - self.full_from(now);
        if ahead < 0 {
            return 0;
        }
        usize::try_from(ahead / self.each + 1).unwrap_or(usize::MAX)
    }

    /// Another rate: the tokens stay, as far as the new bucket holds them.
    pub fn set_rate(&mut self, rate: Rate) {
        let (each, rest) = parts(rate);
        if (each, rest) == (self.each, self.rest) {
            return;
        }
        // A bucket never used is full, whatever its rate.
        if self.seen > i64::MIN {
            let missing = (self.full_at - picoseconds(self.seen)).max(0);
            // In tokens: a bucket holds `rest / each + 1`.
            #[allow(clippy::cast_precision_loss)]
            let of = |time: i128, each: i128| time as f64 / each as f64;
            let tokens = of(self.rest - missing, self.each) + 1.0;
            let lacking = (of(rest, each) + 1.0 - tokens.max(0.0)).max(0.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            let lacking = (lacking * each as f64).ceil() as i128;
            self.full_at = picoseconds(self.seen) + lacking.min(rest + each);
        }
        (self.each, self.rest) = (each, rest);
    }

    /// When it is full again, if not now.
    fn full_from(&self, now: i64) -> i128 {
        self.full_at.max(picoseconds(self.seen.max(now)))
    }
}

/// Picoseconds between tokens, and those in which a full bucket less one token comes. Whatever stands in the
/// rate, the products with a count of pairs and sums with a time stay within 128 bits.
fn parts(rate: Rate) -> (i128, i128) {
    let each = if rate.per_second > 0.0 {
        // Rounded up, so that the promised rate is never exceeded.
        (1e12 / rate.per_second).ceil().clamp(1.0, SLOWEST)
    } else {
        SLOWEST
    };
    let more = if rate.burst > 1.0 {
        rate.burst.min(LARGEST_BURST) - 1.0
    } else {
        0.0
    };
    #[allow(clippy::cast_possible_truncation)]
    let (each_whole, more_whole) = (each as i128, more as i128);
    #[allow(clippy::cast_possible_truncation)]
    let part = (more.fract() * each) as i128;
    (each_whole, more_whole * each_whole + part)
}

fn picoseconds(microseconds: i64) -> i128 {
    i128::from(microseconds) * PICOSECONDS
}

const PICOSECONDS: i128 = 1_000_000;
/// Before every time, and far enough from the least number that tokens may be given back.
const ALWAYS_FULL: i128 = i128::MIN / 4;
/// Picoseconds: one token in some 30,000 years.
const SLOWEST: f64 = 1e24;
const LARGEST_BURST: f64 = 1e9;

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
