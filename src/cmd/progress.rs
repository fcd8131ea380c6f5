//! The bar that shows how far a command is: on standard error, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `length` steps, and `columns` behind it as indicatif's templates write them.
pub(super) fn bar(length: u64, columns: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    // A template that cannot be read leaves the library's own.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:30}} {columns}")) {
        bar.set_style(style);
    }
    bar
}

/// The bar of a command that changes many of one kind; none where a program reads.
pub(super) fn counted(length: u64, noun: &str, json: bool) -> ProgressBar {
    match json {
        true => ProgressBar::hidden(),
        false => bar(length, &format!("{{pos}}/{{len}} {noun}")),
    }
}
