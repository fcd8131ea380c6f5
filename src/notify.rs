//! Detects conditions that the operator should be notified of: a source whose deliveries keep
//! failing, a handler that cannot run, a store without space.
//!
//! `traffic` counts the failures that `http` reports; the dispatcher reports broken handlers. The
//! store keeps each notice, coalesces equal ones and turns them into events. Must stay true: counting
//! does not wait, and a flood of forged deliveries costs memory per source and no write per delivery.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::NOTICE_WINDOW;
use crate::model::{Name, NoticeType, Timestamp};
use crate::store::{Intake, Jobs, Notice, NoticeJob};

/// A source is failing after this many verification failures within [`FAILING_WITHIN`] without a
/// success between them. One or two may be a scan of the internet; five in a row mean a wrong secret.
pub const FAILING_AFTER: usize = 5;

/// The window for [`FAILING_AFTER`] failures.
pub const FAILING_WITHIN: Duration = Duration::from_secs(10 * 60);

/// A handler is broken after this many failed probes. With the default pauses that takes a minute,
/// which is longer than the replacement of a program takes.
pub const BROKEN_AFTER: u32 = 5;

/// The failures of one source since its last success.
#[derive(Debug, Default)]
pub struct Failures {
    /// The times of the last [`FAILING_AFTER`] failures.
    newest: VecDeque<Timestamp>,
    /// The number of failures since the last notice, and the time of the first.
    unreported: Option<(u64, Timestamp)>,
    reported_at: Option<Timestamp>,
}

impl Failures {
    /// Counts a failure. If a notice is due, returns the number of failures since the last one, and
    /// the time of the first.
    pub fn failed(&mut self, now: Timestamp) -> Option<(u64, Timestamp)> {
        self.newest.push_back(now);
        if self.newest.len() > FAILING_AFTER {
            self.newest.pop_front();
        }
        let (count, first_at) = self.unreported.unwrap_or((0, now));
        self.unreported = Some((count + 1, first_at));
        let recent = self.newest.front().is_some_and(|first| now.since(*first) <= FAILING_WITHIN);
        // A time in the future means that the wall clock was set back.
        let may_report = |last: Timestamp| last > now || now.since(last) >= NOTICE_WINDOW;
        if self.newest.len() < FAILING_AFTER || !recent || !self.reported_at.is_none_or(may_report)
        {
            return None;
        }
        self.reported_at = Some(now);
        self.unreported.take()
    }

    /// Forgets the failures, because a genuine delivery shows that the secret is right.
    pub fn verified(&mut self) {
        self.newest.clear();
        self.unreported = None;
    }
}

/// Stores a notice that `count` deliveries to `source` failed verification in a row. `reason` is one of
/// a few fixed words.
pub fn failing(
    intake: &Intake,
    source: &Name,
    reason: &str,
    count: u64,
    first_at: Timestamp,
    last_at: Timestamp,
) {
    intake.notify(Notice {
        kind: NoticeType::SourceFailing,
        subject: Some(source.clone()),
        reason: reason.to_owned(),
        count,
        first_at,
        last_at,
        job: None,
    });
}

/// The notice that `handler` cannot run after [`BROKEN_AFTER`] failed probes; `job` was the last one.
pub fn broken(handler: Name, job: NoticeJob, now: Timestamp) -> Notice {
    Notice {
        kind: NoticeType::HandlerBroken,
        subject: Some(handler),
        reason: "cannot run".to_owned(),
        count: 1,
        first_at: now,
        last_at: now,
        job: Some(job),
    }
}

/// Makes the events of the notices that were only counted, and are due. Called at each tick.
pub async fn tick(jobs: &Jobs) {
    match jobs.tell_notices().await {
        Ok(0) => {}
        Ok(events) => tracing::info!(events, "stored the notices that were counted"),
        Err(error) => tracing::warn!(%error, "failed to look for notices"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clock::Clock;
    use crate::limits::Limits;
    use crate::pattern::Pattern;
    use crate::store::{EventFilter, NoticeSubscribers, Settings, Store};

    const START: Timestamp = Timestamp(1_700_000_000_000);

    fn minute(minutes: u32) -> Timestamp {
        START.after(Duration::from_secs(60) * minutes)
    }

    #[test]
    fn five_failures_in_a_row_are_reported_and_later_ones_counted() {
        let mut failures = Failures::default();
        for _ in 0..4 {
            assert_eq!(failures.failed(START), None);
        }
        assert_eq!(failures.failed(minute(1)), Some((5, START)));
        for n in 0..1000 {
            assert_eq!(failures.failed(minute(2)), None, "{n}");
        }
        assert_eq!(failures.failed(minute(11)), Some((1001, minute(2))));
    }

    #[test]
    fn a_success_resets_the_failure_count() {
        let mut failures = Failures::default();
        for _ in 0..4 {
            assert_eq!(failures.failed(START), None);
        }
        failures.verified();
        for _ in 0..4 {
            assert_eq!(failures.failed(START), None);
        }
        assert_eq!(failures.failed(START), Some((5, START)));
    }

    #[test]
    fn occasional_failures_are_not_reported() {
        let mut failures = Failures::default();
        for n in 0..50 {
            assert_eq!(failures.failed(minute(n * 3)), None, "{n}");
        }
    }

    #[tokio::test]
    async fn low_disk_space_is_reported_once_while_accepts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, floor) = (folder.path().join("t.db"), u64::MAX);
        let limits = Limits { disk_floor_bytes: floor, ballast_bytes: 0, ..Limits::default() };
        let clock = Clock::manual(START);
        let store = Store::open(&Settings { path, limits }, clock.clone()).unwrap();
        let all = vec![Pattern::new("*", true)];
        store.admin.set_interest(NoticeSubscribers::new(vec![("alert".parse().unwrap(), all)]));
        let mut reported = Vec::new();
        for _ in 0..3 {
            tick(&store.jobs).await;
            clock.advance(Duration::from_secs(15));
            let events = store.admin.events(EventFilter::default()).await.unwrap().rows;
            reported
                .push(events.iter().map(|event| event.event_type.to_string()).collect::<Vec<_>>());
        }
        assert_eq!(reported, [["store.degraded"]; 3], "one event, despite three ticks");
        store.close().await;
    }
}
