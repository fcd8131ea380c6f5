//! What becomes of a job after an attempt: the one place that decides it.
//!
//! Pure: the dispatcher asks before it completes an attempt, and the store's recovery asks for the
//! attempts that a crash cut off.

use std::time::Duration;

use crate::model::{DeadReason, HeldReason, OnUnknown, Outcome, State, Timestamp};

/// What a handler's configuration says about attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What an attempt with unknown effects means.
    pub on_unknown: OnUnknown,
    /// When a failing job is given up.
    pub give_up: GiveUp,
    /// The delay before the second attempt; each further one is [`Policy::FACTOR`] times the last.
    pub backoff_base: Duration,
    /// The longest delay, also for a Retry-After.
    pub backoff_max: Duration,
    /// Somebody waits for the handler's answer: what cannot be run now has failed, and does not wait for
    /// the handler to be mended.
    pub answers: bool,
}

/// When a failing job is given up: commands by count, forwards by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// After this many counted attempts.
    Attempts(u32),
    /// When the next attempt would begin this long after the job became ready.
    After(Duration),
}

/// What is known of a job when an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// Counted attempts since the job was made or last replayed, the one that ended included.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
}

/// Where the job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// To `succeeded`.
    Succeeded,
    /// To `waiting`.
    Wait {
        /// When it may be claimed again.
        due_at: Timestamp,
    },
    /// Back to `ready`: the attempt never began.
    Ready,
    /// To `dead`.
    Dead(DeadReason),
    /// To `held`.
    Held(HeldReason),
}

impl std::fmt::Display for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        match self {
            Next::Wait { due_at } => write!(f, "{state} until {due_at}"),
            Next::Dead(reason) => write!(f, "{state}: {reason}"),
            Next::Held(reason) => write!(f, "{state}: {reason}"),
            Next::Succeeded | Next::Ready => write!(f, "{state}"),
        }
    }
}

impl Next {
    /// The state that the job goes to.
    pub fn state(self) -> State {
        match self {
            Next::Succeeded => State::Succeeded,
            Next::Wait { .. } => State::Waiting,
            Next::Ready => State::Ready,
            Next::Dead(_) => State::Dead,
            Next::Held(_) => State::Held,
        }
    }
}

impl Policy {
    /// How much longer each delay is than the one before: 10 s, 40 s, 160 s, 640 s.
    pub const FACTOR: u32 = 4;

    /// The delay after `counted` counted attempts: never shorter for more attempts, never over
    /// `backoff_max`.
    pub fn delay(&self, counted: u32) -> Duration {
        let factor = Self::FACTOR.saturating_pow(counted.saturating_sub(1));
        self.backoff_base.saturating_mul(factor).min(self.backoff_max)
    }

    /// Decides where a job goes. `retry_after` is the handler's own wish, which is clamped.
    pub fn next(
        &self,
        outcome: Outcome,
        history: History,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Next {
        match outcome {
            Outcome::Succeeded => Next::Succeeded,
            Outcome::Rejected => Next::Dead(DeadReason::Rejected),
            Outcome::Cancelled => Next::Held(HeldReason::Cancelled),
            Outcome::NotStarted => Next::Ready,
            Outcome::Failed => match self.again_at(history, retry_after, now) {
                Some(due_at) => Next::Wait { due_at },
                None => Next::Dead(DeadReason::Exhausted),
            },
            Outcome::TimedOut | Outcome::Unknown => match self.on_unknown {
                OnUnknown::Hold => Next::Held(HeldReason::UnknownOutcome),
                OnUnknown::Rerun => match self.again_at(history, retry_after, now) {
                    Some(due_at) => Next::Wait { due_at },
                    None => Next::Held(HeldReason::UnknownOutcome),
                },
            },
        }
    }

    fn again_at(
        &self,
        history: History,
        wish: Option<Duration>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let delay = self.delay(history.counted);
        let due_at =
            now.after(wish.map_or(delay, |wish| wish.clamp(delay, self.backoff_max.max(delay))));
        let left = match self.give_up {
            GiveUp::Attempts(most) => history.counted < most,
            GiveUp::After(age) => due_at <= history.since.after(age),
        };
        left.then_some(due_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Policy = Policy {
        on_unknown: OnUnknown::Hold,
        give_up: GiveUp::Attempts(5),
        backoff_base: Duration::from_secs(10),
        backoff_max: Duration::from_secs(3600),
        answers: false,
    };
    const START: Timestamp = Timestamp(1_000_000);

    fn after(counted: u32) -> History {
        History { counted, since: START }
    }

    #[test]
    fn the_documented_delays() {
        let delays: Vec<u64> = (1..=4).map(|n| POLICY.delay(n).as_secs()).collect();
        assert_eq!(delays, [10, 40, 160, 640]);
    }

    #[test]
    fn a_failure_waits_until_none_are_left() {
        let next = |counted| POLICY.next(Outcome::Failed, after(counted), None, START);
        assert_eq!(next(1), Next::Wait { due_at: START.after(Duration::from_secs(10)) });
        assert_eq!(next(4), Next::Wait { due_at: START.after(Duration::from_secs(640)) });
        assert_eq!(next(5), Next::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn unknown_follows_the_policy_and_rerun_needs_attempts_left() {
        let rerun = Policy { on_unknown: OnUnknown::Rerun, ..POLICY };
        for outcome in [Outcome::Unknown, Outcome::TimedOut] {
            let held = Next::Held(HeldReason::UnknownOutcome);
            assert_eq!(POLICY.next(outcome, after(1), None, START), held);
            assert!(matches!(rerun.next(outcome, after(1), None, START), Next::Wait { .. }));
            assert_eq!(rerun.next(outcome, after(5), None, START), held);
        }
    }

    #[test]
    fn time_bounds_forwards() {
        let day = Duration::from_secs(86_400);
        let policy = Policy { give_up: GiveUp::After(3 * day), ..POLICY };
        let at = |now| policy.next(Outcome::Failed, after(900), None, now);
        assert!(matches!(at(START.after(2 * day)), Next::Wait { .. }));
        assert_eq!(at(START.after(3 * day)), Next::Dead(DeadReason::Exhausted));
    }

    proptest! {
        #[test]
        fn delays_are_bounded_and_never_shrink(counted in 0u32..10_000, base in 1u64..100_000, max in 1u64..10_000_000) {
            let policy = Policy {
                backoff_base: Duration::from_millis(base),
                backoff_max: Duration::from_millis(max),
                ..POLICY
            };
            prop_assert!(policy.delay(counted) <= policy.delay(counted + 1));
            prop_assert!(policy.delay(counted) <= policy.backoff_max);
        }

        #[test]
        fn a_retry_after_is_clamped(wish in 0u64..u64::MAX / 2_000) {
            let next = POLICY.next(Outcome::Failed, after(1), Some(Duration::from_secs(wish)), START);
            let Next::Wait { due_at } = next else { return Err(TestCaseError::fail("must wait")) };
            prop_assert!(due_at.since(START) >= Duration::from_secs(10));
            prop_assert!(due_at.since(START) <= POLICY.backoff_max);
        }
    }
}
