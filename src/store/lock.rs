//! R1: one process per store. An exclusive `flock` on a file beside the database, taken before the
//! database is opened and held until death. It is close-on-exec, so a child never inherits it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::model::Timestamp;

use super::connection::beside;
use super::types::OpenError;

/// Longest note of a holder that is shown, in bytes.
const NOTE_MAX_BYTES: u64 = 200;

/// Holds the store for this process while it lives.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "an open file is what holds a flock")] File);

impl Lock {
    /// Takes the lock of the database at `path`, or names its holder.
    pub(super) fn take(path: &Path, now: Timestamp) -> Result<Self, OpenError> {
        let name = beside(path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .map_err(|error| OpenError::from_io(path, &name, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { path: path.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => {
                return Err(OpenError::from_io(path, &name, &error));
            }
        }
        // The note is for people only; where it cannot be written (a full disk) the lock still holds.
        let note = format!("hooklatch, pid {}, since {now}", std::process::id());
        if let Err(error) = rewrite(&mut file, &note) {
            tracing::warn!(%error, file = %name.display(), "failed to write who holds the lock");
        }
        Ok(Lock(file))
    }
}

fn rewrite(file: &mut File, note: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{note}")
}

fn holder(file: &mut File) -> String {
    let mut note = String::new();
    let read = file.take(NOTE_MAX_BYTES).read_to_string(&mut note);
    match note.lines().next() {
        Some(line) if read.is_ok() && !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}
