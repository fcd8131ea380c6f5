//! The writer's pace: what it commits at once, how long that takes, and when it last changed anything.
//!
//! Written by the writer, read by any thread.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::measure::{Distribution, Histogram};
use crate::model::Timestamp;

/// Items of a batch: up to `batch_count`, by its default.
const ITEMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Seconds of a flush: from a fast disk's to one that stalls.
pub(crate) const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// No commit yet.
const NEVER: i64 = i64::MIN;

/// Counts of the commits since the start.
#[derive(Debug)]
pub(crate) struct Commits {
    last: AtomicI64,
    log_bytes: AtomicU64,
    items: Histogram,
    seconds: Histogram,
}

impl Default for Commits {
    fn default() -> Self {
        Commits {
            last: AtomicI64::new(NEVER),
            log_bytes: AtomicU64::new(0),
            items: Histogram::new(ITEMS),
            seconds: Histogram::new(SECONDS),
        }
    }
}

impl Commits {
    /// So many items were committed and flushed.
    pub(crate) fn batch(&self, items: usize, took: Duration) {
        self.items.observe(items as f64);
        self.seconds.observe(took.as_secs_f64());
    }

    /// The last of them changed something.
    pub(crate) fn changed(&self, now: Timestamp) {
        self.last.store(now.0, Ordering::Relaxed);
    }

    /// So much of the log is in use.
    pub(crate) fn log(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How much of the log was in use after the last batch.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// When something was last changed.
    pub(crate) fn last(&self) -> Option<Timestamp> {
        Some(self.last.load(Ordering::Relaxed)).filter(|at| *at != NEVER).map(Timestamp)
    }

    /// Items and seconds of the batches.
    pub(crate) fn batches(&self) -> (Distribution, Distribution) {
        (self.items.get(), self.seconds.get())
    }
}
