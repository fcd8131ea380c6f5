//! A pattern for a whole value.

use std::fmt;

use regex_lite::{Regex, RegexBuilder};
use serde::{Serialize, Serializer};

use crate::limits::VALUE_PATTERN_BYTES;

/// A regular expression that a text fits from its first character to its last.
#[derive(Debug, Clone)]
pub struct WholePattern {
    written: String,
    regex: Regex,
}

impl WholePattern {
    /// Compiles a pattern; an `Err` says what is wrong.
    pub fn parse(written: &str) -> Result<Self, String> {
        let compile = |text: &str| {
            let compiled = RegexBuilder::new(text).size_limit(VALUE_PATTERN_BYTES).build();
            compiled.map_err(|error| format!("'{written}' is not a pattern: {error}"))
        };
        // Alone first: `a)|(b` is a pattern only within the brackets, and would not be anchored there.
        compile(written)?;
        let regex = compile(&format!(r"\A(?:{written})\z"))?;
        Ok(WholePattern { written: written.to_owned(), regex })
    }

    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for WholePattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for WholePattern {}

impl fmt::Display for WholePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl Serialize for WholePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}
