//! Opens a store, starts its threads, and closes it.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rusqlite::Connection;
use rustix::process::geteuid;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::store::border::{By, Caller, Settings};
use crate::store::node::lock::StoreLock;
use crate::store::node::open_error::OpenError;
use crate::store::node::path;
use crate::store::node::space::Space;
use crate::store::node::subscriptions::Subscriptions;
use crate::store::quarantine::handle::QuarantineHandle;

use super::admin::handle::Admin;
use super::engine::handle::Engine;
use super::engine::shared::EngineState;
use super::engine::writer::Writer;
use super::engine::{copy, open, restore};
use super::intake::handle::Intake;
use super::jobs::handle::Jobs;

/// An open store with its three handles.
pub(crate) struct SqliteStore {
    pub(crate) intake: Intake,
    pub(crate) jobs: Jobs,
    pub(crate) admin: Admin,
    pub(crate) engine: Engine,
    /// True once the writer has ended.
    pub(crate) closed: watch::Receiver<bool>,
}

impl SqliteStore {
    /// Takes the lock, removes what a killed copy or restore has left, opens under S2, migrates, makes the ballast
    /// file, and starts the threads of writer, checkpointer and quarantine. Blocking.
    pub(crate) fn open(settings: &Settings, clock: Clock) -> Result<SqliteStore, OpenError> {
        let path = &path::real(&settings.path);
        let settings = Settings { path: path.clone(), limits: settings.limits.clone() };
        if path.is_dir() {
            return Err(OpenError::IsDirectory { path: path.clone() });
        }
        let lock = Arc::new(StoreLock::take(path, clock.now())?);
        clear_leftovers(path)?;
        path::warn_of_network(path);
        let space = Arc::new(Space::new(path, &settings.limits));
        let opened = open::open(path, &settings.limits, true, clock.now())?;
        space.opened(path);
        let (shared, conn) = EngineState::new(settings, clock, space, opened)
            .map_err(|error| OpenError::from_sql(path, error))?;
        shared.space.make_ballast();
        SqliteStore::start(Arc::new(shared), conn, lock)
    }

    /// Starts the threads of an open store.
    fn start(
        shared: Arc<EngineState>,
        conn: Connection,
        lock: Arc<StoreLock>,
    ) -> Result<SqliteStore, OpenError> {
        let path = &shared.settings.path;
        let failed = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("failed to start a thread: {error}"),
        };
        let quarantine = QuarantineHandle::start(
            &shared.settings,
            shared.clock.clone(),
            Arc::clone(&shared.space),
            Arc::clone(&lock),
            shared.stirred.clone(),
        )
        .map_err(failed)?;
        let closed = Writer::start(Arc::clone(&shared), conn, lock).map_err(failed)?;
        let engine = Engine::new(shared);
        let subscriptions = Arc::<Subscriptions>::default();
        let intake = Intake {
            engine: engine.clone(),
            subscriptions: Arc::clone(&subscriptions),
            recent: Arc::default(),
            quarantine: Arc::new(quarantine),
        };
        let jobs = Jobs {
            engine: engine.clone(),
            subscriptions,
            claim_dedup: Arc::default(),
            vain_reads: Arc::default(),
            unreadable: Arc::default(),
        };
        let caller = Arc::new(Caller { uid: geteuid().as_raw(), by: By::default() });
        let router = Arc::<ArcSwap<_>>::default();
        let quarantine = Arc::clone(&intake.quarantine);
        let own = intake.clone();
        let admin = Admin { engine: engine.clone(), intake: own, quarantine, router, caller };
        Ok(SqliteStore { intake, jobs, admin, engine, closed })
    }

    /// Refuses new requests, commits and answers the queued ones, closes, and releases the lock.
    pub(crate) async fn close(&self) {
        self.engine.queue.close();
        self.intake.quarantine.close().await;
        // An error means that the writer has ended, as awaited.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

/// Finishes a restore that was killed, and removes the files of a killed restore or copy. The caller holds the
/// lock.
fn clear_leftovers(path: &Path) -> Result<(), OpenError> {
    restore::finish(path).map_err(|error| OpenError::from_io(path, path, &error))?;
    if let Err(error) = restore::remove_leftover(path) {
        tracing::warn!(%error, "failed to remove the files of a cut restore");
    }
    copy::remove_leftover(path);
    Ok(())
}
