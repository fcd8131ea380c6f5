//! How often the condition of one handler held.

use std::sync::Arc;

use crate::measure::Counter;
use crate::model::Name;

/// What a handler's condition and key come to for one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The event makes a job.
    True,
    /// The event makes none.
    False,
    /// It cannot be decided: the job is held.
    Failed,
}

impl Decision {
    /// The fixed words in metrics, in the order of the variants.
    const WORDS: [&str; 3] = ["true", "false", "failed"];
}

/// Clones share their counts.
#[derive(Debug, Clone)]
pub struct ConditionTraffic {
    pub(crate) name: Name,
    counts: Arc<[Counter; Decision::WORDS.len()]>,
}

impl ConditionTraffic {
    pub(super) fn new(name: Name) -> Self {
        ConditionTraffic { name, counts: Arc::default() }
    }

    pub fn handler(&self) -> &Name {
        &self.name
    }

    pub fn decided(&self, decision: Decision) {
        self.counts[decision as usize].one();
    }

    /// The counts by result.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Decision::WORDS.into_iter().zip(self.counts.iter().map(Counter::get))
    }
}
