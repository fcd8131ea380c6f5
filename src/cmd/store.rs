//! How the commands reach the store.

use std::path::Path;

use crate::admin::{Client, GetStatus, Operation, ShowJob, StoreClient, socket_path};
use crate::cli::{Note, Options};
use crate::clock::Clock;
use crate::config::{self, Config, Environment, Handler};
use crate::document::nearest;
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name};
use crate::store::{
    AuditFilter, AuditRow, By, EventFilter, EventRow, JobFilter, JobRow, NodeRow, Page, PageCursor,
};

use super::of_unit::of_unit;
use super::runtime::block_on;
use super::{output, owner};

/// Reads the configuration for a command that needs its store. Mistakes elsewhere are one note:
/// a half-saved file must not keep an operator from looking at a running receiver, or from pausing it.
pub(super) fn load(options: &Options) -> Result<Config, Failure> {
    let config = config::load_in_part(options.config())?;
    let mut files: Vec<&str> = config.mistakes().iter().map(|one| one.file.as_str()).collect();
    files.dedup();
    if !files.is_empty() {
        let have = if files.len() == 1 { "has a mistake" } else { "have mistakes" };
        let (files, suffix) = (files.join(", "), options.suffix());
        output::note(format!(
            "{files} {have} (hooklatch config check{suffix}); a running receiver goes on with what it read"
        ));
    }
    Ok(config)
}

/// Fails if the configuration has a mistake, for what cannot be decided with a part of it.
pub(super) fn need_whole(config: &Config) -> Result<(), Failure> {
    match config.mistakes() {
        [] => Ok(()),
        mistakes => Err(mistakes.into()),
    }
}

/// Fails if the store is on PostgreSQL: the command needs a file.
pub(super) fn need_file(config: &Config) -> Result<(), Failure> {
    match config.has_database() {
        true => Err(Exit::Config
            .failure("the store is on PostgreSQL, which has backups of its own")
            .help("pg_basebackup with an archive of the log, or pg_dump")),
        false => Ok(()),
    }
}

/// Carries out `request` on the configured store: through its receiver where one runs, under the store's lock
/// where none does.
pub(super) fn ask_of<O: Operation>(config: &Config, request: O) -> Result<O::Reply, Failure> {
    with_client(config, async |client| Ok(client.call(request).await?))
}

/// Carries out a change as [`ask_of`] does a request, with its reason for the audit list.
pub(super) fn change<O: Operation>(
    config: &Config,
    note: &Note,
    request: O,
) -> Result<O::Reply, Failure> {
    with_client_noted(config, note, async |client| Ok(client.call(request).await?))
}

/// Opens the way to the store, does `work` over it, and closes it.
pub(super) fn with_client<T>(
    config: &Config,
    work: impl AsyncFnOnce(&StoreClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_client_noted(config, &Note::default(), work)
}

/// Does work that makes changes, as [`with_client`] does other work, with their reason for the audit list.
pub(super) fn with_client_noted<T>(
    config: &Config,
    note: &Note,
    work: impl AsyncFnOnce(&StoreClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let settings = config.store();
    // The store's owner may not read the unit's secrets.
    let environment = of_unit(&Environment::capture(), Path::new(config.file()), "secrets");
    let database = config.database(&environment);
    owner::assume(&settings.path)?;
    block_on(async {
        let client = match StoreClient::of_receiver(&settings).await? {
            Some(client) => client,
            None => StoreClient::open(&settings, database?, Clock::system()).await?,
        };
        let client = client.by(by(note));
        if let StoreClient::Local(store, _) = &client {
            store.admin.set_router(config.router());
        }
        let done = work(&client).await;
        client.close().await;
        done
    })?
}

/// What this process says of itself in the audit list: under sudo the name of the person.
pub(super) fn by(note: &Note) -> By {
    let mut by = By { reason: note.note.clone(), ..By::default() };
    by.name = std::env::var("SUDO_USER").ok();
    if by.check().is_err() {
        by.name = None;
    }
    by
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

/// Rows of the audit list, page after page, up to the filter's limit.
pub(super) async fn audit(
    client: &StoreClient,
    filter: AuditFilter,
) -> Result<Vec<AuditRow>, Failure> {
    let page = |limit, before| AuditFilter { limit, before, ..filter.clone() };
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
        let page = client.call(page(left, before)).await?;
        rows.extend(page.rows);
        before = page.next;
        if before.is_none() || limit.is_some_and(|limit| rows.len() >= limit) {
            return Ok(rows);
        }
    }
}

pub(super) async fn job(client: &StoreClient, job: JobId) -> Result<JobRow, Failure> {
    Ok(client.call(ShowJob { job }).await?)
}

/// The nodes of the database; none of a file, or if they cannot be asked for.
pub(super) async fn nodes(client: &StoreClient) -> Vec<NodeRow> {
    let status = client.call(GetStatus { sources: Vec::new() }).await.ok();
    status.and_then(|status| status.store).unwrap_or_default().nodes
}

/// A handler that the configuration has not got, with the one that may be meant.
pub(super) fn no_handler(config: &Config, handler: &Name) -> Failure {
    let names = config.handlers.iter().map(|handler| handler.name.as_str());
    let help = did_you_mean(handler, names)
        .unwrap_or_else(|| "hooklatch.toml and conf.d/*.toml name the handlers".to_owned());
    Exit::NotFound.failure(format!("no such handler: {handler}")).help(help)
}

pub(super) fn did_you_mean<'n>(
    name: &Name,
    known: impl Iterator<Item = &'n str>,
) -> Option<String> {
    nearest(name.as_str(), known).map(|meant| format!("did you mean {meant}?"))
}

/// Fails if the handler does not take events of this source.
pub(super) fn need_taken(handler: &Handler, source: &Name) -> Result<(), Failure> {
    if handler.takes(source) {
        return Ok(());
    }
    let message = format!("handler {} takes no events of source '{source}'", handler.name);
    Err(Exit::NotFound.failure(message).help("its `source` key says of which"))
}

/// The running receiver of the configured store. `serve` follows the command that starts one.
pub(super) async fn receiver(config: &Config, serve: &str) -> Result<Client, Failure> {
    let client = connect(&socket_path(&config.store().path), serve).await?;
    Ok(client.by(by(&Note::default())))
}

/// The receiver that listens at `socket`.
pub(super) async fn connect(socket: &Path, serve: &str) -> Result<Client, Failure> {
    Client::connect(socket).await.map_err(|error| {
        let message = format!("no receiver answers at {}: {error}", socket.display());
        Exit::Unavailable.failure(message).help(format!("start it: hooklatch serve{serve}"))
    })
}
