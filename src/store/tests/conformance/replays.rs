use super::{tokio, *};

fn event(source: Option<&str>, event: &str, handler: Option<&str>) -> Replay {
    Replay::Event { source: source.map(name), event: id(event), handler: handler.map(name) }
}

async fn held(bench: &Bench, event: &str) -> JobId {
    let claimed = bench.running(event).await;
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    claimed.facts.job
}

#[tokio::test]
async fn a_replayed_job_keeps_its_key_and_its_numbers_and_counts_anew() {
    let bench = bench().await;
    for (outcome, next) in [
        (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
        (Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
        (Outcome::Succeeded, Next::Succeeded),
    ] {
        let claimed = bench.running(&format!("e-{outcome}")).await;
        bench.complete(&claimed, outcome, next).await;
        bench.advance(HOUR).await;
        let put_back = bench
            .store
            .admin
            .replay(Replay::Job(claimed.facts.job, None), false)
            .await
            .unwrap()
            .jobs;
        assert_eq!(put_back, [claimed.facts.job]);
        let job = bench.job(claimed.facts.job).await;
        assert_eq!((job.state, job.reason, job.settled_at), (State::Ready, None, None));
        let again = bench.claim_one().await;
        assert_eq!(again.facts.job, claimed.facts.job);
        assert_eq!((again.facts.attempt, again.facts.replays, again.counted), (2, 1, 0));
        assert_eq!(again.since, bench.clock.now());
        // Ready and running jobs are left alone.
        let error = bench
            .store
            .admin
            .replay(Replay::Job(claimed.facts.job, None), false)
            .await
            .unwrap_err();
        let state = State::Running;
        let job = claimed.facts.job;
        assert_eq!(error, Error::WrongState { job, state, verb: "replayed" });
    }
}

#[tokio::test]
async fn ten_replays_at_once_put_a_job_back_once() {
    let bench = bench().await;
    let job = held(&bench, "e").await;
    let replays: Vec<_> = (0..10)
        .map(|_| {
            let store = bench.store.clone();
            tokio::spawn(async move { store.admin.replay(Replay::Job(job, None), false).await })
        })
        .collect();
    let mut done = 0;
    for replay in replays {
        done += usize::from(replay.await.unwrap().is_ok());
    }
    assert_eq!((done, bench.job(job).await.replays), (1, 1));
}

#[tokio::test]
async fn an_events_replay_takes_what_waits_for_a_person() {
    let bench = bench().await;
    let delivery = || stripe("e", "a", "{}");
    bench.accept("stripe", delivery(), &["h", "good", "ready"]).await;
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Failed, Next::Dead(DeadReason::Exhausted)).await;
    let good = bench.store.jobs.claim(&name("good"), 1, None).await.unwrap().jobs.remove(0);
    bench.complete(&good, Outcome::Succeeded, Next::Succeeded).await;

    let put_back = bench.store.admin.replay(event(None, "e", None), false).await.unwrap().jobs;
    assert_eq!(put_back, [claimed.facts.job], "neither the succeeded nor the ready one");
    assert!(bench.store.admin.replay(event(None, "e", None), false).await.unwrap().jobs.is_empty());
    // By its name, one that succeeded too.
    let put_back =
        bench.store.admin.replay(event(None, "e", Some("good")), false).await.unwrap().jobs;
    assert_eq!(put_back, [good.facts.job]);
    let error = bench.store.admin.replay(event(None, "e", Some("ready")), false).await.unwrap_err();
    assert!(matches!(error, Error::WrongState { state: State::Ready, .. }), "{error}");
    // And a job that there was none of.
    let made = bench.store.admin.replay(event(None, "e", Some("later")), false).await.unwrap().jobs;
    assert_eq!(bench.job(made[0]).await.handler, name("later"));
}

#[tokio::test]
async fn a_replay_of_nothing_or_of_too_much_says_so() {
    let bench = bench().await;
    let error = bench.store.admin.replay(event(None, "e", None), false).await.unwrap_err();
    assert_eq!(error.to_string(), "no such event: e");
    let job = crate::random::job_id(START);
    let error = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
    assert_eq!(error.to_string(), Error::NoJob(job).to_string());

    bench.accept("a", github("e", "push", "1"), &["h"]).await;
    bench.accept("b", github("e", "push", "1"), &["h"]).await;
    let error = bench.store.admin.replay(event(None, "e", None), false).await.unwrap_err();
    assert_eq!(error.to_string(), "event e came through several sources: a, b; name one");
    assert!(
        bench.store.admin.replay(event(Some("a"), "e", None), false).await.unwrap().jobs.is_empty()
    );
    let error = bench.store.admin.replay(event(Some("c"), "e", None), false).await.unwrap_err();
    assert!(matches!(error, Error::NoEvent(_)));
}

#[tokio::test]
async fn a_held_variant_runs_only_where_its_job_is_named() {
    let bench = bench().await;
    bench.accept("github", github("d", "push", "1"), &["h"]).await;
    bench.accept("github", github("d", "push", "2"), &["h"]).await;
    let error = bench.store.admin.replay(event(None, "d", None), false).await.unwrap_err();
    assert!(matches!(error, Error::Variants { bodies: 2, .. }), "{error}");
    let filter = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    let held = bench.store.admin.jobs(filter).await.unwrap().rows.remove(0).job;
    assert_eq!(
        bench.store.admin.replay(Replay::Job(held, None), false).await.unwrap().jobs,
        [held]
    );
    let bodies: Vec<_> = bench
        .store
        .jobs
        .claim(&name("h"), 9, None)
        .await
        .unwrap()
        .jobs
        .into_iter()
        .map(|c| c.facts.body)
        .collect();
    assert_eq!(bodies, ["1", "2"]);
}

#[tokio::test]
async fn nothing_runs_again_without_its_payload() {
    let mut bench = bench().await;
    let job = held(&bench, "e").await;
    bench.change_rows("DELETE FROM payload").await;
    for what in [Replay::Job(job, None), event(None, "e", None), event(None, "e", Some("new"))] {
        let error = bench.store.admin.replay(what, false).await.unwrap_err();
        assert!(matches!(error, Error::PayloadGone { .. }), "{error}");
    }
    assert_eq!(bench.job(job).await.state, State::Held);
}
