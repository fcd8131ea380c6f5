use super::*;
use crate::store::admin::gauges::{JOBS, NEXT_READY};

#[tokio::test]
async fn jobs_are_counted_by_handler_and_state() {
    let bench = bench();
    let held = bench.running("held").await;
    bench.complete(&held, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    let dead = bench.running("dead").await;
    bench.complete(&dead, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    let done = bench.running("done").await;
    bench.complete(&done, Outcome::Succeeded, Next::Succeeded).await;
    bench.running("runs").await;
    bench.clock.advance(HOUR);
    for event in ["ready_1", "ready_2"] {
        bench.accept("stripe", stripe(event, "a.b", "{}"), &["h", "i"]).await;
        bench.clock.advance(HOUR);
    }
    bench.store.admin.pause(&name("i")).await.unwrap();

    let mut gauges = bench.store.admin.gauges().await.unwrap();
    gauges.jobs.sort();
    let count = |handler, state, jobs| (name(handler), state, jobs);
    let mut wanted = vec![
        count("h", State::Ready, 2),
        count("h", State::Running, 1),
        count("h", State::Held, 1),
        count("h", State::Dead, 1),
        count("i", State::Ready, 2),
    ];
    wanted.sort();
    assert_eq!(gauges.jobs, wanted);
    let since = START.after(HOUR);
    assert_eq!(gauges.oldest_ready, [(name("h"), since), (name("i"), since)]);
    assert_eq!(gauges.paused, [name("i")]);
    assert_eq!(gauges.secrets.len(), 1);

    let writer = bench.store.admin.writer_gauges();
    assert_eq!((writer.queue_items, writer.queue_bytes), (0, 0));
    let batches = writer.batch_items.buckets.last().unwrap().1;
    assert!(batches >= 6 && writer.batch_items.sum >= batches as f64);
    assert!(writer.log_used_bytes > 0 && writer.log_used_bytes <= writer.log_bound_bytes);
}

#[tokio::test]
async fn no_count_walks_what_is_settled() {
    let mut bench = bench();
    bench
        .with_file(|conn| {
            for (sql, handler) in [(JOBS, false), (NEXT_READY, true)] {
                let plan = format!("EXPLAIN QUERY PLAN {sql}");
                let mut statement = conn.prepare(&plan).unwrap();
                let read = |row: &rusqlite::Row<'_>| row.get::<_, String>(3);
                let steps: Vec<String> = match handler {
                    true => {
                        statement.query_map(["h"], read).unwrap().collect::<Result<_, _>>().unwrap()
                    }
                    false => {
                        statement.query_map([1], read).unwrap().collect::<Result<_, _>>().unwrap()
                    }
                };
                let tables: Vec<_> = steps.iter().filter(|step| step.contains(" job")).collect();
                assert!(!tables.is_empty(), "{steps:?}");
                let indexed = |step: &&String| step.contains("INDEX job_");
                assert!(tables.iter().all(indexed), "{steps:?}");
            }
        })
        .await;
}
