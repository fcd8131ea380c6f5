//! Jobs of groups, accepted at several nodes at once.

use std::sync::Arc;
use std::time::Duration;

use hooklatch::model::{GroupKey, GroupRule, OnRedelivery, Outcome, State};
use hooklatch::retry::Next;
use hooklatch::store::postgres::Writer;
use hooklatch::store::{Accept, Accepted, Delay, Group};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cluster::{CREATED, Cluster, begin, github, new, stripe};
use super::server::PATIENCE;
use super::working::{claim, complete, end, holder};

/// A new event whose job is in the group `key`.
fn grouped(id: &str, key: &str, rule: GroupRule) -> Accept {
    let mut event = new(stripe(id, "{}"));
    event.jobs[0].group = Some(Group { key: GroupKey::kept(key.to_owned()), rule });
    event
}

fn delayed(id: &str, wait: u64, most: u64) -> Accept {
    let mut event = grouped(id, "k", GroupRule::Latest);
    let [wait, most] = [wait, most].map(Duration::from_secs);
    event.jobs[0].delay = Some(Delay { wait, most });
    event
}

async fn store(writer: &Writer, event: Accept) {
    assert_eq!(writer.accept(event, Instant::now() + PATIENCE).await, Ok(CREATED));
}

/// Spawns [`store`], which is queued when this returns.
async fn storing(writer: &Writer, event: Accept) -> JoinHandle<()> {
    let writer = writer.clone();
    let task = tokio::spawn(async move { store(&writer, event).await });
    tokio::task::yield_now().await;
    task
}

/// Stores these events in one transaction.
async fn store_at_once(cluster: &Cluster, writer: &Writer, events: Vec<Accept>) {
    let gate = cluster.hold().await;
    let first = begin(
        writer,
        github(
            &format!("first {}", events.len()).replace(' ', ""),
            "push",
            &events.len().to_string(),
        ),
    )
    .await;
    cluster.blocked(1).await;
    let mut tasks = Vec::new();
    for event in events {
        tasks.push(storing(writer, event).await);
    }
    drop(gate);
    first.await.unwrap().unwrap();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Each job of a group: `*` if it holds the group, `-` if it is behind, then the event's id, and how it is.
async fn jobs(cluster: &Cluster) -> String {
    let jobs = "SELECT string_agg(CASE WHEN behind THEN '-' WHEN holds THEN '*' ELSE '' END || event_id || ' ' || state
            || coalesce(' by ' || (SELECT event_id FROM event e JOIN job n ON n.event = e.row
                WHERE n.id = job.superseded_by), ''), ', ' ORDER BY event.row)
        FROM job JOIN event ON event.row = job.event WHERE group_key IS NOT NULL";
    cluster.get(jobs).await
}

/// At most one job holds the group, while none does none is behind, and jobs start in the order of their numbers. The
/// next one is accepted when the only one has begun, so that accepts meet its end.
#[tokio::test]
async fn a_group_that_two_nodes_fill_while_its_jobs_end_starts_each_once_and_in_order() {
    let cluster = Cluster::new(&[]).await;
    let nodes = [holder(&cluster, "a").await, holder(&cluster, "b").await];
    let places = Arc::new(Semaphore::new(1));
    let mut tasks = Vec::new();
    for (node, writer) in nodes.iter().cloned().enumerate() {
        let places = Arc::clone(&places);
        tasks.push(tokio::spawn(async move {
            for number in 0..200 {
                places.acquire().await.unwrap().forget();
                store(&writer, grouped(&format!("e{node}_{number}"), "k", GroupRule::Block)).await;
            }
        }));
    }
    let admin = cluster.admin().await;
    let mut started: Vec<i64> = Vec::new();
    let until = Instant::now() + 2 * PATIENCE;
    while started.len() < 400 {
        let holders = "SELECT count(*) FILTER (WHERE holds AND NOT behind), count(*) FILTER (WHERE behind) FROM job";
        let row = admin.query_one(holders, &[]).await.unwrap();
        let (holds, behind): (i64, i64) = (row.get(0), row.get(1));
        assert!(holds == 1 || (holds, behind) == (0, 0), "{holds} hold, {behind} are behind");
        assert!(Instant::now() < until, "{} started: {}", started.len(), jobs(&cluster).await);
        let node = &nodes[started.len() % 2];
        let attempts = claim(node, 5).await;
        for attempt in &attempts {
            let number = format!("SELECT event FROM job WHERE id = '{}'", attempt.running.job);
            started.push(admin.query_one(&number, &[]).await.unwrap().get(0));
            places.add_permits(1);
        }
        assert!(attempts.len() < 2);
        for attempt in &attempts {
            complete(node, end(attempt, Outcome::Succeeded, Next::Succeeded)).await;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(started.is_sorted(), "{started:?}");
    assert_eq!(cluster.count("job WHERE state = 'succeeded' AND attempt = 1").await, 400);
}

#[tokio::test]
async fn of_a_batch_each_group_has_one_job_that_holds_it_and_the_latest_wins_where_it_should() {
    use GroupRule::{Block, Latest, StepOver};
    let cluster = Cluster::new(&[]).await;
    let node = holder(&cluster, "a").await;
    let mut undecided = grouped("u", "s", StepOver);
    undecided.jobs[0].undecided = Some("why".to_owned());
    let mut passed = grouped("p", "l", Latest);
    passed.jobs[0].undecided = Some("why".to_owned());
    let events = vec![
        grouped("b1", "b", Block),
        grouped("l1", "l", Latest),
        // Held, it holds its group.
        undecided,
        grouped("b2", "b", Block),
        grouped("l2", "l", Latest),
        grouped("s1", "s", StepOver),
        grouped("l3", "l", Latest),
        // Held, it replaces none, where the latest wins.
        passed,
    ];
    store_at_once(&cluster, &node, events).await;
    let expected = "*b1 ready, l1 dropped by l3, *u held, -b2 ready, l2 dropped by l3, -s1 ready, *l3 ready, p held";
    assert_eq!(jobs(&cluster).await, expected);
    // What runs is not replaced; what waits behind it is.
    // With that of the first event, which has no group.
    assert_eq!(claim(&node, 9).await.len(), 3);
    store(&node, grouped("l4", "l", Latest)).await;
    store(&node, grouped("l5", "l", Latest)).await;
    let expected = "*b1 running, l1 dropped by l3, *u held, -b2 ready, l2 dropped by l3, -s1 ready, *l3 running, \
        p held, l4 dropped by l5, -l5 ready";
    assert_eq!(jobs(&cluster).await, expected);
}

/// The claim has the job's row when the newer event comes.
#[tokio::test]
async fn a_job_that_begins_meanwhile_is_not_replaced() {
    let cluster = Cluster::new(&[]).await;
    let node = holder(&cluster, "a").await;
    store(&node, grouped("e1", "k", GroupRule::Latest)).await;
    let claiming = cluster.admin().await;
    claiming.batch_execute("BEGIN; UPDATE job SET state = 'running', attempt = 1").await.unwrap();
    let newer = storing(&node, grouped("e2", "k", GroupRule::Latest)).await;
    cluster.blocked(1).await;
    claiming.batch_execute("COMMIT").await.unwrap();
    newer.await.unwrap();
    assert_eq!(jobs(&cluster).await, "*e1 running, -e2 ready");
}

/// An accept that waited for the group's lock has its number and its time from behind it.
#[tokio::test]
async fn number_and_delay_are_taken_behind_the_lock_of_the_group() {
    let cluster = Cluster::new(&[]).await;
    let nodes = [holder(&cluster, "a").await, holder(&cluster, "b").await];
    store(&nodes[0], delayed("e0", 60, 3600)).await;
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; SELECT FROM job_group FOR UPDATE").await.unwrap();
    let waiting = storing(&nodes[0], delayed("e1", 60, 3600)).await;
    cluster.blocked(1).await;
    // Of no group, so it goes by.
    let other = begin(&nodes[1], stripe("x", "{}")).await;
    assert_eq!(other.await.unwrap(), Ok(CREATED));
    let at: i64 =
        cluster.get("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").await;
    gate.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap();
    let order = "SELECT string_agg(event_id, ' ' ORDER BY row) FROM event";
    assert_eq!(cluster.get::<String>(order).await, "e0 x e1");
    let due = format!(
        "SELECT due_at - 60000 >= {at} FROM job WHERE state = 'waiting' AND group_key IS NOT NULL"
    );
    assert!(cluster.get::<bool>(&due).await);
}

#[tokio::test]
async fn a_debounce_waits_from_the_last_event_but_no_longer_than_its_most_from_the_first() {
    let cluster = Cluster::new(&[]).await;
    let node = holder(&cluster, "a").await;
    let waits = "SELECT (wait_since - created_at) || ' ' || (due_at - created_at) || ' ' || (since - due_at)
        FROM job WHERE state = 'waiting'";
    store(&node, delayed("e1", 60, 100)).await;
    assert_eq!(cluster.get::<String>(waits).await, "0 60000 0");
    // Of one batch, the first has waited for 50 s.
    cluster
        .run("UPDATE job SET created_at = created_at - 50000, wait_since = wait_since - 50000")
        .await;
    let first: i64 = cluster.get("SELECT wait_since FROM job").await;
    let batch = vec![delayed("e2", 60, 100), delayed("e3", 60, 100), delayed("e4", 60, 100)];
    store_at_once(&cluster, &node, batch).await;
    assert_eq!(
        cluster.get::<i64>("SELECT wait_since FROM job WHERE state = 'waiting'").await,
        first
    );
    let most = "SELECT due_at - wait_since FROM job WHERE state = 'waiting'";
    assert_eq!(cluster.get::<i64>(most).await, 100_000);
    assert_eq!(
        jobs(&cluster).await,
        "e1 dropped by e4, e2 dropped by e4, e3 dropped by e4, *e4 waiting"
    );
    // One that has run is no part of the wait.
    cluster.run("UPDATE job SET attempt = 1 WHERE state = 'waiting'").await;
    store(&node, delayed("e5", 60, 100)).await;
    assert_eq!(cluster.get::<String>(waits).await, "0 60000 0");
}

#[tokio::test]
async fn a_redelivery_puts_back_what_may_run_behind_the_job_that_holds_its_group() {
    let cluster = Cluster::new(&[]).await;
    let node = holder(&cluster, "a").await;
    let redeliver = async |id: &str, key: &str, rule| {
        let mut event = grouped(id, key, rule);
        event.on_redelivery = OnRedelivery::ReplayDead;
        match node.accept(event, Instant::now() + PATIENCE).await.unwrap() {
            Accepted::Duplicate { state, replayed, .. } => (state, replayed),
            created => panic!("{created:?}"),
        }
    };
    let die = async |id: &str| {
        let sql = format!(
            "UPDATE job SET state = 'dead', reason = 'rejected', settled_at = now_ms(), attempt = attempt + 1, behind = false
            WHERE event = (SELECT row FROM event WHERE event_id = '{id}')"
        );
        cluster.run(&sql).await;
    };
    use GroupRule::{Block, Latest, StepOver};
    let (ready, dead) = (Some(State::Ready), Some(State::Dead));
    // Where a dead job blocks, it holds the group itself.
    store(&node, grouped("b1", "b", Block)).await;
    die("b1").await;
    store(&node, grouped("b2", "b", Block)).await;
    assert_eq!(redeliver("b1", "b", Block).await, (ready, 1));
    assert_eq!(jobs(&cluster).await, "*b1 ready, -b2 ready");
    cluster.run("DELETE FROM job").await;

    // Another one holds it now. The configuration has another key since, so the job's own group is found on the way.
    store(&node, grouped("s1", "s", StepOver)).await;
    die("s1").await;
    store(&node, grouped("s2", "s", StepOver)).await;
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; SELECT FROM job_group WHERE key = 's' FOR UPDATE").await.unwrap();
    let (told, ()) = tokio::join!(redeliver("s1", "new key", StepOver), async {
        cluster.blocked(1).await;
        assert_eq!(jobs(&cluster).await, "s1 dead, *s2 ready", "behind the lock");
        gate.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(told, (ready, 1));
    assert_eq!(jobs(&cluster).await, "-s1 ready, *s2 ready");
    cluster.run("DELETE FROM job").await;

    // A newer one has begun, or is to begin; or retention has removed one that had run.
    store(&node, grouped("l1", "l", Latest)).await;
    die("l1").await;
    assert_eq!(redeliver("l1", "l", Latest).await, (ready, 1));
    die("l1").await;
    store(&node, grouped("l2", "l", Latest)).await;
    assert_eq!(redeliver("l1", "l", Latest).await, (dead, 0));
    cluster.run("DELETE FROM event WHERE event_id = 'l2'").await;
    assert_eq!(redeliver("l1", "l", Latest).await, (ready, 1));
    die("l1").await;
    cluster.run("UPDATE meta SET newest_removed = 999999").await;
    assert_eq!(redeliver("l1", "l", Latest).await, (dead, 0));
    cluster.run("UPDATE meta SET newest_removed = 0").await;

    // It may have succeeded after the state that the database was put back to.
    let restored = "INSERT INTO restored (from_store, restored_at, held) VALUES (gen_random_uuid(), now_ms() + 1, 0)";
    cluster.run(restored).await;
    assert_eq!(redeliver("l1", "l", Latest).await, (dead, 0));
    cluster.run("DELETE FROM restored").await;

    // Its caller has the answer.
    let answered = "INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors, answered_at, status, headers, body, body_bytes)
        SELECT event, 'stripe', '', 'l1', decode(repeat('00', 32), 'hex'), 0, 0, 0, 1, 200, '', '', 0 FROM job";
    cluster.run(answered).await;
    assert_eq!(redeliver("l1", "l", Latest).await, (dead, 0));
    cluster.run("DELETE FROM answer").await;
    assert_eq!(redeliver("l1", "l", Latest).await, (ready, 1));
}
