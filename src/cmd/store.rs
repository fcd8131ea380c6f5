//! How the commands reach the store, and what their failures mean.

use std::path::Path;

use crate::clock::Clock;
use crate::config;
use crate::control::{CallError, Door, DoorError, FailureKind, Reply, Request};
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::serve;

use super::block_on;

/// Performs `request` on the store of the configuration at `path`: through its receiver where one
/// runs, under the store's lock where none does.
pub(super) fn ask(path: &Path, request: Request) -> Result<Reply, Failure> {
    let config = config::load(path).map_err(|problems| config_failure(&problems))?;
    let settings = config.store();
    block_on(async {
        let mut door = Door::open(&settings, Clock::system()).await.map_err(door_failure)?;
        let reply = door.call(request).await.map_err(call_failure);
        door.close().await;
        reply
    })?
}

/// A failure of the configuration: every problem, one a line.
pub(super) fn config_failure(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let count = problems.len();
    let plural = if count == 1 { "" } else { "s" };
    let message = format!("the configuration has {count} problem{plural}\n{}", lines.join("\n"));
    Failure::new(Exit::Config, message)
}

/// A receiver that does not start.
pub(super) fn serve_failure(error: serve::Error) -> Failure {
    match error {
        serve::Error::Config(problems) => config_failure(&problems),
        error @ serve::Error::Control(_) => Failure::new(Exit::Io, error.to_string()),
        error => Failure::new(Exit::Unavailable, error.to_string()),
    }
}

/// A store that cannot be reached.
fn door_failure(error: DoorError) -> Failure {
    let exit = match &error {
        DoorError::NoStore(_) => Exit::NotFound,
        DoorError::Busy { .. } | DoorError::Socket { .. } | DoorError::Store(_) => {
            Exit::Unavailable
        }
    };
    Failure::new(exit, error.to_string())
}

/// A request that was not carried out.
fn call_failure(error: CallError) -> Failure {
    let exit = match &error {
        CallError::Failed(failure) => match failure.kind {
            FailureKind::NotFound => Exit::NotFound,
            FailureKind::WrongState | FailureKind::Ambiguous => Exit::WrongState,
            FailureKind::Unavailable => Exit::Unavailable,
        },
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

/// An answer to another question than the one that was asked: two versions that do not fit.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    let kind = format!("{reply:?}");
    let kind = kind.split(['(', ' ', '{']).next().unwrap_or_default();
    Failure::new(
        Exit::Unavailable,
        format!("the receiver answered with {kind}, which was not asked"),
    )
    .help("restart the receiver, so that it has the version of this command")
}
