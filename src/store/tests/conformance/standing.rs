use super::{tokio, *};

#[tokio::test]
async fn a_store_says_what_waits_and_for_whom() {
    let mut bench = bench().await;
    let fresh = bench.store.admin.status(vec![name("stripe")]).await.unwrap();
    assert!(fresh.ready.is_empty() && fresh.stuck.is_empty() && fresh.newest_event_at.is_none());
    assert_eq!(fresh.last_commit_at, None, "nothing has changed yet");
    assert!(fresh.disk.database_bytes + fresh.disk.log_bytes > 0);
    let silent = &fresh.sources[0];
    assert!(
        silent.event.is_none() && silent.secret_matched_at.is_none() && silent.failure.is_none()
    );

    let held = bench.running("held").await;
    bench.complete(&held, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    for event in ["dead_1", "dead_2"] {
        let dead = bench.running(event).await;
        bench.complete(&dead, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    }
    let waits = bench.running("waits").await;
    let due_at = START.after(HOUR);
    bench.complete(&waits, Outcome::Failed, Next::Wait { due_at }).await;
    bench.running("runs").await;
    bench.advance(HOUR).await;
    bench.accept("stripe", stripe("ready_1", "a.b", "{}"), &["h", "i"]).await;
    bench.advance(HOUR).await;
    bench.accept("stripe", stripe("ready_2", "a.b", "{}"), &["h"]).await;
    bench.store.admin.pause(&name("i")).await.unwrap();

    let now = bench.clock.now();
    let standing = bench.store.admin.status(vec![name("stripe")]).await.unwrap();
    let backlog = |handler, jobs, since| Backlog { handler: name(handler), jobs, since };
    let later = START.after(HOUR);
    assert_eq!(standing.ready, [backlog("h", 2, later), backlog("i", 1, later)]);
    assert_eq!(standing.waiting, [backlog("h", 1, due_at)]);
    assert_eq!(standing.running, [backlog("h", 1, START)]);
    let stuck = |state, reason: &str, jobs| {
        let reason = reason.to_owned();
        StoppedJobs { handler: name("h"), state, reason, jobs, oldest_at: START }
    };
    let wanted = [stuck(State::Held, "unknown outcome", 1), stuck(State::Dead, "rejected", 2)];
    assert_eq!(standing.stuck, wanted);
    assert_eq!(standing.paused, [PausedRow { handler: name("i"), since: now }]);
    assert_eq!((standing.newest_event_at, standing.last_commit_at), (Some(now), Some(now)));
    assert_eq!(standing.sources[0].event, Some((id("ready_2"), now)));
    assert!(standing.sources[0].secret_matched_at.is_some());

    bench.restart().await;
    let again = bench.store.admin.status(Vec::new()).await.unwrap();
    assert_eq!((again.stuck, again.last_commit_at), (wanted.to_vec(), None));
    assert!(again.sources.is_empty(), "nobody asked, and nothing failed");
}

#[tokio::test]
async fn status_has_the_oldest_ready_job_and_metrics_the_one_that_is_claimed_next() {
    let bench = bench().await;
    let dead = bench.running("replayed").await;
    bench.complete(&dead, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    bench.accept("stripe", stripe("waits", "a.b", "{}"), &["h"]).await;
    bench.advance(HOUR).await;
    bench.store.admin.replay(Replay::Job(dead.facts.job, None), false).await.unwrap();
    let ready = |since| [Backlog { handler: name("h"), jobs: 2, since }];
    assert_eq!(bench.store.admin.status(Vec::new()).await.unwrap().ready, ready(START));
    // Of the claimed one an index tells it, which is all that a query of SQLite may take.
    let measured = match engine() {
        EngineKind::Sqlite => bench.clock.now(),
        EngineKind::Postgres => START,
    };
    let gauges = bench.store.admin.gauges().await.unwrap();
    assert_eq!(gauges.jobs.ready, ready(measured));
}

#[tokio::test]
async fn a_source_with_failed_deliveries_is_told_of_unasked() {
    let bench = bench().await;
    for (reason, body) in [("bad_signature", "1"), ("stale_timestamp", "2")] {
        bench.store.intake.quarantine(FailedDelivery {
            reason,
            received_at: bench.clock.now(),
            ..failed("github", "192.0.2.1", body)
        });
    }
    bench.accept("stripe", stripe("e", "a.b", "{}"), &[]).await;
    let standing = bench.store.admin.status(vec![name("stripe")]).await.unwrap();
    let [github, stripe] = &standing.sources[..] else { panic!("{:?}", standing.sources) };
    assert_eq!(github.failure.as_ref().unwrap().reason, "stale_timestamp");
    assert_eq!(github.quarantined, 2);
    assert!(github.event.is_none());
    assert!(stripe.failure.is_none() && stripe.event.is_some());
}

#[tokio::test]
async fn an_event_names_the_others_with_its_signed_body() {
    let bench = bench().await;
    bench.accept("github", github("d-1", "push", "body"), &["h"]).await;
    bench.advance(HOUR).await;
    bench.accept("github", github("d-2", "push", "body"), &["h"]).await;
    bench.accept("other", github("d-3", "push", "body"), &["h"]).await;
    bench.accept("stripe", stripe("e", "a.b", "{}"), &[]).await;
    let twins = async |event| {
        let shown = bench.store.admin.show(None, id(event), None).await.unwrap().remove(0);
        shown.twins.into_iter().map(|twin| (twin.event_id, twin.received_at)).collect::<Vec<_>>()
    };
    assert_eq!(twins("d-2").await, [(id("d-1"), START)]);
    assert_eq!(twins("d-1").await, [(id("d-2"), START.after(HOUR))]);
    assert!(twins("d-3").await.is_empty() && twins("e").await.is_empty());
}
