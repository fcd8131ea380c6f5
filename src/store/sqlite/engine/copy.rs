//! COPY: a consistent copy of a store that goes on being written, for a backup.
//!
//! The writer makes it, between its batches, through its own connection: SQLite carries what the same
//! connection changes over into the pages that are copied already. So it never begins anew, holds no
//! reader's place in the log, which stays within its bound (S9), and ends however busy the store is.
//! No other code opens the database (S11). What must stay true: an error that keeps a batch from being committed
//! ends the copy, never the other way round; the copy loses its name before the caller gets the file, so that
//! its space is free when the caller closes it, and a receiver that was killed leaves one known name, which the next
//! start removes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use bytesize::ByteSize;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::crash;
use crate::store::border::Refused;
use crate::store::node::durable;
use crate::store::node::path::beside;

use super::checkpoint::Pass;
use super::connection::{close, connect_copy};
use super::copy_task::{CopyError, CopyTask, Manifest, StoreCopy};
use super::inspect::last_event;
use super::queue::{NextWork, WriteRequest};
use super::writer::Writer;

/// Pages of 4 KiB copied between two batches, and as many more as the store has grown by since: a few
/// milliseconds, and the rest shrinks however much is written.
const STEP_PAGES: u64 = 256;

/// The copy's name while it is made.
const COPYING: &str = ".copying";

/// What a copy leaves to the writer: the very thing it gave way to.
enum Left {
    Nothing,
    Batch(Vec<WriteRequest>, rusqlite::Error),
    Pass(Pass),
}

/// Removes what a killed receiver has left of a copy. The caller holds the lock.
pub(crate) fn remove_leftover(database: &Path) {
    if let Err(error) = durable::remove_database(&beside(database, COPYING)) {
        tracing::warn!(%error, "failed to remove the files of a cut backup");
    }
}

impl Writer {
    /// Makes a copy and commits the requests that arrive meanwhile.
    pub(crate) fn copy(&mut self, task: CopyTask) {
        let path = beside(&self.shared.settings.path, COPYING);
        let Some(conn) = self.conn.take() else { return };
        let mut left = Left::Nothing;
        let made = self.copy_along(&conn, &path, &task, &mut left);
        self.conn = Some(conn);
        let copied = made.and_then(|manifest| Ok(nameless(&path, manifest)?));
        remove_leftover(&self.shared.settings.path);
        self.shared.queue.copy_ended();
        if let Err(error) = &copied {
            tracing::warn!(%error, "a backup was not made");
        }
        // The caller may be gone: then the file is closed here, and its space is free.
        let _ = task.answer.send(copied);
        match left {
            Left::Nothing => {}
            Left::Batch(items, error) => self.settle(items, Err(error)),
            Left::Pass(pass) => self.passed(pass),
        }
    }

    fn copy_along(
        &mut self,
        conn: &Connection,
        path: &Path,
        task: &CopyTask,
        left: &mut Left,
    ) -> Result<Manifest, CopyError> {
        self.room_for_copy(conn)?;
        let copied_at = self.shared.clock.now();
        // Written to the store itself, and carried over: a copy made otherwise would not know its time.
        let told = conn.execute("UPDATE meta SET copied_at = ?1 WHERE one = 1", [copied_at.0]);
        if let Err(error) = told {
            let why = CopyError::GaveWay(error.to_string());
            *left = Left::Batch(Vec::new(), error);
            return Err(why);
        }
        durable::remove_database(path)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut copy = connect_copy(path)?;
        let stepped = self.steps(conn, &mut copy, task, left);
        close(copy);
        stepped?;
        Ok(Manifest { store: self.shared.id, copied_at, last_event: last_event(conn)?, bytes: 0 })
    }

    fn steps(
        &mut self,
        conn: &Connection,
        copy: &mut Connection,
        task: &CopyTask,
        left: &mut Left,
    ) -> Result<(), CopyError> {
        let backup = Backup::new(conn, copy)?;
        let page_bytes: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let (mut pages, mut grown) = (None, 0);
        loop {
            if task.answer.is_closed() {
                return Err(CopyError::Failed("the caller went away".to_owned()));
            }
            if self.shared.queue.is_closed() {
                return Err(Refused::Stopping.into());
            }
            if let Some(Refused::NoSpace(low)) =
                self.shared.space.refuses(self.shared.clock.monotonic())
            {
                return Err(CopyError::NoSpace(low));
            }
            crash::point("copy.step");
            let step = i32::try_from(STEP_PAGES + grown).unwrap_or(i32::MAX);
            match backup.step(step)? {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                _ => return Err(CopyError::Failed("the database is locked".to_owned())),
            }
            // SQLite counts less than zero remaining pages after the store has shrunk.
            let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
            let (all, rest) =
                (count(backup.progress().pagecount), count(backup.progress().remaining));
            grown = pages.replace(all).map_or(0, |before| all.saturating_sub(before));
            let bytes = |pages| pages * page_bytes.unsigned_abs();
            task.progress.all_bytes.store(bytes(all), Ordering::Relaxed);
            task.progress.done_bytes.store(bytes(all.saturating_sub(rest)), Ordering::Relaxed);
            self.between(conn, left)?;
        }
    }

    /// Commits what waits, and keeps the log within its bound.
    fn between(&mut self, conn: &Connection, left: &mut Left) -> Result<(), CopyError> {
        if self.shared.space.gone().is_some() {
            // Nothing can be committed, and the copy may be all that is left.
            return Ok(());
        }
        match self.shared.queue.take_now() {
            None => return Ok(()),
            Some(NextWork::Batch(mut items)) => match self.commit(conn, &mut items) {
                Ok(changed) => self.settle(items, Ok(changed)),
                Err(error) => {
                    let why = CopyError::GaveWay(error.to_string());
                    *left = Left::Batch(items, error);
                    return Err(why);
                }
            },
            Some(NextWork::Broken(reason)) => {
                *left = Left::Pass(Pass::Broken(reason.clone()));
                return Err(CopyError::GaveWay(reason));
            }
            Some(NextWork::Copy(_)) => {}
        }
        match self.checkpoint(conn) {
            Pass::Done => Ok(()),
            pass @ (Pass::NoSpace(_) | Pass::Broken(_)) => {
                *left = Left::Pass(pass);
                Err(CopyError::GaveWay("its log could not be copied".to_owned()))
            }
        }
    }

    /// The copy takes as much as the database, and must leave the floor, or accepts would be refused
    /// during a backup.
    fn room_for_copy(&self, conn: &Connection) -> Result<(), CopyError> {
        let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let bytes = (pragma("page_count")? * pragma("page_size")?).unsigned_abs();
        let needed = bytes.saturating_add(self.shared.settings.limits.disk_floor_bytes);
        match self.shared.space.free_bytes() {
            Some(free) if free < needed => {
                let (free, needed, bytes) = (ByteSize(free), ByteSize(needed), ByteSize(bytes));
                Err(CopyError::NoSpace(format!(
                    "{free} free, {needed} are needed ({bytes} for the copy, the rest is the floor of storage space: limits.disk_floor_bytes)"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Opens the finished copy and takes its name away.
fn nameless(path: &Path, manifest: Manifest) -> io::Result<StoreCopy> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    durable::remove(path)?;
    Ok(StoreCopy { file, manifest: Manifest { bytes, ..manifest } })
}
