//! When an endpoint's time ends and when its owner is warned; when the next challenge is due.
//! Plain arithmetic on times in microseconds since 1970.

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Waits between the challenges that are sent by themselves, from the beginning of one to that of the next.
const WAITS: [i64; 4] = [5 * SECOND, 60 * SECOND, 600 * SECOND, 3_600 * SECOND];
/// Challenges to one endpoint in a minute, whoever asks: it may be a stranger who never agreed to any.
pub const A_MINUTE: usize = 3;
const MINUTE: i64 = 60 * SECOND;

/// When the owner is warned of an end: in the last tenth of the term, not more than a week before.
pub fn warn_at(begin: i64, end: i64) -> i64 {
    end - (end.saturating_sub(begin) / 10).clamp(0, 7 * DAY)
}

/// When the next challenge is due by itself after so many of them; none = no more.
pub fn next_challenge(sent: usize, last: i64) -> Option<i64> {
    let wait = WAITS.get(sent.checked_sub(1)?)?;
    Some(last.saturating_add(*wait))
}

/// The earliest time at or after `at` that keeps to so many challenges a minute. `recent` = when the last ones
/// were sent, oldest first.
pub fn not_too_often(at: i64, recent: &[i64]) -> i64 {
    match recent
        .len()
        .checked_sub(A_MINUTE)
        .and_then(|n| recent.get(n))
    {
        Some(third) => at.max(third.saturating_add(MINUTE)),
        None => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_warned_a_week_before_or_in_the_last_tenth() {
        assert_eq!(warn_at(0, 365 * DAY), 358 * DAY);
        assert_eq!(warn_at(0, 10 * DAY), 9 * DAY);
        assert_eq!(warn_at(5, 5), 5);
        assert_eq!(warn_at(10, 5), 5);
    }

    #[test]
    fn five_challenges_are_sent_by_themselves() {
        let mut at = 0;
        let mut sent = 1;
        while let Some(next) = next_challenge(sent, at) {
            assert!(next > at);
            at = next;
            sent += 1;
        }
        assert_eq!((sent, at), (5, 4_265 * SECOND));
    }

    #[test]
    fn no_more_than_three_challenges_go_out_in_a_minute() {
        assert_eq!(not_too_often(100, &[]), 100);
        assert_eq!(not_too_often(100, &[1, 2]), 100);
        assert_eq!(not_too_often(100, &[1, 2, 3]), 1 + MINUTE);
        assert_eq!(not_too_often(100, &[1, 2, 3, 4]), 2 + MINUTE);
        assert_eq!(not_too_often(MINUTE * 9, &[1, 2, 3]), MINUTE * 9);
    }
}
