//! What the key of a request says of its job, and what a repeat of the request gets.

use crate::model::{Digest, Outcome, State};
use crate::store::border::KeyState;

/// The state of the key of an event's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOf {
    /// The event has no key: no caller waits for an answer.
    Nobody,
    /// It has no answer yet.
    Unanswered,
    Answered,
    /// Deleted: its caller has the answer, or had to ask anew.
    GivenUp,
}

impl KeyOf {
    /// `had_key`: the event is a request. `in_use`: the key is still kept, and `answered` or not.
    pub(crate) fn of(had_key: bool, in_use: bool, answered: bool) -> KeyOf {
        match (had_key, in_use, answered) {
            (false, ..) => KeyOf::Nobody,
            (true, false, _) => KeyOf::GivenUp,
            (true, true, false) => KeyOf::Unanswered,
            (true, true, true) => KeyOf::Answered,
        }
    }

    /// Whether the operator may have its job run again.
    pub(crate) fn may_run(self) -> bool {
        matches!(self, KeyOf::Nobody | KeyOf::Unanswered)
    }
}

/// The state of a key that has no answer, by its job's state and the outcome of its last attempt.
pub(crate) fn unanswered(state: State, last: Option<Outcome>) -> KeyState {
    match state {
        State::Ready | State::Running | State::Waiting => KeyState::Pending,
        State::Dead => KeyState::Failed,
        State::Dropped => KeyState::Dropped,
        State::Held | State::Succeeded => {
            KeyState::Unknown { timed_out: last == Some(Outcome::TimedOut) }
        }
    }
}

/// What a request gets whose key is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Another request has the key.
    Conflict,
    /// Its job is known to have failed, and is put back (I3).
    Again,
    /// The state of the key.
    Known,
}

/// Whether the request that has the key is this one, and whether its job `failed` without an answer.
pub(crate) fn repeat(request: Digest, of: Digest, failed: bool) -> Repeat {
    match (request == of, failed) {
        (false, _) => Repeat::Conflict,
        (true, true) => Repeat::Again,
        (true, false) => Repeat::Known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_unused_unanswered_answered_or_given_up() {
        for (had_key, in_use, answered, expected, may_run) in [
            (false, false, false, KeyOf::Nobody, true),
            (false, false, true, KeyOf::Nobody, true),
            (false, true, false, KeyOf::Nobody, true),
            (false, true, true, KeyOf::Nobody, true),
            (true, false, false, KeyOf::GivenUp, false),
            (true, false, true, KeyOf::GivenUp, false),
            (true, true, false, KeyOf::Unanswered, true),
            (true, true, true, KeyOf::Answered, false),
        ] {
            let key = KeyOf::of(had_key, in_use, answered);
            assert_eq!((key, key.may_run()), (expected, may_run), "{had_key} {in_use} {answered}");
        }
    }

    #[test]
    fn a_key_without_an_answer_says_what_its_job_does() {
        let outcomes = Outcome::ALL.iter().copied().map(Some).chain([None]);
        for last in outcomes {
            let unknown = KeyState::Unknown { timed_out: last == Some(Outcome::TimedOut) };
            for (state, expected) in [
                (State::Ready, KeyState::Pending),
                (State::Running, KeyState::Pending),
                (State::Waiting, KeyState::Pending),
                (State::Dead, KeyState::Failed),
                (State::Dropped, KeyState::Dropped),
                (State::Held, unknown.clone()),
                // It gave no answer, so a caller cannot have it.
                (State::Succeeded, unknown.clone()),
            ] {
                assert_eq!(unanswered(state, last), expected, "{state} {last:?}");
            }
        }
    }

    #[test]
    fn only_the_same_request_begins_a_failed_job_again() {
        let (one, other) = (Digest([1; 32]), Digest([2; 32]));
        for (of, failed, expected) in [
            (other, false, Repeat::Conflict),
            (other, true, Repeat::Conflict),
            (one, false, Repeat::Known),
            (one, true, Repeat::Again),
        ] {
            assert_eq!(repeat(one, of, failed), expected, "{of:?} {failed}");
        }
    }
}
