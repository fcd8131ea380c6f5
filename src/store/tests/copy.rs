//! A copy of a store that is being written is whole, ends, and costs the store nothing.
use std::io::Read;

use super::opening::Mount;
use super::*;

/// Copies to a file of its own, as a backup does, and looks at it.
async fn copied(store: &Store, to: &std::path::Path) -> Result<(Manifest, BackupInfo), CopyError> {
    let StoreCopy { mut file, manifest } = store.admin.copy()?.finished().await?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, manifest.bytes);
    std::fs::write(to, bytes).unwrap();
    Ok((manifest, inspect(to).unwrap()))
}

/// Puts `events` of 3 KiB there by hand.
fn fill(conn: &Connection, events: usize) {
    conn.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events})
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'stripe', 'old' || i, 'a.b', randomblob(32), 0, 1, 3000 FROM n;
         INSERT INTO payload (event, headers, body, sum) SELECT row, x'', randomblob(3000), 0 FROM event;
         COMMIT;"
    ))
    .unwrap();
}

/// Accepts until told to stop; returns how many, and the longest that one waited.
fn accepting(
    store: &Store,
    name_of: &'static str,
    bytes: usize,
) -> (tokio::sync::watch::Sender<bool>, tokio::task::JoinHandle<(usize, Duration)>) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let store = store.clone();
    let task = tokio::spawn(async move {
        let (mut sent, mut longest) = (0, Duration::ZERO);
        while !*stopped.borrow() {
            // Random text, which zstd leaves as long as it is.
            let data = format!(r#""{}""#, data_encoding::BASE64.encode(&vec_of_random(bytes)));
            let delivery = stripe(&format!("{name_of}{sent}"), "a.b", &data);
            let (source, jobs) = (name("stripe"), vec![NewJob::of(name("h"))]);
            let on_redelivery = OnRedelivery::Ignore;
            let new = Accept { source, received_at: START, delivery, jobs, on_redelivery };
            let asked = std::time::Instant::now();
            store.intake.accept(new).await.unwrap();
            longest = longest.max(asked.elapsed());
            sent += 1;
        }
        (sent, longest)
    });
    (stop, task)
}

fn vec_of_random(bytes: usize) -> Vec<u8> {
    let mut random = vec![0; bytes];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
    random
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_under_load_has_all_that_was_answered_before_it_and_ends() {
    let log_bytes = 1 << 20;
    let mut bench = bench_with(Limits { log_bytes, ..limits() });
    bench.with_file(|conn| fill(conn, 15_000)).await;
    let (stop, before) = accepting(&bench.store, "before", 30);
    while bench.store.admin.events(EventFilter::default()).await.unwrap().rows.len() < 20 {}
    stop.send_replace(true);
    let (before, _) = before.await.unwrap();
    // Written in the meantime: small and large ones, more than the log may hold.
    let (stop, writers) = (0..4)
        .map(|n| {
            accepting(&bench.store, ["a", "b", "c", "d"][n], if n < 3 { 100_000 } else { 100 })
        })
        .unzip::<_, _, Vec<_>, Vec<_>>();
    let mut copying = bench.store.admin.copy().unwrap();
    assert_eq!(bench.store.admin.copy().unwrap_err(), CopyError::Busy);
    let (mut longest_log, mut done) = (0, 0);
    let copied = loop {
        let now = copying.progress().0;
        assert!(now >= done, "it began anew: {now} after {done}");
        done = now;
        let log = std::fs::metadata(bench.beside("-wal")).unwrap().len();
        longest_log = longest_log.max(log);
        let ended = tokio::time::timeout(Duration::from_millis(5), copying.finished()).await;
        if let Ok(copied) = ended {
            break copied.unwrap();
        }
    };
    for stop in stop {
        stop.send_replace(true);
    }
    let (mut sent, mut longest) = (0, Duration::ZERO);
    for writer in writers {
        let (more, waited) = writer.await.unwrap();
        (sent, longest) = (sent + more, longest.max(waited));
    }
    let dir = tempfile::tempdir().unwrap();
    let (to, mut file) = (dir.path().join("a copy?#%.db"), copied.file);
    std::io::copy(&mut file, &mut std::fs::File::create(&to).unwrap()).unwrap();
    let whole = inspect(&to).unwrap();
    let now = bench.store.admin.status(Vec::new()).await.unwrap();
    eprintln!(
        "{} bytes copied while {sent} events were accepted, the longest wait {longest:.1?}; the log \
         reached {longest_log} bytes",
        copied.manifest.bytes
    );
    assert_eq!(whole.store, bench.store.admin.id());
    assert_eq!(whole.copied_at, Some(START));
    assert_eq!(whole.last_event, copied.manifest.last_event);
    let all = (15_000 + before + sent) as u64;
    assert!(whole.events >= 15_000 + before as u64 && whole.events <= all, "{}", whole.events);
    // A batch may end it over its bound; the next one begins the log anew.
    assert!(longest_log < 4 * log_bytes, "{longest_log}");
    assert!(now.disk.database_bytes >= copied.manifest.bytes / 2);
    assert!(!bench.beside(".copying").exists());
}

#[tokio::test]
async fn a_copy_has_the_whole_of_each_change_or_nothing_of_it() {
    let bench = bench();
    let claimed = bench.running("e1").await;
    bench.accept("stripe", stripe("e2", "a.b", "{}"), &["h", "i"]).await;
    let dir = tempfile::tempdir().unwrap();
    let (manifest, whole) = copied(&bench.store, &dir.path().join("copy.db")).await.unwrap();
    assert_eq!((manifest.last_event, whole.events), (2, 2));
    let jobs = [(State::Ready, 2), (State::Running, 1)];
    assert_eq!(whole.jobs, jobs.into_iter().collect());
    // The store goes on as if nothing had been.
    assert!(bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await);
    let again = copied(&bench.store, &dir.path().join("again.db")).await.unwrap();
    assert_eq!(again.1.jobs[&State::Succeeded], 1);
}

#[tokio::test]
async fn a_copy_names_the_events_whose_payload_is_damaged() {
    let mut bench = bench();
    for event in ["whole", "body", "headers", "type", "odd"] {
        bench.accept("stripe", stripe(event, "a.b", "{}"), &["h"]).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, whole) = copied(&bench.store, &dir.path().join("whole.db")).await.unwrap();
    assert_eq!((whole.damaged, whole.damaged_events.len()), (0, 0));
    let changes = "
        UPDATE payload SET body = CAST(substr(body, 1, length(body) - 1) AS BLOB) WHERE event = 2;
        UPDATE payload SET headers = x'00' WHERE event = 3;
        UPDATE event SET type = 'a.c' WHERE row = 4;
        UPDATE event SET source = 'a' || char(27) WHERE row = 5;";
    bench.with_file(|conn| conn.execute_batch(changes).unwrap()).await;
    let (_, copy) = copied(&bench.store, &dir.path().join("copy.db")).await.unwrap();
    assert_eq!((copy.damaged, copy.events), (4, 5));
    assert_eq!(copy.damaged_events, ["stripe body", "stripe headers", "stripe type", "row 5"]);
}

#[tokio::test]
async fn a_copy_that_nobody_waits_for_is_given_up_and_another_may_begin() {
    let mut bench = bench();
    bench.with_file(|conn| fill(conn, 20_000)).await;
    let copying = bench.store.admin.copy().unwrap();
    drop(copying);
    // The queue is in order: what is accepted now is answered when the copy has seen that it is alone.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let copying = loop {
        bench.accept("stripe", stripe("e", "a.b", "{}"), &[]).await;
        match bench.store.admin.copy() {
            Ok(copying) => break copying,
            Err(error) => assert_eq!(error, CopyError::Busy),
        }
        assert!(std::time::Instant::now() < end, "it goes on without anybody");
    };
    drop(copying);
    bench.store.close().await;
    assert!(!bench.beside(".copying").exists());
    assert_eq!(bench.store.admin.copy().unwrap_err(), CopyError::Refused(Refused::Stopping));
}

#[tokio::test]
async fn a_copy_that_would_take_the_floor_is_not_begun() {
    // No other test takes or frees space on this one.
    let Some(disk) = Mount::tmpfs("size=64m") else { return };
    let path = disk.path().join("hooklatch.db");
    let mut bench = bench_at(Settings { path, limits: limits() });
    bench.with_file(|conn| fill(conn, 1_000)).await;
    let free = bench.store.admin.status(Vec::new()).await.unwrap().disk.free_bytes.unwrap();
    // The floor itself is kept, so accepts go on; with the copy it would not be.
    let floor = Limits { disk_floor_bytes: free - (1 << 20), ..limits() };
    bench.store.close().await;
    bench.settings.limits = floor;
    bench.store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
    let error = bench.store.admin.copy().unwrap().finished().await.unwrap_err();
    assert!(
        matches!(&error, CopyError::NoSpace(why) if why.contains("disk_floor_bytes")),
        "{error}"
    );
    assert!(!bench.beside(".copying").exists());
}

#[tokio::test]
async fn what_a_killed_receiver_left_of_a_copy_is_removed_at_the_next_start() {
    let mut bench = bench();
    bench.store.close().await;
    for suffix in [".copying", ".copying-journal", ".copying-wal"] {
        std::fs::write(bench.beside(suffix), "half").unwrap();
    }
    bench.restart().await;
    for suffix in [".copying", ".copying-journal", ".copying-wal"] {
        assert!(!bench.beside(suffix).exists(), "{suffix}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_whole_copy_is_not_taken_for_one() {
    let bench = bench();
    bench.accept("stripe", stripe("e", "a.b", "{}"), &["h"]).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.db");
    copied(&bench.store, &path).await.unwrap();
    let good = std::fs::read(&path).unwrap();

    let mut bad = good.clone();
    // A page in the middle: the index and its table disagree, or a page is none.
    let middle = good.len() / 2 / 4096 * 4096;
    bad[middle..middle + 4096].fill(0x55);
    std::fs::write(&path, bad).unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::Damaged { .. })));
    std::fs::write(&path, &good[..good.len() - 4096]).unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::Damaged { .. })));
    std::fs::write(&path, "words").unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::Foreign { .. })));
    std::fs::write(&path, &good).unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::Newer { schema: 999, .. })));
    std::fs::write(&path, &good).unwrap();
    std::fs::write(dir.path().join("copy.db-wal"), "frames").unwrap();
    assert!(matches!(inspect(&path), Err(InspectError::HasLog { .. })));
    // A store that runs has its commits in a log.
    assert!(matches!(inspect(&bench.settings.path), Err(InspectError::HasLog { .. })));
    let other = dir.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(matches!(inspect(&other), Err(InspectError::Foreign { .. })));
}
