//! Long work in steps, with a progress bar on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Exit, Failure};

use super::signals::Signals;

/// A bar of `length` steps, followed by `columns` of indicatif's templates.
pub(super) fn bar(length: u64, columns: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    // A template that cannot be read leaves the library's own.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:30}} {columns}")) {
        bar.set_style(style);
    }
    bar
}

/// Repeats `step`, which returns how many it has done, until it returns `None`. A signal ends the work after the
/// current step, and is a failure because not all was done. With `json` there is no bar.
pub(super) async fn walk(
    length: u64,
    noun: &str,
    json: bool,
    mut step: impl AsyncFnMut() -> Result<Option<u64>, Failure>,
) -> Result<(), Failure> {
    let mut signals = Signals::register()?;
    let bar = match json {
        true => ProgressBar::hidden(),
        false => bar(length, &format!("{{pos}}/{{len}} {noun}")),
    };
    let walked = loop {
        match step().await {
            Ok(Some(done)) => bar.inc(done),
            ended => break ended.map(|_| ()),
        }
        if let Some(signal) = signals.pending().await {
            break Err(Exit::Unavailable.failure(format!("ended by {signal}")));
        }
    };
    bar.finish_and_clear();
    walked
}
