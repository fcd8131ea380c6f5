//! Tests of Hooklatch from outside: the real binary, real sockets, a real SQLite file, real handlers.
//!
//! There is one file per behaviour; `support` starts receivers, makes deliveries and waits for events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod admin_socket_doc;
mod alerts;
mod answers;
mod backup;
mod bounds;
mod build;
mod cancel;
mod cli;
mod compose;
mod conditions;
mod config_errors;
mod configuration_doc;
mod confine;
mod control;
mod demo;
mod doctor;
mod documents;
mod drill;
mod duplicates;
mod fixed_limits;
mod follow;
mod import;
mod inherited;
mod init;
mod keys;
mod layers;
mod listing;
mod lists;
mod log;
mod memory;
mod metrics;
mod mistakes;
mod notify;
mod operator;
mod outputs;
mod pages;
mod promises;
mod providers;
mod proxied;
mod public;
mod quarantine;
mod readme;
mod recorded;
mod refusals;
mod register;
mod reload;
mod routing;
mod send;
mod service;
mod status;
mod stop;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
#[path = "../support/mod.rs"]
mod support;
mod ui;
mod units;
mod values;
mod verify;
