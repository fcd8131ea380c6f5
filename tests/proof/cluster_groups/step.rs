//! One step of a transaction or from outside, and its description.

use std::fmt;

use super::state::Verb;
use crate::groups::steps::Step as Move;

#[derive(Clone, Copy)]
pub(crate) enum Step {
    Opens(usize, Verb, Option<usize>),
    Locks(usize),
    Decides(usize, Move),
    Commits(usize, Move),
    /// The unique index refuses it: all back, again.
    Collides(usize, Move),
    /// The row that it is about has been moved since.
    FindsNothing(usize, Move),
    Aborts(usize),
    StrayEnds(usize, usize),
    Replicates,
    Failover,
}

/// The job that a transaction is about.
pub(crate) fn subject(step: Move) -> usize {
    match step {
        Move::Accept(job, _)
        | Move::Duplicate(job)
        | Move::Claim(job)
        | Move::End(job, _)
        | Move::NotStarted(job)
        | Move::Replay(job, _)
        | Move::Make(job, _)
        | Move::Drop(job)
        | Move::Resolve(job, _)
        | Move::Redelivery(job)
        | Move::Remove(job)
        | Move::PayloadGone(job) => job,
        Move::HandlerGone | Move::Restore | Move::Reload(_) => 0,
    }
}

fn name(node: usize) -> char {
    if node == 0 { 'A' } else { 'B' }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Opens(n, verb, number) => {
                let verb = format!("{verb:?}").to_lowercase();
                write!(f, "{} opens: {verb}", name(*n))?;
                number.map_or(Ok(()), |number| write!(f, ", takes number {}", number + 1))
            }
            Step::Locks(n) => write!(f, "{} has locked the group", name(*n)),
            Step::Decides(n, step) => write!(f, "{} decides: {step}", name(*n)),
            Step::Commits(n, step) => write!(f, "{} commits: {step}", name(*n)),
            Step::Collides(n, step) => write!(f, "{} meets the unique index: {step}", name(*n)),
            Step::FindsNothing(n, step) => write!(f, "{} finds no such row: {step}", name(*n)),
            Step::Aborts(n) => write!(f, "{}'s transaction ends without a commit", name(*n)),
            Step::StrayEnds(n, job) => write!(f, "{}: the attempt of {} ends", name(*n), job + 1),
            Step::Replicates => write!(f, "the standby has everything"),
            Step::Failover => write!(f, "FAILOVER, unfinished jobs are held"),
        }
    }
}
