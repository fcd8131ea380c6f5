//! The demo's ledger: what was sent, answered, stored and run, held against what was promised.

use anstyle::AnsiColor;
use comfy_table::{Cell, Color};
use serde::Serialize;

use crate::cmd::output;
use crate::exit::Failure;

/// One kind of delivery with what is promised of it and what was seen.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    /// What was sent, for people.
    pub(super) what: &'static str,
    pub(super) source: &'static str,
    /// Deliveries sent.
    pub(super) sent: usize,
    pub(super) promised: Counts,
    pub(super) seen: Counts,
}

/// How often each thing happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Answered `accepted`.
    pub(super) accepted: usize,
    /// Answered `duplicate`.
    pub(super) duplicate: usize,
    /// Answered 401.
    pub(super) refused: usize,
    /// Events in the store that came of these deliveries.
    pub(super) stored: usize,
    /// Times a handler was started, by the handlers' own ledger.
    pub(super) started: usize,
    /// Jobs that ended `succeeded`.
    pub(super) succeeded: usize,
}

impl Entry {
    pub(super) fn kept(&self) -> bool {
        self.promised == self.seen
    }
}

/// Prints the ledger as a table, with a verdict for each line.
pub(super) fn print(entries: &[Entry]) -> Result<(), Failure> {
    let row = |entry: &Entry| {
        let seen = &entry.seen;
        let verdict = if entry.kept() {
            Cell::new("as promised").fg(Color::Green)
        } else {
            Cell::new(format!("PROMISED {:?}", entry.promised)).fg(Color::Red)
        };
        vec![
            Cell::new(entry.what),
            Cell::new(entry.source),
            Cell::new(entry.sent),
            Cell::new(answers(seen)),
            Cell::new(count(seen.stored, "event")),
            Cell::new(count(seen.started, "start")),
            Cell::new(seen.succeeded),
            verdict,
        ]
    };
    let head = ["DELIVERY", "SOURCE", "SENT", "ANSWERED", "STORED", "RUN", "SUCCEEDED", ""];
    output::table(&head, entries.iter().map(row).collect(), "nothing was sent")?;
    let kept = entries.iter().filter(|entry| entry.kept()).count();
    let style = if kept == entries.len() { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    output::line("")?;
    output::line(format_args!("{style}{kept} of {} lines as promised{style:#}", entries.len()))
}

fn answers(seen: &Counts) -> String {
    let some = |(count, word): (usize, &str)| (count > 0).then(|| format!("{count} {word}"));
    [(seen.accepted, "accepted"), (seen.duplicate, "duplicate"), (seen.refused, "refused (401)")]
        .into_iter()
        .filter_map(some)
        .collect::<Vec<_>>()
        .join(", ")
}

fn count(count: usize, what: &str) -> String {
    match count {
        0 => "-".to_owned(),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
