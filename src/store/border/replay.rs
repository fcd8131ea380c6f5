//! What is put back or dropped: one job, those of an event, or a selection in batches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{EventId, JobId, Name, State};

use super::audit::AuditSubject;
use super::error::Error;
use super::rows::JobFilter;

/// What to put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// One job, from held, dead or succeeded. With an attempt it is left alone if another is its last.
    Job(JobId, Option<u32>),
    /// One job, as [`Replay::Job`] puts it back, under a new key; the old one is recorded.
    NewKey(JobId, Option<u32>),
    /// The held and dead jobs of one event.
    Event {
        /// The source, needed where several have an event of this id.
        source: Option<Name>,
        event: EventId,
        /// Only this handler's job, which is made if there is none, and which may have succeeded.
        handler: Option<Name>,
    },
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The jobs put back or made, by their keys.
    pub jobs: Vec<JobId>,
    /// The jobs dropped instead: their condition, which could not be decided before, does not hold.
    pub dropped: Vec<JobId>,
}

/// What a bulk command does to its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Held or dead to ready.
    Replay,
    /// Held or dead to dropped.
    Drop,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobSelection {
    /// Its state must be held or dead; its limit has no meaning here.
    pub filter: JobFilter,
    /// Where the last answer said to go on; the beginning otherwise.
    pub after: Option<SelectionCursor>,
    /// What to do with the jobs. A replay leaves out what a person has to look at first, unless its reason is named.
    pub verb: Verb,
}

/// A place in the walk over the jobs: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionCursor(pub(in crate::store) i64);

/// One chosen job, as it was when it was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedJob {
    pub job: JobId,
    /// Its last attempt.
    pub attempt: u32,
    pub handler: Name,
}

/// The next of the jobs that are meant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SelectedJobs {
    /// Oldest first.
    pub jobs: Vec<SelectedJob>,
    /// Held or dead jobs that were looked at, the same bound for every call.
    pub looked_at: u64,
    /// Left out: suspected replays and reused ids, which might be forged.
    pub suspected: u64,
    /// Left out of a replay: they have answered their callers, who get those answers again.
    pub answered: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<SelectionCursor>,
}

impl JobBatch {
    /// What the audit list says of it, and of the jobs that it moved.
    pub(in crate::store) fn subject(&self, jobs: Vec<(JobId, u32)>) -> AuditSubject {
        AuditSubject { state: Some(self.state), jobs, ..AuditSubject::default() }
    }

    /// Whether a job in this state, after this attempt, is as it was when it was chosen.
    pub(in crate::store) fn is_as_chosen(&self, state: State, attempt: u32, chosen: u32) -> bool {
        (state, attempt) == (self.state, chosen) && matches!(state, State::Held | State::Dead)
    }
}

/// A batch of chosen jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobBatch {
    pub verb: Verb,
    /// The state they were chosen in: held or dead.
    pub state: State,
    /// Whether a replay also puts a job back whose place a newer event has taken, or whose handler's condition does not
    /// hold or cannot be decided.
    #[serde(default)]
    pub regardless: bool,
    /// At most 200 ([`BATCH_JOBS`]), each with its last attempt when it was chosen.
    pub jobs: Vec<(JobId, u32)>,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchResult {
    /// Jobs put back or dropped, by handler.
    pub done: BTreeMap<Name, u64>,
    /// Passed over: in another state, after another attempt, answered, or gone.
    pub changed: u64,
    /// Passed over: retention has deleted the payload.
    pub payload_gone: u64,
    /// Dropped: the handler's condition, which could not be decided before, does not hold.
    pub unwanted: u64,
    /// Passed over: the handler's condition still cannot be decided.
    pub undecided: u64,
    /// Passed over: a newer event of their group has run or is to run, where only the latest counts.
    pub superseded: u64,
}

impl BatchResult {
    /// Counts a job that was moved to this state.
    pub(in crate::store) fn count(&mut self, verb: Verb, handler: Name, to: State) {
        if verb == Verb::Replay && to == State::Dropped {
            self.unwanted += 1;
        } else {
            *self.done.entry(handler).or_default() += 1;
        }
    }

    /// Counts a job that is passed over for this reason.
    pub(in crate::store) fn pass_over(&mut self, why: &Error) {
        *match why {
            Error::Undecided { .. } => &mut self.undecided,
            Error::Superseded { .. } => &mut self.superseded,
            Error::PayloadGone { .. } | Error::JobsGone { .. } => &mut self.payload_gone,
            _ => &mut self.changed,
        } += 1;
    }

    pub fn add(&mut self, more: BatchResult) {
        for (handler, jobs) in more.done {
            *self.done.entry(handler).or_default() += jobs;
        }
        self.changed += more.changed;
        self.payload_gone += more.payload_gone;
        self.unwanted += more.unwanted;
        self.undecided += more.undecided;
        self.superseded += more.superseded;
    }
}
