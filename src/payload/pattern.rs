//! Patterns for texts of events.

use std::fmt;

use regex_lite::{Regex, RegexBuilder};
use serde::{Serialize, Serializer};

use crate::limits::{PATTERN_PROGRAM_BYTES, VALUE_PATTERN_BYTES};

/// A compiled pattern. A search takes time in proportion to its program and the text.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The pattern as it is written.
    text: String,
    program: Regex,
}

impl Pattern {
    /// A regular expression, found anywhere in a text. An `Err` is the problem in words.
    pub fn expression(text: &str) -> Result<Self, String> {
        Self::compile(text, text, PATTERN_PROGRAM_BYTES)
    }

    /// A whole text, in which `*` stands for any characters but `/`, and `**` for any.
    pub fn glob(text: &str) -> Result<Self, String> {
        let any = text.split("**").map(|part| {
            let fixed: Vec<String> = part.split('*').map(regex_lite::escape).collect();
            fixed.join("[^/]*")
        });
        let program = format!("(?s)^{}$", any.collect::<Vec<_>>().join(".*"));
        Self::compile(text, &program, PATTERN_PROGRAM_BYTES)
    }

    /// A regular expression that a text fits from its first character to its last.
    pub fn whole(text: &str) -> Result<Self, String> {
        let compile = |program: &str| Self::compile(text, program, VALUE_PATTERN_BYTES);
        // Alone first: `a)|(b` is a pattern only within the brackets, and would not be anchored there.
        let compiled = compile(text).and_then(|_| compile(&format!(r"\A(?:{text})\z")));
        compiled.map_err(|error| format!("'{text}' is not a pattern: {error}"))
    }

    fn compile(text: &str, program: &str, most_bytes: usize) -> Result<Self, String> {
        let program = RegexBuilder::new(program).size_limit(most_bytes).build();
        let program = program.map_err(|error| error.to_string())?;
        Ok(Pattern { text: text.to_owned(), program })
    }

    pub fn matches(&self, text: &str) -> bool {
        self.program.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
