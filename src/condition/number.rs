//! Numbers as they are written, compared exactly.
//!
//! Must stay true: parsing and comparing take time in proportion to the text, not to its exponent.

use std::cmp::Ordering;
use std::fmt;

/// Exponents beyond this are as far as any other: a body has fewer digits by which to come back.
const FARTHEST: i64 = 1 << 60;

/// A decimal number: 0.DIGITS times ten to the power of `exponent`.
#[derive(Debug, Clone)]
pub struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for 0.
    digits: Vec<u8>,
    exponent: i64,
    /// As it is written.
    text: String,
}

impl Decimal {
    /// Reads a number in the form of JSON; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, power(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, part) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let is_padded = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || is_padded || !is_digits(whole) || !is_digits(part) {
            return None;
        }
        let all = whole.bytes().chain(part.bytes());
        let zeros = all.clone().take_while(|&digit| digit == b'0').count();
        let mut digits: Vec<u8> = all.skip(zeros).collect();
        digits.truncate(digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1));
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()?;
        let exponent = if digits.is_empty() { 0 } else { exponent + point };
        let negative = negative && !digits.is_empty();
        Some(Decimal { negative, digits, exponent, text: text.to_owned() })
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An exponent with its sign, at most [`FARTHEST`] from 0.
fn power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !is_digits(digits) {
        return None;
    }
    let size = digits.parse().map_or(FARTHEST, |size: i64| size.min(FARTHEST));
    Some(if text.starts_with('-') { -size } else { size })
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |one: &Decimal| match (one.negative, one.digits.is_empty()) {
            (true, _) => -1,
            (false, true) => 0,
            (false, false) => 1,
        };
        let size = |one: &Decimal, other: &Decimal| {
            one.exponent.cmp(&other.exponent).then_with(|| one.digits.cmp(&other.digits))
        };
        sign(self).cmp(&sign(other)).then_with(|| match self.negative {
            true => size(other, self),
            false => size(self, other),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `1.0` equals `1`.
impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn compare(a: &str, b: &str) -> Ordering {
        Decimal::parse(a).unwrap().cmp(&Decimal::parse(b).unwrap())
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
            "--1", "1e5e5", "٣",
        ] {
            assert!(Decimal::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_number_of_a_million_digits_takes_one_pass() {
        let long = "9".repeat(1_000_000);
        let begun = std::time::Instant::now();
        assert_eq!(compare(&long, &format!("1e{long}")), Ordering::Less);
        assert_eq!(compare(&format!("0.{long}"), "1"), Ordering::Less);
        assert!(begun.elapsed().as_secs() < 5);
    }
}
