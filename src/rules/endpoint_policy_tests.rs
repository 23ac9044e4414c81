//! Tests of what an endpoint's policy says, of probes and of ages.

use proptest::prelude::*;

use super::*;
use crate::rules::delivery::Phase;

const NOW: i64 = 1_785_585_600;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn settings() -> RetryPolicy {
    RetryPolicy {
        schedule: parse_schedule("5s,5m,30m").unwrap(),
        client_error_attempts: 2,
        retry_after_max: seconds(3_600),
    }
}

fn failure(category: Category) -> Answer {
    Answer::Failure {
        category,
        phase: Some(Phase::Connect),
        detail: String::new(),
    }
}

fn status(code: u16, retry_after: &str) -> Answer {
    Answer::Status {
        code,
        retry_after: vec![retry_after.to_owned()],
    }
}

fn probe(since_first: Duration) -> Try {
    Try {
        in_series: 1,
        probe: true,
        since_first,
    }
}

#[test]
fn a_policy_stands_on_the_default_one_and_that_on_the_settings() {
    let default = PolicyRow {
        client_error_attempts: Some(3),
        max_in_flight: Some(4),
        burst: Some(7),
        max_age: Some(seconds(60)),
        disable_failures: Some(5),
        ..PolicyRow::default()
    };
    let own = PolicyRow {
        schedule: Some(vec![seconds(1)]),
        retry_after_max: Some(seconds(9)),
        max_in_flight: Some(2),
        rate: Some(2.5),
        disable_after: Some(seconds(77)),
        disable_failures: Some(6),
        ..PolicyRow::default()
    };
    let none = PolicyRow::default();
    let resolve = |default, own| EndpointPolicy::resolve(&settings(), seconds(500), default, own);
    let bare = resolve(&none, None);
    let expected = EndpointPolicy {
        retry: settings(),
        max_in_flight: None,
        rate: None,
        max_age: None,
        patience: Patience {
            disable_after: seconds(500),
            failures: 20,
        },
    };
    assert_eq!(bare, expected);
    let expected = EndpointPolicy {
        retry: RetryPolicy {
            client_error_attempts: 3,
            ..settings()
        },
        max_in_flight: Some(4),
        rate: None,
        max_age: Some(seconds(60)),
        patience: Patience {
            disable_after: seconds(500),
            failures: 5,
        },
    };
    assert_eq!(resolve(&default, None), expected);
    assert_eq!(resolve(&default, Some(&none)), expected);
    let expected = EndpointPolicy {
        retry: RetryPolicy {
            schedule: vec![seconds(1)],
            client_error_attempts: 3,
            retry_after_max: seconds(9),
        },
        max_in_flight: Some(2),
        rate: Some(Rate {
            per_second: 2.5,
            burst: 7.0,
        }),
        max_age: Some(seconds(60)),
        patience: Patience {
            disable_after: seconds(77),
            failures: 6,
        },
    };
    assert_eq!(resolve(&default, Some(&own)), expected);
}

#[test]
fn a_rate_that_is_none_limits_nothing_and_its_burst_is_at_least_one() {
    for (rate, burst, expected) in [
        (None, Some(5), None),
        (Some(f64::NAN), None, None),
        (Some(f64::INFINITY), None, None),
        (Some(0.0), None, None),
        (Some(-1.0), None, None),
        (Some(0.2), None, Some((0.2, 1.0))),
        (Some(2.1), None, Some((2.1, 3.0))),
        (Some(10.0), None, Some((10.0, 10.0))),
        (Some(10.0), Some(0), Some((10.0, 1.0))),
        (Some(10.0), Some(2), Some((10.0, 2.0))),
    ] {
        let row = PolicyRow {
            rate,
            burst,
            ..PolicyRow::default()
        };
        let policy = EndpointPolicy::resolve(&settings(), seconds(1), &row, None);
        let expected = expected.map(|(per_second, burst)| Rate { per_second, burst });
        assert_eq!(policy.rate, expected, "{rate:?} {burst:?}");
    }
}

#[test]
fn an_event_expires_when_it_is_older_than_its_greatest_age() {
    let second = Some(seconds(1));
    assert!(!expired(0, 1_000_000, second));
    assert!(expired(0, 1_000_001, second));
    assert!(!expired(5_000_000, 0, second), "from ahead of the clock");
    assert!(!expired(i64::MIN, i64::MAX, None));
    assert!(expired(i64::MIN, i64::MAX, second));
    assert!(!expired(i64::MIN, i64::MAX, Some(Duration::MAX)));
}

#[test]
fn a_failed_probe_waits_as_the_schedule_does_at_that_time() {
    // The waits end after 5 s, 305 s and 2105 s.
    for (since, wait) in [
        (0, Some(5)),
        (4, Some(5)),
        (5, Some(300)),
        (304, Some(300)),
        (305, Some(1_800)),
        (2_104, Some(1_800)),
        (2_105, None),
        (u64::MAX, None),
    ] {
        let verdict = judge(
            &failure(Category::Timeout),
            probe(seconds(since)),
            &settings(),
            NOW,
            0.0,
        );
        let expected = wait.map_or(Next::Dead, |wait| Next::Retry {
            after: seconds(wait),
        });
        assert_eq!(verdict.next, expected, "{since}");
    }
    let none = RetryPolicy {
        schedule: Vec::new(),
        ..settings()
    };
    let verdict = judge(
        &failure(Category::Dns),
        probe(Duration::ZERO),
        &none,
        NOW,
        0.0,
    );
    assert_eq!(verdict.next, Next::Dead);
}

#[test]
fn a_probe_honours_retry_after_and_gets_its_jitter() {
    let next =
        |answer: &Answer, dice| judge(answer, probe(seconds(10)), &settings(), NOW, dice).next;
    let after = |after| Next::Retry {
        after: seconds(after),
    };
    assert_eq!(next(&status(503, "900"), 0.0), after(900));
    assert_eq!(next(&status(503, "90000"), 0.0), after(3_600));
    assert_eq!(next(&status(503, "1"), 0.5), after(330));
}

#[test]
fn a_persistent_no_to_a_probe_is_counted_as_ever() {
    for code in [302, 404] {
        let answer = status(code, "");
        // Long after the schedule has passed.
        let next = |in_series| {
            let tried = Try {
                in_series,
                ..probe(seconds(9_999))
            };
            judge(&answer, tried, &settings(), NOW, 0.0).next
        };
        assert_eq!(next(1), Next::Retry { after: seconds(5) });
        assert_eq!(next(2), Next::Dead);
    }
}

#[test]
fn the_verdict_tells_the_wait_that_was_asked_for() {
    for (answer, asked) in [
        (status(429, "30"), 30),
        (status(503, "90000"), 3_600),
        (status(503, "soon"), 0),
        (status(404, "30"), 0),
        (status(200, "30"), 0),
        (failure(Category::Timeout), 0),
    ] {
        for in_series in [1, 9] {
            let tried = Try {
                in_series,
                probe: false,
                since_first: Duration::ZERO,
            };
            let verdict = judge(&answer, tried, &settings(), NOW, 0.0);
            assert_eq!(verdict.retry_after, seconds(asked), "{answer:?}");
        }
    }
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    (
        proptest::collection::vec(1u64..2_592_000_000, 0..12),
        0u64..200_000,
    )
        .prop_map(|(waits, longest)| RetryPolicy {
            schedule: waits.into_iter().map(Duration::from_millis).collect(),
            client_error_attempts: 1,
            retry_after_max: seconds(longest),
        })
}

proptest! {
    #[test]
    fn probes_alone_die_with_the_schedule(
        policy in any_policy(), dice in 0.0..1.0f64, delay in 0u64..100_000, asked in 0u64..200_000,
    ) {
        let whole: Duration = policy.schedule.iter().sum();
        let longest = policy.schedule.iter().max().copied().unwrap_or_default();
        let mut since = Duration::ZERO;
        let mut probes = 0;
        let answer = status(503, &asked.to_string());
        while let Next::Retry { after } = judge(&answer, probe(since), &policy, NOW, dice).next {
            prop_assert!(since < whole, "it lives while the schedule lasts");
            prop_assert!(after >= *policy.schedule.iter().min().unwrap());
            prop_assert!(after <= (longest + longest / 5).max(policy.retry_after_max));
            since += after + Duration::from_millis(delay);
            probes += 1;
        }
        prop_assert!(since >= whole, "it does not die before");
        // Each wait is at least the one it stands in, so each is met once at most.
        prop_assert!(probes <= policy.schedule.len());
    }

    #[test]
    fn later_probes_never_step_back_in_the_schedule(
        policy in any_policy(), early: u32, more: u32,
    ) {
        let (early, late) = (u64::from(early), u64::from(early) + u64::from(more));
        let (early, late) = (Duration::from_millis(early), Duration::from_millis(late));
        prop_assert!(waits_passed(&policy.schedule, early) <= waits_passed(&policy.schedule, late));
    }

    #[test]
    fn any_rows_resolve_to_a_rate_that_can_be_kept(
        rate: Option<f64>, burst: Option<u32>, own: bool,
    ) {
        let row = PolicyRow { rate, burst, ..PolicyRow::default() };
        let none = PolicyRow::default();
        let (default, own) = if own { (&none, Some(&row)) } else { (&row, None) };
        if let Some(rate) = EndpointPolicy::resolve(&settings(), seconds(1), default, own).rate {
            prop_assert!(rate.per_second.is_finite() && rate.per_second > 0.0);
            prop_assert!(rate.burst >= 1.0);
        }
    }
}
