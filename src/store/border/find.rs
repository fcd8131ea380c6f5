//! What an operator means by an id or by its beginning.

use serde::{Deserialize, Serialize};

use crate::model::{EventId, Name};

use super::rows::JobRow;

/// What an id may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdKind {
    Event,
    Job,
    /// Either of them.
    Any,
}

/// What an operator typed for an id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdQuery {
    /// What it may be of.
    pub kind: IdKind,
    /// The whole id, or its beginning.
    pub text: String,
    /// Only events of this source.
    pub source: Option<Name>,
}

/// The event or job with that id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdMatch {
    /// The events with this id: of several sources, or several bodies.
    Event(EventId),
    Job(Box<JobRow>),
}
