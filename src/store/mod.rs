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
mod drop;
mod durable;
mod epoch;
mod expire;
mod find;
mod gauges;
mod guard;
mod inspect;
mod live;
mod lock;
mod missing;
mod notice;
mod pause;
mod quarantine;
mod queue;
mod read;
mod recent;
mod recover;
mod replay;
mod resolve;
mod restore;
mod rows;
mod schema;
mod secrets;
mod select;
mod space;
mod standing;
#[cfg(test)]
mod tests;
mod types;
mod waiters;
mod writer;

#[cfg(test)]
pub(crate) use tests::hold_writer;

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::clock::Clock;

use checkpoint::Checkpoints;
use claim::Takers;
use commits::Commits;
use connection::Opened;
use lock::Lock;
use notice::Notices;
use pause::Paused;
use queue::{Item, Lane, Queue, Told};
use read::Readers;
use recent::Recent;
use secrets::SecretUses;
use space::Space;
use waiters::Waiters;
use writer::Writer;

pub use arrived::{Arrived, Mark};
pub use copy::{Copied, CopyError, Copying, Manifest};
pub use durable::give_name;
pub use expire::{ClockWatch, Cutoffs, Expired};
pub use find::{IdKind, IdMatch, IdQuery, LEAST_CHARS};
pub use gauges::{Gauges, WriterGauges};
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
    OpenError, Record, Recovered, Refused, Replay, Running, Settings, Usage,
};

/// A handle to the running store; clones share the one writer. When the last is dropped the writer
/// ends by itself; [`Store::close`] waits for that.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    clock: Clock,
    id: Uuid,
    queue: Arc<Queue>,
    space: Arc<Space>,
    readers: Arc<Readers>,
    /// A reader for listings.
    lists: Arc<Readers>,
    /// A reader of its own: what an HTTP worker asks does not wait for a listing.
    keys: Arc<Readers>,
    waiters: Arc<Waiters>,
    wake: Arc<Notify>,
    stirred: watch::Sender<()>,
    commits: Arc<Commits>,
    checkpoints: Arc<Checkpoints>,
    notices: Notices,
    recent: Recent,
    takers: Arc<Takers>,
    paused: Arc<Paused>,
    secret_uses: Arc<SecretUses>,
    quarantine: quarantine::Handle,
    closed: watch::Receiver<bool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Store {
    /// Takes the lock, opens under S2, migrates, starts writer and checkpointer. Blocking.
    pub fn open(settings: &Settings, clock: Clock) -> Result<Store, OpenError> {
        let path = connection::real(&settings.path);
        let settings = Settings { path, limits: settings.limits.clone() };
        let Settings { path, limits } = &settings;
        if path.is_dir() {
            return Err(OpenError::IsDirectory { path: path.clone() });
        }
        let lock = Arc::new(Lock::take(path, clock.now())?);
        restore::finish(path).map_err(|error| OpenError::from_io(path, path, &error))?;
        if let Err(error) = restore::remove_leftover(path) {
            tracing::warn!(%error, "failed to remove what is left of a restore");
        }
        copy::remove_leftover(path);
        connection::warn_of_network(path);
        let space = Arc::new(Space::new(path, limits));
        let Opened { writer, checkpointer, reader, lists: for_lists, keys: for_keys, id } =
            connection::open(path, limits, true, clock.now())?;
        space.opened(path);
        let paused = Arc::new(Paused::default());
        paused.load(&writer).map_err(|error| OpenError::from_sql(path, error))?;
        space.make_ballast();
        let quarantine = quarantine::Handle::start(
            path,
            limits,
            clock.clone(),
            Arc::clone(&space),
            Arc::clone(&lock),
        )?;

        let queue = Arc::new(Queue::new(limits));
        let readers = Arc::new(Readers::default());
        readers.put(reader);
        let lists = Arc::new(Readers::default());
        lists.put(for_lists);
        let keys = Arc::new(Readers::default());
        keys.put(for_keys);
        let checkpoints = Arc::new(Checkpoints::default());
        checkpoints.put(checkpointer);
        let wake = Arc::new(Notify::new());
        let stirred = watch::Sender::new(());
        let commits = Arc::new(Commits::default());
        let notices = Notices::default();
        let secret_uses = Arc::new(SecretUses::default());
        let (closed, is_closed) = watch::channel(false);
        let thread = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("failed to start a thread: {error}"),
        };
        let signal =
            checkpoint::start(Arc::clone(&checkpoints), Arc::clone(&queue)).map_err(thread)?;
        let writer = Writer {
            settings: settings.clone(),
            clock: clock.clone(),
            queue: Arc::clone(&queue),
            space: Arc::clone(&space),
            readers: Arc::clone(&readers),
            lists: Arc::clone(&lists),
            keys: Arc::clone(&keys),
            checkpoints: Arc::clone(&checkpoints),
            wake: Arc::clone(&wake),
            stirred: stirred.clone(),
            commits: Arc::clone(&commits),
            notices: notices.clone(),
            paused: Arc::clone(&paused),
            secret_uses: Arc::clone(&secret_uses),
            degraded: None,
            id,
            conn: Some(writer),
            signal,
            full: false,
            rest_from: Cell::new(0),
            repairs: 0,
            lock,
            closed,
        };
        std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || writer.run())
            .map_err(thread)?;
        let closed = is_closed;
        let inner = Inner {
            settings,
            clock,
            id,
            queue,
            space,
            readers,
            lists,
            keys,
            waiters: Arc::default(),
            wake,
            stirred,
            commits,
            checkpoints,
            notices,
            recent: Recent::default(),
            takers: Arc::default(),
            paused,
            secret_uses,
            quarantine,
            closed,
        };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// Rung after every commit that changed something, and after a repair; carries nothing. One
    /// listener.
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.inner.wake)
    }

    /// Stirred by what [`Store::wake`] is rung for, and when the store begins or ceases to refuse
    /// accepts; carries nothing, and any number may listen.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.inner.stirred.subscribe()
    }

    /// Waits until the writer's own thread says that it is alive: between two batches, on a full disk
    /// or in the pauses of a repair. Waits for ever where it hangs; false once the store is closed.
    pub async fn writer_answers(&self) -> bool {
        match self.inner.queue.ask() {
            Some(answer) => answer.await.is_ok(),
            None => false,
        }
    }

    /// The store's random identity.
    pub fn id(&self) -> Uuid {
        self.inner.id
    }

    /// Why accepts are refused now, or nothing: readiness.
    pub fn ready(&self) -> Result<(), Refused> {
        self.inner.queue.door()?;
        match self.inner.space.refuses(self.inner.clock.monotonic()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Refuses new work, answers what is queued, commits, closes, releases the lock. Afterwards
    /// everything is refused.
    pub async fn close(&self) {
        self.inner.queue.close();
        self.inner.quarantine.close().await;
        // An error means that the writer is gone, which is what is waited for.
        let _ = self.inner.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Has the writer run `work` in a transaction and returns its result after the flush.
    async fn submit<T, F>(&self, lane: Lane, work: F) -> Result<T, Refused>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (item, answer) = Item::new(lane, work);
        self.push(item, answer).await
    }

    /// Hands the writer an item and waits for its answer.
    async fn push<T>(&self, item: Item, answer: Told<T>) -> Result<T, Refused> {
        self.inner.queue.push(item)?;
        heard(answer).await
    }
}

/// Waits for the writer's answer. It gives none to what came after its end.
async fn heard<T>(answer: Told<T>) -> Result<T, Refused> {
    answer.await.unwrap_or(Err(Refused::Stopping))
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
