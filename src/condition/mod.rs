//! Decides by the values of an event whether a handler wants it, and reads the keys that group its jobs.
//!
//! `config` makes conditions and keys, `http` decides with them when it accepts an event, and commands explain them.
//! Must stay true: what cannot be known never counts as true or false.
//!
//! A condition is decided as in three-valued logic. It is true if any table is true by itself; the others
//! do not matter. Otherwise it is undecided if a table is: one without a false line, and with an undecided line. Otherwise it is
//! false. The same holds within a line whose place has several values.

mod explain;
mod key;
mod matching;
mod number;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use explain::{LineResult, TableResult};
pub use key::Key;
pub use matching::{Range, Scalar, Test};
pub use number::Decimal;

use crate::payload::{self, Event, Found, Place, Reading, Unclear, Wanted};

/// It holds if all lines of any table do.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub tables: Vec<Vec<Line>>,
}

/// A place, and what must stand there.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub place: Place,
    /// It holds where the test does not: also where nothing stands, and with `*` where no element fits.
    pub not: bool,
    pub test: Test,
}

/// What an event has at some places.
#[derive(Debug)]
pub struct Values<'p>(BTreeMap<&'p Place, Reading>);

/// A place whose value leaves open what becomes of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Doubt {
    pub place: Place,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error(transparent)]
    Unclear(#[from] Unclear),
    #[error("it is not a number")]
    NotNumber,
    #[error("it is too long for a pattern")]
    TooLong,
    /// A key has texts, numbers and truths only.
    #[error("it is a list or an object")]
    NotOne,
}

impl<'p> Values<'p> {
    /// Reads these places in one pass, each once, and keeps at most `most_bytes` of the event.
    pub fn read(
        event: &Event<'_>,
        places: impl IntoIterator<Item = &'p Place>,
        most_bytes: usize,
    ) -> Self {
        let places = BTreeSet::from_iter(places);
        let wanted: Vec<_> = places.iter().copied().map(Wanted::from).collect();
        let readings = payload::read(event, &wanted, most_bytes);
        Values(places.into_iter().zip(readings).collect())
    }

    /// A place that was not read is as unknown as one of a body that is not JSON.
    fn at(&self, place: &Place) -> Result<&[Found], Unclear> {
        match self.0.get(place) {
            Some(Ok(found)) => Ok(found),
            Some(Err(unclear)) => Err(*unclear),
            None => Err(Unclear::NotJson),
        }
    }
}

impl Condition {
    /// The places that it looks at, perhaps several times.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.tables.iter().flatten().map(|line| &line.place)
    }

    /// Whether it holds for an event with these values.
    ///
    /// # Errors
    /// It cannot be decided.
    pub fn decide(&self, values: &Values<'_>) -> Result<bool, Doubt> {
        any(self.tables.iter().map(|lines| all(lines.iter().map(|line| line.decide(values)))))
    }
}

impl Line {
    fn decide(&self, values: &Values<'_>) -> Result<bool, Doubt> {
        let holds = self.test.holds(values.at(&self.place));
        holds.map(|holds| holds != self.not).map_err(|why| Doubt { place: self.place.clone(), why })
    }
}

/// The line in words: `/ref is "refs/heads/main"`.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, self.test.words(self.not))
    }
}

/// True if one is true; otherwise the first error, if there is one; otherwise false.
fn any<E>(results: impl Iterator<Item = Result<bool, E>>) -> Result<bool, E> {
    let mut open = None;
    for result in results {
        match result {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => drop(open.get_or_insert(error)),
        }
    }
    open.map_or(Ok(false), Err)
}

/// False if one is false; otherwise the first error, if there is one; otherwise true.
fn all<E>(results: impl Iterator<Item = Result<bool, E>>) -> Result<bool, E> {
    any(results.map(|result| result.map(|holds| !holds))).map(|holds| !holds)
}

#[cfg(test)]
mod tests;
