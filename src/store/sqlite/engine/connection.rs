//! The one place that opens a connection and sets its pragmas.
//!
//! Nothing else in the process may open the database or its `-shm`: closing any descriptor of them
//! drops SQLite's locks, and a second writer gets in (S11).

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::limits::Limits;

/// How long a statement waits for another program's lock before it fails as busy.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Prepared statements kept per connection: more than there are statements.
const STATEMENTS_KEPT: usize = 96;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Writes: the writer's, and the checkpointer's, which copies the log.
    Writer,
    /// Only reads.
    Reader,
}

pub(crate) fn connect(path: &Path, limits: &Limits, role: Role) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_WAIT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // S1: a close must never checkpoint; the orderly stop does it by itself beforehand.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // A statement's plan does not depend on its bound values. Otherwise SQLite may plan it anew at each bind
    // (sqlite3_bind, "QPSG"), and without statistics that gains nothing.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A commit is on the disk when it returns. The log is copied by the checkpointer alone. A file
    // mapped into memory turns an I/O error into a signal. 8 MiB of cache hold a usual batch.
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA mmap_size = 0;
         PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA cache_size = -8192;",
    )?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", i64::try_from(limits.log_bytes).unwrap_or(-1))?;
    if role == Role::Reader {
        conn.pragma_update(None, "query_only", true)?;
    }
    Ok(conn)
}

/// Opens the file that a copy is being written to. What becomes of it in a crash does not matter: it is
/// flushed, checked and given its name afterwards, or thrown away.
pub(crate) fn connect_copy(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;")?;
    conn.pragma_update(None, "journal_mode", "OFF")?;
    Ok(conn)
}

/// Opens a copy that is to become a store, with a journal and no log: when a commit returns,
/// all of it is in the file.
pub(crate) fn connect_alone(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA mmap_size = 0;
         PRAGMA cell_size_check = ON; PRAGMA locking_mode = EXCLUSIVE;",
    )?;
    conn.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(conn)
}

/// Opens a file that no process writes, to read it: takes no lock and makes no file.
pub(crate) fn connect_still(path: &Path) -> rusqlite::Result<Connection> {
    use std::fmt::Write;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            // Writing to a string does not fail.
            byte => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(uri, flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.execute_batch("PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON;")?;
    Ok(conn)
}

/// The first of `options` that this SQLite was built with.
pub(crate) fn built_with<'a>(
    conn: &Connection,
    options: &[&'a str],
) -> rusqlite::Result<Option<&'a str>> {
    // Answers 1 where SQLite was built with the option.
    let mut used = conn.prepare("SELECT sqlite_compileoption_used(?1)")?;
    for option in options {
        if used.query_row([option], |row| row.get(0))? {
            return Ok(Some(option));
        }
    }
    Ok(None)
}

/// Closes a connection, where there is one. SQLite refuses only while a statement is open, and none outlives its call.
pub(crate) fn close(conn: impl Into<Option<Connection>>) {
    if let Some(Err((_, error))) = conn.into().map(Connection::close) {
        tracing::error!(%error, "failed to close a connection");
    }
}
