//! Asks before a command changes many things at once.

use std::io::{BufRead, IsTerminal, Write};

use crate::exit::{Exit, Failure};

/// Fails if there is no terminal on which to answer a question.
pub(super) fn need_terminal() -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Exit::Usage
        .failure("there is no terminal to ask for confirmation on")
        .help("--dry-run counts, --yes does it without a question"))
}

/// Asks on the terminal. Every answer but yes is no.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut err = anstream::stderr().lock();
    write!(err, "{question}? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Failure::io("read the answer"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The exit after a no, which is an answer and not an error.
pub(super) fn declined() -> Exit {
    super::output::note("nothing was changed");
    Exit::No
}
