//! Log lines: text on a terminal, fields in the journal, one JSON object a line otherwise.
//!
//! The commands that serve use it. They never pass payloads, secrets, header values or query strings to `tracing`. What
//! must stay true: every line has the fields of the spans around it as fields of the line; text from outside cannot end
//! a line or move a terminal's cursor; and after [`in_background`] no thread waits for the log. If the log stalls,
//! lines are dropped and counted, because a late answer to a provider is worse.
//!
//! The formats are ours because the JSON of `tracing-subscriber` nests the fields of spans in objects, and
//! `tracing-journald` sends from the thread that logs, which then waits for the journal. The
//! queue is ours because `tracing-appender` neither counts nor reports lines that the log refuses; code around it
//! would be a dozen lines longer.

mod fields;
mod format;
mod layer;
mod writer;

use std::ffi::OsStr;
use std::io::IsTerminal;

use rustix::fs::fstat;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use format::Format;
use layer::Lines;
use writer::Writer;

pub use writer::{Background, in_background, lost_lines};

/// Lines of other crates. The HTTP server logs its threads at `info`. It also logs each malformed request at
/// `error`, with which a scanner could fill the disk; `http` counts those and logs sums.
const QUIET: &str = "actix_server=warn,actix_http=off";

/// A subscriber whose JSON lines a test reads.
#[cfg(test)]
pub(crate) fn kept() -> (impl tracing::Subscriber, std::sync::Arc<std::sync::Mutex<Vec<u8>>>) {
    let (writer, kept) = Writer::kept(Format::Json);
    (tracing_subscriber::registry().with(Lines(writer)), kept)
}

/// Starts logging to standard error at `filter` (such as `info` or `hooklatch=debug`). `journal` is the
/// variable JOURNAL_STREAM, with which systemd says that standard error is the journal (systemd.exec(5)).
/// Called once, by the commands that serve; a second call changes nothing.
///
/// # Errors
/// The filter does not parse.
pub fn start(filter: &str, journal: Option<&OsStr>) -> Result<(), String> {
    let filter: Targets =
        format!("{QUIET},{filter}").parse().map_err(|error| format!("'{filter}': {error}"))?;
    let stderr = std::io::stderr();
    let place = fstat(&stderr).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let format = Format::choose(stderr.is_terminal(), journal, place);
    let lines = Lines(Writer::open(format));
    // A second call is refused.
    drop(tracing_subscriber::registry().with(filter).with(lines).try_init());
    Ok(())
}
