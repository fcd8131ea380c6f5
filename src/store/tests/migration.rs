//! What every migration promises, shown with the one that `migration.sql` adds: a store keeps what it has, and
//! there is a copy of how it was.
use super::*;
use crate::store::sqlite::engine::open;
use crate::store::sqlite::engine::schema::{
    APPLICATION_ID, DEVELOPMENT_IDS, MIGRATIONS, known, migrate,
};
use crate::store::sum::Given;

/// A store as the first schema had it: an event for `h`, claimed once and waiting, one held, one ready.
fn first_schema(path: &std::path::Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL").unwrap();
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
    let body = crate::store::codec::compress_now(b"{}").unwrap();
    let (source, event_id, event_type) = ("stripe", "evt", &EventType::from_raw("a.b"));
    let given = Given { source, event_id, event_type, headers: b"", body: &body };
    let payload = "INSERT INTO payload (event, headers, body, sum) VALUES (9, x'', ?1, ?2)";
    conn.execute(payload, (&body, given.sum(Timestamp(1_600_000_000_000)))).unwrap();
    conn
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
async fn a_store_of_an_earlier_schema_keeps_everything_and_is_copied_first() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = first_schema(&settings.path);
    // As a receiver that was killed leaves it: the last commit is in the log alone.
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    conn.execute("UPDATE meta SET epoch = 99", []).unwrap();
    drop(conn);
    assert!(std::fs::metadata(dir.path().join("old.db-wal")).unwrap().len() > 0);
    // Of a migration before, and of a start that was cut off.
    for stale in ["old.db.before-0001", "old.db.before-9999.partial"] {
        std::fs::write(dir.path().join(stale), "stale").unwrap();
    }

    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(store.admin.id().simple().to_string(), "00112233445566778899aabbccddeeff");
    let shown = store.admin.show(None, id("evt"), None).await.unwrap().remove(0);
    assert_eq!(shown.body.as_deref(), Some(b"{}".as_slice()));
    let jobs: Vec<_> =
        shown.jobs.iter().map(|job| (job.job.handler.as_str(), job.job.state)).collect();
    assert_eq!(jobs, [("h", State::Waiting), ("i", State::Held), ("j", State::Ready)]);
    assert_eq!(shown.jobs[0].attempts[0].outcome, Some(Outcome::Failed));
    let claimed = store.jobs.claim(&name("j"), 1, None).await.unwrap().jobs.remove(0);
    assert_eq!((claimed.facts.attempt, claimed.facts.body.as_ref()), (1, b"{}".as_slice()));
    let enforced =
        |tx: &Connection| tx.pragma_query_value(None, "foreign_keys", |row| row.get::<_, bool>(0));
    assert_eq!(store.sqlite().engine.submit(Priority::Verb, enforced).await, Ok(true));
    store.close().await;

    let copy = path::beside(&settings.path, &format!(".before-{:04}", known()));
    let kept = copies(&settings.path);
    assert!(kept.contains(&copy) && !kept.iter().any(|path| path.ends_with("old.db.before-0001")));
    let whole = inspect(&copy).unwrap();
    assert_eq!((whole.schema, whole.events, whole.copied_at), (1, 1, None));
    let epoch = |path| -> i64 {
        let conn = Connection::open(path).unwrap();
        conn.query_row("SELECT epoch FROM meta", [], |row| row.get(0)).unwrap()
    };
    // Looked at elsewhere: opening it would leave files beside it.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(&copy, elsewhere.path().join("copy.db")).unwrap();
    assert_eq!(epoch(elsewhere.path().join("copy.db")), 99, "what was in the log is in the copy");

    // It is current now: no further copy. And the copy is a backup.
    std::fs::remove_file(path::beside(&settings.path, ".before-9999.partial")).unwrap();
    Store::open(&settings, Clock::manual(START)).unwrap().close().await;
    assert_eq!(copies(&settings.path), std::slice::from_ref(&copy));
    let mut file = std::fs::File::open(&copy).unwrap();
    let restored =
        restore(&settings, "backup.db".as_ref(), &mut file, true, &Clock::manual(START)).unwrap();
    assert_eq!((restored.backup.schema, restored.row.held), (1, 2));
    assert_eq!(copies(&settings.path), [copy]);
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(store.admin.jobs(JobFilter::default()).await.unwrap().rows.len(), 3);
    store.close().await;
    let conn = Connection::open(&settings.path).unwrap();
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("user_version"), pragma("application_id")), (known(), APPLICATION_ID));
}

/// The text of each table and index.
fn schema_of(conn: &Connection) -> Vec<(String, Option<String>)> {
    let mut all = conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn a_migration_that_a_power_cut_divides_has_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("old.db"), dir.path().join("cut.db"));
    let mut conn = first_schema(&path);
    let old = schema_of(&conn);
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    migrate(&mut conn, &path, START).unwrap();
    let new = schema_of(&conn);
    let log = std::fs::read(path::beside(&path, "-wal")).unwrap();
    // The log's header, and then pages with theirs (the SQLite file format, section 4).
    let pages = (log.len() - 32) / (24 + 4096);
    assert!(pages > 3 && old != new, "{pages}");
    for kept in 0..=pages {
        std::fs::copy(&path, &cut).unwrap();
        let kept_log = &log[..32 + kept * (24 + 4096)];
        std::fs::write(path::beside(&cut, "-wal"), kept_log).unwrap();
        let found = Connection::open(&cut).unwrap();
        let schema: i64 = found.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(schema, if kept == pages { known() } else { 1 });
        assert!(schema_of(&found) == *if kept == pages { &new } else { &old }, "{kept} of {pages}");
        drop(found);
        let opened = open::open(&cut, &limits(), false, START).unwrap();
        assert!(schema_of(&opened.writer) == new, "{kept} of {pages}");
        let check = "PRAGMA integrity_check";
        let check: String = opened.writer.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        drop(opened);
        for suffix in ["-wal", "-shm"] {
            let _left = std::fs::remove_file(path::beside(&cut, suffix));
        }
    }
}

#[test]
fn a_migration_that_finds_the_disk_full_leaves_no_log_and_says_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    let mut conn = first_schema(&path);
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
    let log = || std::fs::metadata(path::beside(&path, "-wal")).unwrap().len();
    assert!(log() > 0);
    let error = migration_backup::found_full(&conn, &path, &limits());
    let database = std::fs::metadata(&path).unwrap().len();
    let OpenError::NoSpaceToMigrate { needed, .. } = error else { panic!("{error}") };
    assert_eq!((log(), needed), (0, database + limits().disk_floor_bytes));
    drop(conn);
    assert_eq!(inspect(&path).unwrap().schema, 1);
}

#[test]
fn a_migration_leaves_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    first_schema(&path);
    let opened = open::open(&path, &limits(), true, START).unwrap();
    assert_eq!(std::fs::metadata(path::beside(&path, "-wal")).unwrap().len(), 0);
    drop(opened);
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

#[tokio::test]
async fn a_store_of_a_development_build_is_refused_and_left_as_it_is() {
    for id in DEVELOPMENT_IDS {
        refused_development_build(id);
    }
}

fn refused_development_build(application_id: i64) {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("old.db"), limits: limits() };
    let conn = first_schema(&settings.path);
    conn.pragma_update(None, "application_id", application_id).unwrap();
    conn.pragma_update(None, "user_version", 15).unwrap();
    drop(conn);
    let before = std::fs::read(&settings.path).unwrap();
    let says = |error: String, path: &std::path::Path| {
        let text = "made by a development build; nothing reads it: keep it, start with a new path";
        assert_eq!(error, format!("{}: {text}", path.display()));
    };
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    says(error.to_string(), &settings.path);
    assert_eq!(std::fs::read(&settings.path).unwrap(), before);
    assert!(copies(&settings.path).is_empty());
    says(inspect(&settings.path).unwrap_err().to_string(), &settings.path);
    let new = Settings { path: dir.path().join("new.db"), limits: limits() };
    let mut backup = std::fs::File::open(&settings.path).unwrap();
    let error =
        restore(&new, "backup.db".as_ref(), &mut backup, false, &Clock::manual(START)).unwrap_err();
    assert!(matches!(error, RestoreError::Backup(InspectError::Development { .. })), "{error}");
    assert!(!new.path.exists());
}
