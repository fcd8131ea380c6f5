use super::*;
use crate::store::tables::replay_index::{REPEATS, TWINS, UNDER_ANOTHER_TYPE};

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
    let bench = Arc::new(bench());
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
    let mut bench = bench();
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
    let bench = bench();
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
    let bench = bench();
    let none = Accepted::Created { jobs: 0, held: None, flagged: false };
    assert_eq!(bench.accept("stripe", stripe("e", "a", "{}"), &[]).await, none);
    assert_eq!(bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await, duplicate(None));
    assert!(bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn the_same_id_of_another_source_is_another_event() {
    let bench = bench();
    assert_eq!(bench.accept("one", stripe("e", "a", "{}"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("two", stripe("e", "a", "{}"), &["h"]).await, CREATED);
}

#[tokio::test]
async fn another_body_under_a_signed_id_is_evidence() {
    let bench = bench();
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
    let kept: i64 = bench
        .store
        .engine
        .read(|conn| conn.query_row("SELECT count(*) FROM evidence", [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(kept, 4, "bodies 1 to 4; the limit keeps 5 out");
}

#[tokio::test]
async fn another_body_under_an_unsigned_id_is_a_held_variant() {
    let bench = bench();
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
    let bench = bench();
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
        let bench = bench();
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
async fn a_body_whose_digest_only_begins_alike_is_another_body() {
    let mut bench = bench();
    let label = |id: &str| github(id, "label", "L");
    bench.accept("github", github("chance", "push", "L"), &["h"]).await;
    bench
        .with_file(|conn| {
            let alike =
                "UPDATE event SET digest = CAST(substr(digest, 1, 4) || zeroblob(28) AS BLOB)";
            assert_eq!(conn.execute(alike, []), Ok(1));
        })
        .await;
    assert_eq!(bench.accept("github", label("l1"), &["h"]).await, CREATED);
    let twins = async || {
        bench.store.admin.show(None, id("l1"), None).await.unwrap()[0]
            .twins
            .iter()
            .map(|twin| twin.event_id.to_string())
            .collect::<Vec<_>>()
    };
    assert!(twins().await.is_empty());
    let flagged = Accepted::Created { jobs: 1, held: None, flagged: true };
    assert_eq!(bench.accept("github", label("l2"), &["h"]).await, flagged);
    assert_eq!(twins().await, ["l2"]);
}

#[tokio::test]
async fn of_each_body_one_event_is_the_first_however_it_comes_and_goes() {
    let mut bench = bench();
    let held = |reason| Accepted::Created { jobs: 1, held: Some(reason), flagged: false };
    let flagged = Accepted::Created { jobs: 1, held: None, flagged: true };
    assert_eq!(bench.accept("github", github("l1", "label", "L"), &["h"]).await, CREATED);
    assert_eq!(bench.accept("github", github("l2", "label", "L"), &["h"]).await, flagged);
    assert_eq!(bench.accept("other", github("l1", "label", "L"), &["h"]).await, CREATED);
    // A variant repeats a body too, which came under another type then.
    let variant = bench.accept("github", github("l2", "push", "L"), &["h"]).await;
    assert_eq!(variant, held(HeldReason::IdReused));
    let firsts =
        "SELECT group_concat(source || ' ' || event_id, ', ') FROM event WHERE repeated = 0";
    let found: String = bench
        .store
        .engine
        .read(move |conn| conn.query_row(firsts, [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(found, "github l1, other l1");
    // When the first one is forgotten, those that repeat it still say that it came.
    bench
        .with_file(|conn| {
            let forget = "DELETE FROM event WHERE source = 'github' AND event_id = 'l1'";
            assert_eq!(conn.execute(forget, []), Ok(1));
        })
        .await;
    let again = bench.accept("github", github("l3", "label", "L"), &["h"]).await;
    assert_eq!(again, held(HeldReason::SuspectedReplay));
    let found: String = bench
        .store
        .engine
        .read(move |conn| conn.query_row(firsts, [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(found, "other l1");
}

#[tokio::test]
async fn a_body_is_known_however_many_came_since_and_after_a_restart() {
    let mut bench = bench();
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
async fn the_guard_looks_up_a_body_by_its_own_indexes() {
    let mut bench = bench();
    let plan = |conn: &Connection, sql: &str| -> Vec<String> {
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let unset = vec![rusqlite::types::Null; plan.parameter_count()];
        let steps = plan.query_map(rusqlite::params_from_iter(unset), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<_>>().unwrap()
    };
    const FIRST: &str = "event_first (<expr>=?)";
    const REPEATED: &str = "event_repeated (digest=? AND source=?";
    const BY_ROW: &str = "SEARCH event USING INTEGER PRIMARY KEY (rowid=?)";
    bench
        .with_file(|conn| {
            for (sql, repeated) in [(REPEATS, 1), (UNDER_ANOTHER_TYPE, 2), (TWINS, 1)] {
                let plan = plan(conn, sql);
                let steps = |what: &str| plan.iter().filter(|step| step.contains(what)).count();
                assert_eq!((steps(FIRST), steps(REPEATED)), (1, repeated), "{sql}: {plan:#?}");
                let others = steps("event") - steps("event_") - steps(BY_ROW);
                assert_eq!(others, 0, "{sql}: {plan:#?}");
            }
        })
        .await;
}

#[tokio::test]
async fn a_signed_id_is_not_guarded() {
    let bench = bench();
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
    let bench = bench();
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
    let bench = bench();
    let mut seen = Vec::new();
    for (event, pass) in [("e1", 0), ("e2", 30), ("e3", 31)] {
        bench.clock.advance(Duration::from_secs(pass));
        bench.accept("stripe", stripe(event, "a", "{}"), &[]).await;
        seen.push(bench.store.admin.secrets().await.unwrap().remove(0).last_matched_at);
    }
    assert_eq!(seen, [START, START, START.after(Duration::from_secs(61))]);
}

#[tokio::test]
async fn a_secrets_match_that_is_rolled_back_is_noted_by_the_next() {
    let bench = bench();
    let uses = Arc::clone(&bench.store.engine.secret_uses);
    let bad = move |tx: &Connection| {
        uses.note(tx, &name("stripe"), Some("secret"), START)?;
        tx.execute("UPDATE meta SET store_id = x'00'", [])
    };
    assert!(bench.store.engine.submit(Priority::Verb, bad).await.is_err());
    let uses = Arc::clone(&bench.store.engine.secret_uses);
    let note = move |tx: &Connection| {
        let before = tx.total_changes();
        uses.note(tx, &name("stripe"), Some("secret"), START)?;
        Ok(tx.total_changes() - before)
    };
    assert_eq!(bench.store.engine.submit(Priority::Verb, note.clone()).await, Ok(1));
    assert_eq!(bench.store.engine.submit(Priority::Verb, note).await, Ok(0), "within the minute");
    assert_eq!(bench.store.admin.secrets().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_new_event_rings_the_bell() {
    let bench = bench();
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    bench.store.jobs.wake().notified().await;
    // A claim of nothing changes nothing and rings nothing, or the dispatcher would spin.
    assert!(bench.store.jobs.claim(&name("nobody"), 1, None).await.unwrap().jobs.is_empty());
    let wake = bench.store.jobs.wake();
    let quiet = tokio::time::timeout(Duration::from_millis(50), wake.notified()).await;
    assert!(quiet.is_err());
}

#[tokio::test]
async fn an_equal_body_is_another_event_after_the_window_of_the_first() {
    let bench = bench();
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
