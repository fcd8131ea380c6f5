//! How much of a large store each reading verb looks at, as the server counts it: before it knows how large the tables
//! are, and after.

use hooklatch::limits::Limits;
use hooklatch::model::{EventId, JobId, Name, State, Timestamp};
use hooklatch::store::postgres::Admin;
use hooklatch::store::{
    AuditFilter, Error, EventFilter, IdKind, IdQuery, JobFilter, JobSelection, Verb,
};
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::reading::reader;

const ROWS: i64 = 100_000;

/// Events of which most are of one source, each with a job; jobs of every state; groups with jobs behind; a body that
/// came very often.
const FILL: &str = "
    SET synchronous_commit = off;
    INSERT INTO node (id, name, machine, session, count, version, state)
        VALUES (gen_random_uuid(), 'n', 'm', gen_random_uuid(), 1, '', 'active');
    INSERT INTO event (row, source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated, flagged)
        SELECT n, CASE WHEN n % 10000 = 7 THEN 'rare' ELSE 'often' END, 'e' || n, 0, 'a',
            CASE WHEN n % 2 = 0 THEN sha256('') ELSE sha256(n::text::bytea) END, n, 2, true, n % 2 = 0 AND n > 2, false
        FROM generate_series(1, 100000) n;
    INSERT INTO payload SELECT row, '', '', 0 FROM event;
    INSERT INTO job (row, id, event, handler, state, reason, attempt, since, due_at, created_at, settled_at, group_key,
        group_rule, behind)
        SELECT n, md5(n::text)::uuid, n, 'h' || n % 3, s.state, s.reason, 1, n, CASE WHEN s.state = 'waiting' THEN n END,
            n, CASE WHEN s.state IN ('succeeded', 'dead') THEN n END, CASE WHEN behind THEN 'k' || n / 100 END,
            CASE WHEN behind THEN 'block' END, behind
        FROM generate_series(1, 100000) n
        JOIN (VALUES (0, 'ready', NULL), (1, 'held', 'restored'), (2, 'dead', 'rejected'), (3, 'waiting', NULL),
            (5, 'succeeded', NULL))
            s (nth, state, reason) ON s.nth = CASE WHEN n % 5 = 4 THEN 0 WHEN n % 5 = 3 AND n > 300 THEN 5 ELSE n % 5 END
        CROSS JOIN LATERAL (SELECT n % 50 = 0 AS behind) g;
    UPDATE job SET state = 'running' WHERE row IN (5, 10);
    INSERT INTO attempt (job, number, started_at, node, claimant, finished_at, outcome)
        SELECT row, 1, 1, node.id, gen_random_uuid(), CASE WHEN job.state <> 'running' THEN 2 END,
            CASE WHEN job.state <> 'running' THEN 'failed' END FROM job, node;
    DELETE FROM payload WHERE event = 50000;
    INSERT INTO audit (at, verb, subject, count, result, uid, via)
        SELECT n, 'pause', '{}', 1, 'done', 0, 'command' FROM generate_series(1, 100000) n;
    INSERT INTO lane (handler) VALUES ('h0'), ('h1'), ('h2')";

/// Rows and index entries that were read of the store's tables, and tables that were read whole.
async fn reads(client: &Client) -> (i64, i64) {
    let row = client
        .query_one(
            "SELECT (SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE schemaname = 'hooklatch')
                + (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'hooklatch'),
                (SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables
                    WHERE relname IN ('event', 'job', 'payload', 'attempt', 'audit', 'answer'))",
            &[],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

/// What `verb` makes the server read. A backend says it all at its end.
async fn cost(cluster: &Cluster, client: &Client, verb: impl AsyncFn(&Admin)) -> (i64, i64) {
    let ended = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'app')";
    cluster.server.wait_for(ended).await;
    let before = reads(client).await;
    let admin = reader(cluster, &Limits::default());
    verb(&admin).await;
    drop(admin);
    cluster.server.wait_for(ended).await;
    let after = reads(client).await;
    (after.0 - before.0, after.1 - before.1)
}

fn of(
    state: Option<State>,
    source: Option<&str>,
    handler: Option<&str>,
) -> (EventFilter, JobFilter) {
    let (source, handler) = (source.map(name), handler.map(name));
    let limit = Some(50);
    let events = EventFilter {
        state,
        source: source.clone(),
        handler: handler.clone(),
        limit,
        ..EventFilter::default()
    };
    (events, JobFilter { state, source, handler, limit, ..JobFilter::default() })
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[tokio::test]
async fn no_reading_walks_a_whole_table() {
    let cluster = Cluster::new(&["autovacuum=off"]).await;
    cluster.run(FILL).await;
    let client = cluster.admin().await;
    let mut wrong = Vec::new();
    let mut check = |what: String, (read, whole): (i64, i64), most: i64| {
        println!("{what}: {read}");
        if read > most || whole > 0 {
            wrong.push(format!("{what}: {read} rows, {whole} walks, at most {most}"));
        }
    };
    for is_known in [false, true] {
        if is_known {
            cluster.run("VACUUM ANALYZE").await;
        }
        // A window of 20,000 rows, with the event or job, attempt and payload of each; and what is few, which 5,000 are.
        for (state, source, handler, events, jobs) in [
            (None, None, None, 500, 500),
            (None, Some("often"), None, 6_000, 6_000),
            (None, Some("rare"), None, 1_000, 1_000),
            (None, Some("none"), None, 10, 10),
            (None, None, Some("h1"), 1_000, 1_000),
            (None, None, Some("none"), 60_000, 60_000),
            (Some(State::Running), None, None, 8_500, 6_500),
            (Some(State::Waiting), None, None, 8_500, 6_500),
            (Some(State::Ready), None, None, 8_000, 8_000),
            (Some(State::Held), None, None, 6_000, 500),
            (Some(State::Dead), Some("none"), None, 5_500, 60_500),
            (Some(State::Dropped), None, None, 65_000, 65_000),
            (Some(State::Succeeded), Some("rare"), Some("h0"), 2_000, 2_000),
        ] {
            let (event_filter, job_filter) = of(state, source, handler);
            let what = format!("{is_known} {state:?} {source:?} {handler:?}");
            let read = cost(&cluster, &client, async |admin| {
                admin.events(event_filter.clone()).await.unwrap();
            });
            check(format!("events {what}"), read.await, events);
            let read = cost(&cluster, &client, async |admin| {
                admin.jobs(job_filter.clone()).await.unwrap();
            });
            check(format!("jobs {what}"), read.await, jobs);
        }
        let what = |verb: &str| format!("{verb} {is_known}");
        let read = cost(&cluster, &client, async |admin| {
            let (_, place) = admin.new_events(of(None, None, None).0, None).await.unwrap();
            let none = admin.new_events(EventFilter::default(), Some(place)).await.unwrap();
            assert_eq!(none.1, place);
        });
        check(what("follow"), read.await, 1_000);
        let read = cost(&cluster, &client, async |admin| {
            let since = Some(Timestamp(ROWS));
            admin
                .audit(AuditFilter { since, limit: Some(9), ..AuditFilter::default() })
                .await
                .unwrap();
        });
        check(what("audit"), read.await, 41_000);
        let read = cost(&cluster, &client, async |admin| {
            admin.status(vec![name("often"), name("rare")]).await.unwrap();
        });
        // Held and dead jobs are all counted, ready ones to a bound for each handler.
        check(what("status"), read.await, 140_000);
        let read = cost(&cluster, &client, async |admin| {
            admin.gauges().await.unwrap();
        });
        check(what("gauges"), read.await, 130_000);
        let read = cost(&cluster, &client, async |admin| {
            admin.unfinished().await.unwrap();
        });
        check(what("unfinished"), read.await, 50_000);
        let read = cost(&cluster, &client, async |admin| {
            assert_eq!(admin.stuck().await.unwrap().more.len(), 2);
        });
        check(what("stuck"), read.await, 14_000);
        let read = cost(&cluster, &client, async |admin| {
            admin.stuck_counts().await.unwrap();
        });
        check(what("stuck counts"), read.await, 41_000);
        let read = cost(&cluster, &client, async |admin| {
            let filter = JobFilter { source: Some(name("none")), ..JobFilter::default() };
            let ask = JobSelection { filter, after: None, verb: Verb::Replay };
            assert!(admin.select(ask).await.unwrap().next.is_some());
        });
        check(what("select"), read.await, 61_000);
        let read = cost(&cluster, &client, async |admin| {
            let event: EventId = "e50000".parse().unwrap();
            assert_eq!(admin.show(None, event, None).await.unwrap()[0].twins.len(), 5);
        });
        check(what("show"), read.await, 2_500);
        let read = cost(&cluster, &client, async |admin| {
            let typed =
                |text: &str| IdQuery { kind: IdKind::Any, text: text.to_owned(), source: None };
            admin.find(typed("e50000")).await.unwrap();
            admin.find(typed("x999")).await.unwrap_err();
        });
        check(what("find"), read.await, 50);
        let read = cost(&cluster, &client, async |admin| {
            let ids = vec!["e50000".to_owned(), "0199d0a3-5f60-7e21-a3b4-0c1d2e3f4a5b".to_owned()];
            admin.shorten(IdKind::Any, ids).await.unwrap();
        });
        check(what("shorten"), read.await, 50);
        let read = cost(&cluster, &client, async |admin| {
            admin.job(JobId::from_bytes([1; 16])).await.unwrap_err();
            let job: JobId = "c4ca4238-a0b9-2382-0dcc-509a6f75849b".parse().unwrap();
            let wrong = admin.running_attempt(job, None, "x").await.unwrap_err();
            assert!(matches!(wrong, Error::WrongState { .. }));
        });
        check(what("job"), read.await, 50);
        let read = cost(&cluster, &client, async |admin| {
            admin.nodes().await.unwrap();
        });
        check(what("nodes"), read.await, 50);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
