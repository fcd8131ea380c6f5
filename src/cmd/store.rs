//! How the commands reach the store, and what their failures mean.

use std::io;
use std::path::Path;

use crate::admin::{CallError, ConnectError, FailureKind, Operation, ShowJob, StoreClient};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::document::{Problem, nearest};
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name};
use crate::serve;
use crate::store::{EventFilter, EventRow, JobFilter, JobRow, Page, PageCursor};

use super::runtime::block_on;
use super::{output, owner};

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

/// Carries out `request` on the configured store: through its receiver where one runs, under the store's lock
/// where none does.
pub(super) fn ask_of<O: Operation>(config: &Config, request: O) -> Result<O::Reply, Failure> {
    with_client(config, async |client| call(client, request).await)
}

/// Opens the way to the store, does `work` over it, and closes it.
pub(super) fn with_client<T>(
    config: &Config,
    work: impl AsyncFnOnce(&StoreClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let settings = config.store();
    owner::assume(&settings.path)?;
    block_on(async {
        let client =
            StoreClient::open(&settings, Clock::system()).await.map_err(connect_failure)?;
        let done = work(&client).await;
        client.close().await;
        done
    })?
}

/// Carries out one request of several.
pub(super) async fn call<O: Operation>(
    client: &StoreClient,
    request: O,
) -> Result<O::Reply, Failure> {
    client.call(request).await.map_err(call_failure)
}

/// Events, page after page, up to the filter's limit.
pub(super) async fn events(
    client: &StoreClient,
    filter: EventFilter,
) -> Result<Vec<EventRow>, Failure> {
    let page = |limit, before| EventFilter { limit, before, ..filter.clone() };
    pages(client, filter.limit, page).await
}

/// Jobs, page after page, up to the filter's limit.
pub(super) async fn jobs(client: &StoreClient, filter: JobFilter) -> Result<Vec<JobRow>, Failure> {
    let page = |limit, before| JobFilter { limit, before, ..filter.clone() };
    pages(client, filter.limit, page).await
}

async fn pages<O: Operation<Reply = Page<T>>, T>(
    client: &StoreClient,
    limit: Option<usize>,
    page: impl Fn(Option<usize>, Option<PageCursor>) -> O,
) -> Result<Vec<T>, Failure> {
    let (mut rows, mut before) = (Vec::new(), None);
    loop {
        let left = limit.map(|limit| limit.saturating_sub(rows.len()));
        let page = call(client, page(left, before)).await?;
        rows.extend(page.rows);
        before = page.next;
        if before.is_none() || limit.is_some_and(|limit| rows.len() >= limit) {
            return Ok(rows);
        }
    }
}

pub(super) async fn job(client: &StoreClient, job: JobId) -> Result<JobRow, Failure> {
    call(client, ShowJob { job }).await
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
        error @ serve::Error::Admin(_) => Failure::new(Exit::Io, error.to_string()),
        error => Failure::new(Exit::Unavailable, error.to_string()),
    }
}

/// A store that cannot be reached.
pub(super) fn connect_failure(error: ConnectError) -> Failure {
    let exit = match &error {
        ConnectError::NoStore(_) => Exit::NotFound,
        ConnectError::Busy { .. } | ConnectError::Socket { .. } | ConnectError::Store(_) => {
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
fn exit_of(kind: FailureKind) -> Exit {
    match kind {
        FailureKind::NotFound => Exit::NotFound,
        FailureKind::WrongState | FailureKind::Ambiguous => Exit::WrongState,
        FailureKind::Config => Exit::Config,
        // Most of these mean a receiver of another version.
        _ => Exit::Unavailable,
    }
}

/// No receiver listens at `socket`.
pub(super) fn no_receiver(socket: &Path, error: &io::Error) -> Failure {
    let message = format!("no receiver answers at {}: {error}", socket.display());
    Failure::new(Exit::Unavailable, message)
}
