//! The rate of a handler's starts: over retries, restarts, claims that are tried again, and clocks.
use super::{tokio, *};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn starts_are_spread_and_the_rest_stays_ready() {
    let bench = bench().await;
    bench.ready(9).await;
    let rate = rate(30, 60 * SECOND, 1);
    assert_eq!(bench.start(9, rate).await, (1, Some(2 * SECOND)));
    assert_eq!(bench.start(9, rate).await, (0, Some(2 * SECOND)));
    bench.advance(Duration::from_millis(1999)).await;
    assert_eq!(bench.start(9, rate).await, (0, Some(Duration::from_millis(1))));
    bench.advance(Duration::from_millis(1)).await;
    assert_eq!(bench.start(9, rate).await, (1, Some(2 * SECOND)));
    // A pause gives no more than one.
    bench.advance(HOUR).await;
    assert_eq!(bench.start(9, rate).await, (1, Some(2 * SECOND)));
    let filter = JobFilter { state: Some(State::Ready), ..JobFilter::default() };
    assert_eq!(bench.store.admin.jobs(filter).await.unwrap().rows.len(), 6);
}

#[tokio::test]
async fn a_burst_starts_at_once_and_a_retry_takes_its_share() {
    let bench = bench().await;
    bench.ready(9).await;
    let rate = rate(7, SECOND, 3);
    // 7/s: a share is 142.857 ms; who asks when told may start.
    let share = Duration::from_millis(143);
    assert_eq!(bench.start(2, rate).await, (2, None));
    assert_eq!(bench.start(9, rate).await, (1, Some(share)));
    bench.advance(share).await;
    assert_eq!(bench.start(9, rate).await.0, 1);
    let job = bench.store.jobs.running().await.unwrap().remove(0);
    let next = Next::Wait { due_at: bench.clock.now() };
    let done = Completion {
        job: job.job,
        attempt: job.attempt,
        outcome: Outcome::Failed,
        counts: true,
        next,
        finished_at: bench.clock.now(),
        record: Record::default(),
        answer: None,
    };
    bench.store.jobs.complete(done).await.unwrap();
    assert_eq!(bench.start(9, rate).await.0, 0, "the retry waits too");
    bench.advance(share).await;
    assert_eq!(bench.start(1, rate).await.0, 1);
    assert_eq!(bench.store.admin.job(job.job).await.unwrap().attempt, 2, "the oldest first");
    // Another handler has its own.
    let other =
        Claim { handler: name("other"), limit: 1, runner: None, rate, cluster_concurrency: None };
    assert_eq!(
        bench.store.jobs.complete_and_claim(&[], Some(other)).await.1.await.unwrap().pause,
        None
    );
}

#[tokio::test]
async fn a_restart_gives_no_new_burst_and_a_clock_set_back_parks_nothing() {
    let mut bench = bench().await;
    bench.ready(9).await;
    let rate = rate(10, SECOND * 10, 2);
    assert_eq!(bench.start(9, rate).await, (2, Some(SECOND)));
    bench.restart().await;
    assert_eq!(bench.start(9, rate).await, (0, Some(SECOND)));
    bench.set_wall(START.before(DAY)).await;
    assert_eq!(bench.start(9, rate).await, (0, Some(SECOND)), "a share, not a day");
    bench.advance(SECOND).await;
    assert_eq!(bench.start(9, rate).await.0, 1);
}
