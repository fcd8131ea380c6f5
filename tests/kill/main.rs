//! Tests of the promises under kills, power cuts and failing disks. They load the machine for minutes, so
//! they have a separate binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

#[cfg(debug_assertions)]
mod crash;
mod groups;
mod power;
mod storm;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
#[path = "../support/mod.rs"]
mod support;
