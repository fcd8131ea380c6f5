//! What a value of each shape looks like.

use crate::model::Shape;

impl Shape {
    /// Whether a text of it can stand in an argument without another rule. `any` says that any may.
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
            Shape::Json | Shape::Any => true,
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
