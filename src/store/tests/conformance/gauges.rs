use super::{tokio, *};

#[tokio::test]
async fn jobs_are_counted_by_handler_and_state() {
    let bench = bench().await;
    let held = bench.running("held").await;
    bench.complete(&held, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    let dead = bench.running("dead").await;
    bench.complete(&dead, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    let done = bench.running("done").await;
    bench.complete(&done, Outcome::Succeeded, Next::Succeeded).await;
    bench.running("runs").await;
    bench.advance(HOUR).await;
    for event in ["ready_1", "ready_2"] {
        bench.accept("stripe", stripe(event, "a.b", "{}"), &["h", "i"]).await;
        bench.advance(HOUR).await;
    }
    bench.store.admin.pause(&name("i")).await.unwrap();

    let gauges = bench.store.admin.gauges().await.unwrap();
    let since = START.after(HOUR);
    let ready = |handler| Backlog { handler: name(handler), jobs: 2, since };
    assert_eq!(gauges.jobs.ready, [ready("h"), ready("i")]);
    let of_h = |state| gauges.jobs.count(&name("h"), state);
    assert_eq!(
        State::ALL.iter().map(|state| of_h(*state)).collect::<Vec<_>>(),
        [2, 1, 0, 1, 0, 1, 0]
    );
    assert_eq!(gauges.jobs.count(&name("i"), State::Running), 0);
    let handlers: std::collections::BTreeSet<_> = gauges.jobs.handlers().collect();
    assert!(handlers.into_iter().eq(&[name("h"), name("i")]));
    assert_eq!(gauges.paused, [name("i")]);
    assert_eq!(gauges.secrets.len(), 1);

    let writer = bench.store.admin.writer_gauges();
    assert_eq!((writer.queue_items, writer.queue_bytes), (0, 0));
    let batches = writer.batch_items.buckets.last().unwrap().1;
    assert!(batches >= 6 && writer.batch_items.sum >= batches as f64);
    // PostgreSQL keeps its log itself.
    let has_log = engine() == EngineKind::Sqlite;
    assert!(
        (writer.log_used_bytes > 0) == has_log && writer.log_used_bytes <= writer.log_bound_bytes
    );
}
