//! Event ids in their two stored forms.
use proptest::prelude::*;
use rusqlite::types::Value;

use super::*;

const UUID: &str = "0a1b2c3d-4e5f-4a6b-8c7d-9e8f70615243";

/// Texts that are nearly a UUID's, and ids of every other kind.
fn ids() -> impl Strategy<Value = String> {
    let hyphenated = any::<u128>().prop_map(|bits| uuid::Uuid::from_u128(bits).to_string());
    prop_oneof![
        hyphenated.clone(),
        hyphenated.clone().prop_map(|id| id.to_uppercase()),
        hyphenated.clone().prop_map(|id| id.replace('-', "")),
        hyphenated.clone().prop_map(|id| format!("{{{id}}}")),
        hyphenated.clone().prop_map(|id| format!("urn:uuid:{id}")),
        (hyphenated, 0..36_usize, "[0-9a-fA-Fg-]").prop_map(|(mut id, at, other)| {
            id.replace_range(at..=at, &other);
            id
        }),
        "[!-,.-~][!-~]{0,199}",
    ]
    .prop_filter("an id", |id| id.parse::<EventId>().is_ok())
}

/// What a column that was given this says.
fn read_back(conn: &Connection, value: &Value) -> EventId {
    conn.query_row("SELECT ?1", [value], |row| codec::event_id(row, 0)).unwrap()
}

proptest! {
    #[test]
    fn an_id_comes_back_as_it_was_and_has_one_form(one in ids(), other in ids()) {
        let conn = Connection::open_in_memory().unwrap();
        let (one, other) = (id(&one), id(&other));
        let forms = (codec::stored_id(&one), codec::stored_id(&other));
        prop_assert_eq!(&read_back(&conn, &forms.0), &one);
        prop_assert_eq!(forms.0 == forms.1, one == other);
    }
}

#[test]
fn only_the_canonical_text_of_a_uuid_is_stored_as_its_bytes() {
    assert!(matches!(codec::stored_id(&id(UUID)), Value::Blob(bytes) if bytes.len() == 16));
    let simple = UUID.replace('-', "");
    let others = [UUID.to_uppercase(), simple, format!("{{{UUID}}}"), format!("urn:uuid:{UUID}")];
    for other in others {
        assert_eq!(codec::stored_id(&id(&other)), Value::Text(other));
    }
}

#[tokio::test]
async fn ids_that_differ_in_case_are_two_and_every_verb_finds_each() {
    let bench = bench();
    let upper = UUID.to_uppercase();
    for (nth, event) in [UUID, &upper].into_iter().enumerate() {
        let delivery = || github(event, "push", &format!("body {nth}"));
        let first = bench.accept("github", delivery(), &["h"]).await;
        assert!(matches!(first, Accepted::Created { held: None, .. }), "{first:?}");
        let again = bench.accept("github", delivery(), &["h"]).await;
        assert!(matches!(again, Accepted::Duplicate { state: Some(State::Ready), .. }));
        // Another body under the same id is a variant of it, as under any.
        let variant = github(event, "push", &format!("other body {nth}"));
        let held = bench.accept("github", variant, &[]).await;
        assert!(matches!(held, Accepted::Created { held: Some(HeldReason::IdReused), .. }));

        let shown = bench.store.admin.show(None, id(event), None).await.unwrap();
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[0].event.event_id.as_str(), event);
        assert_eq!(shown[0].jobs[0].job.event_id.as_str(), event);
        let newest = bench.store.admin.status(vec![name("github")]).await.unwrap();
        assert_eq!(newest.sources[0].event.as_ref().unwrap().0.as_str(), event);

        let claimed = bench.claim_one().await;
        assert_eq!(claimed.facts.event_id.as_str(), event);
        assert_eq!(bench.store.jobs.running().await.unwrap()[0].event_id.as_str(), event);
        bench.complete(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
        let replay = Replay::Event { source: None, event: id(event), handler: None };
        let error = bench.store.admin.replay(replay, false).await.unwrap_err();
        assert_eq!(error, Error::Variants { event: id(event), bodies: 2 });
    }
    // The same body under the other id is a suspected replay of it, and says of which.
    let twin = github("twin", "push", "body 0");
    let held = bench.accept("github", twin, &["h"]).await;
    assert!(matches!(held, Accepted::Created { held: Some(HeldReason::SuspectedReplay), .. }));
    let shown = bench.store.admin.show(None, id("twin"), None).await.unwrap();
    assert_eq!(shown[0].twins[0].event_id.as_str(), UUID);

    bench.clock.advance(DAY);
    let later = bench.clock.now();
    let before = Cutoffs { payloads: later, ids: later, dead: later };
    let expired = bench.store.jobs.expire(before).await.unwrap();
    assert_eq!((expired.payloads, expired.events), (4, 4), "all but what is held");
}

async fn found(bench: &Bench, kind: IdKind, text: &str) -> Result<String, String> {
    let query = IdQuery { kind, text: text.to_owned(), source: None };
    match bench.store.admin.find(query).await {
        Ok(IdMatch::Event(event)) => Ok(format!("event {event}")),
        Ok(IdMatch::Job(row)) => Ok(format!("job {}", row.job)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn the_beginning_that_one_id_alone_has_finds_it() {
    const EVENTS: [&str; 7] = [
        "evt_abc1",
        "evt_abc2",
        "evt_abc2_and_more",
        "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "72d3162e-cc78-11e3-81ab-4c9367dc0959",
        // Not as a UUID is written, so it is kept as text.
        "72D3162E-cc78-11e3-81ab-4c9367dc0958",
        "0a1b2c3d-4e5f-4a6b-8c7d-9e8f70615243",
    ];
    let bench = bench();
    for event in EVENTS {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
        bench.clock.advance(Duration::from_secs(1));
    }
    // The same id of two sources is one id.
    bench.accept("github", github("evt_abc1", "push", "{}"), &[]).await;
    let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let whole: Vec<String> = EVENTS
        .map(str::to_owned)
        .into_iter()
        .chain(jobs.iter().map(|row| row.job.to_string()))
        .collect();

    // The short form of an id finds it, and so does the whole id.
    let chars = bench.store.admin.shorten(IdKind::Any, whole.clone()).await.unwrap();
    assert_eq!(chars[..7], [8, 8, 17, 36, 36, 8, 8]);
    assert_eq!(chars[7..], [13; 7], "a millisecond each");
    for (nth, (id, chars)) in whole.iter().zip(chars).enumerate() {
        let one = if nth < EVENTS.len() { format!("event {id}") } else { format!("job {id}") };
        for text in [&id[..chars], id] {
            assert_eq!(found(&bench, IdKind::Any, text).await, Ok(one.clone()), "{text}");
        }
    }
    // All of an id is that id, though another one begins so.
    assert_eq!(found(&bench, IdKind::Event, "evt_abc2").await.unwrap(), "event evt_abc2");
    assert_eq!(found(&bench, IdKind::Event, "evt_abc2_").await.unwrap(), "event evt_abc2_and_more");

    for (kind, text, said) in [
        (
            IdKind::Any,
            "evt_abc",
            "several ids begin with 'evt_abc': event evt_abc1, event evt_abc2, event evt_abc2_and_more; type more of the one you mean",
        ),
        (
            IdKind::Event,
            "72d3162e-cc78-11e3-81ab-4c9367dc095",
            "several ids begin with '72d3162e-cc78-11e3-81ab-4c9367dc095': event 72d3162e-cc78-11e3-81ab-4c9367dc0958, event 72d3162e-cc78-11e3-81ab-4c9367dc0959; type more of the one you mean",
        ),
        (IdKind::Any, "evt_x", "no event or job begins with 'evt_x'"),
        (IdKind::Event, &whole[9][..13], &format!("no event begins with '{}'", &whole[9][..13])),
        (IdKind::Job, "0a1b2c3d", "no job begins with '0a1b2c3d'"),
        (
            IdKind::Any,
            "evt",
            "no event or job begins with 'evt' (type at least 4 characters of an id)",
        ),
        (IdKind::Any, "%", "no event or job begins with '%' (type at least 4 characters of an id)"),
    ] {
        assert_eq!(found(&bench, kind, text).await, Err(said.to_owned()), "{text}");
    }
    // An error names a few of many.
    let said = found(&bench, IdKind::Job, &whole[7][..6]).await.unwrap_err();
    assert_eq!((said.matches("job ").count(), said.contains("…")), (5, true), "{said}");
    // Of one source only.
    let query = |source: &str| IdQuery {
        kind: IdKind::Any,
        text: "evt_abc1".to_owned(),
        source: Some(name(source)),
    };
    assert!(matches!(bench.store.admin.find(query("github")).await, Ok(IdMatch::Event(_))));
    assert!(bench.store.admin.find(query("other")).await.is_err());
}
