//! Numbers as JSON writes them, compared and divided exactly: never through a float, and without writing out exponents.

use std::cmp::Ordering;

use serde_json::Number;

/// A decimal number: `0.d1d2d3... * 10^point`, sign apart. Zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Without leading and trailing zeros.
    digits: Vec<u8>,
    point: i64,
}

/// Exponents beyond are all the same; no payload is long enough to make up for them.
const MAX_EXPONENT: i64 = 1 << 40;
/// Most digits of a number that others are to be multiples of.
const MAX_DIVISOR_DIGITS: usize = 18;

impl Decimal {
    /// Reads the spelling of a JSON number.
    pub fn of(number: &Number) -> Decimal {
        let text = number.as_str();
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parsed_exponent(exponent)),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        let leading = all().take_while(|digit| *digit == b'0').count();
        let mut digits: Vec<u8> = all().skip(leading).map(|digit| digit - b'0').collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Decimal {
                negative: false,
                digits,
                point: 0,
            };
        }
        let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX / 4);
        Decimal {
            negative,
            digits,
            point: exponent + count(whole.len()) - count(leading),
        }
    }

    /// Whether it is above zero.
    pub fn is_positive(&self) -> bool {
        !self.negative && !self.digits.is_empty()
    }

    /// Whether it can be a divisor in [`is_multiple_of`](Self::is_multiple_of).
    pub fn divides(&self) -> bool {
        self.is_positive() && self.digits.len() <= MAX_DIVISOR_DIGITS
    }

    /// Whether it is a whole multiple of a number that [`divides`](Self::divides).
    pub fn is_multiple_of(&self, divisor: &Decimal) -> bool {
        if self.digits.is_empty() {
            return true;
        }
        let modulus = divisor
            .digits
            .iter()
            .fold(0_u128, |number, digit| number * 10 + u128::from(*digit));
        // Both as whole numbers times a power of ten. The digits of this one do not end in zero, so that a power of ten
        // that is missing cannot be found in them.
        let shift = self.scale() - divisor.scale();
        let (Ok(shift), true) = (u64::try_from(shift), modulus > 0) else {
            return false;
        };
        let rest = self.digits.iter().fold(0_u128, |rest, digit| {
            (rest * 10 + u128::from(*digit)) % modulus
        });
        (rest * power_of_ten(shift, modulus)).is_multiple_of(modulus)
    }

    /// The power of ten that the whole number made of the digits is to be multiplied with.
    fn scale(&self) -> i64 {
        self.point - i64::try_from(self.digits.len()).unwrap_or(i64::MAX / 4)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let sign = |number: &Decimal| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let magnitude = || {
            self.point
                .cmp(&other.point)
                .then_with(|| self.digits.cmp(&other.digits))
        };
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            0 => Ordering::Equal,
            1 => magnitude(),
            _ => magnitude().reverse(),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn parsed_exponent(text: &str) -> i64 {
    let negative = text.starts_with('-');
    let digits = text.trim_start_matches(['+', '-']);
    let size = digits
        .bytes()
        .fold(0_i64, |size, digit| {
            size.saturating_mul(10)
                .saturating_add(i64::from(digit.saturating_sub(b'0')))
        })
        .min(MAX_EXPONENT);
    if negative { -size } else { size }
}

/// 10 to a power, modulo a number below 10^18.
fn power_of_ten(mut power: u64, modulus: u128) -> u128 {
    let mut result = 1 % modulus;
    let mut square = 10 % modulus;
    while power > 0 {
        if power & 1 == 1 {
            result = result * square % modulus;
        }
        square = square * square % modulus;
        power >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::of(&text.parse().expect("a number"))
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let rising = [
            "-1e400",
            "-1e399",
            "-2",
            "-1.10",
            "-1.0999999999999999999999",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000000000000000001",
            "1",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "1e400",
            "1e99999999999999999999",
        ];
        for (place, low) in rising.iter().enumerate() {
            for high in &rising[place + 1..] {
                assert_eq!(
                    decimal(low).cmp(&decimal(high)),
                    Ordering::Less,
                    "{low} {high}"
                );
            }
        }
        for (one, other) in [
            ("1.10", "1.1"),
            ("-0", "0.00e5"),
            ("100", "1E2"),
            ("0.01", "1e-2"),
        ] {
            assert_eq!(decimal(one), decimal(other));
        }
    }

    #[test]
    fn multiples_are_found_exactly() {
        for (number, divisor, whole) in [
            ("1.10", "0.01", true),
            ("1070468.14", "0.01", true),
            ("0.10000000000000000001", "0.01", false),
            ("1.005", "0.01", false),
            ("1e400", "7", false),
            ("7e400", "7", true),
            ("1e400", "0.25", true),
            ("0", "3", true),
            ("-0.3", "0.1", true),
            ("10", "4", false),
            ("100", "4", true),
            ("9007199254740993", "2", false),
            ("9007199254740993", "3", true),
            ("1e-400", "0.1", false),
        ] {
            let divisor = decimal(divisor);
            assert!(divisor.divides());
            assert_eq!(decimal(number).is_multiple_of(&divisor), whole, "{number}");
        }
        assert!(!decimal("0").divides());
        assert!(!decimal("-1").divides());
        assert!(!decimal("1234567890123456789").divides());
    }
}
