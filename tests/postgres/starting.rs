//! How a receiver's store starts and stops while something in the database does not answer.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use hooklatch::clock::Clock;
use hooklatch::dispatcher::{Dispatcher, Worker};
use hooklatch::handler::runner_pool::{PoolSettings, RunnerPool, Runners};
use hooklatch::handler::{ForwardSettings, Handler, Target};
use hooklatch::limits::Limits;
use hooklatch::model::{OnUnknown, State};
use hooklatch::store::postgres::ClusterNode;
use hooklatch::store::{OpenError, Refused, Store};
use hooklatch::traffic::Traffic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::cluster::{CREATED, Cluster, duplicate, new, stripe};
use super::filled::settings;
use super::server::PATIENCE;
use super::site::target;
use super::working::{policy, published};

const NAMES: &str = "synchronous_standby_names";

/// The process of a node, with its state folder.
async fn open(cluster: &Cluster, name: &str, folder: &Path) -> Result<Store, OpenError> {
    let target = target(cluster.server.port, false);
    let machine = "machine one".to_owned();
    let node = ClusterNode { target, name: name.parse().unwrap(), machine };
    let published = vec![published(policy(OnUnknown::Hold))];
    let store = Store::connect(&settings(folder), node, published, Clock::system()).await?;
    // The writer's task has begun.
    while store.intake.ready().is_err() {
        tokio::task::yield_now().await;
    }
    Ok(store)
}

/// Its manager must not start it again: it would take the row back.
#[tokio::test]
async fn a_process_that_is_replaced_stays_up_and_registers_no_more() {
    let cluster = Cluster::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&cluster, "a", folder.path()).await.unwrap();
    cluster.run("UPDATE node SET session = gen_random_uuid(), count = count + 1").await;
    let session = "SELECT session FROM node";
    let other: uuid::Uuid = cluster.get(session).await;
    let names_the_other = |refused: &Refused| {
        let text = refused.to_string();
        text.contains(&format!("another process has registered as node 'a' (session {other})"))
    };
    for _ in 0..2 {
        let refused = store.intake.accept(new(stripe("e", "{}"))).await.unwrap_err();
        assert!(names_the_other(&refused), "{refused}");
        let unready = store.intake.ready().unwrap_err();
        assert!(names_the_other(&unready), "{unready}");
        assert!(store.admin.writer_answers().await);
    }
    timeout(PATIENCE, store.close()).await.unwrap();
    assert_eq!(cluster.get::<uuid::Uuid>(session).await, other);
}

#[tokio::test]
async fn a_stop_ends_while_a_commit_waits_for_an_absent_standby() {
    let cluster = Cluster::new(&[]).await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let a = open(&cluster, "a", folders[0].path()).await.unwrap();
    let b = open(&cluster, "b", folders[1].path()).await.unwrap();
    cluster.server.set(NAMES, "absent").await;
    let accepting = [(&a, "of-a"), (&b, "of-b")].map(|(store, id)| {
        let intake = store.intake.clone();
        tokio::spawn(async move { intake.accept(new(stripe(id, "{}"))).await })
    });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' HAVING count(*) = 2";
    cluster.server.wait_for(waits).await;

    // Of two stops that begin at once, the one with a second signal ends while the other still waits. Two that end at the
    // same limit have both ended by the time of the query.
    let mut closing = pin!(a.close());
    let stopping = async {
        timeout(PATIENCE, b.stop(std::future::ready(()))).await.unwrap();
        cluster.count("node").await
    };
    tokio::select! {
        biased;
        () = &mut closing => panic!("the second signal is not obeyed"),
        _nodes = stopping => {}
    }
    timeout(PATIENCE, closing).await.unwrap();
    for accepting in accepting {
        let refused = accepting.await.unwrap();
        assert!(matches!(refused, Err(Refused::Unconfirmed(_))), "{refused:?}");
    }

    // The registration waits for the lock of the dropped transaction.
    cluster.server.set(NAMES, "").await;
    let a = open(&cluster, "a", folders[0].path()).await.unwrap();
    let again = a.intake.accept(new(stripe("of-a", "{}"))).await;
    assert_eq!(again, Ok(duplicate(State::Ready)));
    a.close().await;
}

/// They keep it locked for longer than one transaction waits for a lock.
#[tokio::test]
async fn a_start_waits_for_the_transactions_that_keep_its_row_locked() {
    let cluster = Cluster::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    open(&cluster, "a", folder.path()).await.unwrap().close().await;
    let gate = cluster.hold().await;
    let blocked = "SELECT pid FROM pg_stat_activity
        WHERE usename = 'app' AND wait_event_type = 'Lock' AND query NOT LIKE '%seen_at%'";
    let holding = async {
        let first: i32 = cluster.server.wait_for(blocked).await.get(0);
        cluster.server.wait_for(&format!("{blocked} AND pid <> {first}")).await;
        drop(gate);
    };
    let (store, ()) = tokio::join!(open(&cluster, "a", folder.path()), holding);
    let store = store.unwrap();
    assert_eq!(store.intake.accept(new(stripe("e", "{}"))).await, Ok(CREATED));
    store.close().await;
}

/// The handler forwards to the listener.
fn dispatch(store: &Store, folder: &Path, listener: &TcpListener, limits: Limits) -> Dispatcher {
    let address = listener.local_addr().unwrap();
    let forward = Handler::Forward(ForwardSettings {
        target: Target::parse(&format!("http://{address}/")).unwrap(),
        resigners: Arc::default(),
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        answer_bytes: 0,
        whole_answer_bytes: None,
        request: None,
    });
    let worker = Worker {
        name: "h".parse().unwrap(),
        handler: forward,
        policy: policy(OnUnknown::Hold),
        concurrency: 1,
        cluster_concurrency: None,
        runs: true,
        rate: None,
    };
    let pool = RunnerPool::new(PoolSettings {
        runners: Runners::BesideStore(None),
        database: folder.join("hooklatch.db"),
        store: store.admin.id(),
    });
    let (jobs, traffic) = (store.jobs.clone(), Traffic::default());
    Dispatcher::start(jobs, vec![worker], pool, &traffic, limits, Clock::system())
}

/// Only this process knows how it has ended.
#[tokio::test]
async fn a_stop_waits_for_the_end_of_a_forward_that_meets_a_locked_row() {
    let cluster = Cluster::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&cluster, "a", folder.path()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dispatcher = dispatch(&store, folder.path(), &listener, Limits::default());
    store.intake.accept(new(stripe("e", "{}"))).await.unwrap();
    let (mut forwarded, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut head = [0; 16];
    forwarded.read_exact(&mut head).await.unwrap();
    let person = cluster.admin().await;
    person.batch_execute("BEGIN; SELECT FROM job FOR UPDATE").await.unwrap();
    forwarded.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    // The second try alone fails, and the end comes back to the dispatcher.
    let tries = async {
        let blocked = "SELECT xact_start::text FROM pg_stat_activity
            WHERE usename = 'app' AND wait_event_type = 'Lock'";
        let mut last = String::from("-infinity");
        for _ in 0..4 {
            let later = format!("{blocked} AND xact_start > '{last}'");
            last = cluster.server.wait_for(&later).await.get(0);
        }
        drop(person);
    };
    let stopping = dispatcher.stop(PATIENCE, std::future::pending());
    timeout(2 * PATIENCE, async { tokio::join!(tries, stopping) }).await.unwrap();
    store.close().await;
    assert_eq!(cluster.count("job WHERE state = 'succeeded'").await, 1);
}

/// What is accepted waits for it. A tick comes later than the test has patience.
#[tokio::test]
async fn a_recovery_that_failed_is_tried_again_once_the_database_is_back() {
    let mut cluster = Cluster::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&cluster, "a", folder.path()).await.unwrap();
    store.intake.accept(new(stripe("e", "{}"))).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    cluster.server.crash();
    let limits = Limits { tick_millis: 600_000, ..Limits::default() };
    let dispatcher = dispatch(&store, folder.path(), &listener, limits);
    // Recovery asks over the same connection, one after the other: before the second of these it has failed.
    for _ in 0..2 {
        store.jobs.hold_orphans(Vec::new()).await.unwrap_err();
    }
    cluster.server.launch();
    let (mut forwarded, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut head = [0; 16];
    forwarded.read_exact(&mut head).await.unwrap();
    forwarded.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let stopping = dispatcher.stop(PATIENCE, std::future::pending());
    timeout(2 * PATIENCE, stopping).await.unwrap();
    store.close().await;
    assert_eq!(cluster.count("job WHERE state = 'succeeded'").await, 1);
}
