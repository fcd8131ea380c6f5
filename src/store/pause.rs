//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! The claim itself refuses, in the transaction that would make a job run: whoever was told that a
//! handler is paused sees no attempt of it claimed afterwards. A resume is a commit like any other,
//! which wakes the dispatcher.

use rusqlite::{Connection, params};

use crate::model::Name;

use super::queue::Lane;
use super::rows::PausedRow;
use super::types::Error;
use super::{Store, codec};

impl Store {
    /// PAUSE: nothing of `handler` is claimed until it is resumed, restarts included; what runs goes
    /// on. `false` where it was paused already.
    pub async fn pause(&self, handler: &Name) -> Result<bool, Error> {
        let (handler, clock) = (handler.clone(), self.inner.clock.clone());
        let paused = self.submit(Lane::Verb, move |tx| {
            // The first pause's time stays.
            tx.prepare_cached(
                "INSERT INTO paused (handler, since) VALUES (?1, ?2) ON CONFLICT (handler) DO NOTHING",
            )?
            .execute(params![handler.as_str(), clock.now().0])
        });
        Ok(paused.await? > 0)
    }

    /// RESUME: `handler`'s jobs are claimed again. `false` where it was not paused.
    pub async fn resume(&self, handler: &Name) -> Result<bool, Error> {
        let handler = handler.clone();
        let resumed = self.submit(Lane::Verb, move |tx| {
            // One row or none.
            tx.prepare_cached("DELETE FROM paused WHERE handler = ?1")?.execute([handler.as_str()])
        });
        Ok(resumed.await? > 0)
    }

    /// The paused handlers by name, configured or not.
    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        self.read(paused).await
    }
}

/// The paused handlers by name, as of this transaction.
pub(super) fn paused(conn: &Connection) -> rusqlite::Result<Vec<PausedRow>> {
    // A few rows: one per paused handler.
    conn.prepare_cached("SELECT handler, since FROM paused ORDER BY handler")?
        .query_map([], |row| {
            Ok(PausedRow { handler: codec::text(row, 0)?, since: codec::time(row, 1)? })
        })?
        .collect()
}

/// Whether `handler` is paused as of this transaction.
pub(super) fn is_paused(conn: &Connection, handler: &Name) -> rusqlite::Result<bool> {
    // By the primary key.
    conn.prepare_cached("SELECT 1 FROM paused WHERE handler = ?1")?.exists([handler.as_str()])
}
