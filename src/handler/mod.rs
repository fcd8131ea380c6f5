//! Handlers: what the operator configured to run for an event.
//!
//! The dispatcher calls [`Handler::run`] with one claimed attempt and is told what came of it. What
//! must stay true: whatever happens is a [`Report`], never an error; no outcome is guessed, so what
//! said nothing is `unknown`; nothing here reads or changes the store.

mod command;
pub mod forward;

use std::time::Duration;

use crate::clock::Clock;
use crate::model::{Blob, Facts, Outcome};
use crate::store::{Captured, Record};

pub use crate::runner::{AskedBy, CommandSettings, End, Ender};
pub use command::end_leftovers;
pub use forward::{ForwardSettings, Target};

/// A handler that can run attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// A program with its arguments.
    Command(CommandSettings),
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
}

impl Handler {
    /// Runs one attempt to its end. Never fails: whatever happens is an outcome.
    ///
    /// Once `end` is wished, a command is asked to end and its true outcome reported, and a forward
    /// that has no answer yet is given up. The future must be polled to its end: an attempt whose
    /// future is dropped is left to the next start's recovery. `clock` tells what a Retry-After date
    /// means where the answer has no date of its own.
    pub async fn run(&self, facts: Facts, end: &End, clock: &Clock) -> Report {
        match self {
            Handler::Command(settings) => command::run(settings, &facts, end).await,
            Handler::Forward(settings) => forward::run(settings, &facts, end, clock).await,
        }
    }

    /// The longest time between the wish to end and the report, where the kernel does its part.
    pub fn grace(&self) -> Duration {
        match self {
            Handler::Command(settings) => settings.grace,
            Handler::Forward(_) => Duration::ZERO,
        }
    }
}

impl Report {
    /// A report of `outcome` with one sentence for people.
    fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        let record = Record { detail: detail.into(), ..Record::default() };
        Report { outcome, handler_broken: false, retry_after: None, record }
    }

    /// A report that nothing was begun because the handler cannot run.
    fn broken(detail: impl Into<String>) -> Self {
        Report { handler_broken: true, ..Report::new(Outcome::NotStarted, detail) }
    }
}

impl From<crate::runner::Captured> for Captured {
    fn from(captured: crate::runner::Captured) -> Self {
        Captured { head: Blob(captured.head), tail: Blob(captured.tail), total: captured.total }
    }
}
