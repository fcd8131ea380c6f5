//! Hooklatch: a webhook receiver appliance.
//!
//! The library exists so that the binary and the tests can share code; its API is not stable. To find
//! your way, read `serve` for the flow and `ARCHITECTURE.md` for the layers.

// Test kits of `tests/` use the public names.
#[cfg(test)]
extern crate self as hooklatch;

// Layer 0: facts. No import, no async, no I/O.
pub mod clock;
pub mod crash;
pub mod limits;
pub mod model;
pub mod random;

// Layer 1: pure decisions.
pub mod condition;
pub mod document;
pub mod measure;
pub mod pattern;
pub mod payload;
pub mod provider;
pub mod retry;
pub mod routing;
pub mod values;
pub mod verify;

// Layer 2: effects.
pub mod confine;
pub mod handler;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod notify;
pub mod panics;
pub mod registration;
pub mod runner;
pub mod store;
pub mod systemd;
pub mod traffic;

// Layer 3: flows.
pub mod admin;
pub mod dispatcher;
pub mod http;
pub mod scrape;

// Layer 4: wiring.
pub mod cli;
pub mod config;
pub mod serve;

// Layer 5: edge.
pub mod cmd;
pub mod exit;

// Private parsers for `fuzz/` and `tests/http/corpus.rs`; not in a release build.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[path = "../fuzz/probe.rs"]
pub mod probe;
