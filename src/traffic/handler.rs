//! What was seen of one handler's attempts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::{Counter, Distribution, Histogram};
use crate::model::{Broken, Name, Outcome, State};

/// Seconds of an attempt: from a local endpoint's answer to a long command.
const SECONDS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0];

/// Where the end of an attempt can leave its job for good, or for a person.
const SETTLED: [State; 3] = [State::Succeeded, State::Held, State::Dead];

/// A handler's counts. Clones count together.
#[derive(Debug, Clone)]
pub struct HandlerTraffic {
    pub(super) name: Name,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    outcomes: Vec<(Outcome, Counter)>,
    settled: [(State, Counter); 3],
    seconds: Histogram,
    broken: Mutex<Option<Broken>>,
}

/// What was counted of one handler, at one moment.
#[derive(Debug, Clone)]
pub struct HandlerCounts {
    pub name: Name,
    /// Attempts by outcome.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Jobs that an attempt has settled, or left for a person.
    pub settled: Vec<(State, u64)>,
    /// Seconds that the attempts took.
    pub seconds: Distribution,
    /// Its last try could not begin.
    pub broken: bool,
}

impl HandlerTraffic {
    pub(super) fn new(name: Name) -> Self {
        let counts = Counts {
            outcomes: Outcome::ALL.iter().map(|one| (*one, Counter::default())).collect(),
            settled: SETTLED.map(|state| (state, Counter::default())),
            seconds: Histogram::new(SECONDS),
            broken: Mutex::default(),
        };
        HandlerTraffic { name, counts: Arc::new(counts) }
    }

    /// An attempt's end was recorded: `state` is where its job went, and `took` how long it ran, where
    /// this process saw it begin.
    pub fn ended(&self, outcome: Outcome, state: State, took: Option<Duration>) {
        let counts = &self.counts;
        if let Some((_, counter)) = counts.outcomes.iter().find(|(one, _)| *one == outcome) {
            counter.one();
        }
        if let Some((_, counter)) = counts.settled.iter().find(|(one, _)| *one == state) {
            counter.one();
        }
        if let Some(took) = took {
            counts.seconds.observe(took.as_secs_f64());
        }
    }

    /// The handler could not run. Keeps the time of the first try that failed.
    pub fn broke(&self, broken: Broken) {
        let mut known = self.lock();
        let since = known.as_ref().map_or(broken.since, |before| before.since);
        *known = Some(Broken { since, ..broken });
    }

    /// A reload lets a handler that cannot run try at once.
    pub fn tries_at_once(&self) {
        if let Some(broken) = &mut *self.lock() {
            broken.next_try_at = broken.since;
        }
    }

    /// The handler has run, or is configured differently now.
    pub fn ran(&self) {
        *self.lock() = None;
    }

    /// Why it cannot run, where it cannot.
    pub fn broken(&self) -> Option<Broken> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Broken>> {
        self.counts.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted until now.
    pub fn counts(&self) -> HandlerCounts {
        let counts = &self.counts;
        HandlerCounts {
            name: self.name.clone(),
            outcomes: counts.outcomes.iter().map(|(one, count)| (*one, count.get())).collect(),
            settled: counts.settled.iter().map(|(one, count)| (*one, count.get())).collect(),
            seconds: counts.seconds.get(),
            broken: self.lock().is_some(),
        }
    }
}
