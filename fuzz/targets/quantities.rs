//! Durations and sizes of the configuration.

use std::time::Duration;

use hooklatch::document::{Document, FromToml, Problems, Size};
use hooklatch::limits::Unit;

/// The largest upper bound of all limits.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(Size(bytes)) = read::<Size>(text) {
        assert_eq!(read::<Size>(&Unit::Bytes.show(bytes)), Some(Size(bytes)), "shown and read");
    }
    // A duration over every limit is refused elsewhere, and need not be printed exactly.
    if let Some(duration) = read::<Duration>(text).filter(|duration| *duration <= LONGEST) {
        let millis = duration.as_millis() as u64;
        let shown = read::<Duration>(&Unit::Millis.show(millis));
        assert_eq!(shown, Some(Duration::from_millis(millis)), "shown and read");
        let printed = humantime_of(duration);
        assert_eq!(read::<Duration>(&printed), Some(duration), "printed and read");
    }
    if let Some(number) = read_bare::<u64>(text) {
        assert_eq!(read_bare::<u64>(&number.to_string()), Some(number));
    }
}

/// Reads the text as a string in a file.
fn read<T: FromToml>(text: &str) -> Option<T> {
    read_bare(&serde_json::to_string(text).ok()?)
}

/// Reads the text as a bare value in a file.
fn read_bare<T: FromToml>(value: &str) -> Option<T> {
    let (text, problems) = (format!("x = {value}\n"), Problems::new());
    let document = Document::parse("f.toml", &text, &problems)?;
    let root = document.root(&problems);
    let read = root.get::<T>("x");
    root.finish();
    let well = problems.is_empty();
    assert!(read.is_some() || !well, "neither a value nor a problem");
    read.filter(|_| well).map(|read| read.value)
}

/// Prints a duration as answers and logs do.
fn humantime_of(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
