//! Long work in steps, with a bar on standard error where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Exit, Failure};

use super::serve::Signals;

/// A bar of `length` steps, and `columns` behind it as indicatif's templates write them.
pub(super) fn bar(length: u64, columns: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    // A template that cannot be read leaves the library's own.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:30}} {columns}")) {
        bar.set_style(style);
    }
    bar
}

/// Repeats `step`, which says how many it has done, until it returns `None`, or a signal comes: that is a failure, as not
/// all was done. A step that has begun is awaited and counted. The bar is hidden where a program reads.
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
            break Err(Failure::new(Exit::Unavailable, format!("ended by {signal}")));
        }
    };
    bar.finish_and_clear();
    walked
}
