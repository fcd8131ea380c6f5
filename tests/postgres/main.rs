//! The store on PostgreSQL: real servers, standbys, and a proxy that cuts, holds and changes messages between.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may fail loudly, and prints its findings"
)]

mod accepting;
mod claiming;
mod cluster;
mod conflicts;
mod connecting;
mod cuts;
mod filled;
mod losing;
mod losses;
mod moving;
mod naming;
mod proxy;
mod registering;
mod server;
mod site;
mod unanswered;
mod waits;
mod working;
