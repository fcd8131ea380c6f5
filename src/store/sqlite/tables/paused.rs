//! The paused handlers: as this transaction sees them, and in memory, so that a commit leads to no query for
//! the jobs of a paused handler.
//!
//! What must stay true: memory names no handler as paused when the dispatcher is woken by the commit of its
//! resume.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;

use crate::model::Name;
use crate::store::border::PausedRow;
use crate::store::mutex::lock;

use super::codec;

/// The paused handlers, as of the last commit.
#[derive(Default)]
pub(crate) struct Paused(Mutex<Arc<BTreeSet<Name>>>);

impl Paused {
    /// They are those of the file, which was just opened.
    pub(crate) fn load(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.set(names(conn)?);
        Ok(())
    }

    pub(crate) fn set(&self, handlers: BTreeSet<Name>) {
        *lock(&self.0) = Arc::new(handlers);
    }

    pub(crate) fn get(&self) -> Arc<BTreeSet<Name>> {
        Arc::clone(&lock(&self.0))
    }
}

/// The paused handlers by name, as of this transaction.
pub(crate) fn paused(conn: &Connection) -> rusqlite::Result<Vec<PausedRow>> {
    // A few rows: one per paused handler.
    codec::all(conn, "SELECT handler, since FROM paused ORDER BY handler", [])
}

/// Their names alone.
pub(crate) fn names(conn: &Connection) -> rusqlite::Result<BTreeSet<Name>> {
    Ok(paused(conn)?.into_iter().map(|row| row.handler).collect())
}

/// Whether `handler` is paused as of this transaction.
pub(crate) fn is_paused(conn: &Connection, handler: &Name) -> rusqlite::Result<bool> {
    // By the primary key.
    conn.prepare_cached("SELECT 1 FROM paused WHERE handler = ?1")?.exists([handler.as_str()])
}
