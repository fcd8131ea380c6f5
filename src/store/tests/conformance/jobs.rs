//! The rows of the state table: claim, complete, recover, and the clock rule.
use super::{tokio, *};

#[tokio::test]
async fn a_job_is_claimed_once_and_oldest_first() {
    let bench = bench().await;
    for event in ["e1", "e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    let ids = |claimed: Vec<Claimed>| -> Vec<String> {
        claimed.into_iter().map(|c| c.facts.event_id.to_string()).collect()
    };
    assert!(bench.store.jobs.claim(&name("h"), 0, None).await.unwrap().jobs.is_empty());
    assert_eq!(ids(bench.store.jobs.claim(&name("h"), 2, None).await.unwrap().jobs), ["e1", "e2"]);
    assert_eq!(ids(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs), ["e3"]);
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert_eq!(bench.store.jobs.running().await.unwrap().len(), 3);
}

#[tokio::test]
async fn every_outcome_leads_where_it_says() {
    let bench = bench().await;
    let due_at = START.after(HOUR);
    let table = [
        (Outcome::Succeeded, Next::Succeeded, State::Succeeded, None),
        (Outcome::Failed, Next::Wait { due_at }, State::Waiting, None),
        (Outcome::Rejected, Next::Dead(DeadReason::Rejected), State::Dead, Some("rejected")),
        (
            Outcome::Failed,
            Next::Dead(DeadReason::Exhausted),
            State::Dead,
            Some("attempts exhausted"),
        ),
        (
            Outcome::TimedOut,
            Next::Held(HeldReason::UnknownOutcome),
            State::Held,
            Some("unknown outcome"),
        ),
        (Outcome::Cancelled, Next::Held(HeldReason::Cancelled), State::Held, Some("cancelled")),
        (Outcome::NotStarted, Next::Ready, State::Ready, None),
    ];
    for (number, (outcome, next, state, reason)) in table.into_iter().enumerate() {
        let event = format!("e{number}");
        let claimed = bench.running(&event).await;
        assert!(bench.complete(&claimed, outcome, next).await);
        let job = bench.job(claimed.facts.job).await;
        assert_eq!((job.state, job.reason.as_deref()), (state, reason));
        assert_eq!(job.due_at, (state == State::Waiting).then_some(due_at));
        let settled = matches!(state, State::Succeeded | State::Dead);
        assert_eq!(job.settled_at, settled.then_some(START));
        assert_eq!(bench.attempts(&event).await, [(1, Some(outcome))]);
        // Said again, it changes nothing and is no error (R9).
        assert!(!bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await);
        assert_eq!(bench.job(claimed.facts.job).await.state, state);
    }
    assert!(bench.store.jobs.running().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_wrong_attempt_number_completes_nothing() {
    let bench = bench().await;
    let first = bench.running("e").await;
    bench.complete(&first, Outcome::Failed, Next::Wait { due_at: START }).await;
    let second = bench.claim_one().await;
    assert_eq!((second.facts.attempt, second.counted), (2, 1));
    // A late word of the first attempt, and one of an attempt that never was.
    assert!(!bench.complete(&first, Outcome::Succeeded, Next::Succeeded).await);
    let mut never = completion(&second, Outcome::Succeeded, Next::Succeeded, START);
    never.attempt = 3;
    assert!(!bench.store.jobs.complete(never.clone()).await.unwrap());
    assert_eq!(bench.job(second.facts.job).await.state, State::Running);
    assert_eq!(bench.attempts("e").await, [(1, Some(Outcome::Failed)), (2, None)]);
    never.job = crate::random::job_id(START);
    assert_settles_nothing(bench.store.jobs.complete(never).await);
}

#[tokio::test]
async fn what_an_attempt_leaves_is_shown() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let usage = Some(Usage { cpu_millis: 7, memory_bytes: 8 });
    let record = Record {
        ended_at: None,
        usage,
        detail: "exit status 3".to_owned(),
        exit_code: Some(3),
        signal: None,
        http_status: Some(503),
        stdout: OutputExcerpt {
            head: Blob(b"a\0".to_vec()),
            tail: Blob(b"z".to_vec()),
            total: 70_000,
        },
        stderr: OutputExcerpt::default(),
    };
    let mut done = completion(&claimed, Outcome::Failed, Next::Dead(DeadReason::Exhausted), START);
    done.record = record.clone();
    bench.store.jobs.complete(done).await.unwrap();
    let shown = bench.store.admin.show(None, id("e"), None).await.unwrap();
    assert_eq!(shown[0].jobs[0].attempts[0].record, record);
}

#[tokio::test]
async fn a_waiting_job_is_claimed_when_it_is_due() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let due_at = START.after(HOUR);
    bench.complete(&claimed, Outcome::Failed, Next::Wait { due_at }).await;
    assert_eq!(bench.store.jobs.claim(&name("x"), 1, None).await.unwrap().due, None);
    let early = bench.store.jobs.claim(&name("h"), 1, None).await.unwrap();
    assert_eq!((early.jobs.len(), early.due), (0, Some(due_at)));
    bench.advance(HOUR).await;
    assert_eq!(bench.claim_one().await.facts.attempt, 2);
    assert_eq!(bench.store.jobs.claim(&name("h"), 1, None).await.unwrap().due, None);
}

#[tokio::test]
async fn an_attempt_that_never_started_keeps_its_number_and_does_not_count() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    bench.complete(&claimed, Outcome::NotStarted, Next::Ready).await;
    let again = bench.claim_one().await;
    assert_eq!((again.facts.attempt, again.counted, again.facts.replays), (2, 0, 0));
    assert_eq!(again.facts.job, claimed.facts.job);
}

#[tokio::test]
async fn a_job_without_its_payload_is_dead_and_one_with_a_damaged_one_is_held() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e1", "a", "{}"), &["h"]).await;
    bench.accept("stripe", stripe("e2", "a", "{}"), &["h"]).await;
    bench.change_rows("DELETE FROM payload WHERE event = 1").await;
    bench.change_rows("UPDATE payload SET body = zeroblob(1) WHERE event = 2").await;
    // One is seen when it is claimed, the damaged one when it is unpacked.
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    bench.until_nothing_runs().await;
    let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let mut ends: Vec<_> = jobs.iter().map(|job| (job.state, job.reason.as_deref())).collect();
    ends.sort_by_key(|(_, reason)| *reason);
    let wanted = [(State::Held, "payload damaged"), (State::Dead, "payload gone")];
    assert_eq!(ends, wanted.map(|(state, reason)| (state, Some(reason))));
    assert!(bench.store.jobs.running().await.unwrap().is_empty());
}

#[tokio::test]
async fn recovery_settles_what_a_crash_cut_off_by_policy() {
    let mut bench = bench().await;
    for handler in ["hold", "rerun", "spent", "gone", "gone-ready", "stays"] {
        bench.accept("stripe", stripe(handler, "a", "{}"), &[handler]).await;
    }
    let mut ids = std::collections::HashMap::new();
    for handler in ["hold", "rerun", "spent", "gone"] {
        let claimed = bench.store.jobs.claim(&name(handler), 1, None).await.unwrap().jobs.remove(0);
        ids.insert(handler, claimed.facts.job);
    }
    bench.restart().await;
    assert_eq!(bench.store.jobs.running().await.unwrap().len(), 4);
    let policies = vec![
        (name("hold"), policy(OnUnknown::Hold, 5)),
        (name("rerun"), policy(OnUnknown::Rerun, 5)),
        (name("spent"), policy(OnUnknown::Rerun, 1)),
        (name("stays"), policy(OnUnknown::Hold, 5)),
    ];
    let mut recovered = bench.store.jobs.recover(policies.clone()).await.unwrap();
    recovered.unknown.sort();
    let mut expected = vec![
        (ids["hold"], 1, State::Held),
        (ids["rerun"], 1, State::Waiting),
        (ids["spent"], 1, State::Held),
        (ids["gone"], 1, State::Held),
    ];
    expected.sort();
    assert_eq!(recovered, RecoveryResult { unknown: expected, orphaned: 1 });
    assert_eq!(bench.attempts("hold").await, [(1, Some(Outcome::Unknown))]);
    let rerun = bench.job(ids["rerun"]).await;
    assert_eq!(rerun.due_at, Some(START.after(Duration::from_secs(10))));
    let orphan = bench
        .store
        .admin
        .show(None, id("gone-ready"), None)
        .await
        .unwrap()
        .remove(0)
        .jobs
        .remove(0);
    assert_eq!(orphan.job.reason.as_deref(), Some("handler gone"));
    assert_eq!(bench.store.jobs.claim(&name("stays"), 1, None).await.unwrap().jobs.len(), 1);
    // A second recovery finds only what was claimed since; its unknown attempts counted.
    let again = bench.store.jobs.recover(policies).await.unwrap();
    assert_eq!((again.unknown.len(), again.orphaned), (1, 0));
    bench.advance(HOUR).await;
    assert_eq!(bench.store.jobs.claim(&name("rerun"), 1, None).await.unwrap().jobs[0].counted, 1);
}

/// It holds for a retry, for the delay of a new event, and for a delay that a newer event has started anew.
#[tokio::test]
async fn a_clock_set_back_lengthens_no_wait() {
    let bench = bench().await;
    let second = Duration::from_secs(1);
    let delayed = |wait: Duration, job: NewJob| {
        let delay = Some(Delay { wait, most: HOUR });
        NewJob { delay, ..job }
    };
    let latest = || delayed(30 * second, grouped("k", GroupRule::Latest));
    let claimed = bench.running("retry").await;
    bench.take(stripe("older", "a", "{}"), latest()).await;
    bench.advance(20 * second).await;
    bench.take(stripe("newer", "a", "{}"), latest()).await;
    bench.take(stripe("new", "a", "{}"), delayed(2 * second, NewJob::of(name("h")))).await;
    let due_at = bench.clock.now().after(7200 * second);
    bench.complete(&claimed, Outcome::Failed, Next::Wait { due_at }).await;
    let seconds = async || {
        let mut seconds = Vec::new();
        for event in ["new", "newer", "retry"] {
            let due_at = bench.of_event(event).await.due_at.unwrap();
            seconds.push((due_at.0 - bench.clock.now().0) / 1000);
        }
        seconds
    };
    let clamp = async || bench.store.jobs.clamp_due().await.unwrap();
    assert_eq!((clamp().await, seconds().await), (0, vec![2, 30, 7200]));

    bench.set_wall(START.before(130 * DAY)).await;
    assert_eq!((clamp().await, seconds().await), (3, vec![2, 30, 7200]));
    // Each wait goes on, and no later look starts it anew.
    bench.advance(second).await;
    assert_eq!((clamp().await, seconds().await), (0, vec![1, 29, 7199]));
    // By less than a wait is long, and again so.
    for _ in 0..2 {
        bench.set_wall(bench.clock.now().before(10 * second)).await;
        assert_eq!((clamp().await, seconds().await), (3, vec![2, 30, 7200]));
    }
    bench.set_wall(START.before(200 * DAY)).await;
    bench.store.jobs.recover(vec![(name("h"), policy(OnUnknown::Hold, 5))]).await.unwrap();
    assert_eq!(seconds().await, [2, 30, 7200]);
    for (wait, event) in [(2, "new"), (28, "newer"), (7170, "retry")] {
        assert!(bench.starts().await.is_empty());
        bench.advance(wait * second).await;
        assert_eq!(bench.starts().await, [event]);
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_settled_does_not_lose_those_claimed_with_it() {
    let mut bench = bench().await;
    for event in ["e1", "e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    // The second body cannot be read, and its job cannot be held for it.
    bench.change_rows("UPDATE payload SET body = zeroblob(1) WHERE event = 2").await;
    bench.refuse("UPDATE OF state ON job", "new.state = 'held'").await;
    let claimed = bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs;
    let events: Vec<_> = claimed.iter().map(|c| c.facts.event_id.to_string()).collect();
    assert_eq!(events, ["e1", "e3"], "who is claimed and handed to nobody stays running");
}

#[tokio::test]
async fn an_attempt_that_a_runner_has_is_left_to_it() {
    let mut bench = bench().await;
    for event in ["own", "runners"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &[event]).await;
    }
    let runner = Runner {
        name: "deploy".parse().unwrap(),
        incarnation: Incarnation::from_parts(uuid::Uuid::from_u128(7), 8),
    };
    let own = bench.store.jobs.claim(&name("own"), 1, None).await.unwrap().jobs.remove(0);
    let of = Some(runner.clone());
    let theirs = bench.store.jobs.claim(&name("runners"), 1, of).await.unwrap().jobs.remove(0);
    let policies = ["own", "runners"].map(|handler| (name(handler), policy(OnUnknown::Hold, 5)));
    let recovered = bench.store.jobs.recover(policies.to_vec()).await.unwrap();
    assert_eq!(recovered.unknown, [(own.facts.job, 1, State::Held)]);
    let running = bench.store.jobs.running().await.unwrap();
    assert_eq!(running.len(), 1);
    let found = &running[0];
    let wanted = (theirs.facts.job, 1, Some(runner.clone()));
    assert_eq!((found.job, found.attempt, found.runner.clone()), wanted);
    assert_eq!((found.handler.as_str(), found.event_id.as_str()), ("runners", "runners"));
    // As an earlier program wrote it, who had no names: the default one.
    bench.change_rows("UPDATE attempt SET runner = NULL").await;
    let found = bench.store.jobs.running().await.unwrap().remove(0).runner;
    assert_eq!(found, Some(Runner { name: RunnerName::default(), ..runner.clone() }));

    // Known while it matters: whoever asks about a live attempt asks that runner.
    let claimed_for = async || bench.number("SELECT count(incarnation) FROM attempt").await;
    assert_eq!(claimed_for().await, 1);
    assert!(bench.complete(&theirs, Outcome::Failed, Next::Ready).await);
    assert_eq!(claimed_for().await, 0);
    let again = bench.store.jobs.claim(&name("runners"), 1, Some(runner.clone())).await.unwrap();
    assert_eq!((again.jobs.len(), claimed_for().await), (1, 1));
    assert_eq!(bench.store.jobs.running().await.unwrap()[0].runner, Some(runner));
}

#[tokio::test]
async fn ends_and_the_next_claim_share_one_commit_and_none_spoils_the_others() {
    let mut bench = bench().await;
    let first = bench.running("e1").await;
    let second = bench.running("e2").await;
    bench.accept("stripe", stripe("e3", "a.b", "{}"), &["h"]).await;
    let commits = || bench.store.admin.writer_gauges().batch_items.buckets.last().unwrap().1;
    let done = |claimed: &Claimed, next| completion(claimed, Outcome::Failed, next, START);
    let ids = |jobs: &[Claimed]| {
        jobs.iter().map(|job| job.facts.event_id.to_string()).collect::<Vec<_>>()
    };
    let claim = |limit| {
        Some(Claim {
            handler: name("h"),
            limit,
            runner: None,
            rate: None,
            cluster_concurrency: None,
        })
    };

    // What an end puts back is claimed with it, in the order of arrival.
    let before = commits();
    let ends = [done(&first, Next::Ready), done(&second, Next::Dead(DeadReason::Rejected))];
    let (ended, claims) = bench.store.jobs.complete_and_claim(&ends.map(Arc::new), claim(9)).await;
    assert_eq!(ended, [Ok(true), Ok(true)]);
    let claims = claims.await.unwrap();
    let attempts: Vec<_> = claims.jobs.iter().map(|job| job.facts.attempt).collect();
    assert_eq!((ids(&claims.jobs), attempts), (vec!["e1".into(), "e3".into()], vec![2, 1]));
    assert_eq!(commits() - before, 1);

    // One of them is refused: it is told so, and the rest is committed.
    bench.refuse("UPDATE OF outcome ON attempt", "old.number = 2").await;
    bench.accept("stripe", stripe("e4", "a.b", "{}"), &["h"]).await;
    let again = Claimed { facts: Facts { attempt: 2, ..first.facts.clone() }, ..first };
    let running = bench.store.jobs.running().await.unwrap();
    let third = running.into_iter().find(|one| one.event_id.as_str() == "e3").unwrap();
    let third = Completion {
        job: third.job,
        attempt: third.attempt,
        ..completion(&again, Outcome::Succeeded, Next::Succeeded, START)
    };
    let ends = [done(&again, Next::Succeeded), third];
    let (ended, claims) = bench.store.jobs.complete_and_claim(&ends.map(Arc::new), claim(1)).await;
    assert!(matches!(ended[0], Err(Error::Unavailable(_))), "{:?}", ended[0]);
    assert_eq!(ended[1], Ok(true));
    assert_eq!(ids(&claims.await.unwrap().jobs), ["e4"]);
    bench.store.close().await;
    let (ended, claims) = bench.store.jobs.complete_and_claim(&[], claim(1)).await;
    let claims = claims.await;
    assert!(ended.is_empty() && matches!(claims, Err(Error::Unavailable(_))), "{claims:?}");
}
