//! Checks the protocol and the store against models: the protocol in every order of steps, the store in
//! seeded random histories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

mod cluster;
mod cluster_groups;
mod cluster_rate;
#[path = "../postgres/database.rs"]
#[allow(dead_code, reason = "the library's tests use more of it")]
mod database;
mod groups;
mod model;
#[path = "../support/needs.rs"]
#[allow(dead_code, reason = "tests of PostgreSQL alone use more of it")]
mod needs;
#[path = "../support/random.rs"]
mod random;
#[path = "../postgres/server.rs"]
#[allow(dead_code, reason = "tests of PostgreSQL alone use more of it")]
mod server;
mod simulate;
