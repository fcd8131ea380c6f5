//! S8: the reserve. Below a floor of free space accepts are refused while completions go on, and a
//! ballast file beside the database is given up for them when the disk is full all the same.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytesize::ByteSize;
use rustix::fs::FallocateFlags;

use crate::limits::Limits;
use crate::store::border::Refused;
use crate::store::mutex::lock;

use super::path::{beside, directory};

/// How long a look at the file system is good for: `statvfs` is cheap, though not free at 20,000
/// accepts a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Knows how much space is left for the store.
pub(crate) struct Space {
    directory: PathBuf,
    ballast: PathBuf,
    ballast_bytes: u64,
    floor_bytes: u64,
    last: Mutex<Option<(Duration, Option<Refused>)>>,
    /// The database and its log as they were opened.
    open: Mutex<Vec<(PathBuf, Option<Id>)>>,
}

/// Device and inode.
type Id = (u64, u64);

/// Identifies a file without following a link: SQLite puts the log next to what the link leads to.
fn id(path: &Path) -> Option<Id> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Space {
    /// Watches the space for the database at `path`.
    pub(crate) fn new(path: &Path, limits: &Limits) -> Self {
        Space {
            directory: directory(path),
            ballast: beside(path, ".ballast"),
            ballast_bytes: limits.ballast_bytes,
            floor_bytes: limits.disk_floor_bytes,
            last: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Why nothing can be stored, looked at once a second of `now` (monotonic).
    pub(crate) fn refuses(&self, now: Duration) -> Option<Refused> {
        let mut last = lock(&self.last);
        if let Some((at, verdict)) = &*last
            && now.saturating_sub(*at) < LOOK_EVERY
        {
            return verdict.clone();
        }
        // A file that is moved back is seen at once.
        *last = None;
        if let Some(gone) = self.gone() {
            return Some(Refused::Gone(gone));
        }
        let verdict = self.below(self.floor_bytes).map(Refused::NoSpace);
        *last = Some((now, verdict.clone()));
        verdict
    }

    /// The database at `path` and its log are open from now on.
    pub(crate) fn opened(&self, path: &Path) {
        let files = [path.to_owned(), beside(path, "-wal")];
        *lock(&self.open) = files.into_iter().map(|path| (path.clone(), id(&path))).collect();
    }

    /// What is wrong if the name of an open file leads elsewhere: further commits would be lost. By its metadata alone,
    /// since opening and closing it would drop SQLite's locks (S11).
    pub(crate) fn gone(&self) -> Option<String> {
        let open = lock(&self.open);
        let (path, _) = open.iter().find(|(path, opened)| id(path) != *opened)?;
        Some(format!(
            "the database file {} was removed or replaced: move it back, or save the events with `hooklatch backup FILE` before you stop the receiver, and restore that file",
            path.display()
        ))
    }

    /// Why the free space is still too small after the disk was full: it must hold the floor and a new
    /// ballast, or the accepts let in would take what the ballast was given up for.
    pub(crate) fn still_low(&self) -> Option<String> {
        let missing = if self.ballast.exists() { 0 } else { self.ballast_bytes };
        self.below(self.floor_bytes.saturating_add(missing))
    }

    fn below(&self, needed: u64) -> Option<String> {
        let free = self.free_bytes()?;
        (free < needed).then(|| {
            format!(
                "{} free in {}, {} are needed",
                ByteSize(free),
                self.directory.display(),
                ByteSize(needed)
            )
        })
    }

    /// Free bytes for this user; none where the file system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes the ballast where it is missing and leaves the floor untouched. A failure costs only the
    /// reserve, so it is logged and nothing more.
    pub(crate) fn make_ballast(&self) {
        if self.ballast_bytes == 0 || self.ballast.exists() {
            return;
        }
        if self.free_bytes().is_none() || self.still_low().is_some() {
            return;
        }
        if let Err(error) = fill(&self.ballast, self.ballast_bytes) {
            self.give_up_ballast();
            tracing::warn!(%error, file = %self.ballast.display(), "failed to make the ballast file");
        }
    }

    /// Removes the ballast. False if it was gone already.
    pub(crate) fn give_up_ballast(&self) -> bool {
        std::fs::remove_file(&self.ballast).is_ok()
    }
}

/// Allocates `bytes` for real: where the file system cannot reserve them, they are written.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let block = vec![0xA5u8; 1 << 20];
            let mut left = bytes;
            while left > 0 {
                let now = usize::try_from(left).unwrap_or(block.len()).min(block.len());
                file.write_all(&block[..now])?;
                left -= now as u64;
            }
            file.sync_data()
        }
        Err(error) => Err(error.into()),
    }
}
