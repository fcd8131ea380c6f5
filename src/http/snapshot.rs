//! A snapshot of the configuration, replaced as a whole.
//!
//! `server` replaces it at a reload. A request reads it once, without a lock, and keeps it to its end. What must stay
//! true: the source of a request, its limits and the handlers that match its event are of one snapshot (S6).

use std::sync::Arc;

use crate::limits::Limits;

use super::body::Pace;
use super::budget::Budget;
use super::source::ServedSources;

/// What a reload changes of the HTTP server.
pub(super) struct Snapshot {
    pub(super) sources: ServedSources,
    pub(super) budget: Arc<Budget>,
    pub(super) pace: Pace,
}

impl Snapshot {
    pub(super) fn new(sources: ServedSources, limits: &Limits) -> Self {
        Snapshot { sources, budget: Budget::new(limits), pace: Pace::new(limits) }
    }

    /// The snapshot after a reload. Bodies in memory stay in the budget that admitted them, so a budget with the same
    /// limits is kept: consecutive reloads would multiply it.
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
    async fn a_reload_keeps_the_budget_unless_its_limits_change() {
        let limits = Limits::default();
        let first = Snapshot::new(ServedSources::default(), &limits);
        let mut held = first.budget.permit();
        assert!(held.make_room(1000).await);
        let other = Limits { body_rate_bytes_per_second: 1, ..limits.clone() };
        let second = first.next(ServedSources::default(), &other);
        assert!(Arc::ptr_eq(&first.budget, &second.budget));
        let other = Limits { bodies_in_flight_bytes: limits.bodies_in_flight_bytes * 2, ..limits };
        assert!(!Arc::ptr_eq(
            &second.budget,
            &second.next(ServedSources::default(), &other).budget
        ));
    }
}
