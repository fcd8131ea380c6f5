//! Real endpoints on loopback and Unix sockets: what they are sent, and what their answers mean.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::*;
use crate::model::{EventType, Shape, Timestamp};
use crate::payload::Place;
use crate::runner::tests::facts;
use crate::values::{Template, ValueRule, Values};

fn settings(target: &str) -> ForwardSettings {
    ForwardSettings {
        target: Target::parse(target).unwrap(),
        resigners: Arc::default(),
        timeout: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(60),
        answer_bytes: 16,
        whole_answer_bytes: None,
        request: None,
    }
}

/// Forwards with a bound for a broken build only: nothing below waits this long.
async fn forward(settings: &ForwardSettings, facts: &Facts) -> Report {
    let (end, clock) = (Cancellation::default(), Clock::manual(Timestamp(784_111_777_000)));
    let attempt = settings.run(facts, &end, &clock);
    timeout(Duration::from_secs(90), attempt).await.expect("the attempt must end")
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/hooks?a=b", listener.local_addr().unwrap());
    (listener, target)
}

/// Reads one whole request: head and as many bytes as its Content-Length says.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the request was cut");
    };
    let mut body = bytes.split_off(end);
    let head: String = bytes.iter().map(|&b| char::from(b)).collect();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let length: usize = length.parse().unwrap();
    while body.len() < length {
        assert!(stream.read_buf(&mut body).await.unwrap() > 0, "the body was cut");
    }
    (head, body)
}

/// Forwards to an endpoint that reads the request, gives this answer, and closes.
async fn answered(answer: &str) -> Report {
    let (listener, target) = listen().await;
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
    };
    let (settings, facts) = (settings(&target), facts("body"));
    tokio::join!(forward(&settings, &facts), endpoint).0
}

#[tokio::test]
async fn the_endpoint_gets_the_body_and_exactly_these_headers() {
    let (listener, target) = listen().await;
    let body: Vec<u8> = (0..25 << 20).map(|i: u32| (i * 31 % 251) as u8).collect();
    let mut facts = facts(body.clone());
    for (name, value) in [
        ("Content-Type", b"application/json; charset=utf-8".as_slice()),
        ("X-GitHub-Event", b"push"),
        ("X-Twice", b"1"),
        ("X-Twice", b"2"),
        ("X-Odd", b"\xff\t\xe4"),
        ("X-Split", b"a\r\nX-Smuggled: b"),
        ("Bad Name", b"a"),
        // The delivery's own, or forged.
        ("Host", b"hooks.example.com"),
        ("Content-Length", b"7"),
        ("Transfer-Encoding", b"chunked"),
        ("Connection", b"close, X-Hop"),
        ("X-Hop", b"a"),
        ("Expect", b"100-continue"),
        ("Idempotency-Key", b"forged"),
        ("Hooklatch-Job", b"forged"),
        ("Hooklatch-Caller", b"forged"),
        ("hooklatch-other", b"forged"),
    ] {
        facts.headers.push(name, value);
    }
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        request
    };
    let (settings, host) = (settings(&target), listener.local_addr().unwrap());
    let (report, (head, sent)) = tokio::join!(forward(&settings, &facts), endpoint);
    assert_eq!((report.outcome, report.handler_broken), (Outcome::Succeeded, false));
    assert!(sent == body, "the body differs");
    let (line, headers) = head.trim_end().split_once("\r\n").unwrap();
    assert_eq!(line, "POST /hooks?a=b HTTP/1.1");
    let mut headers: Vec<&str> = headers.split("\r\n").collect();
    headers.sort_unstable();
    let host = format!("host: {host}");
    let length = format!("content-length: {}", body.len());
    let expected = [
        "connection: close",
        &length,
        "content-type: application/json; charset=utf-8",
        "hooklatch-attempt: 3",
        "hooklatch-event-id: evt_1",
        "hooklatch-event-type: invoice.paid",
        "hooklatch-handler: fulfil",
        "hooklatch-job: abababab-abab-abab-abab-abababababab",
        "hooklatch-received-at: 2026-01-01T00:00:00.123Z",
        "hooklatch-replay: 1",
        "hooklatch-source: stripe",
        &host,
        "idempotency-key: abababab-abab-abab-abab-abababababab",
        "x-github-event: push",
        "x-odd: \u{ff}\t\u{e4}",
        "x-twice: 1",
        "x-twice: 2",
    ];
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn an_odd_type_an_empty_body_and_a_caller_are_sent_too() {
    let (listener, target) = listen().await;
    let mut facts = facts("");
    facts.event_type = EventType::from_raw("a\r\nb");
    facts.headers.push("Hooklatch-Caller", "forged");
    facts.caller = Some("shop\tt-1".to_owned());
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        request
    };
    let settings = settings(&target);
    let (report, (head, body)) = tokio::join!(forward(&settings, &facts), endpoint);
    assert_eq!((report.outcome, body.len()), (Outcome::Succeeded, 0));
    assert!(head.contains("\r\nhooklatch-event-type: ?\r\n"), "{head}");
    let callers: Vec<_> = head.lines().filter(|line| line.contains("caller")).collect();
    assert_eq!(callers, ["hooklatch-caller: shop\tt-1"]);
}

#[tokio::test]
async fn each_status_is_its_outcome_and_no_redirect_is_followed() {
    for (status, outcome) in [
        (200, Outcome::Succeeded),
        (202, Outcome::Succeeded),
        (301, Outcome::Failed),
        (307, Outcome::Failed),
        (400, Outcome::Rejected),
        (404, Outcome::Failed),
        (408, Outcome::Failed),
        (410, Outcome::Rejected),
        (422, Outcome::Rejected),
        (425, Outcome::Failed),
        (429, Outcome::Failed),
        (500, Outcome::Failed),
        (503, Outcome::Failed),
    ] {
        // The endpoint accepts one connection only: a followed redirect would get no answer.
        let answer = format!("HTTP/1.1 {status} X\r\nLocation: /\r\nContent-Length: 2\r\n\r\nno");
        let report = answered(&answer).await;
        assert_eq!((report.outcome, report.handler_broken), (outcome, false), "{status}");
        assert_eq!(report.record.http_status, Some(status));
        assert_eq!(report.record.detail, format!("HTTP {status}"));
        assert_eq!(&report.record.stdout.head[..], *b"no");
        assert_eq!(report.retry_after, None);
    }
}

#[tokio::test]
async fn an_answer_before_the_whole_body_counts() {
    let (listener, target) = listen().await;
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
        stream.write_all(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream
    };
    let (settings, facts) = (settings(&target), facts(vec![b'x'; 25 << 20]));
    let (report, mut stream) = tokio::join!(forward(&settings, &facts), endpoint);
    assert_eq!((report.outcome, report.record.http_status), (Outcome::Rejected, Some(410)));
    // The connection ended with the attempt: the rest of the body is not sent.
    let mut rest = Vec::new();
    let _cut = timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < facts.body.len());
}

#[tokio::test]
async fn only_a_failure_may_ask_for_a_delay() {
    for (status, asked, seconds) in [
        (503, "7", Some(7)),
        (429, "Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        (503, "later", None),
        (200, "7", None),
        (410, "7", None),
    ] {
        let answer = format!("HTTP/1.1 {status} X\r\nRetry-After: {asked}\r\n\r\n");
        let report = answered(&answer).await;
        assert_eq!(report.retry_after.map(|delay| delay.as_secs()), seconds, "{status} {asked}");
    }
}

#[tokio::test]
async fn who_refuses_a_connection_was_never_asked() {
    let (listener, target) = listen().await;
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let missing = format!("unix:{}:/", socket.display());
    // Bound and no longer listened on, as a crashed endpoint leaves it.
    drop(UnixListener::bind(folder.path().join("dead.sock")).unwrap());
    let dead = format!("unix:{}/dead.sock:/", folder.path().display());
    // No name at all, so that no name server is asked.
    let nowhere = "http://no..name:1/".to_owned();
    for target in [target, missing, dead, nowhere] {
        let report = forward(&settings(&target), &facts("body")).await;
        assert_eq!((report.outcome, report.handler_broken), (Outcome::NotStarted, true));
        let shown = target.split('?').next().unwrap();
        let expected = format!("failed to connect to {shown}");
        assert!(report.record.detail.starts_with(&expected), "{}", report.record.detail);
    }
}

#[tokio::test]
async fn who_does_not_take_the_connection_in_time_was_never_asked() {
    // A full backlog: the kernel lets further connections wait.
    let listener = TcpSocket::new_v4().unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        fillers.push(filler.unwrap());
    }
    let base = settings(&format!("http://{address}/"));
    let settings = ForwardSettings { connect_timeout: Duration::from_millis(200), ..base };
    let report = forward(&settings, &facts("body")).await;
    assert_eq!((report.outcome, report.handler_broken), (Outcome::NotStarted, true));
    let expected = format!("failed to connect to http://{address}/ within 200ms");
    assert_eq!(report.record.detail, expected);
}

/// Forwards to an endpoint that does this with the connection.
async fn ends_without_answer<F: Future<Output = TcpStream>>(with: impl FnOnce(TcpStream) -> F) {
    let (listener, target) = listen().await;
    let endpoint = async {
        let (stream, _) = listener.accept().await.unwrap();
        with(stream).await
    };
    let settings = ForwardSettings { timeout: Duration::from_secs(1), ..settings(&target) };
    let facts = facts("body");
    let (report, _kept_open) = tokio::join!(forward(&settings, &facts), endpoint);
    assert_eq!((report.outcome, report.handler_broken), (Outcome::Unknown, false));
    assert_eq!(report.record.http_status, None);
    let detail = report.record.detail;
    assert!(detail.starts_with("no answer after the request was sent: "), "{detail}");
}

#[tokio::test]
async fn without_an_answer_the_effects_are_unknown() {
    let closed = ends_without_answer(|mut stream| async move {
        read_request(&mut stream).await;
        stream.shutdown().await.unwrap();
        stream
    });
    let reset = ends_without_answer(|mut stream| async move {
        read_request(&mut stream).await;
        // Closing with a linger time of zero sends a reset.
        set_socket_linger(stream.as_fd(), Some(Duration::ZERO)).unwrap();
        drop(stream);
        TcpStream::connect(TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap())
            .await
            .unwrap()
    });
    let stalled = ends_without_answer(|mut stream| async move {
        read_request(&mut stream).await;
        stream
    });
    let half_a_head = ends_without_answer(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-").await.unwrap();
        stream
    });
    let not_http = ends_without_answer(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").await.unwrap();
        stream
    });
    let unread = ends_without_answer(|stream| async move { stream });
    tokio::join!(closed, reset, stalled, half_a_head, not_http, unread);
}

#[tokio::test]
async fn a_stop_ends_a_forward_that_is_not_answered() {
    let (listener, target) = listen().await;
    let end = Cancellation::default();
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        end.cancel(crate::runner::AskedBy::Stop);
        stream
    };
    let (settings, facts) = (settings(&target), facts("body"));
    let clock = Clock::manual(Timestamp(0));
    let (report, _stream) = tokio::join!(settings.run(&facts, &end, &clock), endpoint);
    assert_eq!(report.outcome, Outcome::Unknown);
    assert!(report.record.detail.ends_with("when the receiver stopped"));
}

#[tokio::test]
async fn an_answer_is_kept_to_its_limit_and_its_status_stands() {
    // Endless: the endpoint writes until the connection is dropped.
    let (listener, target) = listen().await;
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let head = b"HTTP/1.1 500 X\r\nContent-Length: 999999999999\r\n\r\n";
        stream.write_all(head).await.unwrap();
        while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
    };
    let (endless, facts) = (settings(&target), facts("body"));
    let (report, ()) = tokio::join!(forward(&endless, &facts), endpoint);
    assert_eq!((report.outcome, report.record.stdout.head.0), (Outcome::Failed, vec![b'x'; 16]));
    assert_eq!(report.record.stdout.total, 999_999_999_999);

    // Cut off, and stalled: the head has said everything.
    let cut = answered("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    assert_eq!((cut.outcome, cut.record.stdout.total), (Outcome::Succeeded, 4));
    let (listener, target) = listen().await;
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
        stream
    };
    let stalled = ForwardSettings { timeout: Duration::from_secs(1), ..settings(&target) };
    let (report, _stream) = tokio::join!(forward(&stalled, &facts), endpoint);
    assert_eq!(
        (report.outcome, report.record.stdout.head.0),
        (Outcome::Succeeded, b"half".to_vec())
    );
}

/// Forwards for a client that waits for the answer, which may have 20 bytes, to an endpoint that reads the
/// request, sends this answer, and closes.
async fn asked(answer: &str) -> Report {
    let (listener, target) = listen().await;
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
    };
    let settings = ForwardSettings { whole_answer_bytes: Some(20), ..settings(&target) };
    let facts = facts("body");
    tokio::join!(forward(&settings, &facts), endpoint).0
}

#[tokio::test]
async fn a_complete_response_of_any_status_is_an_answer() {
    let most = "0123456789abcdefghij";
    let head = "HTTP/1.1 201 Created\r\n";
    let chunked =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nye\r\n1\r\ns\r\n0\r\nX: y\r\n\r\n");
    for (answer, status, body) in [
        (format!("{head}Content-Length: 20\r\n\r\n{most}"), 201, most),
        (chunked.replace("chunked", "Chunked"), 201, "yes"),
        (chunked, 201, "yes"),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 204, ""),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(), 200, "ok"),
        ("HTTP/1.1 301 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_owned(), 301, ""),
        ("HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\nno".to_owned(), 400, "no"),
        ("HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno".to_owned(), 503, "no"),
    ] {
        let report = asked(&answer).await;
        let got = report.answer.unwrap_or_else(|| panic!("{answer}: {}", report.record.detail));
        assert_eq!((got.status, &*got.body), (status, body.as_bytes()), "{answer}");
        let outcome = if status == 503 { Outcome::Failed } else { Outcome::Succeeded };
        assert_eq!((report.outcome, report.retry_after), (outcome, None));
        assert_eq!(report.record.detail, format!("HTTP {status}"));
        // The record is cut as usual.
        let recorded = &body.as_bytes()[..body.len().min(16)];
        assert_eq!((&*report.record.stdout.head, report.record.stdout.total), (recorded, body.len() as u64));
    }
}

#[tokio::test]
async fn a_complete_answer_keeps_its_headers_in_order() {
    let answer = asked(
        "HTTP/1.1 402 Payment Required\r\nContent-Type: application/json\r\nSet-Cookie: a\r\n\
         Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
         Set-Cookie: b\r\nContent-Length: 2\r\n\r\n{}",
    );
    let answer = answer.await.answer.unwrap();
    assert_eq!((answer.status, &*answer.body), (402, &b"{}"[..]));
    let headers = String::from_utf8(answer.headers.to_wire()).unwrap();
    assert_eq!(headers, "content-type: application/json\r\nset-cookie: a\r\nset-cookie: b\r\n");
}

#[tokio::test]
async fn an_incomplete_response_is_not_an_answer() {
    let head = "HTTP/1.1 200 OK\r\n";
    let over = "its body has more than 20 bytes (limits.answer_whole_bytes)";
    let cut = "its body was cut short: ";
    let endless = "it has neither a length nor chunks alone";
    for (answer, why) in [
        (format!("{head}Content-Length: 21\r\n\r\n0123456789abcdefghijk"), over),
        (format!("{head}Connection: close\r\n\r\n0123"), endless),
        (format!("{head}Transfer-Encoding: gzip\r\n\r\n0123"), endless),
        (format!("{head}Transfer-Encoding: identity\r\n\r\n0123"), endless),
        (format!("{head}Transfer-Encoding: chunked, gzip\r\n\r\n0123"), endless),
        (format!("{head}Transfer-Encoding: gzip\r\nContent-Length: 4\r\n\r\n0123"), endless),
        (format!("{head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), endless),
        (
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n15\r\n0123456789abcdefghijk\r\n0\r\n\r\n"
            ),
            over,
        ),
        (format!("{head}Content-Length: 20\r\n\r\n0123"), cut),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n"), cut),
        ("HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned(), ""),
    ] {
        let report = asked(&answer).await;
        let switched = answer.contains(" 101 ");
        let outcome = if switched { Outcome::Unknown } else { Outcome::Succeeded };
        assert_eq!((report.outcome, report.handler_broken), (outcome, false), "{answer}");
        assert!(report.answer.is_none(), "{answer}");
        assert!(report.record.detail.contains(why), "{answer}: {}", report.record.detail);
    }
    // Begun, and not ended in time, nor when the receiver stops.
    for stops in [false, true] {
        let (listener, target) = listen().await;
        let end = Cancellation::default();
        let endpoint = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await.unwrap();
            if stops {
                end.cancel(crate::runner::AskedBy::Stop);
            }
            stream
        };
        let timeout = Duration::from_secs(if stops { 60 } else { 1 });
        let whole_answer_bytes = Some(20);
        let settings = ForwardSettings { timeout, whole_answer_bytes, ..settings(&target) };
        let (facts, clock) = (facts("body"), Clock::manual(Timestamp(0)));
        let (report, _stream) = tokio::join!(settings.run(&facts, &end, &clock), endpoint);
        // The stop may come before the status.
        assert!(
            report.outcome == Outcome::Succeeded || stops && report.outcome == Outcome::Unknown
        );
        assert_eq!(report.answer, None);
        let why = if stops { "when the receiver stopped" } else { "within 1s" };
        assert!(report.record.detail.contains(why), "{}", report.record.detail);
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_endpoint_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let endpoint = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        stream.write_all(b"2\r\nye\r\n1\r\ns\r\n0\r\n\r\n").await.unwrap();
        request
    };
    let (settings, facts) = (settings(&format!("unix:{}:/hooks", socket.display())), facts("body"));
    let (report, (head, body)) = tokio::join!(forward(&settings, &facts), endpoint);
    assert_eq!((report.outcome, body.as_slice()), (Outcome::Succeeded, b"body".as_slice()));
    assert_eq!(
        (&report.record.stdout.head[..], report.record.stdout.total),
        (b"yes".as_slice(), 3)
    );
    assert!(
        head.starts_with("POST /hooks HTTP/1.1\r\n") && head.contains("\r\nhost: localhost\r\n")
    );
}

#[tokio::test]
async fn an_endpoint_that_closes_as_a_second_request_arrives_leaves_no_outcome_unknown() {
    let (listener, target) = listen().await;
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                read_request(&mut stream).await;
                count.fetch_add(1, Relaxed);
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                // Left open, and closed without an answer when another request arrives on it.
                if stream.read(&mut [0; 1]).await.unwrap() > 0 {
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let (settings, facts) = (settings(&target), facts("body"));
    for attempt in 1..=3 {
        let report = forward(&settings, &facts).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "attempt {attempt}");
        assert_eq!(requests.load(Relaxed), attempt, "one request per attempt");
    }
}

fn template(text: &str) -> Template {
    Template::parse(text, |name| name == "A" || name == "B").unwrap()
}

/// Values `A` at `/a` and `B` at `/b`, in the path, the query and a header.
fn with_values(
    target: &str,
    path: &str,
    query: Option<&str>,
    part: Option<&str>,
) -> ForwardSettings {
    let rule = |name: &str, place: &str| ValueRule {
        name: name.to_owned(),
        from: Some(Place::parse(place).unwrap()),
        shape: Some(Shape::Text),
        pattern: None,
        strip: String::new(),
        max_bytes: 4096,
        otherwise: Some("b".to_owned()),
        optional: false,
    };
    let request = RequestValues {
        values: Values {
            rules: vec![rule("A", "/a"), rule("B", "/b")],
            form_fields: BTreeMap::new(),
            inflated_bytes: BTreeMap::new(),
        },
        path: template(path),
        query: query.map(template),
        headers: vec![("X-Branch".to_owned(), template("on {B}"))],
        part: part.map(|part| Place::parse(part).unwrap()),
    };
    ForwardSettings { request: Some(Arc::new(request)), ..settings(target) }
}

#[tokio::test]
async fn values_stay_in_their_segment_their_query_part_and_their_header() {
    let (listener, target) = listen().await;
    let body = r#"{"a":"..x/x?y#z/%2e ä&","b":"main","data":{"object": {"n": 1.0} }}"#;
    for (part, sent) in [(None, body), (Some("/data/object"), r#"{"n": 1.0}"#)] {
        let settings = with_values(&target, "/repos/{A}/{B}", Some("a={A}&c"), part);
        let mut facts = facts(body);
        facts.headers.push("X-Branch", "forged");
        facts.headers.push("Content-Type", "application/x-www-form-urlencoded");
        facts.headers.push("Content-Encoding", "identity");
        let endpoint = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            request
        };
        // A bound for a broken build only.
        let endpoint = timeout(Duration::from_secs(60), endpoint);
        let (report, request) = tokio::join!(forward(&settings, &facts), endpoint);
        let (head, received) = request.unwrap();
        assert_eq!(report.outcome, Outcome::Succeeded);
        let line = "POST /repos/..x%2Fx%3Fy%23z%2F%252e%20%C3%A4%26/main?a=..x%2Fx%3Fy%23z%2F%252e%20%C3%A4%26&c HTTP/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains("\r\nx-branch: on main\r\n") && !head.contains("forged"), "{head}");
        assert_eq!(head.contains("content-type: application/json"), part.is_some(), "{head}");
        assert_eq!(head.contains("content-encoding: identity"), part.is_none(), "{head}");
        assert_eq!(received, sent.as_bytes());
    }
}

#[tokio::test]
async fn what_would_leave_its_place_is_refused_before_connecting() {
    // Nobody listens there.
    let target = "http://127.0.0.1:1/";
    let long = format!(r#"{{"a":"{}"}}"#, "ä".repeat(2000));
    for (path, part, body, why) in [
        ("/x/{A}", None, r#"{"a":""}"#, "value A is refused: it is empty"),
        ("/x/{A}", None, r#"{"a":"."}"#, "value A is refused: it would be '.' or '..'"),
        ("/x/{A}/y", None, r#"{"a":".."}"#, "it would be '.' or '..'"),
        ("/x/{A}.", None, r#"{"a":"."}"#, "it would be '.' or '..'"),
        // A server that decodes before it looks at the segments would leave the path.
        ("/x/{A}", None, r#"{"a":"../y"}"#, "it would be '.' or '..'"),
        ("/x/{A}", None, r#"{"a":"y\\.."}"#, "it would be '.' or '..'"),
        ("/x/{A}", None, &long, "over 8192 bytes"),
        ("/x", None, r#"{"b":"a\nHost: b"}"#, "value B is refused: it is not printable ASCII"),
        ("/x", None, r#"{"b":"ä"}"#, "value B is refused: it is not printable ASCII"),
        ("/x", Some("/data"), "{}", "part of the body is refused: nothing is there"),
        ("/x", Some("/data"), r#"{"data":null}"#, "part of the body is refused: nothing is there"),
        (
            "/x",
            Some("/data"),
            r#"{"data":1,"data":2}"#,
            "part of the body is refused: it is there twice",
        ),
        ("/x", Some("/data"), r#"{"data":1,"a":1,"a":2}"#, "value A is refused: it is there twice"),
    ] {
        let report = forward(&with_values(target, path, None, part), &facts(body.to_owned())).await;
        assert!(report.record.detail.contains(why), "{why}: {}", report.record.detail);
        assert!(report.value_refused && !report.handler_broken, "{why}");
        assert_eq!(report.outcome, Outcome::NotStarted);
    }
}
