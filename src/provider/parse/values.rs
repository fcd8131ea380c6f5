//! Reads values of a provider file and reports errors.

use crate::document::{OneOrMany, Section, Value, nearest};
use crate::model::is_header_name;

pub(super) fn header_names(
    section: &Section<'_>,
    value: Option<Value<OneOrMany>>,
) -> Option<Vec<String>> {
    parsed(section, value, |OneOrMany(names)| {
        match names.iter().find(|name| !is_header_name(name)) {
            Some(bad) => Err(format!("'{bad}' is not a header name")),
            None if names.is_empty() => Err("the list is empty".to_owned()),
            None => Ok(names.clone()),
        }
    })
}

/// Reads a value further. An error becomes a problem at the position of the value.
pub(super) fn parsed<T, U>(
    section: &Section<'_>,
    value: Option<Value<T>>,
    read: impl FnOnce(&T) -> Result<U, String>,
) -> Option<U> {
    let value = value?;
    match read(&value.value) {
        Ok(read) => Some(read),
        Err(wrong) => {
            section.problems().push(value.at.problem(wrong, None));
            None
        }
    }
}

/// Reads a required key whose value is one of these words.
pub(super) fn word<T: Copy>(
    section: &Section<'_>,
    key: &'static str,
    words: &[(&str, T)],
) -> Option<T> {
    let value = section.required::<String>(key)?;
    if let Some((_, meant)) = words.iter().find(|(word, _)| *word == value.value) {
        return Some(*meant);
    }
    let known = || words.iter().map(|(word, _)| *word);
    let help = nearest(&value.value, known()).map(|near| format!("did you mean '{near}'?"));
    let all = known().collect::<Vec<_>>().join(", ");
    let message = format!("must be one of {all}, not '{}'", value.value);
    section.problems().push(value.at.problem(message, help));
    None
}
