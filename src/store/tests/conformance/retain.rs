use super::{tokio, *};

#[tokio::test]
async fn payloads_go_first_ids_much_later_and_neither_while_needed() {
    let bench = bench().await;
    // Handled, unfinished, dead, unwanted.
    for event in ["done", "held", "dead"] {
        let claimed = bench.running(event).await;
        let (outcome, next) = match event {
            "done" => (Outcome::Succeeded, Next::Succeeded),
            "held" => (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
            _ => (Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
        };
        bench.complete(&claimed, outcome, next).await;
    }
    bench.accept("stripe", stripe("none", "a", "{}"), &[]).await;
    bench.advance(DAY).await;
    bench.accept("stripe", stripe("young", "a", "{}"), &[]).await;
    let now = bench.clock.now();
    let before = now.before(HOUR);

    assert_eq!(expired(&bench, START, START).await, (0, 0), "none is older");
    assert_eq!(expired(&bench, before, START).await, (2, 0));
    let kept: Vec<_> = bench
        .store
        .admin
        .events(EventFilter::default())
        .await
        .unwrap()
        .rows
        .into_iter()
        .map(|event| (event.event_id.to_string(), event.payload_kept))
        .collect();
    let expected =
        [("young", true), ("none", false), ("dead", true), ("held", true), ("done", false)];
    assert_eq!(kept, expected.map(|(event, kept)| (event.to_owned(), kept)));
    // The id still answers.
    let again = bench.accept("stripe", stripe("done", "a.b", "{}"), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { state: Some(State::Succeeded), .. }));

    assert_eq!(expired(&bench, before, before).await, (0, 2));
    assert!(bench.store.admin.show(None, id("done"), None).await.unwrap().is_empty());
    // A number is never used again: the row of the newest event is not the freed one.
    let again = bench.accept("stripe", stripe("done", "a.b", "{}"), &["h"]).await;
    assert!(matches!(again, Accepted::Created { .. }));
}

/// What the store says of an event: its jobs by state, how many are listed, whether its payload is kept.
async fn told(bench: &Bench, event: &str) -> (Vec<(State, u64)>, usize, bool) {
    let shown = bench.store.admin.show(None, id(event), None).await.unwrap().remove(0);
    assert_eq!(shown.event.handlers.len(), shown.jobs.len());
    (shown.event.jobs.into_iter().collect(), shown.jobs.len(), shown.event.payload_kept)
}

#[tokio::test]
async fn the_guard_forgets_a_body_with_the_last_event_that_has_it() {
    let bench = bench().await;
    let accept = |event: &'static str, body: &'static str| {
        bench.accept("github", github(event, "push", body), &[])
    };
    let created = |held| Accepted::Created { jobs: 0, held, flagged: false };
    let held = created(Some(HeldReason::SuspectedReplay));
    assert_eq!(accept("a1", "A").await, created(None));
    assert_eq!(accept("b1", "B").await, created(None));
    bench.advance(DAY).await;
    let day = bench.clock.now();
    assert_eq!(accept("b2", "B").await, held);
    assert_eq!(expired(&bench, day, day).await, (2, 2));
    assert_eq!(accept("a2", "A").await, created(None));
    assert_eq!(accept("a3", "A").await, held);
    assert_eq!(accept("b3", "B").await, held, "a repeat says that the body came");
}

#[tokio::test]
async fn jobs_go_with_the_payload_where_all_of_them_are_done_for_good() {
    let bench = bench().await;
    // One event for each way in which the jobs of `h` and `i` may stand; nothing is done where none is named.
    let standing: [(&str, &[(&str, &str)]); 9] = [
        ("none", &[]),
        ("done", &[("h", "succeeded"), ("i", "succeeded")]),
        ("mixed", &[("h", "succeeded"), ("i", "dropped")]),
        ("dropped", &[("h", "dropped")]),
        ("ready", &[("h", "succeeded"), ("i", "ready")]),
        ("running", &[("h", "succeeded"), ("i", "running")]),
        ("waiting", &[("h", "dropped"), ("i", "waiting")]),
        ("held", &[("h", "succeeded"), ("i", "held")]),
        ("dead", &[("h", "succeeded"), ("i", "dead")]),
    ];
    for (event, jobs) in standing {
        let handlers: Vec<String> = jobs.iter().map(|(h, _)| format!("{event}-{h}")).collect();
        let handlers: Vec<&str> = handlers.iter().map(String::as_str).collect();
        bench.accept("stripe", stripe(event, "a", "{}"), &handlers).await;
        for (handler, state) in handlers.iter().zip(jobs.iter().map(|(_, state)| *state)) {
            let handler = name(handler);
            let claim = || bench.store.jobs.claim(&handler, 1, None);
            let next = match state {
                "ready" => continue,
                "dropped" => {
                    let filter =
                        JobFilter { handler: Some(handler.clone()), ..JobFilter::default() };
                    let job = bench.store.admin.jobs(filter).await.unwrap().rows[0].job;
                    bench.store.admin.drop_job(job, None).await.unwrap();
                    continue;
                }
                "running" => {
                    claim().await.unwrap();
                    continue;
                }
                "succeeded" => (Outcome::Succeeded, Next::Succeeded),
                "waiting" => (Outcome::Failed, Next::Wait { due_at: START.after(90 * DAY) }),
                "held" => (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
                _ => (Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
            };
            bench.complete(&claim().await.unwrap().jobs[0], next.0, next.1).await;
        }
    }
    let state =
        async |event: &str| match bench.accept("stripe", stripe(event, "a", "{}"), &[]).await {
            Accepted::Duplicate { state, removed, .. } => (state, removed),
            created => panic!("{created:?}"),
        };
    let mut before = Vec::new();
    for (event, _) in standing {
        before.push((state(event).await, told(&bench, event).await.0));
    }
    bench.advance(DAY).await;
    let day = bench.clock.now();
    assert_eq!(expired(&bench, day, START).await, (4, 0));
    assert_eq!(expired(&bench, day, START).await, (0, 0), "again");

    for ((event, jobs), before) in standing.into_iter().zip(before) {
        let gone = matches!(event, "none" | "done" | "mixed" | "dropped");
        let (counts, listed, payload_kept) = told(&bench, event).await;
        let (was, none) = before.0;
        assert!(!none, "{event}");
        let removed = gone && !jobs.is_empty();
        assert_eq!((state(event).await, counts), ((was, removed), before.1), "{event}");
        assert_eq!((listed, payload_kept), (if gone { 0 } else { jobs.len() }, !gone), "{event}");
    }
    let listed = async |state| {
        let filter = EventFilter { state: Some(state), ..EventFilter::default() };
        let events = bench.store.admin.events(filter).await.unwrap().rows;
        events.into_iter().map(|event| event.event_id.to_string()).rev().collect::<Vec<_>>()
    };
    let done = listed(State::Succeeded).await;
    assert_eq!(done, ["done", "mixed", "ready", "running", "held", "dead"]);
    assert_eq!(listed(State::Dropped).await, ["mixed", "dropped", "waiting"]);
    assert_eq!(listed(State::Dead).await, ["dead"]);
    assert_eq!(state("dead").await, (Some(State::Dead), false));
    assert_eq!(state("none").await, (None, false));

    // Once nothing keeps the dead one's payload, its jobs stay all the same: it was not done.
    let before = Cutoffs { payloads: day, ids: START, dead: day };
    assert_eq!(bench.store.jobs.expire(before).await.unwrap().payloads, 1);
    let dead = told(&bench, "dead").await;
    assert_eq!(dead, (vec![(State::Succeeded, 1), (State::Dead, 1)], 2, false));
}

#[tokio::test]
async fn what_has_just_ended_of_an_old_event_is_on_record_as_long_as_that_of_a_new_one() {
    let bench = bench().await;
    for (event, outcome, next) in [
        ("resolved", Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
        ("replayed", Outcome::Succeeded, Next::Succeeded),
    ] {
        let claimed = bench.running(event).await;
        bench.complete(&claimed, outcome, next).await;
    }
    // Long after they arrived, but not beyond the time for which their ids are kept.
    bench.advance(DAY).await;
    let job = async |event| {
        bench.store.admin.show(None, id(event), None).await.unwrap()[0].jobs[0].job.job
    };
    bench.resolve(job("resolved").await, Resolution::Succeeded).await.unwrap();
    bench.store.admin.replay(Replay::Job(job("replayed").await, None), false).await.unwrap();
    bench.complete(&bench.claim_one().await, Outcome::Succeeded, Next::Succeeded).await;

    let settled = bench.clock.now();
    assert_eq!(expired(&bench, settled, settled).await, (0, 0));
    for event in ["resolved", "replayed"] {
        assert_eq!(told(&bench, event).await, (vec![(State::Succeeded, 1)], 1, true), "{event}");
    }
    let later = settled.after(HOUR);
    assert_eq!(expired(&bench, later, START).await, (2, 0));
    for event in ["resolved", "replayed"] {
        assert_eq!(told(&bench, event).await, (vec![(State::Succeeded, 1)], 0, false), "{event}");
    }
}

#[tokio::test]
async fn a_removed_job_is_never_made_again() {
    let bench = bench().await;
    let claimed = bench.running("done").await;
    bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;
    let job = bench
        .store
        .admin
        .replay(Replay::NewKey(claimed.facts.job, None), false)
        .await
        .unwrap()
        .jobs[0];
    let again = bench.claim_one().await;
    bench.complete(&again, Outcome::Succeeded, Next::Succeeded).await;
    bench.advance(DAY).await;
    assert_eq!(expired(&bench, bench.clock.now(), START).await, (1, 0));
    let left = "SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM attempt)
             + (SELECT count(*) FROM former_key)";
    assert_eq!(bench.number(left).await, 0);

    let wanted = EventMatcher {
        sources: vec![name("stripe")],
        types: vec![crate::pattern::Pattern::new("*", true)],
        only: None,
    };
    for handler in ["h", "late"] {
        let (handler, wanted) = (name(handler), vec![wanted.clone()]);
        let ask =
            Backfill { handler: handler.clone(), since: START, wanted, dry_run: false, from: None };
        let made = bench.store.admin.make_missing(ask).await.unwrap();
        assert_eq!((made.made, made.present, made.payload_gone), (0, 1, 0), "it was handled");
        let (source, event) = (None, id("done"));
        let replay = Replay::Event { source, event, handler: Some(handler) };
        let error = bench.store.admin.replay(replay, false).await.unwrap_err();
        assert!(matches!(error, Error::JobsGone { .. }), "{error}");
    }
    let event = Replay::Event { source: None, event: id("done"), handler: None };
    let error = bench.store.admin.replay(event, false).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the jobs and the payload of event done of source stripe have been deleted by retention; \
         it cannot be run again"
    );
    // A late result finds nothing to change, under either key.
    for key in [claimed.facts.job, job] {
        let error = bench.store.admin.replay(Replay::Job(key, None), false).await.unwrap_err();
        assert!(matches!(error, Error::NoJob(_)), "{error}");
        let mut late = completion(&claimed, Outcome::Failed, Next::Ready, START);
        late.job = key;
        assert_settles_nothing(bench.store.jobs.complete(late).await);
    }
    assert_eq!(told(&bench, "done").await, (vec![(State::Succeeded, 1)], 0, false));
}

#[tokio::test]
async fn retention_walks_over_more_than_one_step() {
    let bench = bench().await;
    let accepts: Vec<_> = (0..450)
        .map(|n| {
            let (store, received_at) = (bench.store.clone(), bench.clock.now());
            let delivery = stripe(&format!("e{n}"), "a", "{}");
            tokio::spawn(async move {
                let source = name("stripe");
                let jobs = Vec::new();
                store
                    .intake
                    .accept(Accept {
                        source,
                        received_at,
                        delivery,
                        jobs,
                        on_redelivery: OnRedelivery::Ignore,
                    })
                    .await
                    .unwrap()
            })
        })
        .collect();
    for accept in accepts {
        accept.await.unwrap();
    }
    let later = START.after(HOUR);
    assert_eq!(expired(&bench, later, later).await, (450, 450));
}

#[tokio::test]
async fn an_id_is_remembered_while_one_of_its_bodies_is() {
    let bench = bench().await;
    // Nobody wants the first body under this unsigned id; another comes a day later.
    bench.accept("github", github("guid", "label", r#"{"n":1}"#), &[]).await;
    bench.advance(DAY).await;
    let second = || github("guid", "label", r#"{"n":2}"#);
    let held = bench.accept("github", second(), &["h"]).await;
    assert!(matches!(held, Accepted::Created { held: Some(HeldReason::IdReused), .. }));

    let before = bench.clock.now().before(HOUR);
    assert_eq!(expired(&bench, before, before).await, (1, 0), "the payload only");
    // Else this would be the id's first event, and run because its type repeats.
    let again = bench.accept("github", second(), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { state: Some(State::Held), .. }), "{again:?}");
}

#[tokio::test]
async fn a_dead_letter_keeps_what_it_has_for_keep_dead_and_then_goes_like_the_rest() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let mut done = completion(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected), START);
    done.record.stdout =
        OutputExcerpt { head: Blob(b"said".to_vec()), tail: Blob(Vec::new()), total: 4 };
    assert!(bench.store.jobs.complete(done).await.unwrap());
    bench.advance(DAY).await;
    let now = bench.clock.now();
    let said = async || {
        bench.store.admin.show(None, id("e"), None).await.unwrap()[0].jobs[0].attempts[0].clone()
    };
    let before = |payloads, ids, dead| bench.store.jobs.expire(Cutoffs { payloads, ids, dead });

    let kept = before(now, now, START).await.unwrap();
    assert_eq!((kept.payloads, kept.events), (0, 0), "it ended at that very moment, not before");
    assert_eq!(said().await.record.stdout.head[..], b"said"[..]);

    let gone = before(now, START, now).await.unwrap();
    assert_eq!((gone.payloads, gone.events), (1, 0));
    let stdout = said().await.record.stdout;
    assert_eq!((stdout.head.len(), stdout.total), (0, 4), "what was printed goes, how much stays");
    let job = claimed.facts.job;
    assert_eq!(bench.job(job).await.state, State::Dead);
    let again = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
    assert!(matches!(again, Error::PayloadGone { .. }), "{again}");
    assert_eq!(before(now, now, now).await.unwrap().events, 1);
}

#[tokio::test]
async fn the_use_of_a_secret_is_forgotten_with_its_sources_last_event() {
    let bench = bench().await;
    bench.accept("gone", stripe("e", "a", "{}"), &[]).await;
    // On PostgreSQL its use is written behind the answer, and before the next transaction.
    bench.claim_all().await;
    bench.advance(DAY).await;
    bench.accept("here", stripe("e", "a", "{}"), &[]).await;
    let sources = async || {
        let used = bench.store.admin.secrets().await.unwrap();
        used.into_iter().map(|used| used.source.to_string()).collect::<Vec<_>>()
    };
    let day = bench.clock.now();
    expired(&bench, day, START).await;
    assert_eq!(sources().await, ["gone", "here"], "its event is still known");
    expired(&bench, day, day).await;
    assert_eq!(sources().await, ["here"]);
}

#[tokio::test]
async fn another_body_that_came_when_the_first_was_deleted_ages_too() {
    let bench = bench().await;
    bench.accept("stripe", stripe("e", "a", "{}"), &[]).await;
    bench.advance(DAY).await;
    let day = bench.clock.now();
    assert_eq!(expired(&bench, day, START).await, (1, 0));
    bench.accept("stripe", stripe("e", "a", r#"{"n":2}"#), &[]).await;
    let bodies = async || bench.number("SELECT count(*) FROM evidence").await;
    expired(&bench, day, START).await;
    assert_eq!(bodies().await, 1);
    expired(&bench, day.after(HOUR), START).await;
    assert_eq!(bodies().await, 0);
}
