//! The writer: order, bounds, batches, bad items, space, and the end.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::task::Poll;

use super::opening::Mount;
use super::*;
use crate::pattern::Pattern;
use crate::store::sqlite::engine::queue::Queue;
use crate::store::sqlite::tables::payload;

/// Holds the writer inside a transaction until the sender is dropped.
pub(crate) async fn hold_writer(store: &Store) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (entered, mut inside) = tokio::sync::mpsc::channel(1);
    let store = store.clone();
    tokio::spawn(async move {
        store
            .sqlite()
            .engine
            .submit(Priority::Verb, move |_| {
                entered.try_send(()).unwrap();
                let _ = held.recv();
                Ok(())
            })
            .await
    });
    inside.recv().await.unwrap();
    release
}

/// Runs the future until it has put its item into the queue.
pub(super) async fn queued<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut future = Box::pin(future);
    let early = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    assert!(early.is_pending(), "it is answered only after a commit");
    tokio::spawn(future)
}

fn accept(bench: &Bench, event: &str) -> impl Future<Output = Result<Accepted, Refused>> + use<> {
    let (store, received_at) = (bench.store.clone(), bench.clock.now());
    let delivery = stripe(event, "a", "{}");
    async move {
        let (source, jobs) = (name("stripe"), vec![NewJob::of(name("h"))]);
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
    }
}

/// Begins a repair, which cannot succeed before the future that is returned is awaited: until then the database is
/// away.
async fn repair(bench: &Bench) -> impl Future<Output = ()> {
    let away = bench.beside(".away");
    std::fs::rename(&bench.settings.path, &away).unwrap();
    let mut changes = bench.store.admin.changes();
    bench.store.sqlite().engine.queue.report_broken("for the test".to_owned());
    while !matches!(bench.store.intake.ready(), Err(Refused::Degraded(_))) {
        changes.changed().await.unwrap();
    }
    async move {
        std::fs::rename(&away, &bench.settings.path).unwrap();
        while bench.store.intake.ready().is_err() {
            changes.changed().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_writer_that_hangs_does_not_answer_and_one_that_repairs_does() {
    let bench = bench();
    assert!(bench.store.admin.writer_answers().await);
    let release = hold_writer(&bench.store).await;
    let mut asked = Box::pin(bench.store.admin.writer_answers());
    let early = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
    assert!(early.is_pending(), "nobody but the writer may answer");
    drop(release);
    assert!(asked.await);

    let returned = repair(&bench).await;
    for _ in 0..3 {
        assert!(bench.store.admin.writer_answers().await, "it is alive");
    }
    returned.await;
    bench.store.close().await;
    assert!(!bench.store.admin.writer_answers().await);
}

#[tokio::test]
async fn the_guard_knows_what_a_repair_has_recovered() {
    let bench = bench();
    bench.accept("github", github("a", "push", "A"), &["h"]).await;
    // As of a commit whose flush failed: it was refused, and is in the log all the same.
    let recovered =
        "INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
                     VALUES ('github', 'b', 'push', ?1, 1, 0, 1)";
    let conn = Connection::open(&bench.settings.path).unwrap();
    conn.execute(recovered, [github("b", "push", "B").digest().0]).unwrap();
    repair(&bench).await.await;
    let again = bench.accept("github", github("c", "push", "B"), &["h"]).await;
    let held = Some(HeldReason::SuspectedReplay);
    assert_eq!(again, Accepted::Created { jobs: 1, held, flagged: false });
}

#[tokio::test]
async fn an_event_that_was_rolled_back_and_stored_again_is_the_first_of_its_body() {
    let bench = bench();
    let accept = |event: &str| {
        let (store, delivery) = (bench.store.clone(), github(event, "push", "A"));
        let (source, jobs, on_redelivery) =
            (name("github"), vec![NewJob::of(name("h"))], OnRedelivery::Ignore);
        let new = Accept { source, received_at: START, delivery, jobs, on_redelivery };
        async move { store.intake.accept(new).await }
    };
    let release = hold_writer(&bench.store).await;
    let first = queued(accept("a")).await;
    let store = bench.store.clone();
    let bad = queued(async move {
        let break_check = |tx: &Connection| tx.execute("UPDATE meta SET store_id = x'00'", []);
        store.sqlite().engine.submit(Priority::Accept { bytes: 1 }, break_check).await
    })
    .await;
    drop(release);
    assert!(bad.await.unwrap().is_err(), "it rolls its batch back");
    let created = |held| Ok(Accepted::Created { jobs: 1, held, flagged: false });
    assert_eq!(first.await.unwrap(), created(None));
    assert_eq!(accept("b").await, created(Some(HeldReason::SuspectedReplay)));
}

#[tokio::test]
async fn one_bad_item_does_not_fail_its_batch() {
    let bench = bench();
    let release = hold_writer(&bench.store).await;
    let before = queued(accept(&bench, "e1")).await;
    let store = bench.store.clone();
    let bad = queued(async move {
        store
            .sqlite()
            .engine
            .submit(Priority::Accept { bytes: 1 }, |tx| {
                // One statement that works and one that does not: neither may stand.
                tx.execute("UPDATE meta SET epoch = 77", [])?;
                tx.execute("UPDATE meta SET store_id = x'00'", [])
            })
            .await
    })
    .await;
    let after = queued(accept(&bench, "e2")).await;
    drop(release);
    let created = Accepted::Created { jobs: 1, held: None, flagged: false };
    assert_eq!(before.await.unwrap(), Ok(created.clone()));
    assert_eq!(after.await.unwrap(), Ok(created));
    let refused = bad.await.unwrap().unwrap_err();
    assert!(matches!(refused, Refused::Failed(_)), "{refused}");
    let epoch: i64 = bench
        .store
        .sqlite()
        .engine
        .read(|conn| conn.query_row("SELECT epoch FROM meta", [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(epoch, 0);
    assert_eq!(bench.store.intake.ready(), Ok(()));
    assert_eq!(bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows.len(), 2);
}

#[tokio::test]
async fn a_full_queue_is_an_answer_and_never_refuses_a_completion() {
    let bench = bench_with(Limits { writer_queue_count: 2, ..limits() });
    let claimed = bench.running("e0").await;
    let release = hold_writer(&bench.store).await;
    let one = queued(accept(&bench, "e1")).await;
    let two = queued(accept(&bench, "e2")).await;
    assert_eq!(accept(&bench, "e3").await, Err(Refused::QueueFull));
    let store = bench.store.clone();
    let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, START);
    let done = queued(async move { store.jobs.complete(done).await }).await;
    drop(release);
    assert_eq!(done.await.unwrap(), Ok(true));
    assert!(one.await.unwrap().is_ok() && two.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes() {
    let bench = bench_with(Limits { writer_queue_bytes: 3000, ..limits() });
    let release = hold_writer(&bench.store).await;
    let one = queued(accept(&bench, "e1")).await;
    let two = queued(accept(&bench, "e2")).await;
    assert_eq!(accept(&bench, "e3").await, Err(Refused::QueueFull));
    drop(release);
    assert!(one.await.unwrap().is_ok() && two.await.unwrap().is_ok());
    assert!(accept(&bench, "e3").await.is_ok());
}

#[tokio::test]
async fn what_came_a_moment_ago_is_looked_up_without_its_body() {
    let mut bench = bench_with(Limits { writer_queue_bytes: 3000, ..limits() });
    let noise: String =
        (0..2_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let large = || stripe("large", "a.b", &format!("\"{noise}\""));
    bench.accept("stripe", large(), &["h"]).await;
    for known in [true, false] {
        let release = hold_writer(&bench.store).await;
        let other = queued(accept(&bench, if known { "e1" } else { "e2" })).await;
        let store = bench.store.clone();
        let new = Accept {
            source: name("stripe"),
            received_at: START,
            delivery: large(),
            jobs: vec![NewJob::of(name("h"))],
            on_redelivery: OnRedelivery::Ignore,
        };
        let again = tokio::spawn(async move { store.intake.accept(new).await });
        tokio::task::yield_now().await;
        drop(release);
        assert!(other.await.unwrap().is_ok());
        let again = again.await.unwrap();
        assert_eq!(matches!(again, Ok(Accepted::Duplicate { .. })), known, "{again:?}");
        // Nobody remembers across a restart, but the store.
        bench.restart().await;
    }
    let again = bench.accept("stripe", large(), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { .. }), "{again:?}");
}

#[tokio::test]
async fn a_caller_that_went_away_cancels_nothing() {
    let bench = bench();
    let release = hold_writer(&bench.store).await;
    queued(accept(&bench, "e1")).await.abort();
    drop(release);
    let again = accept(&bench, "e1").await.unwrap();
    assert!(matches!(again, Accepted::Duplicate { .. }), "{again:?}");
}

#[tokio::test]
async fn closing_answers_what_is_queued_and_refuses_the_rest() {
    let mut bench = bench();
    let claimed = bench.running("e0").await;
    let release = hold_writer(&bench.store).await;
    let waiting = queued(accept(&bench, "e1")).await;
    let store = bench.store.clone();
    let closing = queued(async move { store.close().await }).await;
    assert_eq!(bench.store.intake.ready(), Err(Refused::Stopping));
    assert_eq!(accept(&bench, "e2").await, Err(Refused::Stopping));
    drop(release);
    assert!(matches!(waiting.await.unwrap(), Ok(Accepted::Created { .. })));
    closing.await.unwrap();
    bench.store.close().await;
    let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, START);
    let error = bench.store.jobs.complete(done).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(bench.store.admin.events(EventFilter::default()).await.is_err());
    assert!(!bench.beside("-wal").exists_with_content(), "an orderly end leaves an empty log");
    bench.restart().await;
    assert_eq!(bench.store.jobs.running().await.unwrap().len(), 1);
    assert_eq!(bench.store.admin.events(EventFilter::default()).await.unwrap().rows.len(), 2);
}

trait Content {
    fn exists_with_content(&self) -> bool;
}

impl Content for PathBuf {
    fn exists_with_content(&self) -> bool {
        std::fs::metadata(self).is_ok_and(|meta| meta.len() > 0)
    }
}

#[tokio::test]
async fn dropping_every_handle_ends_the_writer() {
    let bench = bench();
    let mut closed = bench.store.sqlite().closed.clone();
    drop(bench.store);
    closed.wait_for(|closed| *closed).await.unwrap();
}

#[tokio::test]
async fn the_log_stays_bounded() {
    let bound = 512 * 1024;
    let bench = bench_with(Limits { log_bytes: bound, ..limits() });
    let mut seed = 1u64;
    for n in 0..150 {
        // Bytes that do not compress.
        let body: String = (0..20_000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b' ' + (seed >> 33) as u8 % 90)
            })
            .collect();
        bench.accept("github", github(&format!("e{n}"), "push", &body), &["h"]).await;
    }
    let log = std::fs::metadata(bench.beside("-wal")).unwrap().len();
    let data = std::fs::metadata(bench.beside("")).unwrap().len();
    assert!(log <= bound + 128 * 1024, "{log}");
    assert!(data > 2 * bound, "{data}");
}

#[tokio::test]
async fn below_the_floor_accepts_wait_while_completions_go_on() {
    let floor = u64::MAX;
    let mut bench = bench();
    let claimed = bench.running("e").await;
    bench.settings.limits.disk_floor_bytes = floor;
    bench.restart().await;
    let refused = accept(&bench, "e2").await.unwrap_err();
    assert!(matches!(&refused, Refused::NoSpace(why) if why.contains("are needed")), "{refused}");
    assert!(matches!(bench.store.intake.ready(), Err(Refused::NoSpace(_))));
    assert!(bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await);
}

#[tokio::test]
async fn a_full_disk_is_answered_survived_and_left() {
    let Some(mount) = Mount::tmpfs("size=6m") else { return };
    let limits = Limits { ballast_bytes: 512 * 1024, disk_floor_bytes: 0, ..Limits::default() };
    let settings = Settings { path: mount.path().join("hooklatch.db"), limits };
    let bench = bench_at(settings);
    let claimed = bench.running("e0").await;
    assert!(bench.beside(".ballast").exists());

    // Somebody else fills the disk to the last byte.
    let filler = mount.path().join("filler");
    fill(&filler);
    let mut refused = None;
    for n in 1..200 {
        let body: String =
            (0..30_000u64).map(|i| char::from(b' ' + (i * i * 7 % 89) as u8)).collect();
        match bench
            .try_accept("github", github(&format!("e{n}"), "push", &format!("{n}{body}")), &["h"])
            .await
        {
            Ok(_) => fill(&filler),
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(Refused::NoSpace(_))), "{refused:?}");
    assert!(matches!(bench.store.intake.ready(), Err(Refused::NoSpace(_))));
    assert!(bench.store.admin.writer_answers().await, "it refuses, and is alive");
    // The result of the running job is kept all the same: the ballast is for it.
    let kept = bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded);
    let kept = tokio::time::timeout(Duration::from_secs(10), kept).await;
    assert_eq!(kept, Ok(true), "no space was left for it");

    std::fs::remove_file(&filler).unwrap();
    let wake = bench.store.jobs.wake();
    while bench.store.intake.ready().is_err() {
        wake.notified().await;
        bench.clock.advance(Duration::from_secs(1));
    }
    let accepted = accept(&bench, "later").await;
    assert!(matches!(accepted, Ok(Accepted::Created { .. })), "{accepted:?}");
    assert!(bench.beside(".ballast").exists());
    bench.store.close().await;
    let conn = Connection::open(&bench.settings.path).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

/// Takes all space there is.
fn fill(path: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [65_536, 4096, 512] {
        while file.write_all(&vec![0x5A; size]).is_ok() {}
    }
}

#[test]
fn a_writer_that_panics_takes_the_process_with_it() {
    const MINUTE: Duration = Duration::from_secs(60);
    use std::os::unix::process::ExitStatusExt;
    const CHILD: &str = "HOOKLATCH_TEST_WRITER_PANICS";
    if std::env::var_os(CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(bench().store.sqlite().engine.submit(
            Priority::Verb,
            |_| -> rusqlite::Result<()> {
                panic!("on purpose");
            },
        ));
        // Who asked hears of it first: the panic unwinds to the thread's end before the abort.
        std::thread::park_timeout(MINUTE);
        panic!("the process outlived its writer: {answer:?}");
    }
    let test = "store::tests::writing::a_writer_that_panics_takes_the_process_with_it";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(CHILD, "1")
        .output()
        .unwrap();
    // SIGABRT.
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
}

#[test]
fn an_error_reported_while_the_door_opens_is_not_forgotten() {
    let queue = Queue::new(&limits());
    queue.shut(&Refused::Degraded("a flush failed".to_owned()));
    // The new checkpoint connection may fail before the repair is through.
    queue.report_broken("a checkpoint failed".to_owned());
    queue.open();
    assert!(matches!(
        queue.take_now(),
        Some(crate::store::sqlite::engine::queue::NextWork::Broken(_))
    ));
}

#[tokio::test]
async fn an_error_reported_while_the_disk_is_full_is_repaired_all_the_same() {
    let bench = bench_with(Limits { ballast_bytes: 4096, ..limits() });
    let (queue, checkpoints) = (
        Arc::clone(&bench.store.sqlite().engine.queue),
        Arc::clone(&bench.store.sqlite().engine.checkpoints),
    );
    let mut full = true;
    let done = bench.store.sqlite().engine.submit(Priority::Kept, move |_| {
        if std::mem::take(&mut full) {
            // The checkpointer meets an I/O error while this commit finds no space.
            checkpoints.close();
            queue.report_broken("a checkpoint failed".to_owned());
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
            return Err(rusqlite::Error::SqliteFailure(code, None));
        }
        Ok(())
    });
    assert_eq!(done.await, Ok(()));
    let passes = || bench.store.sqlite().engine.checkpoints.seconds.get().buckets.last().unwrap().1;
    let before = passes();
    bench.store.sqlite().engine.checkpoints.pass(rusqlite::wal::CheckpointMode::PASSIVE);
    assert_eq!(passes(), before + 1, "the log is never copied again");
}

#[tokio::test]
async fn a_completion_that_fails_alone_is_tried_again_while_others_go_on() {
    let bench = bench();
    let claimed = bench.running("e").await;
    let run = |sql: &'static str| {
        bench.store.sqlite().engine.submit(Priority::Verb, move |tx| tx.execute_batch(sql))
    };
    let broken = "CREATE TRIGGER broken BEFORE UPDATE ON job WHEN new.state = 'succeeded'
                      BEGIN SELECT raise(ABORT, 'for the test'); END";
    run(broken).await.unwrap();
    let store = bench.store.clone();
    let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, bench.clock.now());
    let completed = queued(async move { store.jobs.complete(done).await }).await;
    bench.accept("stripe", stripe("other", "a.b", "{}"), &["h"]).await;
    assert!(!completed.is_finished());
    run("DROP TRIGGER broken").await.unwrap();
    assert_eq!(completed.await.unwrap(), Ok(true));
    // A stop does not wait for one that still fails.
    let claimed = bench.claim_one().await;
    run(broken).await.unwrap();
    let (store, now) = (bench.store.clone(), bench.clock.now());
    let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, now);
    let completed = queued(async move { store.jobs.complete(done).await }).await;
    bench.store.close().await;
    assert!(matches!(completed.await.unwrap(), Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_store_that_was_degraded_says_so_once_it_can() {
    let bench = bench();
    let patterns = vec![Pattern::new("store.degraded", true)];
    bench.store.admin.set_interest(NoticeSubscribers::new(vec![(name("alert"), patterns)]));
    bench.break_down().await;
    let come = async {
        loop {
            // Nothing can be read while it is closed.
            match bench.store.admin.events(EventFilter::default()).await {
                Ok(page) if !page.rows.is_empty() => break page.rows,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let events = tokio::time::timeout(Duration::from_secs(60), come).await.unwrap();
    let event = events[0].event_id.clone();
    let shown = bench.store.admin.show(None, event, None).await.unwrap().remove(0);
    let body: serde_json::Value = serde_json::from_slice(shown.body.as_deref().unwrap()).unwrap();
    assert_eq!(body["type"], "store.degraded");
    assert_eq!(
        (&body["reason"], &body["handler"]),
        (&"I/O error".into(), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn a_database_that_is_moved_away_takes_nothing_until_it_is_back_and_can_be_saved() {
    for suffix in ["", "-wal"] {
        let bench = bench();
        let claimed = bench.running("e").await;
        let (path, away) = (bench.beside(suffix), bench.beside(".away"));
        std::fs::rename(&path, &away).unwrap();
        let refused = accept(&bench, "lost").await;
        let Err(Refused::Gone(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains(&format!("{} was removed or replaced", path.display())), "{why}");
        assert!(matches!(bench.store.intake.ready(), Err(Refused::Gone(_))));
        let store = bench.store.clone();
        let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, bench.clock.now());
        let completed = tokio::spawn(async move { store.jobs.complete(done).await });
        // All that was answered is in a copy.
        let StoreCopy { mut file, .. } =
            bench.store.admin.copy().unwrap().finished().await.unwrap();
        let saved = bench.beside(".saved");
        std::io::copy(&mut file, &mut std::fs::File::create(&saved).unwrap()).unwrap();
        assert_eq!(inspect(&saved).unwrap().events, 1);
        // Another file of that name is not the store.
        std::fs::write(&path, "").unwrap();
        assert!(matches!(accept(&bench, "lost").await, Err(Refused::Gone(_))));
        assert!(!completed.is_finished());
        let mut changes = bench.store.admin.changes();
        std::fs::rename(&away, &path).unwrap();
        while bench.store.intake.ready().is_err() {
            changes.changed().await.unwrap();
        }
        assert_eq!(completed.await.unwrap(), Ok(true), "{suffix}");
        bench.accept("stripe", stripe("lost", "a.b", "{}"), &["h"]).await;
        bench.store.close().await;
    }
}

#[tokio::test]
async fn a_job_whose_rows_cannot_be_read_keeps_no_other_from_running() {
    let mut bench = bench();
    for event in ["e1", "e2"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    let change = "UPDATE event SET source = '' WHERE row = 1";
    bench.with_file(|conn| conn.execute_batch(change).unwrap()).await;
    assert_eq!(bench.starts().await, ["e2"]);
    let held = "SELECT count(*) FROM job WHERE state = 'held' AND reason = 'payload damaged'";
    assert_eq!(bench.number(held).await, 1);
}

/// A changed byte has made the number of their event that of none.
#[tokio::test]
async fn jobs_of_no_event_end_or_are_held_and_keep_no_other_from_running() {
    let mut bench = bench();
    let claimed = bench.running("e0").await;
    for event in ["e1", "e2"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    let change = "PRAGMA foreign_keys = OFF; UPDATE job SET event = event + 97 WHERE row <= 2";
    bench.with_file(|conn| conn.execute_batch(change).unwrap()).await;
    let wanted = vec![(name("alert"), vec![Pattern::new("store.degraded", true)])];
    bench.store.admin.set_interest(NoticeSubscribers::new(wanted));
    assert_eq!(bench.starts().await, ["e2"]);
    let told = "SELECT count(*) FROM event WHERE type = 'store.degraded'";
    assert_eq!(bench.number(told).await, 1);
    let running = bench.store.jobs.running().await.unwrap();
    assert!(running.iter().any(|running| running.job == claimed.facts.job), "{running:?}");
    assert!(bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await);
    let filter = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    let held = bench.store.admin.jobs(filter.clone()).await.unwrap().rows.remove(0);
    assert_eq!(
        (&*held.event_id.to_string(), held.reason.as_deref()),
        ("unreadable", Some("payload damaged"))
    );
    assert_eq!(bench.store.admin.stuck().await.unwrap().groups.len(), 1);
    for verb in [Verb::Replay, Verb::Drop] {
        let ask = JobSelection { filter: filter.clone(), after: None, verb };
        assert_eq!(bench.store.admin.select(ask).await.unwrap().jobs.len(), 1, "{verb:?}");
    }
    let replayed = bench.store.admin.replay(Replay::Job(held.job, None), true).await;
    assert!(matches!(replayed, Err(Error::Damaged(_))), "{replayed:?}");
    bench.store.admin.drop_job(held.job, None).await.unwrap();
    assert_eq!(bench.job(held.job).await.state, State::Dropped);
}

/// A body whose stored form takes several pages.
fn large(event: &str) -> Verified {
    let digest = |number: u32| Digest::of(number.to_le_bytes()).to_string();
    let data = format!("\"{}\"", (0..1000).map(digest).collect::<String>());
    stripe(event, "a", &data)
}

const PAGE_BYTES: u64 = 4096;

/// Overwrites four bytes of the closed file, at this place.
async fn break_file(bench: &mut Bench, place: impl FnOnce(&Connection, &File) -> u64) {
    let path = bench.settings.path.clone();
    let change = |conn: &Connection| {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let place = place(conn, &file);
        file.write_all_at(&[0xff; 4], place).unwrap();
    };
    bench.with_file(change).await;
}

/// Where the pages of this kind begin.
fn pages(conn: &Connection, kind: &str) -> Vec<u64> {
    let sql = format!("SELECT pageno FROM dbstat WHERE {kind} ORDER BY pageno");
    let mut select = conn.prepare(&sql).unwrap();
    let found = select.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    found.map(|page| (page.unwrap().unsigned_abs() - 1) * PAGE_BYTES).collect()
}

/// The pages of bodies. Each begins with the number of the page that follows it.
const OF_BODIES: &str = "name = 'payload' AND pagetype = 'overflow'";

#[tokio::test]
async fn retention_passes_over_a_payload_in_a_broken_page_and_deletes_the_others() {
    let mut bench = bench();
    bench.accept("stripe", large("e1"), &[]).await;
    for event in ["e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &[]).await;
    }
    // The row ends with the number of the body's first page, and the page ends with the first row.
    break_file(&mut bench, |conn, file| {
        let first = pages(conn, OF_BODIES)[0] / PAGE_BYTES + 1;
        let leads_there = |end: &u64| {
            let mut number = [0; 4];
            file.read_exact_at(&mut number, *end).unwrap();
            u64::from(u32::from_be_bytes(number)) == first
        };
        let leaves = pages(conn, "name = 'payload' AND pagetype = 'leaf'").into_iter();
        leaves.map(|leaf| leaf + PAGE_BYTES - 4).find(leads_there).unwrap()
    })
    .await;
    bench.clock.advance(DAY);
    let day = bench.clock.now();
    for deleted in [2, 0] {
        assert_eq!(expired(&bench, day, START).await, (deleted, 0));
        assert_eq!(bench.store.intake.ready(), Ok(()));
    }
    assert_eq!(bench.number("SELECT event FROM payload").await, 1);
}

/// The root of the payloads, which are looked at for the events too.
#[tokio::test]
async fn what_retention_cannot_read_keeps_nothing_else_from_being_deleted() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e1", "a", "{}"), &[]).await;
    bench.store.admin.pause(&name("h")).await.unwrap();
    assert_eq!(bench.number("SELECT count(*) FROM audit").await, 1);
    break_file(&mut bench, |conn, _| pages(conn, "name = 'payload'")[0]).await;
    bench.clock.advance(DAY);
    let day = bench.clock.now();
    let expired = bench.store.jobs.expire(Cutoffs { payloads: day, ids: day, dead: day }).await;
    assert!(matches!(expired, Err(Error::Unavailable(_))), "{expired:?}");
    assert_eq!(bench.number("SELECT count(*) FROM event").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM audit").await, 0);
}

/// Each step of SQLite's may be interrupted, as a check is that takes too long.
#[tokio::test]
async fn a_check_names_a_payload_in_a_broken_page_and_none_that_it_was_kept_from_reading() {
    let mut bench = bench();
    for event in ["e1", "e2"] {
        bench.accept("stripe", large(event), &[]).await;
    }
    let interrupt = |conn: &Connection| {
        let mut conn = Connection::open(conn.path().unwrap()).unwrap();
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
        for most in 0.. {
            let mut steps = 0;
            let stop = move || {
                steps += 1;
                steps > most
            };
            conn.progress_handler(1, Some(stop)).unwrap();
            match payload::check(&conn, None) {
                Ok(found) => {
                    assert_eq!((found.checked, found.damaged), (2, Vec::new()), "{most} steps");
                    break;
                }
                Err(error) => {
                    let code = error.sqlite_error_code();
                    assert_eq!(code, Some(rusqlite::ErrorCode::OperationInterrupted), "{error}");
                }
            }
        }
    };
    bench.with_file(interrupt).await;
    break_file(&mut bench, |conn, _| pages(conn, OF_BODIES)[0]).await;
    let found = bench.store.admin.check_payloads(PayloadCheck { after: None }).await.unwrap();
    assert_eq!((found.checked, found.damaged), (2, vec!["stripe e1".to_owned()]));
}

/// The page of an index that claims look at, and that each new job changes.
#[tokio::test]
async fn a_broken_page_fails_what_needs_it_and_is_said_and_all_else_goes_on() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e1", "a", "{}"), &["h"]).await;
    // It begins with its kind.
    break_file(&mut bench, |conn, _| pages(conn, "name = 'job_ready'")[0]).await;
    let h = name("h");
    for _ in 0..2 {
        let claimed = bench.store.jobs.claim(&h, 9, None);
        let claimed = tokio::time::timeout(Duration::from_secs(60), claimed).await;
        assert!(matches!(claimed, Ok(Err(Error::Unavailable(_)))), "it is tried for ever");
        let refused = bench.try_accept("stripe", stripe("e2", "a", "{}"), &["h"]).await;
        assert!(matches!(refused, Err(Refused::Failed(_))), "{refused:?}");
        bench.accept("stripe", stripe("e3", "a", "{}"), &[]).await;
        assert_eq!(bench.store.intake.ready(), Ok(()));
    }
    let stalls: Vec<_> = bench.store.admin.stalls().iter().map(|stall| stall.what).collect();
    assert_eq!(stalls, [Stalled::Pages]);
}

const HELD: &str =
    "SELECT count(*) FROM job WHERE state = 'held' AND reason = 'payload unreadable'";

/// The claims of `h` fail, and hold nothing.
async fn claim_fails(bench: &Bench) {
    let claims = bench.store.jobs.claim(&name("h"), 9, None).await;
    assert!(matches!(claims, Err(Error::Unavailable(_))), "{claims:?}");
    assert_eq!(bench.number(HELD).await, 0);
}

#[tokio::test]
async fn a_job_whose_payload_is_in_a_broken_page_is_held_and_the_store_goes_on() {
    let mut bench = bench();
    bench.accept("stripe", large("e1"), &["h"]).await;
    bench.accept("stripe", stripe("e2", "a", "{}"), &["h", "other"]).await;
    break_file(&mut bench, |conn, _| pages(conn, OF_BODIES)[0]).await;
    for millis in [0, 4_000, 4_000, 1_999] {
        bench.advance(Duration::from_millis(millis)).await;
        claim_fails(&bench).await;
    }
    assert_eq!(bench.store.jobs.claim(&name("other"), 9, None).await.unwrap().jobs.len(), 1);
    bench.advance(Duration::from_millis(1)).await;
    // This one holds it.
    assert!(bench.starts().await.is_empty());
    assert_eq!(bench.number(HELD).await, 1);
    assert_eq!(bench.starts().await, ["e2"]);
    // A later delivery of it is a duplicate, and others are accepted.
    let again = bench.accept("stripe", large("e1"), &["h"]).await;
    assert!(matches!(again, Accepted::Duplicate { replayed: 0, conflict: false, .. }), "{again:?}");
    bench.accept("stripe", stripe("e3", "a", "{}"), &["h"]).await;
    assert_eq!(bench.starts().await, ["e3"]);
}

/// Both times the disk gives the page again before three claims and 10 s. A claim that has read it ends the count.
#[tokio::test]
async fn a_payload_that_the_disk_gives_again_is_held_for_no_earlier_failure() {
    let mut bench = bench();
    bench.accept("stripe", large("e1"), &["h"]).await;
    let (mut place, mut whole) = (0, [0; 4]);
    break_file(&mut bench, |conn, file| {
        place = pages(conn, OF_BODIES)[0];
        file.read_exact_at(&mut whole, place).unwrap();
        place
    })
    .await;
    // Closed behind the store: a close drops SQLite's locks.
    let file = File::options().write(true).open(&bench.settings.path).unwrap();
    for _ in 0..2 {
        file.write_all_at(&[0xff; 4], place).unwrap();
        // No connection has it in memory any more.
        bench.break_down().await;
        for seconds in [0, 9] {
            bench.advance(Duration::from_secs(seconds)).await;
            claim_fails(&bench).await;
        }
        file.write_all_at(&whole, place).unwrap();
        bench.break_down().await;
        bench.advance(Duration::from_secs(60)).await;
        let claimed = bench.claim_one().await;
        assert_eq!(&claimed.facts.body, large("e1").body());
        assert!(bench.complete(&claimed, Outcome::NotStarted, Next::Ready).await);
    }
    // One that was read long ago does not count with two of now.
    file.write_all_at(&[0xff; 4], place).unwrap();
    bench.break_down().await;
    for seconds in [0, 3600] {
        bench.advance(Duration::from_secs(seconds)).await;
        claim_fails(&bench).await;
    }
    bench.store.close().await;
}
