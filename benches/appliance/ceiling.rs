//! The ceilings for comparisons: the disk's flush, and a server that verifies but does not store.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::site::{HANDLER, Receiver, Site};

/// The approximate size of one accept's commit in the log: five pages of 4 KiB.
const COMMIT_BYTES: usize = 20 * 1024;

/// After this many bytes the file is overwritten from its beginning, as the log is.
const FILE_BYTES: u64 = 32 << 20;

/// The times of `count` writes of a commit's size, each flushed with fdatasync.
pub(crate) fn flushes(site: &Site, count: usize) -> Vec<Duration> {
    let file = File::create(site.path("flushed")).unwrap();
    let block = vec![0xA5; COMMIT_BYTES];
    for at in (0..FILE_BYTES).step_by(COMMIT_BYTES) {
        file.write_all_at(&block, at).unwrap();
    }
    file.sync_all().unwrap();
    let mut at = 0;
    let flush = |_| {
        let begun = Instant::now();
        file.write_all_at(&block, at).unwrap();
        file.sync_data().unwrap();
        at = (at + COMMIT_BYTES as u64) % FILE_BYTES;
        begun.elapsed()
    };
    (0..count).map(flush).collect()
}

/// A receiver that verifies but does not store: it requires more free space than any disk has, so it reads, verifies
/// and parses each delivery and answers 503.
pub(crate) struct Verifier {
    pub(crate) receiver: Receiver,
    _site: Site,
}

impl Verifier {
    pub(crate) fn start() -> Self {
        let site = Site::new(&format!(
            "{}\n[limits]\ndisk_floor_bytes = \"1 PiB\"\n",
            HANDLER.replace("SOURCE", "github")
        ));
        Verifier { receiver: site.start(), _site: site }
    }
}

/// The status with which the [`Verifier`] answers.
pub(crate) const UNSTORED: u16 = 503;
