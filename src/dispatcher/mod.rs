//! Runs jobs. (STAND-IN: only the struct that the configuration produces.)

use crate::handler::Handler;
use crate::model::Name;
use crate::retry::Policy;

/// A handler with its rules.
pub struct Worker {
    /// Its name.
    pub name: Name,
    /// What it runs.
    pub handler: Handler,
    /// What becomes of its jobs.
    pub policy: Policy,
    /// Attempts at once.
    pub concurrency: usize,
}
