//! The protocol and the store against models: every order of steps, and seeded random histories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

mod model;
#[path = "../support/random.rs"]
mod random;
mod simulate;
