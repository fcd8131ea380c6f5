//! The one place that opens a connection and sets its pragmas, and the one path to an open store:
//! at start and after every I/O error alike (S1, S2).
//!
//! Nothing else in the process may open the database or its `-shm`: closing any descriptor of them
//! drops SQLite's locks, and a second writer gets in (S11).

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use crate::limits::Limits;
use crate::model::Timestamp;

use super::space::Space;
use super::types::OpenError;
use super::{before, schema};

/// How long a statement waits for another program's lock before it is told "busy".
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// The piece in which the log is read and written back.
const REWRITE_BYTES: usize = 1 << 20;

/// Prepared statements kept per connection: more than there are statements.
const STATEMENTS_KEPT: usize = 96;

/// An open, sound store: its log is flushed, its schema is ours and current.
pub(super) struct Opened {
    /// For the writer thread.
    pub(super) writer: Connection,
    /// For checkpoints only; it lives as long as the writer, because an error is told once (S11).
    pub(super) checkpointer: Connection,
    /// For look-ups.
    pub(super) reader: Connection,
    /// For listings, which may take long.
    pub(super) lists: Connection,
    /// For the keys of requests, which wait for no listing.
    pub(super) keys: Connection,
    /// The store's random identity, in hex.
    pub(super) id: uuid::Uuid,
}

/// Opens the database at `path`, rewrites a log that a crash or a failed flush left (S2), and
/// migrates, after a copy of what is there. With `create`, an absent file is made; without, it is an
/// error: a store that vanished under a running receiver must not come back empty.
pub(super) fn open(
    path: &Path,
    limits: &Limits,
    create: bool,
    now: Timestamp,
) -> Result<Opened, OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(OpenError::IsDirectory { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound && create => make_file(path)?,
        Err(error) => return Err(OpenError::from_io(path, path, &error)),
        Ok(_) => {}
    }
    let mut writer = begin(path, limits)?;
    let is_older = schema::is_older(&writer).map_err(sql)?;
    if is_older {
        before::keep_copy(writer, path, limits)?;
        writer = begin(path, limits)?;
    }
    schema::migrate(&mut writer, path, now).map_err(|error| match error {
        OpenError::NoSpace { .. } if is_older => before::found_full(&writer, path, limits),
        error => error,
    })?;
    let log_bytes = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    // A migration that was killed behind its commit leaves a long log, but a current schema.
    if is_older || log_bytes > limits.log_bytes {
        empty_log(&writer, path, limits, is_older)?;
    }
    let id = schema::store_id(&writer).map_err(sql)?;
    let checkpointer = connect(path, limits, Role::Writer).map_err(sql)?;
    let reader = connect(path, limits, Role::Reader).map_err(sql)?;
    let lists = connect(path, limits, Role::Reader).map_err(sql)?;
    let keys = connect(path, limits, Role::Reader).map_err(sql)?;
    Ok(Opened { writer, checkpointer, reader, lists, keys, id })
}

/// Copies the log into the database and empties it, before anything is served: a migration's is far over
/// the bound of a log, and the first batch would wait for all of it.
///
/// The log is flushed. A kill or a power cut in here leaves it, and the next open reads it.
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
        // Another program reads: the writer goes on with the log later.
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

/// A connection to a database that is ours or empty, its log rewritten.
fn begin(path: &Path, limits: &Limits) -> Result<Connection, OpenError> {
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
    sync_directory(path)?;
    Ok(writer)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Writes: the writer's, and the checkpointer's, which copies the log.
    Writer,
    /// Only reads.
    Reader,
}

fn connect(path: &Path, limits: &Limits, role: Role) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_WAIT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // S1: a close must never checkpoint; the orderly stop does it by itself beforehand.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // A statement's plan does not depend on what is bound to it; otherwise SQLite may plan it anew each
    // time something is (sqlite3_bind, "QPSG"), and these never gain by it: there are no statistics.
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
pub(super) fn connect_copy(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;")?;
    conn.pragma_update(None, "journal_mode", "OFF")?;
    Ok(conn)
}

/// Opens a copy that is to become a store, with a journal beside it and no log: when a commit returns,
/// all of it is in the file.
pub(super) fn connect_alone(path: &Path) -> rusqlite::Result<Connection> {
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

/// Opens a file that nobody writes, to read it: no lock, and nothing is made beside it.
pub(super) fn connect_still(path: &Path) -> rusqlite::Result<Connection> {
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

/// SQLite's build options that switch flushes off (sqlite.org/compile.html). A build may link the system's
/// SQLite in place of the bundled one (`LIBSQLITE3_SYS_USE_PKG_CONFIG`).
const FLUSHLESS: [&str; 2] = ["NO_SYNC", "DISABLE_DIRSYNC"];

/// The first of `options` that this SQLite was built with.
pub(super) fn built_with<'a>(
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

/// Turns the write-ahead log on, or reads what an earlier process left in it. Writes to an empty file
/// only: nothing may be committed upon a log that is not yet rewritten.
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

/// Makes the empty file, for its owner only; SQLite gives its log the same mode.
fn make_file(path: &Path) -> Result<(), OpenError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|error| OpenError::from_io(path, path, &error))
}

/// S2: writes the log's own bytes back in place and flushes them. A flush that failed left its commit
/// in the page cache, marked clean: it would be recovered, called a duplicate, and lost by the next
/// power cut. The caller holds the write lock. Returns how many bytes there were.
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

/// Flushes the directory, so that the names of database and log survive a power cut.
fn sync_directory(path: &Path) -> Result<(), OpenError> {
    let dir = directory(path);
    File::open(&dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| OpenError::from_io(path, &dir, &error))
}

/// Closes a connection. SQLite refuses only while a statement is open, and none outlives its call.
pub(super) fn close(conn: Connection) {
    if let Err((_, error)) = conn.close() {
        tracing::error!(%error, "failed to close a connection");
    }
}

/// A file beside the database: its name with `suffix`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where the database itself lies, which every name of it leads to: its log, its lock and what a restore
/// makes lie beside it there, and not beside a symbolic link to it (R1, S2). Also where it is not there:
/// a restore that was killed has taken it away.
pub(super) fn real(path: &Path) -> PathBuf {
    // The kernel follows 40 links at most (path_resolution(7)).
    const LINKS: usize = 40;
    let mut real = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&real) else { break };
        real = directory(&real).join(target);
    }
    std::fs::canonicalize(&real).unwrap_or(real)
}

/// The directory the database lies in.
pub(super) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Warns where the file system is a network one: their locks and flushes are not to be trusted.
pub(super) fn warn_of_network(path: &Path) {
    // Magic numbers of linux/magic.h: NFS, SMB, CIFS, SMB2, 9p, AFS.
    const REMOTE: [u32; 6] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x5346_414F];
    let Ok(stat) = rustix::fs::statfs(directory(path)) else { return };
    if REMOTE.contains(&(stat.f_type as u32)) {
        tracing::warn!(
            path = %path.display(),
            "the store lies on a network file system, where locks and flushes often do not hold; put it on a local disk"
        );
    }
}

impl OpenError {
    /// What an I/O error on `file` means for the database at `path`.
    pub(super) fn from_io(path: &Path, file: &Path, error: &std::io::Error) -> Self {
        let (path, file) = (path.to_owned(), file.to_owned());
        match error.kind() {
            ErrorKind::NotFound if !directory(&path).is_dir() => {
                OpenError::DirectoryMissing { path }
            }
            ErrorKind::PermissionDenied => OpenError::NoPermission { path: file },
            ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path: file },
            ErrorKind::NotADirectory => OpenError::DirectoryMissing { path },
            ErrorKind::IsADirectory => OpenError::IsDirectory { path: file },
            ErrorKind::StorageFull => OpenError::NoSpace { path },
            _ => OpenError::Io { path: file, detail: error.to_string() },
        }
    }

    /// What an error of SQLite means for the database at `path`.
    pub(super) fn from_sql(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => {
                OpenError::Damaged { path, detail: error.to_string() }
            }
            Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
            Some(ErrorCode::PermissionDenied) => OpenError::NoPermission { path },
            Some(ErrorCode::DiskFull) => OpenError::NoSpace { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked {
                path,
                holder: "a program that has it open with SQLite".to_owned(),
            },
            _ => OpenError::Io { path, detail: error.to_string() },
        }
    }
}
