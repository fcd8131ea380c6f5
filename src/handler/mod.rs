//! Handlers: what the operator configured to run for an event.
//!
//! The dispatcher runs a claimed attempt by [`Command::run`] or [`ForwardSettings::run`] and is told
//! what came of it. A forward is this process's own; a command is a runner's, reached by one of
//! the [`runner_pool`], and goes on when this process ends. What must stay true: whatever happens is a
//! [`Report`], never an error; no outcome is guessed, so what said nothing is `unknown`; nothing here
//! reads or changes the store.

mod command;
pub mod forward;
pub mod runner_client;
pub mod runner_pool;

use std::time::Duration;

use crate::model::{Answer, Blob, Outcome};
use crate::store::{Captured, Record};

pub use crate::runner::Cancellation;
pub use command::{Command, adopted};
pub use forward::{ForwardSettings, Target};
pub use runner_client::{CannotAsk, Capacity, RunnerClient};
pub use runner_pool::{RunnerPool, Runners};

/// A handler that can run attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// A program with its arguments, which the runner knows.
    Command(Command),
    /// A local HTTP endpoint.
    Forward(ForwardSettings),
}

/// How an attempt ended, as its handler saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The handler itself cannot run (not found, 126/127, spawn error, connection refused): it backs
    /// off as a whole and the attempt does not count.
    pub handler_broken: bool,
    /// The handler's own wish (Retry-After).
    pub retry_after: Option<Duration>,
    /// What is kept for people.
    pub record: Record,
    /// What it answered, whole, where somebody may wait for that.
    pub answer: Option<Answer>,
}

impl Report {
    /// A report of `outcome` with one sentence for people.
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        let record = Record { detail: detail.into(), ..Record::default() };
        Report { outcome, handler_broken: false, retry_after: None, record, answer: None }
    }

    /// A report that nothing was begun because the handler cannot run.
    fn broken(detail: impl Into<String>) -> Self {
        Report { handler_broken: true, ..Report::new(Outcome::NotStarted, detail) }
    }

    /// The same where somebody waits for an answer: what cannot be run now has failed, and is known to.
    pub(crate) fn at_once(self) -> Self {
        match self.handler_broken {
            true => Report { outcome: Outcome::Failed, handler_broken: false, ..self },
            false => self,
        }
    }
}

impl From<crate::runner::Captured> for Captured {
    fn from(captured: crate::runner::Captured) -> Self {
        let total = captured.total.unwrap_or_default();
        Captured { head: Blob(captured.head), tail: Blob(captured.tail), total }
    }
}
