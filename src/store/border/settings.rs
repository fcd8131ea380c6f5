//! Where the store lies and what it keeps.

use std::path::PathBuf;

use crate::limits::Limits;

/// Where the store lies and what it keeps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database file. `.lock`, `.ballast`, `.quarantine` and SQLite's own files lie next to it.
    pub path: PathBuf,
    /// The limits in force.
    pub limits: Limits,
}
