//! The backup of a store before a migration: the only way back.
//!
//! Only the one path to an open store makes it. What must stay true: no connection to the database is open while it is
//! read as a file (S11); all its commits are in that file first; nothing is changed before the copy is checked and
//! flushed, and has its name.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use crate::crash;
use crate::limits::Limits;
use crate::store::node::durable;
use crate::store::node::open_error::OpenError;
use crate::store::node::path::beside;
use crate::store::node::space::Space;

use super::connection::close;
use super::inspect::inspect;
use super::schema;

/// The copy of the database at `path` that is made before it gets this schema.
fn copy_before(path: &Path, schema: i64) -> PathBuf {
    beside(path, &format!(".before-{schema:04}"))
}

/// Closes the connection and copies its database to `PATH.before-NNNN`. An earlier such copy is removed
/// then: only the newest one is kept.
pub(crate) fn keep_copy(conn: Connection, path: &Path, limits: &Limits) -> Result<(), OpenError> {
    let copied = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE);
    close(conn);
    copied.map_err(|error| match OpenError::from_sql(path, error) {
        OpenError::NoSpace { .. } => log_does_not_fit(path, limits),
        error => error,
    })?;

    let copy = copy_before(path, schema::known());
    if durable::is_equal(path, &copy).unwrap_or(false) {
        // Of a start that was killed, or found the disk full, before it had changed the schema: a second
        // copy would need that space again. Its name may not be on the disk yet.
        durable::sync_folder(&copy).map_err(|error| OpenError::from_io(path, &copy, &error))?;
        require_room(path, limits)?;
    } else {
        make(path, &copy, limits)?;
    }
    for older in (1..schema::known()).map(|schema| copy_before(path, schema)) {
        if let Err(error) = durable::remove(&older) {
            tracing::warn!(%error, file = %older.display(), "failed to remove the copy before that");
        }
    }
    tracing::info!(
        copy = %copy.display(),
        "copied the store: to go back, `hooklatch restore --replace` this file with the earlier version"
    );
    Ok(())
}

/// What is needed where not even the log fits into the database, which it makes larger by its length at most.
fn log_does_not_fit(path: &Path, limits: &Limits) -> OpenError {
    let log = fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    let database = fs::metadata(path).map_or(0, |database| database.len()).saturating_add(log);
    // The log, the copy and the change.
    let needed = database.saturating_mul(2).saturating_add(log);
    no_space(path, limits, needed.saturating_add(limits.disk_floor_bytes))
}

/// Makes `copy`, checked and flushed.
fn make(path: &Path, copy: &Path, limits: &Limits) -> Result<(), OpenError> {
    let partial = beside(copy, ".partial");
    tracing::info!(copy = %copy.display(), "copying the store before its schema changes");
    write(path, &partial, limits)?;
    if let Err(error) = require_room(path, limits) {
        let _ = durable::remove(&partial);
        return Err(error);
    }
    if let Err(error) = inspect(&partial) {
        // What cannot be read whole must not be changed either.
        let _ = durable::remove(&partial);
        return Err(OpenError::Damaged { path: path.to_owned(), detail: error.to_string() });
    }
    crash::point("before.copied");
    let io = |error| OpenError::from_io(path, copy, &error);
    fs::rename(&partial, copy).and_then(|()| durable::sync_folder(copy)).map_err(io)?;
    crash::point("before.named");
    Ok(())
}

fn write(path: &Path, partial: &Path, limits: &Limits) -> Result<(), OpenError> {
    let io = |error| OpenError::from_io(path, partial, &error);
    // Of a start that was cut off.
    durable::remove(partial).map_err(io)?;
    let room = room(path, limits)?;
    let mut from = File::open(path).map_err(io)?;
    match durable::copy(&mut from, partial, free(path, limits).saturating_sub(room)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            Err(no_space(path, limits, from.metadata().map_err(io)?.len().saturating_add(room)))
        }
        Err(error) => Err(io(error)),
    }
}

/// What must be free once the copy is there: a migration writes no more than the database holds, to the log
/// and then to new tables.
fn room(path: &Path, limits: &Limits) -> Result<u64, OpenError> {
    let database = fs::metadata(path).map_err(|error| OpenError::from_io(path, path, &error))?;
    Ok(database.len().saturating_add(limits.disk_floor_bytes))
}

fn free(path: &Path, limits: &Limits) -> u64 {
    Space::new(path, limits).free_bytes().unwrap_or(u64::MAX)
}

fn require_room(path: &Path, limits: &Limits) -> Result<(), OpenError> {
    let needed = room(path, limits)?;
    if free(path, limits) < needed { Err(no_space(path, limits, needed)) } else { Ok(()) }
}

fn no_space(path: &Path, limits: &Limits, needed: u64) -> OpenError {
    OpenError::NoSpaceToMigrate { path: path.to_owned(), needed, free: free(path, limits) }
}

/// What a migration needs that found the disk full all the same, and is rolled back. Its log, of which
/// nothing is committed, is emptied: it holds the space, and the next start would read all of it.
pub(crate) fn found_full(conn: &Connection, path: &Path, limits: &Limits) -> OpenError {
    let log = fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    // A full disk is not an I/O error: the connection is sound (S1). Where this fails the log only stays.
    if let Err(error) = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) {
        tracing::warn!(%error, "failed to empty the log of a migration that found the disk full");
    }
    let twice = log.saturating_mul(2).saturating_add(limits.disk_floor_bytes);
    match room(path, limits) {
        Ok(room) => no_space(path, limits, room.max(twice)),
        Err(error) => error,
    }
}
