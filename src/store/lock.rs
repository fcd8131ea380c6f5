//! R1: one process per store. An exclusive `flock` on a file beside the database, taken before the
//! database is opened and held until death. It is close-on-exec, so a program that the holder starts
//! never inherits it. A child that has not come to its program yet does, and may outlive the holder
//! for that moment: so a dead holder's lock is waited for. Whoever gets it then finds that child's
//! command in `/proc`, under its own name and environment.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

use crate::model::Timestamp;

use super::connection::beside;
use super::types::OpenError;

/// Longest note of a holder that is shown, in bytes.
const NOTE_MAX_BYTES: u64 = 200;

/// What a holder's note begins with, before its process's number.
const NOTE: &str = "hooklatch, pid ";

/// How long a dead holder's lock is waited for: far over what a child takes to its program.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is tried meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

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
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(OpenError::from_io(path, &name, &error));
                }
            }
            let holder = holder(&mut file);
            if lives(&holder) || start.elapsed() > PATIENCE {
                return Err(OpenError::Locked { path: path.to_owned(), holder });
            }
            std::thread::sleep(PAUSE);
        }
        // The note is for people, and for `lives`; where it cannot be written (a full disk) the lock
        // still holds.
        let note = format!("{NOTE}{}, since {now}", std::process::id());
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

/// Whether the holder that wrote this note still lives; where that cannot be seen, it does.
fn lives(note: &str) -> bool {
    let pid = note.strip_prefix(NOTE).and_then(|rest| rest.split(',').next()?.parse().ok());
    let Some(pid) = pid.and_then(Pid::from_raw) else { return true };
    test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

fn holder(file: &mut File) -> String {
    let mut note = String::new();
    let _ = file.rewind();
    let read = file.take(NOTE_MAX_BYTES).read_to_string(&mut note);
    match note.lines().next() {
        Some(line) if read.is_ok() && !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}
