//! The tests of a condition: what a line asks of the value at its place.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use serde_json::value::RawValue;

use super::number::Decimal;
use super::{Why, any};
use crate::limits::PATTERN_TEXT_BYTES;
use crate::payload::{Found, Pattern, Unclear};

/// What a value must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Exactly one of these.
    Is(Vec<Scalar>),
    /// A text that a glob fits.
    Fits(Pattern),
    /// A text in which an expression is found.
    Matches(Pattern),
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

impl Test {
    /// Whether it holds for any of the values; without a value it does not hold.
    pub(super) fn holds(&self, reading: Result<&[Found], Unclear>) -> Result<bool, Why> {
        any(reading?.iter().map(|found| self.fits(found)))
    }

    fn fits(&self, found: &Found) -> Result<bool, Why> {
        let text = match found {
            Found::Text(text) => Some(text.as_str()),
            Found::Number(_) | Found::Bool(_) | Found::Json(_) => None,
        };
        match self {
            Test::Present => Ok(true),
            Test::Is(known) => Ok(known.iter().any(|one| one.is(found))),
            Test::Fits(pattern) | Test::Matches(pattern) => match text {
                Some(text) if text.len() > PATTERN_TEXT_BYTES => Err(Why::TooLong),
                text => Ok(text.is_some_and(|text| pattern.matches(text))),
            },
            Test::StartsWith(start) => Ok(text.is_some_and(|text| text.starts_with(start))),
            Test::EndsWith(end) => Ok(text.is_some_and(|text| text.ends_with(end))),
            Test::Contains(wanted) => match (wanted, found) {
                (Scalar::Text(part), Found::Text(text)) => Ok(text.contains(part)),
                (_, Found::Json(raw)) => wanted.is_in(raw),
                _ => Ok(false),
            },
            Test::Within(range) => range.has(found),
        }
    }

    /// The test in words, or its opposite.
    pub(super) fn words(&self, not: bool) -> String {
        let (yes, no, object) = match self {
            Test::Is(known) if known.len() == 1 => ("is", "is not", list(known)),
            Test::Is(known) => ("is one of", "is none of", list(known)),
            Test::Fits(glob) => ("fits", "does not fit", format!("{:?}", glob.to_string())),
            Test::Matches(pattern) => ("matches", "does not match", format!("'{pattern}'")),
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
        let elements: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
        any(elements.iter().map(|element| {
            Ok(Found::of(element.get(), false)?.is_some_and(|found| self.is(&found)))
        }))
    }
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
