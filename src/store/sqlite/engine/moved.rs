//! The mark of a file whose store moves to PostgreSQL, or has moved there.
//!
//! What must stay true: the mark is flushed before the commit on PostgreSQL is sent, and is removed only when that
//! transaction is known to be rolled back. So the file and the database are never both usable. A marked file has a
//! schema number that no version knows: an older program refuses it as newer. This is not a migration, since a store
//! that stays keeps its schema.

use std::path::Path;

use rusqlite::{Connection, Transaction, params};
use uuid::Uuid;

use crate::store::node::open_error::OpenError;

use super::schema;

const MARK: &str = "
    -- The only row says where the store moves to.
    CREATE TABLE moved (
        one      INTEGER PRIMARY KEY CHECK (one = 1),
        -- The identity of the database before the move. With the move it gets the store's.
        database BLOB    NOT NULL CHECK (length(database) = 16),
        -- Its address, without a password.
        address  TEXT    NOT NULL,
        -- The schema number of the file without the mark.
        schema   INTEGER NOT NULL,
        -- The move is committed.
        done     INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1))
    ) STRICT;";

/// The mark of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) database: Uuid,
    pub(crate) address: String,
    /// Otherwise only the database knows whether the move is committed.
    pub(crate) done: bool,
}

impl Mark {
    /// The mark, where there is one.
    pub(crate) fn read(conn: &Connection) -> rusqlite::Result<Option<Mark>> {
        if schema::pragma(conn, "user_version")? != schema::MOVED {
            return Ok(None);
        }
        // The one row.
        conn.query_row("SELECT database, address, done FROM moved WHERE one = 1", [], |row| {
            let database = row.get(0).map(Uuid::from_bytes)?;
            Ok(Some(Mark { database, address: row.get(1)?, done: row.get(2)? }))
        })
    }

    /// Why the marked file is not opened.
    pub(crate) fn refusal(self, path: &Path) -> OpenError {
        let (path, to) = (path.to_owned(), self.address);
        if self.done { OpenError::Moved { path, to } } else { OpenError::Moving { path, to } }
    }
}

/// Marks the file: the move to this database, which has this identity, is about to be committed.
pub(crate) fn mark(conn: &Connection, database: Uuid, address: &str) -> rusqlite::Result<()> {
    let tx = conn.unchecked_transaction()?;
    tx.execute_batch(MARK)?;
    tx.execute(
        "INSERT INTO moved (one, database, address, schema) VALUES (1, ?1, ?2, ?3)",
        params![database.as_bytes(), address, schema::pragma(&tx, "user_version")?],
    )?;
    sign(tx, ", which moves it to PostgreSQL", schema::MOVED)
}

/// The move is committed.
pub(crate) fn finish(conn: &Connection, address: &str) -> rusqlite::Result<()> {
    conn.execute("UPDATE moved SET done = 1, address = ?1 WHERE one = 1", [address]).map(drop)
}

/// The move is rolled back: removes the mark.
pub(crate) fn take_back(conn: &Connection) -> rusqlite::Result<()> {
    let tx = conn.unchecked_transaction()?;
    let schema = tx.query_row("SELECT schema FROM moved WHERE one = 1", [], |row| row.get(0))?;
    tx.execute_batch("DROP TABLE moved")?;
    sign(tx, "", schema)
}

/// Writes the schema number, and what an older program says of the file, and commits.
fn sign(tx: Transaction<'_>, what: &str, schema: i64) -> rusqlite::Result<()> {
    let by = format!("{}{what}", schema::WRITTEN_BY);
    tx.execute("UPDATE meta SET written_by = ?1 WHERE one = 1", [by])?;
    tx.pragma_update(None, "user_version", schema)?;
    tx.commit()
}
