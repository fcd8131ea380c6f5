//! How often one caller may ask: a bucket of requests for each, which fills up as time goes by.
//!
//! For `keyed`. In memory alone, by the generic cell rate algorithm, which keeps one time for each bucket.
//! Must stay true: the callers that are remembered are bounded in number, and one that is forgotten had a
//! full bucket.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most callers whose buckets are kept, at about 200 bytes each. Further ones share one bucket.
const CALLERS: usize = 10_000;

const MINUTE: Duration = Duration::from_secs(60);

/// The buckets: when each is full again, by a clock that is never put back.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<String, Duration>>);

impl Rates {
    /// Takes a request out of the bucket of `caller`, which holds as many as it gets in a minute. An `Err`
    /// says after how long there is one.
    pub(super) fn take(
        &self,
        caller: String,
        per_minute: u32,
        now: Duration,
    ) -> Result<(), Duration> {
        let each = MINUTE / per_minute.max(1);
        // A panic elsewhere has left nothing here that could matter.
        let mut full_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= CALLERS && !full_at.contains_key(&caller) {
            full_at.retain(|_, full_at| *full_at > now);
        }
        let known = full_at.contains_key(&caller) || full_at.len() < CALLERS;
        let full_at = full_at.entry(if known { caller } else { String::new() }).or_default();
        let next = now.max(*full_at) + each;
        match next.checked_sub(now + MINUTE) {
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
    fn a_caller_has_its_minutes_worth_and_then_one_after_the_other() {
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
    fn callers_that_are_invented_take_no_more_memory_and_nothing_of_the_others() {
        let (rates, begin) = (Rates::default(), Duration::from_secs(1000));
        assert_eq!(asks(&rates, "known", 59, begin), 59);
        for number in 0..2 * CALLERS {
            let _taken = rates.take(format!("invented {number}"), 60, begin);
        }
        assert!(rates.0.lock().is_ok_and(|full_at| full_at.len() <= CALLERS + 1));
        assert_eq!(asks(&rates, "known", 9, begin), 1);
        assert_eq!(asks(&rates, "one more", 9, begin), 0, "what is left is shared");
        // Once the buckets are full again they need not be remembered.
        assert_eq!(asks(&rates, "one more", 99, begin + MINUTE), 60);
        assert!(rates.0.lock().is_ok_and(|full_at| full_at.len() == 1));
    }
}
