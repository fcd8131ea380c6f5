//! Listings and look-ups of a store with many events: which indexes serve them, and who waits for them.
use std::sync::mpsc;

use rusqlite::types::Null;

use super::*;
use crate::limits::PAGE_LOOK_ROWS;
use crate::store::sqlite::admin::clauses::Clauses;
use crate::store::sqlite::admin::find::{JOB_IDS, TEXT_IDS, UUID_IDS};
use crate::store::sqlite::admin::job_move::FOUND;
use crate::store::sqlite::admin::list::{self as read, NEXT_SOURCE, by_id};
use crate::store::sqlite::admin::stuck::groups_sql;

const EVENTS: i64 = 200_000;

/// Every 50,000th event is of the source `rare`, the others of `busy`; of each source the last one's job is
/// held, and one job of 1,000 is dead. They arrive a second apart.
async fn large(limits: Limits) -> Bench {
    let mut bench = bench_with(limits);
    bench
        .with_file(|conn| {
            conn.execute_batch(&format!(
                "PRAGMA synchronous = OFF;
                 BEGIN;
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EVENTS})
                 INSERT INTO event (row, source, event_id, type, digest, guarded, received_at, body_bytes)
                 SELECT i, iif(i % 50000 = 0, 'rare', 'busy'), 'evt_' || i, 'push', zeroblob(32), 0,
                     {START} + i * 1000, 2 FROM n;
                 INSERT INTO job (id, event, handler, state, reason, since, created_at, settled_at)
                 SELECT randomblob(16), row, 'h', 'succeeded', NULL, received_at, received_at, received_at
                 FROM event;
                 UPDATE job SET state = 'dead', reason = 'rejected' WHERE event % 1000 = 500;
                 UPDATE job SET state = 'held', reason = 'cancelled', settled_at = NULL
                 WHERE event >= {EVENTS} - 1;
                 COMMIT;",
                START = START.0
            ))
            .unwrap();
        })
        .await;
    bench
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let unset = vec![Null; statement.parameter_count()];
    let steps = statement.query_map(rusqlite::params_from_iter(unset), |row| row.get(3)).unwrap();
    steps.collect::<rusqlite::Result<_>>().unwrap()
}

/// The events of all pages.
async fn all_events(bench: &Bench, mut filter: EventFilter) -> Vec<EventRow> {
    let mut rows = Vec::new();
    loop {
        let page = bench.store.admin.events(filter.clone()).await.unwrap();
        rows.extend(page.rows);
        filter.before = page.next;
        if filter.before.is_none() {
            return rows;
        }
    }
}

/// The jobs of all pages.
async fn all_jobs(bench: &Bench, mut filter: JobFilter) -> Vec<JobRow> {
    let mut rows = Vec::new();
    loop {
        let page = bench.store.admin.jobs(filter.clone()).await.unwrap();
        rows.extend(page.rows);
        filter.before = page.next;
        if filter.before.is_none() {
            return rows;
        }
    }
}

fn events(conn: &Connection, filter: EventFilter) -> String {
    let mut clauses = Clauses::default();
    clauses.event(conn, &filter).unwrap();
    read::EVENTS.sql(&clauses)
}

fn jobs(conn: &Connection, filter: JobFilter) -> String {
    let mut clauses = Clauses::default();
    clauses.job(conn, &filter).unwrap();
    read::JOBS.sql(&clauses)
}

#[tokio::test]
async fn every_listing_and_look_up_is_served_by_the_index_there_is() {
    let mut bench = large(limits()).await;
    bench
        .with_file(|conn| {
            // Each begins with the step that finds the rows. Backwards by row is the order of a listing, and
            // serves what no index has.
            let source = |source| Some(name(source));
            let since = Some(START);
            let all = EventFilter::default;
            let any = JobFilter::default;
            let event_type = || Some("push".to_owned());
            let of_events = "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
            let of_jobs = "SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
            let few_of_state = "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)";
            for (sql, first) in [
                (events(conn, all()), of_events),
                (events(conn, EventFilter { event_type: event_type(), ..all() }), of_events),
                (events(conn, EventFilter { source: source("busy"), ..all() }), of_events),
                (
                    events(conn, EventFilter { source: source("rare"), ..all() }),
                    "SEARCH e USING INDEX sqlite_autoindex_event_1 (source=?)",
                ),
                (
                    events(conn, EventFilter { since, event_type: event_type(), ..all() }),
                    "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                ),
                (events(conn, EventFilter { state: Some(State::Held), ..all() }), few_of_state),
                (events(conn, EventFilter { state: Some(State::Dead), ..all() }), few_of_state),
                (events(conn, EventFilter { state: Some(State::Ready), ..all() }), few_of_state),
                (events(conn, EventFilter { state: Some(State::Running), ..all() }), few_of_state),
                (events(conn, EventFilter { state: Some(State::Succeeded), ..all() }), of_events),
                (events(conn, EventFilter { handler: Some(name("h")), ..all() }), of_events),
                (
                    events(
                        conn,
                        EventFilter {
                            handler: Some(name("h")),
                            state: Some(State::Dead),
                            ..all()
                        },
                    ),
                    few_of_state,
                ),
                (jobs(conn, any()), of_jobs),
                (jobs(conn, JobFilter { source: source("busy"), ..any() }), of_jobs),
                (
                    jobs(conn, JobFilter { source: source("rare"), ..any() }),
                    "SEARCH e USING INDEX sqlite_autoindex_event_1 (source=?)",
                ),
                (
                    jobs(conn, JobFilter { state: Some(State::Held), ..any() }),
                    "SEARCH j USING INDEX job_held (row>? AND row<?)",
                ),
                (
                    jobs(
                        conn,
                        JobFilter {
                            state: Some(State::Held),
                            source: source("busy"),
                            handler: Some(name("h")),
                            event_type: event_type(),
                            ..any()
                        },
                    ),
                    "SEARCH j USING INDEX job_held (row>? AND row<?)",
                ),
                (
                    jobs(
                        conn,
                        JobFilter { state: Some(State::Dead), source: source("busy"), ..any() },
                    ),
                    "SEARCH j USING INDEX job_dead (row>? AND row<?)",
                ),
                (
                    jobs(
                        conn,
                        JobFilter {
                            state: Some(State::Dead),
                            last_detail: Some("exit status 1".to_owned()),
                            ..any()
                        },
                    ),
                    "SEARCH j USING INDEX job_dead (row>? AND row<?)",
                ),
                (
                    jobs(
                        conn,
                        JobFilter {
                            state: Some(State::Dead),
                            handler: Some(name("h")),
                            reason: Some("rejected".to_owned()),
                            ..any()
                        },
                    ),
                    "SEARCH j USING INDEX job_dead_cause (handler=? AND reason=? AND row>? AND row<?)",
                ),
                (
                    jobs(conn, JobFilter { state: Some(State::Dead), since, ..any() }),
                    "SEARCH j USING INDEX job_dead (row>? AND row<?)",
                ),
                (
                    jobs(conn, JobFilter { state: Some(State::Ready), ..any() }),
                    "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
                ),
                (
                    jobs(conn, JobFilter { state: Some(State::Waiting), ..any() }),
                    "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
                ),
                (
                    by_id(read::EVENT),
                    "SEARCH e USING INDEX sqlite_autoindex_event_1 (source=? AND event_id=?)",
                ),
                (
                    by_id(FOUND),
                    "SEARCH e USING INDEX sqlite_autoindex_event_1 (source=? AND event_id=?)",
                ),
                (
                    NEXT_SOURCE.to_owned(),
                    "SEARCH event USING COVERING INDEX sqlite_autoindex_event_1 (source>?)",
                ),
                (
                    TEXT_IDS.to_owned(),
                    "SEARCH event USING COVERING INDEX sqlite_autoindex_event_1 (source=? AND event_id>? AND event_id<?)",
                ),
                (
                    UUID_IDS.to_owned(),
                    "SEARCH event USING COVERING INDEX sqlite_autoindex_event_1 (source=? AND event_id>? AND event_id<?)",
                ),
                (
                    JOB_IDS.to_owned(),
                    "SEARCH job USING COVERING INDEX sqlite_autoindex_job_1 (id>? AND id<?)",
                ),
                (
                    read::EVENTS.latest.to_owned(),
                    "SEARCH event USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                ),
                (
                    read::JOBS.latest.to_owned(),
                    "SEARCH job USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                ),
            ] {
                let plan = plan(conn, &sql);
                assert_eq!(plan[0], first, "{sql}: {plan:#?}");
                // The newest are not found by putting all in order, except where all are few.
                let sorted = plan.iter().any(|step| step.contains("TEMP B-TREE"));
                assert!(!sorted || first.contains("=?"), "{sql}: {plan:#?}");
            }
            // Groups are made of the few rows that were walked, newest first.
            for state in [State::Held, State::Dead] {
                let plan = plan(conn, &groups_sql(state));
                let steps = [
                    &format!("SCAN j USING INDEX job_{state}"),
                    "SEARCH a USING INDEX sqlite_autoindex_attempt_1 (job=? AND number=?) LEFT-JOIN",
                ];
                assert_eq!(plan[1..3], steps, "{plan:#?}");
            }
        })
        .await;
}

#[tokio::test]
async fn a_time_and_a_source_are_found_wherever_they_lie() {
    let bench = large(limits()).await;
    let ids = async |filter| -> Vec<String> {
        let rows = all_events(&bench, filter).await;
        rows.into_iter().map(|row| row.event_id.to_string()).collect()
    };
    let rare = EventFilter { source: Some(name("rare")), ..EventFilter::default() };
    assert_eq!(ids(rare.clone()).await, ["evt_200000", "evt_150000", "evt_100000", "evt_50000"]);
    // Further back than a step, at a step's end, and not at all.
    let since = |row: u64| Some(START.after(Duration::from_secs(row)));
    for (first, found) in [(100_001, 2), (100_000, 3), (149_999, 2), (150_000, 2), (200_001, 0)] {
        let rows = ids(EventFilter { since: since(first), ..rare.clone() }).await;
        assert_eq!(rows.len(), found, "{first}: {rows:?}");
    }
    let last = EventFilter { since: since(199_999), ..EventFilter::default() };
    assert_eq!(ids(last).await, ["evt_200000", "evt_199999"]);
    let dead = JobFilter { state: Some(State::Dead), since: since(99_500), ..JobFilter::default() };
    assert_eq!(all_jobs(&bench, dead.clone()).await.len(), 101);
    let limit = Some(3);
    assert_eq!(bench.store.admin.jobs(JobFilter { limit, ..dead }).await.unwrap().rows.len(), 3);
    let held =
        JobFilter { source: Some(name("rare")), state: Some(State::Held), ..JobFilter::default() };
    assert_eq!(all_jobs(&bench, held).await[0].event_id, id("evt_200000"));
    assert_eq!(
        bench.store.admin.show(None, id("evt_50000"), None).await.unwrap()[0].event.source,
        name("rare")
    );
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_rows_and_says_how_far() {
    let bench = large(limits()).await;
    let never = EventFilter { event_type: Some("none".to_owned()), ..EventFilter::default() };
    let (mut filter, mut looked) = (never, Vec::new());
    loop {
        let page = bench.store.admin.events(filter.clone()).await.unwrap();
        assert!(page.rows.is_empty());
        looked.extend(page.looked_back_to);
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    let at = |row| START.after(Duration::from_secs(row));
    let pages = (1..).map(|page| 200_001 - page * PAGE_LOOK_ROWS.unsigned_abs());
    let pages: Vec<_> = pages.take_while(|row| *row > 1).map(at).collect();
    assert_eq!(looked, pages);

    // A full page goes on behind its last row, and the pages have every row once.
    let dead = JobFilter { state: Some(State::Dead), ..JobFilter::default() };
    let whole = all_jobs(&bench, dead.clone()).await;
    let paged = all_jobs(&bench, JobFilter { limit: Some(30), ..dead }).await;
    let ids = |rows: &[JobRow]| rows.iter().map(|row| row.job).collect::<Vec<_>>();
    assert_eq!(ids(&paged), ids(&whole));
    assert!(whole.len() > 60, "several pages: {}", whole.len());
}

#[tokio::test]
async fn a_listing_is_interrupted_and_keeps_no_look_up_waiting() {
    let mut bench = large(Limits { list_millis: 1, ..limits() }).await;
    // It looks through all events for a type that none has.
    let never = EventFilter { event_type: Some("none".to_owned()), ..EventFilter::default() };
    let error = bench.store.admin.events(never.clone()).await.unwrap_err();
    assert_eq!(error, Error::TooSlow(Duration::from_millis(1)));
    assert!(error.to_string().contains("--since"), "{error}");
    // The next one is served, and the same on a store that has more time.
    let newest = EventFilter { limit: Some(3), ..EventFilter::default() };
    assert_eq!(bench.store.admin.events(newest).await.unwrap().rows.len(), 3);
    bench.settings.limits = Limits { list_millis: 60_000, ..limits() };
    bench.restart().await;
    assert!(all_events(&bench, never).await.is_empty());

    // While a listing runs, everything else is answered.
    let (running, is_running) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let lists = Arc::clone(&bench.store.sqlite().engine.lists[0]);
    let listing = std::thread::spawn(move || {
        lists.list(HOUR, |_| {
            running.send(()).unwrap();
            ended.recv().unwrap();
            Ok(())
        })
    });
    is_running.recv().unwrap();
    let standing = bench.store.admin.status(vec![name("rare")]).await.unwrap();
    assert_eq!(standing.stuck.iter().map(|stuck| stuck.jobs).sum::<u64>(), 202);
    assert_eq!(bench.store.admin.show(None, id("evt_7"), None).await.unwrap().len(), 1);
    assert!(bench.store.jobs.running().await.unwrap().is_empty());
    let newest = EventFilter { limit: Some(3), ..EventFilter::default() };
    let other = bench.store.admin.events(newest);
    let other = tokio::time::timeout(Duration::from_secs(20), other).await.unwrap();
    assert_eq!(other.unwrap().rows.len(), 3, "another listing does not wait");
    end.send(()).unwrap();
    listing.join().unwrap().unwrap();
}
