//! Nodes that are declared lost: when nothing of them runs any more, and when the declaration is wrong.

use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::model::{OnUnknown, Outcome, State};
use hooklatch::pattern::Pattern;
use hooklatch::retry::Next;
use hooklatch::store::postgres::{EndResult, Housekeeping};
use hooklatch::store::{Error, NoticeSubscribers, Refused};

use super::cluster::{Cluster, ready};
use super::site::target;
use super::working::{
    SUCCEEDED, add_jobs, claim, claim_of, claiming, complete, declare_lost, end, exchange,
    hold_attempts, holder, job, later_session, lose, may_begin, session, succeeded, worker,
};

#[tokio::test]
async fn the_jobs_of_a_lost_node_follow_the_policy_that_it_published() {
    let cluster = Cluster::new(&[]).await;
    let b = holder(&cluster, "b").await;
    for (number, (name, policy, published, state)) in [
        ("reruns", OnUnknown::Rerun, true, State::Waiting),
        ("holds", OnUnknown::Hold, true, State::Held),
        ("silent", OnUnknown::Rerun, false, State::Held),
    ]
    .into_iter()
    .enumerate()
    {
        let a = worker(&cluster, name, 0, policy).await;
        add_jobs(&b, number, 1).await;
        let attempt = claim(&a, 1).await.remove(0);
        // It is dead: it does not register again.
        a.close();
        if !published {
            cluster
                .run("DELETE FROM handler WHERE node <> (SELECT id FROM node WHERE name = 'b')")
                .await;
        }
        let lost = lose(&cluster, name).await;
        let job_id = attempt.running.job;
        assert_eq!(lost.unknown, [(job_id, 1, state)]);
        assert_eq!(job(&cluster, job_id).await, format!("{state} 1 1"));
        let outcome = format!(
            "SELECT outcome || ' ' || (claimant IS NULL) FROM attempt JOIN job ON job.row = attempt.job WHERE id = '{job_id}'"
        );
        assert_eq!(cluster.get::<String>(&outcome).await, "unknown true");
        let again = claim(&b, 9).await;
        assert_eq!(again.len(), usize::from(state == State::Waiting), "{name}");
        let again = declare_lost(&cluster, name).await;
        assert_eq!(again, Ok(None));
    }
}

#[tokio::test]
async fn a_declaration_is_on_record_and_needs_the_history_of_its_rows() {
    let cluster = Cluster::new(&[]).await;
    let _nodes = [holder(&cluster, "a").await, holder(&cluster, "b").await];
    lose(&cluster, "a").await;
    assert_eq!(declare_lost(&cluster, "a").await, Ok(None));
    let audit =
        "SELECT string_agg(concat_ws(' ', verb, subject, count, result, via), ', ') FROM audit";
    assert_eq!(cluster.get::<String>(audit).await, r#"node-lost {"node":"a"} 1 done command"#);
    let of = "UPDATE meta SET system = system_identifier::text, timeline";
    for other in
        ["UPDATE meta SET system = '1'", &format!("{of} = '00000000' FROM pg_control_system()")]
    {
        cluster.run(other).await;
        let refused = declare_lost(&cluster, "b").await.unwrap_err();
        assert!(
            matches!(&refused, Error::Unavailable(why) if why.contains("promoted")),
            "{refused}"
        );
    }
    assert_eq!(cluster.count("node WHERE name = 'b' AND state = 'active'").await, 1);
    cluster.run(&format!("{of} = '00000001' FROM pg_control_system()")).await;
    assert_eq!(lose(&cluster, "b").await.unknown, []);
}

/// The declaration waits for the node's transaction that is under way, and settles what that has claimed.
#[tokio::test]
async fn a_declaration_misses_no_claim_that_is_under_way() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 1).await;
    let gate = hold_attempts(&cluster).await;
    let under_way = claiming(&a, claim_of(1));
    cluster.blocked(1).await;
    let losing = async {
        let (lost, ()) = tokio::join!(lose(&cluster, "a"), async {
            cluster.blocked(2).await;
            drop(gate);
        });
        lost
    };
    let lost = losing.await;
    let claimed = under_way.await.unwrap().attempts;
    assert_eq!(lost.unknown, [(claimed[0].running.job, 1, State::Held)]);
}

/// Declared lost while it lives: its end comes late, is kept once, and changes nothing.
#[tokio::test]
async fn the_end_of_an_attempt_of_a_lost_node_is_kept_and_changes_nothing() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Rerun).await;
    let b = holder(&cluster, "b").await;
    add_jobs(&a, 0, 1).await;
    let first = claim(&a, 1).await.remove(0);
    let job_id = first.running.job;
    assert!(may_begin(&a, &first));
    lose(&cluster, "a").await;
    let second = claim(&b, 1).await.remove(0);
    assert_eq!((second.running.job, second.running.attempt), (job_id, 2));
    for _ in 0..2 {
        assert_eq!(complete(&a, succeeded(&first)).await, EndResult::Late);
        assert_eq!(job(&cluster, job_id).await, "running 2 1");
    }
    let late: String = cluster
        .get("SELECT count(*) || ' ' || min(attempt) || ' ' || min(outcome) FROM late_end")
        .await;
    assert_eq!(late, "1 1 succeeded");
    assert_eq!(cluster.count("attempt WHERE outcome = 'unknown'").await, 1);
    assert_eq!(complete(&b, succeeded(&second)).await, SUCCEEDED);
}

/// A claims, is declared lost and registers before it begins: the other node's attempt is the only one.
#[tokio::test]
async fn what_a_lost_node_had_claimed_does_not_begin_after_its_return() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Rerun).await;
    let b = holder(&cluster, "b").await;
    add_jobs(&a, 0, 1).await;
    let first = claim(&a, 1).await.remove(0);
    let before = session(&a).await;
    lose(&cluster, "a").await;
    // Its next transaction fails, and it registers.
    assert_eq!(claim(&a, 1).await, []);
    let now = later_session(&a, &before).await;
    assert_eq!(now.running, []);
    assert!(!may_begin(&a, &first));
    let second = claim(&b, 1).await.remove(0);
    assert_eq!(second.running.job, first.running.job);
    assert!(may_begin(&b, &second));
    assert_eq!(complete(&a, end(&first, Outcome::NotStarted, Next::Ready)).await, EndResult::Late);
    assert_eq!(complete(&b, succeeded(&second)).await, SUCCEEDED);
}

/// Its own attempt still runs, so the node that is back does not claim the job. Another one may.
#[tokio::test]
async fn a_lost_node_that_is_back_does_not_claim_a_job_that_it_still_runs() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Rerun).await;
    add_jobs(&a, 0, 1).await;
    let first = claim(&a, 1).await.remove(0);
    let before = session(&a).await;
    lose(&cluster, "a").await;
    assert_eq!(claim(&a, 1).await, []);
    later_session(&a, &before).await;
    assert_eq!(claim(&a, 9).await, []);
    // Its end is late, and then it may.
    let exchanged = exchange(&a, vec![succeeded(&first)], Some(claim_of(9))).await;
    assert_eq!(exchanged.ended, [Ok(EndResult::Late)]);
    assert_eq!(exchanged.claims.unwrap().attempts[0].running.attempt, 2);
}

/// The database has gone back behind the claim of A, and the number of its attempt was given again.
#[tokio::test]
async fn an_end_is_not_recorded_for_another_claimants_attempt_of_the_same_number() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    add_jobs(&a, 0, 1).await;
    let of_a = claim(&a, 1).await.remove(0);
    cluster.run("DELETE FROM attempt; UPDATE job SET state = 'ready', attempt = 0").await;
    let of_b = claim(&b, 1).await.remove(0);
    assert_eq!((of_b.running.job, of_b.running.attempt), (of_a.running.job, of_a.running.attempt));
    assert_eq!(complete(&a, succeeded(&of_a)).await, EndResult::Late);
    assert_eq!(job(&cluster, of_b.running.job).await, "running 1 0");
    assert_eq!(complete(&b, succeeded(&of_b)).await, SUCCEEDED);
    assert_eq!(cluster.count("late_end").await, 1);
}

/// Once for each silence.
#[tokio::test]
async fn a_silent_node_is_told_of_and_so_is_a_database_that_was_away() {
    let mut cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    let all = vec![Pattern::new("*", true)];
    a.notices.set(NoticeSubscribers::new(vec![("mail".parse().unwrap(), all)]));
    add_jobs(&a, 0, 1).await;
    claim(&b, 1).await;
    b.close();
    let own = session(&a).await.session.node;
    let target = target(cluster.server.port, false);
    let keeping = Housekeeping::new(target, Clock::system(), a.notices.clone(), own);
    assert_eq!(keeping.tell_notices().await, Ok(0));
    cluster.run("UPDATE node SET seen_at = now_ms() - 301000").await;
    assert_eq!(keeping.tell_notices().await, Ok(1));
    assert_eq!(keeping.tell_notices().await, Ok(0));
    assert_eq!(cluster.count("event WHERE type = 'node.silent'").await, 1);

    cluster.server.crash();
    let first = Err(Refused::Unreachable("a session is being registered".to_owned()));
    // Until a try to connect has failed.
    while a.ready().is_ok() || a.ready() == first {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cluster.server.launch();
    ready(&a).await;
    let degraded = "SELECT count || ' ' || reason FROM notice WHERE type = 'store.degraded'";
    assert_eq!(cluster.get::<String>(degraded).await, "1 database away");
}
