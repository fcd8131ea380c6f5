//! Replays and drops of many jobs: chosen when a person asks what would happen, and moved when that person says so,
//! whether the page stays open or not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::exit::{Exit, Failure};
use crate::model::{JobId, State};
use crate::store::{BatchResult, JobBatch, Verb};

use super::login::lock;

/// Works that are remembered, those that were never started included.
const WORKS: usize = 64;

/// Jobs of one work: more are chosen by the next one. They are chosen while the page of the change is made, at 15 µs
/// each with ten million events stored: the bench's page of a replay.
pub(super) const WORK_JOBS: usize = 2_000;

/// Jobs that were chosen together, and what came of those that were moved.
pub(super) struct Work {
    pub(super) verb: Verb,
    /// Held or dead: the state in which they were chosen.
    state: State,
    /// The oldest.
    pub(super) first: JobId,
    pub(super) all: usize,
    /// The jobs that are left, the oldest first, each with the attempt after which it was chosen.
    pub(super) left: VecDeque<(JobId, u32)>,
    pub(super) result: BatchResult,
}

impl Work {
    /// The next jobs to move, at most so many. Of a batch without an answer it is not known whether it was moved: it
    /// counts as moved, and each of its jobs shows its state.
    pub(super) fn take(&mut self, most: usize) -> Option<JobBatch> {
        let batch = JobBatch {
            verb: self.verb,
            state: self.state,
            regardless: false,
            jobs: self.left.drain(..most.min(self.left.len())).collect(),
        };
        Some(batch).filter(|batch| !batch.jobs.is_empty())
    }
}

/// The newest first, each with its number. One that is forgotten while it is moved goes on.
#[derive(Default)]
pub(super) struct Works(Mutex<VecDeque<(u64, Arc<Mutex<Work>>)>>);

impl Works {
    /// Remembers the jobs that were chosen. Returns the number of their work; none without a job.
    pub(super) fn propose(&self, verb: Verb, state: State, left: Vec<(JobId, u32)>) -> Option<u64> {
        let work = Work {
            verb,
            state,
            first: left.first()?.0,
            all: left.len(),
            left: left.into(),
            result: BatchResult::default(),
        };
        let mut works = lock(&self.0);
        let number = works.front().map_or(1, |(newest, _)| newest + 1);
        works.push_front((number, Arc::new(Mutex::new(work))));
        works.truncate(WORKS);
        Some(number)
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<Mutex<Work>>, Failure> {
        let forgotten = "this is not remembered any more: choose the jobs again";
        let works = lock(&self.0);
        let known = works.iter().find(|(known, _)| *known == number);
        let known = known.map(|(_, work)| Arc::clone(work));
        known.ok_or_else(|| Exit::NotFound.failure(forgotten))
    }
}
