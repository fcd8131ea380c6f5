//! Replays and drops of many jobs: chosen when a person asks what would happen, and moved in the background when that
//! person says so, whether the page stays open or not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exit::{Exit, Failure};
use crate::limits::BATCH_JOBS;
use crate::model::{JobId, State};
use crate::store::{BatchResult, JobBatch, Verb};

use super::app::Operator;
use super::parts::sentence;

/// Works that are remembered, those that were never started included.
const WORKS: usize = 64;

/// Jobs of one work: more are chosen by the next one. They are chosen while the page of the change is made, at 15 µs for
/// each, because each job, its event and its last attempt may be in pages of their own.
pub(super) const WORK_JOBS: usize = 2_000;

/// Jobs that are moved together.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) number: u64,
    pub(super) verb: Verb,
    /// Held or dead: the state in which they were chosen.
    state: State,
    /// Oldest first, with the attempt after which each was chosen.
    pub(super) jobs: Arc<Vec<(JobId, u32)>>,
    /// The first so many have been handed to the receiver.
    pub(super) moved: usize,
    pub(super) is_running: bool,
    pub(super) result: BatchResult,
    /// Why it stopped before its end.
    pub(super) failed: Option<String>,
}

/// The newest first.
#[derive(Default)]
pub(super) struct Works(Mutex<VecDeque<Work>>);

impl Works {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was chosen. Returns its number.
    pub(super) fn propose(&self, verb: Verb, state: State, jobs: Vec<(JobId, u32)>) -> u64 {
        let mut works = self.lock();
        let number = works.front().map_or(1, |newest| newest.number + 1);
        let (jobs, result, failed) = (Arc::new(jobs), BatchResult::default(), None);
        works.push_front(Work {
            number,
            verb,
            state,
            jobs,
            moved: 0,
            is_running: false,
            result,
            failed,
        });
        works.truncate(WORKS);
        number
    }

    pub(super) fn get(&self, number: u64) -> Result<Work, Failure> {
        self.with(number, |work| work.clone())
    }

    fn with<T>(&self, number: u64, look: impl FnOnce(&mut Work) -> T) -> Result<T, Failure> {
        let forgotten = "this is not remembered any more: choose the jobs again";
        let mut works = self.lock();
        let work = works.iter_mut().find(|work| work.number == number);
        work.map(look).ok_or_else(|| Exit::NotFound.failure(forgotten))
    }
}

impl Operator {
    /// Moves the jobs of a work that are left, or the next one alone, and returns at once.
    pub(super) fn start(&self, number: u64, only_one: bool) -> Result<(), Failure> {
        let work = self.app.works.with(number, |work| {
            let is_new = !std::mem::replace(&mut work.is_running, true);
            is_new.then(|| work.clone())
        })?;
        if let Some(work) = work {
            let left = if only_one { 1 } else { work.jobs.len() };
            let operator = self.clone();
            tokio::spawn(async move { operator.run(work, left).await });
        }
        Ok(())
    }

    /// A work that is not remembered any more goes on all the same.
    async fn run(&self, work: Work, left: usize) {
        let Work { number, verb, state, ref jobs, moved, .. } = work;
        let jobs: Vec<_> = jobs.iter().copied().skip(moved).take(left).collect();
        for batch in jobs.chunks(BATCH_JOBS) {
            let request = JobBatch { verb, state, regardless: false, jobs: batch.to_vec() };
            let answer = self.ask(request).await;
            let is_over = answer.is_err();
            let _ = self.app.works.with(number, |work| match answer {
                Ok(more) => {
                    work.moved += batch.len();
                    work.result.add(more);
                }
                Err(failure) => work.failed = Some(sentence(&failure)),
            });
            if is_over {
                break;
            }
        }
        let _ = self.app.works.with(number, |work| work.is_running = false);
    }
}
