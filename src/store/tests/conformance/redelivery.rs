//! `on_redelivery = "replay-dead"`: what a duplicate puts back, and what it must leave alone.
use super::{tokio, *};

/// Redelivers to a source that puts dead letters back: the state told, and how many were put back.
async fn redeliver(bench: &Bench, delivery: Verified) -> (Option<State>, usize, bool) {
    let source = if delivery.id_signed() { "stripe" } else { "github" };
    let again = bench.accept_as(OnRedelivery::ReplayDead, source, delivery, &["new"]).await;
    match again.unwrap() {
        Accepted::Duplicate { state, replayed, conflict, .. } => (state, replayed, conflict),
        created => panic!("{created:?}"),
    }
}

async fn dead(bench: &Bench, event: &str, reason: DeadReason) -> JobId {
    let claimed = bench.running(event).await;
    bench.complete(&claimed, Outcome::Failed, Next::Dead(reason)).await;
    claimed.facts.job
}

#[tokio::test]
async fn a_dead_job_is_put_back_with_its_key_and_its_numbers_go_on() {
    let mut bench = bench().await;
    let job = dead(&bench, "e", DeadReason::Exhausted).await;
    let again = || stripe("e", "a.b", "{}");
    // A source that says nothing of it only counts.
    let ignored = bench.accept("stripe", again(), &["h"]).await;
    assert!(
        matches!(ignored, Accepted::Duplicate { state: Some(State::Dead), replayed: 0, .. }),
        "{ignored:?}"
    );
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Ready), 1, false));
    bench.restart().await;
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.facts.job, claimed.facts.attempt), (job, 2));
    assert_eq!((claimed.facts.replays, claimed.counted), (1, 0));
    // It runs: a second press of the button changes nothing.
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Running), 0, false));
    bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Succeeded), 0, false));
    assert_eq!(
        bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.len(),
        1,
        "none is made"
    );
}

#[tokio::test]
async fn held_jobs_and_those_a_person_gave_up_stay() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    let again = || stripe("e", "a.b", "{}");
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Held), 0, false));
    bench.resolve(claimed.facts.job, Resolution::Failed).await.unwrap();
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Dead), 0, false));
}

#[tokio::test]
async fn only_the_very_body_puts_its_own_jobs_back() {
    let bench = bench().await;
    let job = dead(&bench, "e", DeadReason::Rejected).await;
    // Another body under a signed id is evidence, whoever sends it.
    let other = stripe("e", "a.b", "1");
    assert_eq!(redeliver(&bench, other).await, (Some(State::Dead), 0, true));
    assert_eq!(bench.job(job).await.state, State::Dead);
    // A variant under an unsigned id is held, and does nothing to the first one's.
    bench.accept("github", github("d", "push", "1"), &["h"]).await;
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    bench.accept("github", github("d", "push", "2"), &["h"]).await;
    let twin = github("d", "push", "2");
    assert_eq!(redeliver(&bench, twin).await, (Some(State::Held), 0, false));
    assert_eq!(bench.job(claimed.facts.job).await.state, State::Dead);
    assert_eq!(redeliver(&bench, github("d", "push", "1")).await, (Some(State::Ready), 1, false));
}

#[tokio::test]
async fn without_its_payload_a_job_stays_dead() {
    let mut bench = bench().await;
    let job = dead(&bench, "e", DeadReason::Exhausted).await;
    bench.change_rows("DELETE FROM payload").await;
    let again = stripe("e", "a.b", "{}");
    assert_eq!(redeliver(&bench, again).await, (Some(State::Dead), 0, false));
    assert_eq!(bench.job(job).await.state, State::Dead);
}

#[tokio::test]
async fn what_a_backup_brought_back_waits_for_a_person() {
    let mut bench = bench().await;
    dead(&bench, "e", DeadReason::Exhausted).await;
    let backup = bench.back_up().await;
    // Put back after the backup: its handler has done it.
    assert_eq!(redeliver(&bench, stripe("e", "a.b", "{}")).await.1, 1);
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;
    // Also where the clock of the machine that restores it is behind.
    let bench = bench.restored(backup, Clock::manual(START.before(HOUR))).await;
    let again = || stripe("e", "a.b", "{}");
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Dead), 0, false));
    // What a person lets go on is put back like any other once it is dead again.
    bench.advance(HOUR).await;
    bench.store.admin.replay(Replay::Job(claimed.facts.job, None), false).await.unwrap();
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Failed, Next::Dead(DeadReason::Exhausted)).await;
    assert_eq!(redeliver(&bench, again()).await, (Some(State::Ready), 1, false));
}

/// Its event may have run after the backup was made. Where a request is good for minutes, none is left of those.
#[tokio::test]
async fn what_was_signed_before_a_restore_is_held_where_it_is_good_for_hours() {
    let mut bench = bench().await;
    let minutes = |count: u64| START.after(Duration::from_secs(60 * count));
    let linear = |event: &str, at: Timestamp| {
        let body = format!(r#"{{"webhookTimestamp":{},"id":"{event}"}}"#, at.0);
        delivery("linear", "k", event, "Issue", body)
    };
    let backup = bench.back_up().await;
    let gone = || linear("gone", START);
    assert!(matches!(
        bench.accept("linear", gone(), &["h"]).await,
        Accepted::Created { held: None, .. }
    ));
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;

    let bench = bench.restored(backup, Clock::manual(minutes(3))).await;
    for (source, delivery, expected) in [
        ("linear", gone(), Some(HeldReason::Restored)),
        ("linear", linear("at-once", minutes(3)), Some(HeldReason::Restored)),
        ("linear", linear("later", minutes(4)), None),
        ("stripe", stripe("short", "a.b", "{}"), None),
    ] {
        let event = delivery.event_id().clone();
        match bench.accept(source, delivery, &["h"]).await {
            Accepted::Created { held, .. } => assert_eq!(held, expected, "{event}"),
            other => panic!("{event}: {other:?}"),
        }
    }
    let several = ["one", "two"].map(|event| Accept {
        source: name("linear"),
        received_at: bench.clock.now(),
        delivery: linear(event, START),
        jobs: vec![NewJob::of(name("h"))],
        on_redelivery: OnRedelivery::Ignore,
    });
    let accepted = bench.store.intake.accept_all(several.into(), bench.clock.now()).await.unwrap();
    let is_held =
        |one: &Accepted| matches!(one, Accepted::Created { held: Some(HeldReason::Restored), .. });
    assert!(accepted.len() == 2 && accepted.iter().all(is_held), "{accepted:?}");
    let rows = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let mut held: Vec<String> = rows
        .iter()
        .filter(|row| row.state == State::Held && row.reason.as_deref() == Some("restored"))
        .map(|row| row.event_id.to_string())
        .collect();
    held.sort();
    assert_eq!(held, ["at-once", "gone", "one", "two"]);
    // The held one is remembered like any other.
    assert!(matches!(bench.accept("linear", gone(), &["h"]).await, Accepted::Duplicate { .. }));
}
