//! Simulates a kill of the receiver without a process: copies the files that SQLite has written so far, and
//! opens the copy as the next start would.
//!
//! Another program makes the copy, because opening and closing these files in this process would drop
//! SQLite's locks (S11).

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The database's file name.
pub(crate) const DATABASE: &str = "hooklatch.db";

const LOG: &str = "hooklatch.db-wal";

/// A helper process that copies files on request, and ends with its input.
pub(crate) struct Copier(Mutex<Child>);

impl Copier {
    pub(crate) fn start() -> Self {
        let mut shell = Command::new("sh");
        Copier(Mutex::new(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()))
    }

    fn folder(&self, from: &Path, to: &Path) {
        let mut shell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let command = format!("cp -r '{}' '{}'; echo $?\n", from.display(), to.display());
        shell.stdin.as_mut().unwrap().write_all(command.as_bytes()).unwrap();
        let mut status = String::new();
        // Each command is answered with one line, so the reader does not read ahead.
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut status).unwrap();
        assert_eq!(status, "0\n", "cp of {} to {}", from.display(), to.display());
    }
}

/// Copies the store without its lock file, and truncates the copy's log to `bytes`.
pub(crate) fn copy(copier: &Copier, from: &Path, to: &Path, bytes: Option<u64>) {
    copier.folder(from, to);
    if let Some(bytes) = bytes {
        let log = OpenOptions::new().write(true).open(to.join(LOG)).unwrap();
        log.set_len(bytes).unwrap();
    }
}

/// The log's length in bytes; 0 without a log.
pub(crate) fn log_bytes(folder: &Path) -> u64 {
    std::fs::metadata(folder.join(LOG)).map_or(0, |log| log.len())
}

/// Runs SQLite's integrity check on a closed store.
pub(crate) fn check_integrity(folder: &Path) {
    let conn = rusqlite::Connection::open(folder.join(DATABASE)).unwrap();
    let found: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok", "integrity");
    // Finds rows without their parent.
    let orphans: i64 = conn
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(orphans, 0, "rows without their parent");
}

/// Changes a closed store by hand.
pub(crate) fn plant(folder: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(folder.join(DATABASE)).unwrap();
    conn.execute_batch(sql).unwrap();
}
