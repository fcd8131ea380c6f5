//! The part of `probe` that needs nothing but pure decisions, for the crate of `packaging/mutants` too.

use crate::condition::{Condition, TableResult, Values};
use crate::config::read_when;
use crate::document::{Document, Problems, Section};
use crate::limits::Limits;
use crate::model::Headers;
use crate::payload::{Event, keep_parameter};

/// What a condition, written as the value of `when`, comes to for a body: whether it holds, or why that cannot be
/// decided.
///
/// # Errors
/// The problems of a condition that the configuration refuses.
pub fn condition(when: &str, body: &[u8]) -> Result<Result<bool, String>, Vec<String>> {
    with_condition(when, body, |when, values| {
        when.decide(values).map_err(|doubt| doubt.to_string())
    })
}

/// The lines of a condition as a person reads them.
///
/// # Errors
/// The problems that [`condition`] returns.
pub fn explained(when: &str, body: &[u8]) -> Result<Vec<TableResult>, Vec<String>> {
    with_condition(when, body, Condition::explain)
}

fn with_condition<T>(
    when: &str,
    body: &[u8],
    look: impl FnOnce(&Condition, &Values<'_>) -> T,
) -> Result<T, Vec<String>> {
    let when = configured(&format!("when = {when}\n"), read_when)?;
    let most = usize::try_from(Limits::default().condition_kept_bytes).unwrap_or(usize::MAX);
    with_event(body, |event| {
        Ok(look(&when.condition, &Values::read(event, when.condition.places(), most)))
    })
}

/// What `read` reads of a configuration.
///
/// # Errors
/// Its problems.
pub(super) fn configured<T>(
    text: &str,
    read: impl FnOnce(&Section<'_>) -> Option<T>,
) -> Result<T, Vec<String>> {
    let problems = Problems::new();
    let document = Document::parse("f", text, &problems);
    let read = document.as_ref().and_then(|document| read(&document.root(&problems)));
    let found = problems.into_sorted();
    let printed = || found.iter().map(ToString::to_string).collect();
    read.filter(|_| found.is_empty()).ok_or_else(printed)
}

pub(super) fn with_event<T>(body: &[u8], look: impl FnOnce(&Event<'_>) -> T) -> T {
    let mut headers = Headers::new();
    headers.push("X-One", "1");
    keep_parameter("q=a+b", "q", &mut headers);
    look(&Event {
        id: "e1",
        event_type: "push",
        headers: &headers,
        body,
        form_field: None,
        inflated_bytes: 1 << 20,
    })
}
