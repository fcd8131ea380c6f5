//! The only place that asks what time it is.
//!
//! Everything below `serve` is given a [`Clock`], so that tests own the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Tells wall time and monotonic time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Inner);

#[derive(Debug, Clone)]
enum Inner {
    System(Instant),
    Manual(Arc<Hands>),
}

#[derive(Debug, Default)]
struct Hands {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Clock(Inner::System(Instant::now()))
    }

    /// A clock that stands still until a test moves it; clones share the hands.
    pub fn manual(start: Timestamp) -> Self {
        let hands = Hands::default();
        hands.wall_ms.store(start.0, Ordering::SeqCst);
        Clock(Inner::Manual(Arc::new(hands)))
    }

    /// Wall time now.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Inner::System(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Inner::Manual(hands) => Timestamp(hands.wall_ms.load(Ordering::SeqCst)),
        }
    }

    /// Time since the clock was made, unmoved by corrections of the wall clock.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Inner::System(start) => start.elapsed(),
            Inner::Manual(hands) => {
                Duration::from_millis(hands.monotonic_ms.load(Ordering::SeqCst))
            }
        }
    }

    /// Lets time pass on a manual clock: both hands move. No effect on the machine's.
    pub fn advance(&self, by: Duration) {
        if let Inner::Manual(hands) = &self.0 {
            let ms = by.as_millis();
            hands.wall_ms.fetch_add(i64::try_from(ms).unwrap_or(0), Ordering::SeqCst);
            hands.monotonic_ms.fetch_add(u64::try_from(ms).unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Corrects a manual clock's wall time and leaves the monotonic one. No effect on the machine's.
    pub fn set_wall(&self, to: Timestamp) {
        if let Inner::Manual(hands) = &self.0 {
            hands.wall_ms.store(to.0, Ordering::SeqCst);
        }
    }
}
