//! What the receiver tells of itself that no single transaction shows: a source whose deliveries fail
//! one after the other, a handler that cannot run, a store that has no space.
//!
//! For `http` and `dispatcher`, which say what they see, and `traffic`, which counts it; what comes of
//! it is a notice in the store, which coalesces notices and makes events of them. What must stay true:
//! nothing here waits, and a flood of forged deliveries costs memory for one source each and no write
//! per delivery.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::{Name, NoticeType, Timestamp};
use crate::store::{Intake, Jobs, NOTICE_WINDOW, Notice, NoticeJob};

/// So many verification failures without a success between them, within [`FAILING_WITHIN`], mean a
/// failing source: one or two are somebody's scan, five in a row a secret that no longer fits.
pub const FAILING_AFTER: usize = 5;

/// The time in which they must come.
pub const FAILING_WITHIN: Duration = Duration::from_secs(10 * 60);

/// So many probes of a handler that cannot run must have failed: with the default pauses that is after
/// a minute, which a program that is being replaced does not take.
pub const BROKEN_AFTER: u32 = 5;

/// The failures of one source since its last success.
#[derive(Debug, Default)]
pub struct Failures {
    /// The newest few.
    newest: VecDeque<Timestamp>,
    /// Those not told yet.
    untold: Option<(u64, Timestamp)>,
    told_at: Option<Timestamp>,
}

impl Failures {
    /// Counts one. Returns how many there are to be told now, and when the first of them was.
    pub fn failed(&mut self, now: Timestamp) -> Option<(u64, Timestamp)> {
        self.newest.push_back(now);
        if self.newest.len() > FAILING_AFTER {
            self.newest.pop_front();
        }
        let (count, first_at) = self.untold.unwrap_or((0, now));
        self.untold = Some((count + 1, first_at));
        let young = self.newest.front().is_some_and(|first| now.since(*first) <= FAILING_WITHIN);
        let quiet = |told: Timestamp| told > now || now.since(told) >= NOTICE_WINDOW;
        if self.newest.len() < FAILING_AFTER || !young || !self.told_at.is_none_or(quiet) {
            return None;
        }
        self.told_at = Some(now);
        self.untold.take()
    }

    /// A genuine delivery: the secret fits.
    pub fn verified(&mut self) {
        self.newest.clear();
        self.untold = None;
    }
}

/// So many deliveries to `source` failed verification one after the other, for a reason that is one of a
/// few words.
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

/// That `handler` cannot run, and [`BROKEN_AFTER`] probes have failed, the last of them with `job`.
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
        Ok(events) => tracing::info!(events, "told what was counted since the last notices"),
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
    use crate::store::{EventFilter, Interest, Settings, Store};

    const START: Timestamp = Timestamp(1_700_000_000_000);

    fn minute(minutes: u32) -> Timestamp {
        START.after(Duration::from_secs(60) * minutes)
    }

    #[test]
    fn five_in_a_row_are_a_failing_source_and_the_rest_is_counted() {
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
    fn a_success_between_them_begins_anew() {
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
    fn one_now_and_then_is_no_failing_source() {
        let mut failures = Failures::default();
        for n in 0..50 {
            assert_eq!(failures.failed(minute(n * 3)), None, "{n}");
        }
    }

    #[tokio::test]
    async fn too_little_space_is_told_while_accepts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, floor) = (folder.path().join("t.db"), u64::MAX);
        let limits = Limits { disk_floor_bytes: floor, ballast_bytes: 0, ..Limits::default() };
        let clock = Clock::manual(START);
        let store = Store::open(&Settings { path, limits }, clock.clone()).unwrap();
        let all = vec![Pattern::new("*", true)];
        store.admin.set_interest(Interest::new(vec![("alert".parse().unwrap(), all)]));
        let mut told = Vec::new();
        for _ in 0..3 {
            tick(&store.jobs).await;
            clock.advance(Duration::from_secs(15));
            let events = store.admin.events(EventFilter::default()).await.unwrap();
            told.push(events.iter().map(|event| event.event_type.to_string()).collect::<Vec<_>>());
        }
        assert_eq!(told, [["store.degraded"]; 3], "one, however often it is looked at");
        store.close().await;
    }
}
