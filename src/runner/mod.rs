//! Starts commands, reads their outputs, and follows every one of them to its end.
//!
//! [`server`] is a separate process, which `cmd::runner` starts and which outlives the receiver.
//! `handler::runner_client` reaches it by [`client`], with the [`message`]s of one small protocol: a Start has
//! the event's facts, and the answer is how the attempt ended. No process, pipe or process id is seen outside.
//!
//! Must stay true: a process group is signalled only while its leader, running or not yet reaped, keeps the
//! number from being given to another process; only the code here ends an attempt; and a command's exit
//! status counts more than any timer.

mod attempt;
mod attend;
mod capture;
pub mod client;
mod commands;
mod connection;
mod descriptors;
pub mod folder;
mod held_signals;
pub mod incarnation;
pub mod launch;
pub(crate) mod ledger;
mod lifecycle;
pub mod message;
mod oom;
mod orphaned;
mod peer;
mod reap;
pub mod reexec;
pub mod script;
pub mod server;
mod spawn;
mod stdin;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;
mod zombies;

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::model::{Facts, Timestamp};
use crate::values::{self, Refused, Template, Values};

pub use capture::Captured;
pub use commands::{CommandList, Configured, Reload};
pub use held_signals::{hold_signals, release_signals};
pub use spawn::{PATH, handle_ignored};
pub use wire::WireError;

/// The values of a command, and where they stand in its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandValues {
    pub values: Values,
    /// The arguments behind the program.
    pub arguments: Vec<Template>,
}

/// A configured command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettings {
    /// Program and arguments, as configured; never a shell line. A program without a slash is looked up in PATH.
    pub argv: Vec<String>,
    /// Working directory; [`CommandSettings::home`] if it is not set.
    pub cwd: Option<PathBuf>,
    /// Home directory of the user that commands run as: HOME, and the default working directory.
    pub home: PathBuf,
    /// Environment in addition to the fixed one, with all values resolved. It may replace PATH, HOME and LANG, but
    /// no variable that starts with `HOOKLATCH_`.
    pub env: Vec<(String, String)>,
    /// How long the command may run. The time of a suspended machine does not count.
    pub timeout: Duration,
    /// How long it is from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Bytes kept of each output: head, tail.
    pub output_bytes: (usize, usize),
    /// Set if a client waits for the output: so many bytes are kept of the head of standard output.
    pub answer_bytes: Option<usize>,
    /// Bodies up to this size are kept in memory, larger ones in an unlinked file.
    pub stdin_memory_bytes: usize,
    /// What it gets of an event besides the body and the fixed variables.
    pub values: Option<CommandValues>,
}

impl CommandSettings {
    /// The command with the values of this event: its arguments, and a variable for each.
    fn for_event(&self, facts: &Facts) -> Result<Cow<'_, Self>, Refused> {
        let Some(CommandValues { values, arguments }) = &self.values else {
            return Ok(Cow::Borrowed(self));
        };
        let texts = values.of(facts)?;
        let arguments = values::arguments(arguments, &texts)?;
        let argv = self.argv.iter().take(1).cloned().chain(arguments).collect();
        let env = self.env.iter().cloned().chain(texts).collect();
        Ok(Cow::Owned(CommandSettings { argv, env, values: None, ..self.clone() }))
    }
}

/// How a started attempt of a command ended. The ledger and the wire carry it in this form; its
/// outputs travel apart from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The command was reaped.
    Exited(Exited),
    /// How the command ended cannot be known, for this reason.
    Lost(String),
}

/// The end of a command that was reaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// The exit status, as the kernel reports it.
    pub status: Status,
    /// Why the runner sent it a signal, if it did.
    pub asked_by: Option<AskedBy>,
    /// The resources that it used.
    pub usage: Usage,
    /// Standard output.
    #[serde(skip)]
    pub stdout: Captured,
    /// Standard error.
    #[serde(skip)]
    pub stderr: Captured,
}

impl Ended {
    /// Standard output and standard error of a command that was reaped.
    fn outputs(&self) -> Option<[&Captured; 2]> {
        match self {
            Ended::Exited(exited) => Some([&exited.stdout, &exited.stderr]),
            Ended::Lost(_) => None,
        }
    }

    /// The end without its outputs, for the ledger and for a message's header.
    fn without_outputs(&self) -> Self {
        match self {
            Ended::Exited(one) => {
                Ended::Exited(Exited::without_outputs(one.status, one.asked_by, one.usage))
            }
            Ended::Lost(reason) => Ended::Lost(reason.clone()),
        }
    }
}

impl Exited {
    /// An end whose outputs are not known.
    pub fn without_outputs(status: Status, asked_by: Option<AskedBy>, usage: Usage) -> Self {
        Exited { status, asked_by, usage, stdout: Captured::default(), stderr: Captured::default() }
    }
}

/// The resources that a command and the children that it waited for have used, as the kernel counts them at
/// the reap (getrusage(2)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in milliseconds, user and system.
    pub cpu_millis: u64,
    /// The largest resident set of any of the processes, in bytes; at least the runner's own when it started the
    /// command, because the kernel counts from there.
    pub memory_bytes: u64,
    /// When the runner reaped it; `None` in tests.
    pub ended_at: Option<Timestamp>,
}

/// How a process ended, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It exited with this status, 0 to 255.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Why the runner asked a command to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskedBy {
    /// It reached its time-out.
    TimeOut,
    /// The process that runs it stops and does not wait any longer.
    Stop,
    /// An operator cancelled it.
    Cancelled,
}

/// A request, with its reason, that attempts end now. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(watch::Sender<Option<AskedBy>>);

impl Cancellation {
    /// Cancels permanently. The first reason stands.
    pub fn cancel(&self, reason: AskedBy) {
        self.0.send_if_modified(|first| first.replace(first.unwrap_or(reason)).is_none());
    }

    /// The reason, if it is cancelled.
    fn reason(&self) -> Option<AskedBy> {
        *self.0.borrow()
    }

    /// Waits until it is cancelled. Returns the reason.
    pub async fn cancelled(&self) -> AskedBy {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(reason) = *changes.borrow_and_update() {
                return reason;
            }
            // `self` keeps the channel open.
            let _open = changes.changed().await;
        }
    }
}
