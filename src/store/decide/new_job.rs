//! How a new job begins: held, ready, or waiting for its delay.

use crate::model::{HeldReason, State, Timestamp};
use crate::store::border::{Delay, NewJob};

/// Why a new job is held. What the guard says comes first.
pub(crate) fn held(job: &NewJob, guard: Option<HeldReason>) -> Option<HeldReason> {
    guard.or(job.undecided.as_ref().map(|_| HeldReason::ConditionFailed))
}

/// A new job as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobStart {
    pub(crate) state: State,
    pub(crate) due_at: Option<Timestamp>,
    /// When it came; with a delay, when the first of those came that it replaces.
    pub(crate) wait_since: Option<Timestamp>,
    /// When its time begins: of a delayed job, when it is due.
    pub(crate) since: Timestamp,
}

/// A held job does not wait. `first`: when the first of the jobs came that this one replaces. That time is not trusted:
/// the clock may have been set back.
pub(crate) fn start(
    held: Option<HeldReason>,
    delay: Option<Delay>,
    first: Option<Timestamp>,
    now: Timestamp,
) -> JobStart {
    let mut start = JobStart { state: State::Ready, due_at: None, wait_since: None, since: now };
    if held.is_some() {
        start.state = State::Held;
    } else if let Some(delay) = delay {
        let since = first.unwrap_or(now).min(now);
        let most = if first.is_some() { since.after(delay.most) } else { Timestamp(i64::MAX) };
        start.since = now.after(delay.wait).min(most).max(now);
        (start.due_at, start.wait_since) = (Some(start.since), Some(since));
        start.state = State::Waiting;
    }
    start
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::tests::{START, name};

    #[test]
    fn the_guard_says_first_why_a_job_is_held() {
        let sure = NewJob::of(name("h"));
        let undecided = NewJob { undecided: Some("why".to_owned()), ..sure.clone() };
        let guard = Some(HeldReason::SuspectedReplay);
        assert_eq!(held(&sure, None), None);
        assert_eq!(held(&undecided, None), Some(HeldReason::ConditionFailed));
        assert_eq!(held(&sure, guard), guard);
        assert_eq!(held(&undecided, guard), guard);
    }

    #[test]
    fn a_job_waits_for_its_delay_but_not_for_ever_and_not_while_it_is_held() {
        let seconds = Duration::from_secs;
        let delay = Some(Delay { wait: seconds(60), most: seconds(100) });
        let at = |second| START.after(seconds(second));
        let now = at(1000);
        let plain = |state| JobStart { state, due_at: None, wait_since: None, since: now };
        let waits = |since: Timestamp, due: Timestamp| {
            let (due_at, wait_since) = (Some(due), Some(since));
            JobStart { state: State::Waiting, due_at, wait_since, since: due }
        };
        let reason = Some(HeldReason::IdReused);
        for (held, delay, first, expected) in [
            (None, None, None, plain(State::Ready)),
            (None, None, Some(at(990)), plain(State::Ready)),
            (reason, None, None, plain(State::Held)),
            (reason, delay, Some(at(990)), plain(State::Held)),
            (None, delay, None, waits(now, at(1060))),
            // The wait starts anew, up to the most.
            (None, delay, Some(at(990)), waits(at(990), at(1060))),
            (None, delay, Some(at(960)), waits(at(960), at(1060))),
            (None, delay, Some(at(950)), waits(at(950), at(1050))),
            (None, delay, Some(at(900)), waits(at(900), now)),
            (None, delay, Some(at(500)), waits(at(500), now)),
            // A clock that was set back.
            (None, delay, Some(at(2000)), waits(now, at(1060))),
        ] {
            assert_eq!(start(held, delay, first, now), expected, "{held:?} {first:?}");
        }
        // Without one before it, a wait longer than the most is what the operator asked for.
        let long = Some(Delay { wait: seconds(200), most: seconds(100) });
        assert_eq!(start(None, long, None, now), waits(now, at(1200)));
    }
}
