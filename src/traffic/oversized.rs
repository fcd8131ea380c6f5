//! Deliveries whose body was over a source's limit, by hour and declared size, for the person who sets the limit.
//!
//! Such a delivery is not proven: any client can send one, and declare any size. Must stay true: however many come,
//! a source has at most [`HOURS`] times [`CLASSES`] rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

const HOUR_MILLIS: i64 = 60 * 60 * 1_000;

/// The hours that are kept, the latest.
const HOURS: usize = 24;

/// Sizes count together up to the next power of two, all from a TiB on together; one class is that of no declared size.
const CLASSES: u32 = 41;

/// Bodies over a source's limit in one hour, of about one declared size. Any client can send them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooLarge {
    /// The hour in which they came, by the receiver's wall clock.
    pub at: Timestamp,
    /// The largest declared size among them; none where they declared none.
    pub declared_bytes: Option<u64>,
    /// How many came.
    pub requests: u64,
}

#[derive(Debug, Default)]
pub(super) struct Oversized(BTreeMap<(i64, u32), (Option<u64>, u64)>);

impl Oversized {
    pub(super) fn add(&mut self, declared: Option<u64>, at: Timestamp) {
        let bits = declared.map_or(0, |bytes| (u64::BITS - bytes.leading_zeros()).max(1));
        let key = (at.0.div_euclid(HOUR_MILLIS), bits.min(CLASSES - 1));
        let (largest, requests) = self.0.entry(key).or_default();
        *largest = (*largest).max(declared);
        *requests = requests.saturating_add(1);
        let mut hours: Vec<i64> = self.0.keys().map(|(hour, _)| *hour).collect();
        hours.dedup();
        if let Some(oldest) = hours.iter().rev().nth(HOURS - 1) {
            self.0.retain(|(hour, _), _| hour >= oldest);
        }
    }

    /// The latest hour first, and in it the largest size.
    pub(super) fn get(&self) -> Vec<TooLarge> {
        let row = |((hour, _), (declared_bytes, requests)): (&(i64, u32), &(Option<u64>, u64))| {
            let at = Timestamp(hour.saturating_mul(HOUR_MILLIS));
            TooLarge { at, declared_bytes: *declared_bytes, requests: *requests }
        };
        self.0.iter().rev().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_over_the_limit_are_counted_by_hour_and_declared_size() {
        let mut counted = Oversized::default();
        let at = |hour: i64| Timestamp(1_767_225_600_000 + hour * HOUR_MILLIS + 5);
        for (declared, hour) in
            [(Some(3_000), 0), (Some(4_095), 0), (Some(4_096), 0), (None, 0), (Some(9), 1)]
        {
            counted.add(declared, at(hour));
        }
        let rows = |counted: &Oversized| -> Vec<_> {
            let of = |row: TooLarge| {
                ((row.at.0 - at(0).0 + 5) / HOUR_MILLIS, row.declared_bytes, row.requests)
            };
            counted.get().into_iter().map(of).collect()
        };
        assert_eq!(
            rows(&counted),
            [(1, Some(9), 1), (0, Some(4_096), 1), (0, Some(4_095), 2), (0, None, 1)]
        );
        // A day later the oldest hour is gone.
        for hour in 2..=24 {
            counted.add(Some(9), at(hour));
        }
        assert_eq!(rows(&counted).last(), Some(&(1, Some(9), 1)));
        assert_eq!(rows(&counted).len(), HOURS);
    }

    #[test]
    fn strangers_cannot_make_the_rows_grow_without_a_bound() {
        let mut counted = Oversized::default();
        for at in
            [i64::MIN, -1, 0, 1, i64::MAX].into_iter().chain((0..100).map(|n| n * HOUR_MILLIS))
        {
            for bit in 0..64 {
                counted.add(Some(1 << bit), Timestamp(at));
                counted.add(Some(u64::MAX >> bit), Timestamp(at));
            }
            counted.add(Some(0), Timestamp(at));
            counted.add(None, Timestamp(at));
        }
        assert!(counted.get().len() <= HOURS * CLASSES as usize, "{}", counted.get().len());
    }
}
