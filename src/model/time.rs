//! Wall time as a value.

use std::fmt;
use std::str::FromStr;

use super::text::json_text;

/// Wall time: milliseconds since 1970-01-01 00:00 UTC. Only `clock` makes one of "now".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn after(self, duration: std::time::Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    pub fn before(self, duration: std::time::Duration) -> Self {
        Timestamp(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        std::time::Duration::from_millis(
            u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0),
        )
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => f.pad(&format!("{time:.3}")),
            Err(_) => f.pad("out of range"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an RFC 3339 time")]
pub struct BadTimestamp(String);

impl FromStr for Timestamp {
    type Err = BadTimestamp;
    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Timestamp(time.as_millisecond()))
            .map_err(|_| BadTimestamp(text.to_owned()))
    }
}

json_text!(Timestamp);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_print_as_rfc_3339() {
        let time = Timestamp(1_767_225_600_123);
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.123Z");
        assert_eq!("2026-01-01T00:00:00.123Z".parse(), Ok(time));
    }
}
