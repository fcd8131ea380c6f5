//! Checks the store's disk: whether it keeps data through a power cut, how long a flush takes, and how
//! much space is left. It writes only to an unnamed temporary file in the store's folder.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{statfs, statvfs};
use rustix::io::Errno;

use crate::limits::Limits;

use super::super::output::size;
use super::finding::Finding;
use super::machine::Machine;

/// File systems that a machine reaches over a network or through another program, by their numbers
/// (statfs(2)): SQLite's shared log does not work over them (sqlite.org, "Write-Ahead Logging").
const REMOTE: [(i64, &str); 9] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB2"),
    (0xFF53_4D42, "CIFS"),
    (0x0102_1997, "9P"),
    (0x00C3_6400, "Ceph"),
    (0x6573_5546, "FUSE"),
    (0x7375_7245, "Coda"),
    (0x5346_414F, "AFS"),
];

/// tmpfs and ramfs, which keep files in memory only (statfs(2)).
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58F6];

/// overlayfs, the file system of a container's writable layer (statfs(2)).
const OVERLAY: i64 = 0x794C_7630;

/// The longest acceptable flush. Each accept waits for one, so with slower flushes a burst of deliveries
/// is answered noticeably late.
const SLOW: Duration = Duration::from_millis(20);

/// The number of flushes to time.
const FLUSHES: usize = 32;

/// With fewer free files on the disk than this, the store may soon fail to create its files.
const FEW_FILES: u64 = 1_000;

fn folder(machine: &Machine<'_>) -> PathBuf {
    let database = machine.config.store().path;
    match database.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

pub(super) fn file_system(machine: &Machine<'_>) -> Vec<Finding> {
    let folder = folder(machine);
    match statfs(&folder) {
        // The field's type depends on the machine.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        Ok(found) => vec![judge_kind(found.f_type as i64, &folder)],
        // `space` reports a missing folder.
        Err(Errno::NOENT) => Vec::new(),
        Err(error) => vec![Finding::unknown(format!("{}: {error}", folder.display()))],
    }
}

fn judge_kind(kind: i64, folder: &Path) -> Finding {
    let shown = folder.display();
    let fix = "move the store to a local disk: storage.path";
    if let Some((_, name)) = REMOTE.iter().find(|(number, _)| *number == kind) {
        let seen = format!("{shown} is on {name}: SQLite's log is not safe there");
        return Finding::bad(seen, fix);
    }
    if MEMORY.contains(&kind) {
        let seen = format!("{shown} is in memory: every event is gone with the power");
        return Finding::bad(seen, fix);
    }
    if kind == OVERLAY {
        let seen = format!("{shown} is in a container's own layer, which goes with the container");
        return Finding::bad(seen, "mount a volume there");
    }
    Finding::ok(format!("{shown} is on a local disk"))
}

pub(super) fn space(machine: &Machine<'_>) -> Vec<Finding> {
    vec![judge_space(&folder(machine), machine.config.limits())]
}

fn judge_space(folder: &Path, limits: &Limits) -> Finding {
    let found = match statvfs(folder) {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            let fix = format!("mkdir -m 700 {0}, owned by the receiver's user", folder.display());
            return Finding::bad(format!("there is no folder {}", folder.display()), fix);
        }
        Err(error) => return Finding::unknown(format!("{}: {error}", folder.display())),
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let floor = limits.disk_floor_bytes + limits.ballast_bytes;
    let with_log = floor + limits.log_bytes;
    let seen = format!("{} free, {} are needed", size(free), size(with_log));
    let fix = format!("make room on the disk of {}", folder.display());
    match free {
        _ if free < floor => Finding::bad(seen + ": deliveries are answered 503", fix),
        _ if free < with_log * 2 => Finding::unwise(seen, fix),
        // A file system that does not count files reports 0 of 0.
        _ if found.f_files > 0 && found.f_favail < FEW_FILES => {
            Finding::unwise(format!("room for {} more files", found.f_favail), fix)
        }
        _ => Finding::ok(seen),
    }
}

pub(super) fn flush(machine: &Machine<'_>) -> Vec<Finding> {
    let folder = folder(machine);
    match timed(&folder) {
        Ok(times) => vec![judge_flushes(times)],
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            vec![Finding::unknown(format!("failed to write in {}: {error}", folder.display()))]
        }
    }
}

/// The duration of each of [`FLUSHES`] flushes, on an unnamed temporary file in `folder`.
fn timed(folder: &Path) -> io::Result<Vec<Duration>> {
    let file: File = tempfile::tempfile_in(folder)?;
    let page = [0x5A; 4096];
    let one = |nth: usize| {
        let begin = Instant::now();
        file.write_all_at(&page, (nth * page.len()) as u64)?;
        file.sync_data()?;
        Ok(begin.elapsed())
    };
    (0..FLUSHES).map(one).collect()
}

fn judge_flushes(mut times: Vec<Duration>) -> Finding {
    times.sort_unstable();
    let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
    let [usual, slowest] = [middle, last].map(|time| time.as_secs_f64() * 1_000.0);
    let seen = format!("one takes {usual:.2} ms, the slowest of {FLUSHES} {slowest:.2} ms");
    if middle > SLOW {
        let fix = "use a faster disk, or one with a protected write cache: storage.path";
        return Finding::unwise(seen + "; every answer waits for one", fix);
    }
    Finding::ok(seen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_remote_or_volatile_file_system_is_bad() {
        let folder = Path::new("data");
        for kind in [0x6969, 0xFE53_4D42, 0x6573_5546, 0x0102_1994, OVERLAY] {
            let found = judge_kind(kind, folder);
            assert_eq!(found.verdict, Verdict::Bad, "{kind:x}");
            assert!(found.fix.is_some());
        }
        for local in [0x5846_5342, 0xEF53, 0x9123_683E] {
            assert_eq!(judge_kind(local, folder).verdict, Verdict::Ok, "XFS, ext4, Btrfs");
        }
    }

    #[test]
    fn less_free_space_than_the_reserve_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let with = |disk_floor_bytes| {
            let limits = Limits { disk_floor_bytes, ..Limits::default() };
            judge_space(folder.path(), &limits)
        };
        assert_eq!(with(1 << 20).verdict, Verdict::Ok);
        let found = with(1 << 60);
        assert_eq!(found.verdict, Verdict::Bad);
        assert!(found.seen.contains("503"), "{}", found.seen);
    }

    #[test]
    fn timing_flushes_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let times = timed(folder.path()).unwrap();
        assert_eq!(times.len(), FLUSHES);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(judge_flushes(vec![Duration::from_millis(1); 3]).verdict, Verdict::Ok);
        let slow = judge_flushes(vec![SLOW * 2; 3]);
        assert_eq!(slow.verdict, Verdict::Unwise);
        assert!(timed(Path::new("/proc")).is_err());
    }

    #[test]
    fn a_store_without_a_folder_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let found = judge_space(&folder.path().join("missing"), &Limits::default());
        assert_eq!(found.verdict, Verdict::Bad);
        assert!(found.fix.is_some_and(|fix| fix.starts_with("mkdir")));
    }
}
