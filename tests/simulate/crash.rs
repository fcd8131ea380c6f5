//! Killing a receiver without a process to kill: what SQLite has written so far is copied, and the
//! copy is opened as the next start would find it.
//!
//! The copying is another program's: opening and closing these files here would drop SQLite's own
//! locks (S11).

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

/// The database's file name.
pub(crate) const DATABASE: &str = "hooklatch.db";

const LOG: &str = "hooklatch.db-wal";

/// Copies all of the store but its lock's holder, and cuts the copy's log off after `bytes`.
pub(crate) fn copy(from: &Path, to: &Path, bytes: Option<u64>) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp: {status}");
    if let Some(bytes) = bytes {
        let log = OpenOptions::new().write(true).open(to.join(LOG)).unwrap();
        log.set_len(bytes).unwrap();
    }
}

/// The log's length; 0 where there is none.
pub(crate) fn log_bytes(folder: &Path) -> u64 {
    std::fs::metadata(folder.join(LOG)).map_or(0, |log| log.len())
}

/// SQLite's own look at a closed store.
pub(crate) fn check_integrity(folder: &Path) {
    let conn = rusqlite::Connection::open(folder.join(DATABASE)).unwrap();
    let found: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok", "integrity");
    // Rows whose parent is gone.
    let orphans: i64 = conn
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(orphans, 0, "rows without their parent");
}
