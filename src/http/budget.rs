//! The bytes that all request bodies together may take in memory.
//!
//! Only `receive` and `body` use it. A large body takes its declared length *before* it is read, so
//! that those let in can finish; without that, 200 stalled 25 MiB uploads held 2 GB. Small bodies
//! have a lane that large ones cannot fill, and pay for what has arrived instead of what was
//! declared, so that a flood of stalled small requests cannot fill it for nothing. Where a lane is full,
//! a body that comes too slowly gives way ([`way`](super::way)): room is no reason to shut a provider
//! out. A permit is held until the store has answered, and gives its bytes back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::eviction::{Place, Unfinished};
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
    /// Of what limits it was made: the largest small body, and both lanes.
    made_of: [u64; 3],
    small_body: u64,
    small: Lane,
    large: Lane,
}

/// Bytes that many share.
#[derive(Debug)]
pub(super) struct Lane {
    free: AtomicU64,
    unfinished: Arc<Unfinished>,
}

impl Lane {
    pub(super) fn new(bytes: u64) -> Self {
        Lane { free: bytes.into(), unfinished: Arc::default() }
    }

    pub(super) fn take(&self, bytes: u64) -> bool {
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| free.checked_sub(bytes))
            .is_ok()
    }

    fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Those who stall.
    pub(super) fn unfinished(&self) -> &Arc<Unfinished> {
        &self.unfinished
    }

    pub(super) fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl Budget {
    /// The whole budget of `limits`, the small lane being part of it.
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let (small_body, small) = (limits.small_body_bytes, limits.small_bodies_in_flight_bytes);
        let large = largest_body_bytes(limits);
        Arc::new(Budget {
            made_of: [small_body, small, large],
            small_body,
            small: Lane::new(small),
            large: Lane::new(large),
        })
    }

    /// Whether the two were made of the same limits, whatever is taken of them.
    pub(super) fn is_like(&self, other: &Budget) -> bool {
        self.made_of == other.made_of
    }

    /// The whole of it.
    pub(super) fn bytes(&self) -> u64 {
        let [_, small, large] = self.made_of;
        small + large
    }

    /// What is taken of it now.
    pub(super) fn used(&self) -> u64 {
        let free = self.small.free() + self.large.free();
        self.bytes().saturating_sub(free)
    }

    /// A permit for nothing yet.
    pub(super) fn permit(self: &Arc<Self>) -> Permit {
        Permit { budget: Arc::clone(self), small: 0, large: 0, place: None }
    }
}

/// Bytes taken for one body.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    small: u64,
    large: u64,
    /// Where it stands while its body is not there.
    place: Option<Place>,
}

impl Permit {
    /// The largest body of the small lane.
    pub(super) fn small_body(&self) -> u64 {
        self.budget.small_body
    }

    /// Takes the declared length of a body where it is large. False where there is no room.
    pub(super) async fn declare(&mut self, bytes: u64) -> bool {
        bytes <= self.budget.small_body || self.make_room(bytes).await
    }

    /// Sees to it that `bytes` in all are taken, also where others have to give way. False where nobody
    /// does; what was taken stays.
    pub(super) async fn make_room(&mut self, bytes: u64) -> bool {
        if self.cover(bytes) {
            return true;
        }
        // Whoever asks is not asked.
        self.place = None;
        let small = bytes <= self.budget.small_body;
        let lane = if small { &self.budget.small } else { &self.budget.large };
        let unfinished = Arc::clone(&lane.unfinished);
        unfinished.make_room(|| self.cover(bytes)).await
    }

    /// Tells how much is there of a body of `expected` bytes that began to come at `begun`: from now on
    /// it may have to give way.
    pub(super) fn coming(&mut self, begun: Instant, received: u64, expected: u64) {
        let lane = if self.large > 0 { &self.budget.large } else { &self.budget.small };
        let here = self.place.take().filter(|place| place.is_in(&lane.unfinished));
        let place = here.unwrap_or_else(|| Place::new(&lane.unfinished, begun, expected));
        place.received(received);
        self.place = Some(place);
    }

    /// Its body is there: now it stays.
    pub(super) fn complete(&mut self) {
        self.place = None;
    }

    /// Resolves when it has to give way.
    pub(super) async fn evicted(&self) {
        match &self.place {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
    }

    /// The same where nobody gives way.
    fn cover(&mut self, bytes: u64) -> bool {
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
        (budget.small.free.load(Ordering::Acquire), budget.large.free.load(Ordering::Acquire))
    }

    #[tokio::test]
    async fn large_bodies_pay_ahead_and_never_enter_the_small_lane() {
        let budget = budget();
        let (mut first, mut second) = (budget.permit(), budget.permit());
        assert!(first.declare(800).await);
        assert!(!second.declare(101).await);
        assert_eq!(free(&budget), (200, 0));
        assert!(second.declare(100).await && second.cover(100), "a small one still gets in");
        drop(first);
        assert_eq!(free(&budget), (100, 800));
    }

    #[tokio::test]
    async fn small_bodies_pay_as_they_arrive() {
        let budget = budget();
        let mut stalled: Vec<Permit> = (0..50).map(|_| budget.permit()).collect();
        for permit in &mut stalled {
            assert!(permit.declare(100).await);
        }
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

    #[tokio::test]
    async fn a_stalled_body_gives_way_to_one_that_comes() {
        let budget = budget();
        let begun = Instant::now() - std::time::Duration::from_secs(1);
        let mut stalled = budget.permit();
        assert!(stalled.declare(800).await);
        stalled.coming(begun, 0, 800);
        let mut next = budget.permit();
        let leave = async {
            stalled.evicted().await;
            drop(stalled);
        };
        let (made, ()) = tokio::join!(next.declare(700), leave);
        assert!(made);
        assert_eq!(free(&budget), (200, 100));
        next.coming(begun, 0, 700);
        next.complete();
        assert!(!budget.permit().declare(800).await, "what is complete stays");
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
