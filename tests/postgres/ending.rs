//! What the end of an attempt makes of its job: in groups, across nodes, and for a caller who waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hooklatch::model::{Answer, DeadReason, Headers, HeldReason, OnUnknown, Outcome, State};
use hooklatch::pattern::Pattern;
use hooklatch::retry::Next;
use hooklatch::store::postgres::{AttemptEnd, EndResult, Exchanged, NodeAttempt, Writer};
use hooklatch::store::{Completion, NoticeSubscribers, Refused};
use tokio::sync::watch;
use tokio::time::timeout;

use super::cluster::{CREATED, Cluster, START, accept, begin, new, stripe};
use super::server::PATIENCE;
use super::working::{
    SUCCEEDED, add_jobs, admin, claim, claim_of, complete, end, exchange, holder, job,
    later_session, lock_job, lose, may_begin, session, succeeded, worker,
};

/// Puts all jobs into so many groups, by turns, each behind the first of its group.
async fn group(cluster: &Cluster, groups: i64, rule: &str) {
    cluster
        .run(&format!(
            "UPDATE job SET group_key = 'g' || event % {groups}, group_rule = '{rule}', behind = EXISTS (
                SELECT FROM job o WHERE o.event < job.event AND o.event % {groups} = job.event % {groups})"
        ))
        .await;
}

/// Which job of a group runs, and which have run, by their events' ids.
#[derive(Default)]
struct Course {
    running: BTreeMap<String, String>,
    begun: BTreeMap<String, Vec<String>>,
}

/// How long a job runs: long enough that the other node claims meanwhile. Nothing is awaited by it.
const RUN: Duration = Duration::from_millis(1);

/// Claims and ends jobs until all have succeeded. Counts the ends in `ended`.
async fn work(
    writer: Writer,
    course: Arc<Mutex<Course>>,
    jobs: usize,
    ended: watch::Sender<usize>,
) {
    let mut wakeups = writer.wakeups();
    let is_done = || course.lock().unwrap().begun.values().map(Vec::len).sum::<usize>() == jobs;
    while !is_done() {
        wakeups.mark_unchanged();
        let claims = exchange(&writer, Vec::new(), Some(claim_of(2))).await.claims;
        let claimed = claims.map(|claims| claims.attempts).unwrap_or_default();
        if claimed.is_empty() {
            // The other node's ends are not heard here.
            let _ = timeout(Duration::from_millis(20), wakeups.changed()).await;
        }
        for attempt in claimed {
            run(&writer, &course, attempt).await;
            ended.send_modify(|ended| *ended += 1);
        }
    }
}

async fn run(writer: &Writer, course: &Mutex<Course>, attempt: NodeAttempt) {
    if !may_begin(writer, &attempt) {
        complete(writer, end(&attempt, Outcome::NotStarted, Next::Ready)).await;
        return;
    }
    let (group, event) =
        (attempt.group.clone().unwrap(), attempt.running.event_id.as_str().to_owned());
    {
        let mut course = course.lock().unwrap();
        let other = course.running.insert(group.clone(), event.clone());
        assert_eq!(other, None, "{event} begins");
        course.begun.entry(group.clone()).or_default().push(event);
    }
    tokio::time::sleep(RUN).await;
    // From here on the end may be committed.
    course.lock().unwrap().running.remove(&group);
    assert_ne!(complete(writer, succeeded(&attempt)).await, EndResult::Late);
}

#[tokio::test]
async fn the_jobs_of_a_group_run_one_at_a_time_in_order_while_backends_are_killed() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    const JOBS: usize = 120;
    // Enough for the flights of both nodes, and so few that many backends are killed.
    const ENDS_BETWEEN_KILLS: usize = 6;
    for number in 0..JOBS {
        add_jobs(&a, number, 1).await;
    }
    group(&cluster, 3, "step-over").await;
    let course = Arc::<Mutex<Course>>::default();
    let (ended, mut ends) = watch::channel(0);
    let workers = async {
        tokio::join!(
            work(a, course.clone(), JOBS, ended.clone()),
            work(b, course.clone(), JOBS, ended.clone())
        );
    };
    let killer = async {
        let admin = cluster.admin().await;
        let mut next = ENDS_BETWEEN_KILLS;
        loop {
            next = *ends.wait_for(|ended| *ended >= next).await.unwrap() + ENDS_BETWEEN_KILLS;
            let kill =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'
                ORDER BY random() LIMIT 1";
            admin.batch_execute(kill).await.unwrap();
        }
    };
    tokio::select! {
        done = timeout(4 * PATIENCE, workers) => done.unwrap(),
        () = killer => {}
    }
    let begun = std::mem::take(&mut course.lock().unwrap().begun);
    assert_eq!(begun.len(), 3);
    for (group, events) in begun {
        assert!(events.is_sorted_by(|a, b| a < b), "{group}: {events:?}");
    }
    assert_eq!(cluster.count("job WHERE state = 'succeeded' AND NOT behind").await, 120);
    assert_eq!(cluster.count("attempt WHERE outcome = 'succeeded'").await, 120);
    println!("{} never started", cluster.count("attempt WHERE outcome = 'not_started'").await);
}

/// What an end frees is claimed in its transaction; and a job that goes back to ready keeps its group.
#[tokio::test]
async fn the_next_job_of_a_group_is_claimed_with_the_end_before_it() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 1).await;
    add_jobs(&a, 1, 1).await;
    group(&cluster, 1, "block").await;
    let first = claim(&a, 9).await;
    assert_eq!(first.len(), 1);
    let put_back = end(&first[0], Outcome::NotStarted, Next::Ready);
    let again = exchange(&a, vec![put_back], Some(claim_of(9))).await.claims.unwrap().attempts;
    assert_eq!((again.len(), again[0].running.job), (1, first[0].running.job));
    let next = exchange(&a, vec![succeeded(&again[0])], Some(claim_of(9))).await;
    let next = next.claims.unwrap().attempts;
    assert_eq!((next.len(), next[0].running.event_id.as_str()), (1, "e00001"));
}

#[tokio::test]
async fn a_failed_job_gives_way_to_a_newer_one_of_its_group() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    for number in 0..2 {
        add_jobs(&a, number, 1).await;
    }
    group(&cluster, 1, "latest").await;
    let first = claim(&a, 9).await.remove(0);
    let next = Next::Wait { due_at: START.after(Duration::from_secs(60)) };
    let ended = complete(&a, end(&first, Outcome::Failed, next)).await;
    assert_eq!(ended, EndResult::Settled(State::Dropped));
    let by = "SELECT reason || ' ' || (superseded_by = (SELECT id FROM job WHERE state = 'ready'))
        FROM job WHERE state = 'dropped'";
    assert_eq!(cluster.get::<String>(by).await, "superseded true");
    assert_eq!(claim(&a, 9).await[0].running.event_id.as_str(), "e00001");
}

/// The declaration frees its group, of which its runner still lists an attempt.
#[tokio::test]
async fn a_lost_node_that_is_back_claims_nothing_of_a_group_that_it_still_runs() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Hold).await;
    let b = holder(&cluster, "b").await;
    for number in 0..3 {
        add_jobs(&b, number, 1).await;
    }
    group(&cluster, 1, "latest").await;
    let first = claim(&a, 1).await.remove(0);
    let before = session(&a).await;
    // Held: where the latest wins, it does not hold the group.
    assert_eq!(lose(&cluster, "a").await.unknown, [(first.running.job, 1, State::Held)]);
    assert_eq!(claim(&a, 9).await, []);
    later_session(&a, &before).await;
    assert_eq!(claim(&a, 9).await, []);
    let second = claim(&b, 9).await.remove(0);
    assert_eq!(second.running.event_id.as_str(), "e00001");
    let third = exchange(&b, vec![succeeded(&second)], None).await;
    assert_eq!(third.ended, [Ok(SUCCEEDED)]);
    assert_eq!(claim(&a, 9).await, []);
    assert_eq!(complete(&a, succeeded(&first)).await, EndResult::Late);
    assert_eq!(claim(&a, 9).await[0].running.event_id.as_str(), "e00002");
}

/// Once, in the transaction that makes it so.
#[tokio::test]
async fn jobs_that_become_dead_or_held_are_counted_for_who_wants_to_know() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let all = vec![Pattern::new("job", true)];
    a.notices.set(NoticeSubscribers::new(vec![("mail".parse().unwrap(), all)]));
    add_jobs(&a, 0, 4).await;
    let own = claim(&a, 4).await;
    let dead = end(&own[0], Outcome::Rejected, Next::Dead(DeadReason::Rejected));
    let held = end(&own[1], Outcome::Cancelled, Next::Held(HeldReason::Cancelled));
    exchange(&a, vec![dead.clone(), held, succeeded(&own[2])], None).await;
    assert_eq!(complete(&a, dead.clone()).await, EndResult::Repeated);
    // A process that does not know the claimant has the end of its node's runner again.
    let again = AttemptEnd { claimant: uuid::Uuid::nil(), ..dead.clone() };
    assert_eq!(complete(&a, again).await, EndResult::Repeated);
    let late = AttemptEnd { claimant: uuid::Uuid::max(), ..dead };
    assert_eq!(complete(&a, late).await, EndResult::Late);
    let counts = "SELECT string_agg(type || ': ' || reason || ' ' || count || ' ' || event_id, ', '
        ORDER BY type, reason) FROM notice";
    let event = |own: &NodeAttempt| own.running.event_id.as_str().to_owned();
    let ended = format!(
        "job.dead: rejected 1 {}, job.held: cancelled 1 {}",
        event(&own[0]),
        event(&own[1])
    );
    assert_eq!(cluster.get::<String>(counts).await, ended);
    let of_a = session(&a).await.session.node;
    admin(&cluster).declare_lost(of_a, a.notices.clone()).await.unwrap().unwrap();
    let lost = format!("{ended}, job.held: unknown outcome 1 {}", event(&own[3]));
    assert_eq!(cluster.get::<String>(counts).await, lost);

    // Held at once, by both ways of an accept. A duplicate makes nothing.
    cluster.run("DELETE FROM notice").await;
    let undecided = |id: &str| {
        let mut odd = new(stripe(id, "{}"));
        odd.jobs[0].undecided = Some("it is odd".to_owned());
        odd
    };
    for all in [vec!["odd1"], vec!["odd2", "odd3"], vec!["odd1"]] {
        let all = all.into_iter().map(undecided).collect();
        a.accept_all(all, tokio::time::Instant::now() + PATIENCE).await.unwrap();
    }
    assert_eq!(cluster.get::<String>(counts).await, "job.held: condition failed 3 odd3");
    a.notices.set(NoticeSubscribers::default());
    a.accept(undecided("odd4"), tokio::time::Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(cluster.get::<i64>("SELECT count FROM notice").await, 3);
}

fn with_answer(own: &NodeAttempt, outcome: Outcome, next: Next) -> AttemptEnd {
    let body = Bytes::from_static(b"the answer");
    let answer = Some(Answer { status: 202, headers: Headers::new(), body });
    let AttemptEnd { done, claimant } = end(own, outcome, next);
    AttemptEnd { done: Arc::new(Completion { answer, ..(*done).clone() }), claimant }
}

#[tokio::test]
async fn the_end_of_a_request_brings_its_answer() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let wait = Next::Wait { due_at: START };
    for (number, (outcome, next, has_answer, expected)) in [
        (Outcome::Succeeded, Next::Succeeded, true, "succeeded - 202 10 kept"),
        (Outcome::Failed, wait, true, "dead attempts exhausted 202 10 an hour"),
        (Outcome::Succeeded, Next::Succeeded, false, "held unknown outcome - - kept"),
        (Outcome::NotStarted, Next::Ready, true, "ready - - - kept"),
    ]
    .into_iter()
    .enumerate()
    {
        add_jobs(&a, number, 1).await;
        let id = format!("e{number:05}");
        cluster
            .run(&format!(
                "UPDATE event SET has_key = true WHERE event_id = '{id}';
                 INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
                 SELECT row, source, '', event_id, digest, 0, 0, 3600000 FROM event WHERE event_id = '{id}'"
            ))
            .await;
        let own = claim(&a, 1).await.remove(0);
        let ending = match has_answer {
            true => with_answer(&own, outcome, next),
            false => end(&own, outcome, next),
        };
        assert!(matches!(complete(&a, ending.clone()).await, EndResult::Settled(_)));
        let said: String = cluster
            .get(&format!(
                "SELECT concat_ws(' ', state, coalesce(reason, '-'), coalesce(status::text, '-'),
                    coalesce(body_bytes::text, '-'),
                    CASE WHEN error_until - answered_at = 3600000 THEN 'an hour' ELSE 'kept' END)
                 FROM job JOIN answer USING (event) WHERE id = '{}'",
                own.running.job
            ))
            .await;
        assert_eq!(said, expected);
        // A repeat writes nothing.
        assert_eq!(complete(&a, ending).await, EndResult::Repeated);
        cluster.run("UPDATE job SET state = 'dropped', reason = 'by the operator', settled_at = 0 WHERE state = 'ready'").await;
    }
    assert_eq!(job(&cluster, claim_dead(&cluster).await).await, "dead 1 1");
}

async fn claim_dead(cluster: &Cluster) -> hooklatch::model::JobId {
    let id: uuid::Uuid = cluster.get("SELECT id FROM job WHERE state = 'dead'").await;
    hooklatch::model::JobId::from_bytes(*id.as_bytes())
}

/// Another program keeps the row of a job locked.
#[tokio::test]
async fn an_end_that_meets_a_locked_row_fails_at_once_and_alone() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 4).await;
    let claimed = claim(&a, 3).await;
    let gate = lock_job(&cluster, &claimed[0]).await;
    let ends: Vec<_> = claimed.iter().map(succeeded).collect();
    let Exchanged { ended, claims } = exchange(&a, ends, Some(claim_of(9))).await;
    assert!(matches!(ended[0], Err(Refused::Failed(_))), "{:?}", ended[0]);
    assert_eq!(ended[1..], [Ok(SUCCEEDED), Ok(SUCCEEDED)]);
    assert_eq!(claims.unwrap().attempts.len(), 1);
    assert_eq!(job(&cluster, claimed[0].running.job).await, "running 1 0");
    drop(gate);
    assert_eq!(complete(&a, succeeded(&claimed[0])).await, SUCCEEDED);
}

/// The server closes the connection over one end, each time that it comes.
#[tokio::test]
async fn an_end_that_ends_the_connection_takes_others_with_it_once() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 3).await;
    let claimed = claim(&a, 3).await;
    cluster
        .run(&format!(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
             CREATE TRIGGER poison BEFORE UPDATE ON job FOR EACH ROW
                WHEN (NEW.id = '{}') EXECUTE FUNCTION poison()",
            claimed[0].running.job
        ))
        .await;
    let before: i64 = cluster.get("SELECT count FROM node").await;
    for (number, other) in claimed[1..].iter().enumerate() {
        let ends = vec![succeeded(&claimed[0]), succeeded(other)];
        let Exchanged { ended, claims } = exchange(&a, ends, Some(claim_of(9))).await;
        assert!(matches!(ended[0], Err(Refused::Unconfirmed(_))), "{:?}", ended[0]);
        assert_eq!(ended[1], Ok(SUCCEEDED));
        // It is known by then, and has a transaction of its own.
        let sessions: i64 = cluster.get("SELECT count FROM node").await;
        let lost = usize::try_from(sessions - before).unwrap();
        assert!(lost <= 3 + number, "{lost} sessions");
        assert!(claims.is_ok() || number == 0, "{claims:?}");
    }
    cluster.run("DROP TRIGGER poison ON job").await;
    assert_eq!(complete(&a, succeeded(&claimed[0])).await, SUCCEEDED);
}

/// Its first try meets a lock.
#[tokio::test]
async fn a_lost_connection_is_no_failed_try_of_an_end() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 1).await;
    let own = claim(&a, 1).await.remove(0);
    cluster
        .run(
            "CREATE SEQUENCE tries;
             GRANT USAGE ON SEQUENCE tries TO app;
             CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                CASE nextval('tries')
                    WHEN 1 THEN RAISE lock_not_available;
                    WHEN 2 THEN PERFORM pg_terminate_backend(pg_backend_pid());
                    ELSE NULL;
                END CASE;
                RETURN NEW; END $$;
             CREATE TRIGGER fail BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION fail()",
        )
        .await;
    assert_eq!(exchange(&a, vec![succeeded(&own)], None).await.ended, [Ok(SUCCEEDED)]);
    assert_eq!(cluster.get::<i64>("SELECT last_value FROM tries").await, 3);
}

/// Its attempts would never begin.
#[tokio::test]
async fn a_claim_whose_caller_is_gone_or_whose_writer_closes_takes_nothing() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 2).await;
    for closes in [false, true] {
        let gate = cluster.hold().await;
        let accepting = begin(&a, stripe(&format!("held-{closes}"), "{}")).await;
        cluster.blocked(1).await;
        let claiming = {
            let a = a.clone();
            tokio::spawn(async move { exchange(&a, Vec::new(), Some(claim_of(1))).await.claims })
        };
        // It is queued then.
        tokio::task::yield_now().await;
        if closes {
            a.close();
        } else {
            claiming.abort();
        }
        drop(gate);
        assert_eq!(accepting.await.unwrap(), Ok(CREATED));
        match claiming.await {
            Ok(claims) => assert_eq!(claims, Err(Refused::Stopping)),
            // Behind the claim.
            Err(_) => assert_eq!(accept(&a, stripe("behind", "{}")).await, Ok(CREATED)),
        }
        assert_eq!(cluster.count("attempt").await, 0, "closes: {closes}");
    }
}

/// The process stops while another program keeps the rows of jobs locked.
#[tokio::test]
async fn a_writer_that_closes_goes_on_trying_ends_and_settles_none_that_is_not_committed() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    add_jobs(&a, 0, 2).await;
    let (of_a, of_b) = (claim(&a, 1).await.remove(0), claim(&b, 1).await.remove(0));
    let never = lock_job(&cluster, &of_b).await;
    let gate = lock_job(&cluster, &of_a).await;
    let fences = cluster.hold().await;
    let [ending_a, ending_b] = [(&a, &of_a), (&b, &of_b)].map(|(writer, own)| {
        let (writer, end) = (writer.clone(), succeeded(own));
        tokio::spawn(async move { exchange(&writer, vec![end], None).await.ended.remove(0) })
    });
    cluster.blocked(2).await;
    a.close();
    b.close();
    drop(fences);
    // In later transactions than before.
    let mut last = String::from("-infinity");
    for _ in 0..8 {
        let later = format!(
            "SELECT max(xact_start)::text FROM pg_stat_activity
             WHERE usename = 'app' AND wait_event_type = 'Lock' AND xact_start > '{last}' HAVING count(*) > 0"
        );
        last = cluster.server.wait_for(&later).await.get(0);
    }
    drop(gate);
    assert_eq!(ending_a.await.unwrap(), Ok(SUCCEEDED));
    let unsettled = timeout(PATIENCE, ending_b).await.unwrap().unwrap();
    assert!(unsettled.is_err(), "{unsettled:?}");
    drop(never);
    assert_eq!(job(&cluster, of_b.running.job).await, "running 1 0");
}
