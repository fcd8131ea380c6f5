//! The jobs of one handler that run one at a time, because their events concern the same thing.

use std::fmt;

use super::digest::Digest;
use super::names::Name;

/// The longest key that is kept as it is. Of a longer one the SHA-256 is kept.
const KEY_BYTES: usize = 256;

/// What the events of a group have in common: their source and the text at each place of the handler's key, as a JSON
/// list, in which no two different keys look the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(String);

impl GroupKey {
    /// `parts` has `None` for a place where nothing stands.
    pub fn of(source: &Name, parts: &[Option<&str>]) -> Self {
        let all = [Some(source.as_str())].into_iter().chain(parts.iter().copied());
        let text = serde_json::json!(all.collect::<Vec<_>>()).to_string();
        if text.len() <= KEY_BYTES {
            return GroupKey(text);
        }
        GroupKey(format!("sha256:{}", Digest::of(&text)))
    }

    /// A key as the store kept it.
    pub fn kept(text: String) -> Self {
        GroupKey(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_two_keys_look_the_same() {
        let source: Name = "shop".parse().unwrap();
        let long = "x".repeat(300);
        let keys = [
            &[Some("a"), Some("b")][..],
            &[Some("a\",\"b")],
            &[Some("ab"), None],
            &[Some("ab"), Some("")],
            &[Some("ab")],
            &[None],
            &[Some(&long)],
            &[Some(&long), None],
        ];
        let made: std::collections::BTreeSet<_> =
            keys.iter().map(|parts| GroupKey::of(&source, parts)).collect();
        assert_eq!(made.len(), keys.len());
        assert!(made.iter().all(|key| key.as_str().len() <= KEY_BYTES));
        assert_eq!(GroupKey::of(&source, &[Some("a")]).as_str(), r#"["shop","a"]"#);
    }
}
