//! The shapes of values: what `is` can say.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a value's text may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No control character.
    Line,
    /// The same, but for newlines and tabs.
    Text,
    /// `[A-Za-z0-9][A-Za-z0-9._-]*`
    Word,
    /// A name of git's: a word that may also have `/@+#=`, and that `git check-ref-format` would take.
    Ref,
    /// 40 or 64 hexadecimal digits.
    Sha,
    /// A number of 64 bits, as it is usually written.
    Int,
    /// A link without a space or a quote.
    Url,
    /// Any JSON, as it is written.
    Json,
}

impl Shape {
    pub const ALL: [(&'static str, Shape); 8] = [
        ("line", Shape::Line),
        ("text", Shape::Text),
        ("word", Shape::Word),
        ("ref", Shape::Ref),
        ("sha", Shape::Sha),
        ("int", Shape::Int),
        ("url", Shape::Url),
        ("json", Shape::Json),
    ];

    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, shape)| *shape == self).map_or("", |(name, _)| name)
    }

    /// Whether a text of it can stand in an argument without another rule.
    pub fn is_narrow(self) -> bool {
        !matches!(self, Shape::Text | Shape::Json)
    }

    pub fn fits(self, text: &str) -> bool {
        match self {
            Shape::Line => !text.chars().any(char::is_control),
            Shape::Text => !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'),
            Shape::Word => is_made_of(text, "._-"),
            Shape::Ref => is_ref(text),
            Shape::Sha => {
                matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
            }
            Shape::Int => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
            Shape::Url => is_url(text),
            Shape::Json => true,
        }
    }
}

/// Letters, digits and `other`, with a letter or a digit first.
fn is_made_of(text: &str, other: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || other.contains(c))
}

/// `@{` and the characters that git refuses are in no such text.
fn is_ref(text: &str) -> bool {
    is_made_of(text, "._-/@+#=")
        && !text.contains("..")
        && !text.contains("//")
        && text.split('/').all(|part| !part.starts_with('.') && !part.ends_with(".lock"))
        && !text.ends_with(['/', '.'])
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '['))
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"'`\\<>".contains(&b))
}

impl fmt::Display for Shape {
    /// With its article, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let article = if *self == Shape::Int { "an" } else { "a" };
        write!(f, "{article} '{}'", self.as_str())
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
