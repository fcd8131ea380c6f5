//! What every command does that changes much at once: it asks first.

use std::io::{BufRead, IsTerminal, Write};

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

/// After a no. It is an answer and not an error.
pub(super) fn declined() -> Exit {
    super::output::note("nothing was changed");
    Exit::No
}
