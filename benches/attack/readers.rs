//! Readers: what clients of the reading socket and of the dashboard add to the receiver's memory, whatever they ask.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::receiver::{PATH, Receiver, SECRET};

/// Nearly the largest body of a signed provider. In JSON each of its bytes would take six.
const EVENT_BYTES: usize = 24 * 1024 * 1024;

/// How long readers take nothing of their answers: less than the 10 s after which the dashboard closes them.
const HELD: Duration = Duration::from_secs(4);

/// A name, and what its readers do until they have done their worst.
pub(crate) type Readers = (&'static str, fn(&Receiver));

pub(crate) const ALL: [Readers; 4] = [
    ("role view: 31 pages of an event of 24 MiB", pages),
    ("reading socket: 24 readers who take nothing of it", slow_readers),
    ("reading socket: pipelined requests on 64 connections", pipelined),
    ("role operate: 31 downloads that are not taken", downloads),
];

/// Delivers the event of all readers.
pub(crate) fn deliver(receiver: &Receiver) {
    let body = vec![1; EVENT_BYTES];
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&body);
    let signature = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
    let mut stream = TcpStream::connect(receiver.address).unwrap();
    write!(
        stream,
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n\
         X-GitHub-Delivery: large\r\nX-Hub-Signature-256: sha256={signature}\r\n\
         Content-Length: {EVENT_BYTES}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream.write_all(&body).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

fn pages(receiver: &Receiver) {
    let dashboard = Dashboard::start(receiver, &["--view"]);
    thread::scope(|scope| {
        for _ in 0..31 {
            scope.spawn(|| {
                let mut page = dashboard.ask("/event?source=github&id=large");
                page.read_to_end(&mut Vec::new()).unwrap();
            });
        }
    });
}

fn slow_readers(receiver: &Receiver) {
    let targets = ["/v1/events/large/body?source=github&variant=0", "/v1/events/large?variant=0"];
    let held: Vec<UnixStream> = (0..24)
        .map(|nth| {
            let mut stream = UnixStream::connect(receiver.reading_socket()).unwrap();
            write!(stream, "GET {} HTTP/1.1\r\nHost: x\r\n\r\n", targets[nth % 2]).unwrap();
            stream
        })
        .collect();
    thread::sleep(HELD);
    drop(held);
}

fn pipelined(receiver: &Receiver) {
    let requests = "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20_000);
    let held: Vec<UnixStream> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(receiver.reading_socket()).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            // As many as the receiver reads.
            let _full = stream.write_all(requests.as_bytes());
            stream
        })
        .collect();
    thread::sleep(HELD);
    drop(held);
}

fn downloads(receiver: &Receiver) {
    let dashboard = Dashboard::start(receiver, &[]);
    let held: Vec<TcpStream> =
        (0..31).map(|_| dashboard.ask("/raw?source=github&id=large")).collect();
    thread::sleep(HELD);
    drop(held);
}

/// A dashboard and its session. Dropping it ends the process.
struct Dashboard {
    process: Child,
    host: String,
    cookie: String,
}

impl Dashboard {
    fn start(receiver: &Receiver, options: &[&str]) -> Self {
        let mut command = receiver.command("ui");
        command.args(["--port", "0"]).args(options);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let (host, link) = address.split_once('/').unwrap();
        let mut dashboard = Dashboard { process, host: host.to_owned(), cookie: String::new() };
        let mut answer = String::new();
        dashboard.ask(&format!("/{link}")).read_to_string(&mut answer).unwrap();
        let mut lines = answer.lines().filter_map(|line| line.split_once(": "));
        let (_, cookie) = lines.find(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).unwrap();
        dashboard.cookie = cookie.split(';').next().unwrap().to_owned();
        dashboard
    }

    fn ask(&self, path: &str) -> TcpStream {
        // Its name, NAME.localhost, is one that browsers alone resolve everywhere.
        let (_, port) = self.host.split_once(':').unwrap();
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let (host, cookie) = (&self.host, &self.cookie);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").unwrap();
        stream
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
