//! K2: whether the wall clock may be believed when it says that something is old.
//!
//! Pure. The dispatcher asks before each retention pass: a clock that jumps a year ahead would delete
//! every remembered id at once, and each redelivery would run again (promise 2).

use std::time::Duration;

use crate::model::Timestamp;

/// How far the two clocks may drift apart between two passes: far more than a slewed clock does
/// (500 ppm is 43 s a day), far less than the shortest retention (an hour).
pub const TOLERANCE: Duration = Duration::from_secs(60);

/// How long nothing is deleted after a jump.
pub const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// Compares the wall clock with the monotonic one from pass to pass. One per process.
#[derive(Debug, Default)]
pub struct ClockWatch {
    last: Option<(Timestamp, Duration)>,
    quiet_until: Option<Duration>,
}

impl ClockWatch {
    /// Whether a pass may delete now. Never on the first look, which has nothing to compare with; not
    /// for a day (by the monotonic clock) after the wall clock moved otherwise than the monotonic one.
    /// A suspended machine counts as a jump.
    pub fn may_expire(&mut self, wall: Timestamp, monotonic: Duration) -> bool {
        let Some((last_wall, last_monotonic)) = self.last.replace((wall, monotonic)) else {
            return false;
        };
        let passed = monotonic.saturating_sub(last_monotonic);
        let expected = last_wall.after(passed);
        if wall.since(expected).max(expected.since(wall)) > TOLERANCE {
            self.quiet_until = Some(monotonic.saturating_add(QUIET));
        }
        self.quiet_until.is_none_or(|until| monotonic >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_steady_clock_is_believed_from_the_second_look_on() {
        let mut watch = ClockWatch::default();
        let start = Timestamp(1_700_000_000_000);
        assert!(!watch.may_expire(start, HOUR));
        assert!(watch.may_expire(start.after(HOUR), 2 * HOUR));
        assert!(watch.may_expire(start.after(2 * HOUR + TOLERANCE), 3 * HOUR));
    }

    #[test]
    fn a_jump_either_way_skips_the_pass_and_a_day() {
        for jump in [400 * 24 * HOUR, TOLERANCE + Duration::from_millis(1)] {
            for ahead in [true, false] {
                let mut watch = ClockWatch::default();
                let start = Timestamp(1_700_000_000_000);
                assert!(!watch.may_expire(start, Duration::ZERO));
                let jumped = if ahead { start.after(jump) } else { start.before(jump) };
                assert!(!watch.may_expire(jumped.after(HOUR), HOUR));
                for hours in 2..25 {
                    assert!(!watch.may_expire(jumped.after(hours * HOUR), hours * HOUR), "{hours}");
                }
                assert!(watch.may_expire(jumped.after(25 * HOUR), 25 * HOUR));
            }
        }
    }
}
