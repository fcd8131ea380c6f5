//! No request fails or is dropped while a reload replaces the configuration.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{forward, jobs, reload};
use crate::support::{PATIENCE, SECRET, Site, hex, hmac};

const RELOADS: usize = 50;

/// A keep-alive connection, as a proxy uses.
struct Kept(TcpStream);

impl Kept {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Kept(stream)
    }

    /// Delivers an event and returns the head of the answer.
    fn deliver(&mut self, id: &str) -> String {
        let body = format!("{{\"id\":\"{id}\"}}");
        let (length, signature) = (body.len(), hex(&hmac(SECRET, body.as_bytes())));
        let request = format!(
            "POST /github HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\
             X-GitHub-Delivery: {id}\r\nX-GitHub-Event: push\r\n\
             X-Hub-Signature-256: sha256={signature}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let head = String::from_utf8(answer).unwrap().to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        self.0.read_exact(&mut vec![0; length]).unwrap();
        head
    }
}

#[test]
fn fifty_reloads_fail_no_request_and_match_each_event_with_one_configuration() {
    let pairs = [["a1", "a2"], ["b1", "b2"]];
    let handlers = pairs.map(|pair| pair.map(|name| forward(name, "github")).concat());
    let limits = "[limits]\nlist_count = 100000\n";
    let site = Site::with(limits, &handlers[0]);
    let receiver = site.start();
    for name in pairs.as_flattened() {
        site.configure(limits, &handlers.concat());
        assert!(site.run(&["pause", name]).status.success());
    }
    let (done, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for provider in 0..4 {
            let (done, sent, address) = (&done, &sent, receiver.address);
            scope.spawn(move || {
                let mut kept = Kept::connect(address);
                for nth in 0.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    if provider % 2 == 0 {
                        kept = Kept::connect(address);
                    }
                    let head = kept.deliver(&format!("d-{provider}-{nth}"));
                    assert!(head.starts_with("http/1.1 200"), "{head}");
                    // A reload must not close the connection.
                    assert!(!head.contains("connection: close"), "{head}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for nth in 1..=RELOADS {
            let before = sent.load(Ordering::Relaxed);
            site.configure(limits, &handlers[nth % 2]);
            let reloaded = reload(&site);
            assert_eq!(reloaded["handlers"]["added"], serde_json::json!(pairs[nth % 2]), "{nth}");
            // Each configuration must serve some requests.
            while sent.load(Ordering::Relaxed) < before + 8 {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let sent = sent.into_inner();
    let jobs = jobs(&site);
    eprintln!("{RELOADS} reloads, {sent} requests, none failed, {} jobs", jobs.len());
    assert_eq!(jobs.len(), sent * 2);
    let mut by_event = BTreeMap::<&str, Vec<&str>>::new();
    for job in &jobs {
        let (event, handler) =
            (job["event_id"].as_str().unwrap(), job["handler"].as_str().unwrap());
        by_event.entry(event).or_default().push(handler);
    }
    assert_eq!(by_event.len(), sent);
    let mut matched = [0; 2];
    for (event, mut handlers) in by_event {
        handlers.sort();
        let which = pairs.iter().position(|pair| *pair == handlers[..]);
        matched[which.unwrap_or_else(|| panic!("{event}: {handlers:?}"))] += 1;
    }
    assert!(matched.iter().all(|count| *count > 0), "{matched:?}");
}
