//! What every command does that changes much at once: it asks first, and shows how far it is.

use std::io::{BufRead, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Exit, Failure};

/// Refuses where a question would have nobody to answer it.
pub(super) fn somebody_is_there() -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "there is no terminal to ask for confirmation on")
        .help("--dry-run counts, --yes does it without a question"))
}

/// Asks; anything but a yes is a no.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut err = anstream::stderr().lock();
    write!(err, "{question}? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::new(Exit::Io, format!("failed to read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// On standard error, and only where that is a terminal and no program reads.
pub(super) fn bar(length: u64, noun: &str, json: bool) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    // A template that cannot be read leaves the library's own.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {noun}")) {
        bar.set_style(style);
    }
    bar
}
