//! What the operator decides about one job: resolve and drop.
use super::{tokio, *};

/// A job in each state, under its name; those that need an attempt have had one.
async fn in_every_state(bench: &Bench) -> Vec<(State, JobId)> {
    let mut jobs = Vec::new();
    for state in State::ALL.iter().copied().filter(|state| *state != State::Ready) {
        let claimed = bench.running(state.as_str()).await;
        let job = claimed.facts.job;
        let due_at = bench.clock.now().after(HOUR);
        let (outcome, next) = match state {
            State::Waiting => (Outcome::Failed, Next::Wait { due_at }),
            State::Succeeded => (Outcome::Succeeded, Next::Succeeded),
            State::Dead => (Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
            _ => (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
        };
        if state != State::Running {
            bench.complete(&claimed, outcome, next).await;
        }
        if state == State::Dropped {
            bench.store.admin.drop_job(job, None).await.unwrap();
        }
        jobs.push((state, job));
    }
    bench.accept("stripe", stripe("ready", "a", "{}"), &["h"]).await;
    let ready =
        bench.store.admin.show(None, id("ready"), None).await.unwrap().remove(0).jobs.remove(0);
    jobs.push((State::Ready, ready.job.job));
    for (state, job) in &jobs {
        assert_eq!(bench.job(*job).await.state, *state);
    }
    jobs
}

#[tokio::test]
async fn only_a_held_job_is_resolved() {
    for how in [Resolution::Succeeded, Resolution::Failed] {
        let bench = bench().await;
        for (state, job) in in_every_state(&bench).await {
            bench.advance(HOUR).await;
            let before = bench.job(job).await;
            let resolved = bench.resolve(job, how.clone()).await;
            let after = bench.job(job).await;
            if state != State::Held {
                assert_eq!(resolved, Err(Error::WrongState { job, state, verb: "resolved" }));
                assert_eq!(
                    (after.state, after.reason, after.settled_at),
                    (state, before.reason, before.settled_at)
                );
                continue;
            }
            let (wanted, reason) = match how {
                Resolution::Succeeded => (State::Succeeded, None),
                _ => (State::Dead, Some("resolved as failed")),
            };
            assert_eq!(resolved, Ok(wanted));
            assert_eq!((after.state, after.reason.as_deref()), (wanted, reason));
            assert_eq!(after.settled_at, Some(bench.clock.now()));
            // What was unknown stays so in the record.
            assert_eq!(bench.attempts("held").await, [(1, Some(Outcome::Unknown))]);
        }
    }
}

#[tokio::test]
async fn anything_but_what_runs_or_is_settled_well_is_dropped() {
    let bench = bench().await;
    for (state, job) in in_every_state(&bench).await {
        bench.advance(HOUR).await;
        let dropped = bench.store.admin.drop_job(job, None).await;
        let after = bench.job(job).await;
        if matches!(state, State::Running | State::Succeeded | State::Dropped) {
            assert_eq!(dropped, Err(Error::WrongState { job, state, verb: "dropped" }));
            assert_eq!(after.state, state);
            continue;
        }
        assert_eq!(dropped, Ok(state));
        assert_eq!(
            (after.state, after.reason.as_deref(), after.due_at, after.settled_at),
            (State::Dropped, Some("by the operator"), None, Some(bench.clock.now()))
        );
    }
    // Nothing of it is ever claimed, and the running one still completes.
    bench.advance(DAY).await;
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert_eq!(bench.store.jobs.running().await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_contradicting_verbs_at_once_one_wins() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let job = claimed.facts.job;
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    let (well, badly, dropped) = tokio::join!(
        bench.store.admin.resolve(job, 1, Resolution::Succeeded),
        bench.store.admin.resolve(job, 1, Resolution::Failed),
        bench.store.admin.drop_job(job, None),
    );
    // The first was asked first; a dead letter may be dropped, but there is none.
    assert_eq!(well, Ok(State::Succeeded));
    let state = State::Succeeded;
    assert_eq!(badly, Err(Error::WrongState { job, state, verb: "resolved" }));
    assert_eq!(dropped, Err(Error::WrongState { job, state, verb: "dropped" }));
}

#[tokio::test]
async fn what_is_resolved_is_the_attempt_that_was_looked_at() {
    let bench = bench().await;
    let first = bench.running("e").await;
    let job = first.facts.job;
    let held = Next::Held(HeldReason::UnknownOutcome);
    bench.complete(&first, Outcome::Unknown, held).await;
    // While the operator looks at it, another one puts it back, and it is held once more.
    bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap();
    let second = bench.claim_one().await;
    bench.complete(&second, Outcome::Unknown, held).await;
    let error = Error::NewerAttempt { job, seen: 1, attempt: 2 };
    for how in [Resolution::Succeeded, Resolution::Failed] {
        assert_eq!(bench.store.admin.resolve(job, 1, how).await.unwrap_err(), error);
    }
    assert_eq!(bench.job(job).await.state, State::Held);
    assert_eq!(
        bench.store.admin.resolve(job, 2, Resolution::Succeeded).await,
        Ok(State::Succeeded)
    );
}

#[tokio::test]
async fn a_late_end_of_the_attempt_changes_nothing_that_was_decided() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let job = claimed.facts.job;
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    bench.resolve(job, Resolution::Failed).await.unwrap();
    assert!(!bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await);
    assert_eq!(bench.job(job).await.reason.as_deref(), Some("resolved as failed"));
    // The operator's own word is not the last one either: a replay puts it back.
    assert_eq!(bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap().jobs, [job]);
    bench.store.admin.drop_job(job, None).await.unwrap();
    let state = State::Dropped;
    let error = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
    assert_eq!(error, Error::WrongState { job, state, verb: "replayed" });
}

#[tokio::test]
async fn a_payload_is_kept_until_its_dead_job_is_dropped() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    bench.advance(DAY).await;
    let expire = async || expired(&bench, bench.clock.now(), START).await.0;
    assert_eq!(expire().await, 0, "held");
    bench.resolve(claimed.facts.job, Resolution::Failed).await.unwrap();
    assert_eq!(expire().await, 0, "dead");
    bench.store.admin.drop_job(claimed.facts.job, None).await.unwrap();
    assert_eq!(expire().await, 0, "just dropped");
    bench.advance(HOUR).await;
    assert_eq!(expire().await, 1);
}

#[tokio::test]
async fn a_job_that_is_not_there_says_so() {
    let bench = bench().await;
    let job = crate::random::job_id(START);
    let error = Error::NoJob(job);
    assert_eq!(bench.resolve(job, Resolution::Failed).await, Err(error));
    let error = bench.store.admin.drop_job(job, None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("no such job: {job}, or retention has removed it with its event's payload")
    );
}
