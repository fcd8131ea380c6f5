//! A SQLite store that moves to PostgreSQL: every row arrives, and a move that is cut off at any point leaves one side
//! that can be used and has everything.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use hooklatch::clock::Clock;
use hooklatch::store::postgres::{Connection, Doubt, Node, Refusal, Registrar};
use hooklatch::store::{HeldStore, MoveError, MoveResult, OpenError, Settings, Store};

use super::cluster::{CREATED, Cluster, accept, stripe};
use super::filled::{compare, fill, settings};
use super::proxy::{Act, Proxy, Side};
use super::server::{PASSWORD, ROLE};
use super::site::{node, target};

const ADDRESS: &str = "postgresql://app@127.0.0.1/app";

async fn move_to(settings: &Settings, port: u16, node: &Node) -> Result<MoveResult, MoveError> {
    let held = HeldStore::take(settings, Clock::system())?;
    held.move_to(&target(port, false), ADDRESS, node, &mut |_, _| ()).await
}

/// How the file answers who wants to use it.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Open,
    Moving,
    Moved,
}

async fn state(settings: &Settings) -> FileState {
    state_at(settings, ADDRESS).await
}

async fn state_at(settings: &Settings, address: &str) -> FileState {
    match Store::open(settings, Clock::system()) {
        Ok(store) => {
            store.close().await;
            FileState::Open
        }
        Err(OpenError::Moving { .. }) => FileState::Moving,
        Err(OpenError::Moved { to, .. }) if to == address => FileState::Moved,
        Err(error) => panic!("{error}"),
    }
}

/// A filled store, and a folder for copies of it.
struct Filled {
    folder: tempfile::TempDir,
    original: Settings,
}

impl Filled {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let original = settings(folder.path());
        fill(&original).await;
        Filled { folder, original }
    }

    /// A copy of the store.
    fn copy(&self, name: &str) -> Settings {
        let copy = settings(&self.folder.path().join(name));
        let _of_the_last = fs::remove_dir_all(copy.path.parent().unwrap());
        fs::create_dir(copy.path.parent().unwrap()).unwrap();
        fs::copy(&self.original.path, &copy.path).unwrap();
        copy
    }
}

impl Cluster {
    /// An empty database, once no backend of the product is left.
    async fn empty(&self) {
        let query = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
            WHERE usename = 'app' AND datname = 'app' AND application_name LIKE 'hooklatch%')";
        self.server.wait_for(query).await;
        self.run("DROP SCHEMA IF EXISTS hooklatch CASCADE").await;
    }

    /// Whether a move is committed, once no backend is left that could commit it.
    async fn has_store(&self) -> bool {
        let query = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
            WHERE usename = 'app' AND datname = 'app' AND application_name LIKE 'hooklatch%')";
        self.server.wait_for(query).await;
        let made = self.get("SELECT to_regclass('hooklatch.event') IS NOT NULL").await;
        made && self.count("event").await > 0
    }
}

#[tokio::test]
async fn every_row_arrives_with_its_numbers_and_the_node_judges_what_runs() {
    let filled = Filled::new().await;
    let settings = &filled.original;
    let cluster = Cluster::new(&[]).await;
    let own = node("a");
    let moved = move_to(settings, cluster.server.port, &own).await.unwrap();
    println!("{:?}", moved.rows);
    compare(&settings.path, &cluster.admin().await).await;

    assert_eq!(state(settings).await, FileState::Moved);
    let again = move_to(settings, cluster.server.port, &own).await.unwrap_err();
    assert!(matches!(again, MoveError::Store(OpenError::Moved { .. })), "{again}");

    let connection = Connection::open(&target(cluster.server.port, false)).await.unwrap();
    let (_, registered) = Registrar::new(own).register(connection).await.unwrap();
    let running = registered.running.iter().map(|own| own.running.handler.to_string());
    let mut running: Vec<_> = running.collect();
    running.sort();
    assert_eq!(running, ["block", "rated"]);
    assert!(registered.running.iter().any(|own| own.running.runner.is_some()));
    assert!(registered.session.count > 5, "a runner knows epoch 5: {:?}", registered.session);
    let writer = cluster.node("b").await;
    assert_eq!(accept(&writer, stripe("new", "{}")).await, Ok(CREATED));
    let row: i64 = cluster.get("SELECT row FROM event WHERE event_id = 'new'").await;
    assert_eq!(row, 5001);
}

#[tokio::test]
async fn a_move_cut_at_any_message_leaves_one_usable_side_and_is_finished_by_the_next() {
    let filled = Filled::new().await;
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let own = node("a");
    cluster.empty().await;
    proxy.watch();
    move_to(&filled.copy("whole"), proxy.port, &own).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for side in [Side::Client, Side::Server] {
        let messages = proxy.passed(side).len();
        println!("{messages} messages of {side:?}");
        let last = messages.saturating_sub(12);
        for number in (1..last).step_by(61).chain(last..=messages + 4) {
            let act = if number % 2 == 0 { Act::Break } else { Act::Cut };
            cluster.empty().await;
            let settings = filled.copy("cut");
            proxy.arm(side, number, act);
            let cut = move_to(&settings, proxy.port, &own).await;
            let (committed, file) = (cluster.has_store().await, state(&settings).await);
            println!("{side:?} {number}: {committed} {file:?} {:?}", cut.as_ref().err());
            match (&cut, committed) {
                (Ok(_), true) => assert_eq!(file, FileState::Moved),
                (Err(MoveError::Unknown(_)), _) => assert_eq!(file, FileState::Moving),
                (Err(_), false) => assert_eq!(file, FileState::Open),
                _ => panic!("{side:?} {number}: {cut:?}"),
            }
            seen.insert((committed, format!("{file:?}")));
            if cut.is_err() {
                move_to(&settings, cluster.server.port, &own).await.unwrap();
                assert_eq!(state(&settings).await, FileState::Moved);
                compare(&settings.path, &cluster.admin().await).await;
            }
        }
    }
    let met = seen.iter().map(|(committed, file)| (*committed, file.as_str()));
    assert_eq!(
        met.collect::<Vec<_>>(),
        [(false, "Moving"), (false, "Open"), (true, "Moved"), (true, "Moving")]
    );
}

const HELD: &str = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";

#[tokio::test]
async fn a_commit_that_is_still_on_its_way_is_waited_for() {
    let filled = Filled::new().await;
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let own = node("a");
    proxy.watch();
    move_to(&filled.copy("whole"), proxy.port, &own).await.unwrap();
    let sent = proxy.passed(Side::Client);
    let commit = 1 + sent.iter().rposition(|name| name == "Query COMMIT").unwrap();
    cluster.empty().await;
    drop(Connection::open(&target(cluster.server.port, false)).await.unwrap());
    let settings = filled.copy("held");
    proxy.arm(Side::Client, commit, Act::Hold);
    // Dropped as by a kill.
    tokio::select! {
        _ = move_to(&settings, proxy.port, &own) => panic!("not held"),
        () = proxy.holds() => {}
    }
    match move_to(&settings, cluster.server.port, &own).await {
        Err(early) => {
            assert!(matches!(early, MoveError::NotCommitted(Refusal::LockTimeout(_))), "{early}");
            assert_eq!(state(&settings).await, FileState::Moving);
        }
        // On a slow machine the server has ended the idle transaction meanwhile.
        Ok(_) => {
            let held: i64 = cluster.get(HELD).await;
            assert_eq!((held, state(&settings).await), (0, FileState::Moved));
            return;
        }
    }
    proxy.release();
    // The same may have come now.
    let committed = cluster.has_store().await;
    let finished = move_to(&settings, cluster.server.port, &own).await.unwrap();
    assert_eq!(finished.rows.is_empty(), committed, "{finished:?}");
    assert_eq!(state(&settings).await, FileState::Moved);
    compare(&settings.path, &cluster.admin().await).await;
}

#[tokio::test]
async fn a_move_whose_wait_for_the_standby_was_cancelled_is_not_done() {
    let filled = Filled::new().await;
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let own = node("a");
    proxy.watch();
    move_to(&filled.copy("whole"), proxy.port, &own).await.unwrap();
    let sent = proxy.passed(Side::Client);
    let commit = 1 + sent.iter().rposition(|name| name == "Query COMMIT").unwrap();
    cluster.empty().await;
    let settings = filled.copy("cancelled");
    proxy.arm(Side::Client, commit, Act::Hold);
    let cancel = async {
        proxy.holds().await;
        cluster.server.set("synchronous_standby_names", "absent").await;
        proxy.release();
        let pid = cluster.server.waiting().await;
        let cancel = "SELECT pg_cancel_backend($1)";
        cluster.server.admin().await.query_one(cancel, &[&pid]).await.unwrap();
    };
    let (moved, ()) = tokio::join!(move_to(&settings, proxy.port, &own), cancel);
    assert!(matches!(moved, Err(MoveError::Unknown(Doubt::Warned(_)))), "{moved:?}");
    assert!(cluster.has_store().await);
    assert_eq!(state(&settings).await, FileState::Moving);
    cluster.server.set("synchronous_standby_names", "").await;
    move_to(&settings, cluster.server.port, &own).await.unwrap();
    assert_eq!(state(&settings).await, FileState::Moved);
}

#[tokio::test]
async fn what_cannot_be_moved_stays_usable_and_says_why() {
    let filled = Filled::new().await;
    let (cluster, other) = (Cluster::new(&[]).await, Cluster::new(&[]).await);
    let (port, own) = (cluster.server.port, node("a"));
    let settings = filled.copy("refused");
    let receiver = Store::open(&settings, Clock::system()).unwrap();
    let refused = move_to(&settings, port, &own).await.unwrap_err();
    assert!(matches!(refused, MoveError::Store(OpenError::Locked { .. })), "{refused}");
    receiver.close().await;

    // The database stores something else than it gets.
    cluster
        .run(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN NEW.detail = 'x'; RETURN NEW; END $$;
             CREATE TRIGGER spoil BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION spoil()",
        )
        .await;
    let refused = move_to(&settings, port, &own).await.unwrap_err();
    assert!(matches!(refused, MoveError::Differs("job")), "{refused}");
    assert!(!cluster.has_store().await);
    cluster.run("DROP TRIGGER spoil ON job").await;
    assert_eq!(state(&settings).await, FileState::Open);

    let _writer = other.node("b").await;
    let refused = move_to(&settings, other.server.port, &own).await.unwrap_err();
    assert!(matches!(&refused, MoveError::NotEmpty(table) if table == "node"), "{refused}");
    assert_eq!(state(&settings).await, FileState::Open);

    // Marked for one database, and another one is named.
    let old = filled.copy("old");
    let proxy = Proxy::start(&cluster.server).await;
    proxy.watch();
    move_to(&settings, proxy.port, &own).await.unwrap();
    let refused = move_to(&old, port, &own).await.unwrap_err();
    assert!(matches!(refused, MoveError::Old), "{refused}");
    let messages = proxy.passed(Side::Client).len();
    cluster.empty().await;
    proxy.arm(Side::Client, messages, Act::Break);
    let cut = move_to(&old, proxy.port, &own).await.unwrap_err();
    assert!(matches!(cut, MoveError::Unknown(_)), "{cut}");
    let refused = move_to(&old, other.server.port, &own).await.unwrap_err();
    assert!(matches!(refused, MoveError::OtherDatabase { .. }), "{refused}");
    assert_eq!(state(&old).await, FileState::Moving);
}

#[tokio::test]
async fn a_killed_move_is_finished_or_taken_back_by_the_same_command() {
    let filled = Filled::new().await;
    let cluster = Cluster::new(&[]).await;
    let port = cluster.server.port;
    let address = format!("postgresql://{ROLE}@127.0.0.1:{port}/app?sslmode=disable");
    for (point, committed, file, again) in [
        ("move.copied", false, FileState::Open, 0),
        ("move.marked", false, FileState::Moving, 0),
        ("move.committed", true, FileState::Moving, 0),
        ("move.finished", true, FileState::Moved, 69),
    ] {
        cluster.empty().await;
        let settings = filled.copy("killed");
        let folder = settings.path.parent().unwrap().to_owned();
        let config = folder.join("hooklatch.toml");
        fs::write(&config, "[storage]\npath = \"hooklatch.db\"\n").unwrap();
        fs::write(folder.join("pg"), PASSWORD).unwrap();
        let password = format!("file:{}", folder.join("pg").display());
        let run = |armed: String| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
            command.args(["store", "move", "--json", "--to", &address]);
            command.args(["--password-from", &password, "--config"]).arg(&config);
            if !armed.is_empty() {
                command.env("HOOKLATCH_CRASH", armed);
            }
            let output = command.output().unwrap();
            let text = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
            assert!(!text.concat().contains(PASSWORD));
            (output.status, text.concat())
        };
        let (killed, said) = run(format!("{point} 1 {}", folder.join("token").display()));
        assert_eq!(killed.signal(), Some(9), "{point}: {said}");
        assert_eq!(cluster.has_store().await, committed, "{point}");
        assert_eq!(state_at(&settings, &address).await, file, "{point}");
        let (done, said) = run(String::new());
        assert_eq!(done.code(), Some(again), "{point}: {said}");
        assert_eq!(state_at(&settings, &address).await, FileState::Moved, "{point}");
        compare(&settings.path, &cluster.admin().await).await;
    }
}

/// Adds events, each with a payload of 1 KB, a job and an attempt.
fn enlarge(store: &Path, events: usize) {
    let conn = rusqlite::Connection::open(store).unwrap();
    conn.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events})
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'big', 'e' || i, 'a.b', randomblob(32), 0, 1, 1000 FROM n;
         INSERT INTO payload (event, headers, body, sum)
             SELECT row, randomblob(200), randomblob(1000), 0 FROM event WHERE source = 'big';
         INSERT INTO job (id, event, handler, state, attempt, counted, since, created_at, settled_at)
             SELECT randomblob(16), row, 'h', 'succeeded', 1, 1, 1, 1, 2 FROM event WHERE source = 'big';
         INSERT INTO attempt (job, number, started_at, finished_at, outcome, stdout_head)
             SELECT row, 1, 1, 2, 'succeeded', randomblob(100) FROM job WHERE handler = 'h' AND settled_at = 2;
         COMMIT;"
    ))
    .unwrap();
}

#[tokio::test]
async fn a_hundred_thousand_events_move() {
    let filled = Filled::new().await;
    enlarge(&filled.original.path, 100_000);
    let cluster = Cluster::new(&[]).await;
    let begun = Instant::now();
    let moved = move_to(&filled.original, cluster.server.port, &node("a")).await.unwrap();
    let took = begun.elapsed();
    let rows: u64 = moved.rows.iter().map(|(_, rows)| rows).sum();
    println!("{rows} rows of 100,000 events in {took:?}: {:.0} events/s", 1e5 / took.as_secs_f64());
    assert!(rows > 400_000);
}
