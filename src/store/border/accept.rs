//! A genuine delivery, and the result of accepting it.

use crate::model::{HeldReason, Name, OnRedelivery, State, Timestamp};
use crate::routing::NewJob;
use crate::verify::Verified;

/// A genuine delivery with the jobs that the configuration makes of it, matched by one snapshot.
#[derive(Debug)]
pub struct Accept {
    pub source: Name,
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// The jobs of the handlers that want it, one for each.
    pub jobs: Vec<NewJob>,
    /// What it does if it is a duplicate.
    pub on_redelivery: OnRedelivery,
}

/// The result of accepting a delivery. It is on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// A new event.
    Created {
        jobs: usize,
        /// Why the jobs are held, if they are.
        held: Option<HeldReason>,
        /// The replay guard marked the event and let it run.
        flagged: bool,
    },
    /// The event exists.
    Duplicate {
        /// The state that matters most among its jobs; `None` if it has no job.
        state: Option<State>,
        /// Retention removed its jobs with its payload: `state` was their state.
        removed: bool,
        /// Number of its dead jobs that this delivery put back, by `on_redelivery`.
        replayed: usize,
        /// When the first delivery arrived.
        first_received_at: Timestamp,
        /// The body differs although the id is signed. It is kept as evidence.
        conflict: bool,
    },
}
