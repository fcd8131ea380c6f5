//! The bounds of a request's head, at the listeners of deliveries, metrics and the dashboard and at both admin sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hooklatch::admin::{reading_socket_path, socket_path};
use hooklatch::crash::{PANIC, VARIABLE};
use hooklatch::http::raise_file_limit;
use hooklatch::limits::{ADMIN_REQUESTS, ADMIN_WAIT, HEAD_BYTES, HEAD_LINES, OPERATOR_CONNECTIONS};

use crate::metrics;
use crate::support::{PATIENCE, Site};
use crate::ui::Dashboard;

/// A client's end of any listener's connection.
trait Client: Read + Write {
    fn half_close(&self);
}

impl Client for TcpStream {
    fn half_close(&self) {
        // The server may have closed.
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Client for UnixStream {
    fn half_close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

type Connect = Box<dyn Fn() -> Box<dyn Client>>;

/// Each listener, by its name.
fn listeners(site: &Site, ports: [(&'static str, u16); 3]) -> Vec<(&'static str, Connect)> {
    let tcp = ports.into_iter().map(|(name, port)| {
        let connect: Connect = Box::new(move || {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(stream) as Box<dyn Client>
        });
        (name, connect)
    });
    let sockets = [socket_path(&site.store()), reading_socket_path(&site.store())];
    let unix = ["admin socket", "reading socket"].into_iter().zip(sockets).map(|(name, path)| {
        let connect: Connect = Box::new(move || {
            let stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(stream) as Box<dyn Client>
        });
        (name, connect)
    });
    tcp.chain(unix).collect()
}

/// The head of the answer, whose end the connection's follows.
fn answer(connect: &Connect, request: &[u8]) -> String {
    let mut stream = connect();
    // The server may refuse it before all of it is sent.
    let _refused = stream.write_all(request);
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    stream.half_close();
    let ended = stream.read_to_end(&mut Vec::new());
    let is_open = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_open, "the connection is still open");
    String::from_utf8(answer).unwrap().to_lowercase()
}

#[test]
fn a_head_over_its_bounds_is_431_and_the_end_of_the_connection_at_every_listener() {
    let site = Site::with("[metrics]\nlisten = \"127.0.0.1:0\"\n", "");
    let (receiver, metrics) = metrics::start(&site);
    let dashboard = Dashboard::start(&site, &[]);
    let listeners = listeners(
        &site,
        [
            ("deliveries", receiver.address.port()),
            ("metrics", metrics.port()),
            ("dashboard", dashboard.port),
        ],
    );
    let bytes = usize::try_from(HEAD_BYTES).unwrap();
    let line = "GET / HTTP/1.1\r\n";
    // A head of so many bytes in all, with one long name or value.
    let name = |bytes: usize| format!("{line}{}: b\r\n\r\n", "a".repeat(bytes - line.len() - 7));
    let value = |bytes: usize| format!("{line}a: {}\r\n\r\n", "b".repeat(bytes - line.len() - 7));
    let lines = |lines: usize| format!("{line}{}\r\n", "a: b\r\n".repeat(lines));
    let within = [name(bytes), value(bytes), lines(HEAD_LINES)];
    let over = [
        name(bytes + 1),
        value(bytes + 1),
        lines(HEAD_LINES + 1),
        name(2 * bytes - 1024),
        value(2 * bytes - 1024),
        lines(2 * HEAD_LINES),
        // It does not end.
        format!("{line}a: {}", "b".repeat(bytes)),
    ];
    for (listener, connect) in &listeners {
        for head in &over {
            let answer = answer(connect, head.as_bytes());
            let (size, begin) = (head.len(), &head[..30]);
            assert!(answer.starts_with("http/1.1 431 "), "{listener}: {size} {begin}: {answer}");
            assert!(answer.contains("\r\nconnection: close\r\n"), "{listener}: {answer}");
        }
        for head in &within {
            let answer = answer(connect, head.as_bytes());
            assert!(!answer.starts_with("http/1.1 431 "), "{listener}: {answer}");
        }
    }
    assert_eq!(receiver.github("d-1", "push", "{}").0, 200);
}

#[test]
fn a_panic_in_a_request_ends_its_connection_alone_at_every_listener() {
    for nth in 0..5 {
        let site = Site::with("[metrics]\nlisten = \"127.0.0.1:0\"\n", "");
        let first = format!("{PANIC} 1 {}", site.path("token").display());
        let mut command = site.command(&["ui", "--port", "0"]);
        // The dashboard is a process of its own.
        let receiver = if nth == 2 {
            command.env(VARIABLE, &first);
            site.start()
        } else {
            site.start_with(&[(VARIABLE, &first)])
        };
        let serving = receiver.log_when(|line| line["message"] == "serving metrics");
        let metrics: SocketAddr = serving["address"].as_str().unwrap().parse().unwrap();
        let dashboard = Dashboard::of(command);
        let ports = [
            ("deliveries", receiver.address.port()),
            ("metrics", metrics.port()),
            ("dashboard", dashboard.port),
        ];
        let (listener, connect) = listeners(&site, ports).swap_remove(nth);
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let (mut stream, mut nothing) = (connect(), Vec::new());
        stream.write_all(request).unwrap();
        let _reset = stream.read_to_end(&mut nothing);
        assert_eq!(String::from_utf8_lossy(&nothing), "", "{listener}");
        assert!(site.path("token").exists(), "{listener}: it has not panicked");
        assert!(answer(&connect, request).starts_with("http/1.1 4"), "{listener}");
    }
}

/// Half heads keep connections, of which there are more, and no place of a request.
#[test]
fn half_heads_keep_no_operator_waiting() {
    raise_file_limit().unwrap();
    let site = Site::new("");
    let _receiver = site.start();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let address = ("127.0.0.1", dashboard.port);
    let mut half: Vec<Box<dyn Client>> = Vec::new();
    for _ in 0..200 {
        let at_dashboard = TcpStream::connect(address).unwrap();
        at_dashboard.set_nonblocking(true).unwrap();
        let at_socket = UnixStream::connect(reading_socket_path(&site.store())).unwrap();
        at_socket.set_nonblocking(true).unwrap();
        half.extend([Box::new(at_dashboard) as Box<dyn Client>, Box::new(at_socket)]);
    }
    for stream in &mut half {
        stream.write_all(b"GET /v1/info HT").unwrap();
    }
    assert_eq!(dashboard.get("/").status, 200);
    // It was answered while all of them were open: it has waited for none.
    for stream in &mut half {
        let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(read, Err(std::io::ErrorKind::WouldBlock));
    }
}

/// Half bodies keep the places of those that bring one, and none of those that only ask; and of the others, which wait on
/// all connections that there are, the most stalled is closed.
#[test]
fn half_bodies_keep_none_waiting_who_only_ask() {
    raise_file_limit().unwrap();
    let site = Site::new("");
    let _receiver = site.start();
    let connect = || UnixStream::connect(reading_socket_path(&site.store())).unwrap();
    let mut half: Vec<UnixStream> = Vec::new();
    for _ in 0..OPERATOR_CONNECTIONS {
        let mut stream = connect();
        let head = "POST /v1/jobs/select HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        half.push(stream);
    }
    let status_of = |mut asking: UnixStream, request: &str| {
        asking.set_read_timeout(Some(2 * ADMIN_WAIT)).unwrap();
        asking.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        asking.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    assert_eq!(status_of(connect(), "GET /v1/info HTTP/1.1\r\nHost: x\r\n\r\n"), "200");
    // A request for a WebSocket waits in its place for no body, whatever length it declares.
    for length in ["", "Content-Length: 9\r\n"] {
        let upgrade = format!("Host: x\r\nUpgrade: websocket\r\n{length}");
        let request = format!("GET /v1/info HTTP/1.1\r\n{upgrade}\r\n");
        assert_eq!(status_of(connect(), &request), "200", "{length}");
    }
    // Nor an operator on the other socket.
    let operator = UnixStream::connect(socket_path(&site.store())).unwrap();
    let change = "POST /v1/events/none/replay HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(status_of(operator, change), "404");
    let is_open = |stream: &mut UnixStream| {
        let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        read == Err(std::io::ErrorKind::WouldBlock)
    };
    let open = half.iter_mut().map(is_open).filter(|open| *open).count();
    assert!(open >= ADMIN_REQUESTS / 2, "it has waited for them: {open} are open");
}

/// As many half heads are open as there are connections, and more: the most stalled are closed for clients that ask.
#[test]
fn the_most_stalled_connection_is_closed_for_who_asks() {
    raise_file_limit().unwrap();
    let site = Site::new("");
    let _receiver = site.start();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..2 * OPERATOR_CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET / HT").unwrap();
        half.push(stream);
    }
    assert_eq!(dashboard.get("/").status, 200);
    // The first is closed for a later one, and not answered 408 at the end of its time.
    let mut answer = Vec::new();
    let _closed = half[0].read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}
