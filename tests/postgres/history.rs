//! Failovers that lose commits, those that lose none, and restored databases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{EventId, GroupKey, GroupRule, JobId, Name, OnUnknown, Outcome};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{
    Admin, Connection, EndResult, Housekeeping, Jobs, NodeFile, NodeNotices, Registered, Registrar,
    Target, Writer,
};
use hooklatch::store::{Error, Group, JobFilter, Replay, Replayed};
use tokio::sync::Barrier;
use tokio::time::Instant;

use super::cluster::{CREATED, Cluster, accept, new, ready, stripe};
use super::dispatching::{becomes, completion, process};
use super::server::{PASSWORD, PATIENCE, ROLE, Server};
use super::site::{node, target};
use super::working::{
    SUCCEEDED, add_jobs, claim, claim_one, complete, job, later_session, lose, may_begin, policy,
    published, session, succeeded,
};

/// Whichever of two servers takes writes.
fn either(cluster: &Cluster, standby: &Server, require_standby: bool) -> Target {
    either_of(&cluster.server, standby, require_standby)
}

/// The target of these two servers, in this order.
fn either_of(first: &Server, second: &Server, require_standby: bool) -> Target {
    of_ports(first.port, second.port, require_standby)
}

fn of_ports(first: u16, second: u16, require_standby: bool) -> Target {
    let address =
        format!("postgresql://{ROLE}@127.0.0.1:{first},127.0.0.1:{second}/app?sslmode=disable");
    Target::new(&address, Some(PASSWORD), None, require_standby).unwrap()
}

/// A node that runs `h`, and then goes by `target`.
async fn worker(name: &str, target: Target) -> Writer {
    let mut registrar = Registrar::new(node(name));
    registrar.handlers = vec![published(policy(OnUnknown::Rerun))];
    let (writer, _) = Writer::start(target, registrar, &Limits::default(), Clock::system());
    ready(&writer).await;
    writer
}

fn admin(cluster: &Cluster) -> Admin {
    Admin::new(target(cluster.server.port, false), &Limits::default(), Clock::system())
}

/// A connection for a registration.
async fn open(cluster: &Cluster) -> Connection {
    Connection::open(&target(cluster.server.port, false)).await.unwrap()
}

async fn caught_up(server: &Server) {
    let query = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn()";
    server.wait_for(query).await;
}

/// From now on no commit reaches the standby.
async fn cut_off(cluster: &Cluster) {
    let no_replication = "local all all trust\nhost all all 127.0.0.1/32 trust\n";
    cluster.server.write("data/pg_hba.conf", no_replication);
    cluster.server.reload().await;
    cluster.run("SELECT pg_terminate_backend(pid) FROM pg_stat_replication").await;
    cluster.server.wait_for("SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_replication)").await;
}

/// The primary dies, and the standby takes its place. Returns when these nodes have a session there.
async fn fail_over(
    cluster: &mut Cluster,
    standby: Server,
    nodes: &[&Writer],
) -> Vec<Arc<Registered>> {
    let mut before = Vec::new();
    for node in nodes {
        before.push(session(node).await);
    }
    cluster.server.crash();
    standby.promote().await;
    cluster.server = standby;
    let mut after = Vec::new();
    for (node, before) in nodes.iter().zip(before) {
        after.push(later_session(node, &before).await);
        ready(node).await;
    }
    after
}

async fn replay(admin: &Admin, job: JobId) -> Result<Replayed, Error> {
    admin.replay(Replay::Job(job, None), true).await
}

#[track_caller]
fn awaited(result: Result<Replayed, Error>, parts: &[&str]) {
    let Err(Error::Awaited(why)) = result else { panic!("{result:?}") };
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
}

async fn store_id(cluster: &Cluster) -> uuid::Uuid {
    cluster.get("SELECT store_id FROM meta").await
}

fn event(id: &str) -> (Name, EventId) {
    ("stripe".parse().unwrap(), id.parse().unwrap())
}

/// An event with a job of a group.
async fn accept_grouped(writer: &Writer, id: &str) {
    let mut event = new(stripe(id, "{}"));
    let key = GroupKey::kept("k".to_owned());
    event.jobs[0].group = Some(Group { key, rule: GroupRule::Latest });
    assert_eq!(writer.accept(event, Instant::now() + PATIENCE).await, Ok(CREATED));
}

/// The standby lacks a claim and an accepted event.
#[tokio::test]
async fn an_asynchronous_failover_names_what_is_lost_holds_the_rest_and_runs_nothing_twice() {
    let mut cluster = Cluster::new(&[]).await;
    let standby = cluster.server.standby("s1");
    let a = worker("a", either(&cluster, &standby, false)).await;
    let b = worker("b", either(&cluster, &standby, false)).await;
    let c = worker("c", either(&cluster, &standby, false)).await;
    add_jobs(&a, 0, 3).await;
    let of_b = claim(&b, 1).await.remove(0);
    c.close();
    lose(&cluster, "c").await;
    let before = store_id(&cluster).await;
    caught_up(&cluster.server).await;
    cut_off(&cluster).await;
    let of_a = claim(&a, 1).await.remove(0);
    add_jobs(&a, 3, 1).await;
    // The standby has an earlier session of the same process.
    let earlier = [session(&a).await, session(&b).await];
    cluster
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        .await;
    later_session(&a, &earlier[0]).await;
    later_session(&b, &earlier[1]).await;
    assert!(may_begin(&a, &of_a) && may_begin(&b, &of_b));

    let after = fail_over(&mut cluster, standby, &[&a, &b]).await;
    assert_eq!(after[0].lost, [event("e00003")]);
    assert_eq!(after[1].lost, []);
    let notice = "SELECT type || ' ' || subject || ' ' || count FROM notice";
    assert_eq!(cluster.get::<String>(notice).await, "store.lost stripe 1");
    // The lost claim runs on, and its number may be given again.
    assert_eq!(job(&cluster, of_a.running.job).await, "held 0 0");
    assert_eq!(job(&cluster, of_b.running.job).await, "held 1 1");
    assert_eq!(cluster.count("job WHERE reason = 'restored'").await, 3);
    assert_eq!(cluster.count("attempt WHERE outcome = 'unknown' AND claimant IS NULL").await, 1);
    assert_ne!(store_id(&cluster).await, before);
    let restored = format!("restored WHERE held = 3 AND from_store = '{before}'");
    assert_eq!(cluster.count(&restored).await, 1);

    // New events run, those of a group not yet.
    add_jobs(&b, 10, 1).await;
    accept_grouped(&b, "grouped").await;
    let fresh = claim(&b, 9).await;
    assert_eq!(fresh.len(), 1);
    assert_eq!(complete(&b, succeeded(&fresh[0])).await, SUCCEEDED);
    let admin = admin(&cluster);
    let job_id = of_a.running.job;
    let named = format!("node a runs attempt 1 of job {job_id}");
    awaited(replay(&admin, job_id).await, &[&named, "node b runs", "hooklatch node lost c"]);
    assert_eq!(complete(&a, succeeded(&of_a)).await, EndResult::Late);
    assert_eq!(complete(&b, succeeded(&of_b)).await, EndResult::Late);
    assert_eq!(claim(&b, 9).await, []);
    // It was declared lost in a history that is gone, and may have come back since.
    awaited(replay(&admin, job_id).await, &["hooklatch node lost c"]);
    let nodes = admin.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.awaited).collect::<Vec<_>>(), [false, false, true]);
    lose(&cluster, "c").await;
    assert_eq!(claim(&b, 9).await.len(), 1, "the job of the group");
    assert_eq!(replay(&admin, job_id).await.unwrap().jobs, [job_id]);
    let again = claim_one(&b).await;
    assert_eq!((again.running.job, again.running.attempt), (job_id, 1));
    // The number is given twice; the end of the lost claim was not recorded for this one.
    assert_eq!(complete(&b, succeeded(&again)).await, SUCCEEDED);
    // What was lost can come again.
    assert_eq!(accept(&a, stripe("e00003", "{}")).await, Ok(CREATED));
}

#[tokio::test]
async fn a_synchronous_failover_under_accepts_loses_and_holds_nothing() {
    let mut cluster = Cluster::new(&[]).await;
    let standby = cluster.server.standby("s1");
    cluster.server.set("synchronous_standby_names", "s1").await;
    let a = worker("a", either(&cluster, &standby, true)).await;
    let b = worker("b", either(&cluster, &standby, true)).await;
    add_jobs(&a, 0, 2).await;
    let running = claim(&b, 1).await.remove(0);
    let before = store_id(&cluster).await;
    let (under_way, is_over) = (Arc::new(Barrier::new(3)), Arc::<AtomicBool>::default());
    let accepting = [&a, &b].map(|node| {
        let (node, under_way) = (node.clone(), Arc::clone(&under_way));
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            let own = session(&node).await.session.node;
            for number in 0.. {
                let id = format!("{own}-{number}");
                let until = Instant::now() + PATIENCE;
                match node.accept(new(stripe(&id, "{}")), until).await {
                    Ok(_) => drop(acknowledged.insert(id)),
                    // The primary is dead.
                    Err(_) => break,
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                if acknowledged.len() == 20 {
                    under_way.wait().await;
                }
            }
            acknowledged
        })
    });
    under_way.wait().await;
    let sessions = [session(&a).await, session(&b).await];
    cluster.server.crash();
    standby.promote().await;
    cluster.server = standby;
    let next = cluster.server.standby("s2");
    cluster.server.set("synchronous_standby_names", "s2").await;
    let after = [later_session(&a, &sessions[0]).await, later_session(&b, &sessions[1]).await];
    for node in [&a, &b] {
        ready(node).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for accepted in accepting {
        for id in accepted.await.unwrap() {
            let stored = format!("event WHERE event_id = '{id}'");
            assert_eq!(cluster.count(&stored).await, 1, "{id} was acknowledged");
        }
    }
    assert!(after.iter().all(|now| now.lost.is_empty()));
    assert_eq!(after[1].running.len(), 1);
    assert_eq!(cluster.count("job WHERE state = 'held'").await, 0);
    assert_eq!(cluster.count("roll_call").await, 0);
    assert_eq!(store_id(&cluster).await, before);
    assert_eq!(cluster.get::<String>("SELECT timeline FROM meta").await, "00000002");
    assert_eq!(complete(&b, succeeded(&running)).await, SUCCEEDED);
    assert!(!claim(&a, 1).await.is_empty());
    drop(next);
}

/// A dump of the database is loaded into another server. A new process does not know what an earlier one had begun.
#[tokio::test]
async fn a_restored_copy_holds_everything_until_each_node_has_asked_its_runners() {
    let mut cluster = Cluster::new(&[]).await;
    let own = node("a");
    let mut first = Registrar::new(own.clone());
    first.register(open(&cluster).await).await.unwrap();
    let b = worker("b", target(cluster.server.port, false)).await;
    add_jobs(&b, 0, 2).await;
    let dead = claim(&b, 1).await.remove(0).running.job;
    b.close();
    let other = Server::made();
    cluster.server.copy_to(&other);
    cluster.server = other;

    let mut started = Registrar::new(first.node.clone());
    let (_, registered) = started.register(open(&cluster).await).await.unwrap();
    let called = format!("roll_call WHERE job IS NULL AND node = '{}'", registered.session.node);
    assert_eq!(cluster.count(&called).await, 1);
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'restored'").await, 2);
    let admin = admin(&cluster);
    awaited(replay(&admin, dead).await, &["node lost a", "node lost b"]);
    lose(&cluster, "b").await;
    awaited(replay(&admin, dead).await, &["node lost a"]);
    let (a, jobs) = process(&cluster, &started.node, &policy(OnUnknown::Hold)).await;
    assert_eq!(jobs.unlisted(), Some(BTreeSet::new()));
    // Its runner lists an attempt that ran in no row, and one that ended before.
    jobs.note_stray(dead, 7);
    jobs.answer_roll_call(BTreeSet::new());
    assert_eq!(jobs.unlisted(), None);
    becomes(&cluster, "SELECT EXISTS (SELECT FROM roll_call WHERE attempt = 7)").await;
    assert_eq!(cluster.count("roll_call").await, 1);
    awaited(replay(&admin, dead).await, &["node a runs attempt 7 of job"]);
    let end = completion(dead, 7, Outcome::Succeeded, Next::Succeeded);
    assert_eq!(jobs.complete(end).await, Ok(false));
    a.close();
    assert_eq!(replay(&admin, dead).await.unwrap().jobs, [dead]);
    // Once more the same server: nothing is held again.
    let mut started = Registrar::new(started.node.clone());
    started.register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count("roll_call").await, 0);
    assert_eq!(cluster.count("job WHERE state = 'ready'").await, 1);

    // The data folder is put back: the rows are of a session before the last.
    cluster.run("UPDATE node SET count = 1 WHERE name = 'a'").await;
    Registrar::new(started.node.clone()).register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count("job WHERE state = 'held'").await, 2);
    assert_eq!(cluster.count("restored").await, 2);
}

/// Neither the server nor its timeline has changed, or a failover was said to lose nothing: a missing event proves the
/// contrary. Another node, whose session lives, registers again and is asked what it runs.
#[tokio::test]
async fn a_database_that_lacks_an_accepted_event_has_gone_back() {
    let cluster = Cluster::new(&[]).await;
    let a = worker("a", target(cluster.server.port, false)).await;
    let b = worker("b", target(cluster.server.port, false)).await;
    add_jobs(&a, 0, 2).await;
    add_jobs(&b, 2, 1).await;
    let of_b = claim(&b, 1).await.remove(0);
    let (session_a, session_b) = (session(&a).await, session(&b).await);
    cluster
        .run("DELETE FROM event WHERE event_id = 'e00001'; UPDATE node SET session = gen_random_uuid(), state = 'lost' WHERE name = 'a'")
        .await;
    // It fails at its next transaction, and registers.
    assert_eq!(accept(&a, stripe("next", "{}")).await, Ok(CREATED));
    assert_eq!(later_session(&a, &session_a).await.lost, [event("e00001")]);
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'restored'").await, 2);
    assert_eq!(complete(&b, succeeded(&of_b)).await, EndResult::Late);
    assert_eq!(later_session(&b, &session_b).await.lost, []);
    let admin = admin(&cluster);
    assert_eq!(replay(&admin, of_b.running.job).await.unwrap().jobs, [of_b.running.job]);
    assert_eq!(cluster.count("restored").await, 1);
}

/// The old primary is up again beside the new one, takes writes, and is named first: nothing is read there or written.
#[tokio::test]
async fn an_old_primary_that_is_up_again_is_neither_read_nor_written() {
    for require_standby in [false, true] {
        let mut cluster = Cluster::new(&[]).await;
        let standby = cluster.server.standby("s1");
        if require_standby {
            cluster.server.set("synchronous_standby_names", "s1").await;
        }
        let target = either(&cluster, &standby, require_standby);
        let a = worker("a", target.clone()).await;
        let before = session(&a).await;
        caught_up(&cluster.server).await;
        cluster.server.crash();
        standby.promote().await;
        let mut old = std::mem::replace(&mut cluster.server, standby);
        // With a required standby nothing is accepted until one is there.
        let third = require_standby.then(|| cluster.server.standby("s2"));
        if third.is_some() {
            cluster.server.set("synchronous_standby_names", "s2").await;
        }
        let now = later_session(&a, &before).await;
        ready(&a).await;
        old.launch();

        add_jobs(&a, 0, 1).await;
        let claimed = claim(&a, 9).await;
        assert_eq!(claimed.len(), 1);
        let payloads = a.payloads(&claimed).await.unwrap();
        assert!(payloads.iter().all(Result::is_ok), "{payloads:?}");
        let paused = "lane WHERE paused_at IS NOT NULL";
        let guest = either_of(&old, &cluster.server, require_standby);
        for (target, is_paused) in [(target.clone(), true), (guest, false)] {
            let admin = Admin::new(target, &Limits::default(), Clock::system());
            let changed = match is_paused {
                true => admin.pause(&"h".parse().unwrap()).await,
                false => admin.resume(&"h".parse().unwrap()).await,
            };
            assert_eq!(changed, Ok(true));
            assert_eq!(cluster.count(paused).await, i64::from(is_paused));
            let jobs = admin.jobs(JobFilter::default()).await.unwrap().rows;
            assert_eq!(jobs.len(), 1, "read on the new primary");
        }
        cluster
            .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
            .await;
        later_session(&a, &now).await;
        ready(&a).await;
        assert_eq!(complete(&a, succeeded(&claimed[0])).await, SUCCEEDED);
        assert_eq!(job(&cluster, claimed[0].running.job).await, "succeeded 1 1");
    }
}

/// How a node ends before its database goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Stopped,
    /// The node is killed behind a look.
    Killed,
    NeverStopped,
}

/// How a database goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Snapshot,
    /// The database goes back to a point in time: the timeline is a later one.
    Point,
    /// A standby that did not have all is promoted while the primary is away.
    Standby,
}

/// The node has not registered since the snapshot was made, or the standby was cut off: its mark tells, and what it has
/// accepted since is named.
#[tokio::test]
async fn each_way_back_is_noticed_and_names_what_is_lost() {
    for way in [Way::Snapshot, Way::Point, Way::Standby] {
        for end in [Node::Stopped, Node::Killed, Node::NeverStopped] {
            println!("{way:?} {end:?}");
            goes_back(way, end).await;
        }
    }
}

async fn goes_back(way: Way, end: Node) {
    let mut cluster = Cluster::new(&[]).await;
    let mut standby = (way == Way::Standby).then(|| cluster.server.standby("s1"));
    let ports = (cluster.server.port, standby.as_ref().map(|standby| standby.port));
    // Each process has its own.
    let to = || match ports {
        (first, Some(second)) => of_ports(first, second, false),
        (first, None) => target(first, false),
    };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("h.db");
    let file = || NodeFile::open(&store).unwrap();
    let of_folder = || Registrar::of_folder(file(), "a".to_owned(), "m".to_owned());
    let mut registrar = of_folder();
    registrar.handlers = vec![published(policy(OnUnknown::Rerun))];
    let (a, task) = Writer::start(to(), registrar, &Limits::default(), Clock::system());
    ready(&a).await;
    add_jobs(&a, 0, 2).await;
    let before = session(&a).await;
    let snapshot = match &mut standby {
        Some(standby) => {
            caught_up(&cluster.server).await;
            standby.crash();
            None
        }
        None => Some(cluster.server.snapshot()),
    };
    let ran = claim(&a, 1).await.remove(0);
    assert_eq!(complete(&a, succeeded(&ran)).await, SUCCEEDED);
    add_jobs(&a, 2, 1).await;
    match end {
        Node::Stopped => {
            a.close();
            task.await.unwrap();
            assert!(file().mark > 0);
        }
        Node::Killed => {
            let kept = folder.path().join("h.db.accepted");
            while !std::fs::read_to_string(&kept).unwrap_or_default().contains("e00002") {
                tokio::task::yield_now().await;
            }
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        Node::NeverStopped => {}
    }
    match (standby, snapshot) {
        (Some(mut standby), _) => {
            cluster.server.crash();
            standby.launch();
            standby.promote().await;
            cluster.server = standby;
        }
        (None, Some(snapshot)) if way == Way::Point => {
            cluster.server.put_back_to_a_point(&snapshot);
            cluster.server.wait_for("SELECT 1 WHERE NOT pg_is_in_recovery()").await;
        }
        (None, snapshot) => cluster.server.put_back(&snapshot.unwrap()),
    }

    let lost = match end {
        Node::NeverStopped => later_session(&a, &before).await.lost.clone(),
        _ => {
            let connection = Connection::open(&to()).await.unwrap();
            of_folder().register(connection).await.unwrap().1.lost
        }
    };
    assert_eq!(lost, [event("e00002")]);
    assert_eq!(cluster.get::<i64>("SELECT lost FROM restored").await, 1);
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'restored'").await, 2);
    assert_eq!(cluster.count("restored").await, 1);
    if end != Node::NeverStopped {
        // The next start finds the same history, and what was named is not named again.
        let connection = Connection::open(&to()).await.unwrap();
        assert_eq!(of_folder().register(connection).await.unwrap().1.lost, []);
        assert_eq!(cluster.count("restored").await, 1);
    }
}

/// Another node has run what the copy has as ready, and does not come back.
#[tokio::test]
async fn a_node_that_has_committed_nothing_since_notices_that_a_copy_was_put_back() {
    let mut cluster = Cluster::new(&[]).await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let file = |nth: usize| NodeFile::open(&folders[nth].path().join("h.db")).unwrap();
    let of_folder =
        |nth: usize| Registrar::of_folder(file(nth), format!("node{nth}"), "m".to_owned());
    let mut started = Vec::new();
    for nth in 0..2 {
        let mut registrar = of_folder(nth);
        registrar.handlers = vec![published(policy(OnUnknown::Rerun))];
        let to = target(cluster.server.port, false);
        let (writer, task) = Writer::start(to, registrar, &Limits::default(), Clock::system());
        ready(&writer).await;
        // Its looks at what the others have done.
        let (looks, clock) = (target(cluster.server.port, false), Clock::system());
        let notices = NodeNotices::default();
        let keeping = Housekeeping::new(looks.clone(), clock.clone(), notices, file(nth).id);
        let jobs = Jobs::start(writer.clone(), looks, clock, keeping);
        started.push((writer, task, jobs));
    }
    add_jobs(&started[1].0, 0, 1).await;
    let snapshot = cluster.server.snapshot();
    let ran = claim(&started[1].0, 1).await.remove(0);
    assert_eq!(complete(&started[1].0, succeeded(&ran)).await, SUCCEEDED);
    let marks = "SELECT sum(mark)::bigint FROM node";
    let (of_rows, idle) = loop {
        let (of_rows, of_b): (i64, i64) = (cluster.get(marks).await, file(1).mark);
        if of_b == of_rows && file(0).mark == of_rows && of_rows > 0 {
            break (
                of_rows,
                cluster.get::<i64>("SELECT mark FROM node WHERE name = 'node0'").await,
            );
        }
        tokio::task::yield_now().await;
    };
    assert!(idle < of_rows, "the other one's marks count");
    for (writer, task, jobs) in started {
        writer.close();
        drop(jobs);
        task.await.unwrap();
    }
    cluster.server.put_back(&snapshot);
    of_folder(0).register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'restored'").await, 1);
}

/// The marks that a folder has seen are of one store: nothing is held in another one, or twice. Its own mark tells of a copy
/// when others have caught up with the sum.
#[tokio::test]
async fn a_folder_compares_both_marks_in_the_store_in_which_it_has_seen_them() {
    let mut cluster = Cluster::new(&[]).await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = |nth: usize| {
        let file = NodeFile::open(&folders[nth].path().join("h.db")).unwrap();
        Registrar::of_folder(file, format!("node{nth}"), "m".to_owned())
    };
    start(0).register(open(&cluster).await).await.unwrap();
    let b = worker("b", target(cluster.server.port, false)).await;
    add_jobs(&b, 0, 1).await;
    let snapshot = cluster.server.snapshot();
    start(1).register(open(&cluster).await).await.unwrap();
    cluster.run("UPDATE node SET mark = mark + 100").await;
    for nth in 0..2 {
        start(nth).register(open(&cluster).await).await.unwrap();
    }
    b.close();
    cluster.server.put_back(&snapshot);
    let held = "job WHERE state = 'held' AND reason = 'restored'";
    start(0).register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count(held).await, 1);
    cluster.run("UPDATE job SET state = 'ready', reason = NULL").await;
    // Another node has acted on it.
    start(1).register(open(&cluster).await).await.unwrap();
    assert_eq!((cluster.count(held).await, cluster.count("restored").await), (0, 1));

    // The others have caught up with the sum since a copy that has less of this node's own work.
    cluster.run("UPDATE node SET mark = mark + 9 WHERE name = 'node1'").await;
    for (more, held_jobs) in [(0, 0), (5, 1)] {
        let file = NodeFile::open(&folders[0].path().join("h.db")).unwrap();
        let mut node =
            hooklatch::store::postgres::Node::of_folder(&file, "node0".to_owned(), "m".to_owned());
        node.own_mark += more;
        Registrar::new(node).register(open(&cluster).await).await.unwrap();
        assert_eq!(cluster.count(held).await, held_jobs, "{more}");
    }

    cluster.run("UPDATE node SET mark = mark + 100").await;
    start(1).register(open(&cluster).await).await.unwrap();
    let other = Cluster::new(&[]).await;
    let c = worker("c", target(other.server.port, false)).await;
    add_jobs(&c, 0, 1).await;
    start(1).register(open(&other).await).await.unwrap();
    assert_eq!((other.count(held).await, other.count("restored").await), (0, 0));
}

/// A dump loaded into another database of the same server: system and timeline are the same.
#[tokio::test]
async fn a_dump_in_another_database_of_the_server_is_noticed() {
    let cluster = Cluster::new(&[]).await;
    let node = node("a");
    let (to, registrar) = (target(cluster.server.port, false), Registrar::new(node.clone()));
    let (a, task) = Writer::start(to, registrar, &Limits::default(), Clock::system());
    ready(&a).await;
    add_jobs(&a, 0, 2).await;
    a.close();
    task.await.unwrap();
    let admin = cluster.server.admin().await;
    // Once more the same database: nothing is held.
    Registrar::new(node.clone()).register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count("job WHERE state = 'held'").await, 0);
    admin.batch_execute("ALTER DATABASE app RENAME TO before").await.unwrap();
    admin.batch_execute("CREATE DATABASE app OWNER app TEMPLATE before").await.unwrap();
    Registrar::new(node).register(open(&cluster).await).await.unwrap();
    assert_eq!(cluster.count("job WHERE state = 'held' AND reason = 'restored'").await, 2);
}
