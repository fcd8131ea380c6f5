//! Requests with keys, at one node and at several at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{Answer, DeadReason, Digest, Headers, HeldReason, JobId, Outcome, State};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{
    AttemptEnd, Housekeeping, Intake, NodeAttempt, NodeNotices, Writer,
};
use hooklatch::store::{Ask, Asked, Completion, KeyState};
use tokio::time::Instant;
use uuid::Uuid;

use super::cluster::{CREATED, Cluster, START, duplicate, new, ready, stripe};
use super::proxy::{Act, Proxy, Side};
use super::server::PATIENCE;
use super::site::target;
use super::working::{claim, complete, end, holder, succeeded};

const PENDING: KeyState = KeyState::Pending;

pub(crate) fn intake(writer: &Writer) -> Intake {
    // Asks no server here.
    let keeping =
        Housekeeping::new(target(1, false), Clock::system(), NodeNotices::default(), Uuid::nil());
    Intake::new(writer.clone(), keeping)
}

/// The request of this number with the key.
pub(crate) fn request(key: &str, number: u8) -> Ask {
    Ask {
        source: "stripe".parse().unwrap(),
        caller: String::new(),
        request: Digest([number; 32]),
        received_at: START,
        delivery: stripe(key, &number.to_string()),
        handler: "h".parse().unwrap(),
        keep: Duration::from_secs(60),
        keep_errors: Duration::from_secs(10),
    }
}

pub(crate) fn begun(asked: Result<Asked, hooklatch::store::Refused>) -> JobId {
    match asked {
        Ok(Asked::Begun { job, again: false }) => job,
        other => panic!("{other:?}"),
    }
}

fn answer(body: &'static str) -> Answer {
    let mut headers = Headers::new();
    headers.push("Content-Type", "text/plain");
    Answer { status: 201, headers, body: Bytes::from_static(body.as_bytes()) }
}

async fn answered(writer: &Writer, attempt: &NodeAttempt, body: &'static str) {
    let AttemptEnd { done, claimant } = succeeded(attempt);
    let done = Completion { answer: Some(answer(body)), ..(*done).clone() };
    complete(writer, AttemptEnd { done: Arc::new(done), claimant }).await;
}

#[tokio::test]
async fn a_key_that_two_nodes_ask_at_once_runs_once_and_both_get_its_answer() {
    let cluster = Cluster::new(&[]).await;
    let nodes = [holder(&cluster, "a").await, holder(&cluster, "b").await];
    for round in 0..5_u8 {
        let key = format!("k{round}");
        let gate = cluster.hold().await;
        let asking = nodes.each_ref().map(|node| {
            let (intake, request) = (intake(node), request(&key, round));
            tokio::spawn(async move { intake.ask(request).await.unwrap() })
        });
        cluster.blocked(2).await;
        drop(gate);
        let mut told = Vec::new();
        for asking in asking {
            told.push(asking.await.unwrap());
        }
        told.sort_by_key(|asked| matches!(asked, Asked::Known { .. }));
        let [Asked::Begun { job, again: false }, Asked::Known { job: known, state: PENDING }] =
            told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!(job, known);
        // Both wait, at either node, and one runs it.
        let waiting = nodes.each_ref().map(|node| {
            let intake = intake(node);
            tokio::spawn(async move { intake.await_answer(job, Duration::from_secs(20)).await })
        });
        let attempts = claim(&nodes[0], 5).await;
        assert_eq!(attempts.len(), 1);
        answered(&nodes[0], &attempts[0], "done").await;
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Ok(KeyState::Answered(answer("done"))));
        }
    }
    assert_eq!(cluster.count("event").await, 5);
    assert_eq!(cluster.count("attempt").await, 5);
    assert_eq!(cluster.count("event WHERE has_key AND NOT guarded").await, 5);
}

/// Both were stored long ago, and change hardly anything. What they are told waits all the same for a commit that the
/// standby has (N5). Several events in one delivery are decided in their first transaction.
#[tokio::test]
async fn no_duplicate_and_no_known_key_is_told_before_the_standby_has_a_commit() {
    let cluster = Cluster::new(&[]).await;
    let _standby = cluster.server.standby("s1");
    cluster.server.set("synchronous_standby_names", "s1").await;
    let (port, limits) = (cluster.server.port, Limits::default());
    let a = cluster.node_with("a", port, true, &limits).await;
    let b = intake(&cluster.node_with("b", port, true, &limits).await);
    let events = || ["e1", "e2"].map(|id| new(stripe(id, "{}"))).into();
    let until = Instant::now() + PATIENCE;
    assert_eq!(a.accept_all(events(), until).await, Ok(vec![CREATED; 2]));
    let job = begun(b.ask(request("k", 1)).await);
    cluster.server.set("synchronous_standby_names", "absent").await;
    let repeated = tokio::spawn(async move { a.accept_all(events(), until).await });
    let known = tokio::spawn(async move { b.ask(request("k", 1)).await });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' HAVING count(*) = 2";
    cluster.server.wait_for(waits).await;
    assert_eq!((repeated.is_finished(), known.is_finished()), (false, false));
    cluster.server.set("synchronous_standby_names", "s1").await;
    assert_eq!(repeated.await.unwrap(), Ok(vec![duplicate(State::Ready); 2]));
    assert_eq!(known.await.unwrap(), Ok(Asked::Known { job, state: PENDING }));
}

#[tokio::test]
async fn a_repeat_gets_the_state_of_the_key() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    let (one, other) = (intake(&a), intake(&b));
    let job = begun(one.ask(request("k", 1)).await);
    let is = |state: KeyState| Asked::Known { job, state };
    let ask = async |number| other.ask(request("k", number)).await.unwrap();
    assert_eq!(ask(1).await, is(PENDING));
    assert_eq!(one.ask(request("k", 1)).await, Ok(is(PENDING)));
    assert_eq!(one.ask(request("k", 2)).await, Ok(Asked::Conflict));
    assert_eq!(ask(2).await, Asked::Conflict);
    // Another caller's key of the same name is the next variant of the event.
    let mut stranger = request("k", 2);
    stranger.caller = "till".to_owned();
    let strange = begun(one.ask(stranger).await);
    assert_ne!(strange, job);
    assert_eq!(cluster.get::<i64>("SELECT max(variant) FROM event").await, 1);
    cluster.run(&format!("DELETE FROM job WHERE id = '{strange}'")).await;

    let wait = async || one.await_answer(job, Duration::from_millis(10)).await.unwrap();
    assert_eq!(wait().await, PENDING);
    let attempt = claim(&a, 1).await.remove(0);
    let held = Next::Held(HeldReason::UnknownOutcome);
    complete(&a, end(&attempt, Outcome::TimedOut, held)).await;
    let unknown = KeyState::Unknown { timed_out: true };
    assert_eq!(wait().await, unknown);
    assert_eq!(ask(1).await, is(unknown));

    // It has failed: of ten at once one begins it again.
    cluster
        .run("UPDATE job SET state = 'dead', reason = 'attempts exhausted', settled_at = 1")
        .await;
    assert_eq!(wait().await, KeyState::Failed);
    assert_eq!(ask(2).await, Asked::Conflict);
    let mut asking = Vec::new();
    for number in 0..10 {
        let intake = if number % 2 == 0 { one.clone() } else { other.clone() };
        asking.push(tokio::spawn(async move { intake.ask(request("k", 1)).await.unwrap() }));
    }
    let mut again = 0;
    for asking in asking {
        match asking.await.unwrap() {
            Asked::Begun { job: begun, again: true } => {
                assert_eq!(begun, job);
                again += 1;
            }
            told => assert_eq!(told, is(PENDING)),
        }
    }
    assert_eq!(again, 1);
    assert_eq!(cluster.get::<i64>("SELECT replays FROM job").await, 1);

    let attempt = claim(&b, 1).await.remove(0);
    answered(&b, &attempt, "first").await;
    let has_answer = KeyState::Answered(answer("first"));
    assert_eq!(wait().await, has_answer);
    assert_eq!(ask(1).await, is(has_answer.clone()));
    assert_eq!(one.ask(request("k", 1)).await, Ok(is(has_answer)));
    // A key that has expired is a new one.
    cluster.run("DELETE FROM answer WHERE caller = ''").await;
    let next = begun(other.ask(request("k", 2)).await);
    assert_ne!(next, job);
    let gone = other.await_answer(JobId::from_bytes([7; 16]), Duration::ZERO).await;
    assert!(gone.unwrap_err().to_string().contains("no such job"));
}

/// Cuts a request behind each message of either side. It is sent again, and runs once: one that begins, and one that
/// puts a failed job back which runs and fails again before the request is repeated.
#[tokio::test]
async fn an_ask_cut_at_any_message_begins_its_job_once() {
    let cluster = Cluster::new(&[]).await;
    let other = holder(&cluster, "other").await;
    let proxy = Proxy::start(&cluster.server).await;
    let node = cluster.node_with("cut", proxy.port, false, &Limits::default()).await;
    let intake = intake(&node);
    let mut seen = BTreeMap::new();
    for again in [false, true] {
        for side in [Side::Client, Side::Server] {
            let mut number = 0;
            loop {
                let key = format!("{again}{side:?}{number}");
                let mut job = None;
                if again {
                    job = Some(begun(intake.ask(request(&key, 1)).await));
                    let attempt = claim(&other, 1).await.remove(0);
                    let dead = Next::Dead(DeadReason::Exhausted);
                    complete(&other, end(&attempt, Outcome::Failed, dead)).await;
                }
                // The statements are prepared.
                begun(intake.ask(request(&format!("warm{key}"), 1)).await);
                cluster
                    .run("DELETE FROM job USING event WHERE event.row = job.event AND event_id LIKE 'warm%'")
                    .await;
                proxy.arm(side, number, Act::Cut);
                let asking = {
                    let (intake, key) = (intake.clone(), key.clone());
                    tokio::spawn(async move {
                        loop {
                            match intake.ask(request(&key, 1)).await {
                                // The cut came before it was queued.
                                Err(hooklatch::store::Refused::Unreachable(_)) => {
                                    tokio::time::sleep(Duration::from_millis(2)).await;
                                }
                                told => break told.unwrap(),
                            }
                        }
                    })
                };
                // Where it began, it fails before the request comes again.
                let mut runs = 0;
                while !asking.is_finished() {
                    for attempt in claim(&other, 1).await {
                        runs += 1;
                        let dead = Next::Dead(DeadReason::Exhausted);
                        complete(&other, end(&attempt, Outcome::Failed, dead)).await;
                    }
                }
                let told = asking.await.unwrap();
                let passed = proxy.passed(side);
                proxy.watch();
                ready(&node).await;
                let at =
                    format!("{again} {side:?} {number} {:?}", passed.get(number.wrapping_sub(1)));
                println!("{at}: {told:?}, {runs} runs");
                for attempt in claim(&other, 1).await {
                    runs += 1;
                    let dead = Next::Dead(DeadReason::Exhausted);
                    complete(&other, end(&attempt, Outcome::Failed, dead)).await;
                }
                assert_eq!(runs, 1, "{at}: {told:?}");
                let is_own = match (&told, job) {
                    (Asked::Begun { again: false, .. }, None) => true,
                    (
                        Asked::Begun { job: own, again: true } | Asked::Known { job: own, .. },
                        Some(job),
                    ) => *own == job,
                    _ => false,
                };
                assert!(is_own, "{at}: {told:?}");
                *seen.entry(matches!(told, Asked::Known { .. })).or_insert(0) += 1;
                number += 1;
                if number > passed.len() {
                    break;
                }
            }
            assert!(number > 5, "{number} messages");
        }
    }
    println!("{seen:?}");
    assert_eq!(cluster.count("answer").await, cluster.count("event").await);
}
