//! How a drill is seen: a bar while it goes on, a table or JSON at its end.

use anstyle::AnsiColor;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cmd::output::{self, Field};
use crate::cmd::progress;
use crate::exit::Failure;

use super::account::{Account, Broken};
use super::load::Tally;

/// Broken promises that the table lists; `--json` has all.
const LISTED: usize = 10;

/// How far it is.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(kills: u16) -> Self {
        Progress(progress::bar(u64::from(kills), "{pos}/{len} kills  {msg}"))
    }

    pub(super) fn killed(&self) {
        self.0.inc(1);
    }

    pub(super) fn saw(&self, tally: &Tally) {
        let (sent, acknowledged) = (tally.sent(), tally.acknowledged);
        self.0.set_message(format!("sent {sent}, acknowledged {acknowledged}"));
    }

    pub(super) fn settles(&self, tally: &Tally) {
        let acknowledged = tally.acknowledged;
        self.0.set_message(format!("acknowledged {acknowledged}, waiting for the handlers"));
    }

    pub(super) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// A whole drill.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether every promise held.
    pub(super) as_promised: bool,
    /// Repeats its choices.
    pub(super) seed: u64,
    /// Receivers killed.
    pub(super) kills: u16,
    /// Runners killed.
    pub(super) runner_kills: usize,
    /// Deliveries without an answer: a kill cut them off, or the next receiver was not there yet.
    pub(super) unanswered: usize,
    /// Deliveries answered 503.
    pub(super) refused: usize,
    /// The account.
    pub(super) ledger: Account,
}

/// Prints the ledger as a table with what is promised of each line, and what broke by event.
pub(super) fn print(report: &Report) -> Result<(), Failure> {
    let ledger = &report.ledger;
    let deliveries = match (report.unanswered, report.refused) {
        (cut, 0) => format!("events; {cut} deliveries had no answer and were repeated"),
        (cut, busy) => {
            format!("events; {cut} deliveries had no answer and {busy} a 503, and were repeated")
        }
    };
    let rows = [
        ("sent", ledger.sent, deliveries.as_str()),
        ("acknowledged", ledger.acknowledged, "events answered 2xx"),
        ("stored", ledger.stored, "events in the store"),
        ("started", ledger.started, "attempts begun, by the handlers' own ledger"),
        ("finished", ledger.finished, "attempts that came to their end"),
        ("lost", ledger.lost, "events acknowledged and not there with all their jobs"),
        ("doubled", ledger.doubled, "events stored or run again without a right to it"),
        ("unknown", ledger.unknown, "jobs whose outcome nobody knows, held for a person"),
    ];
    let row = |(what, count, meaning): (&str, usize, &str)| {
        vec![what.into(), verdict(count, what, report), meaning.into()]
    };
    output::table(&["LEDGER", "COUNT", ""], rows.map(row).into(), "nothing was sent")?;
    output::line("")?;
    let broken = &ledger.broken;
    if broken.is_empty() {
        let good = AnsiColor::Green.on_default();
        let kills = output::count(u64::from(report.kills), "kill");
        let runners = match report.runner_kills {
            0 => String::new(),
            kills => format!(" and {kills} of its runner"),
        };
        return output::line(format_args!(
            "{good}every promise held{good:#} through {kills}{runners}"
        ));
    }
    let bad = AnsiColor::Red.on_default();
    let count = output::count(broken.len() as u64, "broken promise");
    output::line(format_args!("{bad}{count}{bad:#}\n"))?;
    let row = |one: &Broken| vec![(&one.event).into(), (&one.what).into()];
    let rows = broken.iter().take(LISTED).map(row).collect();
    output::table(&["EVENT", "SEEN"], rows, "")?;
    match broken.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => output::line(format_args!(" and {more} more; --json lists all")),
    }
}

/// The colour of a count of which nothing is promised to be there.
fn verdict(count: usize, what: &str, report: &Report) -> Field {
    let Report { ledger, runner_kills, .. } = report;
    let bad = match what {
        "lost" => ledger.lost > 0,
        "doubled" => ledger.doubled > 0,
        "unknown" => ledger.unknown > 0 && *runner_kills == 0,
        _ => return count.into(),
    };
    output::painted(count, if bad { AnsiColor::Red } else { AnsiColor::Green })
}
