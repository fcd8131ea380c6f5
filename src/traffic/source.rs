//! The statistics of one source. A good delivery is counted without a lock, a refused one with a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::{Histogram, Tally};
use crate::model::{Name, Timestamp};
use crate::notify::Failures;

use super::burst::{Bursts, RefusalCount};
use super::oversized::Oversized;
use super::recent::{RecentCounts, SourceSlot};
use super::seen::SourceSeen;

/// Buckets of seconds until the answer: from a commit on an idle disk to the longest wait for one.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Buckets of the answer's time divided by the provider's time-out.
const SHARES: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

const NEVER: i64 = i64::MIN;

const ACCEPTED: &str = "accepted";
const DUPLICATE: &str = "duplicate";
const HANDSHAKE: &str = "handshake";

/// Every answer to a delivery but those of a source that returns its handler's: first those to good ones.
const ANSWERS: [&str; 12] = [
    ACCEPTED,
    DUPLICATE,
    HANDSHAKE,
    "rejected",
    "malformed",
    "refused",
    "method_not_allowed",
    "too_slow",
    "too_large",
    "conflict",
    "limited",
    "unavailable",
];

/// The configuration of a source, as far as its statistics show it.
#[derive(Debug, Clone)]
pub struct CountedSource {
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
    /// The fixed words in logs and metrics, in the order of the variants.
    const WORDS: [&str; 7] =
        ["created", "reused", "conflict", "in_progress", "unknown", "failed", "limited"];

    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The statistics of a source in one snapshot of the configuration. Clones share their counts, and so do the
/// snapshots that have a source of this name.
#[derive(Debug, Clone)]
pub struct SourceTraffic {
    pub(crate) configured: Arc<CountedSource>,
    pub(crate) counts: Arc<SourceCounts>,
}

/// The counts of one source since the start.
#[derive(Debug)]
pub(crate) struct SourceCounts {
    /// Deliveries by answer.
    pub(crate) answers: Tally,
    keyed: Tally,
    /// Seconds from a good delivery's head to its answer.
    pub(crate) seconds: Histogram,
    /// These times divided by the provider's time-out; empty if that is unknown.
    pub(crate) shares: Histogram,
    /// Accepted, duplicate, refused.
    recent: RecentCounts<3>,
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
    by_kind: Bursts,
    oversized: Oversized,
}

impl Default for SourceCounts {
    fn default() -> Self {
        SourceCounts {
            answers: Tally::new(ANSWERS),
            keyed: Tally::new(Keyed::WORDS),
            seconds: Histogram::new(SECONDS),
            shares: Histogram::new(SHARES),
            recent: RecentCounts::default(),
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
    pub shown: &'a str,
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

impl SourceTraffic {
    /// Counts a genuine delivery of a new or a stored event.
    pub fn good(&self, duplicate: bool, now: Timestamp, took: Duration) {
        let counts = &self.counts;
        counts.answers.one(if duplicate { DUPLICATE } else { ACCEPTED });
        counts.recent.one(usize::from(duplicate), now);
        counts.last_good_at.store(now.0, Ordering::Relaxed);
        counts.refused_in_a_row.store(0, Ordering::Relaxed);
        counts.seconds.observe(took.as_secs_f64());
        if let Some(deadline) = self.configured.deadline {
            counts.shares.observe(took.div_duration_f64(deadline));
        }
    }

    /// Counts a challenge that was answered.
    pub fn handshake(&self) {
        self.counts.answers.one(HANDSHAKE);
    }

    pub fn keyed(&self, result: Keyed) {
        self.counts.keyed.one(result.as_str());
    }

    pub fn refused(&self, refusal: Refusal<'_>, now: Timestamp) -> Refused {
        let Refusal { answer, reason, shown, unproven } = refusal;
        self.counts.answers.one(answer);
        self.counts.recent.one(2, now);
        self.counts.refused_in_a_row.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals();
        refusals.last = Some((now, shown.to_owned()));
        let failing = unproven.then(|| {
            self.counts.unproven.store(true, Ordering::Relaxed);
            refusals.failures.failed(now)
        });
        let first = refusals.by_kind.add(answer, reason);
        Refused { first, failing: failing.flatten() }
    }

    /// Notes a body that was over the limit. [`SourceTraffic::refused`] counts its delivery.
    pub fn too_large(&self, declared: Option<u64>, now: Timestamp) {
        self.refusals().oversized.add(declared, now);
    }

    /// A delivery is genuine, so the secret is right.
    pub fn verified(&self) {
        if self.counts.unproven.swap(false, Ordering::Relaxed) {
            self.refusals().failures.verified();
        }
    }

    /// The refusals since the last call, for one log line each.
    pub(super) fn take_refusal_counts(&self) -> Vec<RefusalCount> {
        self.refusals().by_kind.take_unlogged(Some(&self.configured.name))
    }

    pub fn name(&self) -> &str {
        self.configured.name.as_str()
    }

    /// Refused deliveries by answer and reason.
    pub(crate) fn refused_counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.refusals().by_kind.totals().collect()
    }

    /// Requests with a key by result; none if the source does not return its handler's answer.
    pub fn keyed_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.keyed.get().filter(|_| self.configured.answers)
    }

    /// The statistics that `status` shows.
    pub(super) fn seen(&self) -> SourceSeen {
        let answers: Vec<_> = self.counts.answers.get().collect();
        let of =
            |answer| answers.iter().find(|(one, _)| *one == answer).map_or(0, |(_, count)| *count);
        let [accepted, duplicates, handshakes] = [ACCEPTED, DUPLICATE, HANDSHAKE].map(of);
        let all = answers.iter().map(|(_, count)| count).sum::<u64>();
        let (unproven_too_large, last_refused) = {
            let refusals = self.refusals();
            (refusals.oversized.get(), refusals.last.clone())
        };
        SourceSeen {
            path: self.configured.path.clone(),
            accepted,
            duplicates,
            handshakes,
            refused: all - accepted - duplicates - handshakes,
            refused_in_a_row: self.counts.refused_in_a_row.load(Ordering::Relaxed),
            too_large: of("too_large"),
            last_good_at: self.last_good_at(),
            unproven_too_large,
            last_refused,
        }
    }

    /// The slots of the day up to `now`.
    pub(super) fn recent(&self, now: Timestamp) -> Vec<SourceSlot> {
        let slots = self.counts.recent.get(now).into_iter();
        slots
            .map(|(at, [accepted, duplicates, refused])| SourceSlot {
                at,
                accepted,
                duplicates,
                refused,
            })
            .collect()
    }

    /// The last accepted or duplicate delivery.
    pub(crate) fn last_good_at(&self) -> Option<Timestamp> {
        let at = self.counts.last_good_at.load(Ordering::Relaxed);
        (at != NEVER).then_some(Timestamp(at))
    }

    /// A panic elsewhere cannot have left broken counts.
    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.counts.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
