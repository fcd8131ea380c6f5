//! Measures the dashboard with many events stored: how long each page takes during a flood of deliveries, and what
//! one page a second costs the flood.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::accepts::Fresh;
use super::load::{flood, quantile};
use super::requests::{FIRST_AT, Kind, requests, small};
use super::site::{Receiver, Site};
use super::size::settle;
use super::start::{copies, in_one_step};
use super::table::{Bounds, Good, Table};

/// The number of stored events, if [`EVENTS_VARIABLE`] does not say another.
const STORED: usize = 1_000_000;

const EVENTS_VARIABLE: &str = "HOOKLATCH_BENCH_EVENTS";

/// The time in which the stored events came. It is shorter than any time after which retention deletes something.
const DAYS: usize = 6;

/// The concurrent connections of the flood.
const CONNECTIONS: usize = 64;

/// The deliveries of one flood during which pages are asked: two seconds.
const FLOOD: usize = 20_000;

/// The floods of the measurement of pages at most: a page that takes a second gets its answers in these.
const FLOODS: usize = 200;

/// The deliveries of one round that is compared: some six seconds, or two in a short run.
const ROUND: usize = 60_000;
const SHORT_ROUND: usize = 20_000;

/// The answers of each page: the p99 is the second slowest one, or in a short run the slowest.
const ANSWERS: usize = 120;
const SHORT_ANSWERS: usize = 10;

/// The answers of each page without a flood, of which the median is shown.
const ALONE: usize = 5;

/// A bound of the product: a page takes no longer, in milliseconds.
const PAGE_MILLIS: f64 = 200.0;

/// A bound of the product: one page a second costs accepts no more than this share.
const COST: f64 = 0.1;

/// How often one page is asked while accepts are compared.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest wait for one page.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of the dashboard, which are not pages.
const ASSETS: &str = "/assets/";

/// Failed deliveries in the quarantine, and changes in the audit list, which is full.
const FAILED: usize = 2_000;
const CHANGES: usize = 100_000;

/// `job` takes the flood and is paused. `watch` has running attempts. Of the other two most jobs are stored. Some
/// sources have had no event.
const HANDLERS: &str = r#"
[sources.chat]
provider = "github"
path = "/chat"
secrets = ["file:secret"]
[sources.forum]
provider = "github"
path = "/forum"
secrets = ["file:secret"]
[sources.shop]
provider = "github"
path = "/shop"
secrets = ["file:secret"]
[sources.rare]
provider = "github"
path = "/rare"
secrets = ["file:secret"]
[handlers.job]
source = "github"
events = ["*"]
command = ["/bin/true"]
[handlers.fulfil]
source = "stripe"
events = ["invoice.*"]
command = ["/bin/true"]
[handlers.books]
source = ["stripe", "github"]
events = ["customer.*"]
command = ["/bin/true"]
[handlers.watch]
source = "rare"
events = ["*"]
command = ["/bin/sleep", "600"]
concurrency = 4
"#;

pub(crate) fn measure(table: &Table) {
    let stored = std::env::var(EVENTS_VARIABLE).map_or(STORED, |text| text.parse().unwrap());
    let pages_name = format!("dashboard, {stored} events: p99 of the slowest page in a flood");
    let cost_name = format!("dashboard, {stored} events: accepts with one page a second");
    if !table.wants(&pages_name) && !table.wants(&cost_name) {
        return;
    }
    let site = Site::new(HANDLERS);
    let begun = Instant::now();
    fill(&site, stored);
    let mut pages = pages(&site, stored);
    let receiver = site.start();
    let begun_before = begun.elapsed().as_secs_f64();
    let gib = std::fs::metadata(site.store()).unwrap().len() as f64 / f64::from(1 << 30);
    table.remark(&format!("  {stored} events: {gib:.2} GiB, stored in {begun_before:.0} s"));
    run_some(&site, &receiver);
    let dashboard = Dashboard::start(&site);
    // It needs no receiver: what it takes in a flood is the machine's.
    pages.push(Page::of(dashboard.file()));
    let fresh = Fresh::default();
    if table.wants(&pages_name) {
        let worst = pages_in_a_flood(table, &receiver, &dashboard, &fresh, &mut pages);
        let bounds = Bounds { good: Good::Low, floor: PAGE_MILLIS, aim: 60.0 };
        table.alone(&pages_name, bounds, "ms", worst);
    }
    if table.wants(&cost_name) {
        cost(table, &cost_name, &receiver, &dashboard, &fresh, &pages);
    }
}

/// Stores so many events of the last days, with a job each, its attempt and its payload: 97 % of the jobs have
/// succeeded, 1 % are dead, 1.7 % dropped, and each of held, waiting and ready ones are 0.1 %.
///
/// The rows are copies of those of one real delivery, with other values. The schema checks each of them.
fn fill(site: &Site, events: usize) {
    let receiver = site.start();
    // A number that the flood does not use.
    flood(receiver.address, &[small("/github", 1 << 40)], 1, 200);
    settle(site);
    for handler in ["job", "fulfil", "books"] {
        site.run(&["pause", handler]);
    }
    let failed: Vec<Vec<u8>> =
        (0..FAILED as u64).map(|number| forged((1 << 41) + number)).collect();
    flood(receiver.address, &failed, CONNECTIONS, 401);
    receiver.stop();

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let step = (DAYS * 86_400_000) as f64 / events as f64;
    let at = format!("{} - CAST(({events} - n) * {step} AS INTEGER)", now.as_millis());
    let later = format!("{at} + 1000");
    let tomorrow = (now.as_millis() + 86_400_000).to_string();

    // Six events of the rare source, the last one in the middle of all.
    let rare = format!("n % {} = 0 AND n * 2 <= {events}", events / 12);
    let source =
        format!("CASE WHEN {rare} THEN 'rare' WHEN n % 10 < 6 THEN 'stripe' ELSE 'github' END");
    // GitHub's ids are those before the first of `requests`, 10 µs apart.
    let event_id = format!(
        "CASE WHEN n % 10 < 6 THEN printf('evt_%010xAccountOfAll', n) || lower(hex(randomblob(4)))
         ELSE (SELECT unhex(printf('%08x%04x1%03x9', at & 0xffffffff, at >> 32 & 0xffff, at >> 48)
             || substr(hex(randomblob(8)), 2)) FROM (SELECT {FIRST_AT} - ({events} - n) * 100 AS at)) END"
    );
    let event_type = "CASE n % 10 WHEN 0 THEN 'invoice.paid' WHEN 1 THEN 'invoice.created'
         WHEN 2 THEN 'customer.updated' WHEN 3 THEN 'customer.created' WHEN 4 THEN 'charge.succeeded'
         WHEN 5 THEN CASE WHEN n % 1000 = 5 THEN 'charge.dispute.created' ELSE 'payout.paid' END
         WHEN 6 THEN 'issues' WHEN 7 THEN 'pull_request' ELSE 'push' END";

    // One dead job alone has its reason, and lies far back.
    let alone = format!("n = {}", events / 100);
    let place = "n * 7919 % 10000";
    let state = format!(
        "CASE WHEN {alone} OR {place} < 100 THEN 'dead' WHEN {place} < 110 THEN 'held'
         WHEN {place} < 120 THEN 'waiting' WHEN {place} < 130 THEN 'ready' WHEN {place} < 300 THEN 'dropped'
         ELSE 'succeeded' END"
    );
    let reason = format!(
        "CASE WHEN {alone} THEN 'payload gone' WHEN {place} < 60 THEN 'attempts exhausted'
         WHEN {place} < 100 THEN 'rejected' WHEN {place} < 107 THEN 'unknown outcome'
         WHEN {place} < 109 THEN 'cancelled' WHEN {place} < 110 THEN 'suspected replay'
         WHEN {place} BETWEEN 130 AND 299 THEN 'by the operator' END"
    );
    // Ready jobs are of a paused handler, as the others are.
    let handler = format!(
        "CASE WHEN {place} BETWEEN 120 AND 129 THEN 'job' WHEN {place} % 3 = 0 THEN 'books' ELSE 'fulfil' END"
    );
    let is_settled = format!("({alone} OR {place} < 100 OR {place} >= 130)");
    let settled_at = format!("CASE WHEN {is_settled} THEN {later} END");
    let due_at = format!("CASE WHEN {place} BETWEEN 110 AND 119 THEN {tomorrow} END");
    // A UUID of version 7, which begins with its time.
    let job_id =
        format!("unhex(printf('%012x7%03x8', {at}, n & 0xfff) || substr(hex(randomblob(8)), 2))");
    let outcome = format!(
        "CASE WHEN {place} BETWEEN 60 AND 99 THEN 'rejected' WHEN {place} BETWEEN 100 AND 109 THEN 'unknown'
         WHEN {place} < 130 THEN 'failed' ELSE 'succeeded' END"
    );
    let detail = format!("CASE WHEN {place} < 130 THEN 'exit status 1' ELSE '' END");
    let printed = format!(
        "CASE WHEN {place} < 130 THEN CAST('error: order ' || n || ': database is locked' || char(10) AS BLOB)
         ELSE x'' END"
    );
    let printed_bytes = format!("length({printed})");

    let store = Connection::open(site.store()).unwrap();
    let copy = |table: &str, rows: usize, values: &[(&str, &str)]| {
        copies(&store, table, rows, values);
    };
    in_one_step(&store, || {
        let digest = ("digest", "randomblob(32)");
        let (source, event_id) = (("source", source.as_str()), ("event_id", event_id.as_str()));
        let event_type = ("type", event_type);
        let received = ("received_at", at.as_str());
        copy("event", events, &[("row", "n"), source, event_id, event_type, digest, received]);
        copy("payload", events, &[("event", "n")]);
        let what = [("state", state.as_str()), ("reason", &reason), ("handler", &handler)];
        let times = [("since", at.as_str()), ("created_at", &at)];
        let ends = [("settled_at", settled_at.as_str()), ("due_at", &due_at)];
        let own = [("row", "n"), ("event", "n"), ("id", job_id.as_str())];
        copy("job", events, &[&own[..], &what, &times, &ends].concat());
        let times = [("started_at", at.as_str()), ("finished_at", &later)];
        let ends = [("outcome", outcome.as_str()), ("detail", &detail)];
        let output = [("stderr_head", printed.as_str()), ("stderr_total", &printed_bytes)];
        copy("attempt", events, &[&[("job", "n")][..], &times, &ends, &output].concat());
        // Three are there.
        copy("audit", CHANGES - 2, &[("row", "n + 2"), ("at", "at + n")]);
    });
    drop(store);
    // The kernel is not to write gigabytes of it during the measurement.
    File::open(site.store()).unwrap().sync_all().unwrap();
}

/// A delivery whose signature is wrong.
fn forged(number: u64) -> Vec<u8> {
    let request = String::from_utf8(small("/github", number)).unwrap();
    let (head, signature) = request.split_once("sha256=").unwrap();
    let last = if signature.starts_with('0') { '1' } else { '0' };
    format!("{head}sha256={last}{}", &signature[1..]).into_bytes()
}

/// Four events of `watch`, whose attempts run until the end.
fn run_some(site: &Site, receiver: &Receiver) {
    let some: Vec<Vec<u8>> = (0..4).map(|number| small("/rare", (1 << 42) + number)).collect();
    flood(receiver.address, &some, 1, 200);
    let begun = Instant::now();
    while site.run(&["jobs", "--state", "running", "--json"]).matches("\"watch\"").count() < 4 {
        assert!(begun.elapsed() < PATIENCE, "the attempts of `watch` do not run");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A page and how long it took.
struct Page {
    path: String,
    alone: Vec<Duration>,
    in_flood: Vec<Duration>,
    bytes: usize,
}

impl Page {
    fn of(path: String) -> Self {
        Page { path, alone: Vec::new(), in_flood: Vec::new(), bytes: 0 }
    }
}

/// The measured pages of a stopped store with so many events.
fn pages(site: &Site, events: usize) -> Vec<Page> {
    let store =
        Connection::open_with_flags(site.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let text = |sql: &str| -> String {
        store.query_row(sql, [(events / 2) as i64], |row| row.get(0)).unwrap()
    };
    let id = |sql: &str| -> Uuid {
        let bytes: [u8; 16] = store.query_row(sql, [events as i64], |row| row.get(0)).unwrap();
        Uuid::from_bytes(bytes)
    };
    let old = text(
        "SELECT event_id FROM event WHERE row <= ?1 AND +source = 'stripe' ORDER BY row DESC LIMIT 1",
    );
    let dead = text(
        "SELECT e.event_id FROM job j JOIN event e ON e.row = j.event
         WHERE j.state = 'dead' AND j.row <= ?1 AND +e.source = 'stripe' ORDER BY j.row DESC LIMIT 1",
    );
    let job = id("SELECT id FROM job WHERE state = 'dead' AND row <= ?1 ORDER BY row DESC LIMIT 1");
    let middle = events / 2;
    let group = "state=dead&handler=fulfil&reason=rejected&said=exit+status+1";
    // The only job of its cause, far back.
    let alone = "state=dead&handler=books&reason=payload+gone&said=exit+status+1";
    let paths = [
        "/".to_owned(),
        "/inbox".to_owned(),
        format!("/inbox?{group}"),
        "/inbox?state=held&handler=fulfil&reason=cancelled&said=exit+status+1".to_owned(),
        format!("/inbox?{alone}"),
        "/events".to_owned(),
        "/events?source=stripe".to_owned(),
        "/events?source=rare".to_owned(),
        "/events?type=invoice.*".to_owned(),
        "/events?type=charge.dispute.created".to_owned(),
        "/events?type=none".to_owned(),
        "/events?state=succeeded".to_owned(),
        "/events?state=dead".to_owned(),
        "/events?state=held".to_owned(),
        "/events?state=waiting".to_owned(),
        "/events?state=running".to_owned(),
        "/events?since=1h".to_owned(),
        "/events?since=5d".to_owned(),
        "/events?source=stripe&type=none&state=dead&since=5d".to_owned(),
        format!("/events?before={middle}"),
        format!("/events?source=stripe&before={middle}"),
        format!("/events?state=dead&before={middle}"),
        format!("/events?source=github&type=invoice.*&before={middle}"),
        format!("/event?source=stripe&id={old}"),
        format!("/event?id={dead}"),
        format!("/find?id={}", &old[..14]),
        "/handlers".to_owned(),
        "/sources".to_owned(),
        "/quarantine".to_owned(),
        "/audit".to_owned(),
        format!("/audit?before={}", CHANGES / 2),
        "/audit?verb=reload".to_owned(),
        "/change/pause?handler=fulfil".to_owned(),
        format!("/change/replay-job?job={job}&attempt=1"),
        format!("/change/replay?{group}"),
        format!("/change/drop?{alone}"),
        "/change/accept".to_owned(),
    ];
    paths.into_iter().map(Page::of).collect()
}

/// Asks for each page in turn while deliveries come in at full rate. Returns the p99 of the slowest page in
/// milliseconds, without files of the dashboard.
fn pages_in_a_flood(
    table: &Table,
    receiver: &Receiver,
    dashboard: &Dashboard,
    fresh: &Fresh,
    pages: &mut [Page],
) -> f64 {
    for page in pages.iter_mut() {
        for _ in 0..ALONE {
            let (took, bytes) = dashboard.get(&page.path);
            page.alone.push(took);
            page.bytes = bytes;
        }
    }
    let answers = if table.is_short() { SHORT_ANSWERS } else { ANSWERS };
    let count = pages.len();
    let mut left = (0..answers * count).map(|nth| nth % count).peekable();
    let (mut accepted, mut seconds) = (0, 0.0);
    for _ in 0..FLOODS {
        if left.peek().is_none() {
            break;
        }
        let deliveries = fresh.take(Kind::GitHub, FLOOD);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                let flood = flood(receiver.address, &deliveries, CONNECTIONS, 200);
                is_over.store(true, Relaxed);
                flood.took
            });
            // A page that is asked before the flood's end counts.
            while !is_over.load(Relaxed)
                && let Some(at) = left.next()
            {
                let page = &mut pages[at];
                page.in_flood.push(dashboard.get(&page.path).0);
            }
            seconds += flooding.join().unwrap().as_secs_f64();
            accepted += deliveries.len();
        });
    }
    let mut worst = 0.0;
    for page in pages.iter().filter(|page| !page.in_flood.is_empty()) {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| quantile(&page.in_flood, share));
        if !page.path.starts_with(ASSETS) {
            worst = f64::max(worst, p99);
        }
        table.remark(&format!(
            "  {}: alone {:.1} ms; in a flood p50 {p50:.1}, p99 {p99:.1}, worst {most:.1} ms; {} answers of {:.1} KB",
            page.path,
            quantile(&page.alone, 0.5),
            page.in_flood.len(),
            page.bytes as f64 / 1000.0,
        ));
    }
    assert!(left.peek().is_none(), "the pages take too long for {FLOODS} floods");
    table.remark(&format!("  accepts meanwhile: {:.0} /s", accepted as f64 / seconds));
    worst
}

/// Compares accepts during which one page a second is asked with accepts alone, in alternating rounds. The floor is
/// what the rounds alone differ by, and [`COST`] at most.
fn cost(
    table: &Table,
    name: &str,
    receiver: &Receiver,
    dashboard: &Dashboard,
    fresh: &Fresh,
    pages: &[Page],
) {
    let deliveries = if table.is_short() { SHORT_ROUND } else { ROUND };
    let mut asked = pages.iter().cycle();
    let mut pairs = Vec::new();
    // The first one is not compared.
    flood(receiver.address, &requests(Kind::GitHub, 1 << 43, FLOOD), CONNECTIONS, 200);
    for _ in 0..table.effort.rounds {
        let round = fresh.take(Kind::GitHub, deliveries);
        let control = flood(receiver.address, &round, CONNECTIONS, 200).rate();
        let round = fresh.take(Kind::GitHub, deliveries);
        let is_over = AtomicBool::new(false);
        let rate = std::thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                let flood = flood(receiver.address, &round, CONNECTIONS, 200);
                is_over.store(true, Relaxed);
                flood.rate()
            });
            let mut due = Instant::now();
            while !is_over.load(Relaxed) {
                if Instant::now() >= due {
                    dashboard.get(&asked.next().unwrap().path);
                    due += PERIOD;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            flooding.join().unwrap()
        });
        pairs.push((control, rate));
    }
    let controls = || pairs.iter().map(|(control, _)| *control);
    let most = controls().fold(f64::MIN, f64::max);
    let least = controls().fold(f64::MAX, f64::min);
    let spread = (most - least) / most;
    table.remark(&format!("  the rounds without pages differ by {:.1} %", spread * 100.0));
    let floor = ((1.0 - spread.min(COST)) * 1000.0).round() / 1000.0;
    table.pairs(name, Bounds { good: Good::High, floor, aim: 1.0 }, "/s", &pairs);
}

/// The process of `hooklatch ui` and the session of one browser. Dropping it ends the process.
struct Dashboard {
    process: Child,
    port: u16,
    cookie: String,
}

impl Dashboard {
    fn start(site: &Site) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
            .args(["ui", "--port", "0", "--config"])
            .arg(site.path("hooklatch.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (host, link) = line.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let port = host.rsplit(':').next().unwrap().parse().unwrap();
        let mut dashboard = Dashboard { process, port, cookie: String::new() };
        let entered = dashboard.ask(&format!("/{link}"));
        let cookie = entered.split("\r\n").find_map(|line| line.strip_prefix("set-cookie: "));
        dashboard.cookie = cookie.unwrap().split(';').next().unwrap().to_owned();
        dashboard
    }

    /// The path of a file of the dashboard.
    fn file(&self) -> String {
        let page = self.ask("/");
        let path = page.split('"').find(|part| part.starts_with(ASSETS)).unwrap();
        path.to_owned()
    }

    /// Asks for a page, and returns how long it took and its length in bytes.
    fn get(&self, path: &str) -> (Duration, usize) {
        let begun = Instant::now();
        let answer = self.ask(path);
        let took = begun.elapsed();
        // The search for an id leads to its event.
        let is_good = ["HTTP/1.1 200", "HTTP/1.1 303"].iter().any(|line| answer.starts_with(line));
        assert!(is_good, "{path}, after {took:?}: {answer}");
        (took, answer.len())
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
            self.port, self.cookie
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
