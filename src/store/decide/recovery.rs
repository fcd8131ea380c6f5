//! What a recovery makes of an attempt that a crash cut off.

use crate::model::{HeldReason, JobId, Name, Outcome, Timestamp};
use crate::retry::{History, Next, Policy};
use crate::store::border::{Completion, Record};

/// The end of this running attempt of a job of `handler`, which the receiver ran itself: unknown, by its handler's policy. Held where the
/// handler is gone. `before` has the counted attempts before this one.
pub(crate) fn cut_off(
    (job, attempt): (JobId, u32),
    handler: &Name,
    before: History,
    policies: &[(Name, Policy)],
    now: Timestamp,
) -> Completion {
    let history = History { counted: before.counted.saturating_add(1), ..before };
    let next = match policies.iter().find(|(name, _)| name == handler) {
        Some((_, policy)) => policy.next(Outcome::Unknown, history, None, now),
        None => Next::Held(HeldReason::UnknownOutcome),
    };
    let detail = "the receiver ended while the attempt ran".to_owned();
    Completion {
        job,
        attempt,
        outcome: Outcome::Unknown,
        counts: true,
        next,
        finished_at: now,
        record: Record { detail, ..Record::default() },
        answer: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{OnUnknown, State};
    use crate::store::tests::{START, found_job, name, policy};

    #[test]
    fn an_attempt_that_a_crash_cut_off_is_unknown_and_follows_its_policy() {
        let job = found_job(State::Running);
        let held = Next::Held(HeldReason::UnknownOutcome);
        let now = START.after(policy(OnUnknown::Rerun, 9).delay(9));
        let wait =
            |after: u32| Next::Wait { due_at: now.after(policy(OnUnknown::Rerun, 9).delay(after)) };
        for (handler, on_unknown, attempts, counted, expected) in [
            ("h", OnUnknown::Hold, 3, 0, held),
            ("h", OnUnknown::Rerun, 3, 0, wait(1)),
            ("h", OnUnknown::Rerun, 3, 1, wait(2)),
            ("h", OnUnknown::Rerun, 3, 2, held),
            ("h", OnUnknown::Rerun, 3, u32::MAX, held),
            // Its handler is gone.
            ("other", OnUnknown::Rerun, 3, 0, held),
        ] {
            let policies = [(name(handler), policy(on_unknown, attempts))];
            let attempt = (job.job, job.attempt);
            let done =
                cut_off(attempt, &job.handler, History { counted, since: START }, &policies, now);
            assert_eq!(done.next, expected, "{handler} {on_unknown} {counted}");
            assert_eq!((done.job, done.attempt, done.outcome), (job.job, 2, Outcome::Unknown));
            assert_eq!((done.counts, done.finished_at), (true, now));
            assert!(!done.record.detail.is_empty() && done.answer.is_none());
        }
    }
}
