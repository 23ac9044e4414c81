//! Tests of the token bucket.

use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000;

fn bucket(per_second: f64, burst: f64) -> Bucket {
    Bucket::new(Rate { per_second, burst })
}

fn drain(bucket: &mut Bucket, now: i64) -> usize {
    (0..10_000).take_while(|_| bucket.take(now)).count()
}

#[test]
fn a_full_bucket_gives_its_burst_and_then_its_rate() {
    let mut bucket = bucket(2.0, 5.0);
    assert_eq!(drain(&mut bucket, 7), 5);
    assert_eq!(bucket.ready_at(7), 7 + SECOND / 2);
    assert!(!bucket.take(6 + SECOND / 2));
    assert!(bucket.take(7 + SECOND / 2));
    assert_eq!(drain(&mut bucket, 7 + 2 * SECOND), 3);
    assert_eq!(
        drain(&mut bucket, 7 + 100 * SECOND),
        5,
        "never more than the burst"
    );
}

#[test]
fn a_bucket_does_not_fill_while_time_stands_still_or_steps_back() {
    let mut bucket = bucket(10.0, 3.0);
    assert_eq!(drain(&mut bucket, SECOND), 3);
    for now in [SECOND, 0, -SECOND, i64::MIN, SECOND] {
        assert!(!bucket.take(now), "{now}");
    }
    assert_eq!(drain(&mut bucket, SECOND + SECOND / 10), 1);
}

#[test]
fn a_token_that_comes_back_is_there_again_and_fills_nothing_over() {
    let mut bucket = bucket(1.0, 2.0);
    assert_eq!(drain(&mut bucket, 0), 2);
    bucket.give_back();
    assert_eq!(drain(&mut bucket, 0), 1);
    bucket.give_back();
    bucket.give_back();
    bucket.give_back();
    assert_eq!(drain(&mut bucket, 0), 2);
}

#[test]
fn another_rate_keeps_the_tokens_within_its_burst() {
    let rate = |per_second, burst| Rate { per_second, burst };
    let mut bucket = bucket(1.0, 10.0);
    bucket.set_rate(rate(1.0, 4.0));
    assert_eq!(drain(&mut bucket, 0), 4, "full before its first use");
    bucket.set_rate(rate(1.0, 100.0));
    assert_eq!(drain(&mut bucket, 0), 0, "empty stays empty");
    assert_eq!(drain(&mut bucket, 3 * SECOND), 3);
    bucket.set_rate(rate(10.0, 2.0));
    assert_eq!(drain(&mut bucket, 3 * SECOND), 0);
    assert_eq!(drain(&mut bucket, 9 * SECOND), 2);
    let mut bucket = self::bucket(1.0, 10.0);
    assert!(bucket.take(0));
    bucket.set_rate(rate(5.0, 6.0));
    assert_eq!(drain(&mut bucket, 0), 6, "nine tokens, cut to six");
}

#[test]
fn the_tokens_of_a_time_to_come_are_foretold() {
    let mut bucket = bucket(4.0, 2.0);
    assert_eq!(bucket.tokens_until(0, 0), 2);
    assert_eq!(bucket.tokens_until(0, SECOND), 6);
    assert_eq!(drain(&mut bucket, 0), 2);
    assert_eq!(bucket.tokens_until(0, SECOND), 4);
    assert_eq!(bucket.tokens_until(0, SECOND / 8), 0);
    assert_eq!(bucket.ready_after(3, 0), SECOND);
    assert_eq!(bucket.tokens_until(100 * SECOND, 101 * SECOND), 6);
    assert_eq!(
        bucket.ready_after(3, 100 * SECOND),
        100 * SECOND + SECOND / 2
    );
}

#[test]
fn rates_that_are_no_rates_are_the_slowest() {
    for per_second in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 1e-300] {
        let mut bucket = bucket(per_second, f64::NAN);
        assert_eq!(drain(&mut bucket, 0), 1, "{per_second}");
        assert!(!bucket.take(i64::MAX / 16));
        assert_eq!(bucket.ready_at(i64::MAX), i64::MAX);
    }
    let mut bucket = bucket(f64::INFINITY, f64::INFINITY);
    assert_eq!(drain(&mut bucket, i64::MIN), 10_000);
}

proptest! {
    #[test]
    fn no_interval_gives_more_than_the_burst_and_the_rate_times_its_length(
        per_second in 0.05..2_000.0f64,
        burst in 1.0..20.0f64,
        steps in proptest::collection::vec((-200_000_i64..2_000_000, 1_usize..20), 1..60),
    ) {
        let mut bucket = bucket(per_second, burst);
        let (mut now, mut latest) = (0_i64, i64::MIN);
        let mut taken: Vec<i64> = Vec::new();
        for (step, tries) in steps {
            now += step;
            latest = latest.max(now);
            for _ in 0..tries {
                if bucket.take(now) {
                    taken.push(latest);
                }
            }
        }
        for first in 0..taken.len() {
            for last in first..taken.len() {
                #[allow(clippy::cast_precision_loss)]
                let seconds = (taken[last] - taken[first]) as f64 / 1e6;
                #[allow(clippy::cast_precision_loss)]
                let count = (last - first + 1) as f64;
                prop_assert!(count <= burst + per_second * seconds + 1e-6);
            }
        }
    }

    #[test]
    fn a_token_is_there_at_the_time_it_was_foretold_for_and_not_before(
        per_second in 0.05..5e6f64,
        burst in 1.0..20.0f64,
        times in proptest::collection::vec(0_i64..3_000_000, 1..40),
        others in 0_usize..10,
    ) {
        let mut bucket = bucket(per_second, burst);
        let mut now = 0;
        for step in times {
            now += step;
            let at = bucket.ready_at(now);
            prop_assert!(at >= now);
            if at > now {
                prop_assert!(!bucket.clone().take(at - 1));
            }
            prop_assert!(bucket.clone().take(at));
            // The same for a token behind others.
            let mut other = bucket.clone();
            for before in 0..others {
                let at = bucket.ready_after(before, now);
                prop_assert!(other.take(at + i64::try_from(before).unwrap()));
            }
            // Each of them may have been taken up to a microsecond late.
            let at = bucket.ready_after(others, now);
            prop_assert!(other.take(at + i64::try_from(others).unwrap()));
            prop_assert!(bucket.tokens_until(now, at) > others);
            while bucket.take(now) {
                if per_second > 1e5 {
                    break;
                }
            }
        }
    }

    #[test]
    fn nothing_makes_a_bucket_overflow(
        rates in proptest::collection::vec((any::<f64>(), any::<f64>()), 1..5),
        times in proptest::collection::vec(any::<i64>(), 1..10),
        tokens: usize,
    ) {
        let mut bucket = bucket(rates[0].0, rates[0].1);
        for now in times {
            for (per_second, burst) in &rates {
                bucket.take(now);
                prop_assert!(bucket.ready_after(tokens, now) >= now);
                bucket.tokens_until(now, now.saturating_add(SECOND));
                bucket.set_rate(Rate { per_second: *per_second, burst: *burst });
                bucket.give_back();
            }
        }
    }
}
