//! Which line of commits a server has (N25). Connections compare it, and `history` acts on a change.

use std::fmt;

use uuid::Uuid;

/// Which line of commits this is (N25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHistory {
    /// The server's identifier, which its standbys have too.
    pub system: String,
    /// Eight hexadecimal digits, which grow with each promotion and restore.
    pub timeline: String,
    /// Random. A new one each time a history begins.
    pub store: Uuid,
}

impl fmt::Display for ServerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {} at timeline {}", self.system, self.timeline)
    }
}

impl ServerHistory {
    /// Whether another server has gone on from this one, or from an earlier state of it.
    pub(super) fn is_before(&self, other: &ServerHistory) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }
}
