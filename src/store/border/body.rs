//! Which stored body is read.

use crate::model::{EventId, Name};

/// The body of an event, or of its answer.
#[derive(Debug, Clone)]
pub struct BodyOf {
    pub source: Name,
    pub event: EventId,
    pub variant: u32,
    /// The body of the answer to the caller.
    pub answer: bool,
}
