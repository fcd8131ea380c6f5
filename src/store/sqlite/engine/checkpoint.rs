//! Copies the log into the database, off the writer's path.
//!
//! A pass that met an I/O error is never repeated on the same connections: SQLite counts pages of a
//! partial pass as copied although they were not flushed, the repeat would skip them and reset the
//! log, and the next power cut would leave a corrupt database (S1). So the connection is closed at
//! once and the writer repairs the store.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use crate::measure::Histogram;
use crate::store::mutex::lock;
use crate::store::node::commits::SECONDS;

use super::connection::close;
use super::queue::Queue;

/// Ends the process when its thread panics: a process without its writer only looks alive (S13).
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread of the store has ended by a panic; ending the process");
            std::process::abort();
        }
    }
}

/// The checkpoint connection. It is taken out to be closed, by the writer's repair or by an error.
pub(crate) struct Checkpoints {
    conn: Mutex<Option<Connection>>,
    /// The times of all passes, failed ones too.
    pub(crate) seconds: Histogram,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Checkpoints { conn: Mutex::default(), seconds: Histogram::new(SECONDS) }
    }
}

/// What a pass came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// All there was to copy is copied, or a reader or writer is in the way and it is a wait.
    Done,
    /// The database file cannot grow.
    NoSpace(String),
    /// An I/O error: the connection is closed, the store must be repaired.
    Broken(String),
}

impl Checkpoints {
    /// Puts the connection of a freshly opened store in.
    pub(crate) fn put(&self, conn: Connection) {
        *lock(&self.conn) = Some(conn);
    }

    /// Waits for a running pass and closes the connection.
    pub(crate) fn close(&self) {
        close(lock(&self.conn).take());
    }

    /// One pass. `RESTART` makes the next write begin the log anew, and waits for readers to that
    /// end; `PASSIVE` never waits.
    pub(crate) fn pass(&self, mode: CheckpointMode) -> Pass {
        self.pass_on(&mut lock(&self.conn), mode)
    }

    /// A passive pass; none where one is running.
    pub(crate) fn pass_where_idle(&self) -> Option<Pass> {
        let mut held = self.conn.try_lock().ok()?;
        Some(self.pass_on(&mut held, CheckpointMode::PASSIVE))
    }

    fn pass_on(&self, held: &mut Option<Connection>, mode: CheckpointMode) -> Pass {
        let Some(conn) = held.as_ref() else { return Pass::Done };
        let begun = Instant::now();
        let passed = conn.wal_checkpoint_v2(Some(MAIN_DB), mode);
        self.seconds.observe(begun.elapsed().as_secs_f64());
        let Err(error) = passed else { return Pass::Done };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Pass::Done,
            Some(ErrorCode::DiskFull) => Pass::NoSpace(error.to_string()),
            _ => {
                close(held.take());
                Pass::Broken(format!("checkpoint: {error}"))
            }
        }
    }
}

/// Starts the checkpoint thread. It makes one passive pass per signal and ends with the sender.
pub(crate) fn start(
    checkpoints: Arc<Checkpoints>,
    queue: Arc<Queue>,
) -> std::io::Result<SyncSender<()>> {
    // One signal waits at most: a second says nothing new.
    let (signal, signals) = sync_channel(1);
    std::thread::Builder::new()
        .name("checkpointer".to_owned())
        .spawn(move || run(&checkpoints, &queue, &signals))?;
    Ok(signal)
}

fn run(checkpoints: &Checkpoints, queue: &Queue, signals: &Receiver<()>) {
    let _abort = AbortOnPanic;
    while signals.recv().is_ok() {
        match checkpoints.pass(CheckpointMode::PASSIVE) {
            Pass::Done => {}
            Pass::NoSpace(reason) => tracing::warn!(reason, "the log cannot be copied"),
            Pass::Broken(reason) => queue.report_broken(reason),
        }
    }
}
