//! Power cuts, flushes that fail and disks that are full, on a real file system under the real binary.
//!
//! Needs root, `xfsprogs`, `util-linux` and a C compiler; says "skipped: why" without, and fails
//! where `HOOKLATCH_CI` is set. `HOOKLATCH_POWER_CUTS` says how many cuts, `HOOKLATCH_SEED` repeats
//! a run's choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

#[path = "support/account.rs"]
mod account;
#[path = "power/cuts.rs"]
mod cuts;
#[path = "power/disk.rs"]
mod disk;
#[path = "power/flushes.rs"]
mod flushes;
#[path = "power/full.rs"]
mod full;
#[path = "support/load.rs"]
mod load;
#[path = "it/support.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod support;
