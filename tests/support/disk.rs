//! A disk whose power the test can cut, and whose host can run out of space.
//!
//! It is an XFS image on a loop device, and the image is on a separate tmpfs. [`Disk::cut`] shuts XFS down
//! without a flush: unflushed data is lost at the next mount, which replays the log as after a power cut.
//! The image is sparse, so filling the tmpfs makes write-back fail as on a broken disk. Dropping the disk
//! unmounts everything, even if a test fails; the loop device is removed with its mount.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::ioctl::{Setter, opcode};
use tempfile::TempDir;

use super::{PATIENCE, needs};

/// The size of the tmpfs: enough for `mkfs.xfs` (its log has at least 64 MB) and the tests, and small
/// enough to be filled at once.
const HOST_BYTES: u64 = 256 << 20;

/// The size of the image: XFS needs at least 300 MB, and the default floor of free space, 128 MiB, must
/// fit too.
const IMAGE_BYTES: u64 = 512 << 20;

/// `XFS_IOC_GOINGDOWN` of Linux's `fs/xfs/libxfs/xfs_fs.h`, and its flag for "without flushing".
type GoingDown = Setter<{ opcode::read::<u32>(b'X', 125) }, u32>;
const GOING_FLAGS_NOLOGFLUSH: u32 = 2;

/// Runs one test at a time: another test's receiver could get the port of a dead receiver.
static ONE: Mutex<()> = Mutex::new(());

/// A separate mounted XFS.
pub(crate) struct Disk {
    folder: TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Disk {
    /// Makes and mounts the disk; `None` if that is not possible, which is noted as a need of this test.
    pub(crate) fn new() -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Users other than root keep files on the disk, too.
        let open = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        let disk = Disk { folder, _one: one };
        match disk.make() {
            Ok(()) => Some(disk),
            Err(why) => {
                eprintln!("{why}");
                needs::missing("XFS and loop mounts", "run as root, apt install xfsprogs");
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

    /// The mount point.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The path of a store on the disk.
    pub(crate) fn store(&self) -> PathBuf {
        self.root().join("store.db")
    }

    fn try_mount(&self) -> Result<(), String> {
        tool("mount", &["-o".as_ref(), "loop".as_ref(), &self.image(), &self.root()])
    }

    /// Cuts the power and returns when: after that, accesses fail and unflushed data is lost.
    ///
    /// It does the same as `xfs_io -x -c shutdown`, without the time to start a program.
    pub(crate) fn cut(&self) -> Instant {
        let root = File::open(self.root()).unwrap();
        let moment = Instant::now();
        // SAFETY: this ioctl reads one 32-bit number at the pointer that `Setter` passes.
        unsafe {
            let going_down = GoingDown::new(GOING_FLAGS_NOLOGFLUSH);
            rustix::ioctl::ioctl(&root, going_down).unwrap();
        }
        moment
    }

    /// Restores the power. No process may use the disk any more, except for children between fork and
    /// exec, which briefly have the descriptors of their dead parent.
    pub(crate) fn mount_again(&self) {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = tool("umount", &[&self.root()]) {
            assert!(error.contains("busy") && Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.try_mount().unwrap();
    }

    /// Fills the host, so that writes to new blocks of the image fail.
    pub(crate) fn break_writes(&self) {
        // The last pieces are small: a failed allocation is freed again, and a large one would briefly
        // leave space for others.
        fill(&self.host(), &[1 << 20, 4096]);
    }

    /// Frees the host's space, so that writes succeed.
    pub(crate) fn repair_writes(&self) {
        std::fs::remove_file(self.host().join("filler")).unwrap();
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        fill(&self.root(), &[64 << 20, 1 << 20, 4096]);
    }

    /// Frees the space that [`Disk::fill`] took.
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
            // A lazy unmount: a failed test may leave a process that uses the disk, and the mount then ends
            // with that process.
            while mounted() && tool("umount", &["-l".as_ref(), &place]).is_ok() {}
        }
    }
}

/// Runs a tool to its end; an `Err` has its name and its error output.
fn tool(name: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", said.trim())) }
}

/// Allocates all free space of a folder's file system, in pieces of these sizes.
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
