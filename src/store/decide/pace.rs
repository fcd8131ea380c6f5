//! The rate of a handler's starts, by the generic cell rate algorithm: each start takes its share of the time, and
//! may begin so far ahead of the shares taken as the burst allows.
//!
//! What must stay true: a clock that was set back delays a start by a burst at most.

use std::time::Duration;

use crate::model::Timestamp;
use crate::store::border::Rate;

const MILLI: i64 = 1000;

/// The state of a handler's rate at one time, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    now: i64,
    /// The share of one start, and of all but one of a burst.
    share: i64,
    ahead: i64,
    /// When the shares taken so far end.
    busy_to: i64,
    /// What is stored is later than any rate could have made it now.
    is_off: bool,
}

impl Pace {
    /// Computes the pace of a handler from the stored end of the shares that it has taken, in microseconds since 1970.
    pub(crate) fn of(busy_to: Option<i64>, rate: Rate, now: Timestamp) -> Pace {
        let now = now.0.saturating_mul(MILLI);
        let per = i64::try_from(rate.per.as_micros()).unwrap_or(i64::MAX);
        let share = (per / i64::from(rate.starts.get())).max(1);
        let ahead = share.saturating_mul(i64::from(rate.burst.get()) - 1);
        // A later end is of another rate, or of a clock that was ahead.
        let most = now.saturating_add(ahead).saturating_add(share);
        let is_off = busy_to.is_some_and(|busy_to| busy_to > most);
        let busy_to = busy_to.unwrap_or(now).clamp(now, most);
        Pace { now, share, ahead, busy_to, is_off }
    }

    /// How many attempts may start now.
    pub(crate) fn starts(&self) -> usize {
        let room = self.now.saturating_add(self.ahead) - self.busy_to;
        if room < 0 { 0 } else { usize::try_from(room / self.share + 1).unwrap_or(usize::MAX) }
    }

    /// How long it is until the next attempt may start, rounded up; `None` if one may start now.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let micros = u64::try_from(self.busy_to - self.ahead - self.now).unwrap_or(0);
        (micros > 0).then(|| Duration::from_millis(micros.div_ceil(MILLI.unsigned_abs())))
    }

    /// The pace once so many attempts have started.
    pub(crate) fn taken(self, starts: usize) -> Pace {
        Pace { busy_to: self.after(starts).unwrap_or(self.busy_to), ..self }
    }

    /// What is to be stored when so many attempts start. Nothing where none starts, unless what is stored has to be put
    /// right: it would stay too late until the clock has caught up.
    pub(crate) fn after(&self, starts: usize) -> Option<i64> {
        let starts = i64::try_from(starts).unwrap_or(i64::MAX);
        let busy_to = self.busy_to.saturating_add(self.share.saturating_mul(starts));
        (starts > 0 || self.is_off).then_some(busy_to)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::num::NonZeroU32;

    use super::*;
    use crate::store::tests::START;

    /// One start a second, three at once.
    fn pace(busy_to: Option<i64>) -> Pace {
        let [starts, burst] = [60, 3].map(|count| NonZeroU32::new(count).unwrap());
        Pace::of(busy_to, Rate { starts, per: Duration::from_secs(60), burst }, START)
    }

    #[test]
    fn a_rate_spreads_starts_and_lets_a_burst_through() {
        let now = START.0 * MILLI;
        let at = |millis: i64| Some(now + millis * MILLI);
        let pauses = |millis| Some(Duration::from_millis(millis));
        for (busy_to, starts, pause) in [
            (None, 3, None),
            // An end in the past has been caught up.
            (at(-5000), 3, None),
            (at(0), 3, None),
            (at(1), 2, None),
            (at(1000), 2, None),
            (at(2000), 1, None),
            (at(2001), 0, pauses(1)),
            (at(3000), 0, pauses(1000)),
            // A clock that was set back, or a faster rate since: a burst at most.
            (at(3001), 0, pauses(1000)),
            (at(9_000_000), 0, pauses(1000)),
        ] {
            let pace = pace(busy_to);
            assert_eq!((pace.starts(), pace.pause()), (starts, pause), "{busy_to:?}");
        }
        // Who waits so long may start.
        assert_eq!(pace(Some(now + 2000 * MILLI + 1)).pause(), pauses(1));
    }

    #[test]
    fn starts_are_taken_and_a_late_end_is_put_right() {
        let now = START.0 * MILLI;
        let second = 1000 * MILLI;
        for (busy_to, starts, expected) in [
            (None, 0, None),
            (None, 1, Some(now + second)),
            (None, 3, Some(now + 3 * second)),
            (Some(now - second), 1, Some(now + second)),
            (Some(now + second), 2, Some(now + 3 * second)),
            (Some(now + 3 * second), 0, None),
            (Some(now + 3 * second + 1), 0, Some(now + 3 * second)),
        ] {
            assert_eq!(pace(busy_to).after(starts), expected, "{busy_to:?} {starts}");
        }
    }
}
