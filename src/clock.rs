//! The only module that reads the system's clocks.
//!
//! `serve` passes a [`Clock`] to every layer below it, so that a test can control the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::model::Timestamp;

/// Reads wall time and monotonic time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Inner);

#[derive(Debug, Clone)]
enum Inner {
    System,
    Manual(Arc<Hands>),
}

#[derive(Debug, Default)]
struct Hands {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl Clock {
    /// A clock that reads the machine's clocks.
    pub fn system() -> Self {
        Clock(Inner::System)
    }

    /// A clock that stands still until a test moves it. Its clones share the time.
    pub fn manual(start: Timestamp) -> Self {
        let hands = Hands::default();
        hands.wall_ms.store(start.0, Ordering::SeqCst);
        Clock(Inner::Manual(Arc::new(hands)))
    }

    /// The wall time in milliseconds since 1970, in UTC. It jumps when the machine's clock is set.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Inner::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Inner::Manual(hands) => Timestamp(hands.wall_ms.load(Ordering::SeqCst)),
        }
    }

    /// The time since the machine started, without the time it was suspended. Setting the wall clock does
    /// not change it. For a manual clock, the time since it was created.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Inner::System => clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default(),
            Inner::Manual(hands) => {
                Duration::from_millis(hands.monotonic_ms.load(Ordering::SeqCst))
            }
        }
    }

    /// Advances the wall time and the monotonic time of a manual clock. Does nothing to a system clock.
    pub fn advance(&self, by: Duration) {
        if let Inner::Manual(hands) = &self.0 {
            let ms = by.as_millis();
            hands.wall_ms.fetch_add(i64::try_from(ms).unwrap_or(0), Ordering::SeqCst);
            hands.monotonic_ms.fetch_add(u64::try_from(ms).unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Sets the wall time of a manual clock, not its monotonic time. Does nothing to a system clock.
    pub fn set_wall(&self, to: Timestamp) {
        if let Inner::Manual(hands) = &self.0 {
            hands.wall_ms.store(to.0, Ordering::SeqCst);
        }
    }
}
