//! Replays and drops of many jobs: chosen when a person asks what would happen, and moved in the background when that
//! person says so, whether the page stays open or not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exit::{Exit, Failure};
use crate::model::{JobId, State};
use crate::store::{BatchResult, Verb};

/// Works that are remembered, those that nobody started included.
const WORKS: usize = 64;

/// Jobs of one work: more are chosen by the next one.
pub(super) const WORK_JOBS: usize = 10_000;

/// Jobs that are moved together.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) number: u64,
    pub(super) verb: Verb,
    /// Held or dead: the state in which they were chosen.
    pub(super) state: State,
    /// Oldest first, with the attempt after which each was chosen.
    pub(super) jobs: Arc<Vec<(JobId, u32)>>,
    /// The first so many have been handed to the receiver.
    pub(super) moved: usize,
    pub(super) is_running: bool,
    pub(super) result: BatchResult,
    /// Why it stopped before its end.
    pub(super) failed: Option<String>,
}

#[derive(Default)]
pub(super) struct Works(Mutex<(u64, VecDeque<Work>)>);

impl Works {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<Work>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was chosen. Returns its number.
    pub(super) fn propose(&self, verb: Verb, state: State, jobs: Vec<(JobId, u32)>) -> u64 {
        let mut works = self.lock();
        works.0 += 1;
        let number = works.0;
        if works.1.len() == WORKS {
            let oldest = works.1.iter().position(|work| !work.is_running).unwrap_or(0);
            works.1.remove(oldest);
        }
        let (jobs, result) = (Arc::new(jobs), BatchResult::default());
        works.1.push_back(Work {
            number,
            verb,
            state,
            jobs,
            moved: 0,
            is_running: false,
            result,
            failed: None,
        });
        number
    }

    pub(super) fn get(&self, number: u64) -> Result<Work, Failure> {
        let works = self.lock();
        let work = works.1.iter().find(|work| work.number == number).cloned();
        work.ok_or_else(|| {
            Exit::NotFound.failure("this is not remembered any more: choose the jobs again")
        })
    }

    pub(super) fn change(&self, number: u64, change: impl FnOnce(&mut Work)) {
        if let Some(work) = self.lock().1.iter_mut().find(|work| work.number == number) {
            change(work);
        }
    }

    /// Marks it as running, unless it is.
    pub(super) fn start(&self, number: u64) -> bool {
        let mut is_new = false;
        self.change(number, |work| is_new = !std::mem::replace(&mut work.is_running, true));
        is_new
    }
}
