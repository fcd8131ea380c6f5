//! The verbs of operators: what they make of the rows, next to claims, to each other and to cut connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::condition::Key;
use hooklatch::limits::Limits;
use hooklatch::model::{
    Answer, AuditVerb, DropReason, GroupRule, Headers, JobId, OnUnknown, State, Timestamp, Via,
};
use hooklatch::pattern::Pattern;
use hooklatch::payload::Place;
use hooklatch::routing::{Route, Router, Routes};
use hooklatch::store::postgres::Admin;
use hooklatch::store::{
    AuditSubject, Backfill, By, Error, EventMatcher, JobBatch, Newer, Replay, Resolution, Verb,
};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::cluster::{CREATED, Cluster, accept, delivery};
use super::proxy::{Act, Proxy, Side};
use super::site::target;
use super::working::{add_jobs, claim, claim_of, claiming, hold_attempts, holder, sum_of, worker};

fn admin(cluster: &Cluster) -> Admin {
    through(cluster.server.port, false)
}

fn through(port: u16, require_standby: bool) -> Admin {
    Admin::new(target(port, require_standby), &Limits::default(), Clock::system())
}

/// Makes an event of source `s` with a payload. Returns its row.
pub(crate) async fn add_event(cluster: &Cluster, id: &str) -> i64 {
    let sum = sum_of("s", id, "a.b", b"");
    let sql = format!(
        "WITH new AS (INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded,
                repeated, flagged)
            VALUES ('s', '{id}', 0, 'a.b', sha256('{id}'), now_ms(), 0, true, false, false) RETURNING row, received_at),
        kept AS (INSERT INTO payload SELECT row, '', '', received_at + {sum} FROM new)
        SELECT row FROM new"
    );
    cluster.get(&sql).await
}

/// Makes a job of `h` of such an event, with these columns set. It is ready without any.
pub(crate) async fn add_job(cluster: &Cluster, id: &str, set: &str) -> JobId {
    let event = add_event(cluster, id).await;
    job_of(cluster, event, "h", set).await
}

pub(crate) async fn job_of(cluster: &Cluster, event: i64, handler: &str, set: &str) -> JobId {
    let id = Uuid::from_bytes(hooklatch::random::id());
    let set = if set.is_empty() { "state = 'ready'" } else { set };
    cluster
        .run(&format!(
            "INSERT INTO job (id, event, handler, state, since, created_at)
             VALUES ('{id}', {event}, '{handler}', 'ready', 1, 1);
             UPDATE job SET {set} WHERE id = '{id}'"
        ))
        .await;
    JobId::from_bytes(id.into_bytes())
}

pub(crate) const HELD: &str = "state = 'held', reason = 'cancelled', attempt = 2, counted = 1";
pub(crate) const DEAD: &str =
    "state = 'dead', reason = 'rejected', attempt = 2, counted = 2, settled_at = 5";

fn of_group(rule: &str, set: &str) -> String {
    format!("{set}, group_key = 'k', group_rule = '{rule}'")
}

/// State, reason, attempt, counted attempts, replays, and whether the job is behind another one.
async fn shape(cluster: &Cluster, job: JobId) -> String {
    let columns = "state || ' ' || coalesce(reason, '-') || ' ' || attempt || ' ' || counted || ' ' || replays ||
        CASE WHEN behind THEN ' behind' ELSE '' END";
    cluster.get(&format!("SELECT {columns} FROM job WHERE id = '{job}'")).await
}

/// While no job holds a group, none is behind.
async fn check_groups(cluster: &Cluster) {
    let stuck = "job b WHERE b.behind AND NOT EXISTS (SELECT FROM job h WHERE h.handler = b.handler
        AND h.group_key = b.group_key AND h.holds AND NOT h.behind)";
    assert_eq!(cluster.count(stuck).await, 0);
}

/// The last row of the audit list.
async fn audit(cluster: &Cluster) -> String {
    cluster
        .get("SELECT verb || ' ' || count || ' ' || result || ' ' || subject FROM audit ORDER BY row DESC LIMIT 1")
        .await
}

fn name(text: &str) -> hooklatch::model::Name {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_pause_waits_for_the_claims_under_way_and_no_later_one_claims() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let b = worker(&cluster, "b", 0, OnUnknown::Hold).await;
    add_jobs(&a, 0, 3).await;
    let admin = admin(&cluster);
    let gate = hold_attempts(&cluster).await;
    let under_way = claiming(&a, claim_of(1));
    cluster.blocked(1).await;
    let pausing = tokio::spawn({
        let admin = admin.clone();
        async move { admin.pause(&name("h")).await }
    });
    cluster.blocked(2).await;
    drop(gate);
    assert_eq!(pausing.await.unwrap(), Ok(true));
    assert_eq!(under_way.await.unwrap().attempts.len(), 1);
    for writer in [&a, &b] {
        assert!(claim(writer, 9).await.is_empty());
    }
    assert_eq!(audit(&cluster).await, r#"pause 1 done {"handler":"h"}"#);
    let paused: i64 = cluster.get("SELECT paused_at FROM lane").await;
    assert_eq!(admin.pause(&name("h")).await, Ok(false));
    assert_eq!(cluster.get::<i64>("SELECT paused_at FROM lane").await, paused);
    assert_eq!(cluster.count("audit").await, 1);
    assert_eq!(admin.resume(&name("h")).await, Ok(true));
    assert_eq!(admin.resume(&name("h")).await, Ok(false));
    assert_eq!(claim(&b, 9).await.len(), 2);
    // A handler that no node has published.
    assert_eq!(admin.pause(&name("new")).await, Ok(true));
}

#[tokio::test]
async fn a_move_starts_from_the_states_of_its_verb_and_says_what_it_changed() {
    let cluster = Cluster::new(&[]).await;
    let admin = admin(&cluster);
    let one = |job| Replay::Job(job, None);
    for (number, (set, replayed, dropped)) in [
        ("state = 'ready'", None, true),
        ("state = 'waiting', due_at = 9", None, true),
        ("state = 'running', attempt = 1", None, false),
        (HELD, Some("ready - 2 0 1"), true),
        (DEAD, Some("ready - 2 0 1"), true),
        ("state = 'succeeded', settled_at = 5", Some("ready - 0 0 1"), false),
        ("state = 'dropped', reason = 'superseded', settled_at = 5", None, false),
    ]
    .into_iter()
    .enumerate()
    {
        let job = add_job(&cluster, &format!("replay{number}"), set).await;
        let before = shape(&cluster, job).await;
        let answer = admin.replay(one(job), false).await;
        match replayed {
            Some(after) => {
                assert_eq!(answer.unwrap().jobs, [job], "{set}");
                assert_eq!(shape(&cluster, job).await, after, "{set}");
                assert!(audit(&cluster).await.starts_with("replay 1 done"));
            }
            None => {
                assert!(matches!(answer, Err(Error::WrongState { .. })), "{set}: {answer:?}");
                assert_eq!(shape(&cluster, job).await, before, "{set}");
            }
        }
        let job = add_job(&cluster, &format!("drop{number}"), set).await;
        let before = shape(&cluster, job).await;
        let answer = admin.drop_job(job, None).await;
        if dropped {
            assert_eq!(answer.map(|state| before.starts_with(state.as_str())), Ok(true), "{set}");
            let reason = DropReason::Operator;
            assert!(shape(&cluster, job).await.starts_with(&format!("dropped {reason}")), "{set}");
            assert!(audit(&cluster).await.starts_with("drop 1 done"));
        } else {
            assert!(matches!(answer, Err(Error::WrongState { .. })), "{set}: {answer:?}");
            assert_eq!(shape(&cluster, job).await, before, "{set}");
        }
    }
    let job = add_job(&cluster, "seen", HELD).await;
    let newer = || Err(Error::NewerAttempt { job, seen: 1, attempt: 2 });
    assert_eq!(admin.drop_job(job, Some(1)).await, newer().map(|()| State::Held));
    assert_eq!(admin.replay(Replay::Job(job, Some(1)), false).await.err(), newer().err());
    let nobody = JobId::from_bytes([7; 16]);
    assert_eq!(admin.drop_job(nobody, None).await, Err(Error::NoJob(nobody)));
    // A new key; the old one is kept.
    let new = admin.replay(Replay::NewKey(job, Some(2)), false).await.unwrap().jobs[0];
    assert_ne!(new, job);
    assert_eq!(shape(&cluster, new).await, "ready - 2 0 1");
    let former = format!("former_key WHERE id = '{job}' AND attempt = 2");
    assert_eq!(cluster.count(&former).await, 1);
    assert!(audit(&cluster).await.contains(&format!(r#""new_key":"{new}""#)));
    // Nothing runs without its payload, or once its caller has its answer.
    let gone = add_job(&cluster, "gone", DEAD).await;
    cluster.run("DELETE FROM payload WHERE event = (SELECT max(row) FROM event)").await;
    assert!(matches!(admin.replay(one(gone), false).await, Err(Error::PayloadGone { .. })));
    let answered = add_job(&cluster, "answered", DEAD).await;
    cluster.run("UPDATE event SET has_key = true WHERE event_id = 'answered'").await;
    assert_eq!(admin.replay(one(answered), false).await, Err(Error::Answered { job: answered }));
}

#[tokio::test]
async fn an_event_is_replayed_whole_and_gets_the_job_that_it_lacks() {
    let cluster = Cluster::new(&[]).await;
    let admin = admin(&cluster);
    let event = add_event(&cluster, "e").await;
    let held = job_of(&cluster, event, "held", HELD).await;
    let dead = job_of(&cluster, event, "dead", DEAD).await;
    let done = job_of(&cluster, event, "done", "state = 'succeeded', settled_at = 5").await;
    let of = |source: Option<&str>, handler: Option<&str>| Replay::Event {
        source: source.map(name),
        event: "e".parse().unwrap(),
        handler: handler.map(name),
    };
    let replayed = admin.replay(of(None, None), false).await.unwrap();
    let mut jobs = replayed.jobs;
    jobs.sort();
    let mut expected = vec![held, dead];
    expected.sort();
    assert_eq!(jobs, expected);
    assert!(admin.replay(of(None, None), false).await.unwrap().jobs.is_empty());
    assert_eq!(admin.replay(of(None, Some("done")), false).await.unwrap().jobs, [done]);
    let made = admin.replay(of(None, Some("new")), false).await.unwrap().jobs[0];
    assert_eq!(shape(&cluster, made).await, "ready - 0 0 0");
    let again = admin.replay(of(None, Some("new")), false).await;
    assert!(matches!(again, Err(Error::WrongState { .. })), "{again:?}");
    // Two at once make it once.
    let other = self::admin(&cluster);
    let both = tokio::join!(
        admin.replay(of(None, Some("both")), false),
        other.replay(of(None, Some("both")), false)
    );
    assert_eq!(cluster.count("job WHERE handler = 'both'").await, 1);
    assert!([&both.0, &both.1].iter().any(|told| told.is_ok()), "{both:?}");
    // The id of several sources, of several bodies, and of none.
    let copy = "INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated,
        flagged) SELECT";
    cluster.run(&format!("{copy} 't', 'e', 0, 'a', sha256('t'), 1, 0, true, false, false")).await;
    let told = admin.replay(of(None, None), false).await;
    assert!(
        matches!(told, Err(Error::Ambiguous { ref sources, .. }) if sources == "s, t"),
        "{told:?}"
    );
    assert!(admin.replay(of(Some("s"), None), false).await.is_ok());
    cluster.run(&format!("{copy} 's', 'e', 1, 'a', sha256('u'), 1, 0, true, false, false")).await;
    let told = admin.replay(of(Some("s"), None), false).await;
    assert!(matches!(told, Err(Error::Variants { bodies: 2, .. })), "{told:?}");
    let told = admin.replay(of(Some("nowhere"), None), false).await;
    assert!(matches!(told, Err(Error::NoEvent(_))), "{told:?}");
}

#[tokio::test]
async fn a_batch_passes_over_what_has_changed_and_moves_the_rest() {
    let cluster = Cluster::new(&[]).await;
    let admin = admin(&cluster);
    let mut jobs = Vec::new();
    for (number, set) in [HELD, HELD, DEAD, "state = 'ready'"].into_iter().enumerate() {
        jobs.push((add_job(&cluster, &format!("e{number}"), set).await, 2));
    }
    jobs[1].1 = 1;
    let gone = add_job(&cluster, "gone", HELD).await;
    cluster.run("DELETE FROM payload WHERE event = (SELECT max(row) FROM event)").await;
    jobs.push((gone, 2));
    let old = add_job(&cluster, "old", &of_group("latest", HELD)).await;
    let newer = add_job(&cluster, "newer", &of_group("latest", "state = 'ready'")).await;
    jobs.push((old, 2));
    let batch = |verb| JobBatch { verb, state: State::Held, regardless: false, jobs: jobs.clone() };
    let result = admin.move_batch(batch(Verb::Replay)).await.unwrap();
    assert_eq!(result.done, BTreeMap::from([(name("h"), 1)]));
    assert_eq!((result.changed, result.payload_gone, result.superseded), (3, 1, 1));
    assert_eq!(shape(&cluster, jobs[0].0).await, "ready - 2 0 1");
    let told = admin.replay(Replay::Job(old, None), false).await;
    assert_eq!(told, Err(Error::Superseded { job: old, newer: Newer::Job(newer) }));
    let result = admin.move_batch(batch(Verb::Drop)).await.unwrap();
    assert_eq!(result.done, BTreeMap::from([(name("h"), 2)]));
    assert!(audit(&cluster).await.starts_with("drop 2 done"));
    let jobs = vec![jobs[0]; 201];
    let large = JobBatch { verb: Verb::Drop, state: State::Held, regardless: false, jobs };
    assert!(matches!(admin.move_batch(large).await, Err(Error::LargeBatch { jobs: 201, .. })));
}

#[tokio::test]
async fn a_drop_and_a_claim_of_one_job_at_the_same_moment_do_not_both_win() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let admin = admin(&cluster);
    add_jobs(&a, 0, 1).await;
    let job: Uuid = cluster.get("SELECT id FROM job").await;
    let job = JobId::from_bytes(job.into_bytes());
    // The claim has locked the job, and waits for the attempt's key. Without triggers, no foreign key locks the job.
    let gate = cluster.admin().await;
    gate.batch_execute(
        "SET session_replication_role = replica; BEGIN;
         INSERT INTO attempt (job, number, started_at, node, claimant)
         SELECT job.row, 1, 1, node.id, node.id FROM job, node",
    )
    .await
    .unwrap();
    let claimed = claiming(&a, claim_of(1));
    cluster.blocked(1).await;
    let dropping = spawn_drop(&admin, job);
    cluster.blocked(2).await;
    gate.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(claimed.await.unwrap().attempts.len(), 1);
    let (state, verb) = (State::Running, "dropped");
    assert_eq!(dropping.await.unwrap(), Err(Error::WrongState { job, state, verb }));

    // The other way round: what an operator moves is passed over.
    let held = add_job(&cluster, "held", HELD).await;
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE").await.unwrap();
    let replaying = tokio::spawn({
        let admin = admin.clone();
        async move { admin.replay(Replay::Job(held, None), false).await }
    });
    cluster.blocked(1).await;
    assert!(claim(&a, 9).await.is_empty());
    drop(gate);
    assert_eq!(replaying.await.unwrap().unwrap().jobs, [held]);
    assert_eq!(claim(&a, 9).await[0].running.attempt, 3);
    let told = admin.replay(Replay::Job(held, None), false).await;
    assert!(matches!(told, Err(Error::WrongState { state: State::Running, .. })), "{told:?}");
}

/// One drops the job that holds the group, while the other puts one back: it must not stay behind a job that is gone.
#[tokio::test]
async fn verbs_at_the_same_moment_leave_no_group_without_a_job_that_goes_on() {
    let cluster = Cluster::new(&[]).await;
    let (one, two) = (admin(&cluster), admin(&cluster));
    let first = add_job(&cluster, "first", &of_group("step-over", HELD)).await;
    let second = add_job(&cluster, "second", &of_group("step-over", DEAD)).await;
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE").await.unwrap();
    let dropping = spawn_drop(&one, first);
    cluster.blocked(1).await;
    let replaying = tokio::spawn(async move { two.replay(Replay::Job(second, None), false).await });
    cluster.blocked(2).await;
    drop(gate);
    assert_eq!(dropping.await.unwrap(), Ok(State::Held));
    replaying.await.unwrap().unwrap();
    assert_eq!(shape(&cluster, second).await, "ready - 2 0 1");
    let third = add_job(&cluster, "third", &of_group("step-over", "behind = true")).await;
    assert_eq!(one.drop_job(second, None).await, Ok(State::Ready));
    assert_eq!(shape(&cluster, third).await, "ready - 0 0 0");
    check_groups(&cluster).await;
}

fn spawn_drop(admin: &Admin, job: JobId) -> JoinHandle<Result<State, Error>> {
    let admin = admin.clone();
    tokio::spawn(async move { admin.drop_job(job, None).await })
}

#[tokio::test]
async fn a_held_job_is_resolved_with_its_caller_in_mind() {
    let cluster = Cluster::new(&[]).await;
    let admin = admin(&cluster);
    let answer = || {
        Resolution::Answered(Answer {
            status: 201,
            headers: Headers::new(),
            body: Bytes::from_static(b"done"),
        })
    };
    let plain = add_job(&cluster, "plain", &of_group("block", HELD)).await;
    let next = add_job(&cluster, "next", &of_group("block", "behind = true")).await;
    let seen = Err(Error::NewerAttempt { job: plain, seen: 1, attempt: 2 });
    assert_eq!(admin.resolve(plain, 1, Resolution::Succeeded).await, seen);
    let nobody = Err(Error::NobodyWaits { job: plain });
    assert_eq!(admin.resolve(plain, 2, answer()).await, nobody);
    assert_eq!(admin.resolve(plain, 2, Resolution::Succeeded).await, Ok(State::Succeeded));
    assert_eq!(shape(&cluster, plain).await, "succeeded - 2 1 0");
    assert_eq!(shape(&cluster, next).await, "ready - 0 0 0");
    check_groups(&cluster).await;
    let again = admin.resolve(plain, 2, Resolution::Failed).await;
    assert!(matches!(again, Err(Error::WrongState { .. })), "{again:?}");
    let mut keyed = Vec::new();
    for id in ["k1", "k2"] {
        keyed.push(add_job(&cluster, id, HELD).await);
        cluster
            .run(&format!(
                "UPDATE event SET has_key = true WHERE event_id = '{id}';
                 INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
                 SELECT row, 's', '', '{id}', digest, 1, 2, 3 FROM event WHERE event_id = '{id}'"
            ))
            .await;
    }
    let needed = Err(Error::AnswerNeeded { job: keyed[0] });
    assert_eq!(admin.resolve(keyed[0], 2, Resolution::Succeeded).await, needed);
    assert_eq!(admin.resolve(keyed[0], 2, answer()).await, Ok(State::Succeeded));
    assert_eq!(
        cluster.count("answer WHERE key = 'k1' AND status = 201 AND body_bytes = 4").await,
        1
    );
    assert_eq!(admin.resolve(keyed[1], 2, Resolution::Failed).await, Ok(State::Dead));
    assert_eq!(shape(&cluster, keyed[1]).await, "dead resolved as failed 2 1 0");
    assert_eq!(cluster.count("answer WHERE key = 'k2'").await, 0);
    let subject = format!(r#"resolve 1 done {{"job":"{}","attempt":2,"state":"dead"}}"#, keyed[1]);
    assert_eq!(audit(&cluster).await, subject);
}

/// Cuts a drop behind each message of either side.
#[tokio::test]
async fn a_verb_cut_at_any_message_never_says_what_is_not_so() {
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let (mut number_of_job, mut seen) = (0, BTreeMap::new());
    for is_warm in [false, true] {
        for side in [Side::Client, Side::Server] {
            let mut number = 0;
            loop {
                number_of_job += 1;
                let job = add_job(&cluster, &format!("e{number_of_job}"), HELD).await;
                let admin = through(proxy.port, false);
                if is_warm {
                    admin.resume(&name("h")).await.unwrap();
                    let job = add_job(&cluster, &format!("w{number_of_job}"), HELD).await;
                    admin.drop_job(job, None).await.unwrap();
                }
                proxy.arm(side, number, Act::Cut);
                let told = admin.drop_job(job, None).await;
                let passed = proxy.passed(side);
                proxy.watch();
                // No backend is left that could still commit.
                let idle = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
                    WHERE usename = 'app' AND state <> 'idle')";
                cluster.server.wait_for(idle).await;
                let is_dropped = shape(&cluster, job).await.starts_with("dropped");
                let at = format!("{side:?} {number} {:?}", passed.get(number.wrapping_sub(1)));
                let kind = match &told {
                    Ok(State::Held) => {
                        assert!(is_dropped, "{at}: told and not done");
                        "done"
                    }
                    Err(Error::Unavailable(why)) => {
                        assert!(!is_dropped, "{at}: denied and done: {why}");
                        "not done"
                    }
                    Err(Error::Unconfirmed(_)) => "unknown",
                    other => panic!("{at}: {other:?}"),
                };
                let noted = format!("audit WHERE subject LIKE '%{job}%'");
                assert_eq!(cluster.count(&noted).await, i64::from(is_dropped), "{at}");
                println!("{at}: {kind}, dropped {is_dropped}");
                *seen.entry((kind, is_dropped)).or_insert(0) += 1;
                if passed.len() < number {
                    break;
                }
                number += 1;
            }
            assert!(number > 5, "{number} messages");
        }
    }
    for met in [("done", true), ("unknown", true)] {
        assert!(seen.contains_key(&met), "{met:?} of {seen:?}");
    }
}

/// What changes nothing, and what is refused, was read before a commit that waited (N5).
#[tokio::test]
async fn no_answer_comes_before_the_standby() {
    let cluster = Cluster::new(&[]).await;
    let admin = through(cluster.server.port, true);
    let job = add_job(&cluster, "e", "state = 'ready'").await;
    cluster.server.set("synchronous_standby_names", "absent").await;
    let nothing = tokio::spawn({
        let admin = admin.clone();
        async move { admin.resume(&name("h")).await.map(|_| ()) }
    });
    let mut answers = vec![nothing];
    for replay in [Replay::Job(job, None), Replay::Job(JobId::from_bytes([7; 16]), None)] {
        let admin = through(cluster.server.port, true);
        answers.push(tokio::spawn(async move { admin.replay(replay, false).await.map(|_| ()) }));
    }
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' HAVING count(*) = 3";
    cluster.server.wait_for(waits).await;
    assert!(answers.iter().all(|answer| !answer.is_finished()));
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    cluster.server.admin().await.query(cancel, &[]).await.unwrap();
    for answer in answers {
        let told = answer.await.unwrap();
        assert!(matches!(told, Err(Error::Unconfirmed(_))), "{told:?}");
    }
}

fn router(rule: GroupRule) -> Router {
    let key = Key { places: vec![Place::parse("/customer").unwrap()], rule };
    let any = vec![Pattern::new("*", true)];
    let route = Route { key: Some(key), ..Route::new(name("h"), any) };
    let (source, form_field) = (name("stripe"), None);
    let routes = Routes {
        source,
        form_field,
        inflated_bytes: 1 << 20,
        kept_bytes: 1 << 20,
        routes: vec![route],
    };
    Router::new([Arc::new(routes)])
}

fn of_customer(id: &str, customer: &str) -> hooklatch::verify::Verified {
    let body = format!(r#"{{"id":"{id}","object":"event","type":"a.b","customer":{customer}}}"#);
    delivery("stripe", "whsec_test", id, "a.b", Bytes::from(body))
}

#[tokio::test]
async fn missing_jobs_are_made_once_in_their_groups() {
    let cluster = Cluster::new(&[]).await;
    let a = holder(&cluster, "a").await;
    let admin = admin(&cluster);
    admin.set_router(router(GroupRule::Latest));
    for (id, customer) in [("e1", "1"), ("e2", "1"), ("e3", "2"), ("e4", "[1]")] {
        assert_eq!(accept(&a, of_customer(id, customer)).await, Ok(CREATED));
    }
    cluster.run("DELETE FROM job; UPDATE event SET guarded = true, repeated = true WHERE event_id = 'e3'").await;
    let gone = add_event(&cluster, "gone").await;
    cluster.run(&format!("DELETE FROM payload WHERE event = {gone}")).await;
    let present = add_job(&cluster, "present", "state = 'ready'").await;
    let wanted = EventMatcher {
        sources: vec![name("stripe"), name("s")],
        types: vec![Pattern::new("*", true)],
        only: None,
    };
    let ask = |dry_run| Backfill {
        handler: name("h"),
        since: Timestamp(0),
        wanted: vec![wanted.clone()],
        dry_run,
        from: None,
    };
    let counted = admin.make_missing(ask(true)).await.unwrap();
    assert_eq!((counted.made, counted.held, counted.present, counted.payload_gone), (4, 2, 1, 1));
    assert_eq!(cluster.count("job").await, 1);
    assert_eq!(cluster.count("audit").await, 0);
    let other = self::admin(&cluster);
    other.set_router(router(GroupRule::Latest));
    let (one, two) = tokio::join!(admin.make_missing(ask(false)), other.make_missing(ask(false)));
    assert_eq!(one.unwrap().made + two.unwrap().made, 4);
    let states: String = cluster
        .get(
            "SELECT string_agg(event_id || ' ' || state || ' ' || coalesce(reason, '-'), ', ' ORDER BY event)
             FROM job JOIN event ON event.row = job.event WHERE source = 'stripe'",
        )
        .await;
    let expected =
        "e1 dropped superseded, e2 ready -, e3 held suspected replay, e4 held condition failed";
    assert_eq!(states, expected);
    assert_eq!(cluster.count("audit WHERE verb = 'make-missing' AND count = 4").await, 1);
    assert_eq!(shape(&cluster, present).await, "ready - 0 0 0");
    // The undecided one: decided again, refused, then regardless.
    let undecided: Uuid = cluster.get("SELECT id FROM job WHERE reason = 'condition failed'").await;
    let undecided = JobId::from_bytes(undecided.into_bytes());
    let told = admin.replay(Replay::Job(undecided, None), false).await;
    assert!(matches!(told, Err(Error::Undecided { .. })), "{told:?}");
    assert!(admin.replay(Replay::Job(undecided, None), true).await.is_ok());
    check_groups(&cluster).await;
}

/// The event of a transaction under way has its number, and cannot be seen yet.
#[tokio::test]
async fn a_walk_over_the_events_waits_for_those_under_way() {
    let cluster = Cluster::new(&[]).await;
    let _a = holder(&cluster, "a").await;
    let gate = cluster.admin().await;
    gate.batch_execute(
        "BEGIN; SELECT FROM node FOR NO KEY UPDATE;
         WITH new AS (INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded,
            repeated, flagged) VALUES ('s', 'under_way', 0, 'a.b', sha256('1'), now_ms(), 0, true, false, false)
            RETURNING row)
         INSERT INTO payload SELECT row, '', '', 0 FROM new",
    )
    .await
    .unwrap();
    add_event(&cluster, "later").await;
    let admin = admin(&cluster);
    let walk = tokio::spawn(async move {
        let wanted = EventMatcher {
            sources: vec![name("s")],
            types: vec![Pattern::new("*", true)],
            only: None,
        };
        let (handler, wanted) = (name("h"), vec![wanted]);
        let ask = Backfill { handler, since: Timestamp(0), wanted, dry_run: false, from: None };
        admin.make_missing(ask).await
    });
    cluster.blocked(1).await;
    gate.batch_execute("COMMIT").await.unwrap();
    assert_eq!(walk.await.unwrap().unwrap().made, 2);
}

#[tokio::test]
async fn a_row_of_the_audit_list_is_kept_until_it_is_committed() {
    let mut cluster = Cluster::new(&[]).await;
    let by =
        By { name: Some("a\0b".to_owned()), via: Via::Dashboard, reason: Some("\0".repeat(500)) };
    let admin = admin(&cluster).by(7, by);
    let row = |count, result: &str| {
        (AuditVerb::Reload, AuditSubject::default(), count, result.to_owned())
    };
    let patience = Duration::from_secs(20);
    assert_eq!(admin.note_change(row(1, "asked"), patience).await, Ok(true));
    assert_eq!(admin.note_change(row(0, "x\0y"), patience).await, Ok(true));
    let rows: String = cluster
        .get("SELECT string_agg(count || ' ' || result || ' ' || uid || ' ' || name, ', ' ORDER BY row) FROM audit")
        .await;
    assert_eq!(rows, "1 asked 7 a b, 0 x y 7 a b");
    // The change may be what the database needs.
    cluster.server.crash();
    assert_eq!(admin.note_change(row(2, "done"), Duration::ZERO).await, Ok(false));
    cluster.server.launch();
    cluster.server.wait_for("SELECT 1").await;
    while cluster.count("audit").await < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The listening nodes are notified of jobs that may run now, behind the commit.
#[tokio::test]
async fn a_verb_wakes_the_nodes() {
    let cluster = Cluster::new(&[]).await;
    let job = add_job(&cluster, "e", HELD).await;
    let admin = admin(&cluster);
    admin.replay(Replay::Job(job, None), false).await.unwrap();
    let said =
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'app' AND query = 'NOTIFY hooklatch'";
    cluster.server.wait_for(said).await;
}
