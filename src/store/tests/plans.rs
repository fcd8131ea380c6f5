//! What statements cost: their plans, and their steps where many rows lie about.
use rusqlite::types::ToSql;

use super::*;
use crate::store::sqlite::admin::counts::{
    NEXT_READY, READY, SOME_READY, SOME_STUCK, STUCK, WAITING,
};
use crate::store::sqlite::jobs::claim::CHOOSE;
use crate::store::sqlite::tables::group::{LEFT_WHEN_HELD, NEWER, RELEASE, SUPERSEDE, hold_all};
use crate::store::sqlite::tables::job::handlers_with_work;
use crate::store::sqlite::tables::replay_index::{REPEATS, TWINS, UNDER_ANOTHER_TYPE};
use crate::store::sum::Given;

#[tokio::test]
async fn the_guard_looks_up_a_body_by_its_own_indexes() {
    let mut bench = bench();
    let plan = |conn: &Connection, sql: &str| -> Vec<String> {
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let unset = vec![rusqlite::types::Null; plan.parameter_count()];
        let steps = plan.query_map(rusqlite::params_from_iter(unset), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    const FIRST: &str = "event_first (<expr>=?)";
    const REPEATED: &str = "event_repeated (digest=? AND source=?";
    const BY_ROW: &str = "SEARCH event USING INTEGER PRIMARY KEY (rowid=?)";
    bench
        .with_file(|conn| {
            for (sql, repeated) in [(REPEATS, 1), (UNDER_ANOTHER_TYPE, 2), (TWINS, 1)] {
                let plan = plan(conn, sql);
                let steps = |what: &str| plan.iter().filter(|step| step.contains(what)).count();
                assert_eq!((steps(FIRST), steps(REPEATED)), (1, repeated), "{sql}: {plan:#?}");
                let others = steps("event") - steps("event_") - steps(BY_ROW);
                assert_eq!(others, 0, "{sql}: {plan:#?}");
            }
        })
        .await;
}

#[tokio::test]
async fn no_count_walks_what_is_settled() {
    let mut bench = bench();
    bench
        .with_file(|conn| {
            for sql in [READY, NEXT_READY, SOME_READY, WAITING, STUCK, SOME_STUCK] {
                let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let unset = vec![rusqlite::types::Null; statement.parameter_count()];
                let unset = rusqlite::params_from_iter(unset);
                let steps = statement.query_map(unset, |row| row.get(3)).unwrap();
                let steps = steps.collect::<rusqlite::Result<Vec<String>>>().unwrap();
                let tables: Vec<_> = steps.iter().filter(|step| step.contains(" job_")).collect();
                assert!(!tables.is_empty(), "{steps:?}");
                let indexed = |step: &&String| step.contains("INDEX job_");
                assert!(tables.iter().all(indexed), "{steps:?}");
            }
        })
        .await;
}

#[tokio::test]
async fn which_handlers_have_work_costs_no_more_where_many_jobs_wait() {
    let mut bench = bench();
    for event in 0..300 {
        let event = stripe(&format!("e{event}"), "a", "{}");
        bench.accept("stripe", event, &["a", "b", "c"]).await;
    }
    bench
        .with_file(|conn| {
            let mut conn = Connection::open(conn.path().unwrap()).unwrap();
            // What is counted is not the reading of the schema.
            assert_eq!(handlers_with_work(&conn).unwrap().len(), 3);
            let steps = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
            let counter = std::sync::Arc::clone(&steps);
            let count = move || counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 200;
            conn.progress_handler(1, Some(count)).unwrap();
            let found = handlers_with_work(&conn);
            assert_eq!(found, Ok(["a", "b", "c"].map(name).into()), "{steps:?} steps");
        })
        .await;
}

/// So many jobs of a group as only a bulk replay leaves: a transaction drops a bounded number, the next one goes on.
#[tokio::test]
async fn a_new_event_drops_a_bounded_number_of_jobs() {
    let mut bench = many(1_000).await;
    let latest = "UPDATE job SET group_rule = 'latest'";
    bench.with_file(|conn| conn.execute_batch(latest).unwrap()).await;
    for (event, dropped) in [("n1", 200), ("n2", 400)] {
        bench.event(event, "k", GroupRule::Latest).await;
        bench.whole().await;
        let filter = JobFilter { state: Some(State::Dropped), ..JobFilter::default() };
        assert_eq!(bench.store.admin.jobs(filter).await.unwrap().rows.len(), dropped);
    }
    assert_eq!(bench.state("n1").await.0, State::Dropped, "the newest ones first");
    assert_eq!(bench.starts().await, ["m_3"], "and the one that held");
}

/// A store with this many jobs of one group, of which the first may run.
async fn many(jobs: u32) -> Bench {
    let mut bench = bench();
    let frame = crate::store::codec::compress_now(b"{}").unwrap();
    let body: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let fill = format!(
        "PRAGMA synchronous = OFF;
         BEGIN;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs})
         INSERT INTO event (row, source, event_id, type, digest, guarded, received_at, body_bytes)
         SELECT i, 'stripe', 'm_' || i, 'a', zeroblob(32), 0, {START}, 2 FROM n;
         INSERT INTO payload (event, headers, body, sum) SELECT row, x'', x'{body}', 0 FROM event;
         INSERT INTO job (id, event, handler, state, since, created_at, group_key, group_rule, behind)
         SELECT randomblob(16), row, 'h', 'ready', {START}, {START}, '[\"stripe\",\"k\"]', 'block', row > 1 FROM event;
         COMMIT;",
        START = START.0
    );
    let filled = |conn: &Connection| {
        conn.execute_batch(&fill).unwrap();
        // Of those that are claimed.
        for row in 1..=3 {
            let (event_id, event_type) = (format!("m_{row}"), EventType::from_raw("a"));
            let (source, event_id, event_type) = ("stripe", event_id.as_str(), &event_type);
            let given = Given { source, event_id, event_type, headers: b"", body: &frame };
            let sum = "UPDATE payload SET sum = ?2 WHERE event = ?1";
            conn.execute(sum, (row, given.sum(START))).unwrap();
        }
    };
    bench.with_file(filled).await;
    bench
}

/// The steps of SQLite's machine that `work` takes on this file.
fn steps(path: &std::path::Path, work: impl FnOnce(&Connection)) -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    let mut conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    let tick = move || counter.fetch_add(1, Ordering::Relaxed) > 1_000_000;
    conn.progress_handler(1, Some(tick)).unwrap();
    work(&conn);
    count.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_group_of_many_costs_what_a_group_of_few_does() {
    let mut costs = Vec::new();
    for jobs in [20, 200_000] {
        let bench = many(jobs).await;
        let count = |sql: &str, values: &[&dyn ToSql]| {
            steps(&bench.settings.path, |conn| {
                let mut statement = conn.prepare(sql).unwrap();
                let values = &values[..statement.parameter_count()];
                let mut rows = statement.query(values).unwrap();
                while rows.next().unwrap().is_some() {}
            })
        };
        let key = "[\"stripe\",\"k\"]";
        let [ready, waiting] = CHOOSE.map(|sql| count(sql, &[&"h", &9, &START.0]));
        let kept = count(RELEASE, &[&"h", &key]);
        let gone = "UPDATE job SET state = 'succeeded', settled_at = 1 WHERE row = 1";
        steps(&bench.settings.path, |conn| conn.execute_batch(gone).unwrap());
        costs.push([ready, waiting, kept, count(RELEASE, &[&"h", &key])]);
        // At both ends: the second starts and ends, the third starts, and one more arrives.
        let second = bench.claim_one().await;
        bench.event("last", "k", GroupRule::Block).await;
        bench.complete(&second, Outcome::Succeeded, Next::Succeeded).await;
        assert_eq!(bench.starts().await, ["m_3"]);
        bench.whole().await;
    }
    for (few, many) in costs[0].iter().zip(costs[1]) {
        assert!(many <= few + 2, "{costs:?}");
    }
}

/// A move of one job does not look at the jobs that were dropped or held before.
#[tokio::test]
async fn dropped_and_held_jobs_cost_the_others_of_their_handler_nothing() {
    let mut costs = Vec::new();
    for jobs in [20, 20_000] {
        let mut bench = many(jobs).await;
        let key = "[\"stripe\",\"k\"]";
        let newer = |path: &std::path::Path| {
            steps(path, |conn| {
                let mut newer = conn.prepare(NEWER).unwrap();
                assert!(!newer.exists((&"h", key, 1)).unwrap());
            })
        };
        let dropped = "UPDATE job SET group_rule = 'latest', behind = 0, state = 'dropped', reason = 'superseded',
             settled_at = 1";
        bench.with_file(|conn| conn.execute_batch(dropped).unwrap()).await;
        let of_newer = newer(&bench.settings.path);
        // Each group has a held job, and one behind it.
        let held = "UPDATE job SET state = 'held', reason = 'handler gone', settled_at = NULL, group_rule = 'block',
                 group_key = row / 2, behind = row % 2;
             UPDATE job SET state = 'ready', reason = NULL, group_rule = 'latest', group_key = 'k', behind = 0
             WHERE row = 2";
        bench.with_file(|conn| conn.execute_batch(held).unwrap()).await;
        let of_hold = steps(&bench.settings.path, |conn| {
            assert_eq!(hold_all(conn, "h", HeldReason::HandlerGone), Ok(1));
        });
        costs.push([of_newer, of_hold]);
    }
    for (few, many) in costs[0].iter().zip(costs[1]) {
        assert!(many <= few + 2, "{costs:?}");
    }
}

#[tokio::test]
async fn every_statement_of_a_group_is_served_by_an_index() {
    let mut bench = bench();
    bench
        .with_file(|conn| {
            let plan = |sql: &str| -> Vec<String> {
                let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let unset = vec![rusqlite::types::Null; statement.parameter_count()];
                let steps =
                    statement.query_map(rusqlite::params_from_iter(unset), |row| row.get(3)).unwrap();
                steps.collect::<rusqlite::Result<_>>().unwrap()
            };
            for (sql, steps) in [
                (CHOOSE[0], vec!["SEARCH job USING COVERING INDEX job_ready (handler=? AND behind=?)"]),
                (
                    CHOOSE[1],
                    vec!["SEARCH job USING COVERING INDEX job_waiting (handler=? AND behind=? AND due_at<?)"],
                ),
                (
                    RELEASE,
                    vec![
                        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
                        "SEARCH job USING COVERING INDEX job_behind (handler=? AND group_key=?)",
                        "SEARCH job USING INDEX job_holder (handler=? AND group_key=?)",
                    ],
                ),
                (
                    NEWER,
                    vec!["SEARCH job USING INDEX job_begun (handler=? AND group_key=? AND event>?)"],
                ),
                (
                    SUPERSEDE,
                    vec![
                        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
                        "SEARCH job USING INDEX job_holder (handler=? AND group_key=?)",
                        "SEARCH job USING COVERING INDEX job_behind (handler=? AND group_key=? AND event<?)",
                        "SCAN (subquery-2)",
                    ],
                ),
                (
                    LEFT_WHEN_HELD,
                    vec![
                        "SEARCH job USING INDEX job_ready (handler=? AND behind=?)",
                        "SEARCH job USING INDEX job_waiting (handler=? AND behind=?)",
                    ],
                ),
            ] {
                let mut found = plan(sql);
                found.retain(|step| step.starts_with("SEARCH") || step.starts_with("SCAN") || step.contains("TEMP"));
                assert_eq!(found, steps, "{sql}");
            }
        })
        .await;
}
