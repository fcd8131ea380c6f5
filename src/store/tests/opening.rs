//! Files that are empty, old, newer, foreign, garbage, locked, or nowhere.
use super::*;
use crate::store::sqlite::engine::connection;
use crate::store::sqlite::engine::schema::{APPLICATION_ID, known};

fn settings(path: PathBuf) -> Settings {
    Settings { path, limits: limits() }
}

fn open(path: &std::path::Path) -> Result<Store, OpenError> {
    Store::open(&settings(path.to_owned()), Clock::manual(START))
}

fn refusal(path: &std::path::Path) -> OpenError {
    match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[test]
fn a_lock_that_a_dead_holder_s_child_still_has_is_waited_for() {
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let name = dir.path().join("t.db.lock");
    std::fs::write(&name, format!("hooklatch, pid {}, since then\n", dead.id())).unwrap();
    let file = std::fs::File::open(&name).unwrap();
    file.lock().unwrap();
    // Its standard input is the locked file: the lock is the child's until it ends.
    let mut child = Command::new("sleep").arg("0.3").stdin(Stdio::from(file)).spawn().unwrap();
    let opened = open(&path);
    child.wait().unwrap();
    assert!(opened.is_ok(), "{:?}", opened.err());
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_the_store() {
    let mut bench = bench();
    let error = refusal(&bench.settings.path);
    let OpenError::Locked { holder, .. } = &error else { panic!("{error}") };
    let pid = std::process::id();
    assert_eq!(*holder, format!("hooklatch, pid {pid}, since {START}"));
    assert!(error.to_string().contains("stop that one first"), "{error}");
    // The loser did no harm, and the lock goes with its holder.
    bench.accept("stripe", stripe("e", "a", "{}"), &[]).await;
    bench.restart().await;
}

#[tokio::test]
async fn an_epoch_is_given_once() {
    let mut bench = bench();
    let first = bench.store.jobs.raise_epoch().await.unwrap();
    assert!(bench.store.jobs.raise_epoch().await.unwrap() > first);
    let last = bench.store.jobs.raise_epoch().await.unwrap();
    bench.restart().await;
    assert!(bench.store.jobs.raise_epoch().await.unwrap() > last);
}

#[tokio::test]
async fn an_empty_file_and_one_of_schema_0_become_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.db");
    std::fs::write(&empty, b"").unwrap();
    open(&empty).unwrap().close().await;

    let old = dir.path().join("old.db");
    let conn = Connection::open(&old).unwrap();
    conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    drop(conn);
    let store = open(&old).unwrap();
    let id = store.admin.id();
    store.close().await;
    let store = open(&old).unwrap();
    assert_eq!(store.admin.id(), id, "the identity stays");
    store.close().await;
}

#[tokio::test]
async fn a_newer_store_is_refused_by_name_and_version() {
    let mut bench = bench();
    bench.store.close().await;
    let conn = Connection::open(&bench.settings.path).unwrap();
    conn.execute("UPDATE meta SET written_by = 'hooklatch 9.1.0'", []).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    conn.close().unwrap();
    let bytes = std::fs::read(&bench.settings.path).unwrap();
    let expected =
        format!("a newer hooklatch (hooklatch 9.1.0, schema 99; this one knows {})", known());
    let text = refusal(&bench.settings.path).to_string();
    assert!(text.contains(&expected), "{text}");
    assert_eq!(std::fs::read(&bench.settings.path).unwrap(), bytes, "not a byte was changed");
    // Its own program opens it again.
    let conn = Connection::open(&bench.settings.path).unwrap();
    conn.pragma_update(None, "user_version", known()).unwrap();
    drop(conn);
    bench.restart().await;
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("garbage");
    std::fs::write(&garbage, "not a database, though long enough to have a header\n".repeat(99))
        .unwrap();
    assert!(matches!(refusal(&garbage), OpenError::NotADatabase { .. }));

    let short = dir.path().join("short");
    std::fs::write(&short, b"hello").unwrap();
    assert!(matches!(refusal(&short), OpenError::NotADatabase { .. }));

    let foreign = dir.path().join("foreign.db");
    let conn = Connection::open(&foreign).unwrap();
    conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(conn);
    let before = std::fs::read(&foreign).unwrap();
    assert!(matches!(refusal(&foreign), OpenError::Foreign { .. }));
    assert_eq!(std::fs::read(&foreign).unwrap(), before);

    assert!(matches!(refusal(dir.path()), OpenError::IsDirectory { .. }));
    let nowhere = dir.path().join("no/such/hooklatch.db");
    assert!(matches!(refusal(&nowhere), OpenError::DirectoryMissing { .. }));
}

#[tokio::test]
async fn a_damaged_store_is_refused() {
    let bench = bench();
    for n in 0..200 {
        bench.accept("stripe", stripe(&format!("e{n}"), "a", "{}"), &["h"]).await;
    }
    bench.store.close().await;
    let path = &bench.settings.path;
    let mut bytes = std::fs::read(path).unwrap();
    // The header survives, the root of the schema does not.
    bytes[100..4096].fill(0xFF);
    std::fs::write(path, bytes).unwrap();
    let error = refusal(path);
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_read_only_file_system_is_refused_by_that_name() {
    let Some(mount) = Mount::tmpfs("size=8m") else { return };
    let path = mount.path().join("hooklatch.db");
    open(&path).unwrap().close().await;
    mount.remount("ro");
    let error = refusal(&path);
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    mount.remount("rw");
    open(&path).unwrap().close().await;
}

/// A file system of the test's own, where the user may mount one.
pub(super) struct Mount(TempDir);

impl Mount {
    pub(super) fn tmpfs(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"], dir.path()) {
            return Some(Mount(dir));
        }
        needs::missing("mounts", "run as root with CAP_SYS_ADMIN");
        None
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    fn remount(&self, mode: &str) {
        assert!(run("mount", &["-o", &format!("remount,{mode}")], self.path()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &["-l"], self.0.path());
    }
}

fn run(program: &str, arguments: &[&str], path: &std::path::Path) -> bool {
    let status = std::process::Command::new(program)
        .args(arguments)
        .arg(path)
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_store_under_another_name_is_the_same_store() {
    let bench = bench();
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    let alias = bench.beside(".alias");
    std::os::unix::fs::symlink(&bench.settings.path, &alias).unwrap();
    let error = refusal(&alias);
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");

    // What a kill leaves, opened by its other name: the log is written again all the same (S2).
    // Copied by another process: closing a descriptor here would drop SQLite's locks.
    let dir = tempfile::tempdir().unwrap();
    let (left, log) = (dir.path().join("left.db"), dir.path().join("left.db-wal"));
    for (from, to) in [("", &left), ("-wal", &log)] {
        let copied = std::process::Command::new("cp").arg(bench.beside(from)).arg(to).status();
        assert!(copied.unwrap().success());
    }
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1);
    std::fs::File::options().write(true).open(&log).unwrap().set_modified(old).unwrap();
    let alias = dir.path().join("alias.db");
    std::os::unix::fs::symlink(&left, &alias).unwrap();
    let store = open(&alias).unwrap();
    assert!(std::fs::metadata(&log).unwrap().modified().unwrap() > old, "not written again");
    assert_eq!(store.admin.events(EventFilter::default()).await.unwrap().rows.len(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_child_that_a_killed_holder_was_about_to_start_is_waited_for() {
    // Between fork and exec it has every descriptor of its parent, and so the lock. A moment later it
    // is a command like any other, which the next receiver must find by its environment.
    let mut bench = bench();
    bench.store.close().await;
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let note = format!("hooklatch, pid {}, since {START}\n", killed.id());
    std::fs::write(bench.beside(".lock"), note).unwrap();
    let mut child = std::process::Command::new("flock")
        .arg(bench.beside(".lock"))
        .args(["sh", "-c", "echo locked; exec sleep 0.5"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    bench.store = open(&bench.settings.path).unwrap();
    child.wait().unwrap();
    assert!(matches!(refusal(&bench.settings.path), OpenError::Locked { .. }), "by the living");
}

#[test]
fn sqlite_s_build_options_are_read() {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    let built_with = |options: &[&'static str]| connection::built_with(&conn, options).unwrap();
    assert_eq!(built_with(&["NO_SYNC", "THREADSAFE=1"]), Some("THREADSAFE=1"));
    assert_eq!(built_with(&["NO_SYNC", "DISABLE_DIRSYNC"]), None);
}
