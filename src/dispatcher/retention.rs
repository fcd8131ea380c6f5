//! Deletes payloads, events and keys that are old enough, unless the wall clock cannot be trusted (K2).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::Timestamp;
use crate::store::{ClockWatch, Cutoffs, Jobs, RetentionResult};

/// The pause before the first pass and between two passes: the shortest retention is an hour. A machine that
/// starts with a wrong clock has corrected it by then, which counts as a jump.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// How far the wall clock and the monotonic clock may drift apart between two passes: far more than a slewed
/// clock does (adjtimex(2): 500 ppm, 1.8 s an hour), far less than the shortest retention.
const TOLERANCE: Duration = Duration::from_secs(60);

/// How long nothing is deleted after a jump: the operator has time to notice it.
const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two passes for keys that have expired: an answer that says "not now" is kept for minutes. The
/// first pass comes no earlier than the first one for events may.
const KEYS_PERIOD: Duration = Duration::from_secs(60);

/// How far the two clocks may drift apart between two passes for keys: ten times as far as a slewed clock does.
const KEYS_TOLERANCE: Duration = Duration::from_millis(300);

/// Runs until it is aborted, which may be at any point: the store completes what it has begun. Each pass uses
/// the limits that are in force then.
pub(super) async fn run(store: Jobs, limits: watch::Receiver<Limits>, clock: Clock) {
    let watch = first_look(&store, &clock).await;
    tokio::join!(events(&store, limits, &clock, watch), keys(&store, &clock, watch));
}

/// Deletes the keys of requests, with their answers.
async fn keys(store: &Jobs, clock: &Clock, mut watch: ClockWatch) {
    let quiet = watch.quiet_until.saturating_sub(clock.monotonic());
    // The first tolerance is as long as the margin that the store adds to a key.
    let (mut pause, mut tolerance) = (quiet.clamp(KEYS_PERIOD, PERIOD), TOLERANCE);
    let mut took_before = Duration::ZERO;
    loop {
        sleep(pause).await;
        let asked = clock.monotonic();
        let now = match store.now().await {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(%error, "no keys are deleted: the time of the store is not known");
                continue;
            }
        };
        let answered = clock.monotonic();
        let took = answered.saturating_sub(asked);
        if took > TOLERANCE / 2 {
            // It would hide a jump that the margin of a key does not cover.
            continue;
        }
        let believed = watch.may_expire(now, answered, allowed(tolerance, took_before, took));
        (pause, tolerance, took_before) = (KEYS_PERIOD, KEYS_TOLERANCE, took);
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

/// How far the two clocks may seem apart where they may be apart by `tolerance`: the store has read its clock at some
/// time between question and answer, in the last pass and in this one. No more than the margin of a key.
fn allowed(tolerance: Duration, took_before: Duration, took: Duration) -> Duration {
    tolerance.saturating_add(took_before.max(took)).min(TOLERANCE)
}

/// Deletes payloads and events.
async fn events(
    store: &Jobs,
    limits: watch::Receiver<Limits>,
    clock: &Clock,
    mut watch: ClockWatch,
) {
    loop {
        sleep(watch.next_pass(clock.monotonic())).await;
        pass(store, &limits, clock, &mut watch).await;
    }
}

async fn pass(
    store: &Jobs,
    limits: &watch::Receiver<Limits>,
    clock: &Clock,
    watch: &mut ClockWatch,
) {
    let now = match store.now().await {
        Ok(now) => now,
        Err(error) => {
            tracing::warn!(%error, "nothing is deleted: the time of the store is not known");
            return;
        }
    };
    let believed = watch.may_expire(now, clock.monotonic(), TOLERANCE);
    keep(store, *watch).await;
    if !believed {
        tracing::warn!(
            "nothing is deleted for a day: the clock has jumped, or no event came for a day"
        );
        return;
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
        Ok(expired) if expired == RetentionResult::default() => {}
        Ok(RetentionResult { payloads, events, bytes }) => {
            tracing::info!(payloads, events, bytes, "deleted what was old");
        }
        Err(error) => tracing::warn!(%error, "failed to delete what is old"),
    }
}

/// The watch of the process before this one, if both clocks have moved alike since then. Otherwise a new one, and
/// nothing is deleted for an hour, or for a day if the newest event is over a day old or the store cannot be
/// read: only the store shows that the clock jumped before the start.
async fn first_look(store: &Jobs, clock: &Clock) -> ClockWatch {
    // A time that is not known agrees with none, and makes the newest event old.
    let wall = store.now().await.unwrap_or(Timestamp(i64::MAX));
    let monotonic = clock.monotonic();
    if let Ok(Some(watch)) = store.clock_watch().await
        && watch.agrees(wall, monotonic, TOLERANCE)
    {
        return watch;
    }
    let newest = store.newest_delivery().await;
    let believed =
        newest.is_ok_and(|newest| newest.is_none_or(|newest| wall.since(newest) <= QUIET));
    let quiet = if believed { PERIOD } else { QUIET };
    let watch = ClockWatch { wall, monotonic, quiet_until: monotonic.saturating_add(quiet) };
    keep(store, watch).await;
    watch
}

/// Stores the watch: otherwise a receiver that restarts more often than once an hour would never delete.
async fn keep(store: &Jobs, watch: ClockWatch) {
    if let Err(error) = store.keep_clock_watch(watch).await {
        tracing::warn!(%error, "failed to store when retention looked last");
    }
}

impl ClockWatch {
    /// Whether a pass may delete now: not in the day after the wall clock has moved differently from the monotonic
    /// one since the last call. A suspended machine counts as a jump. A jump ahead would make every remembered id
    /// look old, and each redelivery would run again.
    fn may_expire(&mut self, wall: Timestamp, monotonic: Duration, tolerance: Duration) -> bool {
        if !self.agrees(wall, monotonic, tolerance) {
            self.quiet_until = monotonic.saturating_add(QUIET);
        }
        (self.wall, self.monotonic) = (wall, monotonic);
        monotonic >= self.quiet_until
    }

    /// Whether both clocks have moved alike since the last call. A restart of the machine sets the monotonic one back.
    fn agrees(&self, wall: Timestamp, monotonic: Duration, tolerance: Duration) -> bool {
        let Some(passed) = monotonic.checked_sub(self.monotonic) else { return false };
        let expected = self.wall.after(passed);
        wall.since(expected).max(expected.since(wall)) <= tolerance
    }

    /// How long until the next pass.
    fn next_pass(&self, monotonic: Duration) -> Duration {
        PERIOD.saturating_sub(monotonic.saturating_sub(self.monotonic))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{Headers, OnRedelivery};
    use crate::provider::Scheme;
    use crate::store::{Accept, EventFilter, NoticeJob, NoticeSubscribers, Settings, Store};
    use crate::verify::{Request, verify};

    const START: Timestamp = Timestamp(1_700_000_000_000);

    /// A real store with one event that arrived at `START`.
    async fn store_of_one(folder: &std::path::Path, clock: &Clock) -> Store {
        let (path, limits) = (folder.join("t.db"), Limits::default());
        let limits = Limits { disk_floor_bytes: 0, ballast_bytes: 0, ..limits };
        let store = Store::open(&Settings { path, limits }, clock.clone()).unwrap();
        let mut headers = Headers::new();
        headers.push("Idempotency-Key", "e1");
        headers.push("X-Event-Type", "thing.made");
        let request = Request { method: "POST", url: None, headers: &headers, body: "x".into() };
        let delivery = verify(&Scheme::embedded("none").unwrap(), &[], request, START).unwrap();
        let (source, jobs) = ("shop".parse().unwrap(), Vec::new());
        store
            .intake
            .accept(Accept {
                source,
                received_at: START,
                delivery,
                jobs,
                on_redelivery: OnRedelivery::Ignore,
            })
            .await
            .unwrap();
        store
    }

    #[tokio::test]
    async fn after_a_clock_jump_before_the_start_nothing_is_deleted_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(START.after(400 * QUIET));
        let store = store_of_one(folder.path(), &clock).await;
        // What the receiver tells of itself has the time of the clock that is in question.
        let all = vec![crate::pattern::Pattern::new("*", true)];
        store.admin.set_interest(NoticeSubscribers::new(vec![("alert".parse().unwrap(), all)]));
        let (source, event_id) = ("s".parse().unwrap(), "e".parse().unwrap());
        let job = NoticeJob { job: crate::random::job_id(START), source, event_id };
        let now = START.after(400 * QUIET);
        store.intake.notify(crate::notify::broken("h".parse().unwrap(), job, now));
        let held = store.jobs.hold_orphans(vec!["alert".parse().unwrap()]).await;
        assert_eq!(
            (held, store.admin.events(EventFilter::default()).await.unwrap().rows.len()),
            (Ok(0), 2)
        );
        for (start, hours) in [(START.after(400 * QUIET), 24), (START.after(PERIOD), 0)] {
            clock.set_wall(start);
            let mut watch = first_look(&store.jobs, &clock).await;
            for hour in 1..=25 {
                clock.advance(PERIOD);
                let may = watch.may_expire(clock.now(), clock.monotonic(), TOLERANCE);
                assert_eq!(may, hour >= hours, "{start}, {hour} hours later");
            }
        }
        store.close().await;
        let mut watch = first_look(&store.jobs, &Clock::manual(START)).await;
        assert!(
            !watch.may_expire(START, Duration::ZERO, TOLERANCE),
            "where the store says nothing"
        );
    }

    fn watch_of(wall: Timestamp, monotonic: Duration) -> ClockWatch {
        ClockWatch { wall, monotonic, quiet_until: monotonic }
    }

    #[tokio::test]
    async fn a_receiver_that_restarts_every_half_hour_deletes_what_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(START);
        let store = store_of_one(folder.path(), &clock).await;
        let half = PERIOD / 2;
        let limits = Limits { keep_payloads_millis: 1, ..Limits::default() };
        let (_sender, limits) = watch::channel(limits);
        let mut kept = Vec::new();
        for _start in 0..3 {
            // The process before ended after half an hour.
            let mut watch = first_look(&store.jobs, &clock).await;
            if watch.next_pass(clock.monotonic()) < half {
                pass(&store.jobs, &limits, &clock, &mut watch).await;
            }
            kept.push(
                store.admin.events(EventFilter::default()).await.unwrap().rows[0].payload_kept,
            );
            clock.advance(half);
        }
        assert_eq!(kept, [true, true, false]);
        // A jump between two processes is not noticed; the quiet day after a noticed one continues.
        clock.set_wall(clock.now().after(2 * TOLERANCE));
        let mut watch = first_look(&store.jobs, &clock).await;
        assert_eq!(watch.quiet_until, clock.monotonic() + PERIOD);
        clock.set_wall(clock.now().after(2 * TOLERANCE));
        pass(&store.jobs, &limits, &clock, &mut watch).await;
        clock.advance(half);
        assert_eq!(
            first_look(&store.jobs, &clock).await.quiet_until,
            clock.monotonic() - half + QUIET
        );
        store.close().await;
    }

    #[test]
    fn a_steady_clock_is_believed() {
        let mut watch = watch_of(START, PERIOD);
        for hours in 1..50 {
            let drift = Duration::from_secs(u64::from(hours % 2) * 30);
            assert!(watch.may_expire(
                START.after(hours * PERIOD + drift),
                (hours + 1) * PERIOD,
                TOLERANCE
            ));
        }
    }

    /// The first answer takes 5 s, in which the database reads its clock early or late; the next one comes at once.
    #[test]
    fn a_slow_answer_is_not_a_jump_of_the_clock_and_hides_none() {
        let (slow, pass) = (Duration::from_secs(5), KEYS_PERIOD);
        for (read_at, jump, expected) in [
            (Duration::ZERO, Duration::ZERO, true),
            (slow, Duration::ZERO, true),
            (slow, slow + KEYS_TOLERANCE + Duration::from_millis(1), false),
        ] {
            let mut watch = watch_of(START, Duration::ZERO);
            let tolerance = allowed(KEYS_TOLERANCE, Duration::ZERO, slow);
            let read = START.after(pass + read_at);
            assert!(watch.may_expire(read, pass + slow, tolerance), "{read_at:?}");
            let tolerance = allowed(KEYS_TOLERANCE, slow, Duration::ZERO);
            let next = START.after(2 * pass + slow + jump);
            let believed = watch.may_expire(next, 2 * pass + slow, tolerance);
            assert_eq!(believed, expected, "{read_at:?} {jump:?}");
        }
    }

    #[test]
    fn a_jump_either_way_skips_the_pass_and_a_day() {
        for jump in [400 * QUIET, TOLERANCE + Duration::from_millis(1)] {
            for moved in [START.after(jump), START.before(jump)] {
                let mut watch = watch_of(START, Duration::ZERO);
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
