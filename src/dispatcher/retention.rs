//! Deletes what is old enough, from time to time, unless the wall clock cannot be believed.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::Timestamp;
use crate::store::{Cutoffs, Expired, Store};

/// Before the first pass and between two: the shortest retention is an hour. A machine that starts
/// with a wrong clock has set it right by then, which counts as a jump.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// How far the two clocks may drift apart between two passes: far more than a slewed clock does
/// (adjtimex(2): 500 ppm, 1.8 s an hour), far less than the shortest retention.
const TOLERANCE: Duration = Duration::from_secs(60);

/// How long nothing is deleted after a jump: time for somebody to see it.
const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// Between two looks for keys that have expired: an answer that says "not now" is kept for minutes. The first
/// comes as late as that for events, for the same reason.
const KEYS_PERIOD: Duration = Duration::from_secs(60);

/// How far the two clocks may drift apart between two of these: ten times what a slewed clock does.
const KEYS_TOLERANCE: Duration = Duration::from_millis(300);

/// Runs until it is aborted, which may be at any point: the store finishes what it has begun. Each pass
/// goes by the limits that hold then.
pub(super) async fn run(store: Store, limits: watch::Receiver<Limits>, clock: Clock) {
    tokio::join!(events(&store, limits, &clock), keys(&store, &clock));
}

/// The keys of requests, with their answers.
async fn keys(store: &Store, clock: &Clock) {
    let mut watch = first_look(store, clock).await;
    let (mut pause, mut tolerance) = (PERIOD, TOLERANCE);
    loop {
        sleep(pause).await;
        let now = clock.now();
        let believed = watch.may_expire(now, clock.monotonic(), tolerance);
        (pause, tolerance) = (KEYS_PERIOD, KEYS_TOLERANCE);
        if !believed {
            continue;
        }
        match store.expire_keys(now).await {
            Ok(0) => {}
            Ok(keys) => tracing::info!(keys, "deleted keys that had expired"),
            Err(error) => tracing::warn!(%error, "failed to delete keys that have expired"),
        }
    }
}

/// Payloads, and what of events is left.
async fn events(store: &Store, limits: watch::Receiver<Limits>, clock: &Clock) {
    let mut watch = first_look(store, clock).await;
    loop {
        sleep(PERIOD).await;
        let now = clock.now();
        if !watch.may_expire(now, clock.monotonic(), TOLERANCE) {
            tracing::warn!(
                "nothing is deleted for a day: the clock has jumped, or no event came for a day"
            );
            continue;
        }
        let cutoffs = {
            let limits = limits.borrow();
            let before = |millis| now.before(Limits::duration(millis));
            Cutoffs {
                payloads: before(limits.keep_payloads_millis),
                ids: before(limits.keep_ids_millis),
                dead: before(limits.keep_dead_millis),
            }
        };
        match store.expire(cutoffs).await {
            Ok(expired) if expired == Expired::default() => {}
            Ok(Expired { payloads, events, bytes }) => {
                tracing::info!(payloads, events, bytes, "deleted what was old");
            }
            Err(error) => tracing::warn!(%error, "failed to delete what is old"),
        }
    }
}

/// The watch as of now. A clock that jumped before the start shows only in the store: where its newest
/// event is over a day old, or it does not say, nothing is deleted for a day.
async fn first_look(store: &Store, clock: &Clock) -> ClockWatch {
    let newest = store.newest_delivery().await;
    let (wall, monotonic) = (clock.now(), clock.monotonic());
    let believed =
        newest.is_ok_and(|newest| newest.is_none_or(|newest| wall.since(newest) <= QUIET));
    let mut watch = ClockWatch::new(wall, monotonic);
    if !believed {
        watch.quiet_until = monotonic.saturating_add(QUIET);
    }
    watch
}

/// Whether the wall clock moves like the monotonic one. A jump ahead would make every remembered id
/// look old, and each redelivery would run again.
#[derive(Debug)]
struct ClockWatch {
    last: (Timestamp, Duration),
    quiet_until: Duration,
}

impl ClockWatch {
    fn new(wall: Timestamp, monotonic: Duration) -> Self {
        ClockWatch { last: (wall, monotonic), quiet_until: monotonic }
    }

    /// Whether a pass may delete now: not in the day after the wall clock moved otherwise than the
    /// monotonic one since the last look. A suspended machine counts as a jump.
    fn may_expire(&mut self, wall: Timestamp, monotonic: Duration, tolerance: Duration) -> bool {
        let (last_wall, last_monotonic) = std::mem::replace(&mut self.last, (wall, monotonic));
        let expected = last_wall.after(monotonic.saturating_sub(last_monotonic));
        if wall.since(expected).max(expected.since(wall)) > tolerance {
            self.quiet_until = monotonic.saturating_add(QUIET);
        }
        monotonic >= self.quiet_until
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{Headers, OnRedelivery};
    use crate::provider::Scheme;
    use crate::store::{Accept, EventFilter, Interest, Settings};
    use crate::verify::{Request, verify};

    const START: Timestamp = Timestamp(1_700_000_000_000);

    /// A real store with one event that arrived at `START`; its own clock is 400 days ahead.
    async fn store_of_one(folder: &std::path::Path) -> Store {
        let (path, limits) = (folder.join("t.db"), Limits::default());
        let limits = Limits { disk_floor_bytes: 0, ballast_bytes: 0, ..limits };
        let store =
            Store::open(&Settings { path, limits }, Clock::manual(START.after(400 * QUIET)))
                .unwrap();
        let mut headers = Headers::new();
        headers.push("Idempotency-Key", "e1");
        headers.push("X-Event-Type", "thing.made");
        let request = Request { method: "POST", url: None, headers: &headers, body: "x".into() };
        let delivery = verify(&Scheme::embedded("none").unwrap(), &[], request, START).unwrap();
        let (source, handlers) = ("shop".parse().unwrap(), Vec::new());
        store
            .accept(Accept {
                source,
                received_at: START,
                delivery,
                handlers,
                on_redelivery: OnRedelivery::Ignore,
            })
            .await
            .unwrap();
        store
    }

    #[tokio::test]
    async fn a_clock_that_jumped_while_nobody_looked_is_not_believed_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of_one(folder.path()).await;
        // What the receiver tells of itself has the time of the clock that is in question.
        let all = vec![crate::pattern::Pattern::new("*", true)];
        store.set_interest(Interest::new(vec![("alert".parse().unwrap(), all)]));
        crate::notify::broken(&store, &"h".parse().unwrap(), START.after(400 * QUIET));
        let held = store.hold_orphans(vec!["alert".parse().unwrap()]).await;
        assert_eq!((held, store.events(EventFilter::default()).await.unwrap().len()), (Ok(0), 2));
        for (start, hours) in [(START.after(400 * QUIET), 24), (START.after(PERIOD), 0)] {
            let clock = Clock::manual(start);
            let mut watch = first_look(&store, &clock).await;
            for hour in 1..=25 {
                clock.advance(PERIOD);
                let may = watch.may_expire(clock.now(), clock.monotonic(), TOLERANCE);
                assert_eq!(may, hour >= hours, "{start}, {hour} hours later");
            }
        }
        store.close().await;
        let mut watch = first_look(&store, &Clock::manual(START)).await;
        assert!(
            !watch.may_expire(START, Duration::ZERO, TOLERANCE),
            "where the store says nothing"
        );
    }

    #[test]
    fn a_steady_clock_is_believed() {
        let mut watch = ClockWatch::new(START, PERIOD);
        for hours in 1..50 {
            let drift = Duration::from_secs(u64::from(hours % 2) * 30);
            assert!(watch.may_expire(
                START.after(hours * PERIOD + drift),
                (hours + 1) * PERIOD,
                TOLERANCE
            ));
        }
    }

    #[test]
    fn a_jump_either_way_skips_the_pass_and_a_day() {
        for jump in [400 * QUIET, TOLERANCE + Duration::from_millis(1)] {
            for moved in [START.after(jump), START.before(jump)] {
                let mut watch = ClockWatch::new(START, Duration::ZERO);
                for hours in 1..25 {
                    assert!(!watch.may_expire(
                        moved.after(hours * PERIOD),
                        hours * PERIOD,
                        TOLERANCE
                    ));
                }
                assert!(watch.may_expire(moved.after(25 * PERIOD), 25 * PERIOD, TOLERANCE));
            }
        }
    }
}
