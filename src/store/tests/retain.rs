use super::*;

#[tokio::test]
async fn payloads_go_first_ids_much_later_and_neither_while_needed() {
    let bench = bench();
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
    bench.clock.advance(DAY);
    bench.accept("stripe", stripe("young", "a", "{}"), &[]).await;
    let now = bench.clock.now();
    let before = now.before(HOUR);

    assert_eq!(bench.store.expire(START, START).await.unwrap(), (0, 0), "none is older");
    assert_eq!(bench.store.expire(before, START).await.unwrap(), (2, 0));
    let kept: Vec<_> = bench
        .store
        .events(EventFilter::default())
        .await
        .unwrap()
        .into_iter()
        .map(|event| (event.event_id.to_string(), event.payload_kept))
        .collect();
    let expected =
        [("young", true), ("none", false), ("dead", true), ("held", true), ("done", false)];
    assert_eq!(kept, expected.map(|(event, kept)| (event.to_owned(), kept)));
    // The id still answers.
    let again = bench.accept("stripe", stripe("done", "a.b", "{}"), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { state: Some(State::Succeeded), .. }));

    assert_eq!(bench.store.expire(before, before).await.unwrap(), (0, 2));
    assert!(bench.store.show(None, id("done")).await.unwrap().is_empty());
    // A number is never used again: the row of the newest event is not the freed one.
    let again = bench.accept("stripe", stripe("done", "a.b", "{}"), &["h"]).await;
    assert!(matches!(again, Accepted::Created { .. }));
}

#[tokio::test]
async fn retention_walks_over_more_than_one_step() {
    let bench = bench();
    let accepts: Vec<_> = (0..450)
        .map(|n| {
            let (store, received_at) = (bench.store.clone(), bench.clock.now());
            let delivery = stripe(&format!("e{n}"), "a", "{}");
            tokio::spawn(async move {
                let source = name("stripe");
                let handlers = Vec::new();
                store
                    .accept(Accept {
                        source,
                        received_at,
                        delivery,
                        handlers,
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
    assert_eq!(bench.store.expire(later, later).await.unwrap(), (450, 450));
}

#[tokio::test]
async fn an_id_is_remembered_while_one_of_its_bodies_is() {
    let bench = bench();
    // Nobody wants the first body under this unsigned id; another comes a day later.
    bench.accept("github", github("guid", "label", r#"{"n":1}"#), &[]).await;
    bench.clock.advance(DAY);
    let second = || github("guid", "label", r#"{"n":2}"#);
    let held = bench.accept("github", second(), &["h"]).await;
    assert!(matches!(held, Accepted::Created { held: Some(HeldReason::IdReused), .. }));

    let before = bench.clock.now().before(HOUR);
    assert_eq!(bench.store.expire(before, before).await.unwrap(), (1, 0), "the payload only");
    // Else this would be the id's first event, and run because its type repeats.
    let again = bench.accept("github", second(), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { state: Some(State::Held), .. }), "{again:?}");
}
