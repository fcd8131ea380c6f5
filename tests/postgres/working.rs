//! Nodes that claim and settle jobs, and what their tests ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{Digest, JobId, OnUnknown, Outcome, Runner, RunnerName, State};
use hooklatch::retry::{GiveUp, Next, Policy};
use hooklatch::store::postgres::{
    Admin, AttemptEnd, EndResult, Exchanged, LostNode, NodeAttempt, NodeClaims, NodeNotices,
    PublishedHandler, Registered, Registrar, Writer,
};
use hooklatch::store::{Claim, Completion, Error, Record, Refused};
use tokio::task::JoinHandle;

use super::cluster::{CREATED, Cluster, START, accept, ready, stripe};
use super::server::PATIENCE;
use super::site::{node, target};

pub(crate) fn policy(on_unknown: OnUnknown) -> Policy {
    Policy {
        on_unknown,
        give_up: GiveUp::Attempts(3),
        backoff_base: Duration::ZERO,
        backoff_max: Duration::from_secs(60),
        answers: false,
        pauses: Vec::new(),
    }
}

/// The sum of an event without its arrival, as the store makes it (`src/store/sum.rs`). The event has no raw type and no
/// headers; `end` are the last four bytes of its stored body.
pub(crate) fn sum_of(source: &str, event_id: &str, event_type: &str, end: &[u8]) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    let texts = [source, event_id, event_type, "", ""].map(str::as_bytes);
    for part in texts.into_iter().chain([end]) {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    i64::from(sum.finalize())
}

/// The handler `h` as a node publishes it.
pub(crate) fn published(policy: Policy) -> PublishedHandler {
    PublishedHandler {
        handler: "h".parse().unwrap(),
        digest: Digest([1; 32]),
        policy,
        runs: true,
        runner: None,
        sources: Vec::new(),
        settings: BTreeMap::new(),
    }
}

/// A node whose configuration has the handler `h`, which treats an unknown outcome so.
pub(crate) async fn worker(
    cluster: &Cluster,
    name: &str,
    port: u16,
    on_unknown: OnUnknown,
) -> Writer {
    let mut registrar = Registrar::new(node(name));
    registrar.handlers = vec![published(policy(on_unknown))];
    let port = if port == 0 { cluster.server.port } else { port };
    let limits = Limits::default();
    let (writer, _) = Writer::start(target(port, false), registrar, &limits, Clock::system());
    ready(&writer).await;
    writer
}

/// One straight at the server.
pub(crate) async fn holder(cluster: &Cluster, name: &str) -> Writer {
    worker(cluster, name, 0, OnUnknown::Hold).await
}

/// Accepts so many new jobs for `h`, numbered from `first`.
pub(crate) async fn add_jobs(writer: &Writer, first: usize, jobs: usize) {
    let tasks = (first..first + jobs).map(|number| {
        let writer = writer.clone();
        tokio::spawn(async move { accept(&writer, stripe(&format!("e{number:05}"), "{}")).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Ok(CREATED));
    }
}

/// The session of now, with the list of its registration.
pub(crate) async fn session(writer: &Writer) -> Arc<Registered> {
    let mut sessions = writer.sessions();
    let registered = sessions.wait_for(Option::is_some);
    let registered = tokio::time::timeout(PATIENCE, registered).await.unwrap().unwrap();
    registered.clone().unwrap()
}

/// The next session after `before`.
pub(crate) async fn later_session(writer: &Writer, before: &Registered) -> Arc<Registered> {
    let mut sessions = writer.sessions();
    let is_later = |now: &Option<Arc<Registered>>| {
        now.as_ref().is_some_and(|now| now.session.id != before.session.id)
    };
    let registered = sessions.wait_for(is_later);
    let registered = tokio::time::timeout(PATIENCE, registered).await.unwrap().unwrap();
    registered.clone().unwrap()
}

pub(crate) fn runner() -> Runner {
    Runner {
        name: RunnerName::default(),
        incarnation: "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b/00000000000000000000000000000007"
            .parse()
            .unwrap(),
    }
}

pub(crate) fn claim_of(limit: usize) -> Claim {
    Claim {
        handler: "h".parse().unwrap(),
        limit,
        runner: Some(runner()),
        rate: None,
        cluster_concurrency: None,
    }
}

pub(crate) async fn exchange(
    writer: &Writer,
    ends: Vec<AttemptEnd>,
    claim: Option<Claim>,
) -> Exchanged {
    tokio::time::timeout(PATIENCE, writer.exchange(ends, claim)).await.unwrap()
}

pub(crate) async fn claim_with(writer: &Writer, claim: Claim) -> NodeClaims {
    loop {
        match exchange(writer, Vec::new(), Some(claim.clone())).await.claims {
            // A lane was locked for too long.
            Err(Refused::Failed(_)) => {}
            claims => return claims.unwrap(),
        }
    }
}

pub(crate) async fn claim(writer: &Writer, limit: usize) -> Vec<NodeAttempt> {
    claim_with(writer, claim_of(limit)).await.attempts
}

/// Claims one job, which is ready or becomes so.
pub(crate) async fn claim_one(writer: &Writer) -> NodeAttempt {
    let mut wakeups = writer.wakeups();
    let claimed = async {
        loop {
            wakeups.mark_unchanged();
            if let Some(attempt) = claim(writer, 1).await.pop() {
                return attempt;
            }
            wakeups.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.unwrap()
}

pub(crate) fn may_begin(writer: &Writer, attempt: &NodeAttempt) -> bool {
    writer.may_begin(attempt.running.job, attempt.running.attempt)
}

/// Spawns [`claim_with`].
pub(crate) fn claiming(writer: &Writer, claim: Claim) -> JoinHandle<NodeClaims> {
    let writer = writer.clone();
    tokio::spawn(async move { claim_with(&writer, claim).await })
}

pub(crate) fn end(attempt: &NodeAttempt, outcome: Outcome, next: Next) -> AttemptEnd {
    let record = Record { detail: "exit\0status".to_owned(), ..Record::default() };
    let done = Completion {
        job: attempt.running.job,
        attempt: attempt.running.attempt,
        outcome,
        counts: true,
        next,
        finished_at: START,
        record,
        answer: None,
    };
    AttemptEnd { done: Arc::new(done), claimant: attempt.claimant }
}

pub(crate) fn succeeded(attempt: &NodeAttempt) -> AttemptEnd {
    end(attempt, Outcome::Succeeded, Next::Succeeded)
}

pub(crate) const SUCCEEDED: EndResult = EndResult::Settled(State::Succeeded);

pub(crate) async fn complete(writer: &Writer, end: AttemptEnd) -> EndResult {
    loop {
        let mut ended = exchange(writer, vec![end.clone()], None).await.ended;
        assert_eq!(ended.len(), 1);
        match ended.remove(0) {
            // Its connection was lost twice.
            Err(Refused::Failed(_) | Refused::Unconfirmed(_)) => {}
            ended => return ended.unwrap(),
        }
    }
}

pub(crate) fn admin(cluster: &Cluster) -> Admin {
    Admin::new(target(cluster.server.port, false), &Limits::default(), Clock::system())
}

pub(crate) async fn lose(cluster: &Cluster, name: &str) -> LostNode {
    declare_lost(cluster, name).await.unwrap().unwrap()
}

/// Declares the node lost that has the name now, among those that had it.
pub(crate) async fn declare_lost(cluster: &Cluster, name: &str) -> Result<Option<LostNode>, Error> {
    let id = format!("SELECT id FROM node WHERE name = '{name}' ORDER BY state LIMIT 1");
    let node = cluster.get(&id).await;
    admin(cluster).declare_lost(node, NodeNotices::default()).await
}

/// State, attempt and counted attempts of a job.
pub(crate) async fn job(cluster: &Cluster, job: JobId) -> String {
    cluster
        .get(&format!(
            "SELECT state || ' ' || attempt || ' ' || counted FROM job WHERE id = '{job}'"
        ))
        .await
}

/// Nobody begins or settles an attempt until it is dropped.
pub(crate) async fn hold_attempts(cluster: &Cluster) -> tokio_postgres::Client {
    hold_writes(cluster, "INSERT OR UPDATE ON attempt").await
}

/// No such statement ends until it is dropped. They sleep: the wait for a lock would time out.
pub(crate) async fn hold_writes(cluster: &Cluster, what: &str) -> tokio_postgres::Client {
    let admin = cluster.admin().await;
    admin
        .batch_execute(&format!(
            "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.002); END LOOP;
                RETURN NULL; END $$;
             CREATE TRIGGER held BEFORE {what} EXECUTE FUNCTION held();
             SELECT pg_advisory_lock(1)"
        ))
        .await
        .unwrap();
    admin
}

/// Another program's transaction, which has locked the row of the attempt's job.
pub(crate) async fn lock_job(cluster: &Cluster, attempt: &NodeAttempt) -> tokio_postgres::Client {
    let admin = cluster.admin().await;
    let id = attempt.running.job;
    let lock = format!("BEGIN; SELECT FROM job WHERE id = '{id}' FOR UPDATE");
    admin.batch_execute(&lock).await.unwrap();
    admin
}
