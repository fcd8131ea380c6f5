//! Power cuts, failing flushes and full disks, on a real file system under the real binary.
//!
//! They need root, `xfsprogs`, `util-linux` and a C compiler. `HOOKLATCH_POWER_CUTS` sets the number of cuts;
//! `HOOKLATCH_SEED` repeats the random choices of a run.

mod cuts;
mod flushes;
mod full;
mod load;

use crate::support::disk::Disk;
use crate::support::{Receiver, Site, runner};
use hooklatch::runner::folder;
use load::Providers;

/// Cuts the power under a receiver and restores it. Returns the number of answers after the cut, which do
/// not count: in a real cut no process runs, but in the simulated one processes and network continue, and
/// flushes in progress report success while XFS shuts down (Linux 6.1; a plain `fdatasync` loop shows it).
/// The handlers' ledger keeps the lines from before the cut. The runner's ledger is deleted, because after
/// a real cut the runner would see another boot id.
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
