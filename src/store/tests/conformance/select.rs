//! Many jobs at once, and what of them is left alone.
use super::{tokio, *};
use crate::limits::{BATCH_JOBS, PAGE_LOOK_ROWS, STUCK_ROWS};

async fn stopped(bench: &Bench, event: &str, next: Next) -> (JobId, u32) {
    let claimed = bench.running(event).await;
    let outcome = if matches!(next, Next::Held(_)) { Outcome::Unknown } else { Outcome::Rejected };
    bench.complete(&claimed, outcome, next).await;
    (claimed.facts.job, claimed.facts.attempt)
}

const DEAD: Next = Next::Dead(DeadReason::Rejected);

async fn selected(bench: &Bench, verb: Verb, filter: JobFilter) -> (Vec<JobId>, u64) {
    let ask = JobSelection { filter, after: None, verb };
    let SelectedJobs { jobs, suspected, next, .. } = bench.store.admin.select(ask).await.unwrap();
    assert_eq!(next, None);
    (jobs.into_iter().map(|chosen| chosen.job).collect(), suspected)
}

fn dead() -> JobFilter {
    JobFilter { state: Some(State::Dead), ..JobFilter::default() }
}

#[tokio::test]
async fn a_batch_takes_what_was_chosen_and_nothing_that_has_changed() {
    let mut bench = bench().await;
    let kept = stopped(&bench, "kept", DEAD).await;
    let replayed = stopped(&bench, "replayed", DEAD).await;
    let again = stopped(&bench, "again", DEAD).await;
    let gone = stopped(&bench, "gone", DEAD).await;
    let held = stopped(&bench, "held", Next::Held(HeldReason::UnknownOutcome)).await;
    let jobs = vec![kept, replayed, again, gone, held, (crate::random::job_id(START), 1)];
    assert_eq!(selected(&bench, Verb::Drop, dead()).await.0, [kept.0, replayed.0, again.0, gone.0]);

    // Meanwhile one is put back, and one is put back, runs and dies again.
    bench.store.admin.replay(Replay::Job(again.0, None), false).await.unwrap();
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.facts.job, again.0);
    bench.complete(&claimed, Outcome::Rejected, DEAD).await;
    bench.store.admin.replay(Replay::Job(replayed.0, None), false).await.unwrap();
    let expire =
        "DELETE FROM payload WHERE event = (SELECT row FROM event WHERE event_id = 'gone')";
    bench.change_rows(expire).await;

    let batch =
        JobBatch { verb: Verb::Replay, state: State::Dead, regardless: false, jobs: jobs.clone() };
    let moved = bench.store.admin.move_batch(batch.clone()).await.unwrap();
    assert_eq!(moved.done, [(name("h"), 1)].into());
    assert_eq!((moved.changed, moved.payload_gone), (4, 1));
    assert_eq!((bench.job(kept.0).await.state, bench.job(kept.0).await.replays), (State::Ready, 1));
    assert_eq!(
        (bench.job(again.0).await.state, bench.job(again.0).await.replays),
        (State::Dead, 1)
    );
    assert_eq!(bench.job(held.0).await.state, State::Held);
    // The same batch again finds nothing of what it has done, and never a running job.
    assert_eq!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.len(), 2);
    assert_eq!(bench.store.admin.move_batch(batch).await.unwrap().done, [].into());
    for state in [State::Running, State::Ready, State::Succeeded] {
        let wrong = JobBatch {
            verb: Verb::Drop,
            state,
            regardless: false,
            jobs: vec![(kept.0, 2), (replayed.0, 2)],
        };
        assert_eq!(bench.store.admin.move_batch(wrong).await.unwrap().changed, 2);
    }
    let drop = JobBatch { verb: Verb::Drop, state: State::Dead, regardless: false, jobs };
    assert_eq!(bench.store.admin.move_batch(drop).await.unwrap().done, [(name("h"), 1)].into());
    let row = bench.job(gone.0).await;
    assert_eq!((row.state, row.reason.as_deref()), (State::Dropped, Some("by the operator")));
    let large = vec![(kept.0, 1); BATCH_JOBS + 1];
    let large = JobBatch { verb: Verb::Drop, state: State::Dead, regardless: false, jobs: large };
    let refused = bench.store.admin.move_batch(large).await.unwrap_err();
    assert_eq!(refused.to_string(), "the batch has 201 jobs; 200 is the limit");
}

#[tokio::test]
async fn what_may_be_forged_is_replayed_only_where_its_reason_is_named() {
    let bench = bench().await;
    bench.accept("github", github("d-1", "push", "x"), &["h"]).await;
    bench.accept("github", github("d-2", "push", "x"), &["h"]).await;
    let held = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    assert_eq!(selected(&bench, Verb::Replay, held.clone()).await, (vec![], 1));
    assert_eq!(selected(&bench, Verb::Drop, held.clone()).await.0.len(), 1);
    let named = JobFilter { reason: Some("suspected replay".to_owned()), ..held };
    assert_eq!(selected(&bench, Verb::Replay, named).await.0.len(), 1);
    // Ready ones are never meant, whatever the filter says.
    assert!(selected(&bench, Verb::Drop, JobFilter::default()).await.0.len() == 1);
}

#[tokio::test]
async fn the_walk_over_many_ends_and_meets_each_once() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e", "a.b", "{}"), &[]).await;
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001)
        INSERT INTO job (id, event, handler, state, reason, since, created_at, settled_at)
        SELECT randomblob(16), 1, 'h' || i, 'dead', 'rejected', 1, 1, 1 FROM n";
    bench.change_rows(many).await;
    let ask = JobSelection { filter: dead(), after: None, verb: Verb::Drop };
    let first = bench.store.admin.select(ask.clone()).await.unwrap();
    let last = bench.store.admin.select(JobSelection { after: first.next, ..ask }).await.unwrap();
    assert_eq!((first.jobs.len(), last.jobs.len(), last.next), (1_000, 1, None));
    assert!(!first.jobs.contains(&last.jobs[0]));
}

#[tokio::test]
async fn a_selection_looks_at_a_bounded_number_of_jobs_and_says_where_to_go_on() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e", "a.b", "{}"), &[]).await;
    // The handler changes at the last job.
    let jobs = PAGE_LOOK_ROWS + 3;
    let many = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs})
        INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated, flagged)
        SELECT 's', 'n' || i, 0, 'a', zeroblob(32), 1, 0, false, false, false FROM n;
        INSERT INTO job (id, event, handler, state, reason, since, created_at, settled_at)
        SELECT randomblob(16), row, CASE WHEN event_id = 'n{jobs}' THEN 'last' ELSE 'h' END, 'dead', 'rejected', 1, 1, 1
        FROM event WHERE source = 's' ORDER BY row"
    );
    bench.change_rows(&many).await;
    let filter = JobFilter { handler: Some(name("last")), ..dead() };
    let ask = JobSelection { filter, after: None, verb: Verb::Drop };
    let first = bench.store.admin.select(ask.clone()).await.unwrap();
    assert_eq!((first.jobs.len(), first.looked_at), (0, PAGE_LOOK_ROWS.unsigned_abs()));
    assert!(first.next.is_some(), "the end is not reached");
    let last = bench.store.admin.select(JobSelection { after: first.next, ..ask }).await.unwrap();
    assert_eq!((last.jobs.len(), last.looked_at, last.next), (1, 3, None));
}

#[tokio::test]
async fn a_new_key_replaces_the_old_one_which_is_never_a_stranger() {
    let bench = bench().await;
    let (old, _) = stopped(&bench, "e", DEAD).await;
    let new =
        bench.store.admin.replay(Replay::NewKey(old, None), false).await.unwrap().jobs.remove(0);
    assert_ne!(new, old);
    let error = bench.store.admin.replay(Replay::NewKey(old, None), false).await.unwrap_err();
    assert!(matches!(error, Error::NoJob(_)), "{error}");
    let error = bench.store.admin.replay(Replay::NewKey(new, None), false).await.unwrap_err();
    assert!(matches!(error, Error::WrongState { state: State::Ready, .. }), "{error}");
    let again = bench.claim_one().await;
    assert_eq!((again.facts.job, again.facts.attempt, again.facts.replays), (new, 2, 1));
    // A late word under the old key is of a settled attempt: it changes nothing and is acknowledged.
    let mut late = completion(&again, Outcome::Succeeded, Next::Succeeded, bench.clock.now());
    late.job = old;
    assert_eq!(bench.store.jobs.complete(late).await, Ok(false));
    assert_eq!(bench.job(new).await.state, State::Running);
    let shown = bench.store.admin.show(None, id("e"), None).await.unwrap().remove(0);
    let former = &shown.jobs[0].former_keys;
    assert_eq!((former.len(), former[0].key, former[0].attempt), (1, old, 1));
}

#[tokio::test]
async fn events_that_arrive_are_seen_once_and_in_their_order() {
    let bench = bench_with(Limits { list_count: 2, ..limits() }).await;
    let accept = async |event: &'static str, source: &str| {
        bench.accept(source, github(event, "push", event), &[]).await;
    };
    let of_a = EventFilter { source: Some(name("a")), ..EventFilter::default() };
    let arrived = async |after| {
        let (events, mark) = bench.store.admin.new_events(of_a.clone(), after).await.unwrap();
        (events.into_iter().map(|event| event.event_id.to_string()).collect::<Vec<_>>(), mark)
    };
    for event in ["e1", "e2", "e3"] {
        accept(event, "a").await;
    }
    accept("other", "b").await;
    let (seen, mark) = arrived(None).await;
    assert_eq!(seen, ["e2", "e3"], "the newest, oldest first");
    assert_eq!(arrived(Some(mark)).await, (vec![], mark));
    for event in ["e4", "e5", "e6"] {
        accept(event, "a").await;
    }
    let (seen, mark) = arrived(Some(mark)).await;
    assert_eq!(seen, ["e4", "e5"]);
    let (seen, mark) = arrived(Some(mark)).await;
    assert_eq!(seen, ["e6"]);
    assert_eq!(arrived(Some(mark)).await.0, Vec::<String>::new());
}

/// A dead job of `h` whose attempt ended with this text.
async fn died(bench: &Bench, event: &str, detail: &str) -> JobId {
    let claimed = bench.running(event).await;
    let next = Next::Dead(DeadReason::Rejected);
    let record = Record { detail: detail.to_owned(), ..Record::default() };
    let end = completion(&claimed, Outcome::Rejected, next, bench.clock.now());
    assert!(bench.store.jobs.complete(Completion { record, ..end }).await.unwrap());
    claimed.facts.job
}

#[tokio::test]
async fn what_stands_still_is_grouped_by_cause_and_listed_by_it() {
    let mut bench = bench().await;
    let first = died(&bench, "e1", "HTTP 503").await;
    bench.advance(HOUR).await;
    let other = died(&bench, "e2", "HTTP 404").await;
    let last = died(&bench, "e3", "HTTP 503").await;
    bench.accept("github", github("d-1", "push", "x"), &["h"]).await;
    bench.accept("github", github("d-2", "push", "x"), &["h"]).await;
    let held = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    let held = bench.store.admin.jobs(held).await.unwrap().rows[0].job;

    let stuck = bench.store.admin.stuck().await.unwrap();
    let group = |group: &StuckGroup| {
        let StuckGroup { newest, jobs, oldest_at } = group;
        (newest.job, newest.last_detail.clone(), *jobs, *oldest_at)
    };
    let (now, of) = (bench.clock.now(), |text: &str| Some(text.to_owned()));
    assert_eq!(
        stuck.groups.iter().map(group).collect::<Vec<_>>(),
        [(held, None, 1, now), (last, of("HTTP 503"), 2, START), (other, of("HTTP 404"), 1, now),]
    );
    assert_eq!(stuck.more, []);

    let by_detail = |state, text| JobFilter {
        state: Some(state),
        last_detail: of(text),
        ..JobFilter::default()
    };
    for (filter, found) in [
        (by_detail(State::Dead, "HTTP 503"), vec![first, last]),
        (by_detail(State::Dead, "HTTP 50"), vec![]),
        (by_detail(State::Held, ""), vec![held]),
        (by_detail(State::Dead, ""), vec![]),
    ] {
        assert_eq!(selected(&bench, Verb::Drop, filter.clone()).await.0, found, "{filter:?}");
        let rows = bench.store.admin.jobs(filter.clone()).await.unwrap().rows;
        let listed: Vec<JobId> = rows.iter().rev().map(|row| row.job).collect();
        assert_eq!(listed, found, "{filter:?}");
    }

    // As many as are walked, and one more.
    let more = |jobs: i64| {
        format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs})
             INSERT INTO job (id, event, handler, state, reason, since, created_at, settled_at)
             SELECT randomblob(16), 1, {jobs} || 'x' || i, 'dead', 'rejected', 1, 1, 1 FROM n"
        )
    };
    bench.change_rows(&more(STUCK_ROWS - 3)).await;
    assert_eq!(bench.store.admin.stuck().await.unwrap().more, []);
    bench.change_rows(&more(1)).await;
    let stuck = bench.store.admin.stuck().await.unwrap();
    assert_eq!(stuck.more, [State::Dead]);
    let jobs: u64 =
        stuck.groups.iter().filter(|one| one.newest.state == State::Dead).map(|one| one.jobs).sum();
    assert_eq!(jobs, STUCK_ROWS.unsigned_abs(), "the oldest one is not counted");
}
