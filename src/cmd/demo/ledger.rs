//! The demo's ledger: what was sent, answered, stored and run, held against what was promised.

use anstyle::AnsiColor;
use serde::Serialize;

use crate::cmd::output::{self, Field};
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
            output::painted("as promised", AnsiColor::Green)
        } else {
            output::painted(format!("PROMISED {:?}", entry.promised), AnsiColor::Red)
        };
        vec![
            entry.what.into(),
            entry.source.into(),
            entry.sent.into(),
            answers(seen).into(),
            number(seen.stored),
            number(seen.started),
            number(seen.succeeded),
            verdict,
        ]
    };
    let head = ["DELIVERY", "SOURCE", "SENT", "ANSWERED", "STORED", "RUN", "DONE", ""];
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

fn number(number: usize) -> Field {
    match number {
        0 => "-".into(),
        _ => number.into(),
    }
}
