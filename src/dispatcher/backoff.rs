//! Back-off of a handler that cannot run: it pauses, and longer after each try that fails.
//!
//! Pure: the caller passes the monotonic time.

use std::time::Duration;

/// The back-off of one handler. The default is a handler that runs.
#[derive(Debug, Default)]
pub(super) struct Backoff(Option<Pause>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Duration,
    length: Duration,
    /// Tries in a row that have failed.
    failures: u32,
    /// Operators were notified.
    reported: bool,
}

impl Backoff {
    /// How many of the handler's slots may be taken now. After a pause a single attempt tries the handler.
    pub(super) fn limit(&self, slots: usize, now: Duration) -> usize {
        match self.0 {
            None => slots,
            Some(pause) if now < pause.until => 0,
            Some(_) => 1,
        }
    }

    /// The rest of the pause, if it is not over.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        self.0.and_then(|pause| pause.until.checked_sub(now)).filter(|rest| !rest.is_zero())
    }

    /// Tries in a row that have failed.
    pub(super) fn failures(&self) -> u32 {
        self.0.map_or(0, |pause| pause.failures)
    }

    /// Notes that the handler could not run. The first pause is `base` long, each further one twice as long as the
    /// last, up to `max`. Returns the rest of the pause.
    pub(super) fn fail(&mut self, now: Duration, base: Duration, max: Duration) -> Duration {
        // An attempt that began together with the one that failed first does not extend the pause.
        if let Some(rest) = self.remaining(now) {
            return rest;
        }
        let length = self.0.map_or(base, |last| last.length.saturating_mul(2)).min(max);
        self.0 = Some(Pause {
            until: now + length,
            length,
            failures: self.failures().saturating_add(1),
            reported: self.0.is_some_and(|last| last.reported),
        });
        length
    }

    /// Ends the pause. If the next try fails, the pause doubles all the same. Returns whether the handler had failed.
    pub(super) fn end_pause(&mut self) -> bool {
        if let Some(pause) = &mut self.0 {
            pause.until = Duration::ZERO;
        }
        self.0.is_some()
    }

    /// Notes that the handler ran. Returns whether it had failed before.
    pub(super) fn reset(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Returns true once, after more than `tolerated` failures in a row, until the handler runs.
    pub(super) fn report_once(&mut self, tolerated: u32) -> bool {
        match &mut self.0 {
            Some(pause) if pause.failures > tolerated => {
                !std::mem::replace(&mut pause.reported, true)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(300);

    #[test]
    fn each_failed_try_doubles_the_pause_and_one_attempt_tries_the_handler() {
        let (mut backoff, mut now) = (Backoff::default(), NOW);
        assert_eq!(backoff.limit(8, now), 8);
        for (failures, seconds) in (1..).zip([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
            let length = Duration::from_secs(seconds);
            assert_eq!(backoff.fail(now, SECOND, MAX), length);
            assert_eq!(backoff.failures(), failures);
            assert_eq!(backoff.report_once(5), failures == 6, "{failures}");
            let later = now + SECOND / 2;
            assert_eq!(backoff.fail(later, SECOND, MAX), length - SECOND / 2, "not extended");
            assert_eq!(backoff.remaining(later), Some(length - SECOND / 2));
            assert_eq!((backoff.limit(8, later), backoff.failures()), (0, failures));
            now += length;
            assert_eq!((backoff.remaining(now), backoff.limit(8, now)), (None, 1));
        }
        assert!(backoff.reset() && !backoff.reset());
        assert_eq!(backoff.limit(8, now), 8);
        assert_eq!(backoff.fail(now, SECOND, MAX), SECOND, "from the beginning");
    }

    #[test]
    fn a_pause_that_was_ended_is_doubled_if_the_try_fails() {
        let mut backoff = Backoff::default();
        assert!(!backoff.end_pause());
        backoff.fail(NOW, SECOND, MAX);
        assert!(backoff.end_pause());
        assert_eq!(backoff.limit(8, NOW), 1);
        assert_eq!(backoff.fail(NOW, SECOND, MAX), 2 * SECOND);
    }
}
