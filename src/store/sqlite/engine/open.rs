//! The one path to an open store: at start and after every I/O error alike (S1, S2).

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use crate::limits::{LISTINGS, Limits};
use crate::model::Timestamp;
use crate::store::node::durable;
use crate::store::node::open_error::OpenError;
use crate::store::node::path::{MARK, beside, directory};
use crate::store::node::space::Space;

use super::connection::{Role, built_with, connect};
use super::moved::Mark;
use super::{migration_backup, put_back, schema};

/// The log is read and written back in pieces of this size.
const REWRITE_BYTES: usize = 1 << 20;

/// SQLite's build options that switch flushes off (sqlite.org/compile.html). A build may link the system's
/// SQLite in place of the bundled one (`LIBSQLITE3_SYS_USE_PKG_CONFIG`).
const FLUSHLESS: [&str; 2] = ["NO_SYNC", "DISABLE_DIRSYNC"];

/// The connections of a store whose log is flushed and whose schema is current.
pub(crate) struct Opened {
    /// The writer thread's connection.
    pub(crate) writer: Connection,
    /// The connection of checkpoints. It lives as long as the writer: SQLite reports an error of a pass once (S11).
    pub(crate) checkpointer: Connection,
    /// The connection of look-ups.
    pub(crate) reader: Connection,
    /// The connections of listings, which may take long.
    pub(crate) lists: [Connection; LISTINGS],
    /// The connection that reads the keys of requests, which must not wait for a listing.
    pub(crate) keys: Connection,
    /// The store's random identity.
    pub(crate) id: uuid::Uuid,
}

/// Opens the database at `path`, rewrites a log that a crash or a failed flush left (S2), copies a store of an
/// earlier schema, and migrates it. Makes an absent file with `create` only: a store that vanishes under a running
/// receiver must not come back empty.
pub(crate) fn open(
    path: &Path,
    limits: &Limits,
    create: bool,
    now: Timestamp,
) -> Result<Opened, OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    // At a start: a repair must not change the identity of the store that is in use.
    let is_start = create && path.exists();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(OpenError::IsDirectory { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound && create => {
            // That of a store that was deleted.
            let removed = durable::remove(&beside(path, MARK));
            removed.map_err(|error| OpenError::from_io(path, path, &error))?;
            make_file(path)?;
        }
        Err(error) => return Err(OpenError::from_io(path, path, &error)),
        Ok(_) => {}
    }
    let mut writer = begin(path, limits)?;
    if let Some(mark) = Mark::read(&writer).map_err(sql)? {
        return Err(mark.refusal(path));
    }
    let is_older = schema::is_older(&writer).map_err(sql)?;
    if is_older {
        migration_backup::keep_copy(writer, path, limits)?;
        writer = begin(path, limits)?;
    }
    schema::migrate(&mut writer, path, now).map_err(|error| match error {
        OpenError::NoSpace { .. } if is_older => {
            migration_backup::found_full(&writer, path, limits)
        }
        error => error,
    })?;
    let log_bytes = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    // A migration that was killed after its commit leaves a long log and a current schema.
    if is_older || log_bytes > limits.log_bytes {
        empty_log(&writer, path, limits, is_older)?;
    }
    if is_start {
        put_back::check(path, &mut writer, now).map_err(sql)?;
    }
    let id = schema::store_id(&writer).map_err(sql)?;
    let checkpointer = connect(path, limits, Role::Writer).map_err(sql)?;
    let reader = || connect(path, limits, Role::Reader).map_err(sql);
    let lists = [reader()?, reader()?];
    let (reader, keys) = (reader()?, reader()?);
    Ok(Opened { writer, checkpointer, reader, lists, keys, id })
}

/// Copies the log into the database and empties it before the store is used: the log of a migration is far over
/// its bound, and the first batch would wait for all of it.
///
/// The log is flushed already. A kill or a power cut meanwhile leaves it, and the next open reads it.
fn empty_log(
    conn: &Connection,
    path: &Path,
    limits: &Limits,
    migrated: bool,
) -> Result<(), OpenError> {
    let Err(error) = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) else {
        return Ok(());
    };
    match error.sqlite_error_code() {
        // Another program reads: the writer empties the log later.
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Ok(()),
        Some(ErrorCode::DiskFull) if migrated => {
            // The database grows by no more than the log holds.
            let needed = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
            let free = Space::new(path, limits).free_bytes().unwrap_or_default();
            Err(OpenError::NoSpaceForLog { path: path.to_owned(), needed, free })
        }
        // The writer refuses accepts until there is space.
        Some(ErrorCode::DiskFull) => Ok(()),
        _ => Err(OpenError::from_sql(path, error)),
    }
}

/// Connects to a database that is a store, moved or not, or empty, and rewrites its log.
pub(crate) fn begin(path: &Path, limits: &Limits) -> Result<Connection, OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    let writer = connect(path, limits, Role::Writer).map_err(sql)?;
    if writer.is_readonly(MAIN_DB).map_err(sql)? {
        return Err(OpenError::ReadOnly { path: path.to_owned() });
    }
    schema::check(&writer, path)?;
    if let Some(option) = built_with(&writer, &FLUSHLESS).map_err(sql)? {
        let detail = format!(
            "its SQLite was built with {option}, which loses commits at a power cut; build hooklatch with the bundled SQLite"
        );
        return Err(OpenError::Io { path: path.to_owned(), detail });
    }
    begin_log(&writer).map_err(sql)?;
    let log = beside(path, "-wal");
    writer.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    let rewritten = rewrite(&log).map_err(|error| OpenError::from_io(path, &log, &error));
    writer.execute_batch("ROLLBACK").map_err(sql)?;
    let bytes = rewritten?;
    if bytes > 0 {
        tracing::info!(bytes, "wrote the log back and flushed it");
    }
    durable::sync_folder(path)
        .map_err(|error| OpenError::from_io(path, &directory(path), &error))?;
    Ok(writer)
}

/// Turns the write-ahead log on, or reads what an earlier process left in it. Writes to an empty file
/// only: a commit must never follow a log that is not rewritten yet.
fn begin_log(conn: &Connection) -> rusqlite::Result<()> {
    let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages == 0 {
        // Retention can then give pages back; later it would cost a rewrite of the whole file.
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
        Some(format!("no write-ahead log on this file system (journal mode {mode})")),
    ))
}

/// Makes the empty file, readable by its owner only; SQLite gives the log the same mode.
fn make_file(path: &Path) -> Result<(), OpenError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|error| OpenError::from_io(path, path, &error))
}

/// Writes the log's own bytes back in place and flushes them (S2). A failed flush leaves its commit in the page
/// cache, marked clean: SQLite would recover the commit, a redelivery would be answered as a duplicate, and the
/// next power cut would lose the event. The caller holds the write lock. Returns the log's size in bytes.
fn rewrite(log: &Path) -> std::io::Result<u64> {
    let file = match OpenOptions::new().read(true).write(true).open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut buffer = vec![0; REWRITE_BYTES];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => break,
            read => {
                file.write_all_at(&buffer[..read], at)?;
                at += read as u64;
            }
        }
    }
    file.sync_data()?;
    Ok(at)
}
