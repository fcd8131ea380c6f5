//! A genuine delivery, and the result of accepting it.

use std::time::Duration;

use crate::model::{GroupKey, GroupRule, HeldReason, Name, OnRedelivery, State, Timestamp};
use crate::verify::Verified;

/// A genuine delivery with the jobs that the configuration makes of it, matched by one snapshot.
#[derive(Debug)]
pub struct Accept {
    pub source: Name,
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// Of the handlers that want it, each once.
    pub jobs: Vec<NewJob>,
    /// What it does if it is a duplicate.
    pub on_redelivery: OnRedelivery,
}

/// A job that an accepted event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    pub handler: Name,
    /// Why the handler's condition could not be decided: the job is held.
    pub undecided: Option<String>,
    /// The jobs of its handler among which it keeps its place.
    pub group: Option<Group>,
    /// How long it waits before its first attempt.
    pub delay: Option<Delay>,
}

impl NewJob {
    /// A job that may run at once, whatever other jobs do.
    pub fn of(handler: Name) -> Self {
        NewJob { handler, undecided: None, group: None, delay: None }
    }
}

/// Jobs of one handler that run one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub key: GroupKey,
    pub rule: GroupRule,
}

/// How long a job waits before its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// From the arrival of its event.
    pub wait: Duration,
    /// Under [`GroupRule::Latest`] each newer event of the group starts the wait anew, but no job waits longer than
    /// this after the first of them came.
    pub most: Duration,
}

/// The result of accepting a delivery. It is on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// A new event.
    Created {
        jobs: usize,
        /// Why the jobs are held, if they are.
        held: Option<HeldReason>,
        /// The replay guard marked the event and let it run.
        flagged: bool,
    },
    /// The event exists.
    Duplicate {
        /// The state that matters most among its jobs; `None` if it has no job.
        state: Option<State>,
        /// Retention removed its jobs with its payload: `state` was their state.
        removed: bool,
        /// Number of its dead jobs that this delivery put back, by `on_redelivery`.
        replayed: usize,
        /// When the first delivery arrived.
        first_received_at: Timestamp,
        /// The body differs although the id is signed. It is kept as evidence.
        conflict: bool,
    },
}
