//! Patterns for event types, as in a handler's `events`.
//!
//! `config` and `provider` make them; `http` matches them when it accepts an event, and the store when
//! it makes later jobs and notices. Must stay true: matching takes bounded time for every pattern and every type, because senders choose types.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One entry of a handler's `events`: a type, in which `*` matches any characters, including dots. If
/// the provider's types have two levels (`pull_request.opened`), the first level alone also matches
/// every type with that first level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    text: String,
    two_levels: bool,
}

impl Pattern {
    /// `two_levels` says whether the provider's types have two levels.
    pub fn new(text: impl Into<String>, two_levels: bool) -> Self {
        Pattern { text: text.into(), two_levels }
    }

    /// Whether the pattern covers `event_type`.
    pub fn matches(&self, event_type: &str) -> bool {
        if glob(self.text.as_bytes(), event_type.as_bytes()) {
            return true;
        }
        let first = event_type.split_once('.').map(|(first, _)| first);
        self.two_levels && first.is_some_and(|first| glob(self.text.as_bytes(), first.as_bytes()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Matches `*` against any bytes. It backtracks to the last `*` only, so it takes at most
/// `pattern.len() * text.len()` steps and allocates nothing.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_match_as_the_documentation_says() {
        let cases = [
            ("invoice.*", false, "invoice.paid", true),
            ("invoice.*", false, "invoice.payment.failed", true),
            ("invoice.*", false, "invoice", false),
            ("invoice", false, "invoice.paid", false),
            ("*", false, "a.b.c", true),
            ("*.deleted", false, "a.b.deleted", true),
            ("a*b*c", false, "aXbYbZc", true),
            ("a*b*c", false, "aXbYbZ", false),
            ("pull_request", true, "pull_request.opened", true),
            ("pull_request", true, "pull_request", true),
            ("pull_request", true, "pull_request_review.submitted", false),
            ("pull_request.opened", true, "pull_request.closed", false),
            ("?", false, "?", true),
        ];
        for (pattern, two, event_type, wanted) in cases {
            assert_eq!(
                Pattern::new(pattern, two).matches(event_type),
                wanted,
                "{pattern} {event_type}"
            );
        }
    }
}
