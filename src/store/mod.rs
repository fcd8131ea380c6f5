//! The store: one SQLite file, one writer thread, one file here per verb.
//!
//! All SQL lives in this folder. At its border stand domain types only: no row, connection or SQL
//! text passes it. What must stay true is in the rules S1 to S13 of the protocol; each file names
//! those it keeps. Verbs that change the store are items in the queue of the writer thread and are
//! answered after its flush; listings have a connection of their own and see flushed commits only.

mod accept;
mod answer;
mod arrived;
mod ask;
mod before;
mod checkpoint;
mod claim;
mod codec;
mod commits;
mod complete;
mod connection;
mod copy;
mod copy_task;
mod drop;
mod durable;
mod engine;
mod epoch;
mod errors;
mod expire;
mod find;
mod gauges;
mod guard;
mod handles;
mod inspect;
mod job;
mod live;
mod lock;
mod missing;
mod notice;
mod open;
mod path;
mod pause;
mod quarantine;
mod queue;
mod read;
mod readers;
mod recent;
mod recover;
mod replay;
mod resolve;
mod restore;
mod rows;
mod schema;
mod secrets;
mod select;
mod shared;
mod space;
mod standing;
#[cfg(test)]
mod tests;
mod types;
mod waiters;
mod writer;

#[cfg(test)]
pub(crate) use tests::hold_writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::watch;

use crate::clock::Clock;

use engine::Engine;
use lock::Lock;
use shared::Shared;
use space::Space;
use waiters::Waiters;
use writer::Writer;

pub use arrived::{Arrived, Mark};
pub use copy_task::{Copied, CopyError, Copying, Manifest};
pub use durable::give_name;
pub use expire::{ClockWatch, Cutoffs, Expired};
pub use find::{IdKind, IdMatch, IdQuery};
pub use gauges::{Gauges, WriterGauges};
pub use handles::{Admin, Intake, Jobs};
pub use inspect::{InspectError, Inspected, inspect, refuse_log};
pub use live::Live;
pub use missing::{Made, Missing, Place, Wanted};
pub use notice::{Interest, Notice, NoticeJob, WINDOW as NOTICE_WINDOW};
pub use quarantine::{
    Judge, Judged, Judging, Kept, LeftOut, NO_SUCH_SOURCE, Quarantine, QuarantineFilter,
    Quarantined, QuarantinedRow, Verdicts,
};
pub use resolve::Resolution;
pub use restore::{RestoreError, Restored, is_there, restore};
pub use rows::{
    AttemptRow, EventDetail, EventFilter, EventRow, FormerKey, JobDetail, JobFilter, JobRow,
    KeyRow, PausedRow, RestoredRow, SecretUse, Twin,
};
pub use select::{BATCH_COUNT, Batch, Chosen, Cursor, Moved, Select, Selected, Verb};
pub use standing::{Backlog, Disk, LastWord, Standing, Stuck};
pub use types::{
    Accept, Accepted, Ask, Asked, Captured, Claim, Claimed, Claims, Completion, Error, KeyState,
    LEAST_CHARS, OpenError, Record, Recovered, Refused, Replay, Running, Settings, Usage,
};

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
    /// Takes the lock, opens under S2, migrates, starts writer and checkpointer. Blocking.
    pub fn open(settings: &Settings, clock: Clock) -> Result<Store, OpenError> {
        let path = &path::real(&settings.path);
        let settings = Settings { path: path.clone(), limits: settings.limits.clone() };
        if path.is_dir() {
            return Err(OpenError::IsDirectory { path: path.clone() });
        }
        let lock = Arc::new(Lock::take(path, clock.now())?);
        clear_leftovers(path)?;
        path::warn_of_network(path);
        let space = Arc::new(Space::new(path, &settings.limits));
        let opened = open::open(path, &settings.limits, true, clock.now())?;
        space.opened(path);
        let (shared, conn) = Shared::new(settings, clock, space, opened)
            .map_err(|error| OpenError::from_sql(path, error))?;
        shared.space.make_ballast();
        Store::start(Arc::new(shared), conn, lock)
    }

    /// Starts the threads of an open store.
    fn start(shared: Arc<Shared>, conn: Connection, lock: Arc<Lock>) -> Result<Store, OpenError> {
        let path = &shared.settings.path;
        let failed = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("failed to start a thread: {error}"),
        };
        let quarantine = quarantine::Handle::start(
            path,
            &shared.settings.limits,
            shared.clock.clone(),
            Arc::clone(&shared.space),
            Arc::clone(&lock),
        )
        .map_err(failed)?;
        let closed = Writer::start(Arc::clone(&shared), conn, lock).map_err(failed)?;
        let engine = Engine::new(shared);
        let waiters = Arc::<Waiters>::default();
        let intake = Intake {
            engine: engine.clone(),
            waiters: Arc::clone(&waiters),
            recent: Arc::default(),
            quarantine: Arc::new(quarantine),
        };
        let jobs = Jobs { engine: engine.clone(), waiters, takers: Arc::default() };
        let admin = Admin { engine: engine.clone(), intake: intake.clone() };
        Ok(Store { intake, jobs, admin, engine, closed })
    }

    /// Refuses new work, answers what is queued, commits, closes, releases the lock. Afterwards
    /// everything is refused.
    pub async fn close(&self) {
        self.engine.queue.close();
        self.intake.quarantine.close().await;
        // An error means that the writer is gone, which is what is waited for.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

/// Finishes a restore that was killed, and removes the files of a killed restore or copy. The caller holds the
/// lock.
fn clear_leftovers(path: &Path) -> Result<(), OpenError> {
    restore::finish(path).map_err(|error| OpenError::from_io(path, path, &error))?;
    if let Err(error) = restore::remove_leftover(path) {
        tracing::warn!(%error, "failed to remove what is left of a restore");
    }
    copy::remove_leftover(path);
    Ok(())
}

/// Locks a mutex whose holder may have panicked: the writer's panic ends the process, and a reader's
/// leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every guarded update changes exactly one row; another number is a broken promise, and the
/// transaction must not stand.
fn exactly_one(changed: usize) -> rusqlite::Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}
