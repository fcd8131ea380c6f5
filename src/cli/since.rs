//! A point in the past as people type it.

use std::str::FromStr;
use std::time::Duration;

use crate::model::Timestamp;

/// A time, or how long ago: `2h`, `2026-01-31` (midnight here), or RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// So long before now.
    Ago(Duration),
    /// Then.
    At(Timestamp),
}

/// A text that is neither.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a time: write how long ago (2h, 3d), a date (2026-01-31) or RFC 3339 (2026-01-31T14:00:00Z)"
)]
pub struct BadSince(String);

impl Since {
    /// The point in time, seen from `now`.
    pub fn seen_from(self, now: Timestamp) -> Timestamp {
        match self {
            Since::Ago(duration) => now.before(duration),
            Since::At(time) => time,
        }
    }
}

impl FromStr for Since {
    type Err = BadSince;
    fn from_str(text: &str) -> Result<Self, BadSince> {
        let ago = || humantime::parse_duration(text).ok().map(Since::Ago);
        let at = || text.parse().ok().map(Since::At);
        // A moment first: one with an offset begins like a date.
        at().or_else(|| midnight(text)).or_else(ago).ok_or_else(|| BadSince(text.to_owned()))
    }
}

/// The beginning of a day on this machine. A text with more than a date is none: its time would be
/// passed over.
fn midnight(text: &str) -> Option<Since> {
    let day = jiff::fmt::strtime::parse("%Y-%m-%d", text).ok()?.to_date().ok()?;
    let begins = day.to_zoned_datetime(jiff::tz::TimeZone::system()).ok()?;
    Some(Since::At(Timestamp(begins.timestamp().as_millisecond())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_is_written_in_three_ways() {
        let now = Timestamp(1_767_225_600_000);
        let seen = |text: &str| text.parse::<Since>().unwrap().seen_from(now);
        assert_eq!(seen("2h"), Timestamp(now.0 - 7_200_000));
        assert_eq!(seen("1day 30min"), Timestamp(now.0 - 88_200_000));
        assert_eq!(seen("2026-01-01T01:00:00+01:00"), now);
        assert_eq!(seen("2026-01-01 00:00:00.250+00:00"), Timestamp(now.0 + 250));
        let midnight = jiff::Timestamp::from_millisecond(seen("2026-01-01").0).unwrap();
        let here = midnight.to_zoned_datetime(jiff::tz::TimeZone::system());
        assert_eq!(here.strftime("%F %T").to_string(), "2026-01-01 00:00:00");
    }

    #[test]
    fn what_could_mean_two_things_means_none() {
        for bad in
            ["", "2", "yesterday", "-2h", "2026-13-01", "2026-1", "2026-01-01 14:00", "01/02/2026"]
        {
            assert!(bad.parse::<Since>().is_err(), "{bad}");
        }
    }
}
