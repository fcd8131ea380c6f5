//! The store: three handles over one engine.
//!
//! A caller gets [`Intake`], [`Jobs`] or [`Admin`], and sees no verb of another. A verb is in the
//! folder of its handle. All SQL is in this folder: only domain types cross its border. A verb that changes
//! the store is one transaction, or several short ones where it says so: the writer's thread runs it and
//! answers after the flush. Readers see flushed commits only. What the facts of a transaction lead to is
//! decided in `decide` alone; the other folders read the facts and make the writes. The rules S1 to S13 are
//! in `docs/protocol.md`; each file names those that it keeps. [`postgres`] has the connections, transactions
//! and accepts of an engine on PostgreSQL, which no handle uses yet.
//!
//! ```text
//! admin ──▶ intake, jobs ──▶ quarantine ──▶ engine ──▶ tables ──▶ decide ──▶ border
//! ```
//!
//! [`transfer`] moves a store from SQLite to PostgreSQL.

mod admin;
mod border;
mod decide;
mod engine;
mod intake;
mod jobs;
mod mutex;
pub mod postgres;
mod quarantine;
mod tables;
#[cfg(test)]
mod tests;
mod transfer;

#[cfg(test)]
pub(crate) use tests::hold_writer;

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rustix::process::geteuid;
use tokio::sync::watch;

use crate::clock::Clock;

use engine::handle::Engine;
use engine::lock::StoreLock;
use engine::shared::EngineState;
use engine::space::Space;
use engine::subscriptions::Subscriptions;
use engine::writer::Writer;
use engine::{copy, open, path, restore as restoring};
use quarantine::handle::QuarantineHandle;
use tables::audit::Caller;

pub use border::*;

pub use admin::backfill::{Backfill, BackfillCursor, BackfillResult, EventMatcher};
pub use admin::counts::{Backlog, BlockedGroups, JobCounts, StoppedJobs};
pub use admin::find::{IdKind, IdMatch, IdQuery};
pub use admin::follow::FollowCursor;
pub use admin::gauges::{Gauges, WriterGauges};
pub use admin::handle::Admin;
pub use admin::mover::{BatchResult, JobBatch, Replay, Replayed};
pub use admin::selection::{JobSelection, SelectedJob, SelectedJobs, SelectionCursor, Verb};
pub use admin::status::{Disk, SourceActivity, StoreStatus};
pub use admin::stuck::{StuckGroup, StuckJobs};
pub use decide::notice::{Notice, NoticeJob, NoticeSubscribers};
pub use decide::resolve::Resolution;
pub use engine::copy_task::{CopyError, CopyInProgress, Manifest, StoreCopy};
pub use engine::durable::give_name;
pub use engine::inspect::{BackupInfo, InspectError, inspect, refuse_log};
pub use engine::open_error::OpenError;
pub use engine::restore::{RestoreError, RestoreResult, is_there, restore};
pub use intake::handle::Intake;
pub use jobs::expire::{ClockWatch, Cutoffs, RetentionResult};
pub use jobs::handle::Jobs;
pub use jobs::recover::RecoveryResult;
pub use transfer::{HeldStore, MoveError, MoveResult};

/// An open store with its three handles. The writer ends when all clones and handles are dropped;
/// [`Store::close`] waits for its end.
#[derive(Clone)]
pub struct Store {
    pub intake: Intake,
    pub jobs: Jobs,
    pub admin: Admin,
    engine: Engine,
    closed: watch::Receiver<bool>,
}

impl Store {
    /// Takes the lock, removes what a killed copy or restore has left, opens under S2, migrates, makes the ballast
    /// file, and starts the threads of writer, checkpointer and quarantine. Blocking.
    pub fn open(settings: &Settings, clock: Clock) -> Result<Store, OpenError> {
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
        Store::start(Arc::new(shared), conn, lock)
    }

    /// Starts the threads of an open store.
    fn start(
        shared: Arc<EngineState>,
        conn: Connection,
        lock: Arc<StoreLock>,
    ) -> Result<Store, OpenError> {
        let path = &shared.settings.path;
        let failed = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("failed to start a thread: {error}"),
        };
        let quarantine = QuarantineHandle::start(
            path,
            &shared.settings.limits,
            shared.clock.clone(),
            Arc::clone(&shared.space),
            Arc::clone(&lock),
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
        let jobs = Jobs { engine: engine.clone(), subscriptions, claim_dedup: Arc::default() };
        let (own, router) = (intake.clone(), Arc::default());
        let caller = Arc::new(Caller { uid: geteuid().as_raw(), by: By::default() });
        let admin = Admin { engine: engine.clone(), intake: own, router, caller };
        Ok(Store { intake, jobs, admin, engine, closed })
    }

    /// Refuses new requests, commits and answers the queued ones, closes, and releases the lock. Afterwards
    /// everything is refused.
    pub async fn close(&self) {
        self.engine.queue.close();
        self.intake.quarantine.close().await;
        // An error means that the writer has ended, as awaited.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

/// Finishes a restore that was killed, and removes the files of a killed restore or copy. The caller holds the
/// lock.
fn clear_leftovers(path: &Path) -> Result<(), OpenError> {
    restoring::finish(path).map_err(|error| OpenError::from_io(path, path, &error))?;
    if let Err(error) = restoring::remove_leftover(path) {
        tracing::warn!(%error, "failed to remove the files of a cut restore");
    }
    copy::remove_leftover(path);
    Ok(())
}
