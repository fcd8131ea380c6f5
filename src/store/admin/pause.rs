//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! The claim itself refuses, in the transaction that would make a job run: once the answer says that a
//! handler is paused, no attempt of it is claimed. A resume is a commit like any other,
//! which wakes the dispatcher.

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::model::Name;
use crate::store::border::{Error, PausedRow};
use crate::store::engine::queue::{Priority, WriteRequest};
use crate::store::tables::paused::{names, paused};

use super::handle::Admin;

impl Admin {
    /// PAUSE: nothing of `handler` is claimed until it is resumed, restarts included; a running attempt goes
    /// on. `false` where it was paused already.
    pub async fn pause(&self, handler: &Name) -> Result<bool, Error> {
        let (handler, clock) = (handler.clone(), self.engine.clock.clone());
        self.change_paused(move |tx| {
            // The first pause's time stays.
            tx.prepare_cached(
                "INSERT INTO paused (handler, since) VALUES (?1, ?2) ON CONFLICT (handler) DO NOTHING",
            )?
            .execute(params![handler.as_str(), clock.now().0])
        })
        .await
    }

    /// RESUME: `handler`'s jobs are claimed again. `false` where it was not paused.
    pub async fn resume(&self, handler: &Name) -> Result<bool, Error> {
        let handler = handler.clone();
        self.change_paused(move |tx| {
            // One row or none.
            tx.prepare_cached("DELETE FROM paused WHERE handler = ?1")?.execute([handler.as_str()])
        })
        .await
    }

    /// Whether `change` changed a row.
    async fn change_paused<F>(&self, mut change: F) -> Result<bool, Error>
    where
        F: FnMut(&Connection) -> rusqlite::Result<usize> + Send + 'static,
    {
        let memory = Arc::clone(&self.engine.paused);
        let run = move |tx: &Connection| Ok((change(tx)?, names(tx)?));
        let (item, answer) = WriteRequest::new(Priority::Verb, run, move |(_, handlers)| {
            memory.set(handlers.clone())
        });
        let (changed, _) = self.engine.push(item, answer).await?;
        Ok(changed > 0)
    }

    /// The paused handlers by name, configured or not.
    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        self.engine.read(paused).await
    }
}
