//! Inspects a backup file: opens it read only, without locks, and makes no file next to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::DAMAGED_NAMED;
use crate::model::{State, Timestamp};
use crate::store::border::CheckedPayloads;
use crate::store::node::path::beside;
use crate::store::sqlite::tables::{codec, payload};

use super::connection::connect_still;
use super::schema;
use super::schema::FileKind;

/// A copy of a store that is whole: SQLite has checked every page and index of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    /// The identity of the store that it is a copy of.
    pub store: Uuid,
    /// Its schema's number.
    pub schema: i64,
    /// When it was begun; not known of a copy that no backup made.
    pub copied_at: Option<Timestamp>,
    /// The number of the last event that was ever stored in it.
    pub last_event: i64,
    /// When the newest event of it arrived.
    pub newest_event_at: Option<Timestamp>,
    pub events: u64,
    pub jobs: BTreeMap<State, u64>,
    /// How many payloads are not what was accepted.
    pub damaged: u64,
    /// The events of the first of them, each as its source and id.
    pub damaged_events: Vec<String>,
}

/// Why a file is not a backup to trust.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Not a database, or another program's.
    #[error("{path} is not a copy of a store")]
    Foreign { path: PathBuf },
    /// A store of a development build.
    #[error(
        "{path}: made by a development build; nothing reads it: keep it, start with a new path"
    )]
    Development { path: PathBuf },
    /// Its rows are in a database, or may be.
    #[error("{path} is not a backup: it has moved to PostgreSQL, or was being moved there")]
    Moved { path: PathBuf },
    /// A newer hooklatch made it.
    #[error(
        "{path} is of a newer hooklatch (schema {schema}; this one knows {known}); install that version or a newer one"
    )]
    Newer { path: PathBuf, schema: i64, known: i64 },
    /// A log next to it has commits.
    #[error(
        "{path} has a write-ahead log beside it: it is a store, or was copied out of one that ran, and no backup (make one with `hooklatch backup FILE`)"
    )]
    HasLog { path: PathBuf },
    /// SQLite found it damaged.
    #[error("{path} is damaged: {detail}")]
    Damaged { path: PathBuf, detail: String },
}

/// Refuses a file whose log has commits, which a restore would leave behind.
///
/// # Errors
/// Where there is such a log.
pub fn refuse_log(path: &Path) -> Result<(), InspectError> {
    let log = std::fs::metadata(beside(path, "-wal"));
    match log.is_ok_and(|log| log.len() > 0) {
        true => Err(InspectError::HasLog { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Checks all of a file that no process writes, which takes as long as reading it several times.
///
/// # Errors
/// It is not a whole copy of a store that this program can open.
pub fn inspect(path: &Path) -> Result<BackupInfo, InspectError> {
    inspect_copy(path, path)
}

/// Checks `copy`, a copy of the file at `path`, as [`inspect`] does. An error names the file at `path`.
pub(crate) fn inspect_copy(copy: &Path, path: &Path) -> Result<BackupInfo, InspectError> {
    refuse_log(copy)?;
    let damaged = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => InspectError::Foreign { path: path.to_owned() },
        _ => InspectError::Damaged { path: path.to_owned(), detail: error.to_string() },
    };
    let conn = connect_still(copy).map_err(damaged)?;
    let schema = match FileKind::of(&conn).map_err(damaged)? {
        FileKind::Store(schema) => schema,
        FileKind::Development => return Err(InspectError::Development { path: path.to_owned() }),
        FileKind::Moved => return Err(InspectError::Moved { path: path.to_owned() }),
        FileKind::Empty | FileKind::Foreign => {
            return Err(InspectError::Foreign { path: path.to_owned() });
        }
    };
    let known = schema::known();
    if schema > known {
        return Err(InspectError::Newer { path: path.to_owned(), schema, known });
    }
    // One line `ok`, or else the first fault.
    let verdict: String =
        conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(damaged)?;
    if verdict != "ok" {
        return Err(InspectError::Damaged { path: path.to_owned(), detail: verdict });
    }
    read(&conn, schema).map_err(damaged)
}

fn read(conn: &Connection, schema: i64) -> rusqlite::Result<BackupInfo> {
    // The one row.
    let copied_at = conn.query_row("SELECT copied_at FROM meta WHERE one = 1", [], |row| {
        codec::maybe_time(row, 0)
    })?;
    // By the index of unique ids; one pass over each table.
    let events = conn.query_row("SELECT count(*) FROM event", [], |row| codec::count(row, 0))?;
    let jobs = conn
        .prepare("SELECT state, count(*) FROM job GROUP BY state")?
        .query_map([], |row| Ok((codec::text(row, 0)?, codec::count(row, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    // The last row of the table.
    let newest_event_at = conn
        .query_row("SELECT received_at FROM event ORDER BY row DESC LIMIT 1", [], |row| {
            codec::time(row, 0)
        })
        .optional()?;
    let (store, last_event) = (schema::store_id(conn)?, last_event(conn)?);
    let (damaged, damaged_events) = damaged(conn)?;
    Ok(BackupInfo {
        store,
        schema,
        copied_at,
        last_event,
        newest_event_at,
        events,
        jobs,
        damaged,
        damaged_events,
    })
}

/// Compares every payload. Returns how many are not what was accepted, and names the first of them.
fn damaged(conn: &Connection) -> rusqlite::Result<(u64, Vec<String>)> {
    let (mut found, mut named, mut after) = (0, Vec::new(), None);
    loop {
        let CheckedPayloads { damaged, next, .. } = payload::check(conn, after)?;
        found += damaged.len() as u64;
        let room = DAMAGED_NAMED - named.len();
        named.extend(damaged.into_iter().take(room));
        after = next;
        if after.is_none() {
            return Ok((found, named));
        }
    }
}

/// The number of the last event that was ever stored: one that is deleted keeps it.
pub(crate) fn last_event(conn: &Connection) -> rusqlite::Result<i64> {
    // SQLite's own table of the numbers that AUTOINCREMENT has given.
    conn.query_row("SELECT seq FROM sqlite_sequence WHERE name = 'event'", [], |row| row.get(0))
        .optional()
        .map(Option::unwrap_or_default)
}
