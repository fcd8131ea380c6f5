//! Stalled uploads and floods do not fill the memory and do not block genuine deliveries.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hooklatch::admin::reading_socket_path;
use hooklatch::limits::ADMIN_BODIES;

use crate::support::{PATIENCE, SECRET, Site, hex, hmac, post, resident_bytes};
use crate::ui::Dashboard;

const BODY_BYTES: usize = 25 * 1024 * 1024;

#[test]
fn a_serving_receiver_has_returned_the_memory_of_its_start() {
    let site = Site::new("");
    let receiver = site.start();
    let end = Instant::now() + PATIENCE;
    let kib = |field: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", receiver.pid())).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        value.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // If no memory is returned, the peak equals the current size.
    while kib("VmHWM:") < kib("VmRSS:") + 256 {
        assert!(Instant::now() < end, "{} KiB and more are resident", kib("VmRSS:"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(receiver.github("1", "push", "{}").0, 200);
}

#[test]
fn two_hundred_stalled_uploads_stay_under_200_mib_and_do_not_block_deliveries() {
    let site = Site::new("");
    let receiver = site.start();
    let signature = hex(&hmac(SECRET, b"never sent whole"));
    let head = format!(
        "POST /github HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\
         X-GitHub-Delivery: 1\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n"
    );
    // Each upload sends less than its declared length, as far as the receiver reads it.
    let part = vec![b'x'; 1024 * 1024];
    let uploads: Vec<_> = (0..200)
        .map(|_| {
            let (head, part, address) = (head.clone(), part.clone(), receiver.address);
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
                for _ in 0..24 {
                    if stream.write_all(&part).is_err() {
                        break;
                    }
                }
                stream
            })
        })
        .collect();
    let stalled: Vec<_> = uploads.into_iter().map(|upload| upload.join().unwrap()).collect();
    for n in 0..20 {
        let (status, answer) =
            receiver.github(&format!("honest-{n}"), "push", &format!("{{\"n\":{n}}}"));
        assert_eq!((status, answer["status"].as_str()), (200, Some("accepted")), "delivery {n}");
    }
    let resident = resident_bytes(receiver.pid());
    eprintln!("{} MiB resident with 200 stalled uploads", resident >> 20);
    assert!(resident < 200 << 20, "{} MiB resident", resident >> 20);
    drop(stalled);
}

#[test]
fn pipelined_requests_are_not_buffered_in_memory() {
    let site = Site::new("");
    let receiver = site.start();
    let ahead = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4000);
    // Each connection sends as many requests as the socket takes, and does not read answers.
    let floods: Vec<_> = (0..100)
        .map(|n| {
            let body = format!("{{\"flood\":{n}}}");
            let signature = hex(&hmac(SECRET, body.as_bytes()));
            let first = format!(
                "POST /github HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
                 X-GitHub-Delivery: flood-{n}\r\nX-GitHub-Event: push\r\n\
                 X-Hub-Signature-256: sha256={signature}\r\n\r\n{body}",
                body.len()
            );
            let mut stream = TcpStream::connect(receiver.address).unwrap();
            stream.set_write_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
            stream.write_all(first.as_bytes()).unwrap();
            let _full = stream.write_all(ahead.as_bytes());
            stream
        })
        .collect();
    for n in 0..20 {
        let (status, _) =
            receiver.github(&format!("honest-{n}"), "push", &format!("{{\"n\":{n}}}"));
        assert_eq!(status, 200, "delivery {n}");
    }
    let resident = resident_bytes(receiver.pid());
    assert!(resident < 100 << 20, "{} MiB resident", resident >> 20);
    drop(floods);
}

/// In JSON each byte of the first event would take six. The second has more than any signed provider sends, and half of
/// that under zstd.
#[test]
fn readers_add_at_most_64_mib_and_keep_no_small_answer_waiting() {
    // Waits long enough for the unoptimised program on a busy machine.
    let source = "[sources.raised]\nprovider = \"bearer\"\npath = \"/raised\"\nsecrets = [\"file:secret\"]\n\
                  max_body = \"100 MiB\"\n[limits]\naccept_wait_millis = \"1m\"\n";
    let site = Site::with(source, "");
    let receiver = site.start();
    let body = "\u{1}".repeat(24 << 20);
    assert_eq!(receiver.github("large", "push", &body).0, 200);
    let mut random = 1_u64;
    let digits = (0..(40 << 20) / 16).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{random:016x}")
    });
    let digits: String = digits.collect();
    let headers = format!("Authorization: Bearer {SECRET}\r\nIdempotency-Key: raised\r\n");
    assert_eq!(post(receiver.address, "/raised", &headers, digits.as_bytes()).0, 200);
    let socket = reading_socket_path(&site.store());
    let connect = || {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        stream
    };
    let ask = |target: &str, times: usize| {
        let mut stream = connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        let _full = stream.write_all(request.repeat(times).as_bytes());
        stream
    };
    let status_of = |mut stream: UnixStream| {
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let paths = [
        "/v1/events/large/body?source=github&variant=0",
        "/v1/events/raised/body?source=raised&variant=0",
    ];
    for (path, bytes) in [(paths[1], digits.len()), (paths[0], body.len())] {
        let mut stream = connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let is_whole = answer.ends_with(b"\r\n0\r\n\r\n");
        assert!(is_whole && answer.len() > bytes, "{path}: {} bytes", answer.len());
    }
    // With them the memory of the deliveries was given back.
    let before = resident_bytes(receiver.pid());
    let slow: Vec<_> = (0..12)
        .map(|nth| ask(paths[nth % 2], 1))
        .chain((0..12).map(|_| ask("/v1/events/large?variant=0", 1)))
        .chain((0..30).map(|_| ask("/v1/status", 20_000)))
        .collect();
    assert_eq!(status_of(ask("/v1/info", 1)), "200");
    assert_eq!(status_of(ask("/v1/events/large", 1)), "200");
    assert_eq!(status_of(ask("/v1/payload-check", 1)), "200");
    let added = resident_bytes(receiver.pid()).saturating_sub(before);
    assert!(added < 64 << 20, "{} MiB added", added >> 20);
    drop(slow);
}

/// As many bodies are passed on as may be at once, to readers that take nothing.
#[test]
fn an_event_is_shown_without_its_body_while_that_cannot_be_read() {
    let site = Site::new("");
    let receiver = site.start();
    let body = "\u{1}".repeat(8 << 20);
    assert_eq!(receiver.github("large", "push", &body).0, 200);
    let dashboard = Dashboard::start(&site, &[]).enter();
    let slow = || {
        let mut stream = UnixStream::connect(reading_socket_path(&site.store())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let path = "/v1/events/large/body?source=github&variant=0";
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        // It has begun.
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    let slow: Vec<UnixStream> = (0..ADMIN_BODIES).map(|_| slow()).collect();
    let page = dashboard.get("/event?source=github&id=large");
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("It cannot be read now"), "{}", page.body);
    let shown = site.run(&["show", "large"]);
    let said = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(69), "{said}");
    assert!(said.contains("push") && said.contains("which cannot be read now"), "{said}");
    let raw = site.run(&["show", "large", "--body"]);
    assert_eq!((raw.status.code(), raw.stdout.len()), (Some(69), 0));
    drop(slow);
    let raw = site.run(&["show", "large", "--body"]);
    assert_eq!((raw.status.code(), raw.stdout.len()), (Some(0), body.len()));
}

#[test]
fn two_hundred_stalled_chunked_uploads_stay_under_200_mib() {
    let site = Site::new("");
    let receiver = site.start();
    let signature = hex(&hmac(SECRET, b"never sent whole"));
    let head = format!(
        "POST /github HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
         X-GitHub-Delivery: 1\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n"
    );
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    let uploads: Vec<_> = (0..200)
        .map(|_| {
            let (head, chunk, address) = (head.clone(), chunk.clone(), receiver.address);
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                let _refused = (0..24).try_for_each(|_| stream.write_all(&chunk));
                stream
            })
        })
        .collect();
    let stalled: Vec<_> = uploads.into_iter().map(|upload| upload.join().unwrap()).collect();
    for n in 0..20 {
        let (status, _) =
            receiver.github(&format!("honest-{n}"), "push", &format!("{{\"n\":{n}}}"));
        assert_eq!(status, 200, "delivery {n}");
    }
    let resident = resident_bytes(receiver.pid());
    assert!(resident < 200 << 20, "{} MiB resident", resident >> 20);
    drop(stalled);
}
