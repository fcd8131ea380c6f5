//! The store on PostgreSQL: real servers, standbys, and a proxy that cuts, holds and changes messages between.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

mod accepting;
mod asking;
mod claim_cost;
mod claiming;
mod cluster;
mod configured;
mod conflicts;
mod connecting;
mod cuts;
mod dispatching;
mod ending;
mod filled;
mod grouping;
mod history;
mod keeping_house;
mod kept;
mod losing;
mod losses;
mod moving;
mod naming;
mod net;
mod node_site;
mod operating;
mod partitions;
mod pooled;
mod power;
mod proxy;
mod reading;
mod reading_cost;
mod receivers;
mod registering;
mod server;
mod site;
mod stalled;
mod starting;
mod storm;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
#[path = "../support/mod.rs"]
mod support;
mod unanswered;
mod versions;
mod waits;
mod working;

use support::needs;
