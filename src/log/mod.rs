//! Where log lines go: readable on a terminal, fields in the journal, one JSON object a line otherwise.
//!
//! For the commands that serve. Payloads, secrets, header values and query strings are never given to
//! `tracing` in the first place. What must stay true: every line has the fields of the spans around it, as
//! fields of its own; text from outside cannot end a line or move a terminal's cursor; and after
//! [`in_background`] no caller waits for the log: where it stalls (a pipe that is not read, a journal that
//! hangs), lines are dropped and counted, since a delivery that is answered too late is the greater harm.
//!
//! The formats are made here because `tracing-subscriber`'s JSON keeps the fields of spans in objects of
//! their own, and `tracing-journald` sends from the thread that logs, which would wait for the journal. So is
//! the queue: around `tracing-appender`, which counts no line that the log refuses and reports none, it would
//! be a dozen lines longer.

mod fields;
mod form;
mod sink;

use std::ffi::OsStr;
use std::io::IsTerminal;

use rustix::fs::fstat;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use fields::Lines;
use form::Form;
use sink::Sink;

pub use sink::{Background, in_background, lost_lines};

/// What other crates tell of themselves. The HTTP server tells of its threads at `info`; and for each
/// request that is none it has a line at `error`, which a scanner could fill a disk with: `http` sums
/// them.
const QUIET: &str = "actix_server=warn,actix_http=off";

/// A subscriber of which a test sees the lines, as JSON.
#[cfg(test)]
pub(crate) fn kept() -> (impl tracing::Subscriber, std::sync::Arc<std::sync::Mutex<Vec<u8>>>) {
    let (sink, kept) = Sink::kept(Form::Json);
    (tracing_subscriber::registry().with(Lines::new(sink)), kept)
}

/// Starts logging to standard error at `filter` (such as `info` or `hooklatch=debug`). `journal` is the
/// variable JOURNAL_STREAM, by which systemd says that standard error is the journal (systemd.exec(5)).
/// Called once, by the commands that serve; a second call changes nothing.
///
/// # Errors
/// The filter's text, where it is none.
pub fn start(filter: &str, journal: Option<&OsStr>) -> Result<(), String> {
    let filter: Targets =
        format!("{QUIET},{filter}").parse().map_err(|error| format!("'{filter}': {error}"))?;
    let stderr = std::io::stderr();
    let place = fstat(&stderr).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let form = Form::choose(stderr.is_terminal(), journal, place);
    let lines = Lines::new(Sink::open(form));
    // Refused where it was started before.
    drop(tracing_subscriber::registry().with(filter).with(lines).try_init());
    Ok(())
}
