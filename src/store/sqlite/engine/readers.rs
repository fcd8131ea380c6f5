//! Connections that only read. Each query is a short transaction; a listing is interrupted when its time is over.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use crate::store::border::Error;
use crate::store::mutex::lock;

use super::connection::close;

/// SQLite instructions between two checks of the clock during a listing: some 0.1 ms.
const CHECK_STEPS: i32 = 10_000;

/// A reading connection. It is absent while the store is repaired, and after the end.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Option<Connection>>);

impl Readers {
    /// Sets the connection of a store that was just opened.
    pub(crate) fn put(&self, conn: Connection) {
        *lock(&self.0) = Some(conn);
    }

    /// Waits for a running listing and closes the connection.
    pub(crate) fn close(&self) {
        close(lock(&self.0).take());
    }

    /// Whether a query would run at once.
    pub(super) fn is_free(&self) -> bool {
        self.0.try_lock().is_ok()
    }

    /// Runs `query` after the running one.
    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        // One snapshot for all statements of a listing; it ends, unchanged, with this call.
        self.with(|conn| conn.transaction().and_then(|tx| query(&tx)))
    }

    /// Runs a query of one statement, which is a snapshot by itself.
    pub(crate) fn look<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.with(|conn| query(conn))
    }

    fn with<T>(
        &self,
        query: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut held = lock(&self.0);
        let conn = held.as_mut().ok_or_else(|| Error::Unavailable("it is closed".to_owned()))?;
        query(conn).map_err(|error| Error::Unavailable(error.to_string()))
    }

    /// Runs a listing after the running one, and interrupts it after `most`.
    pub(crate) fn list<T>(
        &self,
        most: Duration,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut interrupted = false;
        let listed = self.with(|conn| {
            let end = Instant::now() + most;
            conn.progress_handler(CHECK_STEPS, Some(move || Instant::now() >= end))?;
            let listed = conn.transaction().and_then(|tx| query(&tx));
            interrupted = listed.as_ref().is_err_and(|error| {
                error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
            });
            listed
        });
        if interrupted { Err(Error::TooSlow(most)) } else { listed }
    }
}
