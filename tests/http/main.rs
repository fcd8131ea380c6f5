//! Tests of the HTTP server in this process: raw requests, stored answers, signature vectors and the
//! committed inputs of the fuzz targets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail loudly, and prints its findings"
)]

mod answers;
mod bypass;
mod compressed;
mod conditions;
mod corpus;
mod forms;
mod handshakes;
mod http;
mod keyed;
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
#[path = "../support/mod.rs"]
mod support;
#[path = "../../fuzz/targets/mod.rs"]
mod targets;
mod vectors;
