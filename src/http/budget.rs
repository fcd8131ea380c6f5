//! The bytes that all request bodies together may take in memory.
//!
//! `receive` and `body` use it for bodies, and `connection` uses its [`Pool`]. A large body takes its declared
//! length *before* it is read, so that every admitted body can finish; without that, 200 stalled 25 MiB
//! uploads held 2 GB. Small bodies have a pool that large ones cannot fill. They pay for the bytes that have arrived and
//! not for their declared length, so that a flood of stalled small requests cannot fill the pool. If a pool is
//! full, the slowest body is evicted (`eviction`), so that clients that stall do not shut providers out. A
//! permit is held until the store has answered, and returns its bytes when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::eviction::{Place, Unfinished};
use crate::limits::{Limits, SMALL_BODY_BYTES};

/// The largest body that `limits` can ever admit: the budget without the small pool. A source with a larger
/// limit would refuse such bodies permanently.
pub fn largest_body_bytes(limits: &Limits) -> u64 {
    limits
        .bodies_in_flight_bytes
        .saturating_sub(limits.small_bodies_in_flight_bytes)
        .max(SMALL_BODY_BYTES)
}

#[derive(Debug)]
pub(super) struct Budget {
    /// Largest body of the small pool.
    small_body: u64,
    small: Pool,
    large: Pool,
}

/// Bytes that many bodies or connections share.
#[derive(Debug)]
pub(super) struct Pool {
    bytes: u64,
    free: AtomicU64,
    /// The members that may be evicted.
    pub(super) unfinished: Arc<Unfinished>,
}

impl Pool {
    pub(super) fn new(bytes: u64) -> Self {
        Pool { bytes, free: bytes.into(), unfinished: Arc::default() }
    }

    pub(super) fn take(&self, bytes: u64) -> bool {
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| free.checked_sub(bytes))
            .is_ok()
    }

    fn used(&self) -> u64 {
        self.bytes.saturating_sub(self.free.load(Ordering::Relaxed))
    }

    pub(super) fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let large = largest_body_bytes(limits);
        Self::of_pools(SMALL_BODY_BYTES, limits.small_bodies_in_flight_bytes, large)
    }

    fn of_pools(small_body: u64, small: u64, large: u64) -> Arc<Self> {
        Arc::new(Budget { small_body, small: Pool::new(small), large: Pool::new(large) })
    }

    /// Compares the limits, not the bytes in use.
    pub(super) fn is_like(&self, other: &Budget) -> bool {
        (self.small.bytes, self.large.bytes) == (other.small.bytes, other.large.bytes)
    }

    /// All bytes of the budget, in use and free.
    pub(super) fn bytes(&self) -> u64 {
        self.small.bytes + self.large.bytes
    }

    pub(super) fn used(&self) -> u64 {
        self.small.used() + self.large.used()
    }

    fn pool(&self, small: bool) -> &Pool {
        if small { &self.small } else { &self.large }
    }

    /// A permit that has taken nothing yet.
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
    /// The body's place among the unfinished ones, until it is complete.
    place: Option<Place>,
}

impl Permit {
    /// The largest body of the small pool.
    pub(super) fn small_body(&self) -> u64 {
        self.budget.small_body
    }

    /// Takes the declared length of a large body. False if the pools are full.
    pub(super) async fn declare(&mut self, bytes: u64) -> bool {
        bytes <= self.budget.small_body || self.make_room(bytes).await
    }

    /// Takes until the permit has `bytes` in total, evicting slow bodies if necessary. False if no body can be
    /// evicted; the permit keeps what it has.
    pub(super) async fn make_room(&mut self, bytes: u64) -> bool {
        if self.cover(bytes) {
            return true;
        }
        // A body that waits for room must not be evicted itself.
        self.place = None;
        let small = bytes <= self.budget.small_body;
        let unfinished = Arc::clone(&self.budget.pool(small).unfinished);
        unfinished.make_room(|| self.cover(bytes)).await
    }

    /// Takes `bytes` more for what a complete body is inflated to, or all that the pools can have. Like
    /// [`Permit::make_room`].
    pub(super) async fn add(&mut self, bytes: u64) -> bool {
        let most = self.budget.large.bytes.max(self.small + self.large);
        self.make_room((self.small + self.large).saturating_add(bytes).min(most)).await
    }

    /// Records how much has arrived of a body of `expected` bytes that began at `begun`. From now on the body may
    /// be evicted.
    pub(super) fn record_progress(&mut self, begun: Instant, received: u64, expected: u64) {
        let pool = self.budget.pool(self.large == 0);
        let here = self.place.take().filter(|place| place.is_in(&pool.unfinished));
        let place = here.unwrap_or_else(|| Place::new(&pool.unfinished, begun, expected));
        place.received(received);
        self.place = Some(place);
    }

    /// The body has arrived, and is not evicted any more.
    pub(super) fn complete(&mut self) {
        self.place = None;
    }

    /// Resolves when the body is evicted.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.place.as_ref().map_or(Poll::Pending, |place| place.poll_evicted(cx))
    }

    /// Like [`Permit::make_room`], without eviction.
    fn cover(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.small + self.large) else { return true };
        if bytes <= self.budget.small_body && self.budget.small.take(more) {
            self.small += more;
            return true;
        }
        // A body that outgrows the small pool, or finds it full, moves to the large pool as a whole.
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
    use std::future::poll_fn;

    use super::*;

    fn budget() -> Arc<Budget> {
        Budget::of_pools(100, 200, 800)
    }

    fn free(budget: &Budget) -> (u64, u64) {
        (budget.small.free.load(Ordering::Acquire), budget.large.free.load(Ordering::Acquire))
    }

    #[tokio::test]
    async fn large_bodies_pay_before_they_arrive_and_never_use_the_small_pool() {
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
    fn a_body_of_undeclared_length_moves_to_the_large_pool_when_it_outgrows_the_small_one() {
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
    fn small_bodies_use_the_large_pool_when_the_small_one_is_full() {
        let budget = budget();
        let mut permits: Vec<Permit> = (0..11).map(|_| budget.permit()).collect();
        let fitted = permits.iter_mut().filter_map(|p| p.cover(100).then_some(())).count();
        assert_eq!((fitted, free(&budget)), (10, (0, 0)));
        permits.clear();
        assert_eq!(free(&budget), (200, 800));
    }

    #[tokio::test]
    async fn an_inflated_body_is_paid_for_beside_the_compressed_one() {
        let budget = budget();
        let mut permit = budget.permit();
        assert!(permit.cover(50) && permit.add(100).await);
        assert_eq!(free(&budget), (200, 650));
        let mut other = budget.permit();
        assert!(other.cover(100));
        assert!(!other.add(600).await, "there is no room");
        drop(permit);
        assert!(other.add(1000).await, "never more than there is");
        assert_eq!(free(&budget), (200, 0));
    }

    #[tokio::test]
    async fn a_stalled_body_is_evicted_for_a_new_one() {
        let budget = budget();
        let begun = Instant::now() - std::time::Duration::from_secs(1);
        let mut stalled = budget.permit();
        assert!(stalled.declare(800).await);
        stalled.record_progress(begun, 0, 800);
        let mut next = budget.permit();
        let leave = async {
            poll_fn(|cx| stalled.poll_evicted(cx)).await;
            drop(stalled);
        };
        let (made, ()) = tokio::join!(next.declare(700), leave);
        assert!(made);
        assert_eq!(free(&budget), (200, 100));
        next.record_progress(begun, 0, 700);
        next.complete();
        assert!(!budget.permit().declare(800).await, "what is complete stays");
    }

    #[test]
    fn concurrent_permits_return_exactly_what_they_took() {
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
    fn a_budget_smaller_than_its_small_pool_still_admits_small_bodies() {
        let mib = 1 << 20;
        let limits = Limits {
            bodies_in_flight_bytes: mib,
            small_bodies_in_flight_bytes: 2 * mib,
            ..Limits::default()
        };
        assert_eq!(largest_body_bytes(&limits), SMALL_BODY_BYTES);
        assert_eq!(
            largest_body_bytes(&Limits::default()),
            112 * 1024 * 1024,
            "four and a half of GitHub's largest"
        );
    }
}
