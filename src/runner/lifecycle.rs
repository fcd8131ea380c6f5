//! The lifecycle of a running attempt: its phase, and when the next phase is due.
//!
//! `attend` drives it. The table hands it over when the runner executes itself again, so due times are
//! of the machine's monotonic clock, which outlives the program.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::AskedBy;
use crate::clock::Clock;

/// The phase of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// It runs, until its time-out is due.
    Runs,
    /// SIGTERM was sent.
    Asked(AskedBy),
    /// SIGKILL was sent.
    Killed(AskedBy),
    /// SIGKILL was sent, and the command still lives after the grace.
    Stuck(AskedBy),
}

impl Phase {
    /// The signal to send when the phase is over, and the next phase. No signal ends a stuck command.
    pub(super) fn next(self) -> (Option<Signal>, Phase) {
        match self {
            Phase::Runs => (Some(Signal::TERM), Phase::Asked(AskedBy::TimeOut)),
            Phase::Asked(why) => (Some(Signal::KILL), Phase::Killed(why)),
            Phase::Killed(why) | Phase::Stuck(why) => (None, Phase::Stuck(why)),
        }
    }

    fn asked_by(self) -> Option<AskedBy> {
        match self {
            Phase::Runs => None,
            Phase::Asked(why) | Phase::Killed(why) | Phase::Stuck(why) => Some(why),
        }
    }
}

/// The lifecycle of one attempt.
#[derive(Debug)]
pub(super) struct Lifecycle(Mutex<Progress>);

/// The state of a lifecycle, as it is handed over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Progress {
    phase: Phase,
    /// When the phase is over, since the machine's start. The time of a suspended machine does not count.
    due: Duration,
    grace: Duration,
    /// The command has exited and is being reaped.
    #[serde(skip)]
    ends: bool,
}

impl Lifecycle {
    /// Begins now. `grace` is the time between SIGTERM and SIGKILL.
    pub(super) fn new(timeout: Duration, grace: Duration) -> Self {
        let due = Clock::system().monotonic().saturating_add(timeout);
        Progress { phase: Phase::Runs, due, grace, ends: false }.into()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phase, and the time until it is over.
    pub(super) fn now(&self) -> (Phase, Duration) {
        let progress = self.lock();
        (progress.phase, progress.due.saturating_sub(Clock::system().monotonic()))
    }

    /// Begins `phase` now.
    pub(super) fn enter(&self, phase: Phase) {
        let mut progress = self.lock();
        progress.due = match phase {
            Phase::Stuck(_) => Duration::MAX,
            _ => Clock::system().monotonic().saturating_add(progress.grace),
        };
        progress.phase = phase;
    }

    /// Notes that the command has exited. Returns why it was asked to end, if it was.
    pub(super) fn end(&self) -> Option<AskedBy> {
        let mut progress = self.lock();
        progress.ends = true;
        progress.phase.asked_by()
    }

    /// The state to hand over. `None` if the command has exited.
    pub(super) fn progress(&self) -> Option<Progress> {
        Some(self.lock().clone()).filter(|progress| !progress.ends)
    }
}

impl From<Progress> for Lifecycle {
    fn from(progress: Progress) -> Self {
        Lifecycle(Mutex::new(progress))
    }
}
