//! Equal requests of a sender that names nothing and asks for a run (`repeats = "trigger"`).
use super::{tokio, *};
use crate::pattern::Pattern;
use crate::routing::{Route, Router, Routes};

const MADE: Accepted = Accepted::Created { jobs: 1, held: None, flagged: false };

/// A request of that sender; all are equal.
fn request() -> Verified {
    let scheme = Scheme::embedded("alertmanager").unwrap().with_repeats(Repeats::Trigger);
    delivery_of(&scheme, "t", "", "", "deploy".to_owned())
}

/// A job of each handler in the group of equal requests, as the routes make it.
async fn ask_handlers(bench: &Bench, handlers: &[&str]) -> Accepted {
    let group = grouped("k", GroupRule::Latest).group;
    let job = |handler: &&str| NewJob { group: group.clone(), ..NewJob::of(name(handler)) };
    let new = Accept {
        source: name("s"),
        received_at: bench.clock.now(),
        delivery: request(),
        jobs: handlers.iter().map(job).collect(),
        on_redelivery: OnRedelivery::Ignore,
    };
    bench.store.intake.accept(new).await.unwrap()
}

fn state_of(accepted: &Accepted) -> Option<State> {
    let Accepted::Duplicate { state, .. } = accepted else { panic!("{accepted:?}") };
    *state
}

async fn ask_for_run(bench: &Bench) -> Accepted {
    bench.take(request(), grouped("k", GroupRule::Latest)).await
}

async fn events(bench: &Bench) -> usize {
    bench.store.admin.events(EventFilter::default()).await.unwrap().rows.len()
}

#[tokio::test]
async fn fifty_repeats_during_a_run_make_one_more_run() {
    let mut bench = bench().await;
    assert_eq!(ask_for_run(&bench).await, MADE);
    assert_eq!(state_of(&ask_for_run(&bench).await), Some(State::Ready), "its run comes later");
    assert_eq!(bench.starts().await.len(), 1);
    assert_eq!(ask_for_run(&bench).await, MADE);
    for _ in 1..25 {
        assert_eq!(state_of(&ask_for_run(&bench).await), Some(State::Ready));
    }
    bench.whole().await;
    assert!(bench.starts().await.is_empty(), "it begins when the first has ended");
    bench.succeed().await;
    for _ in 0..25 {
        assert_eq!(state_of(&ask_for_run(&bench).await), Some(State::Ready));
    }
    assert_eq!(bench.starts().await.len(), 1);
    bench.succeed().await;
    assert!(bench.starts().await.is_empty());
    assert_eq!(events(&bench).await, 2);
    bench.restart().await;
    assert_eq!(ask_for_run(&bench).await, MADE, "both have ended");
    assert_eq!(bench.starts().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_repeats_at_once_during_a_run_make_one_more_run() {
    let bench = Arc::new(bench().await);
    ask_for_run(&bench).await;
    assert_eq!(bench.starts().await.len(), 1);
    let repeats: Vec<_> = (0..50)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { ask_for_run(&bench).await == MADE })
        })
        .collect();
    let mut made = 0;
    for repeat in repeats {
        made += usize::from(repeat.await.unwrap());
    }
    assert_eq!((made, events(&bench).await), (1, 2));
}

#[tokio::test]
async fn each_handler_is_decided_by_its_own_twin() {
    let bench = bench().await;
    let made = |jobs| Accepted::Created { jobs, held: None, flagged: false };
    assert_eq!(ask_handlers(&bench, &["h", "slow"]).await, made(2));
    let run = bench.claim_one().await;
    assert_eq!(ask_handlers(&bench, &["h", "slow"]).await, made(1));
    let again = ask_handlers(&bench, &["h", "slow"]).await;
    assert_eq!(state_of(&again), Some(State::Ready));
    assert_eq!(ask_handlers(&bench, &["h", "slow", "new"]).await, made(1));
    assert!(bench.complete(&run, Outcome::Succeeded, Next::Succeeded).await);
    let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let mut handlers: Vec<&str> = jobs.iter().map(|job| job.handler.as_str()).collect();
    handlers.sort_unstable();
    assert_eq!(handlers, ["h", "h", "new", "slow"]);
    // Without a handler there is nothing that a run could stand for.
    assert_eq!(ask_handlers(&bench, &[]).await, made(0));
    assert_eq!(ask_handlers(&bench, &[]).await, made(0));
}

#[tokio::test]
async fn only_a_pending_job_makes_a_repeat_a_duplicate() {
    let dead = Next::Dead(DeadReason::Exhausted);
    let held = Next::Held(HeldReason::UnknownOutcome);
    for (outcome, next, stands) in [
        (Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }, Some(State::Waiting)),
        (Outcome::NotStarted, Next::Ready, Some(State::Ready)),
        (Outcome::Succeeded, Next::Succeeded, None),
        (Outcome::Unknown, held, None),
        (Outcome::Failed, dead, None),
    ] {
        let bench = bench().await;
        ask_handlers(&bench, &["h"]).await;
        let run = bench.claim_one().await;
        bench.complete(&run, outcome, next).await;
        let again = ask_handlers(&bench, &["h"]).await;
        match stands {
            Some(_) => assert_eq!(state_of(&again), stands, "{outcome} {next:?}"),
            None => assert_eq!(again, MADE, "{outcome} {next:?}"),
        }
    }
}

/// The run that comes next does what the failed one was to do.
#[tokio::test]
async fn a_failed_run_is_superseded_by_one_requested_during_it() {
    let bench = bench().await;
    ask_for_run(&bench).await;
    let first = bench.claim_one().await;
    ask_for_run(&bench).await;
    bench.end(Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }).await;
    assert_eq!(bench.job(first.facts.job).await.state, State::Dropped);
    let second = bench.claim_one().await;
    assert_ne!(first.facts.job, second.facts.job);
}

#[tokio::test]
async fn a_twin_that_an_operator_dropped_does_not_stand_for_its_repeat() {
    let bench = bench().await;
    ask_for_run(&bench).await;
    let run = bench.claim_one().await;
    ask_for_run(&bench).await;
    let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let next = jobs.iter().find(|job| job.state == State::Ready).unwrap();
    bench.store.admin.drop_job(next.job, None).await.unwrap();
    assert_eq!(ask_for_run(&bench).await, MADE);
    assert!(bench.complete(&run, Outcome::Succeeded, Next::Succeeded).await);
    bench.whole().await;
    assert_eq!(bench.starts().await.len(), 1);
}

/// The type may be in a header, which the id leaves out.
#[tokio::test]
async fn a_request_of_another_type_or_group_is_not_a_repeat() {
    let bench = bench().await;
    let scheme = Scheme::embedded("none").unwrap();
    let typed = |kind: &str| delivery_of(&scheme, "", "", kind, "{}".to_owned());
    let of_group = |key| grouped(key, GroupRule::Latest);
    assert_eq!(bench.take(typed("backup"), of_group("backup")).await, MADE);
    assert_eq!(bench.take(typed("cleanup"), of_group("cleanup")).await, MADE);
    assert_eq!(bench.take(typed("cleanup"), of_group("other")).await, MADE);
    let again = bench.take(typed("backup"), of_group("backup")).await;
    assert_eq!(state_of(&again), Some(State::Ready));
    assert_eq!(bench.starts().await.len(), 3);
}

/// A cron service makes one event each minute; each expires by its own age.
#[tokio::test]
async fn old_repeats_expire_but_the_first_and_last_stay() {
    let bench = bench().await;
    for _ in 0..4 {
        assert_eq!(ask_for_run(&bench).await, MADE);
        assert_eq!(bench.starts().await.len(), 1);
        bench.succeed().await;
        bench.advance(DAY).await;
    }
    let now = bench.clock.now();
    let before = Cutoffs { payloads: now, ids: now.before(DAY + HOUR), dead: now };
    bench.store.jobs.expire(before).await.unwrap();
    bench.store.jobs.expire(before).await.unwrap();
    assert_eq!(events(&bench).await, 2);
    assert_eq!(ask_for_run(&bench).await, MADE);
    assert_eq!(state_of(&ask_for_run(&bench).await), Some(State::Ready));
}

#[tokio::test]
async fn a_job_made_later_of_a_repeat_is_not_held_as_a_reused_id() {
    let bench = bench().await;
    for _ in 0..2 {
        assert_eq!(ask_handlers(&bench, &["h"]).await, MADE);
        let run = bench.claim_one().await;
        assert!(bench.complete(&run, Outcome::Succeeded, Next::Succeeded).await);
    }
    let routes = Routes {
        source: name("s"),
        form_field: None,
        inflated_bytes: 1000,
        kept_bytes: 1000,
        routes: vec![Route::new(name("late"), vec![Pattern::new("*", true)])],
    };
    bench.store.admin.set_router(Router::new([Arc::new(routes)]));
    let types = vec![Pattern::new("*", true)];
    let wanted = vec![EventMatcher { sources: vec![name("s")], types, only: None }];
    let ask = Backfill { handler: name("late"), since: START, wanted, dry_run: false, from: None };
    assert_eq!(bench.store.admin.make_missing(ask).await.unwrap().made, 2);
    let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let late = jobs.iter().filter(|job| job.handler.as_str() == "late");
    assert!(late.map(|job| job.state).eq([State::Ready; 2]));
}
