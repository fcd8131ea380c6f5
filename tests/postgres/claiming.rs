//! Claims of several nodes at once, and what limits them.

use std::collections::HashSet;
use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use hooklatch::limits::Limits;
use hooklatch::model::{Outcome, State};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{EndResult, NodeAttempt, Writer};
use hooklatch::store::{CheckedPayloads, Claim, PayloadCheck, Rate, Refused};

use super::cluster::{Cluster, START};
use super::reading::reader;
use super::working::{
    SUCCEEDED, add_jobs, claim, claim_of, claim_with, claiming, complete, end, exchange,
    hold_attempts, holder, job, later_session, may_begin, session, succeeded,
};

/// Claims 7 jobs at a time until there are none.
async fn claim_all(writer: Writer) -> Vec<NodeAttempt> {
    let mut all = Vec::new();
    loop {
        let claimed = claim(&writer, 7).await;
        if claimed.is_empty() {
            return all;
        }
        let events: Vec<_> = claimed.iter().map(|own| own.running.event_id.clone()).collect();
        assert!(events.is_sorted_by(|a, b| a.as_str() <= b.as_str()), "{events:?}");
        all.extend(claimed);
    }
}

#[tokio::test]
async fn of_a_thousand_jobs_two_nodes_claim_each_once() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    // In the order of their names.
    for first in (0..1000).step_by(100) {
        for number in first..first + 100 {
            add_jobs(&a, number, 1).await;
        }
    }
    let (from_a, from_b) = tokio::join!(claim_all(a), claim_all(b));
    assert!(!from_a.is_empty() && !from_b.is_empty(), "{} {}", from_a.len(), from_b.len());
    let jobs: HashSet<_> = from_a.iter().chain(&from_b).map(|own| own.running.job).collect();
    assert_eq!((jobs.len(), from_a.len() + from_b.len()), (1000, 1000));
    let running = "job JOIN attempt a ON a.job = job.row AND a.number = 1 AND a.outcome IS NULL
        WHERE state = 'running' AND job.attempt = 1 AND a.runner = 'default'";
    assert_eq!(cluster.count(running).await, 1000);
    assert_eq!(cluster.count("attempt").await, 1000);
}

#[tokio::test]
async fn a_claimed_job_has_its_payload_and_begins_and_ends_once() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 2).await;
    let claimed = claim(&a, 9).await;
    let [first, second] = &claimed[..] else { panic!("{claimed:?}") };
    let payload = a.payloads(std::slice::from_ref(first)).await.unwrap().remove(0).unwrap();
    assert_eq!(
        &payload.facts.body[..],
        br#"{"id":"e00000","object":"event","type":"a.b","data":{}}"#
    );
    assert_eq!((payload.facts.job, payload.facts.attempt), (first.running.job, 1));
    assert!(payload.facts.headers.iter().any(|(name, _)| name == "Content-Type"));
    assert!(may_begin(&a, first));
    let own = "WHERE event = (SELECT event FROM job WHERE id = ";
    cluster.run(&format!("DELETE FROM payload {own}'{}')", second.running.job)).await;
    let payloads = a.payloads(&claimed).await.unwrap();
    assert!(payloads[0].is_ok() && payloads[1].is_err());

    // Fails, waits, is due by the database's clock, and is claimed with the end of the other.
    let next = Next::Wait { due_at: START.after(Duration::from_secs(60)) };
    assert_eq!(
        complete(&a, end(first, Outcome::Failed, next)).await,
        EndResult::Settled(State::Waiting)
    );
    assert_eq!(job(&cluster, first.running.job).await, "waiting 1 1");
    let due = claim_with(&a, claim_of(9)).await.due.unwrap();
    assert!(due > Duration::from_secs(50) && due <= Duration::from_secs(60), "{due:?}");
    cluster.run("UPDATE job SET due_at = now_ms() WHERE state = 'waiting'").await;
    let exchanged = exchange(&a, vec![succeeded(second)], Some(claim_of(9))).await;
    assert_eq!(exchanged.ended, [Ok(SUCCEEDED)]);
    let again = exchanged.claims.unwrap().attempts;
    assert_eq!((again.len(), again[0].running.job), (1, first.running.job));
    assert_eq!((again[0].running.attempt, again[0].running.counted), (2, 1));
    // The first attempt's end comes a second time.
    assert_eq!(complete(&a, succeeded(first)).await, EndResult::Repeated);
    assert_eq!(job(&cluster, first.running.job).await, "running 2 1");
    assert_eq!(job(&cluster, second.running.job).await, "succeeded 1 1");
    let detail: String = cluster.get("SELECT detail FROM attempt WHERE number = 1 LIMIT 1").await;
    assert_eq!(detail, "exit\u{fffd}status");
    assert_eq!(cluster.count("late_end").await, 0);
}

#[tokio::test]
async fn a_payload_that_the_server_cannot_read_leaves_the_others_readable() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 3).await;
    let claimed = claim(&a, 9).await;
    // One of the rows cannot be read. A volatile function would be run for all rows of the view.
    let damaged = |code: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION damaged(bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
                 BEGIN RAISE 'invalid page in block 3' USING ERRCODE = '{code}'; END $$;"
        )
    };
    let view = format!(
        "{}
         ALTER TABLE payload RENAME TO kept_payload;
         CREATE VIEW payload AS SELECT event, headers, sum, CASE
             WHEN event = (SELECT event FROM job WHERE id = '{}') THEN damaged(body) ELSE body END AS body
             FROM kept_payload;
         GRANT SELECT ON payload TO PUBLIC",
        damaged("XX001"),
        claimed[1].running.job
    );
    cluster.run(&view).await;
    let admin = reader(&cluster, &Limits::default());
    // A damaged page and index; another error of the server itself, a block that the disk does not give, and a damaged
    // length for which there is no memory.
    for (code, kind) in [
        ("XX001", io::ErrorKind::InvalidData),
        ("XX002", io::ErrorKind::InvalidData),
        ("XX000", io::ErrorKind::Other),
        ("58030", io::ErrorKind::Other),
        ("53200", io::ErrorKind::Other),
    ] {
        cluster.run(&damaged(code)).await;
        let payloads = a.payloads(&claimed).await.unwrap();
        let kinds = payloads.iter().map(|payload| payload.as_ref().err().map(io::Error::kind));
        assert_eq!(kinds.collect::<Vec<_>>(), [None, Some(kind), None]);
        let why = payloads[1].as_ref().err().unwrap().to_string();
        assert!(why.contains(&format!("invalid page in block 3 ({code})")), "{why}");
        // So with those who compare all of them: what says nothing of the payload names none.
        let found = admin.check_payloads(PayloadCheck { after: None }).await;
        let running = &claimed[1].running;
        let damaged = vec![format!("{} {}", running.source, running.event_id)];
        let expected = CheckedPayloads { checked: 3, damaged, left: 0, next: None };
        let is_damaged = kind == io::ErrorKind::InvalidData;
        assert_eq!(found.ok(), Some(expected).filter(|_| is_damaged), "{code}");
    }
}

/// Its server may have been the primary before: there the payload of a later claim is missing.
#[tokio::test]
async fn a_payload_is_read_on_no_connection_of_an_earlier_session() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    add_jobs(&a, 0, 1).await;
    let own = claim(&a, 1).await;
    let readers =
        "SELECT pid FROM pg_stat_activity WHERE usename = 'app' AND query LIKE '%JOIN payload%'";
    let mut pids = Vec::new();
    for _ in 0..2 {
        assert!(a.payloads(&own).await.unwrap()[0].is_ok());
        pids.push(
            cluster.get::<i32>(&format!("{readers} ORDER BY backend_start DESC LIMIT 1")).await,
        );
        let before = session(&a).await;
        cluster
            .run(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND pid NOT IN ({readers})"
            ))
            .await;
        later_session(&a, &before).await;
    }
    assert_ne!(pids[0], pids[1]);
}

/// The claim that is under way holds the lane: the pause waits for it.
#[tokio::test]
async fn a_pause_waits_for_the_claims_under_way_and_is_seen_by_every_later_one() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    add_jobs(&a, 0, 3).await;
    let gate = hold_attempts(&cluster).await;
    let under_way = claiming(&a, claim_of(1));
    cluster.blocked(1).await;
    let admin = cluster.admin().await;
    let pause = "UPDATE lane SET paused_at = now_ms() WHERE handler = 'h'";
    let pausing = tokio::spawn(async move { admin.batch_execute(pause).await.unwrap() });
    let waits = "SELECT 1 FROM pg_stat_activity
        WHERE usename = 'postgres' AND wait_event_type = 'Lock' AND query LIKE 'UPDATE lane%'";
    cluster.server.wait_for(waits).await;
    drop(gate);
    pausing.await.unwrap();
    assert_eq!(under_way.await.unwrap().attempts.len(), 1);
    for writer in [&a, &b] {
        assert!(claim(writer, 9).await.is_empty());
    }

    // A claim that waits for the pause sees it.
    let resume = "UPDATE lane SET paused_at = NULL";
    cluster.run(resume).await;
    let admin = cluster.admin().await;
    admin.batch_execute(&format!("BEGIN; {pause}")).await.unwrap();
    let waiting = claiming(&b, claim_of(9));
    cluster.blocked(1).await;
    admin.batch_execute("COMMIT").await.unwrap();
    assert!(waiting.await.unwrap().attempts.is_empty());
    cluster.run(resume).await;
    assert_eq!(claim(&b, 9).await.len(), 2);
    // A handler that no node has published has no lane.
    cluster.run("DELETE FROM lane").await;
    add_jobs(&a, 3, 1).await;
    assert!(claim(&b, 9).await.is_empty());
}

#[tokio::test]
async fn two_nodes_together_do_not_exceed_the_clusters_concurrency() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    add_jobs(&a, 0, 20).await;
    let mut of_a = claim_of(9);
    of_a.cluster_concurrency = Some(3);
    let mut of_b = claim_of(9);
    of_b.cluster_concurrency = Some(3);
    // The other one's claim is not committed, and accepts do not wait for it.
    let gate = hold_attempts(&cluster).await;
    let first = claiming(&a, of_a.clone());
    cluster.blocked(1).await;
    let second = exchange(&b, Vec::new(), Some(of_b.clone())).await.claims.unwrap();
    assert_eq!((second.attempts.len(), second.pause.is_some()), (0, true));
    drop(gate);
    let mut running = first.await.unwrap().attempts;
    assert_eq!(running.len(), 3);
    // What ends makes room, in the same transaction.
    for (writer, claim) in [(&a, of_a), (&b, of_b)] {
        assert!(claim_with(writer, claim.clone()).await.attempts.is_empty());
        let ends = vec![succeeded(&running.remove(0))];
        let next = exchange(writer, ends, Some(claim)).await.claims.unwrap().attempts;
        assert_eq!(next.len(), 1);
        running.extend(next);
        assert_eq!(cluster.count("job WHERE state = 'running'").await, 3);
    }
}

/// The share that a claim takes is seen by the other node's next claim. One that comes meanwhile takes none.
#[tokio::test]
async fn two_nodes_together_keep_to_a_rate() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    add_jobs(&a, 0, 20).await;
    let [starts, burst] = [1, 3].map(|count| NonZeroU32::new(count).unwrap());
    let rate = Rate { starts, per: Duration::from_secs(3600), burst };
    let asked = Claim { rate: Some(rate), ..claim_of(2) };
    let gate = hold_attempts(&cluster).await;
    let first = claiming(&a, asked.clone());
    cluster.blocked(1).await;
    let meanwhile = exchange(&b, Vec::new(), Some(asked.clone())).await.claims.unwrap();
    drop(gate);
    let (first, next) = (first.await.unwrap(), claim_with(&b, asked.clone()).await);
    let counts = [&first, &meanwhile, &next].map(|of| (of.attempts.len(), of.pause.is_some()));
    assert_eq!(counts, [(2, false), (0, true), (1, true)]);
    let pause = claim_with(&b, asked.clone()).await.pause.unwrap();
    assert!(pause > Duration::from_secs(3500) && pause <= Duration::from_secs(3600), "{pause:?}");
    // Two claims of the handler in one batch.
    cluster.run("UPDATE lane SET busy_to = NULL").await;
    let (one, two) = tokio::join!(claim_with(&a, asked.clone()), claim_with(&a, asked));
    assert_eq!(one.attempts.len() + two.attempts.len(), 3);
}

/// How often a claim is tried alone before it fails.
const TRIES: usize = 2;

/// A person pauses the handler, in a transaction that stays open.
#[tokio::test]
async fn a_claim_that_meets_a_locked_lane_fails_soon_and_accepts_do_not_wait_for_it() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let person = cluster.admin().await;
    person.batch_execute("BEGIN; UPDATE lane SET paused_at = now_ms()").await.unwrap();
    // Tries as often as a claim does, and each time as long as a session waits where its flight sets no shorter limit.
    let witness = cluster.admin().await;
    let waits = tokio::spawn(async move {
        for _ in 0..TRIES {
            let lock = "SET lock_timeout = '5s'; SELECT FROM lane FOR UPDATE";
            witness.batch_execute(lock).await.unwrap_err();
        }
    });
    let waiting =
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'postgres' AND wait_event_type = 'Lock'";
    cluster.server.wait_for(waiting).await;
    let claiming = {
        let a = a.clone();
        tokio::spawn(async move { exchange(&a, Vec::new(), Some(claim_of(1))).await.claims })
    };
    cluster.blocked(1).await;
    add_jobs(&a, 0, 1).await;
    let refused = claiming.await.unwrap();
    assert!(matches!(refused, Err(Refused::Failed(_))), "{refused:?}");
    assert!(!waits.is_finished(), "the claim has waited as long as the session's own limits allow");
    waits.abort();
}
