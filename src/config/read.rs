//! Reads single values: numbers in a range, paths, header names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::document::{At, Fault, Section, Size, Value};
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
    /// Whether the store is on PostgreSQL.
    pub(super) has_url: bool,
    pub(super) catalogue: &'a Catalogue,
    /// The names of all sources; `None` if a file that may have further ones could not be read.
    pub(super) sources: Option<&'a Declared>,
    /// The sources whose requests get their handler's answer; empty while the sources are read.
    pub(super) replying: &'a BTreeSet<String>,
}

impl Context<'_> {
    /// The number at `key`, in the unit and range of the limit `limit`, which is also the default.
    pub(super) fn number(&self, section: &Section<'_>, key: &'static str, limit: &str) -> u64 {
        let default = || self.limits.get(limit).unwrap_or_default();
        ranged(section, key, limit).map_or_else(default, |read| read.value)
    }

    /// The duration at `key`, in the range of the limit `limit` in milliseconds, which is also the default.
    pub(super) fn duration(
        &self,
        section: &Section<'_>,
        key: &'static str,
        limit: &str,
    ) -> Duration {
        Limits::duration(self.number(section, key, limit))
    }
}

/// A number of the unit of the limit called `limit`, in the range of that limit.
pub(super) fn ranged(section: &Section<'_>, key: &'static str, limit: &str) -> Option<Value<u64>> {
    let Limit { unit, range, .. } = limits::limit(limit)?;
    let in_range = |value| in_range(value, range, |value| unit.show(value));
    match unit {
        Unit::Bytes => section.parse(key, |Size(bytes)| in_range(bytes)),
        Unit::Millis => section.parse(key, |time| in_range(millis(time))),
        Unit::Count => section.parse(key, in_range),
    }
}

/// The value if it is in the range; an `Err` shows both.
pub(super) fn in_range<T: Copy + PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    show: impl Fn(T) -> String,
) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    let [value, least, most] = [value, *range.start(), *range.end()].map(show);
    Err(format!("{value} is out of range: it may be {least} to {most}"))
}

/// The value of a limit as a size in memory.
pub(super) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
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
    section.parse(key, |text: String| text.parse().map_err(|error: T::Err| error.to_string()))
}

/// A path, made absolute: a relative one begins in the configuration file's folder.
pub(super) fn path(
    section: &Section<'_>,
    key: &'static str,
    folder: &Path,
) -> Option<Value<PathBuf>> {
    section.parse(key, |text: String| match bad_text(&text) {
        None => Ok(normal(&folder.join(text))),
        Some(wrong) => Err(format!("the path {wrong}")),
    })
}

pub(super) fn header(section: &Section<'_>, key: &'static str) -> Option<Value<String>> {
    section.parse(key, |name: String| {
        if is_header_name(&name) { Ok(name) } else { Err(format!("'{name}' is not a header name")) }
    })
}

/// A numeric address with a port, such as `example`.
pub(super) fn parse_address(text: &str, example: &str) -> Result<SocketAddr, Fault> {
    // Not resolved: it means this machine.
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        let port = text.trim_start_matches([':', '*']);
        let help = match port.parse::<u16>() {
            Ok(port) => format!(
                "write \"127.0.0.1:{port}\" for this machine alone, as behind a proxy, or \"0.0.0.0:{port}\" for every address of it"
            ),
            Err(_) => format!("write a numeric address, such as \"{example}\" or \"{IPV6}\""),
        };
        Fault::new(format!("'{text}' is not an address with a port"), help)
    })
}

/// An IPv6 address with its port.
const IPV6: &str = "[::1]:8080";

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
