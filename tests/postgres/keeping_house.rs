//! What any node does from time to time for all: orphans, notices, retention.

use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::model::Timestamp;
use hooklatch::model::{HeldReason, JobId, Name, OnUnknown};
use hooklatch::pattern::Pattern;
use hooklatch::store::postgres::{Housekeeping, NodeNotices};
use hooklatch::store::{Accepted, ClockWatch, Cutoffs, NoticeSubscribers};
use uuid::Uuid;

use super::cluster::{Cluster, accept, github};
use super::operating::{DEAD, HELD, add_event, add_job, job_of};
use super::site::target;
use super::working::{add_jobs, lose, session, worker};

fn housekeeping(cluster: &Cluster, takers: &[(&str, &str)]) -> Housekeeping {
    let notices = NodeNotices::default();
    let takers = takers
        .iter()
        .map(|(name, pattern)| (name.parse().unwrap(), vec![Pattern::new(*pattern, true)]));
    notices.set(NoticeSubscribers::new(takers.collect()));
    let node = Uuid::from_bytes([1; 16]);
    Housekeeping::new(target(cluster.server.port, false), Clock::system(), notices, node)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_jobs_of_a_handler_are_held_once_no_node_has_it() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Hold).await;
    let keeper = housekeeping(&cluster, &[("mail", "job")]);
    add_jobs(&a, 0, 2).await;
    let group = "group_key = 'k', group_rule = 'latest'";
    let first =
        add_job(&cluster, "first", &format!("state = 'waiting', due_at = 9, {group}")).await;
    add_job(&cluster, "behind", &format!("behind = true, {group}")).await;
    let failed = add_job(&cluster, "failed", DEAD).await;
    // Another node has it.
    assert_eq!(keeper.hold_orphans(Vec::new()).await, Ok(0));
    session(&a).await;
    a.close();
    lose(&cluster, "a").await;
    assert_eq!(keeper.hold_orphans(vec![name("h")]).await, Ok(0));
    assert_eq!(keeper.hold_orphans(vec![name("other")]).await, Ok(4));
    assert_eq!(keeper.hold_orphans(Vec::new()).await, Ok(0));
    let reason = HeldReason::HandlerGone;
    assert_eq!(cluster.count(&format!("job WHERE reason = '{reason}' AND NOT behind")).await, 4);
    let state = |job: JobId| format!("SELECT state FROM job WHERE id = '{job}'");
    assert_eq!(cluster.get::<String>(&state(failed)).await, "dead");
    assert_eq!(cluster.get::<String>(&state(first)).await, "held");
    // One event of four, told by one of two nodes, and once.
    let other = housekeeping(&cluster, &[("mail", "job")]);
    let nobody = housekeeping(&cluster, &[("mail", "store")]);
    assert_eq!(nobody.tell_notices().await, Ok(0));
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; LOCK TABLE payload IN EXCLUSIVE MODE").await.unwrap();
    let telling = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.tell_notices().await }
    });
    cluster.blocked(1).await;
    assert_eq!(other.tell_notices().await, Ok(0));
    drop(gate);
    assert_eq!(telling.await.unwrap(), Ok(1));
    assert_eq!(keeper.tell_notices().await, Ok(0));
    let told = "event JOIN payload ON payload.event = event.row JOIN job ON job.event = event.row
        WHERE source = 'hooklatch' AND type = 'job.held' AND job.handler = 'mail' AND job.state = 'ready'
            AND NOT guarded AND body_bytes > 100";
    assert_eq!(cluster.count(told).await, 1);
    // Its own job makes no notice; later ones are counted until the window has passed.
    assert_eq!(keeper.hold_orphans(Vec::new()).await, Ok(1));
    assert_eq!(cluster.count("notice WHERE count > 0").await, 0);
    add_job(&cluster, "later", "").await;
    assert_eq!(keeper.hold_orphans(Vec::new()).await, Ok(1));
    assert_eq!(keeper.tell_notices().await, Ok(0));
    let waits: String = cluster.get("SELECT count || ' ' || event_id FROM notice").await;
    assert_eq!(waits, "1 later");
    cluster.run("UPDATE notice SET reported_at = reported_at - 600000").await;
    assert_eq!(keeper.tell_notices().await, Ok(1));
    cluster.run("UPDATE notice SET reported_at = reported_at - 600000").await;
    assert_eq!(keeper.tell_notices().await, Ok(0));
    assert_eq!(cluster.count("notice").await, 0);
}

#[tokio::test]
async fn due_times_and_clocks_are_kept_by_the_databases_clock() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Hold).await;
    let notices = NodeNotices::default();
    let node = session(&a).await.session.node;
    let keeper =
        Housekeeping::new(target(cluster.server.port, false), Clock::system(), notices, node);
    add_job(&cluster, "past", "state = 'waiting', due_from = 1, due_at = now_ms() + 60000").await;
    assert_eq!(keeper.clamp_due().await, Ok(0));
    let ahead =
        "state = 'waiting', due_from = now_ms() + 999999999, due_at = now_ms() + 1000001999";
    add_job(&cluster, "ahead", ahead).await;
    let behind = "behind = true, group_key = 'k', group_rule = 'block'";
    add_job(&cluster, "behind", &format!("{ahead}, {behind}")).await;
    assert_eq!(keeper.clamp_due().await, Ok(2));
    assert_eq!(keeper.clamp_due().await, Ok(0));
    let moved = "job WHERE due_at = due_from + 2000 AND due_from <= now_ms()";
    assert_eq!(cluster.count(moved).await, 2);
    assert_eq!(keeper.clock_watch().await, Ok(None));
    let watch = ClockWatch {
        wall: Timestamp(5),
        monotonic: Duration::from_millis(6),
        quiet_until: Duration::from_millis(7),
    };
    keeper.keep_clock_watch(watch).await.unwrap();
    assert_eq!(keeper.clock_watch().await, Ok(Some(watch)));
    let now: i64 = cluster.get("SELECT now_ms()").await;
    assert!((0..60_000).contains(&(keeper.now().await.unwrap().0 - now)));
    let newest = keeper.newest_delivery().await.unwrap().unwrap();
    assert!((0..60_000).contains(&(now - newest.0)));
}

/// 5,000 events of each kind that retention knows, and two nodes that delete at once: each is deleted once, and nothing
/// that is needed.
#[tokio::test]
async fn two_nodes_at_once_delete_each_thing_once_and_nothing_that_is_needed() {
    let cluster = Cluster::new(&[]).await;
    let day = 86_400_000_i64;
    cluster
        .run(&format!(
            "INSERT INTO node (id, name, machine, session, count, version, state)
             VALUES (gen_random_uuid(), 'a', 'm', gen_random_uuid(), 1, '1', 'active');
             INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated,
                flagged, has_key)
             SELECT 's', 'e' || n, 0, 'a.b', sha256(n::text::bytea), now_ms() - (CASE WHEN n % 10 = 9 THEN 0 ELSE 50 END)::bigint
                * {day}, 0, true, false, false, n % 10 = 8
             FROM generate_series(1, 5000) n;
             INSERT INTO payload SELECT row, '', '', 0 FROM event WHERE row % 10 <> 7;
             INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
             SELECT row, digest, received_at, '', 0, '' FROM event WHERE row % 10 < 2;
             INSERT INTO job (id, event, handler, state, reason, attempt, since, created_at, settled_at, due_at,
                group_key, group_rule)
             SELECT gen_random_uuid(), row, 'h',
                (ARRAY['succeeded', 'dropped', 'dead', 'held', 'waiting', 'succeeded', 'dead', 'dead', 'dead',
                    'succeeded'])[row % 10 + 1],
                (ARRAY[NULL, 'by the operator', 'rejected', 'cancelled', NULL, NULL, 'rejected', 'rejected', 'rejected',
                    NULL])[row % 10 + 1],
                1, 1, 1,
                CASE WHEN row % 10 IN (3, 4) THEN NULL WHEN row % 10 = 5 THEN now_ms()
                    ELSE now_ms() - 40::bigint * {day} END,
                CASE WHEN row % 10 = 4 THEN 1 END,
                CASE WHEN row % 10 IN (0, 6) THEN row::text END,
                CASE row % 10 WHEN 0 THEN 'latest' WHEN 6 THEN 'block' END
             FROM event;
             INSERT INTO attempt (job, number, started_at, node, claimant, finished_at, outcome, stdout_head, stdout_total)
             SELECT row, 1, 1, (SELECT id FROM node), NULL, 2, 'failed', 'secret', 6 FROM job;
             INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
             SELECT row, 's', '', event_id, digest, 1, CASE row % 20 WHEN 8 THEN 2 ELSE now_ms() * 2 END, 3
             FROM event WHERE has_key;
             INSERT INTO job_group SELECT handler, group_key FROM job WHERE group_key IS NOT NULL;
             INSERT INTO late_end SELECT gen_random_uuid(), 1, gen_random_uuid(), 'failed', '', n * now_ms()
             FROM generate_series(0, 1) n;
             INSERT INTO late_end SELECT id, 1, gen_random_uuid(), 'failed', '', 1 FROM job WHERE state = 'held' LIMIT 1;
             ANALYZE"
        ))
        .await;
    let (one, two) = (housekeeping(&cluster, &[]), housekeeping(&cluster, &[]));
    let now = one.now().await.unwrap();
    let days = |days: u64| now.before(Duration::from_secs(days * 86_400));
    let keys = tokio::join!(one.expire_keys(now), two.expire_keys(now));
    assert_eq!(keys.0.unwrap() + keys.1.unwrap(), 250);
    assert_eq!(cluster.count("answer").await, 250);
    let before = Cutoffs { payloads: days(10), ids: days(100), dead: days(60) };
    let both = tokio::join!(one.expire(before), two.expire(before));
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    println!("payloads {} and {}", first.payloads, second.payloads);
    // Of 0 and 1: their jobs are done for good and old enough. Others have a younger job, one that waits for a person
    // or its time, or are young themselves.
    assert_eq!(first.payloads + second.payloads, 1000);
    assert_eq!(first.events + second.events, 0);
    let left: String = cluster
        .get(
            "SELECT string_agg(kind || ' ' || events, ', ' ORDER BY kind)
             FROM (SELECT event % 10 AS kind, count(*) AS events FROM payload GROUP BY 1) left_over",
        )
        .await;
    assert_eq!(left, "2 500, 3 500, 4 500, 5 500, 6 500, 8 500, 9 500");
    assert_eq!(cluster.count("job").await, 4000);
    assert_eq!(cluster.count("event WHERE removed_succeeded = 1").await, 500);
    assert_eq!(cluster.count("event WHERE removed_dropped = 1").await, 500);
    assert_eq!(cluster.count("evidence").await, 0);
    assert_eq!(cluster.get::<i64>("SELECT newest_removed FROM meta").await, 5000);
    assert_eq!(cluster.count("job_group").await, 500);
    // The dead are old enough now: 2, 6 and half of 8 (its key is gone) lose the payload, and keep the job without what
    // it printed.
    let before = Cutoffs { payloads: days(10), ids: days(10), dead: days(10) };
    let both = tokio::join!(one.expire(before), two.expire(before));
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    println!("events {} and {}", first.events, second.events);
    assert_eq!(first.payloads + second.payloads, 500 + 500 + 250);
    // 0, 1, 2, 7 and half of 8: a dead job that holds its group keeps its event.
    assert_eq!(first.events + second.events, 4 * 500 + 250);
    let left: String = cluster
        .get(
            "SELECT string_agg(kind || ' ' || events, ', ' ORDER BY kind)
             FROM (SELECT row % 10 AS kind, count(*) AS events FROM event GROUP BY 1) left_over",
        )
        .await;
    assert_eq!(left, "3 500, 4 500, 5 500, 6 500, 8 250, 9 500");
    assert_eq!(cluster.count("job").await, 2750);
    assert_eq!(cluster.count("attempt WHERE stdout_head = '' AND stdout_total = 6").await, 500);
    assert_eq!(cluster.count("late_end").await, 2);
    let again = one.expire(before).await.unwrap();
    assert_eq!((again.payloads, again.events), (0, 0));
}

#[tokio::test]
async fn retention_passes_over_what_another_transaction_has_locked() {
    let cluster = Cluster::new(&[]).await;
    let keeper = housekeeping(&cluster, &[]);
    for id in ["locked", "free"] {
        add_job(&cluster, id, "state = 'succeeded', settled_at = 5").await;
    }
    cluster.run("UPDATE event SET received_at = 1").await;
    let gate = cluster.admin().await;
    let lock = "BEGIN; SELECT FROM event WHERE event_id = 'locked' FOR NO KEY UPDATE";
    gate.batch_execute(lock).await.unwrap();
    let before = Cutoffs { payloads: Timestamp(100), ids: Timestamp(0), dead: Timestamp(100) };
    assert_eq!(keeper.expire(before).await.unwrap().payloads, 1);
    // A replay that commits between the look and the lock.
    gate.batch_execute("UPDATE job SET state = 'ready', settled_at = NULL; COMMIT").await.unwrap();
    assert_eq!(keeper.expire(before).await.unwrap().payloads, 0);
    assert_eq!(cluster.count("payload").await, 1);
}

#[tokio::test]
async fn a_body_is_known_as_long_as_one_event_has_it() {
    let cluster = Cluster::new(&[]).await;
    let a = cluster.node("a").await;
    let keeper = housekeeping(&cluster, &[]);
    let suspected =
        Accepted::Created { jobs: 1, held: Some(HeldReason::SuspectedReplay), flagged: false };
    accept(&a, github("first", "push", "body")).await.unwrap();
    assert_eq!(accept(&a, github("second", "push", "body")).await, Ok(suspected.clone()));
    cluster
        .run(
            "DELETE FROM payload WHERE event = (SELECT min(row) FROM event);
             UPDATE job SET state = 'succeeded', settled_at = 5 WHERE state = 'ready';
             UPDATE event SET received_at = 1 WHERE event_id = 'first'",
        )
        .await;
    let before = Cutoffs { payloads: Timestamp(100), ids: Timestamp(100), dead: Timestamp(100) };
    assert_eq!(keeper.expire(before).await.unwrap().events, 1);
    assert_eq!(accept(&a, github("third", "push", "body")).await, Ok(suspected));
    // An id is known while one of its bodies is.
    let event = add_event(&cluster, "one").await;
    job_of(&cluster, event, "h", HELD).await;
    cluster
        .run(
            "INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated,
                flagged) VALUES ('s', 'one', 1, 'a.b', sha256('two'), 1, 0, true, false, false);
             UPDATE event SET received_at = 1 WHERE event_id = 'one'",
        )
        .await;
    assert_eq!(keeper.expire(before).await.unwrap().events, 0);
    assert_eq!(cluster.count("event WHERE event_id = 'one'").await, 2);
}
