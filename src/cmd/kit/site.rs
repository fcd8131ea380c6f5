//! A scratch site: a folder with its handlers and, of each node, a configuration and the store beside it. Most have one
//! node, `hooklatch`.
//!
//! `demo`, `drill` and the crash tests work on it. Must stay true: it is separate from the operator's
//! configuration and store.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

use super::PATIENCE;
use super::account::Stored;
use super::ledger::Ledger;
use super::receiver::{Receiver, Runner};
use crate::admin::{ListHandlers, ShowEvent, StoreClient};
use crate::clock::Clock;
use crate::cmd::store;
use crate::config::{self, Environment};
use crate::exit::{Exit, Failure};
use crate::model::EventId;
use crate::store::EventFilter;

/// How often a site checks whether its jobs have reached a final state.
const POLL: Duration = Duration::from_millis(50);

/// The pause between two tries: `RestartSec` of the receiver's unit.
const RESTART: Duration = Duration::from_secs(1);

/// The folder of a scratch site. A temporary folder is deleted when this value is dropped.
pub(crate) struct Site {
    root: PathBuf,
    temporary: Option<TempDir>,
    /// The names of the nodes.
    nodes: Vec<String>,
}

impl Site {
    /// Writes `files` (name and text) to a temporary folder, or to `place`, which must be missing or
    /// empty. Only their owner can read them; scripts are executable.
    pub(crate) fn new(place: Option<&Path>, files: &[(&str, &str)]) -> Result<Self, Failure> {
        let failed = |path: &Path, error: io::Error| {
            Failure::io(format_args!("write {}", path.display()))(error)
        };
        let (root, temporary) = match place {
            Some(path) => (path.to_owned(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("hooklatch-").tempdir();
                let folder = folder.map_err(|error| failed(&std::env::temp_dir(), error))?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let open = || {
            fs::create_dir_all(&root)?;
            Ok((fs::read_dir(&root)?.next().is_none(), root.canonicalize()?))
        };
        let (is_empty, full) = open().map_err(|error| failed(&root, error))?;
        if !is_empty {
            let message = format!("{} is not empty", root.display());
            let failure = Exit::Usage.failure(message);
            return Err(failure.help("name a folder that is not there yet"));
        }
        let site = Site { root: full, temporary, nodes: vec!["hooklatch".to_owned()] };
        for (name, text) in files {
            let path = site.path(name);
            let write = || {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, text)?;
                let mode = if text.starts_with("#!") { 0o700 } else { 0o600 };
                fs::set_permissions(&path, Permissions::from_mode(mode))
            };
            write().map_err(|error| failed(&path, error))?;
        }
        Ok(site)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Sets the nodes of the site. It has the configuration `NAME.toml` of each.
    pub(crate) fn of_nodes(self, nodes: Vec<String>) -> Self {
        Site { nodes, ..self }
    }

    /// How many nodes it has.
    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    /// The configuration file of the first node.
    pub(crate) fn config(&self) -> PathBuf {
        self.file(0, "toml")
    }

    fn file(&self, node: usize, extension: &str) -> PathBuf {
        self.path(&format!("{}.{extension}", self.nodes[node]))
    }

    /// Keeps the folder when this value is dropped.
    pub(crate) fn keep(&mut self) {
        if let Some(folder) = self.temporary.take() {
            self.root = folder.keep();
        }
    }

    /// Keeps the folder, which has the cause of this failure, and says so.
    pub(crate) fn keep_for(&mut self, failure: Failure) -> Failure {
        if failure.reader_left {
            return failure;
        }
        self.keep();
        let kept = format!("the folder is kept: {}", self.root.display());
        let help = failure.help.as_ref().map_or(kept.clone(), |help| format!("{help}; {kept}"));
        failure.help(help)
    }

    /// Whether the folder remains when this value is dropped.
    pub(crate) fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// The handlers' ledger so far, from `ledger.txt`.
    pub(crate) fn ledger(&self) -> Result<Ledger, Failure> {
        let path = self.path("ledger.txt");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Ledger::read(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ledger::default()),
            Err(error) => Err(Failure::io(format_args!("read {}", path.display()))(error)),
        }
    }

    /// Waits until no job is ready, running or waiting, or until the handlers write nothing for
    /// [`PATIENCE`].
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let clock = Clock::system();
        let ledger_bytes = || fs::metadata(self.path("ledger.txt")).map_or(0, |found| found.len());
        let (mut written, mut end) = (ledger_bytes(), clock.monotonic() + PATIENCE);
        let client = self.insist(async || self.client().await).await?;
        while self.insist(async || has_open_jobs(&client).await).await? && clock.monotonic() < end {
            let now = ledger_bytes();
            if now > written {
                (written, end) = (now, clock.monotonic() + PATIENCE);
            }
            sleep(POLL).await;
        }
        client.close().await;
        Ok(())
    }

    /// Every event in the store, with its jobs and their attempts.
    pub(crate) async fn stored(&self) -> Result<Vec<Stored>, Failure> {
        let client = self.insist(async || self.client().await).await?;
        let events = self.insist(async || store::events(&client, EventFilter::default()).await);
        let mut ids: Vec<EventId> = events.await?.into_iter().map(|event| event.event_id).collect();
        // One request returns every event with that id.
        ids.sort();
        ids.dedup();
        let mut stored = Vec::new();
        for event in ids {
            let show = || ShowEvent { source: None, event: event.clone(), variant: None };
            let found = self.insist(async || Ok(client.call(show()).await?)).await?.events;
            stored.extend(found.into_iter().map(Stored::from));
        }
        client.close().await;
        Ok(stored)
    }

    /// Starts the receiver of a node, which appends to `receiver.log`, and waits until it serves. One at a time.
    pub(crate) async fn start(&self, node: usize) -> Result<Receiver, Failure> {
        let (config, log) = (self.file(node, "toml"), self.path("receiver.log"));
        self.insist(async || Receiver::start(&config, &log).await).await
    }

    /// Where there are several nodes, tries for [`PATIENCE`], as a service and a person would: their database may be
    /// away.
    async fn insist<T>(&self, once: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
        let clock = Clock::system();
        let end = clock.monotonic() + PATIENCE;
        loop {
            match once().await {
                Err(_) if self.size() > 1 && clock.monotonic() < end => sleep(RESTART).await,
                done => return done,
            }
        }
    }

    /// Stops the receivers, and then the runners, so that no receiver starts another runner.
    pub(crate) async fn stop(&self, receivers: Vec<Receiver>) -> Result<(), Failure> {
        let mut stopped = Ok(());
        for receiver in receivers {
            stopped = stopped.and(receiver.stop().await);
        }
        for runner in (0..self.size()).filter_map(|node| self.runner(node)) {
            runner.stop().await?;
        }
        stopped
    }

    /// The runner of a node, if one listens.
    pub(crate) fn runner(&self, node: usize) -> Option<Runner> {
        Runner::find(&self.file(node, "db"))
    }

    async fn client(&self) -> Result<StoreClient, Failure> {
        let config = config::load(&self.config())?;
        let database = config.database(&Environment::capture())?;
        Ok(StoreClient::open(&config.store(), database, Clock::system()).await?)
    }
}

async fn has_open_jobs(client: &StoreClient) -> Result<bool, Failure> {
    let handlers = client.call(ListHandlers {}).await?.handlers;
    Ok(handlers.iter().any(|handler| handler.unfinished_jobs > 0))
}
