//! How far an attempt has come between its start and its end, and when the next step is due.
//!
//! `attend` takes the steps; the table looks at it, and hands it on where the runner executes itself
//! again. So times are those of the machine's monotonic clock, which goes on, and not of a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::AskedBy;

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// It may run on until it is due.
    Runs,
    /// SIGTERM was sent.
    Asked(AskedBy),
    /// SIGKILL was sent.
    Killed(AskedBy),
    /// SIGKILL was sent and ought to have worked.
    Stuck(AskedBy),
}

impl Stage {
    /// What to do when it is due, and what comes then. No signal helps any more where none is given.
    pub(super) fn next(self) -> (Option<Signal>, Stage) {
        match self {
            Stage::Runs => (Some(Signal::TERM), Stage::Asked(AskedBy::TimeOut)),
            Stage::Asked(why) => (Some(Signal::KILL), Stage::Killed(why)),
            Stage::Killed(why) | Stage::Stuck(why) => (None, Stage::Stuck(why)),
        }
    }

    fn asked_by(self) -> Option<AskedBy> {
        match self {
            Stage::Runs => None,
            Stage::Asked(why) | Stage::Killed(why) | Stage::Stuck(why) => Some(why),
        }
    }
}

/// An attempt's way. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Course(Arc<Mutex<Way>>);

/// What there is to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Way {
    stage: Stage,
    /// When the next step is, since the machine's start; a suspended machine's time does not count.
    due: Duration,
    grace: Duration,
    /// It has exited and is being reaped.
    #[serde(skip)]
    ends: bool,
}

impl Course {
    /// Begins now: what may run for so long, and has so long after SIGTERM.
    pub(super) fn new(timeout: Duration, grace: Duration) -> Self {
        let due = monotonic().saturating_add(timeout);
        Way { stage: Stage::Runs, due, grace, ends: false }.into()
    }

    fn lock(&self) -> MutexGuard<'_, Way> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stage it is in, and how long until the next one is due.
    pub(super) fn now(&self) -> (Stage, Duration) {
        let way = self.lock();
        (way.stage, way.due.saturating_sub(monotonic()))
    }

    /// The next stage begins now.
    pub(super) fn enter(&self, stage: Stage) {
        let mut way = self.lock();
        way.due = match stage {
            Stage::Stuck(_) => Duration::MAX,
            Stage::Runs | Stage::Asked(_) | Stage::Killed(_) => {
                monotonic().saturating_add(way.grace)
            }
        };
        way.stage = stage;
    }

    /// It has exited. Returns what it had been asked to end for.
    pub(super) fn end(&self) -> Option<AskedBy> {
        let mut way = self.lock();
        way.ends = true;
        way.stage.asked_by()
    }

    /// What another program needs to go on; nothing where it has exited.
    pub(super) fn way(&self) -> Option<Way> {
        Some(self.lock().clone()).filter(|way| !way.ends)
    }
}

impl From<Way> for Course {
    fn from(way: Way) -> Self {
        Course(Arc::new(Mutex::new(way)))
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
