//! How many failed deliveries are kept: a bucket per source, and in it a share for each address.
//!
//! A delivery over the rate costs a look into two maps. The share keeps one flooder from taking the room that the
//! provider's deliveries need in the same minute.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::Name;

/// So much of the rate may come at once: what a provider sends in a minute is kept whole.
const BURST_SECONDS: f64 = 64.0;

/// One address has this part of its source's bucket.
const SHARE: f64 = 4.0;

/// Most addresses looked after at once. Over it they share their source's bucket, which a flood from so
/// many has emptied anyhow.
const ADDRESSES: usize = 1024;

/// The bytes of the last deliveries, draining at the bucket's rate.
#[derive(Default)]
struct Bucket {
    used: f64,
    at: Duration,
}

impl Bucket {
    fn drain(&mut self, per_second: f64, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.used = (self.used - per_second * passed).max(0.0);
        self.at = now;
    }

    /// Whether so much fits. The largest fits into an empty bucket, or it never would.
    fn has_room(&self, bytes: f64, per_second: f64) -> bool {
        self.used == 0.0 || self.used + bytes <= per_second * BURST_SECONDS
    }
}

/// The buckets of all sources.
pub(crate) struct Rate {
    per_second: f64,
    sources: HashMap<Name, Bucket>,
    shares: HashMap<(Name, String), Bucket>,
}

impl Rate {
    /// Makes empty buckets that drain this many bytes a second for each source.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        let per_second = bytes_per_second as f64;
        Rate { per_second, sources: HashMap::new(), shares: HashMap::new() }
    }

    /// Takes `bytes` for a delivery to `source` from `holder` at `now` (monotonic); false where they are
    /// over the rate.
    pub(crate) fn take(&mut self, source: &Name, holder: &str, bytes: u64, now: Duration) -> bool {
        let (rate, bytes) = (self.per_second, bytes as f64);
        let whole = self.sources.entry(source.clone()).or_default();
        whole.drain(rate, now);
        if !whole.has_room(bytes, rate) {
            return false;
        }
        let key = (source.clone(), holder.to_owned());
        if self.shares.len() >= ADDRESSES && !self.shares.contains_key(&key) {
            // An empty share is the same as none.
            self.shares.retain(|_, share| {
                share.drain(rate / SHARE, now);
                share.used > 0.0
            });
        }
        if self.shares.len() < ADDRESSES || self.shares.contains_key(&key) {
            let share = self.shares.entry(key).or_default();
            share.drain(rate / SHARE, now);
            if !share.has_room(bytes, rate / SHARE) {
                return false;
            }
            share.used += bytes;
        }
        whole.used += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_leaves_room_for_the_others_and_gets_more_with_time() {
        let mut rate = Rate::new(1_000);
        let taken = |rate: &mut Rate, holder: &str, now| {
            (0..1_000).filter(|_| rate.take(&name("a"), holder, 1_000, now)).count()
        };
        assert_eq!(taken(&mut rate, "flood", START), 16, "a quarter of 64 s");
        assert_eq!(taken(&mut rate, "provider", START), 16);
        assert_eq!(taken(&mut rate, "flood", START + Duration::from_secs(8)), 2);
        assert!(rate.take(&name("b"), "flood", 1_000, START), "each source has its own");
        for holder in ["c", "d", "e"] {
            taken(&mut rate, holder, START);
        }
        assert_eq!(taken(&mut rate, "late", START), 0, "the source's whole is used up");
    }

    #[test]
    fn a_body_larger_than_the_bucket_fits_into_an_empty_one() {
        let mut rate = Rate::new(10);
        assert!(rate.take(&name("a"), "x", 1_000_000, START));
        assert!(!rate.take(&name("a"), "x", 1, START));
    }

    #[test]
    fn any_number_of_addresses_costs_little_memory() {
        let mut rate = Rate::new(1_000_000_000);
        for nth in 0..10_000 {
            assert!(rate.take(&name("a"), &nth.to_string(), 1, START));
        }
        assert_eq!(rate.shares.len(), ADDRESSES);
        assert!(rate.take(&name("a"), "new", 1, START + Duration::from_secs(1)));
        assert_eq!(rate.shares.len(), 1, "the drained ones are forgotten");
    }
}
