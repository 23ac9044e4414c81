//! How long an endpoint has been failing: when its owner is warned, when it is disabled.
//!
//! Pure: times are arguments in Unix microseconds. It raises no alert and disables nothing; it says what is
//! new. Which attempts count (not ours, not those of lifecycle events) is the caller's to know.

use std::time::Duration;

/// The failures of one endpoint since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// When the first failed attempt after the last success ended; none = it is well.
    pub failing_since: Option<i64>,
    /// Failed attempts since then; 0 while it is well.
    pub failures: u32,
    /// Its owner was warned since then.
    pub warned: bool,
}

/// How much failing is too much: both must be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// So long without one success.
    pub disable_after: Duration,
    /// And so many failed attempts.
    pub failures: u32,
}

/// What is worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Half of the patience is used up.
    Warning {
        /// When it will be disabled at the earliest, should it go on failing.
        disable_at: i64,
    },
    /// The patience is used up.
    Disabled,
    /// It succeeded after a warning.
    Recovered {
        /// Since when it had been failing.
        failing_since: i64,
    },
}

impl Health {
    /// An attempt succeeded.
    pub fn succeeded(&mut self) -> Option<News> {
        let before = std::mem::take(self);
        before
            .failing_since
            .filter(|_| before.warned)
            .map(|failing_since| News::Recovered { failing_since })
    }

    /// An attempt failed at this time. Says `Disabled` again if it goes on failing nevertheless.
    pub fn failed(&mut self, at: i64, patience: Patience) -> Option<News> {
        let since = *self.failing_since.get_or_insert(at);
        self.failures = self.failures.saturating_add(1);
        let failing = u128::try_from(at.saturating_sub(since)).unwrap_or(0);
        let limit = patience.disable_after.as_micros();
        if failing >= limit && self.failures >= patience.failures {
            return Some(News::Disabled);
        }
        let half =
            failing.saturating_mul(2) >= limit && self.failures >= patience.failures.div_ceil(2);
        if self.warned || !half {
            return None;
        }
        self.warned = true;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Some(News::Warning {
            // When only the count is not reached yet the time has passed: no promise in the past.
            disable_at: since.saturating_add(limit).max(at),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const PATIENCE: Patience = Patience {
        disable_after: Duration::from_secs(100),
        failures: 5,
    };

    /// What each failure at these seconds is news of: `w`arning, `d`isabled or nothing.
    fn news(seconds: &[i64], patience: Patience) -> String {
        let mut health = Health::default();
        let letter = |news| match news {
            Some(News::Warning { .. }) => 'w',
            Some(News::Disabled) => 'd',
            Some(News::Recovered { .. }) => 'r',
            None => '-',
        };
        seconds
            .iter()
            .map(|at| letter(health.failed(at * SECOND, patience)))
            .collect()
    }

    #[test]
    fn an_endpoint_is_warned_at_half_and_disabled_when_both_limits_are_reached() {
        for (seconds, expected) in [
            (&[0, 10, 20, 30, 40, 49, 50, 60, 99, 100][..], "------w--d"),
            // The time alone is not enough, nor is the count.
            (&[0, 200, 201, 202, 203], "--w-d"),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "----------"),
            (&[0, 0, 0, 0, 100], "----d"),
            (&[0, 100], "--"),
            // A clock that steps back counts as no time.
            (&[100, 0, -500, -501, -502, 149, 150], "------w"),
        ] {
            assert_eq!(news(seconds, PATIENCE), expected, "{seconds:?}");
        }
    }

    #[test]
    fn half_of_an_odd_count_is_rounded_up_and_no_patience_disables_at_once() {
        let patience = |seconds, failures| Patience {
            disable_after: Duration::from_secs(seconds),
            failures,
        };
        assert_eq!(news(&[0, 60, 60, 60], patience(100, 7)), "---w");
        assert_eq!(news(&[0, 60, 60, 60], patience(100, 6)), "--w-");
        assert_eq!(news(&[0], patience(0, 0)), "d");
        assert_eq!(news(&[0, 0], patience(0, 1)), "dd");
        assert_eq!(news(&[0], patience(0, 2)), "w");
    }

    #[test]
    fn a_warning_says_when_the_endpoint_will_be_disabled() {
        let mut health = Health::default();
        for at in [10, 20, 30] {
            assert_eq!(health.failed(at * SECOND, PATIENCE), None);
        }
        let disable_at = 110 * SECOND;
        let warning = health.failed(60 * SECOND, PATIENCE);
        assert_eq!(warning, Some(News::Warning { disable_at }));
        let mut health = Health {
            failing_since: Some(0),
            failures: 2,
            warned: false,
        };
        let disable_at = 500 * SECOND;
        let warning = health.failed(disable_at, PATIENCE);
        assert_eq!(
            warning,
            Some(News::Warning { disable_at }),
            "not in the past"
        );
    }

    #[test]
    fn a_success_ends_it_and_is_news_only_after_a_warning() {
        let mut health = Health::default();
        assert_eq!(health.succeeded(), None);
        health.failed(7, PATIENCE);
        assert_eq!(health.succeeded(), None);
        assert_eq!(health, Health::default());
        for at in [7, 60 * SECOND, 61 * SECOND] {
            health.failed(at, PATIENCE);
        }
        assert!(health.warned);
        let recovered = News::Recovered { failing_since: 7 };
        assert_eq!(health.succeeded(), Some(recovered));
        assert_eq!(health, Health::default());
    }

    proptest! {
        #[test]
        fn an_endpoint_is_disabled_exactly_when_both_limits_are_reached_and_warned_once(
            steps in proptest::collection::vec(0_i64..40, 1..60),
            patience in (0_u64..400, 0_u32..30).prop_map(|(seconds, failures)| Patience {
                disable_after: Duration::from_secs(seconds), failures,
            }),
        ) {
            let mut health = Health::default();
            let (mut at, mut warnings) = (0, 0);
            let mut first = None;
            for (count, step) in (1_u32..).zip(steps) {
                at += step * SECOND;
                let first = *first.get_or_insert(at);
                let news = health.failed(at, patience);
                let failing = Duration::from_micros(u64::try_from(at - first).unwrap());
                let over = failing >= patience.disable_after && count >= patience.failures;
                prop_assert_eq!(news == Some(News::Disabled), over);
                if let Some(News::Warning { disable_at }) = news {
                    warnings += 1;
                    prop_assert!(disable_at >= at);
                    prop_assert!(failing * 2 >= patience.disable_after);
                    prop_assert!(count * 2 >= patience.failures);
                }
            }
            prop_assert!(warnings <= 1);
            prop_assert_eq!(health.warned, warnings == 1);
        }

        #[test]
        fn no_time_makes_health_overflow(at: [i64; 6], after: Duration, failures: u32, had: u32) {
            let mut health = Health { failures: had, ..Health::default() };
            for at in at {
                health.failed(at, Patience { disable_after: after, failures });
            }
        }
    }
}
