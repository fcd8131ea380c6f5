//! Handlers: what the operator configured to run for an event.
//!
//! The dispatcher runs a claimed attempt by [`Command::run`] or [`ForwardSettings::run`] and gets a [`Report`].
//! This process makes a forward itself; a runner runs a command, through a client of the [`runner_pool`], and
//! continues when this process ends. Must stay true: every result is a [`Report`] and never an error; no outcome
//! is guessed, so a handler that reported nothing is `unknown`; no code here reads or changes the store.

mod command;
pub mod forward;
pub mod runner_client;
pub mod runner_pool;

use std::time::Duration;

use crate::model::{Answer, Blob, Outcome};
use crate::store::{OutputExcerpt, Record};

pub use crate::runner::Cancellation;
pub use command::{Command, adopted};
pub use forward::{ForwardSettings, Target};
pub use runner_client::{CannotAsk, Capacity, RunnerClient, Stray};
pub use runner_pool::{RunnerPool, Runners};

/// What is said of an attempt that may not begin (N16).
pub(crate) const TAKEN: &str = "not begun: another node may have the job";

/// A handler that can run attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// A program with its arguments, which the runner knows.
    Command(Command),
    /// A local HTTP endpoint.
    Forward(ForwardSettings),
}

impl Handler {
    pub fn command(&self) -> Option<&Command> {
        match self {
            Handler::Command(command) => Some(command),
            Handler::Forward(_) => None,
        }
    }
}

/// How an attempt ended, as its handler saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub outcome: Outcome,
    /// The handler itself cannot run (not found, 126/127, spawn error, connection refused): it backs
    /// off as a whole and the attempt does not count.
    pub handler_broken: bool,
    /// A value of the event is not what the handler's configuration allows, so nothing began.
    pub value_refused: bool,
    /// The delay that the endpoint asked for (Retry-After).
    pub retry_after: Option<Duration>,
    /// What is stored for the operator.
    pub record: Record,
    /// The complete answer, if a client may wait for it.
    pub answer: Option<Answer>,
}

impl Report {
    /// A report of `outcome` with one sentence for the operator.
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        let record = Record { detail: detail.into(), ..Record::default() };
        Report {
            outcome,
            handler_broken: false,
            value_refused: false,
            retry_after: None,
            record,
            answer: None,
        }
    }

    /// A report that the attempt did not begin because the handler cannot run.
    fn broken(detail: impl Into<String>) -> Self {
        Report { handler_broken: true, ..Report::new(Outcome::NotStarted, detail) }
    }

    /// A report that the attempt did not begin because of a value.
    fn value_refused(detail: impl Into<String>) -> Self {
        Report { value_refused: true, ..Report::new(Outcome::NotStarted, detail) }
    }

    /// The report for a client that waits for an answer: an attempt that cannot run now has failed.
    pub(crate) fn at_once(self) -> Self {
        if self.handler_broken {
            Report { outcome: Outcome::Failed, handler_broken: false, ..self }
        } else {
            self
        }
    }
}

impl From<crate::runner::Captured> for OutputExcerpt {
    fn from(captured: crate::runner::Captured) -> Self {
        let total = captured.total.unwrap_or_default();
        OutputExcerpt { head: Blob(captured.head), tail: Blob(captured.tail), total }
    }
}
