//! Why nothing moves: what stands still in a receiver that runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// What stands still, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stalled {
    /// A page of the database's file is damaged: what needs it fails, until the receiver starts on a restored backup.
    Pages,
    /// A commit has had no answer for as long as a provider waits. Deliveries are refused meanwhile.
    Commits,
    /// Attempts of before the start cannot be settled, and nothing is claimed until they are.
    Recovery,
    /// The store refuses claims.
    Claims,
    /// What claimed jobs are about cannot be read. They begin when it can, and nothing else is claimed meanwhile.
    Payloads,
    /// No connection hears of what other nodes and operators do.
    WakeUps,
}

impl Stalled {
    /// All of them, the worst first.
    pub const ALL: [Stalled; 6] = [
        Stalled::Pages,
        Stalled::Commits,
        Stalled::Recovery,
        Stalled::Claims,
        Stalled::Payloads,
        Stalled::WakeUps,
    ];

    /// Its word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Stalled::Pages => "pages",
            Stalled::Commits => "commits",
            Stalled::Recovery => "recovery",
            Stalled::Claims => "claims",
            Stalled::Payloads => "payloads",
            Stalled::WakeUps => "wake_ups",
        }
    }

    /// What it means, for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Stalled::Pages => "a page of the database is damaged; restore a backup",
            Stalled::Commits => "no delivery is stored",
            Stalled::Recovery | Stalled::Claims => "no job can run",
            Stalled::Payloads => "claimed jobs do not begin",
            Stalled::WakeUps => "a resume or a cancel, and jobs of other nodes, are not heard of",
        }
    }
}

/// Something that stands still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    pub what: Stalled,
    /// The last error.
    pub why: String,
    /// When it began to stand still, by the receiver's clock.
    pub since: Timestamp,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what.sentence(), self.why)
    }
}
