//! The jobs that stored events lack.
use super::{tokio, *};
use crate::pattern::Pattern;

fn wanted(source: &str, types: &[&str], only: Option<&str>) -> EventMatcher {
    let pattern = |text: &str| Pattern::new(text, true);
    let types = types.iter().map(|text| pattern(text)).collect();
    EventMatcher { sources: vec![name(source)], types, only: only.map(pattern) }
}

fn missing(since: Timestamp, wanted: Vec<EventMatcher>) -> Backfill {
    Backfill { handler: name("late"), since, wanted, dry_run: false, from: None }
}

/// Asks until the walk is over. Returns the sum, and how many answers there were.
async fn walk(bench: &Bench, mut ask: Backfill) -> (BackfillResult, usize) {
    let mut sum = BackfillResult::default();
    for answers in 1.. {
        let made = bench.store.admin.make_missing(ask.clone()).await.unwrap();
        sum.made += made.made;
        sum.held += made.held;
        sum.present += made.present;
        sum.payload_gone += made.payload_gone;
        ask.from = made.next;
        if ask.from.is_none() {
            return (sum, answers);
        }
    }
    unreachable!()
}

/// The events that have a job of the handler, by the order in which the jobs were made.
async fn events_of(bench: &Bench, handler: &str) -> Vec<(String, State)> {
    let filter = JobFilter { handler: Some(name(handler)), ..JobFilter::default() };
    let jobs = bench.store.admin.jobs(filter).await.unwrap().rows;
    jobs.into_iter().rev().map(|job| (job.event_id.to_string(), job.state)).collect()
}

#[tokio::test]
async fn what_is_wanted_new_enough_and_without_a_job_gets_one() {
    let mut bench = bench().await;
    let from = |event: &'static str, kind: &'static str| github(event, kind, event);
    bench.accept("github", from("old", "push"), &["h"]).await;
    bench.advance(HOUR).await;
    let since = bench.clock.now();
    bench.accept("github", from("gone", "push"), &[]).await;
    bench.accept("github", from("first", "push"), &["h"]).await;
    bench.accept("github", from("second", "issues.opened"), &[]).await;
    bench.accept("github", from("other-type", "ping"), &[]).await;
    bench.accept("elsewhere", from("other-source", "push"), &[]).await;
    bench.accept("github", from("has-one", "push"), &["late"]).await;
    bench.accept("github", from("dropped", "push"), &["late"]).await;
    let shown = bench.store.admin.show(None, id("dropped"), None).await.unwrap();
    bench.store.admin.drop_job(shown[0].jobs[0].job.job, None).await.unwrap();
    bench.change_rows("DELETE FROM payload WHERE event = 2").await;
    bench.advance(HOUR).await;

    let ask = missing(since, vec![wanted("github", &["push", "issues"], None)]);
    let dry = walk(&bench, Backfill { dry_run: true, ..ask.clone() }).await;
    let expected = BackfillResult {
        made: 2,
        held: 0,
        present: 2,
        payload_gone: 1,
        unwanted: 0,
        superseded: 0,
        next: None,
    };
    assert_eq!(dry, (expected.clone(), 1));
    assert_eq!(events_of(&bench, "late").await.len(), 2, "counting makes nothing");

    assert_eq!(walk(&bench, ask.clone()).await.0, expected);
    let late = events_of(&bench, "late").await;
    let ready = |event: &str| (event.to_owned(), State::Ready);
    assert_eq!(late[2..], [ready("first"), ready("second")]);
    // Again: there is nothing left to make.
    let again = BackfillResult { made: 0, present: 4, ..expected };
    assert_eq!(walk(&bench, ask).await.0, again);

    // They run, oldest first, as of now.
    let claimed = bench.store.jobs.claim(&name("late"), 9, None).await.unwrap().jobs;
    let ids: Vec<_> = claimed.iter().map(|c| c.facts.event_id.to_string()).collect();
    assert_eq!(ids, ["has-one", "first", "second"]);
    assert_eq!(claimed[1].since, bench.clock.now());
}

#[tokio::test]
async fn a_narrower_type_narrows() {
    let bench = bench().await;
    for (event, kind) in [("a", "issues.opened"), ("b", "issues.closed"), ("c", "push")] {
        bench.accept("github", github(event, kind, event), &[]).await;
    }
    // What the handler does not want is not made by asking for it.
    for (only, expected) in [("issues", 2), ("*.closed", 1), ("push", 0)] {
        let wanted = vec![wanted("github", &["issues"], Some(only))];
        let ask = Backfill { dry_run: true, ..missing(START, wanted) };
        assert_eq!(walk(&bench, ask).await.0.made, expected, "{only}");
    }
    assert_eq!(walk(&bench, missing(START, Vec::new())).await.0, BackfillResult::default());
    let later = missing(START.after(HOUR), vec![wanted("github", &["*"], None)]);
    assert_eq!(walk(&bench, later).await, (BackfillResult::default(), 1));
}

#[tokio::test]
async fn a_clock_that_was_set_back_hides_and_adds_nothing() {
    let bench = bench().await;
    for (event, hours) in [("in", 2), ("before", 0), ("in-too", 3)] {
        bench.set_wall(START.after(hours * HOUR)).await;
        bench.accept("github", github(event, "push", event), &[]).await;
    }
    let ask = missing(START.after(HOUR), vec![wanted("github", &["push"], None)]);
    assert_eq!(walk(&bench, ask).await.0.made, 2);
    let made = events_of(&bench, "late").await;
    assert_eq!(made.iter().map(|(event, _)| event.as_str()).collect::<Vec<_>>(), ["in", "in-too"]);
}

#[tokio::test]
async fn what_accepting_would_have_held_is_made_held() {
    let bench = bench().await;
    // The same signed body under another id, and another body under a used id: both may be forged.
    bench.accept("github", github("honest", "push", "1"), &[]).await;
    bench.accept("github", github("twin", "push", "1"), &[]).await;
    bench.accept("github", github("honest", "push", "2"), &[]).await;
    // A type that honestly repeats.
    bench.accept("github", github("label-1", "label", "3"), &[]).await;
    bench.accept("github", github("label-2", "label", "3"), &[]).await;
    // Unless it comes under another type too.
    bench.accept("github", github("label-3", "push", "3"), &[]).await;
    // The reference: the same deliveries at another source, for a handler that was there.
    for (event, kind, body) in [
        ("honest", "push", "1"),
        ("twin", "push", "1"),
        ("honest", "push", "2"),
        ("label-1", "label", "3"),
        ("label-2", "label", "3"),
        ("label-3", "push", "3"),
    ] {
        bench.accept("reference", github(event, kind, body), &["there"]).await;
    }
    let (made, _) = walk(&bench, missing(START, vec![wanted("github", &["*"], None)])).await;
    assert_eq!((made.made, made.held), (6, 3));
    let reasons = async |handler: &str| -> Vec<_> {
        let filter = JobFilter { handler: Some(name(handler)), ..JobFilter::default() };
        let jobs = bench.store.admin.jobs(filter).await.unwrap().rows;
        jobs.into_iter().map(|job| (job.event_id, job.state, job.reason)).collect()
    };
    assert_eq!(reasons("late").await, reasons("there").await);
}

/// Accepts pushes without a job, many in one transaction.
async fn accept_at_once(bench: &Bench, numbers: std::ops::Range<u64>) {
    let mut accepts = tokio::task::JoinSet::new();
    for n in numbers {
        let (store, received_at) = (bench.store.clone(), bench.clock.now());
        let delivery = github(&format!("e{n}"), "push", &n.to_string());
        let new = Accept {
            source: name("github"),
            received_at,
            delivery,
            jobs: Vec::new(),
            on_redelivery: OnRedelivery::Ignore,
        };
        accepts.spawn(async move { store.intake.accept(new).await.unwrap() });
    }
    accepts.join_all().await;
}

#[tokio::test]
async fn a_long_walk_goes_in_bounded_steps_and_ends_while_events_arrive() {
    let bench = bench().await;
    const EVENTS: u64 = 1_250;
    accept_at_once(&bench, 0..250).await;
    bench.advance(DAY).await;
    accept_at_once(&bench, 250..EVENTS).await;
    let all = vec![wanted("github", &["push"], None)];
    let dry = Backfill { dry_run: true, ..missing(START, all.clone()) };
    assert_eq!(walk(&bench, dry).await.0.made, EVENTS);

    let mut ask = missing(START.after(DAY), all);
    let first = bench.store.admin.make_missing(ask.clone()).await.unwrap();
    assert_eq!(first.made, 200, "one step");
    let number = |(event, _): (String, State)| event[1..].parse::<u64>().unwrap();
    let least = events_of(&bench, "late").await.into_iter().map(number).min();
    assert!(least >= Some(250), "older ones are not even looked at");
    // Events that come now are the receiver's to match.
    bench.accept("github", github("new", "push", "new"), &[]).await;
    ask.from = first.next;
    let (rest, answers) = walk(&bench, ask).await;
    assert_eq!((first.made + rest.made, answers), (EVENTS - 250, 5));
    assert!(bench.store.admin.show(None, id("new"), None).await.unwrap()[0].jobs.is_empty());
}
