//! Decides a job's next state after an attempt has ended. No other module decides it.
//!
//! It is pure. The dispatcher calls [`Policy::next`] before it completes an attempt; the store's
//! recovery calls it for attempts that a crash cut off. Must stay true: an unknown outcome leads to
//! another attempt only if the handler's policy says `rerun`.

use std::time::Duration;

use crate::model::{DeadReason, HeldReason, OnUnknown, Outcome, State, Timestamp};

/// A handler's configuration for attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What to do after an attempt whose effects are unknown.
    pub on_unknown: OnUnknown,
    /// When a failing job stops.
    pub give_up: GiveUp,
    /// The delay before the second attempt; each later delay is [`Policy::FACTOR`] times the previous one.
    pub backoff_base: Duration,
    /// The longest delay; it also limits a Retry-After.
    pub backoff_max: Duration,
    /// Whether a client waits for the handler's answer. A job whose handler cannot run then fails at
    /// once and does not wait until the handler can run.
    pub answers: bool,
    /// The delay after each counted attempt, in place of those that follow from `backoff_base`; the last one is
    /// repeated. Empty if the handler names none.
    pub pauses: Vec<Duration>,
}

/// When a failing job stops: commands by count, forwards by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// It stops after this many counted attempts.
    Attempts(u32),
    /// It stops if the next attempt would begin more than this long after the job became ready.
    After(Duration),
}

/// The facts about a job's earlier attempts when an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// Counted attempts since the job was created or last replayed, including the one that ended.
    pub counted: u32,
    /// When the job was created or last replayed.
    pub since: Timestamp,
}

/// The job's next state, with the data that the state needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// State `succeeded`.
    Succeeded,
    /// State `waiting`.
    Wait {
        /// The earliest time of the next claim.
        due_at: Timestamp,
    },
    /// State `ready`: the attempt did not begin.
    Ready,
    /// State `dead`.
    Dead(DeadReason),
    /// State `held`.
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
    /// The state without its data.
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
    /// The factor between one delay and the next: with the default base 10 s, 40 s, 160 s, 640 s.
    pub const FACTOR: u32 = 4;

    /// The delay after `counted` counted attempts: as the handler's configuration lists it, or one that does not
    /// shrink with more attempts and does not exceed `backoff_max`.
    pub fn delay(&self, counted: u32) -> Duration {
        let place = usize::try_from(counted.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(listed) = self.pauses.get(place).or(self.pauses.last()) {
            return *listed;
        }
        let factor = Self::FACTOR.saturating_pow(counted.saturating_sub(1));
        self.backoff_base.saturating_mul(factor).min(self.backoff_max)
    }

    /// Decides the job's next state. `retry_after` is the delay that the endpoint asked for; it is
    /// clamped between [`Policy::delay`] and `backoff_max`.
    pub fn next(
        &self,
        outcome: Outcome,
        history: History,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Next {
        let backoff = self.delay(history.counted);
        let longest = self.backoff_max.max(backoff);
        let due_at = now.after(retry_after.map_or(backoff, |asked| asked.clamp(backoff, longest)));
        let may_retry = match self.give_up {
            GiveUp::Attempts(most) => history.counted < most,
            GiveUp::After(age) => due_at <= history.since.after(age),
        };
        let wait_or = |stop| if may_retry { Next::Wait { due_at } } else { stop };
        let held = Next::Held(HeldReason::UnknownOutcome);
        match outcome {
            Outcome::Succeeded => Next::Succeeded,
            Outcome::Rejected => Next::Dead(DeadReason::Rejected),
            Outcome::Cancelled => Next::Held(HeldReason::Cancelled),
            Outcome::NotStarted => Next::Ready,
            Outcome::Failed => wait_or(Next::Dead(DeadReason::Exhausted)),
            Outcome::TimedOut | Outcome::Unknown => match self.on_unknown {
                OnUnknown::Hold => held,
                OnUnknown::Rerun => wait_or(held),
            },
        }
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
        pauses: Vec::new(),
    };
    const START: Timestamp = Timestamp(1_000_000);

    fn after(counted: u32) -> History {
        History { counted, since: START }
    }

    #[test]
    fn the_default_delays_are_the_documented_ones() {
        let delays: Vec<u64> = (1..=4).map(|n| POLICY.delay(n).as_secs()).collect();
        assert_eq!(delays, [10, 40, 160, 640]);
    }

    #[test]
    fn listed_delays_are_taken_as_they_stand_and_the_last_is_repeated() {
        let seconds = [10, 5, 7200].map(Duration::from_secs);
        let policy = Policy { pauses: seconds.to_vec(), ..POLICY };
        let delays: Vec<u64> = (0..6).map(|n| policy.delay(n).as_secs()).collect();
        assert_eq!(delays, [10, 10, 5, 7200, 7200, 7200]);
        // A Retry-After shortens none of them.
        let next = |asked| policy.next(Outcome::Failed, after(3), asked, START);
        let waits = Next::Wait { due_at: START.after(Duration::from_secs(7200)) };
        assert_eq!((next(None), next(Some(Duration::from_secs(1)))), (waits, waits));
    }

    #[test]
    fn a_failed_job_waits_until_no_attempts_are_left() {
        let next = |counted| POLICY.next(Outcome::Failed, after(counted), None, START);
        assert_eq!(next(1), Next::Wait { due_at: START.after(Duration::from_secs(10)) });
        assert_eq!(next(4), Next::Wait { due_at: START.after(Duration::from_secs(640)) });
        assert_eq!(next(5), Next::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn an_unknown_outcome_is_rerun_only_by_policy_and_with_attempts_left() {
        let rerun = Policy { on_unknown: OnUnknown::Rerun, ..POLICY };
        for outcome in [Outcome::Unknown, Outcome::TimedOut] {
            let held = Next::Held(HeldReason::UnknownOutcome);
            assert_eq!(POLICY.next(outcome, after(1), None, START), held);
            assert!(matches!(rerun.next(outcome, after(1), None, START), Next::Wait { .. }));
            assert_eq!(rerun.next(outcome, after(5), None, START), held);
        }
    }

    #[test]
    fn a_forward_stops_after_its_time_limit() {
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
        fn a_retry_after_is_clamped(seconds in 0u64..u64::MAX / 2_000) {
            let retry_after = Some(Duration::from_secs(seconds));
            let next = POLICY.next(Outcome::Failed, after(1), retry_after, START);
            let Next::Wait { due_at } = next else { return Err(TestCaseError::fail("must wait")) };
            prop_assert!(due_at.since(START) >= Duration::from_secs(10));
            prop_assert!(due_at.since(START) <= POLICY.backoff_max);
        }
    }
}
