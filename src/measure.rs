//! Lock-free counters and histograms for deliveries and attempts.
//!
//! The modules that do the work count; `metrics` shows the values. Must stay true: counting does not
//! wait and does not allocate, because it is on the path of every delivery.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A number for each of a few fixed words, which starts at 0 with the process and only grows.
#[derive(Debug)]
pub struct Tally(Box<[(&'static str, AtomicU64)]>);

impl Tally {
    pub fn new(words: impl IntoIterator<Item = &'static str>) -> Self {
        Tally(words.into_iter().map(|word| (word, AtomicU64::default())).collect())
    }

    /// Adds 1 to the count of `word`, if it is one of the words.
    pub fn one(&self, word: &str) {
        if let Some((_, count)) = self.0.iter().find(|(known, _)| *known == word) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each word with its count so far.
    pub fn get(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(word, count)| (*word, count.load(Ordering::Relaxed)))
    }
}

/// A number that rises and falls. An atomic subtraction wraps silently even in a build with overflow checks; this
/// one panics, as a plain subtraction does.
#[derive(Debug, Default)]
pub struct Level(AtomicUsize);

impl Level {
    /// Adds `more` and returns the new value.
    pub fn add(&self, more: usize) -> usize {
        self.0.fetch_add(more, Ordering::Relaxed) + more
    }

    /// Subtracts `less` and returns the new value. Panics, and changes nothing, if that is below zero.
    pub fn subtract(&self, less: usize) -> usize {
        let checked = |level: usize| level.checked_sub(less);
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, checked);
        assert!(before.is_ok(), "a level falls by {less}, below zero: {before:?}");
        before.unwrap_or_default() - less
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts values by the range that they are in.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One count for each bound, and one for values over the last bound.
    buckets: Box<[AtomicU64]>,
    /// The sum of the values in millionths, because a sum of floats would need a lock. Holds 500,000 years of seconds.
    sum_millionths: AtomicU64,
}

/// The contents of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Each upper bound, and how many values are at most that; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// The smallest bound under which so many of 100 values are; none where that is the infinite one, or without values.
    pub fn bound_of(&self, percent: u64) -> Option<f64> {
        let (_, all) = *self.buckets.last().filter(|(_, all)| *all > 0)?;
        let (bound, _) = *self.buckets.iter().find(|(_, under)| under * 100 >= all * percent)?;
        bound.is_finite().then_some(bound)
    }
}

impl Histogram {
    /// An empty histogram. The bounds are inclusive upper bounds in rising order.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Histogram { bounds, buckets, sum_millionths: AtomicU64::default() }
    }

    /// Counts a value. A value below 0 adds 0 to the sum.
    pub fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        // The conversion saturates: a negative value and NaN become 0.
        let millionths = (value * 1e6).round() as u64;
        self.sum_millionths.fetch_add(millionths, Ordering::Relaxed);
    }

    /// The contents now. It reads buckets and sum separately, so a value that is being counted may be in
    /// only one of them.
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
    fn a_share_of_the_values_is_under_a_bound() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        assert_eq!(histogram.get().bound_of(50), None);
        [0.1, 0.2, 0.3, 0.9, 7.0].iter().for_each(|value| histogram.observe(*value));
        let distribution = histogram.get();
        assert_eq!(
            [60, 61, 95].map(|percent| distribution.bound_of(percent)),
            [Some(0.5), Some(1.0), None]
        );
    }

    #[test]
    fn a_bucket_includes_its_bound_and_the_last_bucket_all_values() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.5, 0.500_001, 1.0, 7.0, -1.0] {
            histogram.observe(value);
        }
        let Distribution { buckets, sum } = histogram.get();
        assert_eq!(buckets, [(0.5, 2), (1.0, 4), (f64::INFINITY, 5)]);
        assert!((sum - 9.000_001).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_level_never_falls_below_zero() {
        let level = Level::default();
        assert_eq!((level.add(5), level.subtract(2), level.get()), (5, 3, 3));
        let fall = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| level.subtract(4)));
        assert!(fall.is_err());
        assert_eq!(level.get(), 3, "unchanged");
    }

    #[test]
    fn concurrent_counts_are_not_lost() {
        let (tally, histogram) = (Tally::new(["a", "b"]), Histogram::new(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        tally.one("b");
                        histogram.observe(1.0);
                    }
                });
            }
        });
        assert_eq!(tally.get().collect::<Vec<_>>(), [("a", 0), ("b", 4000)]);
        assert_eq!(histogram.get().sum, 4000.0);
    }
}
