//! Admits connections: counts them, and bounds the memory that all of them take.
//!
//! `server` asks for a place for each client, `connection` for more where a head is long. A full pool evicts the
//! slowest connection (`eviction`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::budget::Pool;
use crate::limits::CONNECTION_BYTES;
use crate::measure::Level;

/// How often, and at what interval, a connection asks for room. A try may also wait for one that is evicted.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// After a smaller peak a trim of the heap is not worth its time.
const MANY: usize = 256;

/// How long after a drop of the connections the heap is trimmed, so that one trim serves many of them.
const SETTLED: Duration = Duration::from_secs(3);

/// The connections of all workers, and the bytes that they share.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) pool: Pool,
    now: Level,
    most: usize,
    /// Most connections since the heap was last trimmed.
    peak: AtomicUsize,
    fell: Notify,
}

impl Open {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Open {
            pool: Pool::new((most as u64).saturating_mul(CONNECTION_BYTES)),
            now: Level::default(),
            most,
            peak: AtomicUsize::new(0),
            fell: Notify::new(),
        })
    }

    /// Admits a new connection, for which the slowest one may be evicted. `None` if the pool is full and no
    /// connection stalls.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Counted> {
        if !self.pay(CONNECTION_BYTES).await {
            return None;
        }
        let now = self.now.add(1);
        self.peak.fetch_max(now, Ordering::Relaxed);
        Some(Counted { open: Arc::clone(self), bytes: CONNECTION_BYTES })
    }

    /// Takes `bytes`. It tries several times, because a connection may begin to stall meanwhile.
    pub(super) async fn pay(&self, bytes: u64) -> bool {
        for _ in 0..TRIES {
            if self.pool.unfinished.make_room(|| self.pool.take(bytes)).await {
                return true;
            }
            sleep(BETWEEN_TRIES).await;
        }
        false
    }

    pub(super) fn count(&self) -> u64 {
        self.now.get() as u64
    }

    /// Whether more than half of the connections are in use. Then a connection is closed after its answer: an idle
    /// one costs a client one request in minutes, and enough of them would shut out all others.
    pub(super) fn is_crowded(&self) -> bool {
        self.now.get() > self.most / 2
    }

    /// Calls `give_back` each time the number of connections has halved. Never returns.
    pub(super) async fn after_each_fall(self: Arc<Self>, give_back: impl Fn()) {
        loop {
            self.fell.notified().await;
            sleep(SETTLED).await;
            self.peak.store(self.now.get(), Ordering::Relaxed);
            give_back();
        }
    }
}

/// An open connection in the count, and the bytes that it has taken.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) open: Arc<Open>,
    pub(super) bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.pool.give(self.bytes);
        self.open.pool.unfinished.notify_freed();
        let now = self.open.now.subtract(1);
        let peak = self.open.peak.load(Ordering::Relaxed);
        if peak >= MANY && now == peak / 2 {
            self.open.fell.notify_one();
        }
    }
}
