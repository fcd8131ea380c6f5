//! Names that a configuration or a provider gives: of sources, handlers, runners, events and types.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::shell::shell_word;
use super::text::{BadText, json_text};

/// The source of the receiver's own events. A configured source cannot have this name.
pub const INTERNAL_SOURCE: &str = "hooklatch";

/// The name of a source or a handler: `[a-z0-9][a-z0-9_-]{0,63}`, fit for file names, labels and URLs.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadText;
    fn from_str(text: &str) -> Result<Self, BadText> {
        let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = bytes.len() <= 64
            && bytes.first().copied().is_some_and(alnum)
            && bytes.iter().all(|&b| alnum(b) || b == b'_' || b == b'-');
        let expected =
            "a valid name: 1 to 64 of a-z, 0-9, '_' and '-', not starting with '_' or '-'";
        let name = good.then(|| Name(text.into()));
        name.ok_or_else(|| BadText(text.to_owned(), expected))
    }
}

/// The name of a runner: a [`Name`] of at most 32 characters (useradd(8)), because the unit of every runner
/// but the default one runs as the user of that name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunnerName(Arc<str>);

impl RunnerName {
    /// The runner of each handler that names none.
    pub const DEFAULT: &str = "default";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_default(&self) -> bool {
        &*self.0 == Self::DEFAULT
    }

    /// The name of its systemd unit.
    pub fn unit(&self) -> String {
        match self.is_default() {
            true => "hooklatch-runner.service".to_owned(),
            false => format!("hooklatch-runner@{self}.service"),
        }
    }
}

impl Default for RunnerName {
    fn default() -> Self {
        RunnerName(Self::DEFAULT.into())
    }
}

impl FromStr for RunnerName {
    type Err = BadText;
    fn from_str(text: &str) -> Result<Self, BadText> {
        let expected =
            "a valid runner name: 1 to 32 of a-z, 0-9, '_' and '-', not starting with '_' or '-'";
        match text.parse::<Name>() {
            Ok(Name(name)) if name.len() <= 32 => Ok(RunnerName(name)),
            _ => Err(BadText(text.to_owned(), expected)),
        }
    }
}

/// An event id: 1 to 200 visible ASCII characters, not starting with `-` (it is typed on command lines).
///
/// It is the sender's own, or one that the receiver derives ([`EventId::derived`]).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Arc<str>);

/// Longest event id in bytes. GitHub's are UUIDs, Stripe's under 40; 200 is the IETF draft's and
/// our stored-key limit.
pub const EVENT_ID_MAX_BYTES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEventId {
    #[error("the event id is empty")]
    Empty,
    /// The text is longer than [`EVENT_ID_MAX_BYTES`].
    #[error("the event id has {0} bytes; {EVENT_ID_MAX_BYTES} is the limit")]
    TooLong(usize),
    /// A space, control or non-ASCII character.
    #[error("the event id has a character that is not visible ASCII at byte {0}")]
    BadByte(usize),
    /// Starts with `-`.
    #[error("the event id starts with '-'")]
    LeadingDash,
    /// The sender's id has the form of [`EventId::derived`].
    #[error("the event id has the form of one that Hooklatch derives")]
    Derived,
}

/// What a derived id begins with.
const DERIVED: &str = "sha256:";

impl EventId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id that is made of a SHA-256: `sha256:` and 64 hex digits. No sender's id has this form
    /// ([`EventId::of_sender`]).
    pub fn derived(digest: Digest) -> EventId {
        EventId(format!("{DERIVED}{digest}").into())
    }

    /// The derived id of an event that its sender calls `text`, which is not an id. The beginning keeps it apart from
    /// the digest of a body.
    pub fn of_text(text: &str) -> EventId {
        EventId::derived(Digest::of(format!("id:{text}")))
    }

    pub fn is_derived(&self) -> bool {
        let digits = self.0.strip_prefix(DERIVED).unwrap_or_default();
        digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The id that a sender gives. An `Err` says why the text cannot be one.
    pub fn of_sender(text: &str) -> Result<EventId, BadEventId> {
        match text.parse::<EventId>()? {
            id if id.is_derived() => Err(BadEventId::Derived),
            id => Ok(id),
        }
    }

    /// The id of the event that an operator means: one as Hooklatch prints it, or the sender's text.
    pub fn asked(text: &str) -> EventId {
        text.parse().unwrap_or_else(|_| EventId::of_text(text))
    }

    /// The id quoted for a shell, for printed commands: a provider chose it, so it may be hostile.
    pub fn shell_word(&self) -> Cow<'_, str> {
        shell_word(&self.0)
    }
}

impl FromStr for EventId {
    type Err = BadEventId;
    fn from_str(text: &str) -> Result<Self, BadEventId> {
        match text.as_bytes() {
            [] => Err(BadEventId::Empty),
            b if b.len() > EVENT_ID_MAX_BYTES => Err(BadEventId::TooLong(b.len())),
            [b'-', ..] => Err(BadEventId::LeadingDash),
            b => match b.iter().position(|c| !c.is_ascii_graphic()) {
                Some(at) => Err(BadEventId::BadByte(at)),
                None => Ok(EventId(text.into())),
            },
        }
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        json_text!($name);
    };
}
text_type!(Name);
text_type!(RunnerName);
text_type!(EventId);

/// An event's type. An unusable type never refuses an event: the type becomes `?`, and the raw text is
/// kept separately.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct EventType {
    text: Arc<str>,
    raw: Option<Arc<str>>,
}

/// Longest event type in bytes that is kept as it is.
pub const EVENT_TYPE_MAX_BYTES: usize = 200;

impl EventType {
    /// The type of an event without a usable one.
    pub const ODD: &'static str = "?";

    /// The type of a provider's text: itself where it is 1 to 200 visible ASCII characters, with spaces between them as
    /// in GitLab's `Push Hook`; [`EventType::ODD`] with the raw text (cut at 200 characters) otherwise.
    pub fn from_raw(raw: &str) -> Self {
        let plain = (1..=EVENT_TYPE_MAX_BYTES).contains(&raw.len())
            && raw.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
            && raw.trim() == raw;
        if plain {
            EventType { text: raw.into(), raw: None }
        } else {
            let cut: String = raw.chars().take(EVENT_TYPE_MAX_BYTES).collect();
            EventType { text: Self::ODD.into(), raw: Some(cut.into()) }
        }
    }

    /// The type of an event whose scheme found none.
    pub fn missing() -> Self {
        EventType { text: Self::ODD.into(), raw: None }
    }

    pub fn from_parts(text: &str, raw: Option<&str>) -> Self {
        EventType { text: text.into(), raw: raw.map(Into::into) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The provider's text, if it could not be a type.
    pub fn raw(&self) -> Option<&str> {
        self.raw.as_deref()
    }
}

impl From<String> for EventType {
    fn from(raw: String) -> Self {
        EventType::from_raw(&raw)
    }
}

impl From<EventType> for String {
    fn from(event_type: EventType) -> Self {
        event_type.text.to_string()
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_ids_outside_their_grammar_are_rejected() {
        for good in ["a", "0", "stripe-live_2", &"a".repeat(64)] {
            assert_eq!(good.parse::<Name>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "_a", "A", "a b", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        for bad in ["", "-a", "Deploy", "a@b", "a.b", &"a".repeat(33)] {
            assert!(bad.parse::<RunnerName>().is_err(), "{bad}");
        }
        let unit = |name: &str| name.parse::<RunnerName>().map(|name| name.unit());
        assert_eq!(unit("default"), Ok("hooklatch-runner.service".to_owned()));
        let longest = "a".repeat(32);
        assert_eq!(unit(&longest), Ok(format!("hooklatch-runner@{longest}.service")));
        assert_eq!("".parse::<EventId>(), Err(BadEventId::Empty));
        assert_eq!("-x".parse::<EventId>(), Err(BadEventId::LeadingDash));
        assert_eq!("a b".parse::<EventId>(), Err(BadEventId::BadByte(1)));
        assert_eq!("a".repeat(201).parse::<EventId>(), Err(BadEventId::TooLong(201)));
        assert!("a".repeat(200).parse::<EventId>().is_ok());
    }

    #[test]
    fn no_text_of_a_sender_has_the_form_of_a_derived_id() {
        let derived = EventId::of_text("a b");
        assert!(derived.is_derived() && derived.as_str().starts_with("sha256:"), "{derived}");
        for (text, error) in [
            ("", BadEventId::Empty),
            ("a b", BadEventId::BadByte(1)),
            ("-x", BadEventId::LeadingDash),
            (derived.as_str(), BadEventId::Derived),
        ] {
            assert_eq!(EventId::of_sender(text), Err(error), "{text}");
        }
        assert_eq!(EventId::asked("a b"), derived);
        assert_eq!(EventId::asked(derived.as_str()), derived);
        for text in ["sha256:", "sha256:12", &derived.as_str().to_uppercase()] {
            assert_eq!(EventId::of_sender(text), Ok(EventId::asked(text)), "{text}");
        }
    }

    #[test]
    fn an_unusable_type_becomes_a_question_mark_and_keeps_its_text() {
        let odd = EventType::from_raw("a b\n");
        assert_eq!((odd.as_str(), odd.raw()), ("?", Some("a b\n")));
        assert_eq!(EventType::from_raw("push").raw(), None);
    }

    #[test]
    fn a_hostile_event_id_is_one_shell_word() {
        let word = |id: &str| id.parse::<EventId>().map(|id| id.shell_word().into_owned());
        assert_eq!(word("72d3162e-cc78-11e3"), Ok("72d3162e-cc78-11e3".to_owned()));
        assert_eq!(word("$(reboot)"), Ok("'$(reboot)'".to_owned()));
        assert_eq!(word("a'b;c"), Ok(r"'a'\''b;c'".to_owned()));
    }
}
