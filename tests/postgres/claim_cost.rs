//! What claims and ends read where many jobs are ready, or have ended before the first ready one.

use std::sync::Arc;

use hooklatch::model::{Facts, OnUnknown, Outcome};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{Jobs, Writer};
use hooklatch::store::{Claimed, Completion};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::dispatching::{completion, process};
use super::server::PATIENCE;
use super::site::node;
use super::working::{claim_of, policy, sum_of};

/// The jobs of which the index of ready jobs keeps entries.
const ENDED: i64 = 100_000;

/// Together they would read so many times the entries.
const CLAIMS: i64 = 40;

/// Events with a ready job each. A body is a zstd frame of {}.
const FILL: &str = "
    SET synchronous_commit = off;
    INSERT INTO event (row, source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated, flagged)
        SELECT n, 's', 'e' || n, 0, 'a', sha256(n::text::bytea), n, 2, false, false, false
        FROM generate_series(1, 101000) n;
    INSERT INTO payload SELECT row, '', '\\x28b52ffd20021100007b7d', 0 FROM event
        WHERE row > 100000 OR row <= 40;
    INSERT INTO job (row, id, event, handler, state, attempt, since, created_at)
        SELECT row, md5(row::text)::uuid, row, 'h', 'ready', 0, now_ms(), now_ms() FROM event;
    ANALYZE";

/// All but the last jobs end. Whether they were claimed is nothing to the index.
const END: &str = "
    UPDATE job SET state = 'succeeded', settled_at = now_ms() WHERE row <= 100000";

/// Jobs that have ended run, and end.
const RUN: [&str; 4] = [
    "UPDATE job SET state = 'running', attempt = 1, settled_at = NULL WHERE row <= 100000",
    "INSERT INTO attempt (job, number, started_at, node, claimant)
        SELECT j.row, 1, now_ms(), n.id, n.session FROM job j, node n WHERE j.row <= 100000",
    "UPDATE attempt SET outcome = 'succeeded', finished_at = now_ms()",
    "UPDATE job SET state = 'succeeded', settled_at = now_ms() WHERE row <= 100000",
];

/// Ends the attempt, if there is one, and claims one job.
async fn claim_after(jobs: &Jobs, end: Option<Arc<Completion>>) -> Claimed {
    let (ended, claimed) = jobs.complete_and_claim(end.as_slice(), Some(claim_of(1))).await;
    assert!(ended.into_iter().all(|ended| ended.unwrap()));
    let mut claimed = claimed.await.unwrap().jobs;
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

/// The event of the one job that is claimed.
async fn claim(jobs: &Jobs) -> String {
    claim_after(jobs, None).await.facts.event_id.to_string()
}

/// Makes claims, which are to find the jobs behind this one.
async fn claims(jobs: &Jobs, last: i64) {
    for number in 1..=CLAIMS {
        assert_eq!(claim(jobs).await, format!("e{}", last + number));
    }
}

/// Fills the tables. Each payload has its sum: a claim compares it.
async fn fill(cluster: &Cluster) {
    cluster.run(FILL).await;
    let sum = |n: i64| n + sum_of("s", &format!("e{n}"), "a", b"\0\0{}");
    let sums = (1..=CLAIMS).chain(ENDED + 1..=ENDED + 1000).map(|n| format!("({n}, {})", sum(n)));
    let sums = sums.collect::<Vec<_>>().join(", ");
    let set = "UPDATE payload SET sum = made.sum FROM (VALUES";
    cluster.run(&format!("{set} {sums}) made (event, sum) WHERE payload.event = made.event")).await;
}

/// Keeps what others delete or update now, as a dump does.
async fn hold_snapshot(cluster: &Cluster) -> Client {
    let holder = cluster.admin().await;
    let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM node";
    holder.batch_execute(sql).await.unwrap();
    holder
}

/// All jobs but the last have ended under the snapshot, and claims begin behind them. The snapshot, the process, and
/// how often it was woken.
async fn behind_ended(cluster: &Cluster) -> (Client, (Writer, Jobs), impl AsyncFnMut(u64)) {
    fill(cluster).await;
    let holder = hold_snapshot(cluster).await;
    cluster.run(END).await;
    let (writer, jobs) = process(cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    let mut wakeups = writer.wakeups();
    let mut woken = async move |times: u64| {
        timeout(PATIENCE, wakeups.wait_for(|count| *count >= times)).await.unwrap().unwrap();
    };
    // By the session before and behind its registration, the first look, and the look that has claims begin later.
    woken(4).await;
    claims(&jobs, ENDED).await;
    (holder, (writer, jobs), woken)
}

const READY_BEFORE: &str = "UPDATE job SET state = 'ready', settled_at = NULL WHERE row = 7";

const END_LOOKS: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE usename = 'app' AND query ~ 'cancel_asked|NOTIFY|FROM lane l'";

/// Sessions that have ended have told what they have read.
const READ: &str = "
    SELECT sum(seq_tup_read)::bigint
        + (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname IN ('job', 'attempt'))
    FROM pg_stat_user_tables WHERE relname IN ('job', 'attempt')";

/// Ends the process. The claims have read far less than what each of them would read if it walked over the others.
/// `before` was read before them.
async fn were_quick(cluster: &Cluster, (writer, jobs): (Writer, Jobs), before: i64) {
    writer.close();
    drop((writer, jobs));
    let ended = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'app')";
    cluster.server.wait_for(ended).await;
    let read: i64 = cluster.get(READ).await;
    assert!(read - before < CLAIMS * ENDED / 2, "{} rows and index entries", read - before);
}

#[tokio::test]
async fn a_claim_does_not_walk_over_what_an_old_snapshot_keeps_and_finds_what_becomes_ready_before()
{
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    let (_holder, (writer, jobs), mut woken) = behind_ended(&cluster).await;
    cluster.run(READY_BEFORE).await;
    let rung = *writer.wakeups().borrow();
    woken(rung + 1).await;
    // That look may have begun before.
    if claim(&jobs).await != "e7" {
        woken(rung + 2).await;
        assert_eq!(claim(&jobs).await, "e7");
    }
    were_quick(&cluster, (writer, jobs), 0).await;
}

#[tokio::test]
async fn without_looks_a_claim_finds_what_becomes_ready_before() {
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    let (_holder, (writer, jobs), mut woken) = behind_ended(&cluster).await;
    // No connection is made in place of the one that looks.
    cluster.run("ALTER ROLE app CONNECTION LIMIT 0").await;
    cluster.run(READY_BEFORE).await;
    let rung = *writer.wakeups().borrow();
    let ended: i64 = cluster.get(END_LOOKS).await;
    assert_eq!(ended, 1);
    woken(rung + 1).await;
    assert_eq!(claim(&jobs).await, "e7");
}

#[tokio::test]
async fn an_end_does_not_walk_over_what_an_old_snapshot_keeps() {
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    fill(&cluster).await;
    cluster.run(END).await;
    cluster.run("VACUUM job").await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    let _holder = hold_snapshot(&cluster).await;
    for sql in RUN {
        cluster.run(&format!("{sql}; SELECT pg_stat_force_next_flush()")).await;
    }
    let before: i64 = cluster.get(READ).await;
    let mut end = None;
    for _ in 0..CLAIMS {
        let Facts { job, attempt, .. } = claim_after(&jobs, end.take()).await.facts;
        end = Some(Arc::new(completion(job, attempt, Outcome::Succeeded, Next::Succeeded)));
    }
    were_quick(&cluster, (writer, jobs), before).await;
}

/// The server has counted the jobs when all were ready.
#[tokio::test]
async fn a_claim_does_not_walk_over_jobs_that_have_ended() {
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    fill(&cluster).await;
    cluster.run(END).await;
    cluster.run("VACUUM job").await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    claims(&jobs, ENDED).await;
    were_quick(&cluster, (writer, jobs), 0).await;
}

#[tokio::test]
async fn a_claim_does_not_read_all_ready_jobs() {
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    fill(&cluster).await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    claims(&jobs, 0).await;
    were_quick(&cluster, (writer, jobs), 0).await;
}
