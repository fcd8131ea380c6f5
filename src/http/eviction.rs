//! Evicts the slowest unfinished body (or connection) of a pool that has no room for a new one.
//!
//! `budget` uses it for bodies. `connection` uses it for connections, where the bytes that are expected and
//! received are those of a head or body. A signature can be checked only once the whole body is there, so a
//! client that sends hardly anything could otherwise keep every genuine delivery out. What must stay true: a
//! body at or above the required pace is never evicted; of the others the slowest goes first; and about
//! as many are evicted as new ones wait. A holder gives back its room before it drops its [`Place`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A body may take this long plus its length divided by [`MIN_BYTES_PER_SECOND`]. A provider's body usually
/// arrives within a second; the largest of GitHub's (25 MiB) may take 8.25 s, and GitHub gives up after 10 s
/// (`providers/github.toml`).
const BASE_TIME: Duration = Duration::from_secs(2);
const MIN_BYTES_PER_SECOND: u64 = 4 * 1024 * 1024;

/// At most this many slow bodies, the oldest, are compared: new ones wait meanwhile, and there may be one
/// small body for each connection.
const MAX_COMPARED: usize = 64;

/// Longest wait for the next body to leave; an evicted one does at its task's next poll.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The unfinished bodies of one pool.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    bodies: Mutex<Bodies>,
    /// Notified when a body has left or room was given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Bodies {
    next: u64,
    /// The bodies that were not evicted, by their number in the order of arrival.
    by_arrival: BTreeMap<u64, Arc<Progress>>,
    /// Evicted and not gone yet.
    leaving: usize,
    /// New ones that wait for room.
    waiting: usize,
}

/// A body that is being read.
#[derive(Debug)]
struct Progress {
    begun: Instant,
    expected: u64,
    received: AtomicU64,
    evicted: AtomicBool,
    waker: AtomicWaker,
}

impl Progress {
    fn new(begun: Instant, expected: u64) -> Self {
        Progress {
            begun,
            expected,
            received: AtomicU64::new(0),
            evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    /// Bytes received divided by bytes due by now. Below 1 the body will be late at its average rate so far.
    fn pace(&self, now: Instant) -> f64 {
        let millis = |time: Duration| time.as_millis() as f64;
        let allowed =
            millis(BASE_TIME) + self.expected as f64 * 1000.0 / MIN_BYTES_PER_SECOND as f64;
        let received = self.received.load(Ordering::Relaxed) as f64;
        // In the first millisecond this divides by zero: NaN or infinity, and neither is below 1.
        allowed * received / (millis(now - self.begun) * self.expected as f64)
    }
}

impl Unfinished {
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries `take` each time a body has left. False where none is slow, or none leaves in time.
    pub(super) async fn make_room(&self, mut take: impl FnMut() -> bool) -> bool {
        if take() {
            return true;
        }
        self.bodies().waiting += 1;
        let _waiting = Waiting(self);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no body leaves unnoticed.
            freed.as_mut().enable();
            if take() {
                return true;
            }
            let leaving = self.are_enough_leaving() || self.evict();
            if !leaving || tokio::time::timeout(LEAVE_TIMEOUT, freed).await.is_err() {
                return take();
            }
        }
    }

    /// Wakes new ones that wait: room was given back without a [`Place`].
    pub(super) fn notify_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Whether one is leaving for each new one that waits. Each that leaves wakes all who wait, and without
    /// this all of them would evict another.
    fn are_enough_leaving(&self) -> bool {
        let bodies = self.bodies();
        bodies.leaving >= bodies.waiting
    }

    /// Evicts the slowest body, and of several equally slow ones the oldest. False where none is slow and none
    /// is leaving. A provider's body begins slowly too over a high-latency link, with a few segments for each
    /// round trip, and must not be evicted before one that does not arrive at all.
    fn evict(&self) -> bool {
        let now = Instant::now();
        let mut bodies = self.bodies();
        let paces = bodies.by_arrival.iter().map(|(number, body)| (*number, body.pace(now)));
        let slow = paces.filter(|(_, pace)| *pace < 1.0).take(MAX_COMPARED);
        let slowest = slow.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(number, _)| number);
        match slowest.and_then(|number| bodies.by_arrival.remove(&number)) {
            Some(body) => {
                bodies.leaving += 1;
                body.evicted.store(true, Ordering::Release);
                body.waker.wake();
                true
            }
            None => bodies.leaving > 0,
        }
    }
}

/// Counts a new body that waits for room.
struct Waiting<'l>(&'l Unfinished);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.bodies().waiting -= 1;
    }
}

/// A body's place among the unfinished ones of its pool. Dropping it removes the body.
#[derive(Debug)]
pub(super) struct Place {
    pool: Arc<Unfinished>,
    number: u64,
    body: Arc<Progress>,
}

impl Place {
    /// Adds a body of `expected` bytes that began to arrive at `begun` to the pool.
    pub(super) fn new(pool: &Arc<Unfinished>, begun: Instant, expected: u64) -> Self {
        let body = Arc::new(Progress::new(begun, expected));
        let mut bodies = pool.bodies();
        bodies.next += 1;
        let number = bodies.next;
        bodies.by_arrival.insert(number, Arc::clone(&body));
        Place { pool: Arc::clone(pool), number, body }
    }

    /// Whether it belongs to this pool.
    pub(super) fn is_in(&self, pool: &Arc<Unfinished>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Records that this many of its bytes are there.
    pub(super) fn received(&self, bytes: u64) {
        self.body.received.store(bytes, Ordering::Relaxed);
    }

    /// Resolves when it is evicted. Only the last task that polled is woken.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.body.waker.register(cx.waker());
        if self.body.evicted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut bodies = self.pool.bodies();
        if bodies.by_arrival.remove(&self.number).is_none() {
            bodies.leaving -= 1;
        }
        drop(bodies);
        self.pool.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn is_slow_after(millis: u64, expected: u64, received: u64) -> bool {
        let begun = Instant::now();
        let coming = Progress::new(begun, expected);
        coming.received.store(received, Ordering::Relaxed);
        coming.pace(begun + Duration::from_millis(millis)) < 1.0
    }

    #[test]
    fn a_body_at_the_required_pace_is_never_slow() {
        assert!(!is_slow_after(0, 20 * MIB, 0), "at its very beginning");
        assert!(is_slow_after(1, 20 * MIB, 0), "nothing came with the head");
        assert!(!is_slow_after(100, 20 * MIB, MIB), "10 MiB/s");
        assert!(is_slow_after(1000, 20 * MIB, MIB), "20 s at this pace");
        assert!(!is_slow_after(6900, 20 * MIB, 20 * MIB - 1), "nearly there, and in its time");
        assert!(
            is_slow_after(7100, 20 * MIB, 20 * MIB - 1),
            "nearly there, and withholding the last byte"
        );
        assert!(
            !is_slow_after(1900, 64 * 1024, 64 * 1024 - 1)
                && is_slow_after(2100, 64 * 1024, 64 * 1024 - 1)
        );
    }

    #[test]
    fn a_slow_start_is_evicted_after_a_body_that_does_not_arrive() {
        let pool = Arc::new(Unfinished::default());
        let now = Instant::now();
        let begun = |millis| now - Duration::from_millis(millis);
        // Two round trips of 80 ms: 10 segments, then 20.
        let provider = Place::new(&pool, begun(160), MIB);
        provider.received(30 * 1460);
        assert!(provider.body.pace(now) < 1.0);
        let stalled = [20, 10].map(|millis| Place::new(&pool, begun(millis), 25 * MIB));
        assert!(pool.evict() && pool.evict());
        assert_eq!(pool.bodies().by_arrival.keys().copied().collect::<Vec<_>>(), [provider.number]);
        drop(stalled);
    }

    #[tokio::test]
    async fn make_room_waits_until_the_oldest_slow_body_has_left() {
        let pool = Arc::new(Unfinished::default());
        let begun = Instant::now() - Duration::from_secs(1);
        let places = [0, 1, 2].map(|_| Place::new(&pool, begun, MIB));
        places[0].received(MIB / 2);
        let [quick, slow, other] = places;
        let gone = std::cell::Cell::new(false);
        let leave = async {
            poll_fn(|cx| slow.poll_evicted(cx)).await;
            gone.set(true);
            drop(slow);
        };
        let (made, ()) = tokio::join!(pool.make_room(|| gone.get()), leave);
        assert!(made && pool.bodies().leaving == 0);
        drop(other);
        assert!(!pool.make_room(|| false).await, "a body at the required pace is not evicted");
        assert_eq!(pool.bodies().by_arrival.len(), 1);
        drop(quick);
    }
}
