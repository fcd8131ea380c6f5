//! Hooklatch through its front door: the real binary, a real socket, a real SQLite file, real handlers.
//!
//! One file per behaviour; `support` has the receiver, the provider's side and the waiting.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod alerts;
mod answers;
mod backup;
#[path = "../support/caller.rs"]
mod caller;
mod cancel;
mod cli;
mod doctor;
mod duplicates;
mod follow;
mod inherited;
mod init;
mod listing;
mod log;
mod memory;
mod mistakes;
mod notify;
mod operator;
mod outputs;
mod promises;
mod public;
mod quarantine;
mod readme;
mod refusals;
mod send;
mod service;
mod status;
mod stop;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
mod support;
