//! The audit list: who has changed what, and what a caller says of itself.

use serde::{Deserialize, Serialize};

use crate::limits::{BY_NAME_BYTES, BY_REASON_BYTES};
use crate::model::{AuditVerb, EventId, JobId, Name, State, Timestamp, Via};

use super::rows::PageCursor;

/// What the caller of a change says of itself. None of it is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct By {
    /// The name of the person or program that asks: 1 to 100 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program that is used; `command` where the caller does not say.
    #[serde(default = "command")]
    pub via: Via,
    /// Why: 1 to 500 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn command() -> Via {
    Via::Command
}

impl Default for By {
    fn default() -> Self {
        By { name: None, via: command(), reason: None }
    }
}

impl By {
    /// # Errors
    /// A text is empty or too long.
    pub fn check(&self) -> Result<(), BadBy> {
        let texts =
            [("name", &self.name, BY_NAME_BYTES), ("reason", &self.reason, BY_REASON_BYTES)];
        for (what, text, most) in texts {
            let bytes = text.as_ref().map_or(1, String::len);
            if !(1..=most).contains(&bytes) {
                return Err(BadBy { what, bytes, most });
            }
        }
        Ok(())
    }
}

/// A text of a [`By`] that is empty or too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {what} has {bytes} bytes; it must have 1 to {most}")]
pub struct BadBy {
    what: &'static str,
    bytes: usize,
    most: usize,
}

/// The place of a row in the audit list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPlace(pub(in crate::store) i64);

/// The caller of changes.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The user, as the kernel says.
    pub(crate) uid: u32,
    pub(crate) by: By,
}

/// The result of the row before a change that the store does not carry out.
pub(crate) const ASKED: &str = "asked";

/// The result of the row after a change.
pub(crate) const DONE: &str = "done";

/// Which rows of the audit list to show.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditFilter {
    /// Only changes of this kind.
    pub verb: Option<AuditVerb>,
    /// Only changes made then or later.
    pub since: Option<Timestamp>,
    /// At least 1; a page never has more rows than the limit `list_count`.
    pub limit: Option<usize>,
    /// The `next` of the last page; the newest come first without it.
    pub before: Option<PageCursor>,
}

/// One change: who, when, what, and with what result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    pub at: Timestamp,
    pub verb: AuditVerb,
    pub subject: AuditSubject,
    /// How many jobs, handlers or deliveries were changed; before a change, how many it is about.
    pub count: u64,
    /// `asked` before a change that the store does not carry out, `done`, or why it failed.
    pub result: String,
    /// Why, as the caller says.
    pub reason: Option<String>,
    /// The caller's user, as the kernel says.
    pub uid: u32,
    /// The name that the caller gives.
    pub name: Option<String>,
    /// The program that the caller names.
    pub via: Via,
}

/// The changed thing or things. Members without a value are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSubject {
    /// The key that it had when the change was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The job's last attempt then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The key that a replay has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_key: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<Name>,
    /// The node that was declared lost, or that runs the cancelled attempt where another one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The state in which jobs were chosen, or to which one was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Why quarantined deliveries were refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_for: Option<String>,
    /// Only what arrived then or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only quarantined deliveries with a higher number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// Only quarantined deliveries with this number or a lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upto: Option<i64>,
    /// The changed jobs of an event or a batch, each with its last attempt before the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<(JobId, u32)>,
}
