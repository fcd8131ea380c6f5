//! Handlers: what the operator configured to run for an event. (CONTRACT STUB: the handler's author
//! replaces this file, keeping the API.)

use std::path::PathBuf;
use std::time::Duration;

use crate::model::{Facts, Outcome};
use crate::store::Record;

/// A configured command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettings {
    /// Program and arguments; never a shell line.
    pub argv: Vec<String>,
    /// Working directory; the user's home where none is given.
    pub cwd: Option<PathBuf>,
    /// Home directory of the user that commands run as.
    pub home: PathBuf,
    /// Environment beyond the fixed one, values resolved.
    pub env: Vec<(String, String)>,
    /// Variables passed on from the process's own environment (already read by config: name, value).
    pub timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Bytes kept of each stream: head, tail.
    pub output_bytes: (usize, usize),
    /// Bodies up to this size are given from memory.
    pub stdin_memory_bytes: usize,
}

/// Where a forward goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `http://HOST:PORT/PATH`
    Http { authority: String, path: String },
    /// `unix:/run/app.sock:/PATH`
    Unix { socket: PathBuf, path: String },
}

impl Target {
    /// Reads `http://HOST:PORT/PATH` or `unix:/SOCKET:/PATH`. (STAND-IN until the handlers are merged.)
    pub fn parse(text: &str) -> Result<Target, String> {
        if let Some(rest) = text.strip_prefix("http://") {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !authority.is_empty() {
                let path = if path.is_empty() { "/" } else { path };
                return Ok(Target::Http { authority: authority.into(), path: path.into() });
            }
        }
        if let Some((socket, path)) = text.strip_prefix("unix:").and_then(|t| t.split_once(':'))
            && socket.starts_with('/')
            && path.starts_with('/')
        {
            return Ok(Target::Unix { socket: socket.into(), path: path.into() });
        }
        Err("expected http://HOST:PORT/PATH or unix:/SOCKET:/PATH".to_owned())
    }
}

/// A configured forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSettings {
    pub target: Target,
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Bytes kept of the answer.
    pub answer_bytes: usize,
}

/// A handler that can run attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    Command(CommandSettings),
    Forward(ForwardSettings),
}

/// How an attempt ended, as its handler saw it.
#[derive(Debug, Clone)]
pub struct Report {
    pub outcome: Outcome,
    /// The handler itself cannot run (not found, 126/127, spawn error, connection refused): it backs
    /// off as a whole and the attempt does not count.
    pub handler_broken: bool,
    /// The handler's own wish (Retry-After).
    pub retry_after: Option<Duration>,
    pub record: Record,
}

impl Handler {
    /// Runs one attempt to its end. Never fails: whatever happens is an outcome.
    pub async fn run(&self, _facts: Facts) -> Report {
        unimplemented!()
    }
}
