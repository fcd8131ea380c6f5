//! Bounds the request rate of each caller.
//!
//! `keyed` uses it, and so do the log lines of challenges without a signature. It is in memory only, by the generic
//! cell rate algorithm, which keeps one time for each bucket. Must stay true: the number of remembered callers is
//! bounded, and a caller is forgotten only when its bucket is full.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::limits::{CHALLENGE_LINES, RATED_CALLERS};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// When each bucket is full again, by a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<String, Duration>>);

impl Rates {
    /// Takes a request from the bucket of `caller`, which holds the requests of one minute.
    ///
    /// # Errors
    /// How long the caller must wait if the bucket is empty.
    pub(super) fn take(
        &self,
        caller: String,
        per_minute: u32,
        now: Duration,
    ) -> Result<(), Duration> {
        self.within(caller, MINUTE / per_minute.max(1), MINUTE, now)
    }

    /// Takes a log line from the bucket of `source`, which gets one a second and holds [`CHALLENGE_LINES`]. False if it
    /// is empty.
    pub(super) fn take_line(&self, source: String, now: Duration) -> bool {
        self.within(source, SECOND, SECOND * CHALLENGE_LINES, now).is_ok()
    }

    /// A bucket that holds the requests of `period`, one for `each`.
    fn within(
        &self,
        caller: String,
        each: Duration,
        period: Duration,
        now: Duration,
    ) -> Result<(), Duration> {
        // A panic elsewhere cannot have left a broken map.
        let mut full_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= RATED_CALLERS && !full_at.contains_key(&caller) {
            full_at.retain(|_, full_at| *full_at > now);
        }
        let known = full_at.contains_key(&caller) || full_at.len() < RATED_CALLERS;
        let full_at = full_at.entry(if known { caller } else { String::new() }).or_default();
        let next = now.max(*full_at) + each;
        match next.checked_sub(now + period) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *full_at = next;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(rates: &Rates, caller: &str, times: u32, now: Duration) -> u32 {
        let ask = |_: &u32| rates.take(caller.to_owned(), 60, now).is_ok();
        u32::try_from((0..times).filter(ask).count()).unwrap_or(u32::MAX)
    }

    #[test]
    fn a_caller_gets_a_minutes_requests_at_once_and_then_a_steady_rate() {
        let (rates, second) = (Rates::default(), Duration::from_secs(1));
        let begin = second * 1000;
        assert_eq!(asks(&rates, "a", 100, begin), 60);
        assert_eq!(rates.take("a".to_owned(), 60, begin + second / 4), Err(second * 3 / 4));
        assert_eq!(asks(&rates, "a", 100, begin + second), 1);
        assert_eq!(asks(&rates, "a", 100, begin + second * 11), 10);
        assert_eq!(asks(&rates, "b", 100, begin + second), 60, "another caller has its own");
        assert_eq!(
            asks(&rates, "a", 100, begin + second * 600),
            60,
            "and no more for waiting longer"
        );
    }

    #[test]
    fn a_source_gets_ten_log_lines_at_once_and_then_one_a_second() {
        let (rates, begin) = (Rates::default(), SECOND * 1000);
        let lines = |source: &str, now| {
            let taken = (0..100).filter(|_| rates.take_line(source.to_owned(), now));
            taken.count()
        };
        assert_eq!((lines("a", begin), lines("b", begin)), (10, 10));
        assert_eq!((lines("a", begin + SECOND / 2), lines("a", begin + SECOND)), (0, 1));
    }

    #[test]
    fn invented_callers_use_bounded_memory_and_no_requests_of_others() {
        let (rates, begin) = (Rates::default(), Duration::from_secs(1000));
        assert_eq!(asks(&rates, "known", 59, begin), 59);
        for number in 0..2 * RATED_CALLERS {
            let _taken = rates.take(format!("invented {number}"), 60, begin);
        }
        assert!(rates.0.lock().is_ok_and(|full_at| full_at.len() <= RATED_CALLERS + 1));
        assert_eq!(asks(&rates, "known", 9, begin), 1);
        assert_eq!(asks(&rates, "one more", 9, begin), 0, "what is left is shared");
        // A full bucket is forgotten.
        assert_eq!(asks(&rates, "one more", 99, begin + MINUTE), 60);
        assert!(rates.0.lock().is_ok_and(|full_at| full_at.len() == 1));
    }
}
