//! Numbers as they are written, compared exactly.
//!
//! Must stay true: parsing and comparing take time in proportion to the text, not to its exponent.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use serde::de::IgnoredAny;

/// Exponents beyond this are as far as any other: a body has fewer digits by which to come back.
const FARTHEST: i64 = 1 << 60;

/// A decimal number.
#[derive(Debug, Clone)]
pub struct Decimal {
    value: Value,
    /// The number as it is written.
    text: String,
}

/// Ordered as the numbers are.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Value {
    Negative(Reverse<Size>),
    Zero,
    Positive(Size),
}

/// 0.DIGITS times ten to the power of the exponent.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
struct Size {
    exponent: i64,
    /// The digits, without zeros at either end.
    digits: String,
}

impl Decimal {
    /// Reads a number in the form of JSON; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        // No other value of JSON begins and ends so, nor does white space.
        let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_digit());
        serde_json::from_str::<IgnoredAny>(text).ok().filter(|_| is_number)?;
        let unsigned = text.trim_start_matches('-');
        let (mantissa, power) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, part].concat();
        let significant = digits.trim_start_matches('0');
        let zeros = digits.len() - significant.len();
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()?;
        let farthest = if power.starts_with('-') { -FARTHEST } else { FARTHEST };
        // What does not fit is farther away.
        let power = power.parse().map_or(farthest, |power: i64| power.clamp(-FARTHEST, FARTHEST));
        let digits = significant.trim_end_matches('0').to_owned();
        let value = match (Size { exponent: power + point, digits }) {
            size if size.digits.is_empty() => Value::Zero,
            size if text.starts_with('-') => Value::Negative(Reverse(size)),
            size => Value::Positive(size),
        };
        Some(Decimal { value, text: text.to_owned() })
    }
}

/// `1.0` equals `1`.
impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::condition::tests::thread_time;

    fn compare(a: &str, b: &str) -> Ordering {
        Decimal::parse(a).partial_cmp(&Decimal::parse(b)).unwrap()
    }

    #[test]
    fn numbers_compare_exactly_in_every_form() {
        let rising = [
            "-1e9999999999999999999999",
            "-12",
            "-1.5",
            "-1e-7",
            "0",
            "1e-99999999999999999999999999",
            "0.0000001",
            "0.2",
            "1",
            "1.0000000000000000000001",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551616",
            "1e400",
            "2e9999999999999999999999",
        ];
        for (n, a) in rising.iter().enumerate() {
            for (m, b) in rising.iter().enumerate() {
                assert_eq!(compare(a, b), n.cmp(&m), "{a} {b}");
            }
        }
        for (a, b) in [
            ("1", "1.000"),
            ("100", "1E+2"),
            ("0.01", "1e-2"),
            ("-0", "0.0e7"),
            ("0e999999999999999999999", "0"),
            ("1200e-2", "12"),
        ] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn what_is_no_number_of_json_is_none() {
        for text in [
            "", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", " 1", "1 ", "1_0", "NaN", "1e1.5",
            "--1", "1e5e5", "٣", "1\n", "\t1", "[1]1", "1,1", "-a1",
        ] {
            assert!(Decimal::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_number_of_a_million_digits_takes_one_pass() {
        let long = "9".repeat(1_000_000);
        let begun = thread_time();
        assert_eq!(compare(&long, &format!("1e{long}")), Ordering::Less);
        assert_eq!(compare(&format!("0.{long}"), "1"), Ordering::Less);
        assert!((thread_time() - begun).as_secs() < 5);
    }
}
