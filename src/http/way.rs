//! Which of the bodies that are still coming gives way where there is no room for another.
//!
//! `budget` uses it for bodies, `connection` for connections. Nothing is proven before a body is there, so whoever holds room for a body
//! that hardly comes could keep every genuine one out for as long as bodies may take. Must stay true:
//! whoever comes at a provider's pace is never asked; whoever does not is asked as soon as its room is
//! needed, the slowest first, and nobody is asked for nothing.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What a body may take beside its length's share, and the pace that gives this share. A provider's body
/// comes within a second or so; at this pace the largest of GitHub's (25 MiB) comes within its deadline
/// of 10 s (`providers/github.toml`).
const ALLOWED: Duration = Duration::from_secs(2);
const ALLOWED_BYTES_PER_SECOND: u64 = 4 * 1024 * 1024;

/// Most slow bodies that are compared, the oldest: whoever comes waits for it, and of small ones there may
/// be one for each connection.
const COMPARED: usize = 64;

/// How long a newcomer waits for those it has asked: they leave as soon as their worker looks at them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The unfinished bodies of one lane, by age.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    bodies: Mutex<Bodies>,
    /// Somebody has left.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Bodies {
    next: u64,
    by_age: BTreeMap<u64, Arc<Coming>>,
    /// Asked, and not gone yet.
    leaving: usize,
    /// Newcomers that wait for room.
    waiting: usize,
}

/// A body that is being read.
#[derive(Debug)]
struct Coming {
    begun: Instant,
    expected: u64,
    received: AtomicU64,
    asked: AtomicBool,
    reader: AtomicWaker,
}

impl Coming {
    fn new(begun: Instant, expected: u64) -> Self {
        let (received, asked) = (AtomicU64::new(0), AtomicBool::new(false));
        Coming { begun, expected, received, asked, reader: AtomicWaker::new() }
    }

    /// Which part has come of what should be there by now: under 1 it takes longer than it may, if it
    /// goes on as it has begun.
    fn pace(&self, now: Instant) -> f64 {
        let millis = |time: Duration| time.as_millis() as f64;
        let allowed =
            millis(ALLOWED) + self.expected as f64 * 1000.0 / ALLOWED_BYTES_PER_SECOND as f64;
        let received = self.received.load(Ordering::Relaxed) as f64;
        // No number within the first millisecond, which is not under 1 either.
        allowed * received / (millis(now - self.begun) * self.expected as f64)
    }
}

impl Unfinished {
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `take` until it succeeds, each time after a slow body has left. False where nobody is slow.
    pub(super) async fn make_way(&self, mut take: impl FnMut() -> bool) -> bool {
        if take() {
            return true;
        }
        let _waiting = Waiting::new(self);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on nobody leaves unnoticed.
            freed.as_mut().enable();
            if take() {
                return true;
            }
            if !self.enough_leave() && !self.ask()
                || tokio::time::timeout(PATIENCE, freed).await.is_err()
            {
                return take();
            }
        }
    }

    /// Room was given back by one that was not asked.
    pub(super) fn freed(&self) {
        self.freed.notify_waiters();
    }

    /// Whether one leaves for each newcomer that waits: else all of them would ask again for each that left.
    fn enough_leave(&self) -> bool {
        let bodies = self.bodies();
        bodies.leaving >= bodies.waiting
    }

    /// Asks the slowest body to leave, and of several the oldest. False where there is none, and nobody is
    /// about to leave. A provider's body begins slowly too on a long line, with a few segments for each
    /// round trip, and must not go before one that does not come at all.
    fn ask(&self) -> bool {
        let now = Instant::now();
        let mut bodies = self.bodies();
        let paces = bodies.by_age.iter().map(|(age, body)| (*age, body.pace(now)));
        let slow = paces.filter(|(_, pace)| *pace < 1.0).take(COMPARED);
        let slowest = slow.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(age, _)| age);
        match slowest.and_then(|age| bodies.by_age.remove(&age)) {
            Some(body) => {
                bodies.leaving += 1;
                body.asked.store(true, Ordering::Release);
                body.reader.wake();
                true
            }
            None => bodies.leaving > 0,
        }
    }
}

/// A newcomer that waits for room.
struct Waiting<'l>(&'l Unfinished);

impl<'l> Waiting<'l> {
    fn new(lane: &'l Unfinished) -> Self {
        lane.bodies().waiting += 1;
        Waiting(lane)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.bodies().waiting -= 1;
    }
}

/// A body's place among the unfinished ones of its lane. It leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lane: Arc<Unfinished>,
    age: u64,
    body: Arc<Coming>,
}

impl Place {
    /// For a body of so many bytes that began to come at `begun`.
    pub(super) fn new(lane: &Arc<Unfinished>, begun: Instant, expected: u64) -> Self {
        let body = Arc::new(Coming::new(begun, expected));
        let mut bodies = lane.bodies();
        bodies.next += 1;
        let age = bodies.next;
        bodies.by_age.insert(age, Arc::clone(&body));
        Place { lane: Arc::clone(lane), age, body }
    }

    /// Whether it is one of this lane's.
    pub(super) fn is_in(&self, lane: &Arc<Unfinished>) -> bool {
        Arc::ptr_eq(&self.lane, lane)
    }

    /// So many of its bytes are there.
    pub(super) fn received(&self, bytes: u64) {
        self.body.received.store(bytes, Ordering::Relaxed);
    }

    /// Resolves when it has to give way.
    pub(super) async fn asked(&self) {
        poll_fn(|cx| self.poll_asked(cx)).await;
    }

    /// The same for one task, which is woken.
    pub(super) fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.body.reader.register(cx.waker());
        if self.body.asked.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut bodies = self.lane.bodies();
        if bodies.by_age.remove(&self.age).is_none() {
            bodies.leaving -= 1;
        }
        drop(bodies);
        self.lane.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn after(millis: u64, expected: u64, received: u64) -> bool {
        let begun = Instant::now();
        let coming = Coming::new(begun, expected);
        coming.received.store(received, Ordering::Relaxed);
        coming.pace(begun + Duration::from_millis(millis)) < 1.0
    }

    #[test]
    fn only_a_provider_s_pace_is_safe() {
        assert!(!after(0, 20 * MIB, 0), "at its very beginning");
        assert!(after(1, 20 * MIB, 0), "nothing came with the head");
        assert!(!after(100, 20 * MIB, MIB), "10 MiB/s");
        assert!(after(1000, 20 * MIB, MIB), "20 s at this pace");
        assert!(!after(6900, 20 * MIB, 20 * MIB - 1), "nearly there, and in its time");
        assert!(
            after(7100, 20 * MIB, 20 * MIB - 1),
            "nearly there, and waiting for something else"
        );
        assert!(!after(1900, 64 * 1024, 64 * 1024 - 1) && after(2100, 64 * 1024, 64 * 1024 - 1));
    }

    #[test]
    fn a_body_that_begins_slowly_stays_while_another_does_not_come_at_all() {
        let lane = Arc::new(Unfinished::default());
        let now = Instant::now();
        let begun = |millis| now - Duration::from_millis(millis);
        // Two round trips of 80 ms: 10 segments, then 20.
        let provider = Place::new(&lane, begun(160), MIB);
        provider.received(30 * 1460);
        assert!(provider.body.pace(now) < 1.0);
        let stalled = [20, 10].map(|millis| Place::new(&lane, begun(millis), 25 * MIB));
        assert!(lane.ask() && lane.ask());
        assert_eq!(lane.bodies().by_age.keys().copied().collect::<Vec<_>>(), [provider.age]);
        drop(stalled);
    }

    #[tokio::test]
    async fn the_oldest_slow_body_leaves_and_is_waited_for() {
        let lane = Arc::new(Unfinished::default());
        let begun = Instant::now() - Duration::from_secs(1);
        let places = [0, 1, 2].map(|_| Place::new(&lane, begun, MIB));
        places[0].received(MIB / 2);
        let [quick, slow, other] = places;
        let gone = std::cell::Cell::new(false);
        let leave = async {
            slow.asked().await;
            gone.set(true);
            drop(slow);
        };
        let (made, ()) = tokio::join!(lane.make_way(|| gone.get()), leave);
        assert!(made && lane.bodies().leaving == 0);
        drop(other);
        assert!(!lane.make_way(|| false).await, "who comes as it should is not asked");
        assert_eq!(lane.bodies().by_age.len(), 1);
        drop(quick);
    }
}
