//! What a check of the stored payloads asks for, and what it finds.

use serde::{Deserialize, Serialize};

/// The next stored payloads.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayloadCheck {
    /// Where the last answer said to go on; the beginning otherwise.
    pub after: Option<PayloadCursor>,
}

/// A place in the walk over the events: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadCursor(pub(in crate::store) i64);

/// Payloads that were compared with what was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedPayloads {
    /// How many they are.
    pub checked: u64,
    /// The damaged payloads: the event's source and id, or the number of its row where they cannot be read.
    pub damaged: Vec<String>,
    /// At most so many events are left.
    pub left: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<PayloadCursor>,
}
