//! What retention deletes, and what it knows of the clocks.

use std::time::Duration;

use crate::model::Timestamp;

/// Events that arrived, or jobs that ended, before these times may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoffs {
    /// Payloads of events that arrived before then, and whose jobs had all ended by then.
    pub payloads: Timestamp,
    /// Whole events that arrived before then, and rows of the audit list.
    pub ids: Timestamp,
    /// Dead jobs that ended before then no longer keep what they belong to.
    pub dead: Timestamp,
}

impl Cutoffs {
    pub(in crate::store) fn all(before: Timestamp) -> Cutoffs {
        Cutoffs { payloads: before, ids: before, dead: before }
    }
}

/// What one pass has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionResult {
    pub payloads: u64,
    /// Whole events.
    pub events: u64,
    /// What the database file can shrink by at its next checkpoint.
    pub bytes: u64,
}

/// What retention knows of the clocks (K2): how they stood when it looked last, and until when nothing is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockWatch {
    /// The wall clock.
    pub wall: Timestamp,
    /// The clock that counts from the machine's start.
    pub monotonic: Duration,
    pub quiet_until: Duration,
}
