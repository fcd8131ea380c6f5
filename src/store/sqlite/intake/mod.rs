//! Intake: the verbs of [`Intake`](handle::Intake), one file each.

mod accept;
mod ask;
mod await_answer;
pub(crate) mod handle;
