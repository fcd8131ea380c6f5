//! Where the facts of a provider file are from, part by part.
//!
//! `providers` shows it. Must stay true: nothing else depends on it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The parts of a file that have sources of their own, in the order in which they are shown.
pub(crate) const PARTS: [&str; 5] = ["proof", "event", "challenge", "delivery", "setup"];

/// How a fact was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The library or program was run on requests of this form.
    Run,
    /// The sender itself was made to send.
    Sent,
    /// The code of the library or sender was read.
    Read,
    /// The provider's own documentation says so.
    Page,
    /// A public report by others.
    Report,
    /// Nothing that could be looked at confirms it.
    Unverified,
}

impl How {
    const ALL: [(&'static str, How); 6] = [
        ("run", How::Run),
        ("sent", How::Sent),
        ("read", How::Read),
        ("page", How::Page),
        ("report", How::Report),
        ("unverified", How::Unverified),
    ];

    fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, how)| *how == self).map_or("", |(word, _)| word)
    }
}

/// A source of facts, such as `run: ferry 1.2 (npm)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub how: How,
    /// The source; of an unverified fact its subject, or nothing if that is the whole part.
    pub from: String,
}

impl FromStr for Fact {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, from) = text.split_once(": ").unwrap_or((text, ""));
        let how = How::ALL.iter().find(|(known, _)| *known == word).map(|(_, how)| *how);
        let how = how.ok_or_else(|| {
            let known = How::ALL.map(|(word, _)| word).join(", ");
            format!("'{text}' must begin with one of {known}, as in 'read: ferry 1.2 (npm)'")
        })?;
        if from.is_empty() && how != How::Unverified {
            return Err(format!("'{text}' names no source: write '{word}: ' and the source"));
        }
        Ok(Self { how, from: from.to_owned() })
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from.as_str() {
            "" => f.write_str(self.how.as_str()),
            from => write!(f, "{}: {from}", self.how.as_str()),
        }
    }
}

/// The sources of each part of a file; a part that the file does not name is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(pub(crate) Vec<(&'static str, Vec<Fact>)>);

impl Facts {
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &[Fact])> {
        self.0.iter().map(|(part, facts)| (*part, facts.as_slice()))
    }

    /// The parts that nothing confirms, or not wholly.
    pub fn unverified(&self) -> Vec<&'static str> {
        let is_open = |facts: &[Fact]| facts.iter().any(|fact| fact.how == How::Unverified);
        self.parts().filter(|(_, facts)| is_open(facts)).map(|(part, _)| part).collect()
    }
}

impl Serialize for Facts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = |facts: &[Fact]| facts.iter().map(Fact::to_string).collect::<Vec<_>>();
        serializer.collect_map(self.parts().map(|(part, facts)| (part, texts(facts))))
    }
}
