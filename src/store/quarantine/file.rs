//! The quarantine's file: how it is opened, and when it is of no use.
//!
//! For the keeper's thread alone; `rows` writes it and `look` reads it. Nothing is promised of it: no
//! flush (`synchronous = OFF`) and no migration; what makes no sense in it is thrown away as a whole. A
//! kill of the process leaves it sound, since the page cache outlives the process; a power cut need not.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use crate::limits::Limits;
use crate::store::codec;
use crate::store::connection::beside;

/// Marks the file as ours: "HkQu" in ASCII (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x486B_5175;

/// Of `schema.sql`; another version's file is thrown away.
const VERSION: i64 = 1;

/// The open file.
pub(super) struct File {
    pub(super) conn: Connection,
    /// What all rows are charged together.
    pub(super) bytes: i64,
}

impl File {
    /// Opens the file at `path`, or makes it for its owner only. [`Use::after`] says what an error means.
    pub(super) fn open(path: &Path, limits: &Limits) -> rusqlite::Result<File> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        if let Err(error) = made.map(drop)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(failure(ffi::SQLITE_CANTOPEN, error.to_string()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(1))?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // No flush ever. One connection has it to itself, so the log needs no shared memory. Space is
        // given back when deliveries are accepted or dropped.
        conn.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF; PRAGMA mmap_size = 0;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA cache_size = -2048;
             PRAGMA auto_vacuum = INCREMENTAL;",
        )?;
        // Rows are charged a little more than they take; over twice the bound something is wrong, and
        // what comes is left out.
        let pages = limits.quarantine_bytes / 2048 + 1024;
        conn.pragma_update(None, "max_page_count", codec::signed(pages))?;
        // Answers with the mode that it is in then.
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Err(unusable(format!("journal mode {mode}")));
        }
        conn.pragma_update(None, "journal_size_limit", 4 << 20)?;
        set_up(&conn)?;
        // Cheap for so small a file, and a power cut may have torn it.
        let check: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check != "ok" {
            return Err(unusable(check));
        }
        let mut file = File { conn, bytes: 0 };
        file.count_bytes()?;
        Ok(file)
    }

    /// Deletes the file with its log.
    pub(super) fn throw_away(path: &Path) -> std::io::Result<()> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            match std::fs::remove_file(beside(path, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn count_bytes(&mut self) -> rusqlite::Result<()> {
        // One row for each holder.
        self.bytes = self
            .conn
            .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM holder")?
            .query_row([], |row| row.get(0))?;
        Ok(())
    }

    /// Gives free pages back to the file system.
    pub(super) fn give_back(&self) -> rusqlite::Result<()> {
        // Deletes a page with each step.
        let mut statement = self.conn.prepare("PRAGMA incremental_vacuum")?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut File) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(self).and_then(|done| self.conn.execute_batch("COMMIT").map(|()| done));
        if done.is_err() {
            if !self.conn.is_autocommit() {
                self.conn.execute_batch("ROLLBACK")?;
            }
            self.count_bytes()?;
        }
        done
    }
}

/// Makes the tables in an empty file; any other must be ours and of this version.
fn set_up(conn: &Connection) -> rusqlite::Result<()> {
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => return Ok(()),
        (0, 0) => {}
        (application, version) => {
            return Err(unusable(format!("another file: {application:#x}, version {version}")));
        }
    }
    conn.execute_batch(&format!(
        "BEGIN IMMEDIATE; {} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;",
        include_str!("schema.sql")
    ))
}

/// The file is to be thrown away.
pub(super) fn unusable(detail: String) -> rusqlite::Error {
    failure(ffi::SQLITE_CORRUPT, detail)
}

fn failure(code: i32, detail: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(detail))
}

/// What an error means for the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is as good as it was: no space, or another program looks at it.
    Good,
    /// It cannot be used now, for a reason that may pass: no descriptors, no rights, a failing disk.
    NotNow,
    /// What is in it makes no sense.
    Gone,
}

impl Use {
    pub(super) fn after(error: &rusqlite::Error) -> Use {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Use::Good
            }
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::SystemIoFailure
                | ErrorCode::FileLockingProtocolFailed,
            ) => Use::NotNow,
            _ => Use::Gone,
        }
    }
}
