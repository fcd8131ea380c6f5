//! The statistics of one handler's attempts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::{Histogram, Tally};
use crate::model::{Broken, Outcome, State, Timestamp};

use super::recent::{HandlerSlot, RecentCounts};
use super::seen::HandlerSeen;

/// Buckets of an attempt's seconds: from a local endpoint's answer to a long command.
const SECONDS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0];

/// The final states, and held, that an attempt can leave its job in.
const SETTLED: [State; 3] = [State::Succeeded, State::Held, State::Dead];

/// The words that were counted, with their counts.
pub(super) fn counts(tally: &Tally) -> BTreeMap<String, u64> {
    let counted = tally.get().filter(|(_, count)| *count > 0);
    counted.map(|(word, count)| (word.to_owned(), count)).collect()
}

#[derive(Debug)]
pub struct HandlerTraffic {
    /// Attempts by outcome.
    pub(crate) outcomes: Tally,
    /// Jobs that an attempt left in a final state or held.
    pub(crate) settled: Tally,
    /// Seconds of attempts.
    pub(crate) seconds: Histogram,
    /// Succeeded, failed, other.
    recent: RecentCounts<3>,
    slots: AtomicUsize,
    broken: Mutex<Option<Broken>>,
}

impl Default for HandlerTraffic {
    fn default() -> Self {
        HandlerTraffic {
            outcomes: Tally::new(Outcome::ALL.iter().map(|outcome| outcome.as_str())),
            settled: Tally::new(SETTLED.map(State::as_str)),
            seconds: Histogram::new(SECONDS),
            recent: RecentCounts::default(),
            slots: AtomicUsize::default(),
            broken: Mutex::default(),
        }
    }
}

impl HandlerTraffic {
    /// Counts an end of an attempt, recorded at `at`. `state` is the job's state after it; `took` is `None` if another
    /// process started the attempt.
    pub fn ended(&self, outcome: Outcome, state: State, at: Timestamp, took: Option<Duration>) {
        let kind = match outcome {
            Outcome::Succeeded => 0,
            Outcome::Failed | Outcome::Rejected | Outcome::TimedOut => 1,
            Outcome::Unknown | Outcome::Cancelled | Outcome::NotStarted => 2,
        };
        self.recent.one(kind, at);
        self.outcomes.one(outcome.as_str());
        self.settled.one(state.as_str());
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
    }

    /// So many attempts may run at once from now on.
    pub fn set_slots(&self, slots: usize) {
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// What `status` shows; its conditions are counted elsewhere.
    pub(super) fn seen(&self) -> HandlerSeen {
        let seconds = self.seconds.get();
        let within = |percent| seconds.bound_of(percent).map(|bound| (bound * 1_000.0) as u64);
        HandlerSeen {
            outcomes: counts(&self.outcomes),
            half_within: within(50),
            most_within: within(95),
            slots: self.slots.load(Ordering::Relaxed),
            ..HandlerSeen::default()
        }
    }

    /// The slots of the day up to `now`.
    pub(super) fn recent(&self, now: Timestamp) -> Vec<HandlerSlot> {
        let slots = self.recent.get(now).into_iter();
        slots
            .map(|(at, [succeeded, failed, other])| HandlerSlot { at, succeeded, failed, other })
            .collect()
    }

    /// The handler could not run. Keeps the time of the first failed attempt.
    pub fn broke(&self, broken: Broken) {
        let mut known = self.lock();
        let since = known.as_ref().map_or(broken.since, |before| before.since);
        *known = Some(Broken { since, ..broken });
    }

    /// After a reload, a broken handler is tried at once.
    pub fn tries_at_once(&self) {
        if let Some(broken) = &mut *self.lock() {
            broken.next_try_at = broken.since;
        }
    }

    /// The handler has run, or its configuration has changed.
    pub fn ran(&self) {
        *self.lock() = None;
    }

    /// `Some` if the handler cannot run.
    pub fn broken(&self) -> Option<Broken> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Broken>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
