//! The admin socket and the way to a stopped store, with real sockets, locks and stores.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::control::{
    CallError, Door, DoorError, FailureKind, ListenError, Receiver, Reply, Request, listen,
    socket_path,
};
use hooklatch::handler::runner_pool::{PoolSettings, RunnerPool, Runners};
use hooklatch::limits::Limits;
use hooklatch::model::{Headers, Incarnation, JobId, Name, OnRedelivery, Runner, RunnerName};
use hooklatch::provider::Scheme;
use hooklatch::runner::message::{Key, Stream};
use hooklatch::store::{Accept, EventFilter, QuarantineFilter, Settings, Store};
use hooklatch::traffic::Traffic;
use hooklatch::verify::{Request as Delivery, verify};

fn settings(dir: &Path) -> Settings {
    let limits = Limits { disk_floor_bytes: 0, control_wait_millis: 500, ..Limits::default() };
    Settings { path: dir.join("t.db"), limits }
}

fn open(settings: &Settings) -> Store {
    Store::open(settings, Clock::system()).unwrap()
}

/// A receiver whose link is not connected.
fn receiver(settings: &Settings, store: &Store) -> Receiver {
    let limits = settings.limits.clone();
    let (runners, database) = (Runners::BesideStore(None), settings.path.clone());
    let links =
        RunnerPool::new(PoolSettings { runners, database, store: store.admin.id(), limits });
    Receiver::new(links, Traffic::default(), Clock::system())
}

async fn door(settings: &Settings) -> Result<Door, DoorError> {
    Door::open(settings, Clock::system()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_store_is_reached_through_its_socket_and_a_stopped_one_under_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    assert!(matches!(door(&settings).await, Err(DoorError::NoStore(_))));
    assert!(!settings.path.exists(), "asking makes no store");

    let store = open(&settings);
    let socket = socket_path(&settings.path);
    let Err(busy) = door(&settings).await else { panic!("no socket yet") };
    assert!(matches!(busy, DoorError::Busy { .. }));
    assert!(busy.to_string().contains(&format!("pid {}", std::process::id())), "{busy}");

    let own = receiver(&settings, &store);
    let listener = listen(&socket, store.admin.clone(), own, &settings.limits).unwrap();
    let mut remote = door(&settings).await.unwrap();
    assert!(matches!(remote, Door::Remote(_)));
    let Reply::Info(info) = remote.call(Request::Info).await.unwrap() else { panic!() };
    assert_eq!(
        (info.pid, info.store, info.refused),
        (std::process::id(), store.admin.id().simple().to_string(), None)
    );

    listener.stop().await;
    assert!(!socket.exists());
    let gone = remote.call(Request::Secrets).await.unwrap_err();
    assert!(matches!(gone, CallError::Gone { .. }), "{gone}");
    store.close().await;
    drop(store);

    let mut local = door(&settings).await.unwrap();
    assert!(matches!(local, Door::Local(_)));
    assert!(matches!(local.call(Request::Secrets).await, Ok(Reply::Secrets(_))));
    assert!(matches!(door(&settings).await, Err(DoorError::Busy { .. })));
    local.close().await;
    assert!(matches!(door(&settings).await, Ok(Door::Local(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_its_reply_or_a_failure_with_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let (own, socket) = (receiver(&settings, &store), socket_path(&settings.path));
    let _listener = listen(&socket, store.admin.clone(), own, &settings.limits).unwrap();
    let mut door = door(&settings).await.unwrap();
    let events = door.call(Request::Events(EventFilter::default())).await.unwrap();
    assert!(matches!(events, Reply::Events(rows) if rows.is_empty()));
    assert!(matches!(door.call(Request::Jobs(Default::default())).await, Ok(Reply::Jobs(_))));
    let quarantined = Request::Quarantined(QuarantineFilter::default());
    assert!(matches!(door.call(quarantined).await, Ok(Reply::Quarantined(_))));
    let show = Request::Show { source: None, event: "evt_1".parse().unwrap() };
    let Err(CallError::Failed(failure)) = door.call(show).await else { panic!() };
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.message.contains("evt_1"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_is_its_owners_alone_and_replaces_a_dead_one() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let socket = socket_path(&settings.path);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let store = open(&settings);
    let own = receiver(&settings, &store);
    let listener = listen(&socket, store.admin.clone(), own, &settings.limits).unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(door(&settings).await, Ok(Door::Remote(_))));
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".s"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    listener.stop().await;

    std::fs::write(&socket, "somebody's file").unwrap();
    let own = receiver(&settings, &store);
    let refused = listen(&socket, store.admin.clone(), own.clone(), &settings.limits).unwrap_err();
    assert!(matches!(refused, ListenError::InTheWay(_)), "{refused}");
    let long = dir.path().join("x".repeat(120));
    let refused = listen(&long, store.admin.clone(), own, &settings.limits).unwrap_err();
    assert!(matches!(refused, ListenError::PathTooLong { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_clients_are_bounded_in_size_time_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.limits.control_connections_count = 2;
    let store = open(&settings);
    let socket = socket_path(&settings.path);
    let own = receiver(&settings, &store);
    let _listener = listen(&socket, store.admin.clone(), own, &settings.limits).unwrap();
    let ask = |bytes: Vec<u8>| {
        let socket = socket.clone();
        tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            String::from_utf8_lossy(answer.get(4..).unwrap_or_default()).into_owned()
        })
    };
    let huge = ask(b"\x7f\xff\xff\xff".to_vec()).await.unwrap();
    assert!(huge.contains("2147483647 bytes; 2097152 is the limit"), "{huge}");
    let unknown = ask(b"\0\0\0\x08\"unheard".to_vec()).await.unwrap();
    assert!(unknown.contains("unavailable"), "{unknown}");
    assert_eq!(ask(b"\0\0\0\x09\"cut".to_vec()).await.unwrap(), "", "nothing in time: closed");

    // Two idle connections take every place; a command still gets through when their time is up.
    let idle: Vec<_> = (0..2).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut door = door(&settings).await.unwrap();
    assert!(matches!(door.call(Request::Info).await, Ok(Reply::Info(_))));
    drop(idle);
}

/// Stores an event with a job that is claimed for `runner`, or for the receiver itself.
async fn running(store: &Store, id: &str, runner: Option<Runner>) -> JobId {
    let mut headers = Headers::new();
    headers.push("Idempotency-Key", id);
    headers.push("X-Event-Type", "thing.made");
    let (now, body) = (Clock::system().now(), "{}".into());
    let request = Delivery { method: "POST", url: None, headers: &headers, body };
    let scheme = Scheme::embedded("none").unwrap();
    let delivery = verify(&scheme, &[], request, now).unwrap();
    let (source, handler): (Name, Name) = ("shop".parse().unwrap(), "ship".parse().unwrap());
    let handlers = vec![handler.clone()];
    store
        .intake
        .accept(Accept {
            source,
            received_at: now,
            delivery,
            handlers,
            on_redelivery: OnRedelivery::Ignore,
        })
        .await
        .unwrap();
    store.jobs.claim(&handler, 1, runner).await.unwrap().jobs[0].facts.job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_runner_can_do_fails_without_one_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let boot = "0b0e2c52-7a0c-4a55-9c1c-3a3f0c6d9d11".parse().unwrap();
    let incarnation = Incarnation::from_parts(boot, 7);
    let runner = Runner { name: RunnerName::default(), incarnation };
    let command = running(&store, "e1", Some(runner)).await;
    let forward = running(&store, "e2", None).await;
    let own = receiver(&settings, &store);
    let listener =
        listen(&socket_path(&settings.path), store.admin.clone(), own, &settings.limits).unwrap();
    let mut remote = door(&settings).await.unwrap();
    let failed = async |door: &mut Door, request| match door.call(request).await {
        Err(CallError::Failed(failure)) => (failure.kind, failure.message),
        other => panic!("{other:?}"),
    };
    let peek = || Request::Peek { key: Key { job: command, attempt: 1 }, stream: Stream::Stdout };

    let (kind, said) = failed(&mut remote, Request::Cancel(command)).await;
    assert_eq!((kind, said.contains("runner")), (FailureKind::Unavailable, true), "{said}");
    let (kind, said) = failed(&mut remote, peek()).await;
    assert_eq!((kind, said.contains("runner")), (FailureKind::Unavailable, true), "{said}");
    let (kind, said) = failed(&mut remote, Request::Cancel(forward)).await;
    assert_eq!((kind, said.contains("forward")), (FailureKind::WrongState, true), "{said}");
    let nobody: JobId = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b".parse().unwrap();
    assert_eq!(failed(&mut remote, Request::Cancel(nobody)).await.0, FailureKind::NotFound);
    assert_eq!(failed(&mut remote, Request::Job(nobody)).await.0, FailureKind::NotFound);
    let Ok(Reply::Job(row)) = remote.call(Request::Job(command)).await else { panic!() };
    assert_eq!((row.job, row.attempt, row.event_id.as_str()), (command, 1, "e1"));

    listener.stop().await;
    store.close().await;
    drop(store);
    let mut local = door(&settings).await.unwrap();
    for request in [Request::Cancel(command), peek()] {
        let (kind, said) = failed(&mut local, request).await;
        assert_eq!(
            (kind, said.contains("no receiver")),
            (FailureKind::Unavailable, true),
            "{said}"
        );
    }
    local.close().await;
}
