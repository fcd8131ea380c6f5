//! A disk whose power the test can cut, and whose host can run out of space.
//!
//! An XFS image on a loop device, and the image on a tmpfs of its own. `cut` shuts XFS down without a
//! flush: what was not flushed is gone when it is mounted again, which replays its log as after a
//! power cut. The image is sparse, so filling the tmpfs makes write-back fail as on a broken disk. All
//! is unmounted on drop, also when a test fails; the loop device goes with its mount.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::ioctl::{Setter, opcode};
use tempfile::TempDir;

use crate::support::PATIENCE;

/// What `mkfs.xfs` writes (its log has at least 64 MB) and what the tests do: little enough to be
/// filled in an instant.
const HOST_BYTES: u64 = 256 << 20;

/// XFS refuses to be smaller than 300 MB; the default floor of free space, 128 MiB, must fit too.
const IMAGE_BYTES: u64 = 512 << 20;

/// `XFS_IOC_GOINGDOWN` of Linux's `fs/xfs/libxfs/xfs_fs.h`, and its flag for "without flushing".
type GoingDown = Setter<{ opcode::read::<u32>(b'X', 125) }, u32>;
const GOING_FLAGS_NOLOGFLUSH: u32 = 2;

/// One test at a time: a receiver's port may be another's a moment after its death.
static ONE: Mutex<()> = Mutex::new(());

/// A mounted XFS of one's own.
pub(crate) struct Disk {
    folder: TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Disk {
    /// Makes and mounts it, or says why the test is skipped.
    pub(crate) fn new() -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = Disk { folder: tempfile::tempdir().unwrap(), _one: one };
        match disk.make() {
            Ok(()) => Some(disk),
            Err(why) => {
                assert!(std::env::var_os("HOOKLATCH_CI").is_none(), "cannot make a disk: {why}");
                super::load::say(&format!("skipped: {why}"));
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        std::fs::create_dir(self.host()).unwrap();
        std::fs::create_dir(self.root()).unwrap();
        let size = format!("size={HOST_BYTES}");
        tool(
            "mount",
            &[
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                size.as_ref(),
                "tmpfs".as_ref(),
                &self.host(),
            ],
        )?;
        File::create(self.image()).unwrap().set_len(IMAGE_BYTES).unwrap();
        tool("mkfs.xfs", &["-q".as_ref(), "-K".as_ref(), &self.image()])?;
        self.try_mount()
    }

    fn host(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    fn image(&self) -> PathBuf {
        self.host().join("image")
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Where a store lies on it.
    pub(crate) fn store(&self) -> PathBuf {
        self.root().join("store.db")
    }

    fn try_mount(&self) -> Result<(), String> {
        tool("mount", &["-o".as_ref(), "loop".as_ref(), &self.image(), &self.root()])
    }

    /// Cuts the power, and tells when: from then on accesses fail, and what was not flushed is lost.
    ///
    /// What `xfs_io -x -c shutdown` does, without the time that a program takes to start.
    pub(crate) fn cut(&self) -> Instant {
        let root = File::open(self.root()).unwrap();
        let moment = Instant::now();
        // SAFETY: this call reads one 32-bit number behind the pointer that `Setter` passes.
        unsafe {
            let going_down = GoingDown::new(GOING_FLAGS_NOLOGFLUSH);
            rustix::ioctl::ioctl(&root, going_down).unwrap();
        }
        moment
    }

    /// The power is back. Nobody may use the disk any more, but for children between fork and exec,
    /// which have their dead parent's descriptors for a moment.
    pub(crate) fn mount_again(&self) {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = tool("umount", &[&self.root()]) {
            assert!(error.contains("busy") && Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.try_mount().unwrap();
    }

    /// Takes every byte of the host: what the image has not written before fails to be written.
    pub(crate) fn break_writes(&self) {
        // A small piece: one that fails is given back, and in that moment others would find space.
        fill(&self.host(), &[1 << 20, 4096]);
    }

    /// The host has space again.
    pub(crate) fn mend_writes(&self) {
        std::fs::remove_file(self.host().join("filler")).unwrap();
    }

    /// Takes every free byte of the disk.
    pub(crate) fn fill(&self) {
        fill(&self.root(), &[64 << 20, 1 << 20, 4096]);
    }

    /// Gives them back.
    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.root().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for place in [self.root(), self.host()] {
            let mounted = || {
                let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
                mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
            };
            // Lazily: a failed test may leave a process that uses it, and the mount goes with that.
            while mounted() && tool("umount", &["-l".as_ref(), &place]).is_ok() {}
        }
    }
}

/// Runs a tool to its end.
fn tool(name: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", said.trim())) }
}

/// Allocates all that is free in a folder's file system, in these pieces.
fn fill(folder: &Path, pieces: &[u64]) {
    let filler = File::create(folder.join("filler")).unwrap();
    let mut at = 0;
    for &piece in pieces {
        loop {
            match fallocate(&filler, FallocateFlags::empty(), at, piece) {
                Ok(()) => at += piece,
                Err(rustix::io::Errno::NOSPC) => break,
                Err(error) => panic!("failed to fill {}: {error}", folder.display()),
            }
        }
    }
}
