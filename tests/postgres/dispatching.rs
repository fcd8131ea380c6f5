//! The handle of the dispatcher on several nodes: wake-ups, recovery, and what a node publishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{OnUnknown, Outcome, State};
use hooklatch::retry::{Next, Policy};
use hooklatch::store::postgres::{
    Housekeeping, Jobs, Node, NodeNotices, PublishedHandler, Registrar, Writer,
};
use hooklatch::store::{Claim, Completion, Error, KeyState, Record};
use tokio::time::timeout;

use super::asking::intake;
use super::cluster::{Cluster, START, ready};
use super::proxy::Proxy;
use super::server::PATIENCE;
use super::site::{node, target};
use super::working::{self, add_jobs, admin, claim_of, holder, lose, policy, runner};

/// A process of the node.
pub(crate) async fn process(cluster: &Cluster, node: &Node, policy: &Policy) -> (Writer, Jobs) {
    process_at(cluster.server.port, node, policy, Clock::system()).await
}

pub(crate) async fn process_at(
    port: u16,
    node: &Node,
    policy: &Policy,
    clock: Clock,
) -> (Writer, Jobs) {
    let mut registrar = Registrar::new(node.clone());
    registrar.handlers = vec![published("h", policy)];
    let target = target(port, false);
    let (writer, _) = Writer::start(target.clone(), registrar, &Limits::default(), clock.clone());
    ready(&writer).await;
    let keeping =
        Housekeeping::new(target.clone(), Clock::system(), NodeNotices::default(), node.id);
    let jobs = Jobs::start(writer.clone(), target, clock, keeping);
    (writer, jobs)
}

fn published(handler: &str, policy: &Policy) -> PublishedHandler {
    PublishedHandler { handler: handler.parse().unwrap(), ..working::published(policy.clone()) }
}

pub(crate) fn completion(
    job: hooklatch::model::JobId,
    attempt: u32,
    outcome: Outcome,
    next: Next,
) -> Completion {
    let record = Record::default();
    let (counts, finished_at, answer) = (true, START, None);
    Completion { job, attempt, outcome, counts, next, finished_at, record, answer }
}

/// Waits until the query returns true.
pub(crate) async fn becomes(cluster: &Cluster, query: &str) {
    let until = Instant::now() + PATIENCE;
    while !cluster.get::<bool>(query).await {
        assert!(Instant::now() < until, "in vain: {query}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How often a listener must be woken. Its start and that of the next process leave at most four wake-ups behind, so
/// that the later rounds need one each.
const ROUNDS: usize = 8;

/// The process before the one that a test is about, of the same node. It still hears wake-ups. No other node is active,
/// so a look at a tick wakes it only where something has changed: what wakes it later is the NOTIFY of another process.
async fn listener(cluster: &Cluster, node: &Node, policy: &Policy) -> (Writer, Jobs) {
    process(cluster, node, policy).await
}

#[tokio::test]
async fn an_accept_at_one_process_notifies_the_others() {
    let cluster = Cluster::new(&[]).await;
    let (own, hold) = (node("a"), policy(OnUnknown::Hold));
    let (_listener, listener) = listener(&cluster, &own, &hold).await;
    let (a, of_a) = process(&cluster, &own, &hold).await;
    let (handler, wake) = ("h".parse().unwrap(), listener.wake());
    for number in 0..ROUNDS {
        add_jobs(&a, number, 1).await;
        let woken = timeout(PATIENCE, wake.notified()).await;
        assert!(woken.is_ok(), "accept {number} sent no wake-up");
        let claims = of_a.claim(&handler, 1, Some(runner())).await.unwrap();
        assert_eq!(claims.jobs.len(), 1);
    }
    // Another node claims what this one has accepted.
    let (_b, b) = process(&cluster, &node("b"), &hold).await;
    add_jobs(&a, ROUNDS, 1).await;
    assert_eq!(b.claim(&handler, 1, Some(runner())).await.unwrap().jobs.len(), 1);
}

/// They sleep until the times that they know.
#[tokio::test]
async fn due_times_that_a_clock_has_put_off_are_moved_and_the_nodes_notified() {
    let cluster = Cluster::new(&[]).await;
    let (a, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&a, 0, 1).await;
    let wake = jobs.wake();
    for number in 0..ROUNDS {
        let ahead = "UPDATE job SET state = 'waiting', due_from = now_ms() + 999999999,
            due_at = now_ms() + 1000001999";
        cluster.run(ahead).await;
        assert_eq!(jobs.clamp_due().await, Ok(1));
        let woken = timeout(PATIENCE, wake.notified()).await;
        assert!(woken.is_ok(), "change {number} sent no wake-up");
    }
}

/// Another node gets what the cluster's limit has kept from it.
#[tokio::test]
async fn an_end_that_makes_room_in_the_cluster_notifies_the_others_and_a_look_wakes_nobody() {
    let cluster = Cluster::new(&[]).await;
    let (own, hold) = (node("a"), policy(OnUnknown::Hold));
    let (_listener, listener) = listener(&cluster, &own, &hold).await;
    let (a, of_a) = process(&cluster, &own, &hold).await;
    add_jobs(&a, 0, ROUNDS + 1).await;
    let limited = Claim { cluster_concurrency: Some(1), ..claim_of(1) };
    let wake = listener.wake();
    for number in 0..ROUNDS {
        // A claim sends no notification.
        let claims = of_a.complete_and_claim(&[], Some(limited.clone())).await.1.await.unwrap();
        let job = claims.jobs[0].facts.job;
        let end = completion(job, 1, Outcome::Succeeded, Next::Succeeded);
        assert_eq!(of_a.complete(end).await, Ok(true));
        let woken = timeout(PATIENCE, wake.notified()).await;
        assert!(woken.is_ok(), "end {number} sent no wake-up");
    }

    // Without a listener, nothing else is heard.
    let c = cluster.node("c").await;
    let mut heard = c.wakeups();
    heard.mark_unchanged();
    let job: uuid::Uuid = cluster.get("SELECT id FROM job WHERE state = 'ready'").await;
    let job = hooklatch::model::JobId::from_bytes(*job.as_bytes());
    let state = intake(&c).await_answer(job, Duration::ZERO).await;
    assert_eq!(state, Ok(KeyState::Pending));
    assert!(!heard.has_changed().unwrap(), "a look woke the nodes");
    add_jobs(&c, ROUNDS + 1, 1).await;
    timeout(PATIENCE, heard.changed()).await.unwrap().unwrap();
}

/// Meanwhile the job was put back under a new key. Its runner may still have the attempt: here nothing of its group
/// begins, and its end is kept.
#[tokio::test]
async fn a_process_that_was_down_while_its_node_was_lost_awaits_what_its_runner_may_have() {
    let cluster = Cluster::new(&[]).await;
    let (own, hold) = (node("a"), policy(OnUnknown::Hold));
    let (writer, jobs) = process(&cluster, &own, &hold).await;
    for number in 0..2 {
        add_jobs(&writer, number, 1).await;
    }
    let group = "UPDATE job SET group_key = 'g', group_rule = 'latest',
        behind = event > (SELECT min(event) FROM job)";
    cluster.run(group).await;
    let handler = "h".parse().unwrap();
    let first = jobs.claim(&handler, 9, Some(runner())).await.unwrap().jobs.remove(0).facts.job;
    writer.close();
    lose(&cluster, "a").await;
    cluster
        .run(
            "INSERT INTO former_key SELECT id, row, 1, 0 FROM job WHERE state = 'held';
             UPDATE job SET id = gen_random_uuid() WHERE state = 'held'",
        )
        .await;
    let (writer, jobs) = process(&cluster, &own, &hold).await;
    assert_eq!(jobs.recover(Vec::new()).await.unwrap().unknown, []);
    let running = jobs.running().await.unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!((running[0].job, running[0].attempt), (first, 1));
    assert_eq!(running[0].runner, Some(runner()));
    assert!(jobs.claim(&handler, 9, Some(runner())).await.unwrap().jobs.is_empty());
    // A later session of the process does not take it for another claim.
    cluster.run("UPDATE node SET state = 'lost'").await;
    assert!(jobs.claim(&handler, 9, Some(runner())).await.unwrap().jobs.is_empty());
    ready(&writer).await;
    assert!(jobs.claim(&handler, 9, Some(runner())).await.unwrap().jobs.is_empty());
    assert_eq!(cluster.count("late_end").await, 0);
    let end = completion(first, 1, Outcome::Succeeded, Next::Succeeded);
    assert_eq!(jobs.complete(end).await, Ok(false));
    let late = "SELECT string_agg(job || ' ' || attempt || ' ' || outcome, ', ') FROM late_end";
    assert_eq!(cluster.get::<String>(late).await, format!("{first} 1 succeeded"));
    let next = jobs.claim(&handler, 9, Some(runner())).await.unwrap().jobs.remove(0).facts;
    assert_eq!(next.event_id.as_str(), "e00001");
    writer.close();
    let (_writer, jobs) = process(&cluster, &own, &hold).await;
    let running = jobs.running().await.unwrap();
    assert_eq!(running.iter().map(|own| own.job).collect::<Vec<_>>(), [next.job]);
}

/// The node's clock is years behind: when a job gives up is decided by its clock alone.
#[tokio::test]
async fn a_job_is_as_old_by_the_nodes_clock_as_by_the_databases() {
    let cluster = Cluster::new(&[]).await;
    let (own, hold) = (node("a"), policy(OnUnknown::Hold));
    let (writer, jobs) = process_at(cluster.server.port, &own, &hold, Clock::manual(START)).await;
    add_jobs(&writer, 0, 1).await;
    cluster.run("UPDATE job SET since = since - 3600000").await;
    let claims = jobs.claim(&"h".parse().unwrap(), 1, Some(runner())).await.unwrap();
    writer.close();
    let (_writer, jobs) = process_at(cluster.server.port, &own, &hold, Clock::manual(START)).await;
    for since in [claims.jobs[0].since, jobs.running().await.unwrap()[0].since] {
        let age = START.since(since).as_secs();
        assert!((3600..3660).contains(&age), "{age}");
    }
}

#[tokio::test]
async fn a_node_is_seen_at_each_of_its_looks() {
    let cluster = Cluster::new(&[]).await;
    let (_a, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    for _ in 0..2 {
        let now: i64 = cluster.get("SELECT now_ms()").await;
        cluster.run("UPDATE node SET seen_at = 1").await;
        becomes(&cluster, &format!("SELECT seen_at >= {now} FROM node")).await;
    }
    cluster.run("UPDATE node SET state = 'lost', seen_at = 1").await;
    // A look that finds the pause comes after that, and so does the next one.
    let wake = jobs.wake();
    for (paused_at, paused) in [("now_ms()", 1), ("NULL", 0)] {
        cluster.run(&format!("UPDATE lane SET paused_at = {paused_at}; NOTIFY hooklatch")).await;
        let seen = async {
            while jobs.paused_now().len() != paused {
                wake.notified().await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
    }
    assert_eq!(cluster.get::<i64>("SELECT seen_at FROM node").await, 1);
}

#[tokio::test]
async fn a_node_that_is_woken_knows_what_is_paused_and_what_is_to_be_cancelled() {
    let cluster = Cluster::new(&[]).await;
    let (a, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&a, 0, 1).await;
    let claimed =
        jobs.claim(&"h".parse().unwrap(), 1, Some(runner())).await.unwrap().jobs.remove(0);
    let key = (claimed.facts.job, 1);
    assert!(jobs.paused_now().is_empty() && jobs.cancel_asked().is_empty());
    let wake = jobs.wake();
    cluster
        .run(
            "UPDATE lane SET paused_at = now_ms(); UPDATE attempt SET cancel_asked = true;
             NOTIFY hooklatch",
        )
        .await;
    let seen = async {
        while jobs.cancel_asked().is_empty() {
            wake.notified().await;
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    assert_eq!(jobs.cancel_asked(), [key]);
    assert_eq!(jobs.paused_now().iter().next().unwrap().as_str(), "h");
    let end = completion(key.0, 1, Outcome::Cancelled, Next::Succeeded);
    assert_eq!(jobs.complete(end).await, Ok(true));
    assert_eq!(jobs.cancel_asked(), []);
}

/// The wake-ups' connection is lost and cannot be made again, while everything else can reach the server.
#[tokio::test]
async fn a_node_that_hears_no_resume_takes_no_handler_for_paused() {
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let writer = holder(&cluster, "a").await;
    let (direct, node) = (target(cluster.server.port, false), uuid::Uuid::nil());
    let keeping = Housekeeping::new(direct, Clock::system(), NodeNotices::default(), node);
    let heard = target(proxy.port, false);
    let jobs = Jobs::start(writer.clone(), heard, Clock::system(), keeping);
    let wake = jobs.wake();
    let becomes_paused = async |paused: usize| {
        let seen = async {
            while jobs.paused_now().len() != paused {
                wake.notified().await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
    };
    cluster.run("UPDATE lane SET paused_at = now_ms(); NOTIFY hooklatch").await;
    becomes_paused(1).await;
    drop(proxy);
    cluster.run("UPDATE lane SET paused_at = NULL").await;
    becomes_paused(0).await;
    add_jobs(&writer, 0, 1).await;
    assert_eq!(jobs.claim(&"h".parse().unwrap(), 1, Some(runner())).await.unwrap().jobs.len(), 1);
}

/// Its row is marked, which the next attempt's is not; of an attempt that has ended, nothing is.
#[tokio::test]
async fn a_cancellation_is_of_one_live_attempt_and_on_record_once() {
    let cluster = Cluster::new(&[]).await;
    let (a, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&a, 0, 1).await;
    let (handler, wake) = ("h".parse().unwrap(), jobs.wake());
    let job = jobs.claim(&handler, 1, Some(runner())).await.unwrap().jobs.remove(0).facts.job;
    let admin = admin(&cluster);
    assert_eq!(admin.cancel_elsewhere(job, 1).await, Ok(Some("a".to_owned())));
    let seen = async {
        while jobs.cancel_asked().is_empty() {
            wake.notified().await;
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    assert_eq!(jobs.cancel_asked(), [(job, 1)]);
    // The database went back, and another claim has the number.
    cluster.run("UPDATE attempt SET claimant = gen_random_uuid(); NOTIFY hooklatch").await;
    let seen = async {
        while !jobs.cancel_asked().is_empty() {
            wake.notified().await;
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    cluster.run("UPDATE attempt SET claimant = session FROM node").await;

    let end = completion(job, 1, Outcome::Failed, Next::Ready);
    assert_eq!(jobs.complete(end).await, Ok(true));
    let ended = admin.cancel_elsewhere(job, 1).await.unwrap_err();
    assert!(matches!(ended, Error::WrongState { state: State::Ready, .. }), "{ended}");
    let next = jobs.claim(&handler, 1, Some(runner())).await.unwrap().jobs.remove(0).facts;
    assert_eq!((next.job, next.attempt), (job, 2));
    let ended = admin.cancel_elsewhere(job, 1).await.unwrap_err();
    assert!(matches!(ended, Error::NewerAttempt { attempt: 2, .. }), "{ended}");
    assert_eq!(cluster.count("attempt WHERE cancel_asked AND outcome IS NULL").await, 0);
    let audit = "SELECT string_agg(concat_ws(' ', verb, subject, count, result), ', ') FROM audit";
    let row = format!(r#"cancel {{"job":"{job}","attempt":1,"node":"a"}} 1 done"#);
    assert_eq!(cluster.get::<String>(audit).await, row);
}

/// A receiver dies with a forward and a command under way, and another process of the node takes over.
#[tokio::test]
async fn a_new_process_settles_the_forwards_of_the_last_one_and_awaits_its_commands() {
    let cluster = Cluster::new(&[]).await;
    let (own, rerun) = (node("a"), policy(OnUnknown::Rerun));
    let (writer, jobs) = process(&cluster, &own, &rerun).await;
    add_jobs(&writer, 0, 2).await;
    let handler = "h".parse().unwrap();
    let forward = jobs.claim(&handler, 1, None).await.unwrap().jobs.remove(0).facts;
    let command = jobs.claim(&handler, 1, Some(runner())).await.unwrap().jobs.remove(0).facts;
    let epoch = jobs.raise_epoch().await.unwrap();
    // Another node's attempts are not its own.
    let (other, of_other) = process(&cluster, &node("b"), &rerun).await;
    add_jobs(&other, 2, 1).await;
    assert_eq!(of_other.claim(&handler, 1, None).await.unwrap().jobs.len(), 1);
    writer.close();

    let (_writer, jobs) = process(&cluster, &own, &rerun).await;
    let recovered = jobs.recover(vec![(handler.clone(), rerun)]).await.unwrap();
    assert_eq!(recovered.unknown, [(forward.job, 1, State::Waiting)]);
    let running = jobs.running().await.unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!((running[0].job, running[0].runner.clone()), (command.job, Some(runner())));
    assert!(jobs.raise_epoch().await.unwrap() > epoch);
    assert!(jobs.may_begin(command.job, 1));
    let end = completion(command.job, 1, Outcome::Succeeded, Next::Succeeded);
    assert_eq!(jobs.complete(end).await, Ok(true));
    assert_eq!(cluster.count("late_end").await, 0);
    assert_eq!(cluster.count("job WHERE state = 'running'").await, 1);
}

#[tokio::test]
async fn a_job_without_its_payload_is_dead_and_its_companion_runs() {
    let cluster = Cluster::new(&[]).await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&writer, 0, 1).await;
    cluster.run("DELETE FROM payload").await;
    add_jobs(&writer, 1, 1).await;
    let claims = jobs.claim(&"h".parse().unwrap(), 9, Some(runner())).await.unwrap();
    assert_eq!((claims.jobs.len(), claims.number), (1, 1));
    assert_eq!(claims.jobs[0].facts.event_id.as_str(), "e00001");
    becomes(
        &cluster,
        "SELECT count(*) = 1 FROM job JOIN attempt a ON a.job = job.row
         WHERE state = 'dead' AND reason = 'payload gone' AND outcome = 'not_started' AND counted = 0",
    )
    .await;
    // The number grows with each claim.
    let more = jobs.claim(&"h".parse().unwrap(), 9, Some(runner())).await.unwrap();
    assert_eq!((more.jobs.len(), more.number), (0, 2));
}

/// The runner gets its Ack, whatever keeps the payloads from being read.
#[tokio::test]
async fn the_ends_of_an_exchange_do_not_wait_for_the_payloads_of_its_claims() {
    let cluster = Cluster::new(&[]).await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&writer, 0, 2).await;
    let first = jobs.claim(&"h".parse().unwrap(), 1, Some(runner())).await.unwrap().jobs.remove(0);
    // Who only reads waits at the gate for each payload; the claim, which sees that there is one, does not.
    let gate = cluster.admin().await;
    gate.batch_execute(
        "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('transaction_read_only') = 'on' THEN
                 PERFORM pg_advisory_xact_lock_shared(7);
             END IF;
             RETURN true;
         END $$;
         CREATE POLICY gate ON payload USING (gate());
         ALTER TABLE payload ENABLE ROW LEVEL SECURITY;
         ALTER TABLE payload FORCE ROW LEVEL SECURITY",
    )
    .await
    .unwrap();
    gate.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7)").await.unwrap();
    let ends = [completion(first.facts.job, 1, Outcome::Succeeded, Next::Succeeded).into()];
    let exchange = jobs.complete_and_claim(&ends, Some(claim_of(9)));
    let (ended, claims) = timeout(PATIENCE, exchange).await.unwrap();
    assert_eq!(ended, [Ok(true)]);
    gate.batch_execute("COMMIT").await.unwrap();
    assert_eq!(timeout(PATIENCE, claims).await.unwrap().unwrap().jobs.len(), 1);
}

/// Its node was declared lost while it ran on.
#[tokio::test]
async fn an_end_that_comes_late_changes_nothing_and_is_kept() {
    let cluster = Cluster::new(&[]).await;
    let (writer, jobs) = process(&cluster, &node("a"), &policy(OnUnknown::Hold)).await;
    add_jobs(&writer, 0, 1).await;
    let claimed =
        jobs.claim(&"h".parse().unwrap(), 1, Some(runner())).await.unwrap().jobs.remove(0);
    let job = claimed.facts.job;
    assert!(jobs.may_begin(job, 1));
    lose(&cluster, "a").await;
    let end = Arc::new(completion(job, 1, Outcome::Succeeded, Next::Succeeded));
    let (ended, _) = jobs.complete_and_claim(&[Arc::clone(&end)], None).await;
    assert_eq!(ended, [Ok(false)]);
    assert!(!jobs.may_begin(job, 1));
    // This process does not know it any more.
    assert_eq!(jobs.complete(end).await, Ok(false));
    let late: String =
        cluster.get("SELECT string_agg(attempt || ' ' || outcome, ', ') FROM late_end").await;
    assert_eq!(late, "1 succeeded");
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'unknown outcome'").await, 1);
}

#[tokio::test]
async fn what_a_reload_publishes_is_claimed_at_once_and_published_by_later_registrations() {
    let cluster = Cluster::new(&[]).await;
    let hold = policy(OnUnknown::Hold);
    let (writer, jobs) = process(&cluster, &node("a"), &hold).await;
    add_jobs(&writer, 0, 1).await;
    cluster.run("UPDATE job SET handler = 'new'").await;
    let claim = Claim { handler: "new".parse().unwrap(), ..claim_of(1) };
    let claims = async || jobs.complete_and_claim(&[], Some(claim.clone())).await.1.await.unwrap();
    assert!(claims().await.jobs.is_empty());
    let forward = PublishedHandler { runs: false, ..published("other", &hold) };
    jobs.publish(vec![published("new", &hold), forward]).await.unwrap();
    assert_eq!(claims().await.jobs.len(), 1);
    let names = "SELECT string_agg(handler || ' ' || runs, ', ' ORDER BY handler) FROM handler";
    assert_eq!(cluster.get::<String>(names).await, "new true, other false");
    cluster.run("DELETE FROM handler; UPDATE node SET state = 'lost'").await;
    assert!(claims().await.jobs.is_empty());
    assert_eq!(cluster.get::<String>(names).await, "new true, other false");
    writer.close();
    assert!(matches!(jobs.publish(Vec::new()).await, Err(Error::Unavailable(_))));
}
