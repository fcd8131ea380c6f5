//! What the readers of sections share: ranges, words and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::document::{At, Section, Size, Value};
use crate::limits::{self, Limit, Limits, Unit};
use crate::model::Name;

use super::providers::Catalogue;

/// Every name that is written anywhere, also of what could not be read, and where it stands.
pub(super) type Declared = BTreeMap<Name, At>;

/// What a source or handler is read against.
pub(super) struct Context<'a> {
    /// What relative paths are relative to: the main file's folder.
    pub(super) folder: &'a Path,
    /// The limits in force, which hold the defaults.
    pub(super) limits: &'a Limits,
    /// The providers there are.
    pub(super) catalogue: &'a Catalogue,
    /// The names of all sources; nothing where a file could not be read, in which one may stand.
    pub(super) sources: Option<&'a Declared>,
    /// Those among them whose requests get their handler's answer; known once the sources are read.
    pub(super) replying: &'a BTreeSet<String>,
}

/// A number of the unit of the limit called `limit`, in the range of that limit.
pub(super) fn ranged(section: &Section<'_>, key: &'static str, limit: &str) -> Option<Value<u64>> {
    let limit = limits::limit(limit)?;
    let read = match limit.unit {
        Unit::Bytes => section.get::<Size>(key).map(|read| with(read.at, read.value.0)),
        Unit::Millis => section
            .get::<Duration>(key)
            .map(|read| with(read.at, u64::try_from(read.value.as_millis()).unwrap_or(u64::MAX))),
        Unit::Count => section.get::<u64>(key),
    }?;
    if limit.range.contains(&read.value) {
        return Some(read);
    }
    section.problems().push(read.at.problem(out_of_range(limit, read.value), None));
    None
}

fn with(at: At, value: u64) -> Value<u64> {
    Value { value, at }
}

fn out_of_range(limit: &Limit, value: u64) -> String {
    let show = |value| limit.unit.show(value);
    let (least, most) = (show(*limit.range.start()), show(*limit.range.end()));
    format!("{} is out of range: it may be {least} to {most}", show(value))
}

/// A string that is one of a type's texts.
pub(super) fn parsed<T>(section: &Section<'_>, key: &'static str) -> Option<Value<T>>
where
    T: FromStr<Err: Display>,
{
    let read = section.get::<String>(key)?;
    match read.value.parse() {
        Ok(value) => Some(Value { value, at: read.at }),
        Err(error) => {
            section.problems().push(read.at.problem(error.to_string(), None));
            None
        }
    }
}

/// A path, made absolute: a relative one is meant from the configuration file's folder.
pub(super) fn path(section: &Section<'_>, key: &'static str, folder: &Path) -> Option<PathBuf> {
    let read = section.get::<String>(key)?;
    match bad_text(&read.value) {
        None => Some(normal(&folder.join(read.value))),
        Some(wrong) => {
            section.problems().push(read.at.problem(format!("the path {wrong}"), None));
            None
        }
    }
}

/// Whether `key` is not there, which is a problem with this help.
pub(super) fn missing(section: &Section<'_>, key: &'static str, help: &str) -> bool {
    let missing = section.place_of(key).is_none();
    if missing {
        section.problem(format!("'{key}' is missing"), Some(help.to_owned()));
    }
    missing
}

/// What no path, argument or variable may be.
pub(super) fn bad_text(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("is empty"),
        text if text.contains('\0') => Some("has a NUL character"),
        _ => None,
    }
}

/// The path without `.` steps; `..` stays, since a link may stand before it.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether `name` can be an environment variable's.
pub(super) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
