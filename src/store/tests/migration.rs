//! A store of each older schema opens, keeps what it has, and can do what is new.
use super::*;
use crate::store::schema::{APPLICATION_ID, MIGRATIONS, known, migrate};

/// A store as the first schema had it: an event for `h`, claimed once and waiting, one held, one ready.
fn first_schema(path: &std::path::Path) {
    old_schema(path, 1);
}

/// The same as an earlier schema had it.
fn old_schema(path: &std::path::Path, schema: usize) -> Connection {
    let conn = Connection::open(path).unwrap();
    // As of every store: an index that is dropped has another one moved.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL").unwrap();
    for migration in &MIGRATIONS[..schema] {
        conn.execute_batch(migration).unwrap();
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    conn.pragma_update(None, "user_version", schema as i64).unwrap();
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
    conn.execute("INSERT INTO payload (event, headers, body) VALUES (9, x'', ?1)", [body]).unwrap();
    conn
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
    assert!(store.claim(&name("h"), 1, None).await.unwrap().jobs.is_empty());
    let claimed = store.claim(&name("j"), 1, None).await.unwrap().jobs.remove(0);
    assert_eq!((claimed.facts.attempt, claimed.facts.body.as_ref()), (1, b"{}".as_slice()));
    store.resume(&name("h")).await.unwrap();
    assert_eq!(store.claim(&name("h"), 1, None).await.unwrap().jobs[0].facts.attempt, 2);
    store
        .resolve(shown.jobs[1].job.job, shown.jobs[1].job.attempt, Resolution::Succeeded)
        .await
        .unwrap();
    // An event of that schema is no key's: its id is free as one.
    let delivery = stripe("evt", "a.b", "{}");
    let ask = Ask {
        source: name("stripe"),
        caller: String::new(),
        request: delivery.digest(),
        received_at: START,
        delivery,
        handler: name("k"),
        keep: DAY,
        keep_errors: HOUR,
    };
    assert!(matches!(store.ask(ask).await, Ok(Asked::Begun { again: false, .. })));
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

/// The copies beside a database, sorted.
fn copies(path: &std::path::Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".before-"))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_store_of_each_earlier_schema_is_copied_first_and_can_be_had_back() {
    for schema in 1..MIGRATIONS.len() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
        let conn = old_schema(&settings.path, schema);
        // As a receiver that was killed leaves it: the last commit is in the log alone.
        let mode: String =
            conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .unwrap();
        conn.execute("UPDATE meta SET epoch = 99", []).unwrap();
        drop(conn);
        assert!(std::fs::metadata(dir.path().join("old.db-wal")).unwrap().len() > 0);
        // Of a migration before, and of a start that was cut off.
        for stale in ["old.db.before-0001", "old.db.before-9999.partial"] {
            std::fs::write(dir.path().join(stale), "stale").unwrap();
        }

        Store::open(&settings, Clock::manual(START)).unwrap().close().await;
        let copy = connection::beside(&settings.path, &format!(".before-{:04}", known()));
        let kept = copies(&settings.path);
        assert!(
            kept.contains(&copy) && !kept.iter().any(|path| path.ends_with("old.db.before-0001"))
        );
        let whole = inspect(&copy).unwrap();
        assert_eq!((whole.schema, whole.events, whole.copied_at), (schema as i64, 1, None));
        let epoch = |path| -> i64 {
            let conn = Connection::open(path).unwrap();
            conn.query_row("SELECT epoch FROM meta", [], |row| row.get(0)).unwrap()
        };
        // Looked at elsewhere: opening it would leave files beside it.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::copy(&copy, elsewhere.path().join("copy.db")).unwrap();
        assert_eq!(
            epoch(elsewhere.path().join("copy.db")),
            99,
            "what was in the log is in the copy"
        );

        // It is current now: no further copy. And the copy is a backup.
        std::fs::remove_file(connection::beside(&settings.path, ".before-9999.partial")).unwrap();
        Store::open(&settings, Clock::manual(START)).unwrap().close().await;
        assert_eq!(copies(&settings.path), std::slice::from_ref(&copy));
        let mut file = std::fs::File::open(&copy).unwrap();
        let restored = restore(&settings, &mut file, true, &Clock::manual(START)).unwrap();
        assert_eq!((restored.backup.schema, restored.row.held), (schema as i64, 2));
        assert_eq!(copies(&settings.path), [copy]);
        let store = Store::open(&settings, Clock::manual(START)).unwrap();
        assert_eq!(store.jobs(JobFilter::default()).await.unwrap().len(), 3);
        store.close().await;

        // And has the schema of one that was never older, to the letter.
        let (conn, new) = (Connection::open(&settings.path).unwrap(), tempfile::tempdir().unwrap());
        let new = old_schema(&new.path().join("new.db"), MIGRATIONS.len());
        assert!(schema_of(&conn) == schema_of(&new), "schema {schema}");
    }
}

/// The text of each table and index.
fn schema_of(conn: &Connection) -> Vec<(String, Option<String>)> {
    let mut all = conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

/// Ids that are stored as they are, but for the first, which is a UUID in its canonical form.
const IDS: [&str; 8] = [
    "0a1b2c3d-4e5f-4a6b-8c7d-9e8f70615243",
    "0A1B2C3D-4E5F-4A6B-8C7D-9E8F70615243",
    "0a1b2c3d-4e5f-4a6b-8c7d-9e8f7061524G",
    "0a1b2c3d4e5f4a6b8c7d9e8f70615243",
    "0a1b2c3d-4e5f-4a6b-8c7d9e8f-70615243",
    "0a1b2c3d-4e5f-4a6b-8c7d-9e8f7061524",
    "zzzzzzzz-zzzz-4zzz-8zzz-zzzzzzzzzzzz",
    "evt_1",
];

#[tokio::test]
async fn a_store_of_the_schema_before_smaller_events_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = old_schema(&settings.path, 8);
    let pushed = |nth: usize| github(IDS[nth], "push", &format!("body {nth}"));
    for (nth, event) in IDS.into_iter().enumerate() {
        let row = 20 + nth as i64;
        conn.execute(
            "INSERT INTO event (row, source, event_id, type, digest, guarded, received_at, body_bytes, duplicates,
                 last_duplicate_at, conflicts, flagged)
             VALUES (?1, 'github', ?2, 'push', ?3, 1, ?4, 2, 3, 5, 1, ?5)",
            rusqlite::params![row, event, pushed(nth).digest().0, START.0 + nth as i64, nth == 1],
        )
        .unwrap();
        conn.execute(
            "INSERT INTO payload SELECT ?1, headers, body FROM payload WHERE event = 9",
            [row],
        )
        .unwrap();
    }
    // One attempt is live and one is settled, both of a runner; the newest event is deleted.
    let incarnation = Incarnation::from_parts(uuid::Uuid::from_u128(7), 8).to_string();
    conn.execute_batch(&format!(
        "INSERT INTO job (row, id, event, handler, state, attempt, since, created_at)
             VALUES (30, randomblob(16), 20, 'h', 'running', 2, 1, 1);
         INSERT INTO attempt (job, number, started_at, finished_at, outcome, incarnation, runner)
             VALUES (30, 1, 1, 2, 'failed', '{incarnation}', 'default'),
                    (30, 2, 3, NULL, NULL, '{incarnation}', 'deploy');
         INSERT INTO former_key VALUES (randomblob(16), 30, 1, 2);
         INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
             VALUES (20, zeroblob(32), 1, x'', 0, x'');
         INSERT INTO event (row, source, event_id, type, digest, guarded, received_at, body_bytes)
             VALUES (99, 'github', 'gone', 'push', zeroblob(32), 1, 1, 2);
         DELETE FROM event WHERE row = 99;"
    ))
    .unwrap();
    drop(conn);

    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    for (nth, event) in IDS.into_iter().enumerate() {
        let shown = store.show(None, id(event)).await.unwrap().remove(0);
        assert_eq!(shown.event.event_id.as_str(), event);
        assert_eq!(shown.body.as_deref(), Some(b"{}".as_slice()));
        let found = (shown.event.duplicates, shown.event.conflicts, shown.event.flagged);
        assert_eq!(found, (3, 1, nth == 1));
        assert_eq!(shown.event.last_duplicate_at, Some(Timestamp(5)));
        let new = |delivery| Accept {
            source: name("github"),
            received_at: START,
            delivery,
            handlers: vec![name("h")],
            on_redelivery: OnRedelivery::Ignore,
        };
        let again = store.accept(new(pushed(nth))).await.unwrap();
        assert!(matches!(again, Accepted::Duplicate { conflict: false, .. }), "{event}: {again:?}");
        let twin = github(&format!("twin-{nth}"), "push", &format!("body {nth}"));
        let held = store.accept(new(twin)).await.unwrap();
        let why = Some(HeldReason::SuspectedReplay);
        assert_eq!(held, Accepted::Created { jobs: 1, held: why, flagged: false }, "{event}");
    }
    let running = store.running().await.unwrap().remove(0);
    assert_eq!((running.event_id.as_str(), running.attempt), (IDS[0], 2));
    assert_eq!(running.runner.unwrap().name.as_str(), "deploy");
    store.close().await;

    let conn = Connection::open(&settings.path).unwrap();
    let count = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    assert_eq!(count("SELECT count(*) FROM event WHERE row = 99"), 0, "no number twice");
    assert_eq!(count("SELECT count(*) FROM event WHERE row > 99"), 8);
    assert_eq!(count("SELECT count(*) FROM event WHERE typeof(event_id) = 'blob'"), 1);
    assert_eq!(count("SELECT count(*) FROM former_key"), 1);
    assert_eq!(count("SELECT count(*) FROM evidence"), 1);
    // What refers to an event goes with it again.
    conn.execute_batch("PRAGMA foreign_keys = ON; DELETE FROM event WHERE row = 20").unwrap();
    assert_eq!(count("SELECT count(*) FROM former_key"), 0);
}

#[tokio::test]
async fn a_store_of_the_schema_before_the_smaller_guard_knows_what_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = old_schema(&settings.path, 9);
    for (id, source, event_type, body, guarded) in [
        ("a1", "github", "label", "A", true),
        ("a2", "github", "label", "A", true),
        ("b1", "github", "push", "B", true),
        ("b2", "github", "label", "B", true),
        ("b3", "other", "label", "B", true),
        ("c1", "github", "label", "C", true),
        ("u1", "github", "label", "U", false),
        ("u2", "github", "label", "U", false),
    ] {
        conn.execute(
            "INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, 2)",
            (source, id, event_type, github(id, event_type, body).digest().0, guarded),
        )
        .unwrap();
    }
    drop(conn);

    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    let repeated = "SELECT group_concat(event_id, ' ') FROM event WHERE repeated = 1";
    let repeated: String =
        store.read(move |conn| conn.query_row(repeated, [], |row| row.get(0))).await.unwrap();
    assert_eq!(repeated, "a2 b2");
    let created = |held, flagged| Ok(Accepted::Created { jobs: 0, held, flagged });
    let held = Some(HeldReason::SuspectedReplay);
    for (source, body, answer) in [
        ("github", "A", created(None, true)),
        ("github", "B", created(held, false)),
        ("other", "B", created(None, true)),
        ("github", "C", created(None, true)),
        ("github", "U", created(None, false)),
    ] {
        let accept = Accept {
            source: name(source),
            received_at: START,
            delivery: github(&format!("{source}-{body}"), "label", body),
            handlers: vec![],
            on_redelivery: OnRedelivery::Ignore,
        };
        assert_eq!(store.accept(accept).await, answer, "{source} {body}");
    }
    store.close().await;
}

/// Every row of a table, each column as SQLite writes it out.
fn rows(conn: &Connection, table: &str) -> Vec<String> {
    let mut columns = conn.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    let columns: Vec<String> =
        columns.query_map([table], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let columns =
        columns.iter().map(|name| format!("quote({name})")).collect::<Vec<_>>().join(" || ' ' || ");
    let mut all = conn.prepare(&format!("SELECT {columns} FROM {table} ORDER BY 1")).unwrap();
    all.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[tokio::test]
async fn a_store_of_the_schema_before_shorter_checks_keeps_its_jobs_and_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = old_schema(&settings.path, 13);
    // A job in every state, with an attempt of every outcome; what some printed lies on pages beside the row's.
    for (nth, state) in State::ALL.iter().enumerate() {
        let reason = match state {
            State::Held => Some(HeldReason::Cancelled.as_str()),
            State::Dead => Some(DeadReason::Rejected.as_str()),
            State::Dropped => Some(DropReason::Superseded.as_str()),
            _ => None,
        };
        let settled = matches!(state, State::Succeeded | State::Dead | State::Dropped).then_some(9);
        let due = (*state == State::Waiting).then_some(START.0 + 9);
        let (row, attempt) = (20 + nth as i64, Outcome::ALL.len() as i64 + 1);
        conn.execute(
            "INSERT INTO job (row, id, event, handler, state, reason, attempt, since, created_at, due_at, settled_at)
             VALUES (?1, randomblob(16), 9, 'h' || ?1, ?2, ?3, ?4, 1, 1, ?5, ?6)",
            (row, state.as_str(), reason, attempt, due, settled),
        )
        .unwrap();
        for (number, outcome) in (1_i64..).zip(Outcome::ALL) {
            conn.execute(
                "INSERT INTO attempt (job, number, started_at, finished_at, outcome, stdout_head, stdout_total)
                 VALUES (?1, ?2, 1, 2, ?3, randomblob(?4), ?4)",
                (row, number, outcome.as_str(), number * 1500),
            )
            .unwrap();
        }
        if *state == State::Running {
            let live = "INSERT INTO attempt (job, number, started_at) VALUES (?1, ?2, 3)";
            conn.execute(live, (row, attempt)).unwrap();
        }
    }
    let before = (rows(&conn, "job"), rows(&conn, "attempt"), rows(&conn, "event"));
    drop(conn);

    let opened = connection::open(&settings.path, &limits(), false, START).unwrap();
    let conn = &opened.writer;
    assert_eq!((rows(conn, "job"), rows(conn, "attempt"), rows(conn, "event")), before);
    // The very connection that has changed the schema holds it by the new text.
    let gone = "UPDATE job SET state = 'gone' WHERE row = 20";
    assert!(conn.execute(gone, []).unwrap_err().to_string().contains("state = 'ready' OR"));
    // And changes it no more.
    let text = "UPDATE sqlite_schema SET sql = '' WHERE name = 'job'";
    conn.execute_batch("PRAGMA writable_schema = ON").unwrap();
    assert!(conn.execute(text, []).unwrap_err().to_string().contains("may not be modified"));
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    drop(opened);

    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    let running = store.running().await.unwrap();
    assert_eq!(running.iter().map(|job| job.handler.as_str()).collect::<Vec<_>>(), ["h21"]);
    let filter = JobFilter { state: Some(State::Running), ..JobFilter::default() };
    assert_eq!(store.jobs(filter).await.unwrap().len(), 1);
    let recovered = store.recover(Vec::new()).await.unwrap();
    let cut_off: Vec<_> =
        recovered.unknown.iter().map(|(_, attempt, state)| (*attempt, *state)).collect();
    assert_eq!(cut_off, [(8, State::Held)]);
    store.close().await;
}

#[test]
fn a_migration_that_a_power_cut_divides_has_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("old.db"), dir.path().join("cut.db"));
    let mut conn = old_schema(&path, 13);
    let old = schema_of(&conn);
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    migrate(&mut conn, &path, START).unwrap();
    let new = schema_of(&conn);
    let log = std::fs::read(connection::beside(&path, "-wal")).unwrap();
    // The log's header, and then pages with theirs (the SQLite file format, section 4).
    let pages = (log.len() - 32) / (24 + 4096);
    assert!(pages > 3 && old != new, "{pages}");
    for kept in 0..=pages {
        std::fs::copy(&path, &cut).unwrap();
        let kept_log = &log[..32 + kept * (24 + 4096)];
        std::fs::write(connection::beside(&cut, "-wal"), kept_log).unwrap();
        let found = Connection::open(&cut).unwrap();
        let schema: i64 = found.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(schema, if kept == pages { known() } else { 13 });
        assert!(schema_of(&found) == *if kept == pages { &new } else { &old }, "{kept} of {pages}");
        drop(found);
        let opened = connection::open(&cut, &limits(), false, START).unwrap();
        assert!(schema_of(&opened.writer) == new, "{kept} of {pages}");
        let check = "PRAGMA integrity_check";
        let check: String = opened.writer.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        drop(opened);
        for suffix in ["-wal", "-shm"] {
            let _left = std::fs::remove_file(connection::beside(&cut, suffix));
        }
    }
}

#[test]
fn a_table_whose_text_somebody_changed_keeps_its_checks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    let conn = old_schema(&path, 13);
    conn.execute_batch(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'state IN (', 'state  IN  (') WHERE name = 'job';",
    )
    .unwrap();
    drop(conn);
    let opened = connection::open(&path, &limits(), false, START).unwrap();
    for broken in ["UPDATE job SET state = 'gone'", "UPDATE job SET settled_at = 1"] {
        assert!(opened.writer.execute(broken, []).is_err(), "{broken}");
    }
}

#[tokio::test]
async fn a_view_and_a_trigger_over_the_events_keep_no_store_from_its_migration() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = old_schema(&settings.path, 8);
    conn.execute_batch(
        "CREATE VIEW mine AS SELECT event_id FROM event;
         CREATE TRIGGER mine_too AFTER DELETE ON job BEGIN
             UPDATE event SET flagged = 1 WHERE row = old.event;
         END;",
    )
    .unwrap();
    drop(conn);
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    let legacy = |tx: &Connection| {
        tx.pragma_query_value(None, "legacy_alter_table", |row| row.get::<_, bool>(0))
    };
    assert_eq!(store.submit(Lane::Verb, legacy).await, Ok(false));
    store.close().await;
    let conn = Connection::open(&settings.path).unwrap();
    let seen: String = conn.query_row("SELECT event_id FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, "evt");
}

#[test]
fn a_migration_that_finds_the_disk_full_leaves_no_log_and_says_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    let mut conn = old_schema(&path, 8);
    conn.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'stripe', 'e' || i, 'a.b', randomblob(32), 1, 1, 0 FROM n;",
    )
    .unwrap();
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    // A cache so small that the log has pages before the commit, and a database that cannot grow by 20.
    conn.pragma_update(None, "cache_size", 10).unwrap();
    let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    conn.execute_batch(&format!("PRAGMA max_page_count = {}", pages + 20)).unwrap();

    let error = migrate(&mut conn, &path, START).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    let log = || std::fs::metadata(connection::beside(&path, "-wal")).unwrap().len();
    assert!(log() > 0);
    let error = before::found_full(&conn, &path, &limits());
    let database = std::fs::metadata(&path).unwrap().len();
    let OpenError::NoSpaceToMigrate { needed, .. } = error else { panic!("{error}") };
    assert_eq!((log(), needed), (0, database + limits().disk_floor_bytes));
    drop(conn);
    assert_eq!(inspect(&path).unwrap().schema, 8);
}

#[test]
fn a_migration_leaves_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    first_schema(&path);
    let opened = connection::open(&path, &limits(), true, START).unwrap();
    assert_eq!(std::fs::metadata(connection::beside(&path, "-wal")).unwrap().len(), 0);
    drop(opened);
}

#[tokio::test]
async fn a_migrated_store_still_enforces_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    first_schema(&settings.path);
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    let enforced =
        |tx: &Connection| tx.pragma_query_value(None, "foreign_keys", |row| row.get::<_, bool>(0));
    assert_eq!(store.submit(Lane::Verb, enforced).await, Ok(true));
}

#[tokio::test]
async fn a_new_store_is_not_copied_and_an_old_one_not_changed_where_the_copy_cannot_be_made() {
    let new = bench();
    new.store.close().await;
    assert!(copies(&new.settings.path).is_empty());

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    first_schema(&path);
    // Where the disk shares blocks the copy takes no space, and the change does.
    let tight = Limits { disk_floor_bytes: u64::MAX / 2, ..limits() };
    let settings = Settings { path: path.clone(), limits: tight };
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(matches!(error, OpenError::NoSpaceToMigrate { .. }), "{error}");
    assert!(error.to_string().contains("are needed"), "{error}");
    assert!(copies(&path).is_empty());
    assert_eq!(inspect(&path).unwrap().schema, 1);
    // What cannot be read whole is not changed either.
    let bytes = std::fs::read(&path).unwrap();
    let mut bad = bytes.clone();
    let last = bytes.len() - 4096;
    bad[last..].fill(0x55);
    std::fs::write(&path, bad).unwrap();
    let settings = Settings { path: path.clone(), limits: limits() };
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(copies(&path).is_empty());
}

#[test]
fn a_store_with_words_of_its_payloads_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    old_schema(&settings.path, 14)
        .execute_batch("INSERT INTO pattern VALUES (1, 'stripe', 'a.b', 1, x'00')")
        .unwrap();
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(error.to_string().contains("name another file as storage.path"), "{error}");
    assert_eq!((inspect(&settings.path).unwrap().schema, copies(&settings.path)), (14, vec![]));
    let new = Settings { path: dir.path().join("new.db"), limits: limits() };
    let mut backup = std::fs::File::open(&settings.path).unwrap();
    let error = restore(&new, &mut backup, false, &Clock::manual(START)).unwrap_err();
    assert!(error.to_string().contains("development build"), "{error}");
    assert!(!new.path.exists());
}
