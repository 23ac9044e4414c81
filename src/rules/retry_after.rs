//! Reads the header `Retry-After` (RFC 9110, section 10.2.3): a number of seconds or an HTTP date.
//!
//! A receiver writes this text, so anything may stand in it. What the grammar does not allow is ignored, never
//! guessed at; what is valid but huge is told apart, so that nobody adds it to a clock. How long to wait in
//! the end is decided in [`crate::rules::policy`], not here.

use std::time::UNIX_EPOCH;

use httpdate::HttpDate;

/// What the header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Wait this many seconds; at most `i32::MAX`. A date that has passed asks for 0.
    Delay(u64),
    /// No header, or not one the grammar allows.
    Ignored,
    /// Valid, and longer than anybody would wait: the caller's own limit applies.
    Saturate,
}

/// Reads the field lines of `Retry-After`, as received at `now_unix`.
///
/// The field takes one value: more than one line contradicts the grammar (RFC 9110, section 5.3) and is
/// ignored, since nothing says which line is meant. A two-digit year of the obsolete RFC 850 form is 1970-2069.
pub fn parse(lines: &[&str], now_unix: i64) -> RetryAfter {
    let [line] = lines else {
        return RetryAfter::Ignored;
    };
    // Optional whitespace around a field value is SP and HTAB only.
    let value = line.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // All digits: the only way to fail is to be too big.
        return value.parse().map_or(RetryAfter::Saturate, bounded);
    }
    let Ok(date) = value.parse::<HttpDate>() else {
        return RetryAfter::Ignored;
    };
    // The parser trims more than the grammar allows (vertical tab, form feed).
    if value.trim().len() != value.len() {
        return RetryAfter::Ignored;
    }
    // The crate reads no year before 1970, so the date is not before the epoch.
    let date = std::time::SystemTime::from(date)
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let wait = i128::from(date) - i128::from(now_unix);
    bounded(u64::try_from(wait.max(0)).unwrap_or(u64::MAX))
}

fn bounded(seconds: u64) -> RetryAfter {
    if seconds <= MAX_SECONDS {
        RetryAfter::Delay(seconds)
    } else {
        RetryAfter::Saturate
    }
}

/// 68 years. Receivers that overflow 32 bits are known; nothing beyond is worth telling apart.
const MAX_SECONDS: u64 = i32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_785_585_600;

    #[test]
    fn spaces_and_tabs_around_the_value_do_not_matter() {
        assert_eq!(parse(&[" \t120 "], NOW), RetryAfter::Delay(120));
        assert_eq!(
            parse(&["\tSat, 01 Aug 2026 12:05:00 GMT "], NOW),
            RetryAfter::Delay(300)
        );
    }

    #[test]
    fn other_white_space_is_not_part_of_the_grammar() {
        assert_eq!(parse(&["120\u{b}"], NOW), RetryAfter::Ignored);
        assert_eq!(
            parse(&["Sat, 01 Aug 2026 12:05:00 GMT\u{c}"], NOW),
            RetryAfter::Ignored
        );
    }

    #[test]
    fn two_lines_are_ignored_even_when_both_are_good() {
        assert_eq!(parse(&["60", "120"], NOW), RetryAfter::Ignored);
    }

    #[test]
    fn a_clock_at_either_end_of_time_does_not_overflow() {
        let date = "Sat, 01 Aug 2026 12:05:00 GMT";
        assert_eq!(parse(&[date], i64::MAX), RetryAfter::Delay(0));
        assert_eq!(parse(&[date], i64::MIN), RetryAfter::Saturate);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}", now: i64) {
            parse(&[&text], now);
        }

        #[test]
        fn texts_near_a_date_do_not_make_the_parser_panic(
            day in "(Sat|Saturday|Mon|Xyz),? ?", rest in "[ 0-9A-Za-z:-]{0,26}", zone in "( GMT)?",
        ) {
            parse(&[&format!("{day}{rest}{zone}")], NOW);
        }

        #[test]
        fn every_number_of_seconds_is_read(seconds: u64) {
            let expected = if seconds <= MAX_SECONDS {
                RetryAfter::Delay(seconds)
            } else {
                RetryAfter::Saturate
            };
            prop_assert_eq!(parse(&[&seconds.to_string()], NOW), expected);
        }
    }
}
