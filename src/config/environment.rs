//! The process's environment, captured once.
//!
//! The other modules read it and never the process's, so that a test sets every variable. It does not
//! implement `Debug`, because variables may hold secrets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Environment variables as they were when the process began.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The process's own, with `HOME` from the user database where it is not set.
    pub fn capture() -> Self {
        let environment = Environment(std::env::vars_os().collect());
        match std::env::home_dir() {
            Some(home) if environment.get("HOME").is_none() => environment.with("HOME", home),
            _ => environment,
        }
    }

    /// This environment with one more variable.
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The variable called `name`, which may be empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The variable called `name`, where it is UTF-8 and not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str).filter(|text| !text.is_empty())
    }
}
