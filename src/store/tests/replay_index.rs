//! The indexes by which the replay guard finds a body.
use super::*;

const CREATED: Accepted = Accepted::Created { jobs: 1, held: None, flagged: false };

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
        .sqlite()
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
        .sqlite()
        .engine
        .read(move |conn| conn.query_row(firsts, [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(found, "other l1");
}
