//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! The claim itself refuses, in the transaction that would make a job run: whoever was told that a
//! handler is paused sees no attempt of it claimed afterwards. A resume is a commit like any other,
//! which wakes the dispatcher.
//!
//! Who is paused is known in memory too, so that nobody asks for the jobs of a paused handler after each
//! commit. What must stay true: a handler whose resume is committed is not called paused when that rings.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, params};

use crate::model::Name;

use super::queue::{Item, Lane};
use super::rows::PausedRow;
use super::types::Error;
use super::{Admin, Jobs, codec, lock};

/// The paused handlers, as of the last commit.
#[derive(Default)]
pub(super) struct Paused(Mutex<Arc<BTreeSet<Name>>>);

impl Paused {
    /// They are those of the file, which was just opened.
    pub(super) fn load(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.set(names(conn)?);
        Ok(())
    }

    fn set(&self, handlers: BTreeSet<Name>) {
        *lock(&self.0) = Arc::new(handlers);
    }

    fn get(&self) -> Arc<BTreeSet<Name>> {
        Arc::clone(&lock(&self.0))
    }
}

impl Admin {
    /// PAUSE: nothing of `handler` is claimed until it is resumed, restarts included; what runs goes
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
        let (item, answer) =
            Item::with(Lane::Verb, run, move |(_, handlers)| memory.set(handlers.clone()));
        let (changed, _) = self.engine.push(item, answer).await?;
        Ok(changed > 0)
    }

    /// The paused handlers by name, configured or not.
    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        self.engine.read(paused).await
    }
}

impl Jobs {
    /// The paused handlers without a look at the file: what is not among them may still be refused by a
    /// claim, and what is among them need not be asked for until the bell of [`Jobs::wake`] rings.
    pub fn paused_now(&self) -> Arc<BTreeSet<Name>> {
        self.engine.paused.get()
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

/// Their names alone.
fn names(conn: &Connection) -> rusqlite::Result<BTreeSet<Name>> {
    Ok(paused(conn)?.into_iter().map(|row| row.handler).collect())
}

/// Whether `handler` is paused as of this transaction.
pub(super) fn is_paused(conn: &Connection, handler: &Name) -> rusqlite::Result<bool> {
    // By the primary key.
    conn.prepare_cached("SELECT 1 FROM paused WHERE handler = ?1")?.exists([handler.as_str()])
}
