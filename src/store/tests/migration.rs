//! A store of each older schema opens, keeps what it has, and can do what is new.
use super::*;
use crate::store::schema::{APPLICATION_ID, MIGRATIONS, known};

/// A store as the first schema had it: an event for `h`, claimed once and waiting, one held, one ready.
fn first_schema(path: &std::path::Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(MIGRATIONS[0]).unwrap();
    conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    conn.execute_batch(
        "INSERT INTO meta (one, store_id, created_at, written_by, epoch)
             VALUES (1, x'00112233445566778899aabbccddeeff', 1, 'hooklatch 0.1.0', 7);
         INSERT INTO event (row, source, event_id, type, digest, guarded, received_at, body_bytes)
             VALUES (9, 'stripe', 'evt', 'a.b', zeroblob(32), 0, 1600000000000, 2);
         INSERT INTO job (row, id, event, handler, state, reason, attempt, counted, since, due_at, created_at)
             VALUES (4, x'0000000000000000000000000000000a', 9, 'h', 'waiting', NULL, 1, 1, 1, 5, 1),
                    (5, x'0000000000000000000000000000000b', 9, 'i', 'held', 'restored', 0, 0, 1, NULL, 1),
                    (6, x'0000000000000000000000000000000c', 9, 'j', 'ready', NULL, 0, 0, 1, NULL, 1);
         INSERT INTO attempt (job, number, started_at, finished_at, outcome)
             VALUES (4, 1, 1, 2, 'failed');",
    )
    .unwrap();
    // A body of two bytes in its stored form.
    let body = codec::compress_now(b"{}").unwrap();
    conn.execute("INSERT INTO payload VALUES (9, x'', ?1)", [body]).unwrap();
}

#[tokio::test]
async fn a_store_of_the_first_schema_keeps_everything_and_can_pause() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    first_schema(&settings.path);
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(store.id().simple().to_string(), "00112233445566778899aabbccddeeff");
    let shown = store.show(None, id("evt")).await.unwrap().remove(0);
    assert_eq!(shown.body.as_deref(), Some(b"{}".as_slice()));
    let jobs: Vec<_> =
        shown.jobs.iter().map(|job| (job.job.handler.as_str(), job.job.state)).collect();
    assert_eq!(jobs, [("h", State::Waiting), ("i", State::Held), ("j", State::Ready)]);
    assert_eq!(shown.jobs[0].attempts[0].outcome, Some(Outcome::Failed));

    assert!(store.paused().await.unwrap().is_empty());
    store.pause(&name("h")).await.unwrap();
    assert!(store.claim(&name("h"), 1, None).await.unwrap().is_empty());
    let claimed = store.claim(&name("j"), 1, None).await.unwrap().remove(0);
    assert_eq!((claimed.facts.attempt, claimed.facts.body.as_ref()), (1, b"{}".as_slice()));
    store.resume(&name("h")).await.unwrap();
    assert_eq!(store.claim(&name("h"), 1, None).await.unwrap()[0].facts.attempt, 2);
    store.resolve(shown.jobs[1].job.job, Resolution::Succeeded).await.unwrap();
    store.close().await;

    let conn = Connection::open(&settings.path).unwrap();
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("user_version"), pragma("application_id")), (known(), APPLICATION_ID));
    let epoch: i64 = conn.query_row("SELECT epoch FROM meta", [], |row| row.get(0)).unwrap();
    assert_eq!(epoch, 7);
    // The schema is that of a new store, table by table.
    let schema = |conn: &Connection| -> Vec<(String, String)> {
        conn.prepare("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap()
    };
    let new = bench();
    new.store.close().await;
    assert_eq!(schema(&conn), schema(&Connection::open(&new.settings.path).unwrap()));
}
