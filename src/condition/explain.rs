//! A decision line by line, for a person.

use serde::{Deserialize, Serialize};

use super::{Condition, Line, Values, all};
use crate::payload::{Found, Unclear};

/// The most characters of a value that are shown.
const SHOWN: usize = 60;

/// One table of a condition, decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableResult {
    /// `None` if it cannot be decided.
    pub holds: Option<bool>,
    pub lines: Vec<LineResult>,
}

/// One line of a condition, decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineResult {
    /// The line as a person reads it, such as `/ref is "refs/heads/main"`.
    pub line: String,
    /// `None` if it cannot be decided.
    pub holds: Option<bool>,
    /// What stands at its place, shortened and without control characters: `"refs/heads/dev"`, `nothing`.
    pub read: String,
    /// Why it cannot be decided.
    pub why: Option<String>,
}

impl Condition {
    /// What each line reads, and whether it holds.
    pub fn explain(&self, values: &Values<'_>) -> Vec<TableResult> {
        let table = |lines: &Vec<Line>| TableResult {
            holds: all(lines.iter().map(|line| line.decide(values))).ok(),
            lines: lines.iter().map(|line| line.explain(values)).collect(),
        };
        self.tables.iter().map(table).collect()
    }
}

impl Line {
    fn explain(&self, values: &Values<'_>) -> LineResult {
        let result = self.decide(values);
        LineResult {
            line: self.to_string(),
            holds: result.as_ref().ok().copied(),
            read: shown(values.at(&self.place)),
            why: result.err().map(|doubt| doubt.why.to_string()),
        }
    }
}

fn shown(reading: Result<&[Found], Unclear>) -> String {
    let found = match reading {
        Ok([]) => return "nothing".to_owned(),
        Ok(found) => found,
        Err(unclear) => return unclear.to_string(),
    };
    // One more tells that there is more.
    let each = found.iter().take(SHOWN + 1).map(|one| match one {
        Found::Text(text) => format!("{:?}", short(text)),
        Found::Number(raw) | Found::Json(raw) => short(raw).escape_debug().to_string(),
        Found::Bool(value) => value.to_string(),
    });
    short(&each.collect::<Vec<_>>().join(", "))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
