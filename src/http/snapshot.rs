//! What requests are taken by: one snapshot of the configuration, replaced as a whole.
//!
//! `server` swaps it at a reload and looks at it once for each request, which goes on by what it found
//! to its end. What must stay true: a look takes no lock, and the source of a request, the limits that
//! it is read within and the handlers that its event is matched with are of one snapshot (S6).

use std::sync::Arc;

use crate::limits::Limits;

use super::ServedSources;
use super::body::Pace;
use super::budget::Budget;

/// What a reload changes of the front door.
pub(super) struct Snapshot {
    pub(super) sources: ServedSources,
    pub(super) budget: Arc<Budget>,
    pub(super) pace: Pace,
    /// Most bytes of headers that one delivery may have kept.
    pub(super) headers_kept: u64,
}

impl Snapshot {
    /// These sources within these limits.
    pub(super) fn new(sources: ServedSources, limits: &Limits) -> Self {
        Snapshot {
            sources,
            budget: Budget::new(limits),
            pace: Pace::new(limits),
            headers_kept: limits.headers_kept_bytes,
        }
    }

    /// The next one. Bodies in memory go on counting in the budget that they were let in by, so where
    /// its limits are the same the budget stays: reloads one after the other would multiply it.
    pub(super) fn next(&self, sources: ServedSources, limits: &Limits) -> Self {
        let mut next = Snapshot::new(sources, limits);
        if next.budget.is_like(&self.budget) {
            next.budget = Arc::clone(&self.budget);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_budget_stays_unless_its_limits_change() {
        let limits = Limits::default();
        let first = Snapshot::new(ServedSources::default(), &limits);
        let mut held = first.budget.permit();
        assert!(held.make_room(1000).await);
        let other = Limits { headers_kept_bytes: 2048, ..limits.clone() };
        let second = first.next(ServedSources::default(), &other);
        assert!(Arc::ptr_eq(&first.budget, &second.budget) && second.headers_kept == 2048);
        let other = Limits { bodies_in_flight_bytes: limits.bodies_in_flight_bytes * 2, ..limits };
        assert!(!Arc::ptr_eq(
            &second.budget,
            &second.next(ServedSources::default(), &other).budget
        ));
    }
}
