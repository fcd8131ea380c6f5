//! The tests of a condition: what a line asks of the value at its place.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use regex_lite::{Regex, RegexBuilder};

use super::number::Decimal;
use super::{Why, any};
use crate::limits::{PATTERN_PROGRAM_BYTES, PATTERN_TEXT_BYTES};
use crate::payload::{Found, Pointer, Unclear, walk};

/// What a value must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Exactly one of these.
    Is(Vec<Scalar>),
    /// A text that a glob or an expression fits.
    Fits(Pattern),
    StartsWith(String),
    EndsWith(String),
    /// A text with this text in it, or a list with this element.
    Contains(Scalar),
    Within(Range),
    /// Anything but null.
    Present,
}

/// A value that the configuration names.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Text(String),
    Number(Decimal),
    Bool(bool),
}

/// Numbers between two bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Range {
    pub low: Bound<Decimal>,
    pub high: Bound<Decimal>,
    /// Whether a text that reads as a number counts as one.
    pub text: bool,
}

/// A compiled pattern. A search takes time in proportion to its program and the text.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    is_glob: bool,
    program: Regex,
}

impl Test {
    /// Whether it holds for any of the values; without a value it does not hold.
    pub(super) fn holds(&self, reading: Result<&[Found], Unclear>) -> Result<bool, Why> {
        any(reading?.iter().map(|found| self.fits(found)))
    }

    fn fits(&self, found: &Found) -> Result<bool, Why> {
        match (self, found) {
            (Test::Present, _) => Ok(true),
            (Test::Is(known), _) => Ok(known.iter().any(|one| one.is(found))),
            (Test::Fits(_), Found::Text(text)) if text.len() > PATTERN_TEXT_BYTES => {
                Err(Why::TooLong)
            }
            (Test::Fits(pattern), Found::Text(text)) => Ok(pattern.program.is_match(text)),
            (Test::StartsWith(start), Found::Text(text)) => Ok(text.starts_with(start)),
            (Test::EndsWith(end), Found::Text(text)) => Ok(text.ends_with(end)),
            (Test::Contains(Scalar::Text(part)), Found::Text(text)) => Ok(text.contains(part)),
            (Test::Contains(element), Found::Json(raw)) => element.is_in(raw),
            (Test::Within(range), _) => range.has(found),
            (Test::Fits(_) | Test::StartsWith(_) | Test::EndsWith(_) | Test::Contains(_), _) => {
                Ok(false)
            }
        }
    }

    /// The test in words, or its opposite.
    pub(super) fn words(&self, not: bool) -> String {
        let (yes, no, object) = match self {
            Test::Is(known) if known.len() == 1 => ("is", "is not", list(known)),
            Test::Is(known) => ("is one of", "is none of", list(known)),
            Test::Fits(Pattern { text, is_glob: true, .. }) => {
                ("fits", "does not fit", format!("{text:?}"))
            }
            Test::Fits(Pattern { text, .. }) => ("matches", "does not match", format!("'{text}'")),
            Test::StartsWith(text) => ("starts with", "does not start with", format!("{text:?}")),
            Test::EndsWith(text) => ("ends with", "does not end with", format!("{text:?}")),
            Test::Contains(scalar) => ("contains", "does not contain", scalar.to_string()),
            Test::Within(range) => ("is", "is not", range.to_string()),
            Test::Present => return if not { "is not there" } else { "is there" }.to_owned(),
        };
        format!("{} {object}", if not { no } else { yes })
    }
}

fn list(all: &[Scalar]) -> String {
    all.iter().map(Scalar::to_string).collect::<Vec<_>>().join(", ")
}

impl Scalar {
    /// A text is never a number.
    fn is(&self, found: &Found) -> bool {
        match (self, found) {
            (Scalar::Text(own), Found::Text(text)) => own == text,
            (Scalar::Number(own), Found::Number(text)) => {
                Decimal::parse(text).as_ref() == Some(own)
            }
            (Scalar::Bool(own), Found::Bool(value)) => own == value,
            _ => false,
        }
    }

    /// Whether a JSON text is a list with this element.
    fn is_in(&self, raw: &str) -> Result<bool, Why> {
        let (true, Ok(each)) = (raw.starts_with('['), Pointer::parse("/*")) else {
            return Ok(false);
        };
        let mut elements = Elements { wanted: self, has: Ok(false) };
        walk::walk(raw.as_bytes(), [&each], &mut elements);
        elements.has
    }
}

/// Looks for a value among the elements of a list.
struct Elements<'s> {
    wanted: &'s Scalar,
    has: Result<bool, Why>,
}

impl walk::Sink for Elements<'_> {
    fn value(&mut self, _: usize, raw: &str) {
        let is = Found::of(raw).map(|found| found.is_some_and(|found| self.wanted.is(&found)));
        self.has = any([self.has, is.map_err(Why::Unclear)].into_iter());
    }

    /// Elements have no names.
    fn twice(&mut self, _: usize) {}
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => write!(f, "{text:?}"),
            Scalar::Number(number) => number.fmt(f),
            Scalar::Bool(value) => value.fmt(f),
        }
    }
}

impl Range {
    fn has(&self, found: &Found) -> Result<bool, Why> {
        let number = match found {
            Found::Number(text) => Decimal::parse(text),
            Found::Text(text) if self.text => Decimal::parse(text),
            Found::Text(_) | Found::Bool(_) | Found::Json(_) => None,
        };
        number
            .map(|number| (self.low.as_ref(), self.high.as_ref()).contains(&number))
            .ok_or(Why::NotNumber)
    }

    /// Whether no number is in it.
    pub fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) => low >= high,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = match &self.low {
            Bound::Included(low) => Some(format!("at least {low}")),
            Bound::Excluded(low) => Some(format!("above {low}")),
            Bound::Unbounded => None,
        };
        let high = match &self.high {
            Bound::Included(high) => Some(format!("at most {high}")),
            Bound::Excluded(high) => Some(format!("below {high}")),
            Bound::Unbounded => None,
        };
        f.write_str(&low.into_iter().chain(high).collect::<Vec<_>>().join(" and "))
    }
}

impl Pattern {
    /// A regular expression, found anywhere in a text. An `Err` is the problem in words.
    pub fn expression(text: &str) -> Result<Self, String> {
        Self::compile(text, text, false)
    }

    /// A whole text, in which `*` stands for any characters but `/`, and `**` for any.
    pub fn glob(text: &str) -> Result<Self, String> {
        let any = text.split("**").map(|part| {
            let fixed: Vec<String> = part.split('*').map(regex_lite::escape).collect();
            fixed.join("[^/]*")
        });
        let program = format!("(?s)^{}$", any.collect::<Vec<_>>().join(".*"));
        Self::compile(text, &program, true)
    }

    fn compile(text: &str, program: &str, is_glob: bool) -> Result<Self, String> {
        let program = RegexBuilder::new(program).size_limit(PATTERN_PROGRAM_BYTES).build();
        let program = program.map_err(|error| error.to_string())?;
        Ok(Pattern { text: text.to_owned(), is_glob, program })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.is_glob) == (&other.text, other.is_glob)
    }
}
