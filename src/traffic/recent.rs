//! Counts of the last day in slots of 15 minutes of the wall clock, in memory.
//!
//! Must stay true: counting takes no lock, as in all of this module, and a count never gets into another slot, even if the
//! clock is set. So a cell is one number: its slot in the upper half, the count in the lower half.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::model::{Name, Timestamp};

pub(super) const SLOT_MILLIS: u64 = 15 * 60 * 1_000;

/// A day.
const SLOTS: usize = 96;

/// Counts of `KINDS` kinds.
#[derive(Debug)]
pub(super) struct RecentCounts<const KINDS: usize>([[AtomicU64; KINDS]; SLOTS]);

impl<const KINDS: usize> Default for RecentCounts<KINDS> {
    fn default() -> Self {
        RecentCounts(array::from_fn(|_| array::from_fn(|_| AtomicU64::default())))
    }
}

impl<const KINDS: usize> RecentCounts<KINDS> {
    pub(super) fn one(&self, kind: usize, at: Timestamp) {
        let slot = slot(at);
        let count = |cell: u64| Some(if cell >> 32 == slot { cell + 1 } else { slot << 32 | 1 });
        // It never returns `None`, so it cannot fail.
        let _ = self.0[place(slot)][kind].fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
    }

    /// The slots of the day up to `now` in which something was counted, oldest first, with their starts.
    pub(super) fn get(&self, now: Timestamp) -> Vec<(Timestamp, [u64; KINDS])> {
        let last = slot(now);
        let slots = (last + 1).saturating_sub(SLOTS as u64)..=last;
        let counted = slots.map(|slot| {
            let count = |cell: u64| if cell >> 32 == slot { cell & u64::from(u32::MAX) } else { 0 };
            let cells = self.0[place(slot)].each_ref();
            let start = Timestamp((slot * SLOT_MILLIS) as i64);
            (start, cells.map(|cell| count(cell.load(Ordering::Relaxed))))
        });
        counted.filter(|(_, counts)| counts.iter().any(|count| *count > 0)).collect()
    }
}

/// The number of a time's slot since 1970.
fn slot(at: Timestamp) -> u64 {
    at.0.max(0).unsigned_abs() / SLOT_MILLIS
}

/// Where the slot is kept: a later day has the same place.
fn place(slot: u64) -> usize {
    slot as usize % SLOTS
}

/// What happened in the last day, in slots of the receiver's wall clock. Slots without anything are left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecentTraffic {
    /// The receiver's start: nothing before it is counted.
    pub since: Timestamp,
    /// The receiver's time now, in the last of the 96 slots.
    pub now: Timestamp,
    /// The length of a slot.
    pub slot_millis: u64,
    /// Every configured source, its slots oldest first.
    pub sources: BTreeMap<Name, Vec<SourceSlot>>,
    /// Every configured handler, its slots oldest first.
    pub handlers: BTreeMap<Name, Vec<HandlerSlot>>,
}

/// The deliveries of a source in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSlot {
    /// When the slot began.
    pub at: Timestamp,
    /// New events.
    pub accepted: u64,
    /// Deliveries of events that were stored before.
    pub duplicates: u64,
    /// Refused for any reason.
    pub refused: u64,
}

/// The attempts of a handler that ended in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerSlot {
    /// When the slot began.
    pub at: Timestamp,
    pub succeeded: u64,
    /// Failed, rejected or timed out.
    pub failed: u64,
    /// Unknown, cancelled or not started.
    pub other: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_day_is_kept_and_a_clock_that_is_set_mixes_no_slots() {
        let slot = Duration::from_millis(SLOT_MILLIS);
        let start = Timestamp(1_700_000_100_000);
        let clock = Clock::manual(start);
        let counts = RecentCounts::<2>::default();
        let shown = || -> Vec<(i64, [u64; 2])> {
            let since = |at: Timestamp| (at.0 - start.0) / SLOT_MILLIS as i64;
            counts.get(clock.now()).into_iter().map(|(at, counts)| (since(at), counts)).collect()
        };
        assert_eq!(shown(), []);
        counts.one(0, clock.now());
        counts.one(0, clock.now());
        clock.advance(slot);
        counts.one(1, clock.now());
        assert_eq!(shown(), [(0, [2, 0]), (1, [0, 1])]);
        // The last slot of a day, and the first of the next, which has the same place as the first.
        clock.advance(slot * 94);
        assert_eq!(shown(), [(0, [2, 0]), (1, [0, 1])]);
        clock.advance(slot);
        assert_eq!(shown(), [(1, [0, 1])], "too old");
        counts.one(0, clock.now());
        assert_eq!(shown(), [(1, [0, 1]), (96, [1, 0])]);

        // A day back: what lies in the future is not shown, and its count is not added to.
        clock.set_wall(start);
        assert_eq!(shown(), []);
        counts.one(0, clock.now());
        assert_eq!(shown(), [(0, [1, 0])]);
        for extreme in [0, -1, i64::MIN, i64::MAX] {
            clock.set_wall(Timestamp(extreme));
            counts.one(1, clock.now());
            assert!(counts.get(clock.now()).len() <= 1, "{extreme}");
        }
    }
}
