//! The admin API and the way to a stopped store, with real sockets, locks and stores.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use hooklatch::admin::{
    AcceptQuarantine, CallError, CancelJob, Client, ConnectError, DropJob, Effect, FailureKind,
    FollowEvents, FollowedEvents, GetBody, GetChanges, GetInfo, GetStatus, ListHandlers,
    ListSecrets, ListenError, Listener, PauseHandler, ROUTES, ReadOutput, ReceiverState, ShowEvent,
    ShowJob, StoreClient, listen, reading_socket_path, socket_path,
};
use hooklatch::clock::Clock;
use hooklatch::handler::runner_pool::{PoolSettings, RunnerPool, Runners};
use hooklatch::limits::{self, Limits};
use hooklatch::model::{
    Headers, Incarnation, JobId, Name, OnRedelivery, Runner, RunnerName, State, Via,
};
use hooklatch::provider::Scheme;
use hooklatch::runner::message::Stream;
use hooklatch::store::{
    Accept, AuditFilter, By, EventFilter, FailedDelivery, JobFilter, NewJob, QuarantineFilter,
    Settings, Store,
};
use hooklatch::traffic::Traffic;
use hooklatch::verify::{Request as Delivery, verify};

fn settings(dir: &Path) -> Settings {
    let limits = Limits { disk_floor_bytes: 0, ..Limits::default() };
    Settings { path: dir.join("t.db"), limits }
}

fn open(settings: &Settings) -> Store {
    Store::open(settings, Clock::system()).unwrap()
}

/// A receiver whose link is not connected.
fn receiver(settings: &Settings, store: &Store) -> ReceiverState {
    let (runners, database) = (Runners::BesideStore(None), settings.path.clone());
    let links = RunnerPool::new(PoolSettings { runners, database, store: store.admin.id() });
    ReceiverState::new(links, Traffic::default(), Clock::system()).0
}

fn serve(settings: &Settings, store: &Store) -> Listener {
    listen(&settings.path, store.admin.clone(), receiver(settings, store)).unwrap()
}

async fn client(settings: &Settings) -> Result<StoreClient, ConnectError> {
    StoreClient::open(settings, None, Clock::system()).await
}

/// Sends bytes and reads the answer to its end, which the request asks for or the server decides.
async fn send(socket: PathBuf, bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    let sending = tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may answer before it has read everything.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    });
    sending.await.unwrap()
}

/// Sends a request; returns the status and the JSON of the answer.
async fn ask(socket: &Path, line: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answer = send(socket.to_owned(), request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status >= 400 {
        assert!(head.contains("application/problem+json"), "{head}");
    }
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
}

/// Sends a request that must be answered with a problem; returns the status, and the problem's `kind` and `detail`.
async fn problem(socket: &Path, line: &str, body: &str) -> (u16, String, String) {
    let (status, problem) = ask(socket, line, body).await;
    assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &status.into()));
    let text = |key: &str| problem[key].as_str().unwrap().to_owned();
    assert!(!text("title").is_empty());
    (status, text("kind"), text("detail"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_store_is_reached_through_its_socket_and_a_stopped_one_under_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    assert!(matches!(client(&settings).await, Err(ConnectError::NoStore(_))));
    assert!(!settings.path.exists(), "asking makes no store");

    let store = open(&settings);
    let Err(busy) = client(&settings).await else { panic!("no socket yet") };
    assert!(matches!(busy, ConnectError::Busy { .. }));
    assert!(busy.to_string().contains(&format!("pid {}", std::process::id())), "{busy}");

    let listener = serve(&settings, &store);
    let remote = client(&settings).await.unwrap();
    assert!(matches!(remote, StoreClient::Remote(_)));
    let info = remote.call(GetInfo {}).await.unwrap();
    assert_eq!(
        (info.pid, info.store, info.refused),
        (std::process::id(), store.admin.id().simple().to_string(), None)
    );

    listener.stop().await;
    assert!(!socket_path(&settings.path).exists() && !reading_socket_path(&settings.path).exists());
    let gone = remote.call(ListSecrets {}).await.unwrap_err();
    assert!(matches!(gone, CallError::Unreached { .. }), "{gone}");
    store.close().await;
    drop(store);

    let local = client(&settings).await.unwrap();
    assert!(matches!(local, StoreClient::Local(..)));
    assert!(local.call(ListSecrets {}).await.is_ok());
    assert!(matches!(client(&settings).await, Err(ConnectError::Busy { .. })));
    local.close().await;
    assert!(matches!(client(&settings).await, Ok(StoreClient::Local(..))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_replies_cross_the_socket_whole() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let client = client(&settings).await.unwrap();
    // Every character that a path or a query gives a meaning.
    let id = "a/b?c=d&e+f%2Fg#h;..\\\"'{}";
    let job = running(&store, id, None).await;
    let show = ShowEvent {
        event: id.parse().unwrap(),
        source: Some("shop".parse().unwrap()),
        variant: None,
    };
    let shown = client.call(show).await.unwrap().events;
    assert_eq!((shown.len(), shown[0].event.event_id.as_str()), (1, id));
    let filter = JobFilter {
        state: Some(State::Running),
        handler: Some("ship".parse().unwrap()),
        event_type: Some("thing.*".to_owned()),
        since: Some(Clock::system().now().before(Duration::from_secs(60))),
        limit: Some(7),
        ..JobFilter::default()
    };
    let jobs = client.call(filter).await.unwrap().rows;
    assert_eq!(jobs.iter().map(|row| row.job).collect::<Vec<_>>(), [job]);
    let sources = ["shop", "other"].map(|name| name.parse().unwrap()).into();
    let status = client.call(GetStatus { sources }).await.unwrap();
    let sources: Vec<_> = status.store.unwrap().sources.into_iter().map(|one| one.source).collect();
    assert_eq!(sources.iter().map(Name::as_str).collect::<Vec<_>>(), ["other", "shop"]);
    let handler: Name = "ship".parse().unwrap();
    assert!(client.call(PauseHandler { handler: handler.clone() }).await.unwrap().changed);
    assert!(!client.call(PauseHandler { handler: handler.clone() }).await.unwrap().changed);
    let handlers = client.call(ListHandlers {}).await.unwrap().handlers;
    assert_eq!((handlers.len(), &handlers[0].handler), (1, &handler));
    assert!(handlers[0].paused_since.is_some() && handlers[0].unfinished_jobs == 1);
    assert!(client.call(EventFilter::default()).await.unwrap().rows.len() == 1);
    assert!(client.call(QuarantineFilter::default()).await.unwrap().deliveries.is_empty());
    let show = ShowEvent { event: "evt_1".parse().unwrap(), source: None, variant: None };
    let Err(CallError::Failed(failure)) = client.call(show).await else { panic!() };
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.message.contains("evt_1"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_left_out_unless_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let client = client(&settings).await.unwrap();
    running(&store, "e1", None).await;
    let stored = store.admin.show(None, "e1".parse().unwrap(), None).await.unwrap().remove(0);
    assert!(stored.body.is_some());
    let show = |variant| ShowEvent { event: "e1".parse().unwrap(), source: None, variant };
    let shown = async |variant| client.call(show(variant)).await.unwrap().events.remove(0);
    let without = shown(None).await;
    assert_eq!((without.body, &without.headers), (None, &stored.headers));
    assert_eq!(shown(Some(0)).await.body, stored.body);
    assert_eq!(shown(Some(1)).await.body, None);
    // As a stream.
    assert_eq!(client.show(show(None)).await.unwrap().remove(0).body, stored.body);
}

/// Answers each request at the socket by its first line, as a receiver might.
fn answer_at(socket: &Path, answer: impl Fn(&str) -> String + Send + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut lines = vec![String::new()];
            // The head, or nothing from a client that only connects.
            while stream.read_line(lines.last_mut().unwrap()).unwrap() > 2 {
                lines.push(String::new());
            }
            let _gone = stream.get_mut().write_all(answer(&lines[0]).as_bytes());
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_shown_without_a_body_that_is_cut_deleted_or_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    accept(&store, "e1", Vec::new()).await;
    let show = || ShowEvent { event: "e1".parse().unwrap(), source: None, variant: None };
    let details = client(&settings).await.unwrap().call(show()).await.unwrap();
    let details = serde_json::to_string(&details).unwrap();
    let answer = |status: u16, length: usize, body: &str| {
        format!(
            "HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let refusal = |status: u16, kind: &str| {
        let body = format!(r#"{{"title":"x","status":{status},"detail":"x","kind":"{kind}"}}"#);
        answer(status, body.len(), &body)
    };
    // Whether it has its body, is kept, is damaged, and has a body that cannot be read now.
    let cases = [
        (answer(200, 2, "{}"), (true, true, false, false)),
        (answer(200, 1, "{"), (false, true, false, true)),
        (answer(200, 2, "{"), (false, true, false, true)),
        (refusal(503, "unavailable"), (false, true, false, true)),
        (refusal(409, "wrong_state"), (false, true, true, false)),
        (refusal(404, "not_found"), (false, false, false, false)),
    ];
    for (nth, (of_body, wanted)) in cases.into_iter().enumerate() {
        let socket = dir.path().join(format!("{nth}.sock"));
        let of_event = answer(200, details.len(), &details);
        answer_at(&socket, move |line| match line.contains("/body?") {
            true => of_body.clone(),
            false => of_event.clone(),
        });
        let client = StoreClient::Remote(Client::connect(&socket).await.unwrap());
        let (mut events, unread) = client.show_now(show()).await.unwrap();
        let one = events.remove(0);
        let got = (one.body.is_some(), one.event.payload_kept, one.damaged, unread.is_some());
        assert_eq!(got, wanted, "{nth}: {unread:?}");
        assert_eq!(client.show(show()).await.is_err(), unread.is_some(), "{nth}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sockets_are_their_owners_alone_and_replace_dead_ones() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let sockets = [socket_path(&settings.path), reading_socket_path(&settings.path)];
    for socket in &sockets {
        drop(UnixListener::bind(socket).unwrap());
    }
    let store = open(&settings);
    let listener = serve(&settings, &store);
    for socket in &sockets {
        let mode = std::fs::metadata(socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ask(socket, "GET /v1/info", "").await.0, 200);
    }
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".s"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    listener.stop().await;

    for socket in &sockets {
        std::fs::write(socket, "another file").unwrap();
        let own = receiver(&settings, &store);
        let refused = listen(&settings.path, store.admin.clone(), own).unwrap_err();
        assert!(matches!(refused, ListenError::InTheWay(_)), "{refused}");
        std::fs::remove_file(socket).unwrap();
    }
    let long = dir.path().join("x".repeat(120));
    let refused = listen(&long, store.admin.clone(), receiver(&settings, &store)).unwrap_err();
    assert!(matches!(refused, ListenError::PathTooLong { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_request_gets_a_problem_that_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let socket = socket_path(&settings.path);
    let job = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";
    let replay = format!("POST /v1/jobs/{job}/replay");
    let (reading, changing) = (limits::ADMIN_READING_BYTES, limits::ADMIN_REQUEST_BYTES);
    for (line, body, status, kind, detail) in [
        ("GET /", "", 404, "no_route", "no such route"),
        ("GET /v2/info", "", 404, "no_route", env!("CARGO_PKG_VERSION")),
        ("GET /v1/events/", "", 404, "no_route", "no such route"),
        ("GET /v1/events/..%2Finfo", "", 404, "not_found", "../info"),
        ("GET /v1/events/a&source=b", "", 404, "not_found", "a&source=b"),
        ("POST /v1/info", "{}", 405, "wrong_method", "use GET"),
        ("GET /v1/reload", "", 405, "wrong_method", "use POST"),
        ("DELETE /v1/jobs", "", 405, "wrong_method", "use GET"),
        ("GET /v1/jobs?state=helt", "", 400, "malformed", "helt"),
        ("GET /v1/jobs?stat=held", "", 400, "malformed", "unknown field `stat`"),
        ("GET /v1/jobs?limit=-1", "", 400, "malformed", "invalid digit"),
        ("GET /v1/jobs?limit=0", "", 400, "malformed", "must be 1 to"),
        ("GET /v1/events?limit=0", "", 400, "malformed", "must be 1 to"),
        ("GET /v1/jobs?limit=1&limit=2", "", 400, "malformed", "duplicate field `limit`"),
        ("GET /v1/jobs", "{}", 400, "malformed", "a GET has no body"),
        ("GET /v1/jobs/x", "", 400, "malformed", "x"),
        ("GET /v1/events/e1/body?source=shop&variant=0", "", 404, "not_found", "no such body"),
        (&replay, "{", 400, "malformed", "EOF while parsing"),
        (&replay, "[]", 400, "malformed", "expected a map"),
        (&replay, "{\"new\": true}", 400, "malformed", "unknown field `new`"),
        (&replay, &format!("{{\"job\": \"{job}\"}}"), 400, "malformed", "job is in the path"),
        (&format!("{replay}?new_key=true"), "", 400, "malformed", "not in a query"),
        (&replay, "", 404, "not_found", job),
        ("POST /v1/shorten", &"x".repeat(reading + 1), 413, "too_large", "more than"),
        ("POST /v1/jobs/select", &"x".repeat(reading + 1), 413, "too_large", "more than"),
        ("POST /v1/quarantine/verify", &"x".repeat(reading + 1), 413, "too_large", "more than"),
        ("POST /v1/reload", &"x".repeat(changing + 1), 413, "too_large", "more than"),
    ] {
        let (got, got_kind, got_detail) = problem(&socket, line, body).await;
        assert_eq!((got, got_kind.as_str()), (status, kind), "{line} {got_detail}");
        assert!(got_detail.contains(detail), "{line}: {got_detail}");
    }
    let allowed = send(
        socket.clone(),
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(allowed.to_ascii_lowercase().contains("allow: get\r\n"), "{allowed}");
    assert!(!allowed.contains("200 OK"), "{allowed}");
}

/// A resolution may bring a whole answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_long_request_is_read_at_a_time_and_a_short_one_waits_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let socket = socket_path(&settings.path);
    let line = "POST /v1/jobs/0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b/resolve";
    let bytes = limits::ADMIN_REQUEST_BYTES + 1;
    let mut half = UnixStream::connect(&socket).unwrap();
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n{{");
    half.write_all(head.as_bytes()).unwrap();
    // The server has read its head: a later request is answered.
    assert_eq!(problem(&socket, line, "{}").await.0, 400);
    let long = format!("{{}}{}", " ".repeat(bytes - 2));
    let (status, kind, detail) = problem(&socket, line, &long).await;
    assert_eq!((status, kind.as_str()), (503, "unavailable"), "{detail}");
    assert!(detail.contains("ask again"), "{detail}");
    drop(half);
    assert_eq!(problem(&socket, line, &long).await.0, 400);
}

/// The rows of the audit list, as a client of the reading socket gets them.
async fn audit(settings: &Settings, query: &str) -> Vec<Value> {
    let line = format!("GET /v1/audit{query}");
    let (status, page) = ask(&reading_socket_path(&settings.path), &line, "").await;
    assert_eq!(status, 200, "{page}");
    page["rows"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_change_is_in_the_audit_list_running_or_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let listener = serve(&settings, &store);
    // Every text fits in a header.
    let name = "Ann \u{202e}\r\n\0\"é".to_owned();
    let reason = "\u{1}".repeat(limits::BY_REASON_BYTES);
    let by = By { name: Some(name.clone()), via: Via::Dashboard, reason: Some(reason.clone()) };
    let pause = || PauseHandler { handler: "ship".parse().unwrap() };
    let remote = client(&settings).await.unwrap().by(by.clone());
    assert!(remote.call(pause()).await.unwrap().changed);
    assert!(!remote.call(pause()).await.unwrap().changed);
    let job: JobId = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b".parse().unwrap();
    remote.call(DropJob { job, attempt: None }).await.unwrap_err();
    let rows = audit(&settings, "").await;
    let uid = rustix::process::geteuid().as_raw();
    let expected = serde_json::json!({
        "at": rows[0]["at"], "verb": "pause", "subject": { "handler": "ship" }, "count": 1,
        "result": "done", "reason": reason, "uid": uid, "name": name, "via": "dashboard",
    });
    assert_eq!(rows, [expected], "one change, and two requests that changed nothing");

    // Without the header, as other programs ask.
    let socket = socket_path(&settings.path);
    assert_eq!(ask(&socket, "POST /v1/handlers/ship/resume", "").await.0, 200);
    let rows = audit(&settings, "?verb=resume").await;
    assert_eq!(
        (rows.len(), &rows[0]["name"], &rows[0]["via"]),
        (1, &Value::Null, &"command".into())
    );
    assert_eq!(audit(&settings, "?limit=1").await, rows);

    listener.stop().await;
    store.close().await;
    drop(store);
    let local = client(&settings).await.unwrap().by(by);
    assert!(local.call(pause()).await.unwrap().changed);
    let rows = local.call(AuditFilter::default()).await.unwrap().rows;
    assert_eq!((rows.len(), rows[0].uid, rows[0].name.as_deref()), (3, uid, Some(name.as_str())));
    assert_eq!((rows[0].via, rows[0].reason.as_deref()), (Via::Dashboard, Some(reason.as_str())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_does_not_say_who_asks_is_refused_before_anything_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let base64 = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
    let header = |value: String| format!("Hooklatch-By: {value}\r\n");
    let long =
        |key: &str, bytes| header(base64(&format!("{{\"{key}\":\"{}\"}}", "x".repeat(bytes))));
    for (headers, detail) in [
        (header(base64("{\"role\":\"root\"}")), "unknown field `role`"),
        (header(base64("{\"via\":\"cron\"}")), "must be one of command, dashboard"),
        (header(base64("{")), "EOF"),
        (header("{}".to_owned()), "invalid"),
        (header(base64("{}")).repeat(2), "twice"),
        (long("name", limits::BY_NAME_BYTES + 1), "the name has 101 bytes; it must have 1 to 100"),
        (long("name", 0), "the name has 0 bytes"),
        (long("reason", limits::BY_REASON_BYTES + 1), "the reason has 501 bytes"),
        (long("reason", limits::BY_HEADER_BYTES), "more than 8192 bytes"),
    ] {
        let request = format!(
            "POST /v1/handlers/ship/pause HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        );
        let answer = send(socket_path(&settings.path), request).await;
        assert!(answer.contains(" 400 ") && answer.contains("malformed"), "{answer}");
        assert!(answer.contains(detail), "{answer}");
    }
    assert!(audit(&settings, "").await.is_empty());
    assert!(store.admin.paused().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reading_socket_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let job = running(&store, "e1", None).await;
    let socket = reading_socket_path(&settings.path);
    let mut refused = 0;
    for route in ROUTES.iter().filter(|route| route.effect == Effect::Changes) {
        let path = route.path.replace("{job}", &job.to_string()).replace("{handler}", "ship");
        let path = path.replace("{event}", "e1");
        let line = format!("{} {path}", route.method.as_str());
        let (status, kind, _) = problem(&socket, &line, "").await;
        assert_eq!((status, kind.as_str()), (403, "forbidden"), "{line}");
        refused += 1;
    }
    assert_eq!(refused, 15, "a route changes its effect with this test");
    for path in ["/v1/info", "/v1/status", "/v1/jobs", "/v1/events/e1", "/v1/quarantine"] {
        assert_eq!(ask(&socket, &format!("GET {path}"), "").await.0, 200, "{path}");
    }
    let jobs = ask(&socket, "GET /v1/jobs", "").await.1;
    assert_eq!(jobs["rows"][0]["state"], "running", "nothing was changed: {jobs}");
    assert_eq!(
        ask(&socket, "GET /v1/handlers", "").await.1["handlers"][0]["paused_since"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_closed_and_keeps_no_place() {
    hooklatch::http::raise_file_limit().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    let socket = socket_path(&settings.path);
    // Every connection is taken by a client that says nothing, or half of a head.
    let idle: Vec<_> = (0..limits::OPERATOR_CONNECTIONS)
        .map(|nth| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            if nth % 2 == 0 {
                stream.write_all(b"GET /v1/info HT").unwrap();
            }
            stream
        })
        .collect();
    let asking = async {
        let client = client(&settings).await.unwrap();
        client.call(GetInfo {}).await.unwrap();
    };
    // The most stalled one is closed at once, and a client that is served may be silent for as long as this.
    timeout(limits::ADMIN_WAIT, asking).await.expect("idle connections keep their places");
    drop(idle);
}

/// The longest time of an answer that comes at once: less than the 25 s that a call waits for a change.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_learns_of_each_change_and_leaves_connections_to_commands() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let listener = serve(&settings, &store);
    let client = Client::connect(&socket_path(&settings.path)).await.unwrap();
    let changed = async |after: u64| client.call(&GetChanges { after }).await.unwrap().mark;

    // The mark of an earlier receiver, as from an answer before its restart.
    let mut mark = timeout(AT_ONCE, changed(u64::MAX)).await.expect("it waits for a change");
    running(&store, "e1", None).await;
    let accepted = changed(mark).await;
    assert!(accepted > mark, "{accepted}");
    mark = *store.admin.changes().borrow();
    let (pause, waiting) = (PauseHandler { handler: "ship".parse().unwrap() }, changed(mark));
    let (paused, moved) = tokio::join!(client.call(&pause), waiting);
    assert!(paused.unwrap().changed && moved > mark, "{moved}");

    // It answers once the delivery is listed.
    store.intake.quarantine(FailedDelivery {
        source: "shop".parse().unwrap(),
        scheme: Arc::new(Scheme::embedded("none").unwrap()),
        received_at: Clock::system().now(),
        address: None,
        reason: "bad_signature",
        detail: String::new(),
        path: "/shop".to_owned(),
        headers: Headers::new(),
        body_bytes: 0,
        body: None,
    });
    let kept = changed(moved).await;
    assert!(kept > moved, "{kept}");
    assert_eq!(client.call(&QuarantineFilter::default()).await.unwrap().matching, 1);

    // Those that wait leave places to the others, and a stop ends them.
    let mut waiting = JoinSet::new();
    for _ in 0..=limits::ADMIN_STREAMS {
        let client = client.clone();
        waiting.spawn(async move { client.call(&GetChanges { after: kept }).await });
    }
    let Some(Ok(Err(CallError::Failed(failure)))) = waiting.join_next().await else { panic!() };
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(failure.message.starts_with("32 callers follow, wait or back up"), "{failure}");
    client.call(&GetInfo {}).await.unwrap();
    listener.stop().await;
    // Each has an answer: a stop that had waited for them would have cut them off in the end.
    while let Some(ended) = waiting.join_next().await {
        let Err(CallError::Failed(failure)) = ended.unwrap() else { panic!("no answer") };
        assert_eq!(failure.message, "the receiver is stopping");
    }
}

/// Longer than what a stream passes on at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_line_of_a_stream_comes_whole() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let _listener = serve(&settings, &store);
    for nth in 0..400 {
        accept(&store, &format!("e{nth:0>180}"), Vec::new()).await;
    }
    let follow = FollowEvents {
        source: None,
        event_type: None,
        since: None,
        state: None,
        handler: None,
        limit: None,
        after: None,
    };
    let client = client(&settings).await.unwrap();
    let mut stream = client.open_stream(follow).await.unwrap();
    let first: FollowedEvents = stream.line().await.unwrap().unwrap();
    assert_eq!(first.events.len(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_no_follower_and_for_no_half_sent_body() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let listener = serve(&settings, &store);
    let client = client(&settings).await.unwrap();
    let follow = FollowEvents {
        source: None,
        event_type: None,
        since: None,
        state: None,
        handler: Some("ship".parse().unwrap()),
        limit: None,
        after: None,
    };
    let mut stream = client.open_stream(follow.clone()).await.unwrap();
    let first: FollowedEvents = stream.line().await.unwrap().unwrap();
    assert!(first.events.is_empty() && first.next.is_some() && first.waiting.is_none());
    accept(&store, "e0", Vec::new()).await;
    running(&store, "e1", None).await;
    let second: FollowedEvents = stream.line().await.unwrap().unwrap();
    assert_eq!(second.events[0].event_id.as_str(), "e1");

    // Callers that follow leave places to the others.
    let mut more = Vec::new();
    for _ in 1..limits::ADMIN_STREAMS {
        more.push(client.open_stream(follow.clone()).await.unwrap());
    }
    let Err(CallError::Failed(failure)) = client.open_stream(follow.clone()).await else {
        panic!()
    };
    assert_eq!(failure.kind, FailureKind::Unavailable);
    client.call(GetInfo {}).await.unwrap();
    drop(more);

    let mut half = UnixStream::connect(socket_path(&settings.path)).unwrap();
    half.write_all(b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{").unwrap();
    // The server has read its head: a later request is answered.
    client.call(GetInfo {}).await.unwrap();
    listener.stop().await;
    // Both have an answer to its end: a stop that had waited for them would have cut them off in the end.
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 503 ") && answer.contains("the receiver is stopping"), "{answer}");
    let ended: Result<Option<FollowedEvents>, _> = stream.line().await;
    assert!(matches!(ended, Ok(None)), "{ended:?}");
}

/// The body is longer than what is on its way at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_a_stop_cuts_off_is_not_taken_for_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let store = open(&settings);
    let listener = serve(&settings, &store);
    accept_body(&store, "e1", vec![b' '; 16 << 20].into(), Vec::new()).await;
    let client = client(&settings).await.unwrap();
    let mut stream = client.open_stream(body_of("e1")).await.unwrap();
    let reading = async {
        loop {
            match stream.part().await {
                Ok(Some(_)) => {}
                end => return end,
            }
        }
    };
    let ((), end) = tokio::join!(listener.stop(), reading);
    assert!(end.is_err(), "{end:?}");
}

fn body_of(id: &str) -> GetBody {
    let (event, source) = (id.parse().unwrap(), "shop".parse().unwrap());
    GetBody { event, source, variant: 0, answer: false }
}

async fn accept(store: &Store, id: &str, jobs: Vec<NewJob>) {
    accept_body(store, id, "{}".into(), jobs).await;
}

async fn accept_body(store: &Store, id: &str, body: Bytes, jobs: Vec<NewJob>) {
    let mut headers = Headers::new();
    headers.push("Idempotency-Key", id);
    headers.push("X-Event-Type", "thing.made");
    let now = Clock::system().now();
    let request = Delivery { method: "POST", url: None, headers: &headers, body };
    let scheme = Scheme::embedded("none").unwrap();
    let delivery = verify(&scheme, &[], request, now).unwrap();
    let source = "shop".parse().unwrap();
    store
        .intake
        .accept(Accept {
            source,
            received_at: now,
            delivery,
            jobs,
            on_redelivery: OnRedelivery::Ignore,
        })
        .await
        .unwrap();
}

/// Stores an event with a job that is claimed for `runner`, or for the receiver itself.
async fn running(store: &Store, id: &str, runner: Option<Runner>) -> JobId {
    let handler: Name = "ship".parse().unwrap();
    accept(store, id, vec![NewJob::of(handler.clone())]).await;
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
    let listener = serve(&settings, &store);
    let remote = client(&settings).await.unwrap();
    let read = || ReadOutput { job: command, attempt: 1, stream: Stream::Stdout };
    fn failure<T: std::fmt::Debug>(called: Result<T, CallError>) -> (FailureKind, String) {
        match called {
            Err(CallError::Failed(failure)) => (failure.kind, failure.message),
            other => panic!("{other:?}"),
        }
    }

    let (kind, said) = failure(remote.call(CancelJob { job: command, attempt: None }).await);
    assert_eq!((kind, said.contains("runner")), (FailureKind::Unavailable, true), "{said}");
    let (kind, said) = failure(remote.call(read()).await);
    assert_eq!((kind, said.contains("runner")), (FailureKind::Unavailable, true), "{said}");
    let (kind, said) = failure(remote.call(CancelJob { job: forward, attempt: None }).await);
    assert_eq!((kind, said.contains("forward")), (FailureKind::WrongState, true), "{said}");
    let (kind, said) = failure(remote.call(DropJob { job: forward, attempt: None }).await);
    assert_eq!((kind, said.contains("running")), (FailureKind::WrongState, true), "{said}");
    let job: JobId = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b".parse().unwrap();
    assert_eq!(
        failure(remote.call(CancelJob { job, attempt: None }).await).0,
        FailureKind::NotFound
    );
    assert_eq!(failure(remote.call(ShowJob { job }).await).0, FailureKind::NotFound);
    let row = remote.call(ShowJob { job: command }).await.unwrap();
    assert_eq!((row.job, row.attempt, row.event_id.as_str()), (command, 1, "e1"));
    let accept = AcceptQuarantine { filter: QuarantineFilter::default(), after: 0 };
    assert_eq!(failure(remote.call(accept).await).0, FailureKind::Unavailable, "no judge is set");

    listener.stop().await;
    store.close().await;
    drop(store);
    let local = client(&settings).await.unwrap();
    for (kind, said) in [
        failure(local.call(CancelJob { job: command, attempt: None }).await),
        failure(local.call(read()).await),
    ] {
        assert_eq!(
            (kind, said.contains("no receiver")),
            (FailureKind::Unavailable, true),
            "{said}"
        );
    }
    local.close().await;
}
