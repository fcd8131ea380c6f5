//! What the file holds, and what it gives back.
use super::*;
use crate::limits::BATCH_JOBS;
use crate::pattern::Pattern;

/// Events of 3 KiB each in a file of its own, put there by hand; what a year of them leaves behind.
fn fill(conn: &Connection, events: usize) {
    conn.execute_batch(&format!(
        "PRAGMA synchronous = OFF;
         BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events})
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'stripe', 'old' || i, 'a.b', randomblob(32), 0, {at}, 3000 FROM n;
         INSERT INTO payload (event, headers, body, sum) SELECT row, x'', randomblob(3000), 0 FROM event;
         INSERT INTO job (id, event, handler, state, attempt, counted, since, created_at, settled_at)
             SELECT randomblob(16), row, 'h', 'succeeded', 1, 1, {at}, {at}, {at} FROM event;
         INSERT INTO attempt (job, number, started_at, finished_at, outcome)
             SELECT row, 1, {at}, {at}, 'succeeded' FROM job;
         COMMIT;",
        at = START.0
    ))
    .unwrap();
}

#[tokio::test]
async fn space_is_given_back_and_no_accept_waits_long_meanwhile() {
    let events = std::env::var("HOOKLATCH_EXPIRING").map_or(10_000, |n| n.parse().unwrap());
    let mut bench = bench();
    bench.with_file(|conn| fill(conn, events)).await;
    bench.clock.advance(DAY);
    let path = bench.settings.path.clone();
    let size = || std::fs::metadata(&path).unwrap().len();
    let full = size();
    let commits = || bench.store.admin.writer_gauges().batch_items.buckets.last().unwrap().1;
    let pages = "SELECT page_count FROM pragma_page_count";

    let day = bench.clock.now();
    let begun = std::time::Instant::now();
    let store = bench.store.clone();
    let before = Cutoffs { payloads: day, ids: day, dead: day };
    let pass = tokio::spawn(async move { store.jobs.expire(before).await.unwrap() });
    let (mut waits, mut most_commits, mut most_pages) = (Vec::new(), 0, 0);
    let (all_commits, all_pages) = (commits(), bench.number(pages).await);
    let mut pages_before = all_pages;
    while !pass.is_finished() {
        let asked = std::time::Instant::now();
        let id = format!("new{}", waits.len());
        let commits_before = commits();
        bench.accept("stripe", stripe(&id, "a.b", "{}"), &["h"]).await;
        most_commits = most_commits.max(commits() - commits_before);
        waits.push(asked.elapsed());
        let pages_now = bench.number(pages).await;
        most_pages = most_pages.max(pages_before - pages_now);
        pages_before = pages_now;
    }
    let (expired, took, steps) = (pass.await.unwrap(), begun.elapsed(), commits() - all_commits);
    assert_eq!((expired.payloads, expired.events), (events as u64, events as u64));
    bench.restart().await;
    let left = size();
    waits.sort();
    let (accepts, longest) = (waits.len(), waits[waits.len() - 1]);
    let p99 = waits[waits.len() * 99 / 100];
    eprintln!(
        "{events} events expired in {took:.1?}, {accepts} accepts meanwhile: p99 {p99:.1?}, longest {longest:.1?}; \
         the file fell from {full} to {left} bytes"
    );
    // What is left is what was accepted meanwhile.
    assert!(left < full / 10 && expired.bytes > full / 10 * 8, "{full} {left} {expired:?}");
    // An accept waits for the step under way and is in the batch of the next one. A step takes no more events than a
    // batch of jobs, and gives no more than a part of the file back.
    assert!(most_commits <= 3, "{most_commits} commits");
    assert!(steps >= 2 * events as u64 / BATCH_JOBS as u64, "{steps} steps");
    assert!(most_pages < all_pages / 8, "{most_pages} of {all_pages} pages");
    assert_eq!(
        bench.store.admin.events(EventFilter::default()).await.unwrap().rows.len(),
        accepts.min(1000)
    );
}

/// Every value of the database, in its form and as it is under zstd.
fn values(conn: &Connection) -> Vec<Vec<u8>> {
    let names = |sql: &str| -> Vec<String> {
        let mut all = conn.prepare(sql).unwrap();
        all.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let mut values = Vec::new();
    for table in names("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        for column in names(&format!("SELECT name FROM pragma_table_info('{table}')")) {
            let sql = format!("SELECT CAST({column} AS BLOB) FROM {table} WHERE {column} NOT NULL");
            let mut all = conn.prepare(&sql).unwrap();
            let all = all.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
            values.extend(all.map(Result::unwrap));
        }
    }
    let plain = values.iter().filter_map(|value| zstd::stream::decode_all(&**value).ok());
    let plain: Vec<_> = plain.collect();
    values.extend(plain);
    values
}

#[tokio::test]
async fn nothing_of_a_payload_outlives_it() {
    let mut bench = bench();
    let has_it = |bench: &Bench| {
        let conn = Connection::open(&bench.settings.path).unwrap();
        let word = b"diabetes";
        values(&conn).iter().any(|value| value.windows(word.len()).any(|found| found == word))
    };
    for number in 0..10 {
        let body = format!(r#"{{"note":"diabetes","filler":"{}","n":{number}}}"#, "x".repeat(600));
        bench.accept("github", github(&format!("g{number}"), "push", &body), &[]).await;
    }
    bench.store.close().await;
    assert!(has_it(&bench));
    bench.restart().await;
    bench.clock.advance(DAY);
    assert_eq!(expired(&bench, bench.clock.now(), START).await, (10, 0));
    bench.store.close().await;
    assert!(!has_it(&bench));
}

#[tokio::test]
async fn no_job_is_made_later_while_accepts_are_refused_for_space() {
    let bench = bench_with(Limits { disk_floor_bytes: 1 << 60, ..limits() });
    let types = vec![Pattern::new("*", true)];
    let wanted = vec![EventMatcher { sources: vec![name("github")], types, only: None }];
    let ask = Backfill { handler: name("late"), since: START, wanted, dry_run: false, from: None };
    let refused = bench.store.admin.make_missing(ask.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(bench.store.admin.make_missing(Backfill { dry_run: true, ..ask }).await.is_ok());
}
