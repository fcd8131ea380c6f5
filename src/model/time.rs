//! Wall time as a value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::text::{BadText, json_text};

/// Wall time: milliseconds since 1970-01-01 00:00 UTC. Only `clock` makes one of "now".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn after(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(millis(duration)))
    }

    pub fn before(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(millis(duration)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
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

impl FromStr for Timestamp {
    type Err = BadText;
    fn from_str(text: &str) -> Result<Self, BadText> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Timestamp(time.as_millisecond()))
            .map_err(|_| BadText(text.to_owned(), "an RFC 3339 time"))
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
