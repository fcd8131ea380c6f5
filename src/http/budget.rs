//! The bytes that all request bodies together may take in memory.
//!
//! Only `receive` and `body` use it. A large body takes its declared length *before* it is read, so
//! that those let in can finish; without that, 200 stalled 25 MiB uploads held 2 GB. Small bodies
//! have a lane that large ones cannot fill, and pay for what has arrived instead of what was
//! declared, so that a flood of stalled small requests cannot fill it for nothing. A permit is held
//! until the store has answered, and gives its bytes back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;

/// The largest body that `limits` can ever let in: what is left of the budget beside the small lane.
/// A source that takes larger ones would refuse them for ever.
pub fn largest_body_bytes(limits: &Limits) -> u64 {
    limits
        .bodies_in_flight_bytes
        .saturating_sub(limits.small_bodies_in_flight_bytes)
        .max(limits.small_body_bytes)
}

/// Free bytes of both lanes.
#[derive(Debug)]
pub(super) struct Budget {
    /// Both lanes, empty.
    bytes: u64,
    small_body: u64,
    small: Lane,
    large: Lane,
}

#[derive(Debug)]
struct Lane(AtomicU64);

impl Lane {
    fn take(&self, bytes: u64) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| free.checked_sub(bytes))
            .is_ok()
    }

    fn free(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn give(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl Budget {
    /// The whole budget of `limits`, the small lane being part of it.
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let (small, large) = (limits.small_bodies_in_flight_bytes, largest_body_bytes(limits));
        Arc::new(Budget {
            bytes: small + large,
            small_body: limits.small_body_bytes,
            small: Lane(small.into()),
            large: Lane(large.into()),
        })
    }

    /// The whole of it.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is taken of it now.
    pub(super) fn used(&self) -> u64 {
        let free = self.small.free() + self.large.free();
        self.bytes.saturating_sub(free)
    }

    /// A permit for nothing yet.
    pub(super) fn permit(self: &Arc<Self>) -> Permit {
        Permit { budget: Arc::clone(self), small: 0, large: 0 }
    }
}

/// Bytes taken for one body.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    small: u64,
    large: u64,
}

impl Permit {
    /// The largest body of the small lane.
    pub(super) fn small_body(&self) -> u64 {
        self.budget.small_body
    }

    /// Takes the declared length of a body where it is large. False where there is no room.
    pub(super) fn declare(&mut self, bytes: u64) -> bool {
        bytes <= self.budget.small_body || self.cover(bytes)
    }

    /// Sees to it that `bytes` in all are taken. False where there is no room; what was taken stays.
    pub(super) fn cover(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.small + self.large) else { return true };
        if bytes <= self.budget.small_body && self.budget.small.take(more) {
            self.small += more;
            return true;
        }
        // A body that outgrows the small lane, or finds it full, moves to the large one as a whole.
        if !self.budget.large.take(bytes - self.large) {
            return false;
        }
        self.large = bytes;
        self.budget.small.give(std::mem::take(&mut self.small));
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.small.give(self.small);
        self.budget.large.give(self.large);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<Budget> {
        Budget::new(&Limits {
            bodies_in_flight_bytes: 1000,
            small_bodies_in_flight_bytes: 200,
            small_body_bytes: 100,
            ..Limits::default()
        })
    }

    fn free(budget: &Budget) -> (u64, u64) {
        (budget.small.0.load(Ordering::Acquire), budget.large.0.load(Ordering::Acquire))
    }

    #[test]
    fn large_bodies_pay_ahead_and_never_enter_the_small_lane() {
        let budget = budget();
        let (mut first, mut second) = (budget.permit(), budget.permit());
        assert!(first.declare(800));
        assert!(!second.declare(101));
        assert_eq!(free(&budget), (200, 0));
        assert!(second.declare(100) && second.cover(100), "a small one still gets in");
        drop(first);
        assert_eq!(free(&budget), (100, 800));
    }

    #[test]
    fn small_bodies_pay_as_they_arrive() {
        let budget = budget();
        let mut stalled: Vec<Permit> = (0..50).map(|_| budget.permit()).collect();
        assert!(stalled.iter_mut().all(|permit| permit.declare(100)));
        assert_eq!(free(&budget), (200, 800));
    }

    #[test]
    fn a_body_without_declared_length_moves_over_when_it_outgrows_the_lane() {
        let budget = budget();
        let mut permit = budget.permit();
        assert!(permit.cover(60) && permit.cover(60) && permit.cover(10) && permit.cover(100));
        assert_eq!(free(&budget), (100, 800));
        assert!(permit.cover(101));
        assert_eq!(free(&budget), (200, 699));
        assert!(permit.cover(800) && !permit.cover(801));
        drop(permit);
        assert_eq!(free(&budget), (200, 800));
    }

    #[test]
    fn a_full_small_lane_overflows_into_what_large_bodies_leave() {
        let budget = budget();
        let mut permits: Vec<Permit> = (0..11).map(|_| budget.permit()).collect();
        let fitted = permits.iter_mut().filter_map(|p| p.cover(100).then_some(())).count();
        assert_eq!((fitted, free(&budget)), (10, (0, 0)));
        permits.clear();
        assert_eq!(free(&budget), (200, 800));
    }

    #[test]
    fn permits_of_many_threads_give_back_exactly_what_they_took() {
        let budget = budget();
        std::thread::scope(|scope| {
            for seed in 0..8u64 {
                let budget = &budget;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let mut permit = budget.permit();
                        for step in 1..4 {
                            permit.cover((seed * 37 + round * 11) % 90 * step);
                        }
                    }
                });
            }
        });
        assert_eq!(free(&budget), (200, 800));
    }

    #[test]
    fn a_budget_smaller_than_its_small_lane_still_takes_small_bodies() {
        let limits = Limits {
            bodies_in_flight_bytes: 100,
            small_bodies_in_flight_bytes: 200,
            small_body_bytes: 50,
            ..Limits::default()
        };
        assert_eq!(largest_body_bytes(&limits), 50);
        assert_eq!(
            largest_body_bytes(&Limits::default()),
            112 * 1024 * 1024,
            "four and a half of GitHub's largest"
        );
    }
}
