//! What the end of an attempt makes of its job.

use std::borrow::Cow;

use crate::model::{DeadReason, DropReason, HeldReason, JobId, Outcome, State, Timestamp};
use crate::retry::Next;

use super::key::KeyOf;

/// What the record of an attempt says where its answer is missing.
const NO_ANSWER: &str = ", but no answer for the caller who waits for one";

/// The end of an attempt, as its request's idempotency key allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) next: Next,
    pub(crate) answer: EndAnswer,
}

/// What becomes of the answer that comes with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndAnswer {
    /// Nothing is stored: no caller waits any more, or none came and the outcome is as it was.
    Unused,
    Stored,
    /// Stored as an error. Once it is forgotten, the same request may run the job again.
    StoredAsError,
    /// The handler did its work, and its answer is unknown.
    Missing,
}

impl End {
    /// The end by its handler's policy, where the idempotency key of the request is in this state. A job whose caller
    /// waits has one attempt whatever the policy is, and only a repeat of the request begins another (I3). A success or
    /// a rejection without an answer becomes `unknown`, and the job is held.
    pub(crate) fn of(outcome: Outcome, next: Next, key: KeyOf, has_answer: bool) -> End {
        let mut end = End { outcome, next, answer: EndAnswer::Unused };
        if next == Next::Ready || key != KeyOf::Unanswered {
            return end;
        }
        let unknown = Next::Held(HeldReason::UnknownOutcome);
        let exhausted = Next::Dead(DeadReason::Exhausted);
        if has_answer {
            let is_error = outcome == Outcome::Failed;
            end.answer = if is_error { EndAnswer::StoredAsError } else { EndAnswer::Stored };
            end.next = if matches!(next, Next::Wait { .. }) { exhausted } else { next };
            return end;
        }
        match next {
            // A value was refused, so nothing began. Other attempts that never began are ready again.
            Next::Dead(DeadReason::Rejected) if outcome == Outcome::NotStarted => {}
            Next::Succeeded | Next::Dead(DeadReason::Rejected) => {
                (end.outcome, end.next) = (Outcome::Unknown, unknown);
                end.answer = EndAnswer::Missing;
            }
            Next::Wait { .. } if outcome == Outcome::Failed => end.next = exhausted,
            Next::Wait { .. } => end.next = unknown,
            Next::Dead(DeadReason::Exhausted | DeadReason::PayloadGone | DeadReason::Resolved)
            | Next::Held(_)
            | Next::Ready => {}
        }
        end
    }

    /// The attempt's detail, with a note if the answer is missing.
    pub(crate) fn detail(self, detail: &str) -> Cow<'_, str> {
        match self.answer {
            EndAnswer::Missing => Cow::Owned(format!("{detail}{NO_ANSWER}")),
            EndAnswer::Unused | EndAnswer::Stored | EndAnswer::StoredAsError => detail.into(),
        }
    }
}

/// What the end of an attempt sets in its job's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobAfter {
    pub(crate) state: State,
    pub(crate) reason: Option<&'static str>,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) superseded_by: Option<JobId>,
}

/// Only a job that would run again can be superseded.
pub(crate) fn may_be_superseded(next: Next) -> bool {
    matches!(next, Next::Ready | Next::Wait { .. })
}

impl JobAfter {
    /// A job that would run again is dropped where a newer one of its group, the `successor`, takes its place.
    pub(crate) fn of(next: Next, successor: Option<JobId>) -> JobAfter {
        let successor = successor.filter(|_| may_be_superseded(next));
        let (reason, due_at) = match next {
            _ if successor.is_some() => (Some(DropReason::Superseded.as_str()), None),
            Next::Succeeded | Next::Ready => (None, None),
            Next::Wait { due_at } => (None, Some(due_at)),
            Next::Dead(reason) => (Some(reason.as_str()), None),
            Next::Held(reason) => (Some(reason.as_str()), None),
        };
        let state = successor.map_or(next.state(), |_| State::Dropped);
        JobAfter { state, reason, due_at, superseded_by: successor }
    }

    /// Whether it is settled: it does not run again by itself.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, State::Succeeded | State::Dead | State::Dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::START;

    const WAIT: Next = Next::Wait { due_at: START };
    const UNKNOWN: Next = Next::Held(HeldReason::UnknownOutcome);
    const EXHAUSTED: Next = Next::Dead(DeadReason::Exhausted);

    /// Every next state, with every reason.
    fn nexts() -> Vec<Next> {
        let dead = DeadReason::ALL.iter().copied().map(Next::Dead);
        let held = HeldReason::ALL.iter().copied().map(Next::Held);
        [Next::Succeeded, WAIT, Next::Ready].into_iter().chain(dead).chain(held).collect()
    }

    #[test]
    fn without_a_key_that_waits_an_end_stays_as_its_policy_has_it() {
        for next in nexts() {
            for outcome in Outcome::ALL.iter().copied() {
                let same = End { outcome, next, answer: EndAnswer::Unused };
                for key in [KeyOf::Nobody, KeyOf::Answered, KeyOf::GivenUp] {
                    assert_eq!(End::of(outcome, next, key, true), same);
                    assert_eq!(End::of(outcome, next, key, false), same);
                }
                // What never began has no answer and no end.
                for has_answer in [true, false] {
                    let ready = End { next: Next::Ready, ..same };
                    assert_eq!(End::of(outcome, Next::Ready, KeyOf::Unanswered, has_answer), ready);
                }
            }
        }
    }

    #[test]
    fn an_answer_is_stored_and_ends_its_job() {
        for next in nexts().into_iter().filter(|next| *next != Next::Ready) {
            for outcome in Outcome::ALL.iter().copied() {
                let end = End::of(outcome, next, KeyOf::Unanswered, true);
                let answer = match outcome {
                    Outcome::Failed => EndAnswer::StoredAsError,
                    _ => EndAnswer::Stored,
                };
                let next = if next == WAIT { EXHAUSTED } else { next };
                assert_eq!(end, End { outcome, next, answer });
                assert_eq!(end.detail("exit 0"), "exit 0");
            }
        }
    }

    #[test]
    fn an_end_without_its_answer_is_unknown_where_the_handler_did_its_work() {
        use EndAnswer::{Missing, Unused};
        use Outcome::{Cancelled, Failed, NotStarted, Rejected, Succeeded, TimedOut, Unknown};
        let rejected = Next::Dead(DeadReason::Rejected);
        for (next, outcomes, expected) in [
            (Next::Succeeded, Outcome::ALL, (Some(Unknown), UNKNOWN, Missing)),
            (
                rejected,
                &[Succeeded, Failed, Rejected, TimedOut, Unknown, Cancelled],
                (Some(Unknown), UNKNOWN, Missing),
            ),
            (rejected, &[NotStarted], (None, rejected, Unused)),
            (WAIT, &[Failed], (None, EXHAUSTED, Unused)),
            (
                WAIT,
                &[Succeeded, Rejected, TimedOut, Unknown, Cancelled, NotStarted],
                (None, UNKNOWN, Unused),
            ),
        ] {
            for outcome in outcomes.iter().copied() {
                let end = End::of(outcome, next, KeyOf::Unanswered, false);
                let (other, next, answer) = expected;
                assert_eq!(end, End { outcome: other.unwrap_or(outcome), next, answer });
                let detail = if answer == Missing {
                    format!("exit 0{NO_ANSWER}")
                } else {
                    "exit 0".to_owned()
                };
                assert_eq!(end.detail("exit 0"), detail);
            }
        }
        // Every other state is final, and says what it says.
        for next in nexts() {
            if next == Next::Succeeded || next == rejected || next == WAIT {
                continue;
            }
            for outcome in Outcome::ALL.iter().copied() {
                let end = End::of(outcome, next, KeyOf::Unanswered, false);
                assert_eq!(end, End { outcome, next, answer: Unused });
            }
        }
    }

    #[test]
    fn a_job_that_would_run_again_gives_way_to_a_newer_one() {
        let newer = JobId::from_bytes([7; 16]);
        for next in nexts() {
            let (reason, due_at, settled) = match next {
                Next::Succeeded => (None, None, true),
                Next::Ready => (None, None, false),
                Next::Wait { due_at } => (None, Some(due_at), false),
                Next::Dead(reason) => (Some(reason.as_str()), None, true),
                Next::Held(reason) => (Some(reason.as_str()), None, false),
            };
            let alone = JobAfter { state: next.state(), reason, due_at, superseded_by: None };
            assert_eq!(JobAfter::of(next, None), alone);
            assert_eq!(alone.is_settled(), settled);
            let after = JobAfter::of(next, Some(newer));
            if next == Next::Ready || next == WAIT {
                assert!(may_be_superseded(next) && after.is_settled());
                let reason = Some(DropReason::Superseded.as_str());
                let (state, superseded_by) = (State::Dropped, Some(newer));
                assert_eq!(after, JobAfter { state, reason, due_at: None, superseded_by });
            } else {
                assert!(!may_be_superseded(next));
                assert_eq!(after, alone);
            }
        }
    }
}
