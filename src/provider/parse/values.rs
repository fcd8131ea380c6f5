//! Reads values of a provider file and reports errors.

use crate::document::{Fault, OneOrMany, Section, Value, nearest};
use crate::model::is_header_name;

pub(super) fn header_names(
    section: &Section<'_>,
    names: Option<Value<OneOrMany>>,
) -> Option<Vec<String>> {
    parsed(section, names, |OneOrMany(names)| {
        match names.iter().find(|name| !is_header_name(name)) {
            Some(bad) => Err(format!("'{bad}' is not a header name")),
            None if names.is_empty() => Err("the list is empty".to_owned()),
            None => Ok(names),
        }
    })
}

/// [`Section::convert`] without the position.
pub(super) fn parsed<T, U, F: Into<Fault>>(
    section: &Section<'_>,
    read: Option<Value<T>>,
    parse: impl FnOnce(T) -> Result<U, F>,
) -> Option<U> {
    section.convert(read, parse).map(|read| read.value)
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
