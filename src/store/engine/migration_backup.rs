//! The backup of a store before a migration: the only way back.
//!
//! For the one path to an open store. What must stay true: no connection to the database is open while it
//! is read as a file (S11); all its commits are in that file first; nothing is changed before the copy is
//! checked and flushed, and has its name.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use crate::crash;
use crate::limits::Limits;
use crate::store::types::OpenError;

use super::connection::close;
use super::inspect::inspect;
use super::path::{beside, directory};
use super::space::Space;
use super::{durable, schema};

/// What the copy's name has after the database's, before the number of the schema that follows.
const BEFORE: &str = ".before-";

/// Closes the connection and copies its database to `PATH.before-NNNN`. An earlier such copy is removed
/// then: only the newest one is kept.
pub(crate) fn keep_copy(conn: Connection, path: &Path, limits: &Limits) -> Result<(), OpenError> {
    let copied = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE);
    close(conn);
    copied.map_err(|error| match OpenError::from_sql(path, error) {
        OpenError::NoSpace { .. } => log_does_not_fit(path, limits),
        error => error,
    })?;

    let copy = beside(path, &format!("{BEFORE}{:04}", schema::known()));
    if durable::is_equal(path, &copy).unwrap_or(false) {
        // Of a start that was killed, or found the disk full, before it had changed the schema: a second
        // copy would need that space again. Its name may not be on the disk yet.
        durable::sync_folder(&copy).map_err(|error| OpenError::from_io(path, &copy, &error))?;
        require_room(path, limits)?;
    } else {
        make(path, &copy, limits)?;
    }
    for older in copies(path).into_iter().filter(|older| *older != copy) {
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
    OpenError::NoSpaceToMigrate {
        path: path.to_owned(),
        needed: needed.saturating_add(limits.disk_floor_bytes),
        free: free(path, limits),
    }
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
    let free = free(path, limits);
    let mut from = File::open(path).map_err(io)?;
    match durable::copy(&mut from, partial, free.saturating_sub(room)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            let needed = from.metadata().map_err(io)?.len().saturating_add(room);
            Err(OpenError::NoSpaceToMigrate { path: path.to_owned(), needed, free })
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
    let (needed, free) = (room(path, limits)?, free(path, limits));
    match free < needed {
        true => Err(OpenError::NoSpaceToMigrate { path: path.to_owned(), needed, free }),
        false => Ok(()),
    }
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
        Ok(room) => OpenError::NoSpaceToMigrate {
            path: path.to_owned(),
            needed: room.max(twice),
            free: free(path, limits),
        },
        Err(error) => error,
    }
}

/// The copies beside the database at `path`.
fn copies(path: &Path) -> Vec<PathBuf> {
    let prefix = beside(path, BEFORE);
    let prefix = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    let entries = fs::read_dir(directory(path)).into_iter().flatten().flatten();
    let is_copy = |name: &[u8]| {
        name.strip_prefix(prefix)
            .is_some_and(|number| number.len() == 4 && number.iter().all(u8::is_ascii_digit))
    };
    entries
        .filter(|entry| is_copy(entry.file_name().as_encoded_bytes()))
        .map(|entry| entry.path())
        .collect()
}
