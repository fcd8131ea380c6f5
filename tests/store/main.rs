//! The store on a disk that fails: a flush that fails, a checkpoint that fails, a disk that is full.
//!
//! A SQLite VFS in this binary stands between SQLite and the real one; switches make it fail. It is the
//! default of the process, so the tests run one after another.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod vfs;

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{Name, OnRedelivery, Outcome, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::retry::Next;
use hooklatch::store::{
    Accept, Accepted, Claim, Claimed, Completion, CopyError, EventFilter, NewJob, Record, Refused,
    Settings, Store,
};
use hooklatch::verify::{self, Draft, Request, Verified};
use tempfile::TempDir;

const START: Timestamp = Timestamp(1_700_000_000_000);

/// One test at a time: the switches are the process's.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A delivery whose signature covers the id (scheme `stripe`).
fn delivery(id: &str, data: &str) -> Verified {
    let scheme = Scheme::embedded("stripe").unwrap();
    let key = verify::key(&scheme, "test", "whsec_test").unwrap();
    let body = format!(r#"{{"id":"{id}","object":"event","type":"a.b","data":{data}}}"#);
    let draft = Draft { body: body.into(), ..Draft::default() };
    let headers = verify::sign(&scheme, Some(&key), &draft, START).unwrap();
    let request = Request { method: "POST", url: None, headers: &headers, body: draft.body };
    verify::verify(&scheme, &[key], request, START).unwrap()
}

struct Bench {
    store: Store,
    path: PathBuf,
    _dir: TempDir,
    _one: tokio::sync::MutexGuard<'static, ()>,
}

async fn bench() -> Bench {
    bench_with(Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() }).await
}

async fn bench_with(limits: Limits) -> Bench {
    let one = ONE.lock().await;
    vfs::install();
    vfs::heal();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hooklatch.db");
    let settings = Settings { path: path.clone(), limits };
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    Bench { store, path, _dir: dir, _one: one }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl Bench {
    fn accept(&self, id: &str) -> impl Future<Output = Result<Accepted, Refused>> + use<> {
        let (store, delivery) = (self.store.clone(), delivery(id, "{}"));
        async move {
            let (source, jobs) = (name("stripe"), vec![NewJob::of(name("h"))]);
            store
                .intake
                .accept(Accept {
                    source,
                    received_at: START,
                    delivery,
                    jobs,
                    on_redelivery: OnRedelivery::Ignore,
                })
                .await
        }
    }

    fn completion(&self, claimed: &Claimed) -> Completion {
        Completion {
            job: claimed.facts.job,
            attempt: claimed.facts.attempt,
            outcome: Outcome::Succeeded,
            counts: true,
            next: Next::Succeeded,
            finished_at: START,
            record: Record::default(),
            answer: None,
        }
    }

    fn complete(&self, claimed: &Claimed) -> impl Future<Output = bool> + use<> {
        let (store, done) = (self.store.clone(), self.completion(claimed));
        async move { store.jobs.complete(done).await.unwrap() }
    }

    async fn claim(&self) -> Vec<Claimed> {
        self.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs
    }

    async fn ready(&self) {
        let wake = self.store.jobs.wake();
        while self.store.intake.ready().is_err() {
            wake.notified().await;
        }
    }

    async fn events(&self) -> usize {
        self.store.admin.events(EventFilter::default()).await.unwrap().rows.len()
    }

    fn log(&self) -> PathBuf {
        self.path.with_extension("db-wal")
    }

    /// Closes the store and has SQLite look at every page.
    async fn sound(&self) {
        self.store.close().await;
        let conn = rusqlite::Connection::open(&self.path).unwrap();
        let verdict: String =
            conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
}

/// Runs the future until it waits for the writer.
async fn queued<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut future = Box::pin(future);
    let early = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    assert!(early.is_pending(), "answered before its flush");
    tokio::spawn(future)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_accepts_share_one_flush_and_none_is_answered_before_it() {
    let bench = bench().await;
    bench.accept("first").await.unwrap();
    let gate = vfs::hold_log_flushes();
    let opener = queued(bench.accept("opener")).await;
    gate.wait_for_a_flush();
    let before = vfs::log_flushes();
    // A batch of a hundred behind the held one, every second a duplicate of the one before it.
    let mut batch = Vec::new();
    for n in 0..100 {
        batch.push(queued(bench.accept(&format!("e{}", n / 2))).await);
    }
    gate.open();
    opener.await.unwrap().unwrap();
    let mut created = 0;
    for answer in batch {
        created += usize::from(matches!(answer.await.unwrap(), Ok(Accepted::Created { .. })));
    }
    assert_eq!((created, vfs::log_flushes() - before), (50, 1), "one flush for all of them");
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_flush_the_log_is_written_again_before_anyone_is_a_duplicate() {
    let bench = bench().await;
    bench.accept("e0").await.unwrap();
    let running = bench.claim().await.remove(0);

    vfs::fail_log_flushes(u32::MAX);
    vfs::fail_opens(true);
    let refused = bench.accept("e1").await.unwrap_err();
    assert!(matches!(refused, Refused::Degraded(_)), "{refused}");
    assert!(matches!(bench.store.intake.ready(), Err(Refused::Degraded(_))));
    assert!(matches!(bench.accept("e2").await, Err(Refused::Degraded(_))));
    let completion = queued(bench.complete(&running)).await;

    // An old time on the log shows whether it is written again.
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let log = std::fs::File::options().write(true).open(bench.log()).unwrap();
    log.set_modified(old).unwrap();
    // Every connection is closed while it waits.
    vfs::wait_until_closed();
    vfs::heal();
    bench.ready().await;
    assert!(std::fs::metadata(bench.log()).unwrap().modified().unwrap() > old);
    assert!(completion.await.unwrap(), "the result of the running job is not lost");

    // The commit whose flush failed is in the log (M2), which is flushed now: an honest duplicate.
    let again = bench.accept("e1").await.unwrap();
    assert!(matches!(again, Accepted::Duplicate { .. }), "{again:?}");
    assert!(matches!(bench.accept("e2").await, Ok(Accepted::Created { .. })));
    assert_eq!(bench.events().await, 3);
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_goes_on_failing_is_tried_until_it_works() {
    let bench = bench().await;
    vfs::fail_log_flushes(3);
    for _ in 0..3 {
        let refused = bench.accept("e").await.unwrap_err();
        assert!(matches!(refused, Refused::Degraded(_)), "{refused}");
        bench.ready().await;
    }
    assert!(matches!(bench.accept("e").await, Ok(Accepted::Duplicate { .. })));
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_flush_failed_is_neither_lost_nor_made_twice() {
    let bench = bench().await;
    bench.accept("e1").await.unwrap();
    vfs::fail_log_flushes(1);
    let claimed = bench.claim().await;
    assert_eq!(claimed.len(), 1);
    let running = bench.store.jobs.running().await.unwrap();
    let running: Vec<_> = running.iter().map(|one| (one.job, one.attempt)).collect();
    assert_eq!(running, [(claimed[0].facts.job, 1)]);
    assert_eq!(claimed[0].facts.attempt, 1);
    assert!(bench.complete(&claimed[0]).await);
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_and_a_claim_of_one_failed_flush_are_neither_lost_nor_made_twice() {
    let bench = bench().await;
    bench.accept("e1").await.unwrap();
    let first = bench.claim().await.remove(0);
    bench.accept("e2").await.unwrap();
    vfs::fail_log_flushes(1);
    let claim =
        Claim { handler: name("h"), limit: 9, runner: None, rate: None, cluster_concurrency: None };
    let (ended, claims) = bench
        .store
        .jobs
        .complete_and_claim(&[Arc::new(bench.completion(&first))], Some(claim))
        .await;
    // Found in the log by the repair: recorded already, and claimed already.
    assert_eq!(ended, [Ok(false)]);
    let claimed = claims.await.unwrap().jobs;
    let running = bench.store.jobs.running().await.unwrap();
    let running: Vec<_> = running.iter().map(|one| (one.job, one.attempt)).collect();
    assert_eq!(running, [(claimed[0].facts.job, 1)]);
    assert_eq!((claimed.len(), claimed[0].facts.event_id.as_str()), (1, "e2"));
    assert!(bench.complete(&claimed[0]).await);
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_whose_flush_failed_is_known_as_the_repair_finds_it() {
    let bench = bench().await;
    for change in [true, false] {
        vfs::fail_log_flushes(1);
        let changed = match change {
            true => bench.store.admin.pause(&name("h")).await,
            false => bench.store.admin.resume(&name("h")).await,
        };
        changed.unwrap_err();
        bench.ready().await;
        let paused = bench.store.admin.paused().await.unwrap();
        let known = bench.store.jobs.paused_now();
        assert!(known.iter().eq(paused.iter().map(|row| &row.handler)), "{known:?} {paused:?}");
        assert_eq!(known.contains(&name("h")), change, "its commit was in the log");
    }
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_checkpoint_is_never_repeated_on_the_same_connections() {
    let limits = Limits {
        ballast_bytes: 0,
        disk_floor_bytes: 0,
        log_bytes: 128 * 1024,
        ..Limits::default()
    };
    let bench = bench_with(limits).await;
    let opens = vfs::opens();
    vfs::fail_database_flushes(1);
    let mut stored = 0;
    while vfs::opens() == opens && stored < 1000 {
        // The checkpointer and the writer both make passes; either may meet the error.
        if bench.accept(&format!("e{stored}")).await.is_ok() {
            stored += 1;
        } else {
            bench.ready().await;
        }
    }
    assert!(vfs::opens() > opens, "the store was never opened again");
    bench.ready().await;
    assert!(!vfs::touched_after_a_failed_flush(), "a pass went on with what the kernel dropped");
    for n in 0..stored {
        let again = bench.accept(&format!("e{n}")).await.unwrap();
        assert!(matches!(again, Accepted::Duplicate { .. }), "{again:?}");
    }
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_no_io_error() {
    let bench = bench().await;
    bench.accept("e0").await.unwrap();
    let running = bench.claim().await.remove(0);
    let opens = vfs::opens();

    vfs::fill_disk(true);
    let refused = bench.accept("e1").await.unwrap_err();
    assert!(matches!(refused, Refused::NoSpace(_)), "{refused}");
    assert!(matches!(bench.store.intake.ready(), Err(Refused::NoSpace(_))));
    let completion = queued(bench.complete(&running)).await;
    assert!(matches!(bench.accept("e2").await, Err(Refused::NoSpace(_))));
    vfs::fill_disk(false);

    assert!(completion.await.unwrap());
    bench.ready().await;
    assert!(matches!(bench.accept("e1").await, Ok(Accepted::Created { .. })));
    assert_eq!(vfs::opens(), opens, "rolled back, stayed, tried again");
    assert_eq!(bench.events().await, 2);
    bench.sound().await;
}

/// Makes a store as the first schema had it, with one event. A release build has no migration to bring it further.
#[cfg(debug_assertions)]
fn first_schema(path: &std::path::Path) {
    hooklatch::crash::add_migration();
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(include_str!("../../migrations/0001_initial.sql")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA application_id = 0x5D2AC81B;
         PRAGMA user_version = 1;
         INSERT INTO meta (one, store_id, created_at, written_by)
             VALUES (1, x'00112233445566778899aabbccddeeff', 1, 'hooklatch 0.1.0');
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             VALUES ('stripe', 'old', 'a.b', zeroblob(32), 0, 1, 0);",
    )
    .unwrap();
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_whose_log_does_not_fit_says_what_is_needed_and_is_not_lost() {
    let bench = bench().await;
    bench.store.close().await;
    let path = bench.path.with_file_name("old.db");
    first_schema(&path);
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path: path.clone(), limits };
    vfs::fill_disk_of_database(true);
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(
        matches!(error, hooklatch::store::OpenError::NoSpaceForLog { needed: 1.., .. }),
        "{error}"
    );
    assert!(error.to_string().contains("are needed"), "{error}");
    vfs::fill_disk_of_database(false);

    // The next start has a current schema and a log over its bound, which it empties.
    let limits = Limits { log_bytes: 1, ..settings.limits };
    let settings = Settings { path: path.clone(), limits };
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(std::fs::metadata(path.with_extension("db-wal")).unwrap().len(), 0);
    assert_eq!(store.admin.events(EventFilter::default()).await.unwrap().rows.len(), 1);
    store.close().await;
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_finds_the_disk_full_says_what_is_needed_and_can_be_made_later() {
    let bench = bench().await;
    bench.store.close().await;
    let path = bench.path.with_file_name("old.db");
    first_schema(&path);
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path, limits };
    vfs::fill_disk(true);
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(
        matches!(error, hooklatch::store::OpenError::NoSpaceToMigrate { needed: 1.., .. }),
        "{error}"
    );
    vfs::fill_disk(false);
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(store.admin.events(EventFilter::default()).await.unwrap().rows.len(), 1);
    store.close().await;
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_store_whose_own_log_does_not_fit_says_what_is_needed() {
    let bench = bench().await;
    bench.store.close().await;
    let path = bench.path.with_file_name("old.db");
    first_schema(&path);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let stays = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    conn.set_db_config(stays, true).unwrap();
    conn.execute("UPDATE meta SET epoch = 99", []).unwrap();
    drop(conn);
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path, limits };
    vfs::fill_disk_of_database(true);
    let error = Store::open(&settings, Clock::manual(START)).err().unwrap();
    assert!(
        matches!(error, hooklatch::store::OpenError::NoSpaceToMigrate { needed: 1.., .. }),
        "{error}"
    );
    vfs::fill_disk_of_database(false);
    Store::open(&settings, Clock::manual(START)).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_disk_that_fails() {
    let bench = bench().await;
    bench.accept("e0").await.unwrap();
    let running = bench.claim().await.remove(0);
    vfs::fail_log_flushes(u32::MAX);
    vfs::fail_opens(true);
    assert!(bench.accept("e1").await.is_err());
    let store = bench.store.clone();
    let done = bench.complete(&running);
    let completion = tokio::spawn(async move { drop(tokio::spawn(done).await) });
    store.close().await;
    completion.await.unwrap();
    vfs::heal();
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path: bench.path.clone(), limits };
    let store = Store::open(&settings, Clock::manual(START)).unwrap();
    assert_eq!(store.jobs.running().await.unwrap().len(), 1, "left for the next start to settle");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_writes_that_go_on_failing() {
    let bench = bench().await;
    bench.accept("e0").await.unwrap();
    let running = bench.claim().await.remove(0);
    // The log can be read and written back, so every repair succeeds, and no commit ever does.
    vfs::fail_writes(true);
    assert!(bench.accept("e1").await.is_err());
    let completion = tokio::spawn(queued(bench.complete(&running)).await);
    let closed = tokio::time::timeout(Duration::from_secs(20), bench.store.close()).await;
    vfs::heal();
    assert!(closed.is_ok(), "the stop waits for ever");
    assert!(completion.await.unwrap().is_err(), "it was told that this is not recorded");
}

/// Closes the store, makes it some 60 MB larger, and opens it again: copying it takes a while.
async fn enlarge(bench: &mut Bench) {
    bench.store.close().await;
    let conn = rusqlite::Connection::open(&bench.path).unwrap();
    conn.execute_batch(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'stripe', 'large' || i, 'a.b', randomblob(32), 0, 1, 1000000 FROM n;
         INSERT INTO payload (event, headers, body, sum) SELECT row, x'', randomblob(1000000), 0 FROM event;
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);",
    )
    .unwrap();
    drop(conn);
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path: bench.path.clone(), limits };
    bench.store = Store::open(&settings, Clock::manual(START)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_gives_way_to_a_flush_that_fails_and_can_be_made_again() {
    let mut bench = bench().await;
    enlarge(&mut bench).await;
    // At its very beginning, then in the midst of it.
    for begun in [false, true] {
        let copying = match begun {
            false => {
                vfs::fail_log_flushes(1);
                bench.store.admin.copy()
            }
            true => {
                let copying = bench.store.admin.copy();
                let name = bench.path.with_extension("db.copying");
                while !name.exists() {
                    tokio::task::yield_now().await;
                }
                vfs::fail_log_flushes(1);
                let refused = bench.accept("refused").await;
                assert!(matches!(refused, Err(Refused::Degraded(_))), "{refused:?}");
                copying
            }
        };
        let error = copying.unwrap().finished().await.unwrap_err();
        assert!(matches!(error, CopyError::GaveWay(_)), "{begun}: {error}");
        // The store's own trouble may begin only now.
        while bench.accept(&format!("after-{begun}")).await.is_err() {
            bench.ready().await;
        }
        assert!(!vfs::touched_after_a_failed_flush());
        assert!(!bench.path.with_extension("db.copying").exists());
    }
    let copied = bench.store.admin.copy().unwrap().finished().await.unwrap();
    assert!(copied.manifest.bytes > 60_000_000);
    bench.sound().await;
}
