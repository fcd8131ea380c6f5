//! Reads values of a provider file and reports errors.

use crate::document::{Fault, Section, Value, nearest};
use crate::model::is_header_name;

pub(super) fn header_names(names: Vec<String>) -> Result<Vec<String>, String> {
    match names.iter().find(|name| !is_header_name(name)) {
        Some(bad) => Err(format!("'{bad}' is not a header name")),
        None if names.is_empty() => Err("the list is empty".to_owned()),
        None => Ok(names),
    }
}

/// A value that was read, converted. An error becomes a problem at its position.
pub(super) fn parsed<T, U, F: Into<Fault>>(
    section: &Section<'_>,
    read: Option<Value<T>>,
    parse: impl FnOnce(T) -> Result<U, F>,
) -> Option<U> {
    Some(read?.convert(section.problems(), parse)?.value)
}

/// Reads a required key whose value is one of these words.
pub(super) fn word<T: Copy>(
    section: &Section<'_>,
    key: &'static str,
    words: &[(&str, T)],
) -> Option<T> {
    parsed(section, section.required::<String>(key), |text| {
        if let Some((_, meant)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meant);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("must be one of {}, not '{text}'", known.join(", "));
        Err(match nearest(&text, known) {
            Some(near) => Fault::new(message, format!("did you mean '{near}'?")),
            None => message.into(),
        })
    })
}

/// Reads a required key whose value is one of these words, and returns the word.
pub(super) fn one_of<const N: usize>(
    section: &Section<'_>,
    key: &'static str,
    words: [&'static str; N],
) -> Option<&'static str> {
    word(section, key, &words.map(|word| (word, word)))
}
