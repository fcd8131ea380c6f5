//! Reads the time at which a delivery was signed, and checks that it is close enough to now.
//!
//! `verify` calls [`check`]; `sign` and `sample` call [`print`]. Must stay true: the checked text is
//! the one that the signature covers, and a time that libraries could read differently is refused.

use super::Rejection;
use super::extract::Facts;
use crate::model::Timestamp;
use crate::provider::{Proof, Stamp, StampPlace, StampUnit, ahead};

/// The most digits of a timestamp: 16 digits of milliseconds last for 300,000 years.
const DIGITS_MAX: usize = 16;

/// Checks that the signed time is within the tolerance before `now`, and at most [`ahead`] after it. `presented` is the
/// header text that the signature covers. Returns the time, if the scheme signs one.
pub(super) fn check(
    proof: &Proof,
    presented: Option<&str>,
    found: &Facts<'_>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Rejection> {
    let Some(stamp) = &proof.timestamp else { return Ok(None) };
    let text = text(stamp, presented, found)
        .ok_or_else(|| Rejection::unproven("missing_timestamp", "there is no timestamp"))?;
    let signed_at = parse(text, stamp.unit).ok_or_else(|| unreadable(stamp.unit))?;
    // The provider writes whole seconds, so the milliseconds of `now` must not count.
    let now = match stamp.unit {
        StampUnit::Seconds | StampUnit::Decimal => Timestamp(now.seconds().saturating_mul(1000)),
        StampUnit::Millis | StampUnit::Iso8601 => now,
    };
    let tolerance = stamp.tolerance;
    let (age, lead) = (now.since(signed_at), signed_at.since(now));
    if age > tolerance {
        let detail =
            format!("signed {} s ago; the tolerance is {} s", age.as_secs(), tolerance.as_secs());
        return Err(Rejection::unproven("stale_timestamp", detail));
    }
    let ahead = ahead(tolerance);
    if lead > ahead {
        let detail = format!(
            "signed {} s in the future; the tolerance is {} s",
            lead.as_secs(),
            ahead.as_secs()
        );
        return Err(Rejection::unproven("future_timestamp", detail));
    }
    Ok(Some(signed_at))
}

/// The timestamp's text, from the headers or from the body, as the scheme says.
pub(super) fn text<'a>(
    stamp: &Stamp,
    presented: Option<&'a str>,
    found: &'a Facts<'_>,
) -> Option<&'a str> {
    match &stamp.place {
        StampPlace::Item(_) | StampPlace::Header(_) => presented,
        StampPlace::Json(pointer) => found.text(pointer),
    }
}

/// The rejection of a timestamp that cannot be read.
pub(super) fn unreadable(unit: StampUnit) -> Rejection {
    let expected = match unit {
        StampUnit::Seconds => "seconds since 1970 in plain digits",
        StampUnit::Decimal => "seconds since 1970 in plain digits, with or without a fraction",
        StampUnit::Millis => "milliseconds since 1970 in plain digits",
        StampUnit::Iso8601 => "a date and time with an offset, as in 2026-01-01T00:00:00Z",
    };
    Rejection::unproven("bad_timestamp", format!("the timestamp is not {expected}"))
}

/// Reads a timestamp. A number must be plain digits: the providers' libraries print the parsed
/// number before they hash it, so `+1`, `01` and `1.5` would give other hashes there.
pub(super) fn parse(text: &str, unit: StampUnit) -> Option<Timestamp> {
    let digits = |text: &str| {
        let plain = (1..=DIGITS_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        plain.then(|| text.parse::<i64>().ok()).flatten()
    };
    match unit {
        StampUnit::Seconds => digits(text)?.checked_mul(1000).map(Timestamp),
        StampUnit::Decimal => {
            let fraction = text.split_once('.').map_or("0", |(_, fraction)| fraction);
            let plain = (1..=DIGITS_MAX).contains(&fraction.len())
                && fraction.bytes().all(|b| b.is_ascii_digit());
            parse(signed(text, unit), StampUnit::Seconds).filter(|_| plain)
        }
        StampUnit::Millis => digits(text).map(Timestamp),
        StampUnit::Iso8601 => {
            text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_millisecond()))
        }
    }
}

/// What a signature covers of a timestamp: of a decimal number its whole part.
pub(super) fn signed(text: &str, unit: StampUnit) -> &str {
    match unit {
        StampUnit::Decimal => text.split_once('.').map_or(text, |(whole, _)| whole),
        StampUnit::Seconds | StampUnit::Millis | StampUnit::Iso8601 => text,
    }
}

/// Writes a time in the provider's unit.
pub(super) fn print(time: Timestamp, unit: StampUnit) -> String {
    match unit {
        StampUnit::Seconds | StampUnit::Decimal => time.seconds().to_string(),
        StampUnit::Millis => time.0.to_string(),
        StampUnit::Iso8601 => time.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_timestamp_is_plain_digits_only() {
        assert_eq!(parse("1767225600", StampUnit::Seconds), Some(Timestamp(1_767_225_600_000)));
        assert_eq!(parse("1767225600123", StampUnit::Millis), Some(Timestamp(1_767_225_600_123)));
        for bad in ["", "+1", "-1", "01", "1.5", " 1", "1 ", "1e3", "0x1", "١", "99999999999999999"]
        {
            assert_eq!(parse(bad, StampUnit::Seconds), None, "{bad}");
        }
    }

    #[test]
    fn the_whole_part_of_a_decimal_timestamp_is_what_is_signed() {
        let at = |text: &str| parse(text, StampUnit::Decimal);
        for good in ["1767225600", "1767225600.0", "1767225600.5", "1767225600.542362"] {
            assert_eq!(at(good), Some(Timestamp(1_767_225_600_000)), "{good}");
            assert_eq!(signed(good, StampUnit::Decimal), "1767225600");
        }
        for bad in ["", ".5", "1.", "1.5.5", "01.5", "-1.5", "1.-5", "1.5e3", "1. 5", "1,5"] {
            assert_eq!(at(bad), None, "{bad}");
        }
        assert_eq!(at(&format!("1.{}", "0".repeat(17))), None);
    }

    #[test]
    fn a_date_without_an_offset_is_refused() {
        let at = Some(Timestamp(1_767_225_600_123));
        assert_eq!(parse("2026-01-01T00:00:00.123456789Z", StampUnit::Iso8601), at);
        assert_eq!(parse("2026-01-01T02:00:00.123+02:00", StampUnit::Iso8601), at);
        assert_eq!(parse("2026-01-01T00:00:00", StampUnit::Iso8601), None);
        assert_eq!(parse("soon", StampUnit::Iso8601), None);
    }
}
