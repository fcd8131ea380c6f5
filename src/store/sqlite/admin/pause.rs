//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! The claim itself refuses, in the transaction that would make a job run: once the answer says that a
//! handler is paused, no attempt of it is claimed. A resume is a commit like any other,
//! which wakes the dispatcher.

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::model::{AuditVerb, Name, Timestamp};
use crate::store::border::{AuditSubject, DONE, Error, PausedRow};
use crate::store::sqlite::engine::queue::{Priority, WriteRequest};
use crate::store::sqlite::tables::paused::{names, paused};

use super::handle::Admin;

impl Admin {
    pub async fn pause(&self, handler: &Name) -> Result<bool, Error> {
        // The first pause's time stays.
        let sql =
            "INSERT INTO paused (handler, since) VALUES (?1, ?2) ON CONFLICT (handler) DO NOTHING";
        self.change_paused(AuditVerb::Pause, handler.clone(), move |tx, handler, now| {
            tx.prepare_cached(sql)?.execute(params![handler.as_str(), now.0])
        })
        .await
    }

    pub async fn resume(&self, handler: &Name) -> Result<bool, Error> {
        self.change_paused(AuditVerb::Resume, handler.clone(), |tx, handler, _| {
            // One row or none.
            tx.prepare_cached("DELETE FROM paused WHERE handler = ?1")?.execute([handler.as_str()])
        })
        .await
    }

    /// Whether `change` changed a row.
    async fn change_paused<F>(
        &self,
        verb: AuditVerb,
        handler: Name,
        mut change: F,
    ) -> Result<bool, Error>
    where
        F: FnMut(&Connection, &Name, Timestamp) -> rusqlite::Result<usize> + Send + 'static,
    {
        let memory = Arc::clone(&self.engine.paused);
        let (caller, clock) = (Arc::clone(&self.caller), self.engine.clock.clone());
        let run = move |tx: &Connection| {
            let now = clock.now();
            let changed = change(tx, &handler, now)?;
            if changed > 0 {
                let subject = AuditSubject { handler: Some(handler.clone()), ..Default::default() };
                caller.write(tx, now, (verb, &subject, 1), DONE)?;
            }
            Ok((changed, names(tx)?))
        };
        let (item, answer) = WriteRequest::new(Priority::Verb, run, move |(_, handlers)| {
            memory.set(handlers.clone())
        });
        let (changed, _) = self.engine.push(item, answer).await?;
        Ok(changed > 0)
    }

    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        self.engine.read(paused).await
    }
}
