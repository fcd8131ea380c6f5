use super::{tokio, *};

#[tokio::test]
async fn nothing_of_a_paused_handler_is_claimed_and_no_job_changes() {
    let mut bench = bench().await;
    let running = bench.running("runs").await;
    let waits = bench.running("waits").await;
    bench.complete(&waits, Outcome::Failed, Next::Wait { due_at: START }).await;
    bench.accept("stripe", stripe("e", "a", "{}"), &["h", "other"]).await;
    let listed = async |bench: &Bench| {
        let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
        jobs.into_iter()
            .map(|job| (job.job, job.state, job.attempt, job.due_at))
            .collect::<Vec<_>>()
    };
    let before = listed(&bench).await;

    assert!(bench.store.admin.pause(&name("h")).await.unwrap());
    bench.advance(HOUR).await;
    assert!(!bench.store.admin.pause(&name("h")).await.unwrap(), "paused already");
    let paused = [PausedRow { handler: name("h"), since: START }];
    assert_eq!(bench.store.admin.paused().await.unwrap(), paused, "since the first time");
    let refused = bench.store.jobs.claim(&name("h"), 9, None).await.unwrap();
    assert_eq!(listed(&bench).await, before);
    // What is due and cannot be claimed is not called due, or the dispatcher would ask for ever.
    assert_eq!((refused.jobs.len(), refused.due), (0, None));

    // It survives a restart, and so does the handler's absence from the configuration.
    bench.restart().await;
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert_eq!(
        bench.store.jobs.claim(&name("other"), 9, None).await.unwrap().jobs.len(),
        1,
        "others run"
    );
    // What ran when it was paused goes on and is recorded.
    assert!(bench.complete(&running, Outcome::Succeeded, Next::Succeeded).await);

    assert!(bench.store.admin.resume(&name("h")).await.unwrap());
    assert!(!bench.store.admin.resume(&name("h")).await.unwrap(), "not paused");
    assert!(bench.store.admin.paused().await.unwrap().is_empty());
    assert_eq!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.len(), 2);
}

/// Each change is announced after it can be seen.
async fn until_known(bench: &Bench, paused: &[&str]) {
    let paused = paused.iter().copied().map(name).collect();
    let come = async {
        while *bench.store.jobs.paused_now() != paused {
            bench.store.jobs.wake().notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), come).await.unwrap();
}

#[tokio::test]
async fn who_is_paused_is_known_without_a_look_at_the_file() {
    let mut bench = bench().await;
    assert!(bench.store.jobs.paused_now().is_empty());
    bench.store.admin.pause(&name("h")).await.unwrap();
    bench.store.admin.pause(&name("other")).await.unwrap();
    until_known(&bench, &["h", "other"]).await;
    bench.restart().await;
    until_known(&bench, &["h", "other"]).await;
    // Whoever hears the bell of a resume finds it resumed.
    assert!(bench.store.admin.resume(&name("h")).await.unwrap());
    until_known(&bench, &["other"]).await;
}

#[tokio::test]
async fn a_pause_that_is_not_committed_keeps_nobody_from_claiming() {
    let mut bench = bench().await;
    bench.refuse("INSERT ON paused", "true").await;
    assert!(bench.store.admin.pause(&name("h")).await.is_err());
    assert!(bench.store.jobs.paused_now().is_empty());
}

#[tokio::test]
async fn a_listing_says_whose_handler_is_paused() {
    let bench = bench().await;
    bench.accept("stripe", stripe("e", "a", "{}"), &["h", "other"]).await;
    bench.store.admin.pause(&name("h")).await.unwrap();
    for job in bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows {
        assert_eq!(job.paused, job.handler == name("h"), "{}", job.handler);
    }
    let shown = bench.store.admin.show(None, id("e"), None).await.unwrap().remove(0);
    assert_eq!(shown.jobs.iter().map(|job| job.job.paused).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn a_job_whose_payload_is_gone_does_not_die_while_its_handler_is_paused() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    bench.store.admin.pause(&name("h")).await.unwrap();
    bench.change_rows("DELETE FROM payload").await;
    assert!(bench.store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs.is_empty());
    let job = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.remove(0);
    assert_eq!(job.state, State::Ready);
}

#[tokio::test]
async fn a_resume_wakes_whoever_claims() {
    let bench = bench().await;
    bench.store.admin.pause(&name("h")).await.unwrap();
    let wake = bench.store.jobs.wake();
    wake.notified().await;
    bench.store.admin.resume(&name("h")).await.unwrap();
    // The bell was rung for the resume itself: nothing else was committed.
    tokio::time::timeout(Duration::from_secs(60), wake.notified()).await.unwrap();
}
