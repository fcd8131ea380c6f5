//! What is counted while deliveries and attempts go by: counters and distributions without a lock.
//!
//! For whoever does the work; `metrics` shows them. What must stay true: counting waits for nothing and
//! allocates nothing, so that it may stand on the path of every delivery.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, from 0 at the start of the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Counts several.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// So many were counted.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many values fell between which bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is over the last.
    buckets: Box<[AtomicU64]>,
    /// In millionths, as a sum of floats would need a lock. Good for 500,000 years of seconds.
    sum_millionths: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Each upper bound, and how many values were not over it; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// An empty one. The bounds are inclusive, and rise.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Histogram { bounds, buckets, sum_millionths: AtomicU64::default() }
    }

    /// Counts a value; one below 0 counts as 0.
    pub fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        // A float becomes the nearest whole number there is, and nothing where it is none.
        let millionths = (value * 1e6).round() as u64;
        self.sum_millionths.fetch_add(millionths, Ordering::Relaxed);
    }

    /// What was counted. A value that is counted meanwhile may be in the sum and in no bucket yet.
    pub fn get(&self) -> Distribution {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.buckets.iter().scan(0, |below, bucket| {
            *below += bucket.load(Ordering::Relaxed);
            Some(*below)
        });
        let sum = self.sum_millionths.load(Ordering::Relaxed) as f64 / 1e6;
        Distribution { buckets: bounds.zip(counts).collect(), sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_within_it_and_the_last_bucket_has_all() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.5, 0.500_001, 1.0, 7.0, -1.0] {
            histogram.observe(value);
        }
        let Distribution { buckets, sum } = histogram.get();
        assert_eq!(buckets, [(0.5, 2), (1.0, 4), (f64::INFINITY, 5)]);
        assert!((sum - 9.000_001).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn many_threads_lose_no_count() {
        let (counter, histogram) = (Counter::default(), Histogram::new(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counter.one();
                        histogram.observe(1.0);
                    }
                });
            }
        });
        assert_eq!((counter.get(), histogram.get().sum), (4000, 4000.0));
    }
}
