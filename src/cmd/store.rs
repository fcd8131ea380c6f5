//! How the commands reach the store, and what their failures mean.

use std::io;
use std::path::Path;

use crate::clock::Clock;
use crate::config::{self, Config};
use crate::control::{CallError, Door, DoorError, FailureKind, Reply, Request};
use crate::document::{Problem, nearest};
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name};
use crate::serve;
use crate::store::JobRow;

use super::{block_on, output, owner};

/// The content of a reply, or a failure where it is another reply.
macro_rules! content {
    ($reply:expr, $pattern:pat => $content:expr) => {
        match $reply {
            $pattern => Ok($content),
            other => Err($crate::cmd::store::unexpected(&other)),
        }
    };
}
pub(super) use content;

/// Reads the configuration at `path`, all of which the command needs.
pub(super) fn load_whole(path: &Path) -> Result<Config, Failure> {
    config::load(path).map_err(|problems| config_failure(&problems))
}

/// Reads the configuration at `path` for a command that needs its store. Mistakes elsewhere are one note:
/// a half-saved file must not keep an operator from looking at a running receiver, or from pausing it.
pub(super) fn load(path: &Path) -> Result<Config, Failure> {
    let config = config::load_in_part(path).map_err(|problems| config_failure(&problems))?;
    let mut files: Vec<&str> = config.mistakes().iter().map(|one| one.file.as_str()).collect();
    files.dedup();
    if !files.is_empty() {
        let have = if files.len() == 1 { "has a mistake" } else { "have mistakes" };
        let (files, suffix) = (files.join(", "), output::config_suffix(path));
        output::note(format!(
            "{files} {have} (hooklatch config check{suffix}); a running receiver goes on with what it read"
        ));
    }
    Ok(config)
}

/// For what cannot be decided with a part of the configuration.
pub(super) fn need_whole(config: &Config) -> Result<(), Failure> {
    match config.mistakes() {
        [] => Ok(()),
        mistakes => Err(config_failure(mistakes)),
    }
}

/// Performs `request` on the configured store: through its receiver where one runs, under the store's lock where none does.
pub(super) fn ask_of(config: &Config, request: Request) -> Result<Reply, Failure> {
    with_door(config, async |door| call(door, request).await)
}

/// Opens the way to the store, does `work` over it, and closes it again.
pub(super) fn with_door<T>(
    config: &Config,
    work: impl AsyncFnOnce(&mut Door) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let settings = config.store();
    owner::assume(&settings.path)?;
    block_on(async {
        let mut door = Door::open(&settings, Clock::system()).await.map_err(door_failure)?;
        let done = work(&mut door).await;
        door.close().await;
        done
    })?
}

/// Performs one request of several.
pub(super) async fn call(door: &mut Door, request: Request) -> Result<Reply, Failure> {
    door.call(request).await.map_err(call_failure)
}

pub(super) async fn job(door: &mut Door, job: JobId) -> Result<JobRow, Failure> {
    content!(call(door, Request::Job(job)).await?, Reply::Job(row) => *row)
}

/// A handler that the configuration has not got, with the one that may be meant.
pub(super) fn no_handler(config: &Config, handler: &Name) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("no such handler: {handler}"));
    match nearest(handler.as_str(), config.handlers.iter().map(|handler| handler.name.as_str())) {
        Some(meant) => failure.help(format!("did you mean {meant}?")),
        None => failure.help("hooklatch.toml and conf.d/*.toml name the handlers"),
    }
}

/// A failure of the configuration: every problem, one a line.
pub(super) fn config_failure(problems: &[Problem]) -> Failure {
    if let [Problem { file, message, help: Some(help), .. }] = problems
        && message == config::NO_CONFIGURATION
    {
        let message = format!("there is no configuration at {file}");
        return Failure::new(Exit::Config, message).help(help);
    }
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
        serve::Error::Listen { address, ref error } if error.kind() == io::ErrorKind::AddrInUse => {
            let port = address.port();
            Failure::new(Exit::Unavailable, format!("another process listens on {address} already"))
                .help(format!(
                    "see which: ss -ltnp 'sport = :{port}'; end it, or choose another address"
                ))
        }
        error @ serve::Error::Control(_) => Failure::new(Exit::Io, error.to_string()),
        error => Failure::new(Exit::Unavailable, error.to_string()),
    }
}

/// A store that cannot be reached.
pub(super) fn door_failure(error: DoorError) -> Failure {
    let exit = match &error {
        DoorError::NoStore(_) => Exit::NotFound,
        DoorError::Busy { .. } | DoorError::Socket { .. } | DoorError::Store(_) => {
            Exit::Unavailable
        }
    };
    Failure::new(exit, error.to_string())
}

/// A request that was not carried out.
pub(super) fn call_failure(error: CallError) -> Failure {
    let exit = match &error {
        CallError::Failed(failure) => exit_of(failure.kind),
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

/// What a command exits with whose request failed so.
pub(super) fn exit_of(kind: FailureKind) -> Exit {
    match kind {
        FailureKind::NotFound => Exit::NotFound,
        FailureKind::WrongState | FailureKind::Ambiguous => Exit::WrongState,
        FailureKind::Unavailable => Exit::Unavailable,
        FailureKind::Config => Exit::Config,
    }
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
