//! Where log lines go: readable on a terminal, one JSON object a line otherwise.
//!
//! Payloads, secrets and query strings are never given to `tracing` in the first place.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error at `filter` (such as `info` or `hooklatch=debug`). Called once,
/// by the commands that serve; a second call changes nothing.
///
/// # Errors
/// The filter's text, where it is none.
pub fn start(filter: &str) -> Result<(), String> {
    // The HTTP server tells of its threads at `info`; what an operator wants to know of it is ours.
    let quiet = format!("actix_server=warn,{filter}");
    let filter = EnvFilter::try_new(quiet).map_err(|error| format!("'{filter}': {error}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        lines.compact().try_init()
    } else {
        lines.json().flatten_event(true).try_init()
    };
    drop(started);
    Ok(())
}

/// Lines given up so far because nobody took them.
pub fn lost_lines() -> u64 {
    0
}
