//! A request whose answer is kept under its key, and what becomes of it.

use std::time::Duration;

use crate::model::{Answer, Digest, JobId, Name, Timestamp};
use crate::verify::Verified;

/// A request whose answer is kept under its key, which is the delivery's event id.
#[derive(Debug, Clone)]
pub struct Ask {
    pub source: Name,
    /// The owner of the key: two callers may use the same key. Empty if the source has one caller.
    pub caller: String,
    /// Digest of everything that distinguishes this request from others.
    pub request: Digest,
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// The source's one handler.
    pub handler: Name,
    /// How long the key is kept from now on.
    pub keep: Duration,
    /// How long an answer that says "not now" is kept.
    pub keep_errors: Duration,
}

/// The result of a request with a key. It is on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// This request made its job ready: the key is new, or its last run is known to have failed.
    Begun {
        job: JobId,
        /// The job ran before, and failed.
        again: bool,
    },
    /// An earlier request has the key.
    Known { job: JobId, state: KeyState },
    /// An earlier, different request has the key.
    Conflict,
}

/// The state of a key's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// Every repeat gets this answer.
    Answered(Answer),
    /// Its job waits or runs.
    Pending,
    /// Its handler is known to have failed and gave no answer.
    Failed,
    /// Its outcome is unknown; a person has to resolve it.
    Unknown {
        /// The time-out ended the attempt.
        timed_out: bool,
    },
    /// The operator has dropped its job.
    Dropped,
}
