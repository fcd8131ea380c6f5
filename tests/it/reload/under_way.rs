//! Fifty reloads while work of every kind is under way: nothing fails, is unknown or runs twice.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::reload::{jobs, reload, reload_fails};
use crate::support::caller::{answer, by, send};
use crate::support::{PATIENCE, SECRET, Site, hex, hmac};

const RELOADS: u64 = 50;

const LIMITS: &str = "[limits]\nlist_count = 100000\n";

const PAY: &str = r#"
[sources.pay]
provider = "bearer"
path = "/pay"
reply = "handler"
reply_wait = "REPLY"
[sources.pay.callers]
shop = ["file:shop"]
"#;

const HANDLERS: &str = r#"
[handlers.slow]
source = "github"
events = ["*"]
forward = "http://ENDPOINT/slow"
on_unknown = "hold"
concurrency = SLOTS
timeout = "TIMEOUT"
[handlers.work]
source = "github"
events = ["*"]
command = ["./work"]
concurrency = SLOTS
timeout = "TIMEOUT"
[handlers.charge]
source = "pay"
events = ["*"]
forward = "http://ENDPOINT/charge"
on_unknown = "hold"
concurrency = SLOTS
timeout = "TIMEOUT"
"#;

/// Ends once the next reload is over: so each command is under way at a reload.
const WORK: &str = r#"
echo "$HOOKLATCH_EVENT_ID" >> "$SITE/ran"
read then < "$SITE/reloads"
now=$then
while [ "$now" = "$then" ]; do sleep 0.02; read now < "$SITE/reloads"; done
"#;

/// The work under way, by kind: `slow`, `charge`, `half`.
#[derive(Default)]
struct Progress {
    /// Reloads that are over.
    reloads: u64,
    /// The kinds that have begun since the last reload.
    begun: Vec<&'static str>,
    done: bool,
}

/// The progress of the test, and the waits for it.
#[derive(Default)]
struct Course {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Course {
    /// Notes that something of this kind has begun, and waits until the next reload is over.
    fn spans_a_reload(&self, kind: &'static str) {
        let mut progress = self.progress.lock().unwrap();
        let then = progress.reloads;
        progress.begun.push(kind);
        self.changed.notify_all();
        self.until(progress, "the next reload", |now| now.reloads > then || now.done);
    }

    /// Waits until something of each kind is under way.
    fn all_begun(&self) {
        let kinds = ["slow", "charge", "half"];
        let begun = |now: &Progress| kinds.iter().all(|kind| now.begun.contains(kind));
        self.until(self.progress.lock().unwrap(), "work under way", begun);
    }

    fn until(
        &self,
        progress: std::sync::MutexGuard<'_, Progress>,
        what: &str,
        wanted: impl Fn(&Progress) -> bool,
    ) {
        let waited =
            self.changed.wait_timeout_while(progress, PATIENCE, |now| !wanted(now)).unwrap();
        assert!(!waited.1.timed_out(), "gave up waiting for {what}");
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().unwrap());
        self.changed.notify_all();
    }

    fn is_done(&self) -> bool {
        self.progress.lock().unwrap().done
    }
}

/// A local endpoint that answers each request once the next reload is over, with the job's key.
struct Endpoint {
    address: SocketAddr,
    /// The keys of all requests, by path.
    keys: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Endpoint {
    fn listen(course: Arc<Course>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let keys: Arc<Mutex<Vec<_>>> = Arc::default();
        let seen = Arc::clone(&keys);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (course, seen) = (Arc::clone(&course), Arc::clone(&seen));
                thread::spawn(move || answer_slowly(stream.unwrap(), &course, &seen));
            }
        });
        Endpoint { address, keys }
    }
}

fn answer_slowly(
    mut stream: TcpStream,
    course: &Course,
    seen: &Mutex<Vec<(&'static str, String)>>,
) {
    let mut from = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_ascii_lowercase();
        let field = |name: &str| {
            let begin = format!("{name}: ");
            head.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default().to_owned()
        };
        let length = field("content-length").parse().unwrap();
        from.read_exact(&mut vec![0; length]).unwrap();
        let path = if head.starts_with("post /charge ") { "charge" } else { "slow" };
        let key = field("idempotency-key");
        seen.lock().unwrap().push((path, key.clone()));
        course.spans_a_reload(path);
        let length = key.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{key}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Delivers an event whose body arrives in two halves, and calls `between` between them. Returns the status.
fn deliver(address: SocketAddr, id: &str, between: impl FnOnce()) -> u16 {
    let body = format!("{{\"id\":\"{id}\"}}");
    let signature = hex(&hmac(SECRET, body.as_bytes()));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /github HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {}\r\n\
         X-GitHub-Delivery: {id}\r\nX-GitHub-Event: push\r\n\
         X-Hub-Signature-256: sha256={signature}\r\n\r\n",
        body.len()
    );
    let (first, second) = body.split_at(body.len() / 2);
    stream.write_all(format!("{head}{first}").as_bytes()).unwrap();
    between();
    stream.write_all(second.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The configuration number `nth`: each differs from the one before it in every handler and source.
fn configuration(site: &Site, endpoint: &Endpoint, nth: u64) {
    let (slots, timeout, reply) =
        if nth.is_multiple_of(2) { ("2", "50s", "40s") } else { ("4", "55s", "45s") };
    let handlers = HANDLERS
        .replace("ENDPOINT", &endpoint.address.to_string())
        .replace("SLOTS", slots)
        .replace("TIMEOUT", timeout);
    site.configure(&format!("{LIMITS}{}", PAY.replace("REPLY", reply)), &handlers);
}

/// Tells the commands how many reloads are over.
fn tell_commands(site: &Site, reloads: u64) {
    let new = site.path("reloads.new");
    fs::write(&new, format!("{reloads}\n")).unwrap();
    fs::rename(new, site.path("reloads")).unwrap();
}

#[test]
fn fifty_reloads_fail_nothing_leave_nothing_unknown_and_run_nothing_twice() {
    let course = Arc::new(Course::default());
    let endpoint = Endpoint::listen(Arc::clone(&course));
    let site = Site::with(LIMITS, "");
    fs::write(site.path("shop"), "shop-token").unwrap();
    site.script("work", WORK);
    tell_commands(&site, 0);
    configuration(&site, &endpoint, 0);
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    let began = Instant::now();

    let (delivered, answered) = thread::scope(|scope| {
        let (course, receiver) = (&*course, &receiver);
        // One event in halves and two whole ones for each reload.
        let deliveries = scope.spawn(move || {
            let mut delivered = BTreeSet::new();
            for nth in 0.. {
                for part in ["a", "b"] {
                    let id = format!("d-{nth}-{part}");
                    assert_eq!(deliver(receiver.address, &id, || ()), 200, "{id}");
                    delivered.insert(id);
                }
                let id = format!("d-{nth}-half");
                let status = deliver(receiver.address, &id, || course.spans_a_reload("half"));
                assert_eq!(status, 200, "{id}");
                delivered.insert(id);
                if course.is_done() {
                    break;
                }
            }
            delivered
        });
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                scope.spawn(move || {
                    let mut keys = BTreeSet::new();
                    for nth in 0.. {
                        let order = format!("order-{caller}-{nth}");
                        let stream = send(receiver.address, &by("shop", &order), "{}").unwrap();
                        let answered = answer(stream).unwrap_or_else(|| panic!("{order}: none"));
                        let created = answered.result.as_deref() == Some("created");
                        assert!(answered.status == 200 && created, "{order}: {answered:?}");
                        assert!(keys.insert(answered.body), "{order} has another one's answer");
                        if course.is_done() {
                            break;
                        }
                    }
                    keys
                })
            })
            .collect();
        for nth in 1..=RELOADS {
            course.all_begun();
            if nth.is_multiple_of(10) {
                site.configure(LIMITS, "[handlers.work]\nsource = \"github\"\n");
                reload_fails(&site, 78);
            }
            configuration(&site, &endpoint, nth);
            let handlers = reload(&site)["handlers"].clone();
            assert_eq!(handlers["changed"], json!(["charge", "slow", "work"]), "{nth}");
            tell_commands(&site, nth);
            course.change(|progress| {
                progress.reloads = nth;
                progress.begun.clear();
                progress.done = nth == RELOADS;
            });
        }
        let callers = callers.into_iter().map(|caller| caller.join().unwrap());
        let answered: Vec<BTreeSet<String>> = callers.collect();
        (deliveries.join().unwrap(), answered)
    });

    // The commands that are left wait for another number.
    let mut reloads = RELOADS;
    let end = Instant::now() + PATIENCE;
    let unsettled = |job: &serde_json::Value| job["state"] != "succeeded";
    let settled = loop {
        reloads += 1;
        tell_commands(&site, reloads);
        let jobs = jobs(&site);
        if !jobs.iter().any(unsettled) {
            break jobs;
        }
        assert!(Instant::now() < end, "not settled: {:#?}", jobs.iter().find(|job| unsettled(job)));
        thread::sleep(Duration::from_millis(20));
    };
    let of = |handler: &str| settled.iter().filter(|job| job["handler"] == handler).count();
    let charges: usize = answered.iter().map(BTreeSet::len).sum();
    assert_eq!(
        (of("slow"), of("work"), of("charge")),
        (delivered.len(), delivered.len(), charges),
        "each event has its jobs"
    );
    assert!(settled.iter().all(|job| job["attempt"] == 1), "nothing ran again: {settled:#?}");

    let keys = endpoint.keys.lock().unwrap();
    let once: BTreeSet<_> = keys.iter().collect();
    assert_eq!(keys.len(), delivered.len() + charges);
    assert_eq!(once.len(), keys.len(), "each is asked once");
    let ran = site.lines("ran");
    let once: BTreeSet<_> = ran.iter().cloned().collect();
    assert_eq!((&once, ran.len()), (&delivered, delivered.len()), "each ran once");
    eprintln!(
        "{RELOADS} reloads in {:?}: {} deliveries, {charges} answers, {} jobs",
        began.elapsed(),
        delivered.len(),
        settled.len()
    );
    assert_eq!(receiver.stop(), Some(0));
}
