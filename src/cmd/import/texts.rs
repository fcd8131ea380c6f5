//! Texts of TOML.

use serde_json::Value;

pub(super) fn inline<'t>(members: impl Iterator<Item = (&'t str, String)>) -> String {
    let members: Vec<_> = members.map(|(name, value)| format!("{} = {value}", key(name))).collect();
    format!("{{ {} }}", members.join(", "))
}

fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().all(is_bare) && !name.is_empty() { name.to_owned() } else { quoted(name) }
}

pub(super) fn quoted(text: &str) -> String {
    toml(&text.into())
}

/// Strings of JSON are strings of TOML, but for one character.
pub(super) fn toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            inline(members.iter().map(|(name, value)| (name.as_str(), toml(value))))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// A text on one line of a comment.
pub(super) fn comment(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
