//! A restore: a new identity, nothing that starts by itself, the gap on record; or nothing at all.
use std::fs::File;

use super::*;
use crate::runner::tests::damage::damages;

/// A backup in a file of its own.
async fn backup(store: &Store, to: &std::path::Path) {
    let StoreCopy { mut file, .. } = store.admin.copy().unwrap().finished().await.unwrap();
    std::io::copy(&mut file, &mut File::create(to).unwrap()).unwrap();
}

fn try_restore(
    settings: &Settings,
    from: &std::path::Path,
    replace: bool,
    clock: &Clock,
) -> Result<RestoreResult, RestoreError> {
    restore(settings, from, &mut File::open(from).unwrap(), replace, clock)
}

/// What a folder holds but for locks, sorted.
fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn everything_unfinished_is_held_and_the_gap_is_on_record() {
    let bench = bench();
    // Each state there is.
    let running = bench.running("running").await;
    for (event, outcome, next) in [
        ("waiting", Outcome::Failed, Next::Wait { due_at: START.after(HOUR) }),
        ("held", Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)),
        ("dead", Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
        ("done", Outcome::Succeeded, Next::Succeeded),
    ] {
        let claimed = bench.running(event).await;
        bench.complete(&claimed, outcome, next).await;
    }
    bench.accept("stripe", stripe("ready", "a.b", "{}"), &["h"]).await;
    let old = bench.store.admin.id();
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup.db");
    backup(&bench.store, &from).await;
    bench.clock.advance(HOUR);
    bench.accept("stripe", stripe("later", "a.b", "{}"), &["h"]).await;
    bench.clock.advance(HOUR);

    let before = std::fs::read(&from).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = Settings { path: elsewhere.path().join("new.db"), limits: limits() };
    let restored = try_restore(&settings, &from, false, &bench.clock).unwrap();
    assert_eq!(names(elsewhere.path()), ["new.db"]);
    assert_eq!(std::fs::read(&from).unwrap(), before, "the backup itself is never changed");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&settings.path).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let gap = RestoredRow {
        from_store: old,
        made_at: START,
        restored_at: START.after(2 * HOUR),
        held: 3,
        lost: 0,
    };
    assert_eq!((restored.row, restored.aside), (gap.clone(), None));

    let store = Store::open(&settings, bench.clock.clone()).unwrap();
    assert_eq!(store.admin.id(), restored.store);
    assert_ne!(store.admin.id(), old, "no runner may take it for the other");
    let rows = store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let mut states: Vec<(String, State, Option<String>)> =
        rows.iter().map(|row| (row.event_id.to_string(), row.state, row.reason.clone())).collect();
    states.sort();
    let restored = |event: &str| (event.to_owned(), State::Held, Some("restored".to_owned()));
    let word = |event: &str, state, reason: Option<&str>| {
        (event.to_owned(), state, reason.map(str::to_owned))
    };
    assert_eq!(
        states,
        [
            word("dead", State::Dead, Some("rejected")),
            word("done", State::Succeeded, None),
            word("held", State::Held, Some("unknown outcome")),
            restored("ready"),
            restored("running"),
            restored("waiting"),
        ]
    );
    assert!(store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    let shown = store.admin.show(None, id("running"), None).await.unwrap().remove(0);
    let attempt = &shown.jobs[0].attempts[0];
    assert_eq!((attempt.number, attempt.outcome), (1, Some(Outcome::Unknown)));
    assert_eq!(shown.restores, std::slice::from_ref(&gap));
    assert_eq!(store.admin.status(Vec::new()).await.unwrap().restores, [gap]);
    // Its completion, from wherever, finds nothing to complete.
    let late = completion(&running, Outcome::Succeeded, Next::Succeeded, bench.clock.now());
    assert!(!store.jobs.complete(late).await.unwrap());
    // A person lets it go on, and numbers are not given back.
    store.admin.replay(Replay::Job(running.facts.job, None), false).await.unwrap();
    assert_eq!(store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs[0].facts.attempt, 2);
    // What came in the gap is new: the README says so.
    let delivery = stripe("later", "a.b", "{}");
    let new = Accept {
        source: name("stripe"),
        received_at: bench.clock.now(),
        delivery,
        jobs: vec![NewJob::of(name("h"))],
        on_redelivery: OnRedelivery::Ignore,
    };
    assert!(matches!(store.intake.accept(new).await, Ok(Accepted::Created { .. })));
    let later = store.admin.show(None, id("later"), None).await.unwrap().remove(0);
    assert!(later.restores.is_empty(), "it was never in a backup");
    store.close().await;
    // Once its ids would be forgotten anyhow, the gap is no news.
    bench.clock.advance(91 * DAY);
    let store = Store::open(&settings, bench.clock.clone()).unwrap();
    assert!(store.admin.status(Vec::new()).await.unwrap().restores.is_empty());
    store.close().await;
}

#[tokio::test]
async fn a_store_that_is_there_is_refused_or_moved_aside_whole() {
    let mut bench = bench();
    bench.accept("stripe", stripe("old", "a.b", "{}"), &["h"]).await;
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup.db");
    backup(&bench.store, &from).await;
    bench.accept("stripe", stripe("young", "a.b", "{}"), &["h"]).await;
    let settings = bench.settings.clone();

    let error = try_restore(&settings, &from, true, &bench.clock).unwrap_err();
    let holder = format!("pid {}", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    bench.store.close().await;
    let error = try_restore(&settings, &from, false, &bench.clock).unwrap_err();
    assert!(
        matches!(error, RestoreError::Exists { .. }) && error.to_string().contains("--replace")
    );

    // A log that a crash left goes with it, and a journal: the new store is not to be written with them.
    for suffix in ["-wal", "-journal"] {
        std::fs::write(path::beside(&settings.path, suffix), "the last commits").unwrap();
    }
    let restored = try_restore(&settings, &from, true, &bench.clock).unwrap();
    let aside = restored.aside.unwrap();
    for suffix in ["-wal", "-journal"] {
        let left = path::beside(&aside, suffix);
        assert_eq!(std::fs::read(&left).unwrap(), b"the last commits", "{suffix}");
        std::fs::remove_file(left).unwrap();
    }
    bench.store = Store::open(&settings, bench.clock.clone()).unwrap();
    assert!(bench.store.admin.show(None, id("young"), None).await.unwrap().is_empty());
    assert_eq!(bench.store.admin.show(None, id("old"), None).await.unwrap().len(), 1);
    bench.store.close().await;

    // And back, as what is aside is a store that was stopped in order.
    let again = try_restore(&settings, &aside, true, &bench.clock).unwrap();
    assert!(again.aside.is_some_and(|second| second != aside));
    bench.store = Store::open(&settings, bench.clock.clone()).unwrap();
    assert_eq!(bench.store.admin.show(None, id("young"), None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_backup_that_is_not_good_leaves_the_store_as_it_was() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e", "a.b", "{}"), &["h"]).await;
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup.db");
    backup(&bench.store, &from).await;
    bench.store.close().await;
    let good = std::fs::read(&from).unwrap();
    let here = names(bench.settings.path.parent().unwrap());
    let mut bad = good.clone();
    let middle = good.len() / 2 / 4096 * 4096;
    bad[middle..middle + 4096].fill(0x55);
    for bad in [bad.as_slice(), &good[..4096], b"words"] {
        std::fs::write(&from, bad).unwrap();
        let error = try_restore(&bench.settings, &from, true, &bench.clock).unwrap_err();
        assert!(matches!(error, RestoreError::Backup(_)), "{error}");
        // The file that the operator gave, not the copy that was looked at.
        assert!(error.to_string().starts_with(&format!("{} is ", from.display())), "{error}");
        assert_eq!(names(bench.settings.path.parent().unwrap()), here);
    }
    std::fs::write(&from, &good).unwrap();
    let tight = Limits { disk_floor_bytes: u64::MAX / 2, ..limits() };
    let settings = Settings { limits: tight, ..bench.settings.clone() };
    let error = try_restore(&settings, &from, true, &bench.clock).unwrap_err();
    assert!(matches!(error, RestoreError::NoSpace { .. }), "{error}");
    assert_eq!(names(bench.settings.path.parent().unwrap()), here);
    bench.store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
    assert_eq!(bench.store.admin.show(None, id("e"), None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_killed_restore_left_is_found_under_every_name_of_the_store_or_removed() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e", "a.b", "{}"), &["h"]).await;
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup.db");
    backup(&bench.store, &from).await;
    bench.store.close().await;
    let restored = try_restore(&bench.settings, &from, true, &bench.clock).unwrap();
    // As a kill leaves it that comes before the new store has its name.
    let path = &bench.settings.path;
    std::fs::rename(path, path::beside(path, ".restored")).unwrap();
    let alias = Settings { path: dir.path().join("alias.db"), limits: limits() };
    std::os::unix::fs::symlink(path, &alias.path).unwrap();
    assert!(is_there(&alias.path));
    let store = Store::open(&alias, bench.clock.clone()).unwrap();
    assert_eq!(store.admin.id(), restored.store);
    store.close().await;

    // In the middle of giving it that name, by two steps.
    std::fs::hard_link(path, path::beside(path, ".restored")).unwrap();
    let before = names(path.parent().unwrap()).len();
    let store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
    assert_eq!(store.admin.id(), restored.store);
    store.close().await;
    assert_eq!(names(path.parent().unwrap()).len(), before - 1, "nothing went aside");

    // Before it decided it has only taken space.
    for suffix in [".restoring", ".restoring-journal"] {
        std::fs::write(path::beside(path, suffix), "half of a backup").unwrap();
    }
    bench.store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
    assert_eq!(bench.store.admin.id(), restored.store);
    let left = names(path.parent().unwrap());
    assert!(!left.iter().any(|name| name.contains(".restor")), "{left:?}");
}

/// A copy of the database's file alone, as of a file system's snapshot, in place of `hooklatch restore`. The process
/// stopped, or was killed behind a tick.
#[tokio::test]
async fn an_older_copy_that_is_put_back_by_hand_holds_everything_unfinished_once() {
    for killed in [false, true] {
        let mut bench = bench();
        bench.accept("stripe", stripe("waits", "a.b", "{}"), &["h"]).await;
        let claimed = bench.running("runs").await;
        bench.restart().await;
        let old = bench.store.admin.id();
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("copy.db");
        backup(&bench.store, &from).await;
        bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;
        bench.accept("stripe", stripe("lost", "a.b", "{}"), &["h"]).await;
        if killed {
            bench.store.jobs.tell_notices().await.unwrap();
            // What a stop would mark.
            let mark = std::fs::read(bench.beside(".mark")).unwrap();
            bench.store.close().await;
            std::fs::write(bench.beside(".mark"), mark).unwrap();
        } else {
            bench.store.close().await;
        }
        let log = bench.beside("-wal");
        assert!(std::fs::metadata(&log).map_or(0, |log| log.len()) == 0, "all is in the file");
        std::fs::copy(&from, &bench.settings.path).unwrap();
        let held = async |store: &Store| {
            let rows = store.admin.jobs(JobFilter::default()).await.unwrap().rows;
            rows.iter().filter(|row| row.reason.as_deref() == Some("restored")).count()
        };
        let store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
        assert_eq!(held(&store).await, 2, "killed: {killed}");
        assert_ne!(store.admin.id(), old, "no runner may take it for the other");
        let restores = store.admin.status(Vec::new()).await.unwrap().restores;
        assert_eq!((restores.len(), restores[0].held), (1, 2));
        let waits = Replay::Event { source: None, event: id("waits"), handler: None };
        store.admin.replay(waits, false).await.unwrap();
        store.close().await;
        let store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
        assert_eq!(held(&store).await, 1, "only once");
        bench.store = store;
    }
}

/// What a damaged mark says is not believed.
#[tokio::test]
async fn a_damaged_mark_holds_nothing_and_the_store_keeps_its_id() {
    let bench = bench();
    bench.accept("stripe", stripe("waits", "a.b", "{}"), &["h"]).await;
    let id = bench.store.admin.id();
    bench.store.close().await;
    let path = bench.beside(".mark");
    let whole = std::fs::read(&path).unwrap();
    for damage in damages(100) {
        std::fs::write(&path, damage.of(&whole)).unwrap();
        let store = Store::open(&bench.settings, bench.clock.clone()).unwrap();
        let jobs = store.admin.jobs(JobFilter::default()).await.unwrap().rows;
        let states: Vec<State> = jobs.iter().map(|job| job.state).collect();
        assert_eq!((store.admin.id(), states), (id, vec![State::Ready]), "{damage:?}");
        store.close().await;
    }
}
