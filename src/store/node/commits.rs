//! The writer's pace: what it commits at once, how long that takes, and when it last changed anything.
//!
//! Written by the writer, read by any thread.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::measure::Histogram;
use crate::model::Timestamp;

/// Items of a batch: up to `batch_count`, by its default.
const ITEMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Seconds of a flush: from a fast disk's to one that stalls.
pub(crate) const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Counts of the commits since the start.
#[derive(Debug)]
pub(crate) struct Commits {
    /// When something was last changed.
    pub(crate) last: Mutex<Option<Timestamp>>,
    /// How much of SQLite's log was in use after the last batch.
    pub(crate) log_bytes: AtomicU64,
    pub(crate) items: Histogram,
    pub(crate) seconds: Histogram,
}

impl Default for Commits {
    fn default() -> Self {
        Commits {
            last: Mutex::default(),
            log_bytes: AtomicU64::default(),
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
}
