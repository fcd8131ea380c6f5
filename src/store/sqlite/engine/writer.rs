//! The writer: commits all queued requests in one transaction with one flush, then answers them.
//!
//! What must stay true: a request is answered after the flush of its commit (S3); after an unexpected error the
//! batch is rolled back and each request gets a transaction by itself, so that one bad request never fails the
//! others (S4); after an I/O error every connection is closed and
//! the store is opened again by the start's own path (S1). A page that is damaged or cannot be read is read from the
//! disk once more by that, and then fails only what needs it. The thread's death is the process's (S13).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB, ffi};
use tokio::sync::watch;

use crate::model::Timestamp;
use crate::store::border::{Refused, Settings, Stalled};
use crate::store::decide::notice::{Notice, degraded};
use crate::store::mutex::lock;
use crate::store::node::lock::StoreLock;

use super::checkpoint::{self, AbortOnPanic, Pass};
use super::connection::close;
use super::queue::{NextWork, Priority, WriteRequest};
use super::shared::EngineState;
use super::{mark, open};

/// The pause between two tries on a full disk, or where the database is gone.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The pause between the first two tries of a repair; doubled each time, up to [`REPAIR_PAUSE_MAX`].
const REPAIR_PAUSE: Duration = Duration::from_millis(100);
const REPAIR_PAUSE_MAX: Duration = Duration::from_secs(30);

/// For so long a damaged page does not have the store opened anew again: it would be read as damaged again, and deliveries
/// are answered 503 meanwhile.
const DAMAGE_PAUSE: Duration = Duration::from_secs(600);

/// How often a kept request is tried that needs a damaged page: once more after the store was opened anew, which is
/// also when a claim holds a job that it has read in vain.
const DAMAGED_TRIES: u32 = 2;

/// A passive checkpoint is asked for when this share of the log's bound waits to be copied. A commit that
/// comes meanwhile waits until the disk has taken the pass, so it is to be short.
const PASSIVE_SHARE: u64 = 64;

/// From this share of its bound on the log is to begin anew, which it does once all of it is copied. So
/// passes follow each other until little is left, and that is copied while the writer pauses.
const RESTART_SHARE: u64 = 2;

/// The part of the log that counts as little left to copy. The flush of that pass takes with it what the passes before
/// have copied: SQLite leaves it out where commits came meanwhile.
const REST_BYTES: u64 = 256 * 1024;

/// SQLite's code for a database that was moved while it was open.
const GONE: i32 = ffi::SQLITE_READONLY_DBMOVED;

/// One page of 4,096 bytes and its frame header of 24 (the SQLite file format, section 4).
const FRAME_BYTES: u64 = 4096 + 24;

/// The writer thread's state.
pub(crate) struct Writer {
    pub(crate) shared: Arc<EngineState>,
    /// The writer's connection; `None` only while a repair is under way, or a copy is made, which has it.
    pub(crate) conn: Option<Connection>,
    /// Asks for a passive checkpoint; dropped at the end, which ends that thread.
    signal: SyncSender<()>,
    /// Why and since when the store could not store; reported once it can.
    degraded: Option<(&'static str, Timestamp)>,
    /// Whether the last write found no space, or the file gone: tried again from time to time.
    full: bool,
    /// The log's size from which on the writer copies its rest by itself.
    rest_from: Cell<u64>,
    /// Repairs since the last commit: the pause before the next one grows with them.
    repairs: u32,
    /// When a damaged page last had the store opened anew.
    damaged_at: Option<Instant>,
    /// Released last, after every connection is closed.
    lock: Arc<StoreLock>,
    /// Set when everything is closed.
    closed: watch::Sender<bool>,
}

/// What an error means for more than its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Only the item is bad.
    Request,
    /// Another program holds the write lock.
    Busy,
    /// The disk is full.
    Full,
    /// The database or its log was removed or replaced.
    Gone,
    /// A page is not what SQLite wrote, or cannot be read.
    Damage,
    /// The page cache cannot be trusted any more.
    Io,
}

impl Trouble {
    fn of(error: &rusqlite::Error) -> Self {
        if error.sqlite_extended_error_code() == Some(GONE) {
            return Trouble::Gone;
        }
        if is_in_vain(error) {
            return Trouble::Damage;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Trouble::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Trouble::Busy,
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::FileLockingProtocolFailed,
            ) => Trouble::Io,
            _ => Trouble::Request,
        }
    }
}

/// Whether a page is damaged or cannot be read, which says nothing against what is in the page cache. SQLite writes
/// nothing more in that transaction.
pub(crate) fn is_in_vain(error: &rusqlite::Error) -> bool {
    let is_read = [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ];
    error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
        || error.sqlite_extended_error_code().is_some_and(|code| is_read.contains(&code))
}

/// What an error means at the beginning or the end of a transaction: no request alone needs that page. And a commit
/// reads frames of the log after it has written them.
fn of_all(error: rusqlite::Error) -> rusqlite::Error {
    match is_in_vain(&error) {
        true => {
            let io = ffi::Error::new(ffi::SQLITE_IOERR);
            rusqlite::Error::SqliteFailure(io, Some(error.to_string()))
        }
        false => error,
    }
}

impl Writer {
    /// Starts the thread. The receiver says when everything is closed.
    pub(crate) fn start(
        shared: Arc<EngineState>,
        conn: Connection,
        lock: Arc<StoreLock>,
    ) -> std::io::Result<watch::Receiver<bool>> {
        let (closed, is_closed) = watch::channel(false);
        let (checkpoints, queue) = (Arc::clone(&shared.checkpoints), Arc::clone(&shared.queue));
        let writer = Writer {
            shared,
            conn: Some(conn),
            signal: checkpoint::start(checkpoints, queue)?,
            degraded: None,
            full: false,
            rest_from: Cell::new(0),
            repairs: 0,
            damaged_at: None,
            lock,
            closed,
        };
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || writer.run())?;
        Ok(is_closed)
    }

    /// The thread's body: until the queue is closed and empty.
    fn run(mut self) {
        let _abort = AbortOnPanic;
        loop {
            let next = if self.full {
                self.shared.queue.rest(RETRY_PAUSE);
                self.shared.queue.take_now()
            } else {
                self.shared.queue.take()
            };
            match next {
                None if self.shared.queue.is_closed() => break,
                // A batch of nothing asks whether a full disk has space again.
                None => self.batch(Vec::new()),
                Some(next) => self.work(next),
            }
            if self.conn.is_none() {
                break;
            }
            self.bound_log();
        }
        self.finish();
    }

    fn work(&mut self, next: NextWork) {
        match next {
            NextWork::Batch(items) => self.batch(items),
            NextWork::Broken(reason) => self.repair(&reason),
            NextWork::Copy(task) => self.copy(task),
        }
    }

    /// Commits `items` together, or each alone where one of them spoils it.
    fn batch(&mut self, mut items: Vec<WriteRequest>) {
        let result = match &self.conn {
            Some(conn) => self.commit(conn, &mut items),
            None => Err(closed()),
        };
        self.settle(items, result);
    }

    /// Answers requests after their commit, or handles the error of it.
    pub(crate) fn settle(&mut self, items: Vec<WriteRequest>, result: rusqlite::Result<bool>) {
        match result {
            Ok(changed) => {
                for item in items {
                    item.work.committed();
                }
                if changed {
                    *lock(&self.shared.commits.last) = Some(self.shared.clock.now());
                    self.ring();
                }
                self.recovered();
            }
            Err(error) => match Trouble::of(&error) {
                Trouble::Request | Trouble::Damage if items.len() > 1 => {
                    for item in items {
                        self.batch(vec![item]);
                    }
                }
                trouble => self.failed(items, trouble, &error),
            },
        }
    }

    /// One transaction. An error rolls all of it back: some errors roll back by themselves
    /// and would let the next statement commit alone (S4). Returns whether any row changed.
    pub(crate) fn commit(
        &self,
        conn: &Connection,
        items: &mut [WriteRequest],
    ) -> rusqlite::Result<bool> {
        let (before, begun) = (conn.total_changes(), Instant::now());
        let result = self.transact(conn, items);
        if result.is_err() {
            self.shared.secret_uses.forget();
            // Nothing of a failed batch may stay open.
            if !conn.is_autocommit()
                && let Err(error) = conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "failed to roll back");
            }
        }
        result.map(|()| {
            self.shared.commits.batch(items.len(), begun.elapsed());
            conn.total_changes() != before
        })
    }

    fn transact(&self, conn: &Connection, items: &mut [WriteRequest]) -> rusqlite::Result<()> {
        // IMMEDIATE: the write lock is taken before anything is read, so a later write cannot fail busy.
        execute(conn, "BEGIN IMMEDIATE").map_err(of_all)?;
        for item in items {
            item.work.run(conn)?;
        }
        if self.full {
            // A write that asks whether a full disk has space again.
            conn.prepare_cached("UPDATE meta SET probes = probes + 1 WHERE one = 1")?.execute([])?;
        }
        if let Some(why) = self.shared.space.gone() {
            let code = ffi::Error::new(GONE);
            return Err(rusqlite::Error::SqliteFailure(code, Some(why)));
        }
        execute(conn, "COMMIT").map_err(of_all)
    }

    /// Answers items that cannot be committed now, keeps those that must be, and deals with the cause.
    fn failed(&mut self, mut items: Vec<WriteRequest>, trouble: Trouble, error: &rusqlite::Error) {
        let reason = error.to_string();
        let trouble = match trouble {
            Trouble::Damage => self.damaged(&mut items, &reason),
            trouble => trouble,
        };
        let why = match trouble {
            Trouble::Request | Trouble::Busy | Trouble::Damage => Refused::Failed(reason.clone()),
            Trouble::Full => Refused::NoSpace(reason.clone()),
            Trouble::Io => Refused::Degraded(reason.clone()),
            Trouble::Gone => Refused::Gone(reason.clone()),
        };
        if trouble != Trouble::Damage {
            tracing::error!(items = items.len(), error = reason, "failed to commit");
        }
        let retry = trouble != Trouble::Request && !self.giving_up(trouble);
        let is_kept = |item: &WriteRequest| {
            retry && item.priority == Priority::Kept && item.damaged < DAMAGED_TRIES
        };
        let (kept, rest): (Vec<WriteRequest>, Vec<WriteRequest>) =
            items.into_iter().partition(is_kept);
        let any_kept = !kept.is_empty();
        self.shared.queue.put_back(kept);
        // Accepts are refused before the first caller is answered.
        if matches!(trouble, Trouble::Full | Trouble::Io | Trouble::Gone) {
            self.shut(&why);
        }
        for item in rest {
            item.work.refused(why.clone());
        }
        match trouble {
            Trouble::Request | Trouble::Busy | Trouble::Damage => {}
            Trouble::Gone => self.full = true,
            Trouble::Full => {
                self.full = true;
                if any_kept && self.shared.space.give_up_ballast() {
                    tracing::warn!("the disk is full: gave up the ballast file");
                    // Also a report of a broken log: forgotten, no log would ever be copied again (S1).
                    if let Some(next) = self.shared.queue.take_now() {
                        self.work(next);
                    }
                }
            }
            Trouble::Io => self.repair(&reason),
        }
    }

    /// What a damaged page means for these items: the store is opened anew, because memory may have changed the page. If
    /// that was a short time ago, the disk does not give it: then it is their error alone, and this is said once.
    fn damaged(&mut self, items: &mut [WriteRequest], reason: &str) -> Trouble {
        items.iter_mut().for_each(|item| item.damaged += 1);
        if self.damaged_at.is_none_or(|at| at.elapsed() >= DAMAGE_PAUSE) {
            self.damaged_at = Some(Instant::now());
            return Trouble::Io;
        }
        let (stalls, path) = (&self.shared.stalls, self.shared.settings.path.display());
        if !stalls.has(Stalled::Pages) {
            tracing::error!(
                reason,
                "a page of {path} cannot be read: what needs it fails; check the disk, and restore a backup"
            );
        }
        stalls.set(Stalled::Pages, reason.to_owned(), self.shared.clock.now());
        Trouble::Damage
    }

    /// Something has changed.
    fn ring(&self) {
        self.shared.wake.notify_one();
        self.shared.stir();
    }

    /// Refuses accepts, and keeps the reason for the notice.
    fn shut(&mut self, why: &Refused) {
        self.shared.queue.shut(why);
        self.shared.stir();
        if let (None, Some(reason)) = (self.degraded, degraded(why)) {
            self.degraded = Some((reason, self.shared.clock.now()));
        }
    }

    /// Opens the door again, and stores that it was shut.
    fn open(&mut self) {
        self.shared.queue.open();
        self.shared.stir();
        let Some((reason, first_at)) = self.degraded.take() else { return };
        let notice = Notice::of_store(reason, first_at, self.shared.clock.now());
        self.shared.notify(notice);
    }

    /// A stop does not wait for space, another program, or a disk that a repair has not helped: what
    /// is not committed then is found and settled at the next start.
    fn giving_up(&self, trouble: Trouble) -> bool {
        let may_last = match trouble {
            Trouble::Full | Trouble::Busy | Trouble::Gone | Trouble::Damage => true,
            Trouble::Io => self.repairs > 0,
            Trouble::Request => false,
        };
        may_last && self.shared.queue.is_closed()
    }

    /// Notes after a commit that the disk works. Opens the door again where it was full and space is back.
    fn recovered(&mut self) {
        self.repairs = 0;
        if !self.full {
            return;
        }
        if let Some(low) = self.shared.space.still_low() {
            self.shut(&Refused::NoSpace(low));
            return;
        }
        self.full = false;
        self.shared.space.make_ballast();
        self.open();
        self.ring();
        tracing::info!("the store accepts again");
    }

    /// S1: closes every connection without a checkpoint and opens the store again by the start's own
    /// path, until that succeeds or the queue is closed.
    fn repair(&mut self, reason: &str) {
        tracing::error!(reason, "closing the store for repair after an I/O error");
        let mut why = Refused::Degraded(reason.to_owned());
        while self.conn.is_some() || !self.shared.queue.is_closed() {
            self.shut(&why);
            self.close_connections();
            if self.repairs > 0 {
                let pause = REPAIR_PAUSE.saturating_mul(1 << (self.repairs - 1).min(16));
                self.shared.queue.rest(pause.min(REPAIR_PAUSE_MAX));
            }
            self.repairs = self.repairs.saturating_add(1);
            match self.reopen() {
                Ok(()) => {
                    tracing::info!("the store is open again");
                    self.full = false;
                    self.shared.space.make_ballast();
                    self.open();
                    // A refused request may have been recovered with the log.
                    self.ring();
                    return;
                }
                Err(detail) => {
                    tracing::error!(detail, "failed to open the store again");
                    // A full disk shows as an I/O error where the log's index cannot grow.
                    self.shared.space.give_up_ballast();
                    why = Refused::Degraded(detail);
                }
            }
        }
    }

    fn reopen(&mut self) -> Result<(), String> {
        let Settings { path, limits } = &self.shared.settings;
        // Another file, or a new log, lacks acknowledged commits.
        if let Some(why) = self.shared.space.gone() {
            return Err(why);
        }
        let opened = open::open(path, limits, false, self.shared.clock.now())
            .map_err(|error| error.to_string())?;
        if opened.id != self.shared.id {
            return Err(format!("{} is another store now", path.display()));
        }
        // A change that was refused may have been recovered with the log.
        let writer = self.shared.put(opened).map_err(|error| error.to_string())?;
        self.conn = Some(writer);
        Ok(())
    }

    fn close_connections(&mut self) {
        self.shared.checkpoints.close();
        self.shared.close_readers();
        close(self.conn.take());
        self.shared.queue.forget_broken();
    }

    /// S9: asks for a passive pass when the log has grown, and finishes one between two batches when
    /// little is left of it or it is over its bound: a log that is written all the time is never begun
    /// anew otherwise.
    fn bound_log(&mut self) {
        let Some(conn) = &self.conn else { return };
        let pass = self.checkpoint(conn);
        self.passed(pass);
    }

    /// The pass that is due now by what the log holds, where one is.
    pub(crate) fn checkpoint(&self, conn: &Connection) -> Pass {
        let Ok((frames, copied)) = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::NOOP)
        else {
            return Pass::Done;
        };
        let bytes = |frames: i32| u64::try_from(frames).unwrap_or(0) * FRAME_BYTES;
        let (used, rest) = (bytes(frames), bytes(frames - copied));
        let bound = self.shared.settings.limits.log_bytes;
        self.shared.commits.log_bytes.store(used, Ordering::Relaxed);
        if used > bound {
            let pass = self.shared.checkpoints.pass(CheckpointMode::RESTART);
            self.shared.space.make_ballast();
            return pass;
        }
        let restart = used > bound / RESTART_SHARE;
        if !restart {
            self.rest_from.set(0);
        } else if rest <= REST_BYTES
            && used >= self.rest_from.get()
            && let Some(pass) = self.shared.checkpoints.pass_where_idle()
        {
            // Where a reader is in the way the log only grows, and this is not tried at each batch.
            self.rest_from.set(used + bound / PASSIVE_SHARE);
            return pass;
        }
        if rest > if restart { REST_BYTES } else { bound / PASSIVE_SHARE } {
            // A signal that waits already says the same.
            let _ = self.signal.try_send(());
        }
        Pass::Done
    }

    /// Deals with what a finishing pass came to.
    pub(crate) fn passed(&mut self, pass: Pass) {
        match pass {
            Pass::Done => {}
            Pass::NoSpace(reason) => {
                self.shut(&Refused::NoSpace(reason));
                self.full = true;
            }
            Pass::Broken(reason) => self.repair(&reason),
        }
    }

    /// The orderly end: empties the log, closes, releases the lock, and says so.
    fn finish(mut self) {
        self.shared.queue.close();
        self.shared.queue.shut(&Refused::Stopping);
        while let Some(next) = self.shared.queue.take_now() {
            // Nothing else is done any more; the next start repairs.
            if let NextWork::Batch(items) = next {
                items.into_iter().for_each(|item| item.work.refused(Refused::Stopping));
            }
        }
        if let Some(conn) = &self.conn {
            mark::mark_at_end(conn, &self.shared);
        }
        drop(self.signal);
        self.shared.close_readers();
        if self.conn.is_some() {
            match self.shared.checkpoints.pass(CheckpointMode::TRUNCATE) {
                Pass::Done => {}
                Pass::NoSpace(reason) | Pass::Broken(reason) => {
                    tracing::warn!(reason, "the log stays; the next start reads it");
                }
            }
        }
        self.shared.checkpoints.close();
        close(self.conn.take());
        drop(self.lock);
        let _ = self.closed.send(true);
    }
}

fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}

fn closed() -> rusqlite::Error {
    let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some("the store is closed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_failed_read_is_its_requests_alone_except_in_the_commit() {
        // SQLite makes the first one of a block that the disk does not give, too (EIO).
        for code in [
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_CORRUPT_INDEX,
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_SHORT_READ,
        ] {
            assert_eq!(Trouble::of(&failure(code)), Trouble::Damage, "{code}");
            assert_eq!(Trouble::of(&of_all(failure(code))), Trouble::Io, "{code}");
        }
        for code in [ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC] {
            assert_eq!(Trouble::of(&failure(code)), Trouble::Io, "{code}");
        }
        for (code, trouble) in [
            (GONE, Trouble::Gone),
            (ffi::SQLITE_FULL, Trouble::Full),
            (ffi::SQLITE_BUSY, Trouble::Busy),
            (ffi::SQLITE_CONSTRAINT, Trouble::Request),
        ] {
            assert_eq!(Trouble::of(&of_all(failure(code))), trouble, "{code}");
        }
    }
}
