//! Damage that only a server can have, and what it says of a block that it cannot read.
use super::{tokio, *};
use crate::pattern::Pattern;

/// A changed bit has made the number of a job's event one that no event has.
#[tokio::test]
async fn a_job_whose_event_is_not_there_is_held_and_a_running_one_ends() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    let mut bench = bench().await;
    let running = bench.running("e1").await;
    for event in ["e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    // Without the check of the foreign key.
    let change = "SET session_replication_role = replica;
        UPDATE job SET event = event + 1000 WHERE event < 3;
        RESET session_replication_role";
    bench.change_rows(change).await;
    let wanted = vec![(name("alert"), vec![Pattern::new("job.held", true)])];
    bench.store.admin.set_interest(NoticeSubscribers::new(wanted));
    let claimed = bench.claim_all().await;
    let started: Vec<&str> = claimed.iter().map(|one| one.facts.event_id.as_str()).collect();
    assert_eq!(started, ["e3"]);
    assert!(bench.complete(&claimed[0], Outcome::Succeeded, Next::Succeeded).await);
    let unknown = Next::Held(HeldReason::UnknownOutcome);
    assert!(bench.complete(&running, Outcome::Unknown, unknown).await);
    bench.until_nothing_runs().await;
    assert_eq!(bench.number("SELECT count(*) FROM notice WHERE type = 'job.held'").await, 2);
    bench.store.jobs.tell_notices().await.unwrap();
    let held = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    let held = bench.store.admin.jobs(held).await.unwrap().rows;
    let reasons: Vec<_> = held.iter().filter_map(|job| job.reason.as_deref()).collect();
    assert_eq!(reasons, ["payload unreadable", "unknown outcome"]);
    for job in held {
        assert_eq!(job.source.as_str(), "unreadable");
        bench.store.admin.drop_job(job.job, None).await.unwrap();
    }
}
