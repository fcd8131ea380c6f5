//! Which events came last: a hint that a delivery is a duplicate.
//!
//! The list is in memory only, and decides nothing: that an event is known is for the store to say. A wrong hint costs
//! a look-up more, and a missing one a body compressed for nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use crate::model::{EventId, Name};
use crate::store::mutex::lock;

/// Events of one place; the oldest makes way.
const PLACE_COUNT: usize = 8;

/// How many places there are. They hold 131,072 events in 512 KiB, which are touched only as events come: those of
/// seconds of a flood, or of days.
const PLACES_COUNT: usize = 16 * 1024;

/// The last events, each by 32 bits of its hash in the place that the others choose.
#[derive(Debug)]
pub(crate) struct Recent {
    places: Mutex<Vec<[u32; PLACE_COUNT]>>,
    /// Random, so that a sender cannot choose events that share a place.
    hasher: RandomState,
}

impl Default for Recent {
    fn default() -> Self {
        Recent {
            places: Mutex::new(vec![[0; PLACE_COUNT]; PLACES_COUNT]),
            hasher: RandomState::new(),
        }
    }
}

impl Recent {
    /// Whether it has likely come before.
    pub(crate) fn has(&self, source: &Name, event: &EventId) -> bool {
        let (place, mark) = self.place(source, event);
        lock(&self.places)[place].contains(&mark)
    }

    /// It has come.
    pub(crate) fn note(&self, source: &Name, event: &EventId) {
        let (place, mark) = self.place(source, event);
        let place = &mut lock(&self.places)[place];
        place.rotate_right(1);
        place[0] = mark;
    }

    fn place(&self, source: &Name, event: &EventId) -> (usize, u32) {
        let hash = self.hasher.hash_one((source.as_str(), event.as_str()));
        (hash as usize % PLACES_COUNT, (hash >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event(number: usize) -> EventId {
        format!("evt_{number}").parse().unwrap()
    }

    #[test]
    fn the_last_events_are_known_by_source_and_id_and_the_first_make_way() {
        let (shop, other): (Name, Name) = ("shop".parse().unwrap(), "other".parse().unwrap());
        let recent = Recent::default();
        let count = PLACES_COUNT * PLACE_COUNT;
        let known = |events: std::ops::Range<usize>| {
            events.filter(|number| recent.has(&shop, &event(*number))).count()
        };
        assert_eq!(known(0..100), 0);
        (0..count / 2).for_each(|number| recent.note(&shop, &event(number)));
        assert!(known(0..count / 2) > count / 2 * 9 / 10, "{}", known(0..count / 2));
        assert!(!recent.has(&other, &event(0)));
        (count..3 * count).for_each(|number| recent.note(&shop, &event(number)));
        assert!(known(0..count / 2) < count / 100, "{}", known(0..count / 2));
    }
}
