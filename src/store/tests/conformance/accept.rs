use futures_util::FutureExt;

use super::{tokio, *};

const CREATED: Accepted = Accepted::Created { jobs: 1, held: None, flagged: false };

fn duplicate(state: Option<State>) -> Accepted {
    Accepted::Duplicate {
        state,
        removed: false,
        replayed: 0,
        first_received_at: START,
        conflict: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_concurrent_copies_are_one_event_and_one_job() {
    let bench = Arc::new(bench().await);
    let copies: Vec<_> = (0..100)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                bench.accept("stripe", stripe("evt_1", "a.b", "{}"), &["h"]).await
            })
        })
        .collect();
    let mut created = 0;
    for copy in copies {
        match copy.await.unwrap() {
            Accepted::Created { .. } => created += 1,
            answer => assert_eq!(answer, duplicate(Some(State::Ready))),
        }
    }
    assert_eq!(created, 1);
    assert_eq!(bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.len(), 1);
    let events = bench.store.admin.events(EventFilter::default()).await.unwrap().rows;
    assert_eq!((events.len(), events[0].duplicates), (1, 99));
}

#[tokio::test]
async fn an_event_is_kept_byte_for_byte_and_across_a_restart() {
    let mut bench = bench().await;
    let body: String = (0..400_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    bench.accept("github", github("d1", "push", &body), &["a", "b"]).await;
    bench.restart().await;
    assert_eq!(
        bench.accept("github", github("d1", "push", &body), &["a", "b"]).await,
        duplicate(Some(State::Ready))
    );
    let claimed = bench.store.jobs.claim(&name("b"), 5, None).await.unwrap().jobs;
    assert_eq!(claimed.len(), 1);
    let facts = &claimed[0].facts;
    assert_eq!(facts.body, body.as_bytes());
    assert_eq!(facts.headers.all("content-type").next(), Some(b"application/json".as_slice()));
    assert_eq!((facts.attempt, facts.replays, claimed[0].counted), (1, 0, 0));
    assert_eq!((facts.source.as_str(), facts.event_id.as_str()), ("github", "d1"));
    assert_eq!((facts.event_type.as_str(), facts.received_at), ("push", START));
}

#[tokio::test]
async fn an_empty_body_and_an_odd_type_are_stored() {
    let bench = bench().await;
    bench.accept("github", github("d1", "od d", ""), &["h"]).await;
    let claimed = bench.claim_one().await;
    assert!(claimed.facts.body.is_empty());
    assert_eq!(claimed.facts.event_type, EventType::from_raw("od d"));
    assert_eq!(
        bench.accept("github", github("d1", "od d", ""), &["h"]).await,
        duplicate(Some(State::Running))
    );
}

#[tokio::test]
async fn an_event_that_no_handler_wants_is_stored_without_a_job() {
    let bench = bench().await;
    let none = Accepted::Created { jobs: 0, held: None, flagged: false };
    assert_eq!(bench.accept("stripe", stripe("e", "a", "{}"), &[]).await, none);
    assert_eq!(bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await, duplicate(None));
    assert!(bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn the_same_id_of_another_source_is_another_event() {
    let bench = bench().await;
    assert_eq!(bench.accept("one", stripe("e", "a", "{}"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("two", stripe("e", "a", "{}"), &["h"]).await, CREATED);
}

#[tokio::test]
async fn another_body_under_a_signed_id_is_evidence() {
    let bench = bench().await;
    assert_eq!(bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await, CREATED);
    for body in ["1", "2", "2", "3", "4", "5"] {
        let answer = bench.accept("stripe", stripe("e", "a", body), &["h"]).await;
        let conflict = Accepted::Duplicate {
            state: Some(State::Ready),
            removed: false,
            replayed: 0,
            first_received_at: START,
            conflict: true,
        };
        assert_eq!(answer, conflict);
    }
    let event = bench.store.admin.events(EventFilter::default()).await.unwrap().rows.remove(0);
    assert_eq!((event.conflicts, event.duplicates, event.jobs), (6, 6, [(State::Ready, 1)].into()));
    let kept = bench.number("SELECT count(*) FROM evidence").await;
    assert_eq!(kept, 4, "bodies 1 to 4; the limit keeps 5 out");
}

#[tokio::test]
async fn another_body_under_an_unsigned_id_is_a_held_variant() {
    let bench = bench().await;
    let held = Accepted::Created { jobs: 1, held: Some(HeldReason::IdReused), flagged: false };
    assert_eq!(bench.accept("github", github("d", "push", "1"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("github", github("d", "push", "2"), &["h"]).await, held);
    assert_eq!(bench.accept("github", github("d", "push", "3"), &["h"]).await, held);
    // Another type is another event too: the header that says it is not signed.
    assert_eq!(bench.accept("github", github("d", "ping", "1"), &["h"]).await, held);
    // Each of them has its own duplicates.
    let again = bench.accept("github", github("d", "push", "1"), &["h"]).await;
    assert_eq!(again, duplicate(Some(State::Ready)));
    let again = bench.accept("github", github("d", "push", "2"), &["h"]).await;
    assert_eq!(again, duplicate(Some(State::Held)));
    let shown = bench.store.admin.show(Some(name("github")), id("d"), None).await.unwrap();
    assert_eq!(shown.iter().map(|e| e.event.variant).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(
        bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.len(),
        1,
        "only the first runs"
    );
}

#[tokio::test]
async fn the_same_body_under_a_new_id_is_held_or_flagged() {
    let bench = bench().await;
    let held =
        Accepted::Created { jobs: 1, held: Some(HeldReason::SuspectedReplay), flagged: false };
    let flagged = Accepted::Created { jobs: 1, held: None, flagged: true };
    assert_eq!(bench.accept("github", github("d1", "push", "1"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("github", github("d2", "push", "1"), &["h"]).await, held);
    assert_eq!(bench.accept("github", github("d3", "push", "2"), &["h"]).await, CREATED);
    // Another source's secret signed it: nothing to do with this one.
    assert_eq!(bench.accept("other", github("d4", "push", "1"), &["h"]).await, CREATED);
    // Types that honestly repeat run, marked.
    assert_eq!(bench.accept("github", github("l1", "label", "L"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("github", github("l2", "label", "L"), &["h"]).await, flagged);
    // The same body under another type is held whatever the type says.
    assert_eq!(bench.accept("github", github("l3", "push", "L"), &["h"]).await, held);
    assert_eq!(bench.accept("github", github("l4", "aaa", "L"), &["h"]).await, held);
    // A redelivery of a held or flagged one is a duplicate of it.
    let again = bench.accept("github", github("d2", "push", "1"), &["h"]).await;
    assert_eq!(again, duplicate(Some(State::Held)));
    let marked: Vec<String> = bench
        .store
        .admin
        .events(EventFilter::default())
        .await
        .unwrap()
        .rows
        .into_iter()
        .filter(|event| event.flagged)
        .map(|event| event.event_id.to_string())
        .collect();
    assert_eq!(marked, ["l2"]);
}

#[tokio::test]
async fn a_type_that_repeats_is_held_once_its_body_came_under_another() {
    let held =
        Accepted::Created { jobs: 1, held: Some(HeldReason::SuspectedReplay), flagged: false };
    for other in ["aaa", "zzz"] {
        let bench = bench().await;
        assert_eq!(bench.accept("github", github("l1", "label", "L"), &["h"]).await, CREATED);
        assert_eq!(bench.accept("github", github("o", other, "L"), &["h"]).await, held);
        assert_eq!(bench.accept("github", github("l2", "label", "L"), &["h"]).await, held);
        // The other type's body in another source is none of it.
        assert_eq!(bench.accept("other", github("l1", "label", "L"), &["h"]).await, CREATED);
        assert!(matches!(
            bench.accept("other", github("l2", "label", "L"), &["h"]).await,
            Accepted::Created { flagged: true, .. }
        ));
    }
}

#[tokio::test]
async fn a_body_is_known_however_many_came_since_and_after_a_restart() {
    let mut bench = bench().await;
    let came = |id: String, number: usize| github(&id, "push", &format!("body {number}"));
    for number in 0..60 {
        let event = came(format!("a{number}"), number);
        assert_eq!(bench.accept("github", event, &["h"]).await, CREATED);
    }
    bench.restart().await;
    let held =
        Accepted::Created { jobs: 1, held: Some(HeldReason::SuspectedReplay), flagged: false };
    for number in 0..60 {
        let event = came(format!("b{number}"), number);
        assert_eq!(bench.accept("github", event, &["h"]).await, held, "{number}");
    }
}

#[tokio::test]
async fn a_signed_id_is_not_guarded() {
    let bench = bench().await;
    let body = stripe("e1", "a", "{}");
    assert_eq!(bench.accept("stripe", body, &["h"]).await, CREATED);
    // Where the id is in a signed header, the same body honestly comes under several ids.
    for id in ["e2", "e3"] {
        let body = r#"{"type":"a"}"#.to_owned();
        let twin =
            delivery("standard-webhooks", "whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0", id, "a", body);
        assert_eq!(bench.accept("standard", twin, &["h"]).await, CREATED);
    }
}

#[tokio::test]
async fn a_duplicate_tells_the_state_that_matters_most() {
    let bench = bench().await;
    let event = || stripe("e", "a", "{}");
    bench.accept("stripe", event(), &["h", "i"]).await;
    let state = |answer| match answer {
        Accepted::Duplicate { state, .. } => state,
        created => panic!("{created:?}"),
    };
    let h = bench.claim_one().await;
    assert_eq!(state(bench.accept("stripe", event(), &[]).await), Some(State::Running));
    bench.complete(&h, Outcome::Succeeded, Next::Succeeded).await;
    assert_eq!(state(bench.accept("stripe", event(), &[]).await), Some(State::Ready));
    let i = bench.store.jobs.claim(&name("i"), 1, None).await.unwrap().jobs.remove(0);
    bench.complete(&i, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    assert_eq!(state(bench.accept("stripe", event(), &[]).await), Some(State::Held));
}

#[tokio::test]
async fn a_secrets_last_match_is_noted_once_a_minute() {
    let bench = bench().await;
    let mut seen = Vec::new();
    for (event, pass) in [("e1", 0), ("e2", 30), ("e3", 31)] {
        bench.advance(Duration::from_secs(pass)).await;
        bench.accept("stripe", stripe(event, "a", "{}"), &[]).await;
        // On PostgreSQL it is written behind the answer, and before the next transaction.
        bench.claim_all().await;
        seen.push(bench.store.admin.secrets().await.unwrap().remove(0).last_matched_at);
    }
    assert_eq!(seen, [START, START, START.after(Duration::from_secs(61))]);
}

#[tokio::test]
async fn a_new_event_rings_the_bell() {
    let bench = bench().await;
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    let wake = bench.store.jobs.wake();
    wake.notified().await;
    // A claim of nothing changes nothing and rings nothing, or the dispatcher would spin. A store on PostgreSQL may have
    // more to say at its start, but not with each claim.
    let mut claims = 0..100;
    loop {
        claims.next().expect("each claim rings");
        let _rung_before = wake.notified().now_or_never();
        // The second is answered behind what the first one rings.
        for _ in 0..2 {
            let claimed = bench.store.jobs.claim(&name("nobody"), 1, None).await.unwrap();
            assert!(claimed.jobs.is_empty());
        }
        if wake.notified().now_or_never().is_none() {
            break;
        }
    }
}

#[tokio::test]
async fn an_equal_body_is_another_event_after_the_window_of_the_first() {
    let bench = bench().await;
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let accept = async |at: Timestamp, body: &str| {
        let accept = Accept {
            source: name("alerts"),
            received_at: at,
            delivery: delivery("grafana", "test", "", "", body.to_owned()),
            jobs: vec![NewJob::of(name("h"))],
            on_redelivery: OnRedelivery::Ignore,
        };
        bench.store.intake.accept(accept).await.unwrap()
    };
    let is_new = |accepted: Accepted| matches!(accepted, Accepted::Created { held: None, .. });
    assert!(is_new(accept(START, "{}").await));
    // Duplicates do not prolong the window, and a clock that was set back does not end it.
    for at in
        [START, START.after(minutes(30)), START.after(minutes(59)), Timestamp(START.0 - 60_000)]
    {
        assert!(!is_new(accept(at, "{}").await), "{at:?}");
    }
    assert!(is_new(accept(START.after(minutes(59)), "{\"other\":1}").await));
    assert!(is_new(accept(START.after(minutes(60)), "{}").await));
    assert!(!is_new(accept(START.after(minutes(61)), "{}").await));
    assert!(!is_new(accept(START.after(minutes(119)), "{}").await));
    assert!(is_new(accept(START.after(minutes(120)), "{}").await));
    let events = bench.store.admin.events(EventFilter::default()).await.unwrap().rows;
    assert_eq!(events.len(), 4);
}
