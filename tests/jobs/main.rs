//! How jobs run: the dispatcher in this process, the runner and its commands, and several runners.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

mod dispatcher;
mod runner;
mod runners;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
#[path = "../support/mod.rs"]
mod support;
