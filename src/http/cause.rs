//! Why a delivery is refused, other than for its signature.

use std::borrow::Cow;

use super::problem::Problem;
use super::reply::{self, Answer};
use crate::store::Refused;

pub(super) struct Cause {
    pub(super) answer: Answer,
    /// One of a few words, for the log and the counters.
    pub(super) reason: &'static str,
    /// A sentence for the operator.
    pub(super) detail: Cow<'static, str>,
}

impl Cause {
    pub(super) fn new(answer: Answer, reason: &'static str, detail: &'static str) -> Self {
        Cause { answer, reason, detail: detail.into() }
    }

    /// The delivery cannot be stored now.
    pub(super) fn unavailable(reason: &'static str, detail: &'static str) -> Self {
        Cause::new(Answer::Unavailable(reason), reason, detail)
    }

    /// The bodies in flight leave no room for this one.
    pub(super) fn no_room() -> Self {
        let detail = "bodies in flight use up the budget";
        Cause::new(Answer::Unavailable("busy"), "no_room", detail)
    }

    /// The answer must not wait for the commit any longer.
    pub(super) fn slow() -> Self {
        Cause::unavailable("slow", "not committed in time; it may still be")
    }

    /// The body is over its source's limit in bytes.
    pub(super) fn too_large(limit: u64) -> Self {
        Cause::new(Answer::TooLarge(limit), "too_large", "body over the limit")
    }

    /// The caller does not get its handler's answer.
    pub(super) fn problem(problem: Problem, detail: &'static str) -> Self {
        Cause::new(Answer::Problem(problem), problem.word(), detail)
    }
}

impl From<Refused> for Cause {
    fn from(refused: Refused) -> Self {
        let reason = reply::word(&refused);
        Cause { answer: Answer::Unavailable(reason), reason, detail: refused.to_string().into() }
    }
}
