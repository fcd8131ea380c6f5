//! What the operator's word makes of a held job, and of the key whose caller waits for it (I5).

use serde::{Deserialize, Serialize};

use crate::model::{Answer, DeadReason, State};
use crate::store::border::Error;

use super::job_move::FoundJob;
use super::key::KeyOf;

/// What the operator found out about a held job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// What its handler should do is done. No caller waits for its answer.
    Succeeded,
    /// What its handler should do is done, and this is the answer that its caller gets.
    Answered(Answer),
    /// It is not done, and shall not be. Where a caller waits for its answer the key is free again: the next
    /// request that has it is a new one.
    Failed,
}

impl Resolution {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match self {
            Resolution::Answered(answer) => Some(answer),
            Resolution::Succeeded | Resolution::Failed => None,
        }
    }
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyChange {
    None,
    Freed,
    Answered,
}

/// A resolved job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) state: State,
    pub(crate) reason: Option<DeadReason>,
    pub(crate) key: KeyChange,
}

/// Only a held job is resolved, and only after the attempt that the operator has `seen`.
pub(crate) fn resolve(
    found: &FoundJob,
    seen: u32,
    how: &Resolution,
    key: KeyOf,
) -> Result<Resolved, Error> {
    let job = found.job;
    if found.state != State::Held {
        return Err(found.wrong_state("resolved"));
    }
    found.is_as(Some(seen))?;
    let key = match (how, key) {
        (Resolution::Succeeded, KeyOf::Unanswered) => return Err(Error::AnswerNeeded { job }),
        (Resolution::Failed, KeyOf::Unanswered) => KeyChange::Freed,
        (Resolution::Answered(_), KeyOf::Unanswered) => KeyChange::Answered,
        (Resolution::Answered(_), _) => return Err(Error::NobodyWaits { job }),
        (Resolution::Succeeded | Resolution::Failed, _) => KeyChange::None,
    };
    let (state, reason) = match how {
        Resolution::Succeeded | Resolution::Answered(_) => (State::Succeeded, None),
        Resolution::Failed => (State::Dead, Some(DeadReason::Resolved)),
    };
    Ok(Resolved { state, reason, key })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Headers;
    use crate::store::tests::found_job;

    fn answered() -> Resolution {
        let (headers, body) = (Headers::new(), bytes::Bytes::new());
        Resolution::Answered(Answer { status: 200, headers, body })
    }

    #[test]
    fn a_held_job_is_resolved_as_its_key_allows() {
        let held = found_job(State::Held);
        let job = held.job;
        let done = |key| Ok(Resolved { state: State::Succeeded, reason: None, key });
        let dead =
            |key| Ok(Resolved { state: State::Dead, reason: Some(DeadReason::Resolved), key });
        let others = [KeyOf::Nobody, KeyOf::Answered, KeyOf::GivenUp];
        for (how, unanswered, other) in [
            (Resolution::Succeeded, Err(Error::AnswerNeeded { job }), done(KeyChange::None)),
            (answered(), done(KeyChange::Answered), Err(Error::NobodyWaits { job })),
            (Resolution::Failed, dead(KeyChange::Freed), dead(KeyChange::None)),
        ] {
            assert_eq!(resolve(&held, 2, &how, KeyOf::Unanswered), unanswered, "{how:?}");
            for key in others {
                assert_eq!(resolve(&held, 2, &how, key), other, "{how:?} {key:?}");
            }
        }
    }

    #[test]
    fn only_a_held_job_is_resolved_and_only_after_the_attempt_seen() {
        let failed = Resolution::Failed;
        for state in State::ALL.iter().copied().filter(|state| *state != State::Held) {
            let other = found_job(state);
            let error = Error::WrongState { job: other.job, state, verb: "resolved" };
            assert_eq!(resolve(&other, 1, &failed, KeyOf::Nobody), Err(error));
        }
        let held = found_job(State::Held);
        for seen in [1, 3] {
            let error = Error::NewerAttempt { job: held.job, seen, attempt: 2 };
            assert_eq!(resolve(&held, seen, &answered(), KeyOf::Nobody), Err(error));
        }
    }
}
