//! Reads single values: numbers in a range, paths, header names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::document::{At, Section, Size, Value};
use crate::limits::{self, Limit, Limits, Unit};
use crate::model::{Name, is_header_name};

use super::providers::Catalogue;

/// Every name that is written, also of sources that could not be read, with its position.
pub(super) type Declared = BTreeMap<Name, At>;

/// What the readers of sources and handlers need to know of the rest of the configuration.
pub(super) struct Context<'a> {
    /// The main file's folder, where relative paths begin.
    pub(super) folder: &'a Path,
    /// The limits in force, which hold the defaults.
    pub(super) limits: &'a Limits,
    pub(super) catalogue: &'a Catalogue,
    /// The names of all sources; `None` if a file that may have further ones could not be read.
    pub(super) sources: Option<&'a Declared>,
    /// The sources whose requests get their handler's answer; empty while the sources are read.
    pub(super) replying: &'a BTreeSet<String>,
}

impl Context<'_> {
    /// The number at `key`, in the unit and range of the limit `limit`, which is also the default.
    pub(super) fn number(
        &self,
        section: &Section<'_>,
        key: &'static str,
        limit: &str,
    ) -> Value<u64> {
        let default = || self.limits.get(limit).unwrap_or_default();
        ranged(section, key, limit)
            .unwrap_or_else(|| Value { value: default(), at: section.here() })
    }

    /// The same for a limit in milliseconds.
    pub(super) fn duration(
        &self,
        section: &Section<'_>,
        key: &'static str,
        limit: &str,
    ) -> Value<Duration> {
        let Value { value, at } = self.number(section, key, limit);
        Value { value: Limits::duration(value), at }
    }
}

/// A number of the unit of the limit called `limit`, in the range of that limit.
pub(super) fn ranged(section: &Section<'_>, key: &'static str, limit: &str) -> Option<Value<u64>> {
    let Limit { unit, range, .. } = limits::limit(limit)?;
    let in_range = |value: u64| {
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = (unit.show(*range.start()), unit.show(*range.end()));
        Err(format!("{} is out of range: it may be {least} to {most}", unit.show(value)))
    };
    match unit {
        Unit::Bytes => section.convert(section.get(key), |Size(bytes)| in_range(bytes)),
        Unit::Millis => section.convert(section.get(key), |time| in_range(millis(time))),
        Unit::Count => section.convert(section.get(key), in_range),
    }
}

/// A duration as the value of a limit.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A string that a type parses.
pub(super) fn parsed<T>(section: &Section<'_>, key: &'static str) -> Option<Value<T>>
where
    T: FromStr<Err: Display>,
{
    section.convert(section.get::<String>(key), |text| {
        text.parse().map_err(|error: T::Err| error.to_string())
    })
}

/// A path, made absolute: a relative one begins in the configuration file's folder.
pub(super) fn path(
    section: &Section<'_>,
    key: &'static str,
    folder: &Path,
) -> Option<Value<PathBuf>> {
    section.convert(section.get::<String>(key), |text| match bad_text(&text) {
        None => Ok(normal(&folder.join(text))),
        Some(wrong) => Err(format!("the path {wrong}")),
    })
}

pub(super) fn header(section: &Section<'_>, key: &'static str) -> Option<Value<String>> {
    section.convert(section.get::<String>(key), |name| {
        if is_header_name(&name) { Ok(name) } else { Err(format!("'{name}' is not a header name")) }
    })
}

/// Why a text cannot be a path, an argument or a variable's value.
pub(super) fn bad_text(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("is empty"),
        text if text.contains('\0') => Some("has a NUL character"),
        _ => None,
    }
}

/// The path without `.` steps; `..` stays, because the step before it may be a link.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether `name` can be the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
