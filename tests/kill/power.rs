//! Power cuts, flushes that fail and disks that are full, on a real file system under the real binary.
//!
//! Needs root, `xfsprogs`, `util-linux` and a C compiler; says "skipped: why" without, and fails
//! where `HOOKLATCH_CI` is set. `HOOKLATCH_POWER_CUTS` says how many cuts, `HOOKLATCH_SEED` repeats
//! a run's choices.

mod cuts;
mod disk;
mod flushes;
mod full;
mod load;

use crate::support::{Receiver, Site, runner};
use disk::Disk;
use hooklatch::runner::folder;
use load::Providers;

/// Cuts the power under a receiver, and gives it back. Returns how many answers came in the cut, which
/// count as never given: in a real cut nobody answers and nothing runs, while the simulated one leaves
/// network and processes on, and tells flushes under way that they have succeeded while XFS shuts down
/// (Linux 6.1; a bare `fdatasync` loop shows it). The handlers' ledger keeps what was written before the
/// cut. The runner's goes, since the boot in its name would be another one.
fn power_cut(disk: &Disk, site: &Site, providers: &Providers, receiver: Receiver) -> usize {
    let ledger = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(site.path("ledger.txt"))
        .unwrap();
    let written = ledger.metadata().unwrap().len();
    let runner = runner::runner(&site.store());
    let dark = providers.cut_off(disk.cut());
    receiver.kill();
    runner.into_iter().for_each(runner::kill);
    disk.mount_again();
    let _none = std::fs::remove_dir_all(folder::of(&site.store()));
    ledger.set_len(written).unwrap();
    dark
}
