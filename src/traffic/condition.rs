//! How often the condition of one handler held.

use std::sync::Arc;

use crate::measure::Counter;
use crate::model::Name;
use crate::routing::Decision;

/// The fixed words in metrics, in the order of the variants of [`Decision`].
const WORDS: [&str; 3] = ["true", "false", "failed"];

/// Clones share their counts.
#[derive(Debug, Clone)]
pub struct ConditionTraffic {
    pub(crate) name: Name,
    counts: Arc<[Counter; WORDS.len()]>,
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
        WORDS.into_iter().zip(self.counts.iter().map(Counter::get))
    }
}
