//! What was seen of one source: counted without a lock where a delivery is good, under one where it is
//! refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::{Counter, Distribution, Histogram};
use crate::model::{Name, Timestamp};
use crate::notify::Failures;

use super::sums::{Sum, Told};

/// Seconds until the answer: from a commit on an idle disk to the longest wait for one.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Parts of the provider's patience; over 1 it has given up.
const SHARES: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// No time yet.
const NEVER: i64 = i64::MIN;

/// What is configured of a source, as far as it is shown with what is seen of it.
#[derive(Debug, Clone)]
pub struct Place {
    pub name: Name,
    pub path: String,
    /// How long its provider waits for an answer, where that is known.
    pub deadline: Option<Duration>,
    /// Where its secrets are, such as `file:github`.
    pub secrets: Vec<String>,
    /// Its requests get their handler's answer.
    pub answers: bool,
}

/// What a request has come to whose key's answer is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyed {
    /// It began a run, and was told its answer.
    Created,
    /// It was told the answer of an earlier one.
    Reused,
    /// Its key was another request's.
    Conflict,
    /// There was no answer in time, and there may be one later.
    InProgress,
    /// There is no answer, and nobody knows what the handler has done; or the operator has dropped it.
    Unknown,
    /// The handler has failed without an answer.
    Failed,
    /// Its caller asked too often.
    Limited,
}

impl Keyed {
    /// Every one, in the order of the counters.
    const ALL: [Keyed; 7] = [
        Keyed::Created,
        Keyed::Reused,
        Keyed::Conflict,
        Keyed::InProgress,
        Keyed::Unknown,
        Keyed::Failed,
        Keyed::Limited,
    ];

    /// The fixed word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Keyed::Created => "created",
            Keyed::Reused => "reused",
            Keyed::Conflict => "conflict",
            Keyed::InProgress => "in_progress",
            Keyed::Unknown => "unknown",
            Keyed::Failed => "failed",
            Keyed::Limited => "limited",
        }
    }
}

/// A source as one snapshot of the configuration has it, with what is seen of it. Clones count
/// together, and so do the snapshots that have a source of this name.
#[derive(Debug, Clone)]
pub struct SourceTraffic {
    pub(super) place: Arc<Place>,
    pub(super) counts: Arc<Counts>,
}

/// The counts of one source since the start.
#[derive(Debug)]
pub(super) struct Counts {
    accepted: Counter,
    duplicates: Counter,
    keyed: [Counter; Keyed::ALL.len()],
    seconds: Histogram,
    shares: Histogram,
    last_good_at: AtomicI64,
    /// Refused deliveries since the last good one.
    refused_in_a_row: AtomicU64,
    /// Whether the last delivery that could be judged was not proven.
    unproven: AtomicBool,
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    last: Option<(Timestamp, String)>,
    failures: Failures,
    by_reason: BTreeMap<(&'static str, &'static str), Sum>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            accepted: Counter::default(),
            duplicates: Counter::default(),
            keyed: Default::default(),
            seconds: Histogram::new(SECONDS),
            shares: Histogram::new(SHARES),
            last_good_at: AtomicI64::new(NEVER),
            refused_in_a_row: AtomicU64::default(),
            unproven: AtomicBool::default(),
            refusals: Mutex::default(),
        }
    }
}

/// A delivery that was refused. The words are of a fixed few, and none comes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The answer's name.
    pub answer: &'static str,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub told: &'a str,
    /// Whether nothing proves who sent it.
    pub unproven: bool,
}

/// What follows from a refusal.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// It is the first of its kind for a while, and has a line in the log.
    pub first: bool,
    /// So many failures without a success are to be told of, the first of which was then.
    pub failing: Option<(u64, Timestamp)>,
}

/// What was counted of one source, at one moment.
#[derive(Debug, Clone)]
pub struct SourceCounts {
    pub name: Name,
    pub secrets: Vec<String>,
    /// New events.
    pub accepted: u64,
    /// Deliveries of events that were there already.
    pub duplicates: u64,
    /// Refused deliveries by answer and reason.
    pub refused: Vec<(&'static str, &'static str, u64)>,
    /// Requests with a key by what they have come to; empty where the source's handler does not answer.
    pub keyed: Vec<(&'static str, u64)>,
    /// Seconds from a good delivery's head to its answer.
    pub seconds: Distribution,
    /// The same as parts of the provider's patience, where that is known.
    pub shares: Option<Distribution>,
    /// The last accepted or duplicate one.
    pub last_good_at: Option<Timestamp>,
}

impl SourceTraffic {
    /// A genuine delivery was made durable, or repeated an event that is, and took this long.
    pub fn good(&self, duplicate: bool, now: Timestamp, took: Duration) {
        let counts = &self.counts;
        match duplicate {
            true => counts.duplicates.one(),
            false => counts.accepted.one(),
        }
        counts.last_good_at.store(now.0, Ordering::Relaxed);
        counts.refused_in_a_row.store(0, Ordering::Relaxed);
        counts.seconds.observe(took.as_secs_f64());
        if let Some(deadline) = self.place.deadline {
            counts.shares.observe(took.div_duration_f64(deadline));
        }
    }

    /// A request with a key has come to this.
    pub fn keyed(&self, result: Keyed) {
        self.counts.keyed[result as usize].one();
    }

    /// A delivery was refused.
    pub fn refused(&self, refusal: Refusal<'_>, now: Timestamp) -> Refused {
        let Refusal { answer, reason, told, unproven } = refusal;
        self.counts.refused_in_a_row.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals();
        refusals.last = Some((now, told.to_owned()));
        let failing = unproven.then(|| {
            self.counts.unproven.store(true, Ordering::Relaxed);
            refusals.failures.failed(now)
        });
        let first = refusals.by_reason.entry((answer, reason)).or_default().add();
        Refused { first, failing: failing.flatten() }
    }

    /// A delivery was genuine: the secret fits.
    pub fn verified(&self) {
        if self.counts.unproven.swap(false, Ordering::Relaxed) {
            self.refusals().failures.verified();
        }
    }

    /// What is to be told of the refusals since they were last told of, one line each. False where
    /// there were none, so that nobody need ask again before the next.
    pub(super) fn tell(&self, lines: &mut Vec<Told>) -> bool {
        let mut open = false;
        for ((answer, reason), sum) in &mut self.refusals().by_reason {
            let source = Some(self.place.name.clone());
            open |= sum.tell(|count| lines.push(Told { source, answer, reason, count }));
        }
        open
    }

    /// What was counted until now.
    pub fn counts(&self) -> SourceCounts {
        let (place, counts) = (&self.place, &self.counts);
        let one = |((answer, reason), sum): (&(&'static str, &'static str), &Sum)| {
            (*answer, *reason, sum.total())
        };
        let counted = Keyed::ALL.iter().zip(&counts.keyed);
        let counted = counted.map(|(result, count)| (result.as_str(), count.get()));
        SourceCounts {
            name: place.name.clone(),
            secrets: place.secrets.clone(),
            accepted: counts.accepted.get(),
            duplicates: counts.duplicates.get(),
            refused: self.refusals().by_reason.iter().map(one).collect(),
            keyed: counted.filter(|_| place.answers).collect(),
            seconds: counts.seconds.get(),
            shares: place.deadline.map(|_| counts.shares.get()),
            last_good_at: self.last_good_at(),
        }
    }

    /// As `status` shows it.
    pub(super) fn seen(&self) -> super::SourceSeen {
        let refusals = self.refusals();
        let too_large = refusals.by_reason.iter().filter(|((answer, _), _)| *answer == "too_large");
        super::SourceSeen {
            path: self.place.path.clone(),
            accepted: self.counts.accepted.get(),
            duplicates: self.counts.duplicates.get(),
            refused: refusals.by_reason.values().map(Sum::total).sum(),
            refused_in_a_row: self.counts.refused_in_a_row.load(Ordering::Relaxed),
            too_large: too_large.map(|(_, sum)| sum.total()).sum(),
            last_good_at: self.last_good_at(),
            last_refused: refusals.last.clone(),
        }
    }

    fn last_good_at(&self) -> Option<Timestamp> {
        let at = self.counts.last_good_at.load(Ordering::Relaxed);
        (at != NEVER).then_some(Timestamp(at))
    }

    /// A panic elsewhere has left nothing here that could matter.
    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.counts.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
