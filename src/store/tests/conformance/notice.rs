//! The receiver's own events: who gets them, what is in them, and how few they are.
use serde_json::Value;

use super::{tokio, *};
use crate::limits::NOTICE_WINDOW;
use crate::pattern::Pattern;

/// `alert` takes these types.
fn interest(types: &[&str]) -> NoticeSubscribers {
    let patterns = types.iter().map(|text| Pattern::new(*text, true)).collect();
    NoticeSubscribers::new(vec![(name("alert"), patterns)])
}

async fn alerted(types: &[&str]) -> Bench {
    let bench = bench().await;
    bench.store.admin.set_interest(interest(types));
    bench
}

/// On PostgreSQL the first one, too, is counted until the dispatcher's tick.
async fn tick(bench: &Bench) {
    if engine() == EngineKind::Postgres {
        bench.store.jobs.tell_notices().await.unwrap();
    }
}

/// The bodies of all internal events, oldest first.
async fn told(bench: &Bench) -> Vec<Value> {
    tick(bench).await;
    let filter = EventFilter { source: Some(name(INTERNAL_SOURCE)), ..EventFilter::default() };
    let mut events = bench.store.admin.events(filter).await.unwrap().rows;
    events.reverse();
    let mut bodies = Vec::new();
    for event in events {
        let shown = bench.store.admin.show(None, event.event_id, None).await.unwrap().remove(0);
        let body: Value = serde_json::from_slice(shown.body.as_deref().unwrap()).unwrap();
        assert_eq!(body["type"], event.event_type.as_str());
        assert_eq!(shown.jobs.len(), 1, "one job, of `alert`");
        assert_eq!(shown.jobs[0].job.handler.as_str(), "alert");
        bodies.push(body);
    }
    bodies
}

/// The first one, which is stored by itself.
async fn first_told(bench: &Bench) -> Value {
    loop {
        if let Some(first) = told(bench).await.into_iter().next() {
            return first;
        }
        tokio::task::yield_now().await;
    }
}

async fn dies(bench: &Bench, event: &str) -> JobId {
    let claimed = bench.running(event).await;
    bench.complete(&claimed, Outcome::Failed, Next::Dead(DeadReason::Exhausted)).await;
    tick(bench).await;
    claimed.facts.job
}

#[tokio::test]
async fn a_dead_job_is_told_with_all_that_a_person_needs() {
    let bench = alerted(&["job.dead"]).await;
    let job = dies(&bench, "evt_1").await;
    let bodies = told(&bench).await;
    let wanted = serde_json::json!({
        "type": "job.dead", "handler": "h", "source": "stripe", "event_id": "evt_1",
        "job": job.to_string(), "reason": "attempts exhausted", "count": 1,
        "first_at": START.to_string(), "last_at": START.to_string(),
        "command": "hooklatch show evt_1", "attempts": 1, "host": bodies[0]["host"],
        "detail": null, "exit_code": null, "stderr": null, "behind": null, "node": null,
    });
    assert_eq!(bodies, [wanted]);
    assert!(bodies[0]["host"].as_str().is_some_and(|host| !host.is_empty()));
    // Its handler is given it like any event.
    let claimed = bench.store.jobs.claim(&name("alert"), 1, None).await.unwrap().jobs.remove(0);
    assert_eq!(claimed.facts.source.as_str(), INTERNAL_SOURCE);
    assert_eq!(claimed.facts.event_type.as_str(), "job.dead");
    assert_eq!(
        claimed.facts.headers.all("content-type").next(),
        Some(b"application/json".as_slice())
    );
    assert!(claimed.facts.event_id.as_str().parse::<JobId>().is_ok(), "a random id");
}

#[tokio::test]
async fn where_no_handler_wants_it_nothing_is_written() {
    for bench in [bench().await, alerted(&["job.held", "store"]).await] {
        dies(&bench, "evt_1").await;
        assert!(told(&bench).await.is_empty());
        assert_eq!(bench.store.jobs.tell_notices().await, Ok(0));
        assert_eq!(bench.number("SELECT count(*) FROM notice").await, 0);
    }
}

#[tokio::test]
async fn more_of_the_same_is_counted_and_told_when_the_window_is_over() {
    let mut bench = alerted(&["*"]).await;
    dies(&bench, "e1").await;
    for event in ["e2", "e3"] {
        bench.advance(Duration::from_secs(60)).await;
        dies(&bench, event).await;
    }
    // Another reason, another handler: told apart.
    let claimed = bench.running("e4").await;
    bench.complete(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    assert_eq!(told(&bench).await.len(), 2);
    assert_eq!(bench.store.jobs.tell_notices().await, Ok(0), "not yet");
    // A restart forgets nothing of it.
    bench.restart().await;
    bench.store.admin.set_interest(interest(&["*"]));
    dies(&bench, "e5").await;
    assert_eq!(told(&bench).await.len(), 2);
    bench.advance(NOTICE_WINDOW).await;
    assert_eq!(bench.store.jobs.tell_notices().await, Ok(1));
    let bodies = told(&bench).await;
    let last = bodies.last().unwrap();
    let minute = |minutes: u32| START.after(Duration::from_secs(60) * minutes).to_string();
    assert_eq!((&last["count"], &last["event_id"]), (&3.into(), &"e5".into()));
    assert_eq!(
        (&last["first_at"], &last["last_at"]),
        (&minute(1).as_str().into(), &minute(2).as_str().into())
    );
    assert_eq!(last["command"], "hooklatch jobs --state dead --handler h");
    // Told: nothing waits, and the next one after the window is told at once.
    assert_eq!(bench.store.jobs.tell_notices().await, Ok(0));
    bench.advance(NOTICE_WINDOW).await;
    dies(&bench, "e6").await;
    assert_eq!(told(&bench).await.last().unwrap()["count"], 1);
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_silence() {
    let bench = alerted(&["job"]).await;
    bench.advance(DAY).await;
    dies(&bench, "e1").await;
    bench.set_wall(START).await;
    dies(&bench, "e2").await;
    assert_eq!(told(&bench).await.len(), 2);
}

#[tokio::test]
async fn every_way_to_be_held_is_told() {
    let bench = alerted(&["job.held"]).await;
    let held = async |reason: &str| {
        let bodies = told(&bench).await;
        let of = |body: &&Value| body["reason"] == reason;
        assert_eq!(bodies.iter().filter(of).count(), 1, "{reason}: {bodies:#?}");
        bodies.into_iter().find(|body| of(&body)).unwrap()
    };
    bench.accept("github", github("d1", "push", "1"), &["h"]).await;
    bench.accept("github", github("d2", "push", "1"), &["h"]).await;
    assert_eq!(held("suspected replay").await["event_id"], "d2");
    bench.accept("github", github("d1", "push", "3"), &["h"]).await;
    assert_eq!(held("id reused").await["event_id"], "d1");
    // What a crash cut off.
    bench.claim_one().await;
    let policies =
        vec![(name("h"), policy(OnUnknown::Hold, 3)), (name("alert"), policy(OnUnknown::Hold, 3))];
    bench.store.jobs.recover(policies).await.unwrap();
    assert_eq!(held("unknown outcome").await["handler"], "h");
    // A handler that is gone: one event, however many jobs.
    for event in ["e1", "e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["gone"]).await;
    }
    assert_eq!(bench.store.jobs.hold_orphans(vec![name("h"), name("alert")]).await, Ok(3));
    let body = held("handler gone").await;
    assert_eq!((&body["handler"], &body["count"]), (&"gone".into(), &3.into()));
}

#[tokio::test]
async fn a_job_whose_payload_is_gone_is_told() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e", "a.b", "{}"), &["h"]).await;
    bench.change_rows("DELETE FROM payload").await;
    bench.store.admin.set_interest(interest(&["job.dead"]));
    assert!(bench.store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs.is_empty());
    bench.until_nothing_runs().await;
    assert_eq!(told(&bench).await[0]["reason"], "payload gone");
}

#[tokio::test]
async fn a_damaged_payload_is_told() {
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e", "a.b", "{}"), &["h"]).await;
    bench.change_rows("UPDATE payload SET headers = zeroblob(1)").await;
    bench.store.admin.set_interest(interest(&["store.degraded"]));
    assert!(bench.store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs.is_empty());
    bench.until_nothing_runs().await;
    assert_eq!(first_told(&bench).await["reason"], "a stored payload is damaged");
}

#[tokio::test]
async fn a_job_of_an_internal_event_tells_nothing() {
    let bench = alerted(&["*"]).await;
    dies(&bench, "e1").await;
    for (outcome, next) in [
        (Outcome::Failed, Next::Dead(DeadReason::Exhausted)),
        (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
    ] {
        bench.advance(NOTICE_WINDOW).await;
        let alert = bench.store.jobs.claim(&name("alert"), 1, None).await.unwrap().jobs;
        if let Some(alert) = alert.first() {
            bench.complete(alert, outcome, next).await;
            bench.store.admin.replay(Replay::Job(alert.facts.job, None), false).await.unwrap();
        }
    }
    // Nor where its handler is gone, and its jobs are held with all the others.
    assert_eq!(bench.store.jobs.hold_orphans(vec![name("h")]).await, Ok(1));
    assert_eq!(told(&bench).await.len(), 1);
}

#[tokio::test]
async fn a_handler_is_not_told_that_it_cannot_run_itself() {
    let bench = bench().await;
    let all = || vec![Pattern::new("*", true)];
    bench
        .store
        .admin
        .set_interest(NoticeSubscribers::new(vec![(name("alert"), all()), (name("h"), all())]));
    let now = bench.clock.now();
    bench.store.intake.notify(Notice {
        kind: NoticeType::HandlerBroken,
        subject: Some(name("h")),
        reason: "cannot run".to_owned(),
        count: 1,
        first_at: now,
        last_at: now,
        job: None,
    });
    let come = async {
        loop {
            match told(&bench).await {
                none if none.is_empty() => tokio::task::yield_now().await,
                bodies => break bodies,
            }
        }
    };
    let bodies = tokio::time::timeout(Duration::from_secs(60), come).await.unwrap();
    assert_eq!((&bodies[0]["handler"], &bodies[0]["source"]), (&"h".into(), &Value::Null));
}

/// How many jobs wait until a person has decided.
#[tokio::test]
async fn a_job_that_keeps_its_group_waiting_is_reported_with_the_number_behind_it() {
    let rules = [(GroupRule::Block, 2), (GroupRule::StepOver, 0), (GroupRule::Latest, 0)];
    for (rule, behind) in rules {
        let bench = alerted(&["job"]).await;
        let key = GroupKey::of(&name("stripe"), &[Some("k")]);
        let group = Some(Group { key, rule });
        let job = NewJob { group, ..NewJob::of(name("h")) };
        for event in ["e1", "e2", "e3"] {
            let (source, received_at) = (name("stripe"), bench.clock.now());
            let (delivery, on_redelivery) = (stripe(event, "a", "{}"), OnRedelivery::Ignore);
            let new =
                Accept { source, received_at, delivery, jobs: vec![job.clone()], on_redelivery };
            bench.store.intake.accept(new).await.unwrap();
        }
        let claimed = bench.claim_one().await;
        bench.complete(&claimed, Outcome::Failed, Next::Dead(DeadReason::Exhausted)).await;
        assert_eq!(told(&bench).await[0]["behind"], behind, "{rule}");
    }
}

#[tokio::test]
async fn what_stands_still_for_a_minute_is_told_once() {
    let bench = alerted(&["store.degraded"]).await;
    let jobs = &bench.store.jobs;
    jobs.stalled(Stalled::Payloads, "no room".to_owned());
    bench.store.jobs.tell_notices().await.unwrap();
    assert!(told(&bench).await.is_empty(), "not yet");
    let since = bench.clock.now();
    bench.advance(Duration::from_secs(60)).await;
    for _ in 0..2 {
        jobs.stalled(Stalled::Payloads, "still no room".to_owned());
        jobs.tell_notices().await.unwrap();
    }
    let bodies = loop {
        // It is stored by itself.
        let bodies = told(&bench).await;
        if !bodies.is_empty() {
            break bodies;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(bodies.len(), 1);
    assert_eq!(
        (&bodies[0]["reason"], &bodies[0]["count"]),
        (&"claimed jobs do not begin".into(), &1.into())
    );
    assert_eq!(bodies[0]["first_at"], since.to_string());
    let all = bench.store.admin.stalls();
    assert_eq!(
        (all[0].what, all[0].since, &*all[0].why),
        (Stalled::Payloads, since, "still no room")
    );
    jobs.moves(Stalled::Payloads);
    assert_eq!(bench.store.intake.stalls(), []);
}
