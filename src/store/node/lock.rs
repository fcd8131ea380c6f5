//! R1: one process per store. An exclusive `flock` on a file beside the database, taken before the
//! database is opened and held until death. It is close-on-exec, so no command ever has it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::open_error::OpenError;
use crate::model::Timestamp;

use super::path::beside;

/// Longest note of a holder that is shown, in bytes.
const NOTE_MAX_BYTES: u64 = 200;

/// How long a holder that was killed is waited for: the child it was starting has its descriptors until
/// the kernel has read the program's file.
const CHILD_WAIT: Duration = Duration::from_secs(5);

/// The pause between two looks whether the holder is gone.
const CHILD_PAUSE: Duration = Duration::from_millis(10);

/// What the note says before the holder's process number.
const NOTE_BEGIN: &str = "hooklatch, pid ";

/// Holds the store for this process while it lives.
#[derive(Debug)]
pub(crate) struct StoreLock(File);

impl Drop for StoreLock {
    /// Said aloud: a child that is just being started has the descriptor too, and would hold the lock
    /// until it has become its program.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "failed to release the store's lock");
        }
    }
}

impl StoreLock {
    /// Takes the lock of the database at `path`, or names its holder. Blocks for a moment where that one
    /// was killed while it started a child.
    pub(crate) fn take(path: &Path, now: Timestamp) -> Result<Self, OpenError> {
        let name = beside(path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&name)
            .map_err(|error| OpenError::from_io(path, &name, &error))?;
        let deadline = Instant::now() + CHILD_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&mut file);
                    if !is_dead(&holder) || Instant::now() >= deadline {
                        return Err(OpenError::Locked { path: path.to_owned(), holder });
                    }
                    std::thread::sleep(CHILD_PAUSE);
                }
                Err(TryLockError::Error(error)) => {
                    return Err(OpenError::from_io(path, &name, &error));
                }
            }
        }
        // The note decides nothing but how long to wait; where it cannot be written the lock still holds.
        let note = format!("{NOTE_BEGIN}{}, since {now}", std::process::id());
        if let Err(error) = rewrite(&mut file, &note) {
            tracing::warn!(%error, file = %name.display(), "failed to write who holds the lock");
        }
        Ok(StoreLock(file))
    }
}

fn rewrite(file: &mut File, note: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{note}")
}

/// Whether the process that the note names has ended.
fn is_dead(holder: &str) -> bool {
    let pid = holder.strip_prefix(NOTE_BEGIN).and_then(|rest| rest.split(',').next()?.parse().ok());
    pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

fn holder(file: &mut File) -> String {
    let mut note = String::new();
    let read = file.rewind().and_then(|()| file.take(NOTE_MAX_BYTES).read_to_string(&mut note));
    match note.lines().next() {
        Some(line) if read.is_ok() && !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}
