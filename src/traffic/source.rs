//! The statistics of one source. A good delivery is counted without a lock, a refused one with a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::{Counter, Distribution, Histogram};
use crate::model::{Name, Timestamp};
use crate::notify::Failures;

use super::burst::{Burst, RefusalCount};

/// Buckets of seconds until the answer: from a commit on an idle disk to the longest wait for one.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Buckets of the answer's time divided by the provider's time-out.
const SHARES: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

const NEVER: i64 = i64::MIN;

/// The configuration of a source, as far as its statistics show it.
#[derive(Debug, Clone)]
pub struct Place {
    pub name: Name,
    pub path: String,
    /// How long its provider waits for an answer, if that is known.
    pub deadline: Option<Duration>,
    /// References such as `file:github`.
    pub secrets: Vec<String>,
    /// Whether requests get their handler's answer.
    pub answers: bool,
}

/// The result of a request with an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyed {
    /// It began a run and got its answer.
    Created,
    /// It got the answer of an earlier request.
    Reused,
    /// The key belongs to another request.
    Conflict,
    /// No answer in time; there may be one later.
    InProgress,
    /// No answer, because the handler's effects are unknown or the operator dropped the job.
    Unknown,
    /// The handler failed without an answer.
    Failed,
    /// The caller is over its rate.
    Limited,
}

impl Keyed {
    /// In the order of the counters.
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

/// The statistics of a source in one snapshot of the configuration. Clones share their counts, and so do the
/// snapshots that have a source of this name.
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
    /// Whether the last delivery that was verified or rejected was rejected.
    unproven: AtomicBool,
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    last: Option<(Timestamp, String)>,
    failures: Failures,
    by_reason: BTreeMap<(&'static str, &'static str), Burst>,
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

/// A refused delivery. Its words are fixed; none comes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    pub answer: &'static str,
    /// One word.
    pub reason: &'static str,
    /// A sentence for the operator.
    pub told: &'a str,
    /// Whether the delivery is not proven to be genuine.
    pub unproven: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// It is the first of a burst, and needs a log line.
    pub first: bool,
    /// The source is failing: how many consecutive deliveries were unproven, and since when.
    pub failing: Option<(u64, Timestamp)>,
}

#[derive(Debug, Clone)]
pub struct SourceCounts {
    pub name: Name,
    pub secrets: Vec<String>,
    /// New events.
    pub accepted: u64,
    /// Deliveries of events that were stored before.
    pub duplicates: u64,
    /// Refused deliveries by answer and reason.
    pub refused: Vec<(&'static str, &'static str, u64)>,
    /// Requests with a key by result; empty if the source does not return its handler's answer.
    pub keyed: Vec<(&'static str, u64)>,
    /// Seconds from a good delivery's head to its answer.
    pub seconds: Distribution,
    /// The same divided by the provider's time-out, if that is known.
    pub shares: Option<Distribution>,
    /// The last accepted or duplicate delivery.
    pub last_good_at: Option<Timestamp>,
}

impl SourceTraffic {
    /// Counts a genuine delivery of a new or a stored event.
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

    pub fn keyed(&self, result: Keyed) {
        self.counts.keyed[result as usize].one();
    }

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

    /// A delivery is genuine, so the secret is right.
    pub fn verified(&self) {
        if self.counts.unproven.swap(false, Ordering::Relaxed) {
            self.refusals().failures.verified();
        }
    }

    /// The refusals since the last call, for one log line each.
    pub(super) fn take_refusal_counts(&self, counts: &mut Vec<RefusalCount>) {
        for ((answer, reason), burst) in &mut self.refusals().by_reason {
            if let Some(count) = burst.take_unlogged() {
                let source = Some(self.place.name.clone());
                counts.push(RefusalCount { source, answer, reason, count });
            }
        }
    }

    pub fn counts(&self) -> SourceCounts {
        let (place, counts) = (&self.place, &self.counts);
        let one = |((answer, reason), sum): (&(&'static str, &'static str), &Burst)| {
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

    /// For `status`.
    pub(super) fn seen(&self) -> super::SourceSeen {
        let refusals = self.refusals();
        let too_large = refusals.by_reason.iter().filter(|((answer, _), _)| *answer == "too_large");
        super::SourceSeen {
            path: self.place.path.clone(),
            accepted: self.counts.accepted.get(),
            duplicates: self.counts.duplicates.get(),
            refused: refusals.by_reason.values().map(Burst::total).sum(),
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

    /// A panic elsewhere cannot have left broken counts.
    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.counts.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
