//! Times as they stand on the wire: RFC 3339 text in UTC, and Unix seconds.
//!
//! A time is a number of microseconds since 1970, as PostgreSQL keeps it. There is no clock here, no time
//! zone other than UTC, and no clamping: a time that RFC 3339 cannot write is refused.

/// The time as RFC 3339 text in UTC with six fractional digits (`2026-11-30T01:10:58.123456Z`).
///
/// Nothing when the year is not 0001-9999: RFC 3339 has four digits for it.
pub fn rfc3339(unix_micros: i64) -> Option<String> {
    let (year, ..) = civil(unix_micros.div_euclid(MICROS_PER_DAY));
    (1..=9999).contains(&year).then(|| iso8601(unix_micros))
}

/// As [`rfc3339`], and for the years it has no room for the expanded form of ISO 8601
/// (`+010000-01-01T00:00:00.000000Z`), so that every time has exactly one text.
pub fn iso8601(unix_micros: i64) -> String {
    let (year, month, day) = civil(unix_micros.div_euclid(MICROS_PER_DAY));
    let micros = unix_micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::with_capacity(32);
    if (1..=9999).contains(&year) {
        digits(&mut text, year, 4);
    } else {
        text = format!("{year:+07}");
    }
    for (before, number, width) in [
        ('-', month, 2),
        ('-', day, 2),
        ('T', hour, 2),
        (':', minute, 2),
        (':', second, 2),
        ('.', fraction, 6),
    ] {
        text.push(before);
        digits(&mut text, number, width);
    }
    text.push('Z');
    text
}

/// A number that has no more digits than `width`, with zeros before it. Every body has a time, and the formatting of
/// the standard library took a fifth of what writing the body costs.
fn digits(text: &mut String, number: i64, width: u32) {
    for place in (0..width).rev() {
        let digit = number / 10_i64.pow(place) % 10;
        text.push(char::from(b'0' + u8::try_from(digit).unwrap_or(0)));
    }
}

/// The second the time lies in; before 1970 the earlier one, not the one nearer to zero.
pub fn unix_seconds(unix_micros: i64) -> i64 {
    unix_micros.div_euclid(MICROS_PER_SECOND)
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Howard Hinnant's `civil_from_days`: years are counted from 1 March, so that the leap day is the last of
/// its year. The days of an `i64` of microseconds are far from overflowing here.
fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_written_in_utc_with_six_digits() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00.000000Z"),
            (1_078_012_800_000_000, "2004-02-29T00:00:00.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (1_796_001_058_123_456, "2026-11-30T01:10:58.123456Z"),
            (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
            (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(rfc3339(micros).as_deref(), Some(text));
        }
    }

    #[test]
    fn years_without_four_digits_are_refused_and_never_clamped() {
        assert_eq!(rfc3339(-62_135_596_800_000_001), None);
        assert_eq!(rfc3339(253_402_300_800_000_000), None);
        assert_eq!(rfc3339(i64::MIN), None);
        assert_eq!(rfc3339(i64::MAX), None);
        assert_eq!(
            iso8601(253_402_300_800_000_000),
            "+010000-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            iso8601(-62_135_596_800_000_001),
            "+000000-12-31T23:59:59.999999Z"
        );
        assert_eq!(
            iso8601(-62_167_219_200_000_001),
            "-000001-12-31T23:59:59.999999Z"
        );
    }

    #[test]
    fn seconds_are_rounded_down_on_both_sides_of_1970() {
        assert_eq!(unix_seconds(1_999_999), 1);
        assert_eq!(unix_seconds(0), 0);
        assert_eq!(unix_seconds(-1), -1);
        assert_eq!(unix_seconds(-1_000_000), -1);
        assert_eq!(unix_seconds(-1_000_001), -2);
    }

    proptest! {
        #[test]
        fn dates_agree_with_another_implementation(seconds in 0u64..253_402_300_800) {
            let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            let ours = rfc3339(seconds as i64 * MICROS_PER_SECOND).unwrap();
            prop_assert_eq!(&ours[0..4], &http[12..16]);
            prop_assert_eq!(&ours[8..10], &http[5..7]);
            prop_assert_eq!(&ours[11..19], &http[17..25]);
            let month: usize = ours[5..7].parse().unwrap();
            let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
            prop_assert_eq!(&months[month * 3 - 3..month * 3], &http[8..11]);
        }

        #[test]
        fn the_order_of_texts_is_the_order_of_times(
            a in -62_135_596_800_000_000i64..253_402_300_800_000_000,
            b in -62_135_596_800_000_000i64..253_402_300_800_000_000,
        ) {
            prop_assert_eq!(a.cmp(&b), rfc3339(a).cmp(&rfc3339(b)));
        }

        #[test]
        fn every_time_has_a_text(micros: i64) {
            prop_assert!(iso8601(micros).ends_with('Z'));
        }
    }
}
