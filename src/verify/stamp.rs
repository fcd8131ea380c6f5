//! When a delivery was signed, and whether that is near enough to now.

use super::Rejection;
use super::extract::Facts;
use crate::model::Timestamp;
use crate::provider::{Scheme, Stamp, StampPlace, StampUnit};

/// Most digits of a timestamp: 16 hold milliseconds for 300,000 years, and more is no time.
const DIGITS_MAX: usize = 16;

/// Compares the signed time with `now`, both ways. `presented` is the text from the headers, the
/// very one that was hashed.
pub(super) fn check(
    scheme: &Scheme,
    presented: Option<&str>,
    found: &Facts,
    now: Timestamp,
) -> Result<(), Rejection> {
    let Some(stamp) = &scheme.timestamp else { return Ok(()) };
    let text = text(stamp, presented, found)
        .ok_or_else(|| Rejection::unproven("missing_timestamp", "there is no timestamp"))?;
    let signed_at = parse(text, stamp.unit).ok_or_else(|| unreadable(stamp.unit))?;
    // Where the provider writes whole seconds, parts of ours must not make a difference.
    let now = match stamp.unit {
        StampUnit::Seconds => Timestamp(now.seconds().saturating_mul(1000)),
        StampUnit::Millis | StampUnit::Iso8601 => now,
    };
    let tolerance = stamp.tolerance;
    let (age, lead) = (now.since(signed_at), signed_at.since(now));
    if age > tolerance {
        let detail =
            format!("signed {} s ago; the tolerance is {} s", age.as_secs(), tolerance.as_secs());
        return Err(Rejection::unproven("stale_timestamp", detail));
    }
    if lead > tolerance {
        let detail = format!(
            "signed {} s in the future; the tolerance is {} s",
            lead.as_secs(),
            tolerance.as_secs()
        );
        return Err(Rejection::unproven("future_timestamp", detail));
    }
    Ok(())
}

/// The timestamp's text: from the headers, or from the body where the scheme has it there.
pub(super) fn text<'a>(
    stamp: &Stamp,
    presented: Option<&'a str>,
    found: &'a Facts,
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
        StampUnit::Millis => "milliseconds since 1970 in plain digits",
        StampUnit::Iso8601 => "a date and time with an offset, as in 2026-01-01T00:00:00Z",
    };
    Rejection::unproven("bad_timestamp", format!("the timestamp is not {expected}"))
}

/// Reads a timestamp. Plain digits only: the providers' libraries print the parsed number back
/// before they hash it, so `+1`, `01` and `1.5` mean different things to them.
pub(super) fn parse(text: &str, unit: StampUnit) -> Option<Timestamp> {
    let digits = || {
        let plain = (1..=DIGITS_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        plain.then(|| text.parse::<i64>().ok()).flatten()
    };
    match unit {
        StampUnit::Seconds => digits()?.checked_mul(1000).map(Timestamp),
        StampUnit::Millis => digits().map(Timestamp),
        StampUnit::Iso8601 => {
            text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_millisecond()))
        }
    }
}

/// Writes a time as the provider does.
pub(super) fn print(time: Timestamp, unit: StampUnit) -> String {
    match unit {
        StampUnit::Seconds => time.seconds().to_string(),
        StampUnit::Millis => time.0.to_string(),
        StampUnit::Iso8601 => time.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_digits_only() {
        assert_eq!(parse("1767225600", StampUnit::Seconds), Some(Timestamp(1_767_225_600_000)));
        assert_eq!(parse("1767225600123", StampUnit::Millis), Some(Timestamp(1_767_225_600_123)));
        for bad in ["", "+1", "-1", "01", "1.5", " 1", "1 ", "1e3", "0x1", "١", "99999999999999999"]
        {
            assert_eq!(parse(bad, StampUnit::Seconds), None, "{bad}");
        }
    }

    #[test]
    fn dates_need_an_offset() {
        let at = Some(Timestamp(1_767_225_600_123));
        assert_eq!(parse("2026-01-01T00:00:00.123456789Z", StampUnit::Iso8601), at);
        assert_eq!(parse("2026-01-01T02:00:00.123+02:00", StampUnit::Iso8601), at);
        assert_eq!(parse("2026-01-01T00:00:00", StampUnit::Iso8601), None);
        assert_eq!(parse("soon", StampUnit::Iso8601), None);
    }
}
