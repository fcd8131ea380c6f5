//! The short texts of the model: names, ids, times, types and patterns.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use hooklatch::model::{
    Blob, EVENT_ID_MAX_BYTES, EVENT_TYPE_MAX_BYTES, EventId, EventType, Incarnation, JobId, Name,
    State, Timestamp, shell_word,
};
use hooklatch::pattern::Pattern;
use hooklatch::probe;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) fn check(data: &[u8]) {
    let json = serde_json::to_string(&Blob(data.to_vec())).expect("bytes are JSON");
    assert_eq!(serde_json::from_str::<Blob>(&json).ok(), Some(Blob(data.to_vec())));
    let Ok(text) = std::str::from_utf8(data) else { return };

    if let Some(name) = same::<Name>(text) {
        assert!(name.as_str() == text && text.len() <= 64 && !text.contains(['/', '.', ' ']));
    }
    if let Some(id) = same::<EventId>(text) {
        assert!(id.as_str() == text && (1..=EVENT_ID_MAX_BYTES).contains(&text.len()));
        assert!(!text.starts_with('-') && text.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(unquoted(&id.shell_word()).as_deref(), Some(text), "one word of a shell");
    }
    if !text.is_empty() {
        assert_eq!(unquoted(&shell_word(text)).as_deref(), Some(text), "one word of a shell");
    }
    same::<JobId>(text);
    same::<Timestamp>(text);
    same::<Incarnation>(text);
    same::<State>(text);
    let _ = probe::is_place(text);

    let kind = EventType::from_raw(text);
    assert!((1..=EVENT_TYPE_MAX_BYTES).contains(&kind.as_str().len()));
    assert!(kind.as_str().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
    assert_eq!(kind.as_str().trim(), kind.as_str());
    assert!(kind.raw().map_or(kind.as_str() == text, |raw| text.starts_with(raw)));
    assert_eq!(EventType::from_parts(kind.as_str(), kind.raw()), kind);

    let (pattern, wanted) = text.split_once('\n').unwrap_or((text, ""));
    let matches = Pattern::new(pattern, false).matches(wanted);
    assert_eq!(matches, naive(pattern.as_bytes(), wanted.as_bytes()), "{pattern:?} {wanted:?}");
    assert!(Pattern::new(pattern, true).matches(wanted) || !matches);
    assert!(Pattern::new("*", false).matches(text));
}

/// A parsed value prints to a text that parses to the same value, and survives JSON.
fn same<T>(text: &str) -> Option<T>
where
    T: FromStr + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let read: T = text.parse().ok()?;
    assert_eq!(read.to_string().parse().ok().as_ref(), Some(&read), "printed and read");
    let json = serde_json::to_string(&read).expect("it is JSON");
    assert_eq!(serde_json::from_str(&json).ok().as_ref(), Some(&read), "as JSON");
    Some(read)
}

/// The word that a shell reads; `None` if it reads another number of words, or would expand it.
fn unquoted(word: &str) -> Option<String> {
    let (mut text, mut rest) = (String::new(), word);
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('\'') {
            let (inside, behind) = quoted.split_once('\'')?;
            text.push_str(inside);
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("\\'") {
            text.push('\'');
            rest = behind;
        } else {
            let first = rest.chars().next()?;
            if !(first.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(first)) {
                return None;
            }
            text.push(first);
            rest = &rest[1..];
        }
    }
    Some(text)
}

/// A simple matcher for patterns, with one row of a table per character.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for &p in pattern {
        let mut next = vec![false; text.len() + 1];
        next[0] = p == b'*' && row[0];
        for at in 1..=text.len() {
            next[at] = match p {
                b'*' => row[at] || next[at - 1],
                p => row[at - 1] && p == text[at - 1],
            };
        }
        row = next;
    }
    row[text.len()]
}
