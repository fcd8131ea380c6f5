//! Which stored events are to get the jobs that they lack, and what became of that.

use serde::{Deserialize, Serialize};

use crate::model::{Name, Timestamp};
use crate::pattern::Pattern;

/// Which stored events are to get a job that they lack: the handler was not there, or did not want them, when
/// they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// The handler whose jobs are made.
    pub handler: Name,
    /// Only events that arrived then or later.
    pub since: Timestamp,
    /// Only what the handler wants, matched by one snapshot of the configuration (S6).
    pub wanted: Vec<EventMatcher>,
    /// Whether jobs are only counted, and not made.
    pub dry_run: bool,
    /// Where the last answer said to go on; the beginning otherwise.
    pub from: Option<BackfillCursor>,
}

/// What a handler wants of some of its sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMatcher {
    pub sources: Vec<Name>,
    pub types: Vec<Pattern>,
    pub only: Option<Pattern>,
}

impl EventMatcher {
    pub(in crate::store) fn matches(&self, source: &Name, event_type: &str) -> bool {
        let of = |pattern: &Pattern| pattern.matches(event_type);
        self.sources.contains(source) && self.types.iter().any(of) && self.only.iter().all(of)
    }
}

/// A place in the walk over the events: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillCursor {
    pub(in crate::store) after: i64,
    /// The newest event when the walk began: it ends even while events arrive.
    pub(in crate::store) last: i64,
}

/// What one step did with the events that the handler wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillResult {
    /// Jobs made, the held ones included, and those that the next one of their group has superseded.
    pub made: u64,
    /// How many of these jobs are held: accepting the event would have held them.
    pub held: u64,
    /// Events that have a job of this handler already, events whose jobs were removed with their payload (some
    /// handler had them), and requests that their one handler answers.
    pub present: u64,
    /// Events skipped because their payload has been deleted and no job of theirs is known.
    pub payload_gone: u64,
    /// Events for which the handler's condition does not hold.
    pub unwanted: u64,
    /// Events in whose group a newer one has run or is to run, where only the latest counts.
    pub superseded: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<BackfillCursor>,
}
