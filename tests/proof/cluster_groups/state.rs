//! The rows of a group on the server, the open transaction of each node, and what really happened.

use super::rules::Faults;
use crate::groups::state::{EVENTS, Stage, State as Group};
use crate::groups::steps::Step as Move;

pub(crate) const NODES: usize = 2;

/// What a transaction does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Verb {
    Accept,
    Claim,
    /// The end of an attempt on this node.
    End,
    /// A move by the operator, a redelivery or retention.
    Move,
    /// The declaration that the other node is lost.
    Lost,
}

/// What a transaction writes when it commits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Decision {
    pub(crate) step: Move,
    /// The states on which it was made.
    pub(crate) seen: [Stage; EVENTS],
    pub(crate) after: Group,
    /// The rows that it writes.
    pub(crate) rows: [bool; EVENTS],
    /// It has locked them.
    pub(crate) locked: bool,
    /// The rows of which it changes what really happened.
    pub(crate) truth: [bool; EVENTS],
}

/// The open transaction of a node's writer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Transaction {
    pub(crate) verb: Verb,
    /// It has locked the group's row.
    pub(crate) locked: bool,
    /// The number of the event, where it is taken before the lock.
    pub(crate) number: Option<usize>,
    /// Not in the code: the events that were acknowledged before this one came.
    pub(crate) arrived_after: [bool; EVENTS],
    pub(crate) decision: Option<Decision>,
}

/// An attempt that goes on after its job was settled as unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stray {
    pub(crate) job: usize,
    pub(crate) node: usize,
    /// It was settled by a declaration: the operator has said that it does not run.
    pub(crate) declared: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) rows: Group,
    pub(crate) standby: Group,
    pub(crate) transactions: [Option<Transaction>; NODES],
    /// The node that runs a job.
    pub(crate) runs: [Option<usize>; EVENTS],
    pub(crate) strays: [Option<Stray>; 3],
    /// The next number of each node's connection, where they are taken in twos.
    pub(crate) cached: [usize; NODES],
    pub(crate) faults: Faults,
}

impl State {
    /// Whether another transaction has locked the group's row.
    pub(crate) fn is_locked(&self) -> bool {
        self.transactions.iter().flatten().any(|transaction| transaction.locked)
    }

    /// Whether a transaction has locked the row of this job.
    pub(crate) fn is_row_locked(&self, job: usize) -> bool {
        let mut decisions = self.transactions.iter().flatten().filter_map(|t| t.decision.as_ref());
        decisions.any(|decision| decision.locked && decision.rows[job])
    }

    pub(crate) fn add_stray(&mut self, stray: Stray) {
        let free = self.strays.iter_mut().find(|stray| stray.is_none());
        *free.expect("room for the strays of the budget") = Some(stray);
    }

    pub(crate) fn strays(&self) -> impl Iterator<Item = &Stray> {
        self.strays.iter().flatten()
    }

    pub(crate) fn tidy(&mut self) {
        if self.faults.failovers == 0 {
            self.standby = self.rows;
        }
        self.strays.sort_by_key(|stray| stray.map_or((EVENTS, 0), |stray| (stray.job, stray.node)));
    }
}
