//! Groups: jobs of one key run one at a time, in the order of arrival, or the latest wins (I6, I7).
use super::{tokio, *};
use crate::condition::Key;
use crate::pattern::Pattern;
use crate::payload::Place;
use crate::routing::{Route, Router, Routes};

const SECOND: Duration = Duration::from_secs(1);

fn delayed(key: &str, wait: Duration, most: Duration) -> NewJob {
    NewJob { delay: Some(Delay { wait, most }), ..grouped(key, GroupRule::Latest) }
}

const HELD: Next = Next::Held(HeldReason::UnknownOutcome);
const DEAD: Next = Next::Dead(DeadReason::Exhausted);

#[tokio::test]
async fn a_group_runs_in_the_order_of_arrival_and_others_beside_it() {
    for rule in [GroupRule::Block, GroupRule::StepOver] {
        let bench = bench().await;
        for (event, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
            bench.event(event, key, rule).await;
        }
        bench.accept("stripe", stripe("free", "a", "{}"), &["h"]).await;
        assert_eq!(bench.starts().await, ["a1", "b1", "free"]);
        assert!(bench.starts().await.is_empty());
        let running = bench.store.jobs.running().await.unwrap();
        for one in running.iter().filter(|one| one.event_id.as_str() != "b1") {
            let done = Completion {
                job: one.job,
                attempt: 1,
                outcome: Outcome::Succeeded,
                counts: true,
                next: Next::Succeeded,
                finished_at: START,
                record: Record::default(),
                answer: None,
            };
            bench.store.jobs.complete(done).await.unwrap();
        }
        assert_eq!(bench.starts().await, ["a2"], "b1 still runs");
        bench.whole().await;
    }
}

#[tokio::test]
async fn a_retry_and_a_held_job_keep_their_place_over_a_restart() {
    for rule in [GroupRule::Block, GroupRule::StepOver] {
        let mut bench = bench().await;
        for event in ["e1", "e2", "e3"] {
            bench.event(event, "k", rule).await;
        }
        assert_eq!(bench.starts().await, ["e1"]);
        bench.end(Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }).await;
        assert!(bench.starts().await.is_empty(), "it waits");
        bench.restart().await;
        bench.advance(HOUR).await;
        assert_eq!(bench.starts().await, ["e1"]);
        // A forward that the restart has cut off: unknown, and held.
        bench.restart().await;
        let policies = vec![(name("h"), policy(OnUnknown::Hold, 9))];
        bench.store.jobs.recover(policies).await.unwrap();
        bench.whole().await;
        assert_eq!(bench.state("e1").await.0, State::Held);
        assert!(bench.starts().await.is_empty(), "it is held");
        let job = bench.of_event("e1").await.job;
        bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap();
        assert_eq!(bench.starts().await, ["e1"]);
        bench.end(Outcome::Unknown, HELD).await;
        bench.resolve(job, Resolution::Succeeded).await.unwrap();
        assert_eq!(bench.starts().await, ["e2"]);
        bench.succeed().await;
        assert_eq!(bench.starts().await, ["e3"]);
    }
}

#[tokio::test]
async fn a_dead_job_blocks_its_group_or_is_stepped_over() {
    for rule in [GroupRule::Block, GroupRule::StepOver] {
        let mut bench = bench().await;
        for event in ["e1", "e2", "e3"] {
            bench.event(event, "k", rule).await;
        }
        assert_eq!(bench.starts().await, ["e1"]);
        bench.end(Outcome::Failed, DEAD).await;
        if rule == GroupRule::StepOver {
            assert_eq!(bench.starts().await, ["e2"]);
            // Put back it goes on before the later ones, behind the one that runs.
            let job = bench.of_event("e1").await.job;
            bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap();
            assert!(bench.starts().await.is_empty());
            bench.succeed().await;
            assert_eq!(bench.starts().await, ["e1"]);
            bench.succeed().await;
            assert_eq!(bench.starts().await, ["e3"]);
            continue;
        }
        assert!(bench.starts().await.is_empty());
        bench.restart().await;
        assert!(bench.starts().await.is_empty());
        let job = bench.of_event("e1").await.job;
        bench.store.admin.drop_job(job, None).await.unwrap();
        bench.whole().await;
        assert_eq!(bench.starts().await, ["e2"]);
        bench.end(Outcome::Failed, DEAD).await;
        // A person decides, and not the time.
        bench.expire_all().await;
        assert!(bench.starts().await.is_empty());
        bench.store.admin.drop_job(bench.of_event("e2").await.job, None).await.unwrap();
        assert_eq!(bench.starts().await, ["e3"]);
    }
}

#[tokio::test]
async fn what_is_behind_is_dropped_and_held_in_its_place() {
    let bench = bench().await;
    for event in ["e1", "e2", "e3", "e4"] {
        bench.event(event, "k", GroupRule::Block).await;
    }
    let job = bench.of_event("e2").await.job;
    bench.store.admin.drop_job(job, None).await.unwrap();
    bench.whole().await;
    // Its handler is gone, and comes back.
    assert_eq!(bench.store.jobs.hold_orphans(vec![name("other")]).await.unwrap(), 3);
    bench.whole().await;
    assert!(bench.starts().await.is_empty());
    for event in ["e4", "e3"] {
        let job = bench.of_event(event).await.job;
        bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap();
        bench.whole().await;
    }
    assert!(bench.starts().await.is_empty(), "e1 is held");
    let first = bench.of_event("e1").await.job;
    bench.resolve(first, Resolution::Failed).await.unwrap();
    assert_eq!(bench.starts().await, ["e3"]);
    bench.succeed().await;
    assert_eq!(bench.starts().await, ["e4"]);
}

#[tokio::test]
async fn a_job_without_its_payload_lets_its_group_go_on_as_a_dead_one_does() {
    for (rule, next) in
        [(GroupRule::Block, vec![]), (GroupRule::StepOver, vec!["e2"]), (GroupRule::Latest, vec![])]
    {
        let mut bench = bench().await;
        bench.event("e1", "k", rule).await;
        bench.event("e2", "k", rule).await;
        bench.change_rows("DELETE FROM payload WHERE event = 1").await;
        let first = bench.starts().await;
        if rule != GroupRule::Latest {
            bench.until_nothing_runs().await;
        }
        bench.whole().await;
        if rule == GroupRule::Latest {
            assert_eq!(first, ["e2"]);
        } else {
            assert!(first.is_empty(), "it dies");
            assert_eq!(bench.starts().await, next);
        }
    }
}

#[tokio::test]
async fn the_latest_takes_the_place_of_what_does_not_run() {
    let bench = bench().await;
    let rule = GroupRule::Latest;
    bench.event("e1", "k", rule).await;
    bench.event("e2", "k", rule).await;
    bench.event("x", "other", rule).await;
    assert_eq!(bench.state("e1").await, (State::Dropped, Some("superseded".to_owned())));
    let newest = bench.of_event("e2").await.job;
    assert_eq!(bench.of_event("e1").await.superseded_by, Some(newest));
    assert_eq!(bench.starts().await, ["e2", "x"]);
    // One that runs goes on, and the new one is behind it.
    bench.event("e3", "k", rule).await;
    bench.event("e4", "k", rule).await;
    assert!(bench.starts().await.is_empty());
    assert_eq!(bench.state("e3").await.0, State::Dropped);
    let running = bench.store.jobs.running().await.unwrap();
    let other = running.iter().find(|one| one.event_id.as_str() == "x").unwrap();
    let done = completion_of(other, Next::Succeeded);
    bench.store.jobs.complete(done).await.unwrap();
    // A retry of the older one never runs.
    bench.end(Outcome::Failed, Next::Wait { due_at: START.after(SECOND) }).await;
    let (state, newer) = (bench.state("e2").await, bench.of_event("e4").await.job);
    assert_eq!(state, (State::Dropped, Some("superseded".to_owned())));
    assert_eq!(bench.of_event("e2").await.superseded_by, Some(newer));
    assert_eq!(bench.starts().await, ["e4"]);
    bench.succeed().await;
    bench.advance(DAY).await;
    assert!(bench.starts().await.is_empty());
}

fn completion_of(running: &RunningAttempt, next: Next) -> Completion {
    Completion {
        job: running.job,
        attempt: running.attempt,
        outcome: Outcome::Succeeded,
        counts: true,
        next,
        finished_at: START,
        record: Record::default(),
        answer: None,
    }
}

#[tokio::test]
async fn a_retry_that_waits_is_superseded_and_a_held_one_lets_the_latest_go_on() {
    let bench = bench().await;
    let rule = GroupRule::Latest;
    bench.event("e1", "k", rule).await;
    assert_eq!(bench.starts().await, ["e1"]);
    bench.end(Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }).await;
    bench.event("e2", "k", rule).await;
    assert_eq!(bench.state("e1").await.0, State::Dropped);
    assert_eq!(bench.starts().await, ["e2"]);
    bench.event("e3", "k", rule).await;
    bench.end(Outcome::Unknown, HELD).await;
    assert_eq!(bench.starts().await, ["e3"]);
    // The older one is not run after the newer one, unless the operator says so.
    let job = bench.of_event("e2").await.job;
    let newer = bench.of_event("e3").await.job;
    let refused = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
    assert_eq!(refused, Error::Superseded { job, newer: Newer::Job(newer) });
    assert!(refused.to_string().contains("--regardless"), "{refused}");
    assert_eq!(bench.store.admin.replay(Replay::Job(job, None), true).await.unwrap().jobs, [job]);
    assert!(bench.starts().await.is_empty(), "e3 runs");
    bench.succeed().await;
    assert_eq!(bench.starts().await, ["e2"]);
}

#[tokio::test]
async fn a_batch_replays_what_is_out_of_date_or_undecided_only_if_it_is_told_to() {
    let bench = bench().await;
    bench.event("e1", "k", GroupRule::Latest).await;
    assert_eq!(bench.starts().await, ["e1"]);
    bench.end(Outcome::Unknown, HELD).await;
    bench.event("e2", "k", GroupRule::Latest).await;
    let undecided = NewJob { undecided: Some("no JSON".to_owned()), ..NewJob::of(name("h")) };
    bench.take(stripe("e3", "a", "{}"), undecided).await;
    let route = Route::new(name("other"), Vec::new());
    let (form_field, kept_bytes, inflated_bytes) = (None, 1000, 1000);
    let routes = Routes {
        source: name("stripe"),
        form_field,
        inflated_bytes,
        kept_bytes,
        routes: vec![route],
    };
    bench.store.admin.set_router(Router::new([Arc::new(routes)]));
    let (first, third) = (bench.of_event("e1").await, bench.of_event("e3").await);
    for regardless in [false, true] {
        let jobs = [&first, &third].map(|row| (row.job, row.attempt)).to_vec();
        let batch = JobBatch { verb: Verb::Replay, state: State::Held, regardless, jobs };
        let moved = bench.store.admin.move_batch(batch).await.unwrap();
        let left = u64::from(!regardless);
        assert_eq!((moved.superseded, moved.undecided), (left, left));
        assert_eq!(moved.done.get(&name("h")), Some(&2).filter(|_| regardless));
    }
    bench.whole().await;
}

#[tokio::test]
async fn retention_does_not_forget_that_a_newer_event_has_run() {
    let bench = bench().await;
    bench.event("e1", "k", GroupRule::Latest).await;
    assert_eq!(bench.starts().await, ["e1"]);
    bench.end(Outcome::Unknown, HELD).await;
    bench.event("e2", "k", GroupRule::Latest).await;
    assert_eq!(bench.starts().await, ["e2"]);
    bench.succeed().await;
    bench.expire_all().await;
    let job = bench.of_event("e1").await.job;
    let refused = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
    assert_eq!(refused, Error::Superseded { job, newer: Newer::Removed });
}

/// I7: what does not prove a newer event takes nothing's place.
#[tokio::test]
async fn a_duplicate_a_held_delivery_and_a_replay_supersede_nothing() {
    let rule = GroupRule::Latest;
    let bench = bench().await;
    let push = |id: &str| github(id, "push", "{}");
    bench.take(push("g1"), grouped("k", rule)).await;
    // The same event again; its body under another id; another body under its id; what could not be decided.
    assert!(matches!(bench.take(push("g1"), grouped("k", rule)).await, Accepted::Duplicate { .. }));
    bench.take(push("g2"), grouped("k", rule)).await;
    bench.take(github("g1", "push", r#"{"n":1}"#), grouped("k", rule)).await;
    let undecided = Some("/ref comes twice".to_owned());
    let job = NewJob { undecided, ..grouped("k", rule) };
    bench.take(github("g3", "push", r#"{"n":2}"#), job).await;
    bench.whole().await;
    let row = bench.of_event("g3").await;
    assert_eq!(
        (row.state, row.reason.as_deref(), row.detail.as_deref()),
        (State::Held, Some("condition failed"), Some("/ref comes twice"))
    );
    assert_eq!(bench.state("g2").await.1.as_deref(), Some("suspected replay"));
    assert_eq!(bench.starts().await, ["g1"]);
    // A dead letter that is delivered again after a newer event: it stays dead.
    bench.end(Outcome::Failed, DEAD).await;
    bench.take(github("g4", "push", r#"{"n":4}"#), grouped("k", rule)).await;
    let again = bench.take(push("g1"), grouped("k", rule)).await;
    // Two bodies have the id: each is a duplicate of its own.
    assert!(matches!(again, Accepted::Duplicate { replayed: 0, .. }), "{again:?}");
    assert_eq!(bench.starts().await, ["g4"]);
    // Put back, an older one supersedes nothing that waits.
    bench.end(Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }).await;
    let older = bench.of_event("g3").await.job;
    assert!(bench.store.admin.replay(Replay::Job(older, None), false).await.is_err());
    bench.store.admin.replay(Replay::Job(older, None), true).await.unwrap();
    assert_eq!(bench.state("g4").await.0, State::Waiting);
}

/// One copied delivery must not keep all others of its group waiting.
#[tokio::test]
async fn what_may_be_forged_holds_no_group_and_what_could_not_be_decided_does() {
    for rule in [GroupRule::Block, GroupRule::StepOver] {
        let bench = bench().await;
        bench.take(github("g1", "push", "{}"), grouped("k", rule)).await;
        assert_eq!(bench.starts().await, ["g1"]);
        bench.succeed().await;
        bench.take(github("g2", "push", "{}"), grouped("k", rule)).await;
        assert_eq!(bench.state("g2").await.0, State::Held);
        bench.take(github("g3", "push", "[3]"), grouped("k", rule)).await;
        assert_eq!(bench.starts().await, ["g3"]);
        bench.succeed().await;
        let undecided = Some("no JSON".to_owned());
        let job = NewJob { undecided, ..grouped("k", rule) };
        bench.take(github("g4", "push", "[4]"), job).await;
        bench.take(github("g5", "push", "[5]"), grouped("k", rule)).await;
        assert!(bench.starts().await.is_empty());
        bench.store.admin.drop_job(bench.of_event("g4").await.job, None).await.unwrap();
        assert_eq!(bench.starts().await, ["g5"]);
    }
}

#[tokio::test]
async fn a_delay_waits_and_each_newer_event_starts_it_anew_up_to_a_bound() {
    let bench = bench().await;
    let job = || delayed("k", 30 * SECOND, 70 * SECOND);
    let due =
        async |event: &str| bench.of_event(event).await.due_at.unwrap().since(START).as_secs();
    bench.take(stripe("e1", "a", "{}"), job()).await;
    assert_eq!(due("e1").await, 30);
    bench.advance(20 * SECOND).await;
    bench.take(stripe("e2", "a", "{}"), job()).await;
    assert_eq!((due("e2").await, bench.state("e1").await.0), (50, State::Dropped));
    bench.advance(25 * SECOND).await;
    bench.take(stripe("e3", "a", "{}"), job()).await;
    assert_eq!(due("e3").await, 70, "not 75");
    let asked = bench.store.jobs.claim(&name("h"), 9, None).await.unwrap();
    assert_eq!((asked.jobs.len(), asked.due), (0, Some(START.after(70 * SECOND))));
    bench.advance(25 * SECOND).await;
    assert_eq!(bench.starts().await, ["e3"]);
    // Once one has begun the next wait is a new one.
    bench.take(stripe("e4", "a", "{}"), job()).await;
    assert_eq!(due("e4").await, 100);
    bench.end(Outcome::Failed, DEAD).await;
    bench.advance(10 * SECOND).await;
    bench.take(stripe("e5", "a", "{}"), job()).await;
    assert_eq!(due("e5").await, 110);
    // A clock set back does not lengthen it, and a replay runs at once.
    bench.set_wall(START).await;
    bench.take(stripe("e6", "a", "{}"), job()).await;
    assert_eq!(due("e6").await, 30);
    bench.advance(30 * SECOND).await;
    assert_eq!(bench.starts().await, ["e6"]);
    bench.end(Outcome::Failed, DEAD).await;
    bench
        .store
        .admin
        .replay(Replay::Job(bench.of_event("e6").await.job, None), false)
        .await
        .unwrap();
    assert_eq!(bench.starts().await, ["e6"]);
}

#[tokio::test]
async fn a_restored_group_is_held_in_its_order() {
    for rule in GroupRule::ALL.iter().copied() {
        let mut bench = bench().await;
        for event in ["e1", "e2", "e3"] {
            bench.event(event, "k", rule).await;
        }
        let started = bench.starts().await;
        bench.event("e4", "k", rule).await;
        let backup = bench.back_up().await;
        let clock = bench.clock.clone();
        let bench = bench.restored(backup, clock).await;
        let policies = vec![(name("h"), policy(OnUnknown::Hold, 9))];
        bench.store.jobs.recover(policies).await.unwrap();
        bench.whole().await;
        assert!(bench.starts().await.is_empty());
        if rule == GroupRule::Latest {
            continue;
        }
        assert_eq!(started, ["e1"]);
        for event in ["e3", "e4", "e2"] {
            bench
                .store
                .admin
                .replay(Replay::Job(bench.of_event(event).await.job, None), false)
                .await
                .unwrap();
            assert!(bench.starts().await.is_empty(), "e1 is held");
        }
        bench.resolve(bench.of_event("e1").await.job, Resolution::Succeeded).await.unwrap();
        assert_eq!(bench.starts().await, ["e2"]);
    }
}

#[tokio::test]
async fn a_rule_that_changes_leaves_no_group_behind_and_drops_nothing_ordered() {
    let bench = bench().await;
    let (latest, block) = (GroupRule::Latest, GroupRule::Block);
    for (event, rule) in [("e1", latest), ("e2", block), ("e3", latest), ("e4", latest)] {
        bench.event(event, "k", rule).await;
        bench.whole().await;
    }
    assert_eq!(bench.state("e1").await.0, State::Dropped);
    assert_eq!(bench.starts().await, ["e2"]);
    bench.succeed().await;
    assert_eq!(bench.starts().await, ["e4"]);
    bench.succeed().await;
    bench.event("e5", "k", latest).await;
    bench.event("e6", "k", block).await;
    bench.store.jobs.hold_orphans(Vec::new()).await.unwrap();
    bench.whole().await;
}

/// A backfill makes jobs oldest first: each takes the place of older events' jobs of its group, and of no newer one.
#[tokio::test]
async fn of_the_jobs_made_later_only_the_newest_of_a_group_waits() {
    let bench = bench().await;
    let key = Key { places: vec![Place::parse("/data").unwrap()], rule: GroupRule::Latest };
    let delay = Some(Delay { wait: HOUR, most: HOUR });
    let route =
        Route { key: Some(key), delay, ..Route::new(name("h"), vec![Pattern::new("*", true)]) };
    let (form_field, kept_bytes, inflated_bytes) = (None, 1000, 1000);
    let routes = Routes {
        source: name("stripe"),
        form_field,
        inflated_bytes,
        kept_bytes,
        routes: vec![route],
    };
    bench.store.admin.set_router(Router::new([Arc::new(routes)]));
    let deliver = async |event: &str, key: &str| {
        bench.accept("stripe", stripe(event, "a", &format!("\"{key}\"")), &[]).await;
    };
    for (event, key) in [("e1", "k"), ("x1", "other"), ("e2", "k"), ("e3", "k")] {
        deliver(event, key).await;
    }
    let types = vec![Pattern::new("*", true)];
    let wanted = vec![EventMatcher { sources: vec![name("stripe")], types, only: None }];
    let ask = Backfill { handler: name("h"), since: START, wanted, dry_run: false, from: None };
    let make = async || bench.store.admin.make_missing(ask.clone()).await.unwrap();
    let made = make().await;
    assert_eq!((made.made, made.superseded), (4, 0));
    bench.whole().await;
    let superseded = (State::Dropped, Some("superseded".to_owned()));
    assert_eq!(
        [bench.state("e1").await, bench.state("e2").await],
        [superseded.clone(), superseded.clone()]
    );
    assert_eq!(bench.of_event("e2").await.superseded_by, Some(bench.of_event("e3").await.job));
    // While one of them runs the newest of those that come waits, and no older one is made any more.
    assert_eq!(bench.starts().await, ["x1", "e3"]);
    deliver("e4", "k").await;
    bench.event("e5", "k", GroupRule::Latest).await;
    deliver("e6", "k").await;
    let made = make().await;
    assert_eq!((made.made, made.superseded), (1, 1), "e6, and not e4");
    assert_eq!(bench.state("e5").await, superseded);
    assert!(bench.starts().await.is_empty());
    bench.whole().await;
}

#[tokio::test]
async fn a_group_behind_a_held_or_dead_job_is_counted() {
    let bench = bench().await;
    for (event, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")] {
        bench.event(event, key, GroupRule::Block).await;
    }
    let blocked = async || bench.store.admin.status(Vec::new()).await.unwrap().blocked;
    assert!(blocked().await.is_empty(), "nothing is held");
    let claimed = bench.claim_all().await;
    assert_eq!(claimed.len(), 3);
    for (claimed, next) in claimed.iter().zip([HELD, DEAD, DEAD]) {
        bench.complete(claimed, Outcome::Failed, next).await;
    }
    let found = blocked().await;
    assert_eq!((found.len(), found[0].groups), (1, 2), "none is behind c1: {found:?}");
    assert_eq!(bench.store.admin.gauges().await.unwrap().jobs.blocked[0].groups, 2);
    bench.store.admin.drop_job(claimed[0].facts.job, None).await.unwrap();
    bench.store.admin.drop_job(claimed[1].facts.job, None).await.unwrap();
    assert!(blocked().await.is_empty());
}
