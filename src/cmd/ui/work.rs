//! Replays and drops of many jobs: chosen when a person asks what would happen, and moved when that person says so,
//! whether the page stays open or not.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::{Exit, Failure};
use crate::model::{JobId, State};
use crate::store::{BatchResult, JobBatch, Verb};

/// Works that are remembered, those that were never started included.
const WORKS: usize = 64;

/// Jobs of one work: more are chosen by the next one. They are chosen while the page of the change is made, at 15 µs for
/// each, because each job, its event and its last attempt may be in pages of their own.
pub(super) const WORK_JOBS: usize = 2_000;

/// Jobs that are moved together.
pub(super) struct Work {
    number: u64,
    pub(super) verb: Verb,
    /// Held or dead: the state in which they were chosen.
    state: State,
    pub(super) first: JobId,
    pub(super) all: usize,
    /// Those that are left, the oldest first, each with the attempt after which it was chosen.
    left: VecDeque<(JobId, u32)>,
    pub(super) result: BatchResult,
}

impl Work {
    pub(super) fn moved(&self) -> usize {
        self.all - self.left.len()
    }

    /// The next jobs to move, at most so many; they count as moved.
    pub(super) fn take(&mut self, most: usize) -> Option<JobBatch> {
        let jobs: Vec<_> = self.left.drain(..most.min(self.left.len())).collect();
        let (verb, state, regardless) = (self.verb, self.state, false);
        (!jobs.is_empty()).then_some(JobBatch { verb, state, regardless, jobs })
    }
}

/// The newest first.
#[derive(Default)]
pub(super) struct Works(Mutex<VecDeque<Work>>);

impl Works {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the jobs that were chosen. Returns the number of their work; none without a job.
    pub(super) fn propose(
        &self,
        verb: Verb,
        state: State,
        left: VecDeque<(JobId, u32)>,
    ) -> Option<u64> {
        let mut works = self.lock();
        let number = works.front().map_or(1, |newest| newest.number + 1);
        works.push_front(Work {
            number,
            verb,
            state,
            first: left.front()?.0,
            all: left.len(),
            left,
            result: BatchResult::default(),
        });
        works.truncate(WORKS);
        Some(number)
    }

    /// Looks at a work.
    pub(super) fn with<T>(
        &self,
        number: u64,
        look: impl FnOnce(&mut Work) -> T,
    ) -> Result<T, Failure> {
        let forgotten = "this is not remembered any more: choose the jobs again";
        let mut works = self.lock();
        let work = works.iter_mut().find(|work| work.number == number);
        work.map(look).ok_or_else(|| Exit::NotFound.failure(forgotten))
    }
}
