//! Facts about a handler that cannot run.

use serde::{Deserialize, Serialize};

use super::{EventId, Name, Timestamp};

/// A handler whose last attempts could not begin: its program is missing, its endpoint refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    pub handler: Name,
    /// Why the last try failed. It may quote what the handler printed: untrusted text.
    pub cause: String,
    /// Tries that failed since it last ran. Attempts that began together count as one.
    pub tries: u32,
    /// The first of them.
    pub since: Timestamp,
    /// The source of the event that was tried last.
    pub source: Name,
    /// That event's id.
    pub event_id: EventId,
    /// The earliest time of the next one.
    pub next_try_at: Timestamp,
}
