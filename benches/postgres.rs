//! Measures the store on PostgreSQL: accepts, compared with pgbench at the same server, and claims with their ends.
//!
//! `cargo bench --bench postgres` starts Debian's server, with its data in memory and its flushes on. pgbench sends
//! the statements of a batch of accepts over one connection: the most that one writer could reach.
//!
//! `HOOKLATCH_BENCH_EVENTS=10000000` adds the lines of a store with as many settled events, and of a million ready jobs.
//! The data are then on the disk of the build: 26 GB for ten million events of 1 KB.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../tests/postgres/cluster.rs"]
#[allow(dead_code, reason = "the tests use other parts")]
mod cluster;
#[path = "appliance/load.rs"]
#[allow(dead_code, reason = "its clients speak HTTP")]
mod load;
#[path = "../tests/support/needs.rs"]
#[allow(dead_code, reason = "the server notes those of tests")]
mod needs;
#[path = "appliance/requests.rs"]
#[allow(dead_code, reason = "the other bench sends more kinds")]
mod requests;
#[path = "../tests/postgres/server.rs"]
#[allow(dead_code, reason = "the tests use other parts")]
mod server;
#[path = "../tests/postgres/site.rs"]
#[allow(dead_code, reason = "the tests use other parts")]
mod site;
#[path = "appliance/table.rs"]
#[allow(dead_code, reason = "the appliance has other lines")]
mod table;
#[path = "../tests/postgres/working.rs"]
#[allow(dead_code, reason = "the tests use other parts")]
mod working;

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{CREATED, Cluster, github, new, stripe};
use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use hooklatch::clock::Clock;
use hooklatch::model::{Facts, Outcome};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{Housekeeping, Jobs, NodeNotices, Session, Writer};
use hooklatch::store::{Accept, Completion, Record};
use load::quantile;
use requests::{Kind, request};
use server::{PASSWORD, PATIENCE, ROLE, Server, installed};
use site::target;
use table::{Bounds, Good, REPORTED_HIGH, Table, median};
use tokio::runtime::{Builder, Runtime};
use working::{claim_of, holder, session, sum_of};

/// The number of callers of a node, as of connections in the other benches.
const CALLERS: usize = 64;

/// The events of pgbench's transaction.
const BATCH: usize = 50;

/// The events of a round.
const EVENTS: usize = 5000;

/// The jobs of a round.
const JOBS: usize = 1000;

/// The pushes whose bytes are counted.
const PUSHES: usize = 5000;

/// The ready jobs of the line with an old snapshot.
const READY: i64 = 1_000_000;

/// The jobs that are claimed and ended under that snapshot before the line begins: those of an hour, at 100 a second.
const HOUR: usize = 360_000;

/// Events with a payload of 1 KB and a job in state $3, from $1 on, and as many of them as $2; a settled job has an
/// attempt. Their digests have no order, as those of real bodies. A body is a zstd frame of one raw block, whose end is
/// [`END`]; $4 are the sums without the arrival.
const FILL: &str = "
    WITH made AS (
        INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated, flagged)
        SELECT 'stripe', 'evt_0' || lpad(n::text, 12, '0'), 0, 'a.b', sha256(n::text::bytea), now_ms() - 86400000, 1024,
            true, false, false FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) n
        RETURNING row, event_id, received_at
    ), paid AS (
        INSERT INTO payload (event, headers, body, sum)
        SELECT row, '', '\\x28b52ffd600003012000' || string_agg(sha256((row * 32 + part)::text::bytea), '') || sha256(''),
            ($4::bigint[])[(substr(event_id, 6)::bigint - $1::bigint + 1)::int] + received_at
        FROM made, generate_series(1, 31) part GROUP BY row, event_id, received_at
    ), jobs AS (
        INSERT INTO job (id, event, handler, state, attempt, since, created_at, settled_at)
        SELECT gen_random_uuid(), row, 'h', $3, CASE $3 WHEN 'succeeded' THEN 1 ELSE 0 END, now_ms(), now_ms(),
            CASE $3 WHEN 'succeeded' THEN now_ms() END FROM made RETURNING row, attempt
    )
    INSERT INTO attempt (job, number, started_at, node, finished_at, outcome)
    SELECT jobs.row, 1, now_ms(), node.id, now_ms(), 'succeeded' FROM jobs, node
    WHERE node.name = 'a' AND jobs.attempt = 1";

/// The last bytes of the SHA-256 of nothing.
const END: &[u8] = b"\x78\x52\xB8\x55";

/// The statement that stores the events of a batch is read from here.
const SOURCE: &str = include_str!("../src/store/postgres/new_event.rs");

fn main() -> ExitCode {
    assert!(installed("postgres").is_some(), "PostgreSQL is missing: apt install postgresql");
    let table = Table::new();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let bench = Bench::new(&table, runtime);
    let [first, second] = ["a", "b"].map(|name| bench.node(name));
    // The statements are prepared, and the tables are not empty.
    bench.flood(&[&first]);
    bench.flood(&[&second]);
    let script = bench.script();

    let mut answers = Vec::new();
    table.compare(
        "accepts of one node on PostgreSQL, 1 KB, 64 callers, compared with pgbench",
        Bounds { good: Good::High, floor: 0.6, aim: 0.6 },
        "/s",
        || bench.pgbench(&script),
        || {
            let (rate, times) = bench.flood(&[&first]);
            answers.push(times);
            rate
        },
    );
    let of = |share| median(answers.iter().map(|times| quantile(times, share)).collect());
    let (p50, p99) = (of(0.5), of(0.99));
    table.remark(&format!("the answers to these accepts: p50 {p50:.1} ms, p99 {p99:.1} ms"));
    table.compare(
        "accepts of two nodes on PostgreSQL, 64 callers each, compared with one node",
        Bounds { good: Good::High, floor: REPORTED_HIGH, aim: 1.0 },
        "/s",
        || bench.flood(&[&first]).0,
        || bench.flood(&[&first, &second]).0,
    );
    for limit in [8, 64] {
        let rates = (0..table.effort.rounds).map(|_| bench.claim(&first, limit, JOBS)).collect();
        let rate = median(rates);
        table.remark(&format!("stored jobs claimed and ended, {limit} at once: {rate:.0} /s"));
    }
    let bytes = bench.bytes_of_pushes(&first);
    table.remark(&format!("bytes of the database per push of 7 KB, with its job: {bytes:.0}"));
    if let Some(events) = events() {
        bench.large_store(&table, &first, events);
        bench.old_snapshot(&table, &first, events);
    }
    bench.runtime.block_on(async {
        for node in [&first, &second] {
            node.writer.close();
        }
    });
    table.end()
}

/// How many events the large store has, if it is wanted.
fn events() -> Option<i64> {
    let events = std::env::var("HOOKLATCH_BENCH_EVENTS").ok()?;
    Some(events.parse().expect("HOOKLATCH_BENCH_EVENTS is a number"))
}

/// A running receiver, as far as the store is concerned.
struct Node {
    writer: Writer,
    jobs: Jobs,
}

struct Bench {
    runtime: Runtime,
    cluster: Cluster,
    /// The session of the node that pgbench is.
    session: Session,
    divide: usize,
    /// The transactions that pgbench has been asked for.
    sent: Cell<usize>,
    /// The events that were made.
    made: Cell<usize>,
}

impl Bench {
    fn new(table: &Table, runtime: Runtime) -> Self {
        let (cluster, session) = runtime.block_on(async {
            // As Debian sets it. The tests' servers have less.
            let options = ["shared_buffers=128MB"];
            let server = match events() {
                Some(_) => Server::start_on(Path::new(env!("CARGO_TARGET_TMPDIR")), &options),
                None => Server::start(&options).await,
            };
            let cluster = Cluster::on(server).await;
            let writer = holder(&cluster, "pgbench").await;
            let session = session(&writer).await.session;
            (cluster, session)
        });
        let divide = table.effort.divide;
        Bench { runtime, cluster, session, divide, sent: 0.into(), made: 0.into() }
    }

    fn node(&self, name: &str) -> Node {
        self.runtime.block_on(async {
            let writer = holder(&self.cluster, name).await;
            let target = target(self.cluster.server.port, false);
            let (clock, node) = (Clock::system(), session(&writer).await.session.node);
            let notices = NodeNotices::default();
            let keeping = Housekeeping::new(target.clone(), clock.clone(), notices, node);
            let jobs = Jobs::start(writer.clone(), target, clock, keeping);
            Node { writer, jobs }
        })
    }

    /// New events with bodies of 1 KB, verified.
    fn events(&self) -> Vec<Accept> {
        let (first, count) = (self.made.get(), EVENTS / self.divide);
        self.made.set(first + count);
        let event = |number| {
            let pad: String = (0..28).map(|_| HEXLOWER.encode(&hooklatch::random::id())).collect();
            new(stripe(&format!("evt_{number:09}"), &format!(r#"{{"pad":"{pad}"}}"#)))
        };
        (first..first + count).map(event).collect()
    }

    /// The growth of the database, in bytes per push, by pushes whose jobs are claimed and ended.
    fn bytes_of_pushes(&self, node: &Node) -> f64 {
        // Ends what other lines have left.
        self.claim_all(node);
        let before = self.size();
        let count = PUSHES / self.divide;
        let pushes = (0..count).map(|number| {
            let push = request(Kind::GitHub, number as u64);
            let push = String::from_utf8(push).unwrap();
            let (_, body) = push.split_once("\r\n\r\n").unwrap();
            new(github(&format!("push-{number}"), "push", body))
        });
        self.send(vec![(node, pushes.collect())]);
        self.claim_all(node);
        (self.size() - before) / count as f64
    }

    /// The size of the database, in bytes.
    fn size(&self) -> f64 {
        let size = "SELECT pg_database_size(current_database())::float8";
        self.runtime.block_on(async {
            self.cluster.admin().await.batch_execute("VACUUM").await.unwrap();
            self.cluster.get(size).await
        })
    }

    /// The lines of a store with so many settled events.
    fn large_store(&self, table: &Table, node: &Node, events: i64) {
        let before = self.flood(&[node]).0;
        self.fill(0..events, "succeeded");
        let name = format!("accepts with {events} events stored, compared with a small store");
        let bounds = Bounds { good: Good::High, floor: REPORTED_HIGH, aim: 0.85 };
        let mut answers = Vec::new();
        let flood = || {
            let (rate, times) = self.flood(&[node]);
            answers.push(quantile(&times, 0.99));
            rate
        };
        table.compare(&name, bounds, "/s", || before, flood);
        let p99 = median(answers);
        table.remark(&format!("the answers to these accepts: p99 {p99:.1} ms"));
        let rate = self.claim(node, 64, JOBS);
        table.remark(&format!("stored jobs claimed and ended there, 64 at once: {rate:.0} /s"));
    }

    /// The line of a million ready jobs while another session holds a snapshot: no index entry of a job that was
    /// claimed since then can be removed. `first`: the number of their first event.
    fn old_snapshot(&self, table: &Table, node: &Node, first: i64) {
        self.claim_all(node);
        self.fill(first..first + READY, "ready");
        let rounds = 0..table.effort.rounds;
        let before = median(rounds.map(|_| self.claim(node, 64, JOBS)).collect());
        let holder = self.runtime.block_on(async {
            let holder = self.cluster.admin().await;
            let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM node";
            holder.batch_execute(sql).await.unwrap();
            holder
        });
        self.claim(node, 64, HOUR);
        table.compare(
            "stored jobs claimed and ended, a million ready, under a snapshot of an hour, compared with none",
            Bounds { good: Good::High, floor: 0.5, aim: 0.5 },
            "/s",
            || before,
            || self.claim(node, 64, JOBS),
        );
        drop(holder);
    }

    /// Makes events directly, each with a job in this state.
    fn fill(&self, events: Range<i64>, state: &str) {
        const STEP: i64 = 100_000;
        self.runtime.block_on(async {
            let client = self.cluster.admin().await;
            client.batch_execute("SET synchronous_commit = off").await.unwrap();
            for first in events.clone().step_by(STEP as usize) {
                let count = STEP.min(events.end - first);
                let sum = |n: i64| sum_of("stripe", &format!("evt_0{n:012}"), "a.b", END);
                let sums: Vec<i64> = (first..first + count).map(sum).collect();
                client.execute(FILL, &[&first, &count, &state, &sums]).await.unwrap();
            }
            client.batch_execute("VACUUM ANALYZE").await.unwrap();
        });
    }

    /// Lets each node accept as many events as fast as possible. Returns the events per second, and the time of each
    /// answer.
    fn flood(&self, nodes: &[&Node]) -> (f64, Vec<Duration>) {
        self.send(nodes.iter().map(|node| (*node, self.events())).collect())
    }

    fn send(&self, shares: Vec<(&Node, Vec<Accept>)>) -> (f64, Vec<Duration>) {
        let mut tasks = Vec::new();
        self.runtime.block_on(async {
            let begun = Instant::now();
            for (node, events) in shares {
                let events = Arc::new(Mutex::new(events.into_iter()));
                for _ in 0..CALLERS {
                    let task = call(node.writer.clone(), Arc::clone(&events));
                    tasks.push(tokio::spawn(task));
                }
            }
            let times = join_all(tasks).await;
            let took = begun.elapsed();
            let times: Vec<Duration> = times.into_iter().flat_map(Result::unwrap).collect();
            (times.len() as f64 / took.as_secs_f64(), times)
        })
    }

    /// Claims stored jobs and ends them, `limit` at once. Returns the jobs per second.
    fn claim(&self, node: &Node, limit: usize, jobs: usize) -> f64 {
        self.runtime.block_on(async {
            let (begun, mut ends, mut count) = (Instant::now(), Vec::new(), 0);
            while count < jobs / self.divide {
                let (ended, claimed) =
                    node.jobs.complete_and_claim(&ends, Some(claim_of(limit))).await;
                assert!(ended.into_iter().all(Result::unwrap));
                count += ends.len();
                let jobs = claimed.await.unwrap().jobs;
                assert_eq!(jobs.len(), limit);
                ends = jobs.iter().map(|job| Arc::new(succeeded(&job.facts))).collect();
            }
            let rate = count as f64 / begun.elapsed().as_secs_f64();
            let (ended, _) = node.jobs.complete_and_claim(&ends, None).await;
            assert!(ended.into_iter().all(Result::unwrap));
            rate
        })
    }

    /// Claims all stored jobs, and ends them.
    fn claim_all(&self, node: &Node) {
        self.runtime.block_on(async {
            let mut ends = Vec::new();
            loop {
                let claim = Some(claim_of(1000));
                let (ended, claimed) = node.jobs.complete_and_claim(&ends, claim).await;
                assert!(ended.into_iter().all(Result::unwrap));
                let jobs = claimed.await.unwrap().jobs;
                if jobs.is_empty() {
                    return;
                }
                ends = jobs.iter().map(|job| Arc::new(succeeded(&job.facts))).collect();
            }
        });
    }

    /// The transaction of a batch for pgbench: that of the fast way, with a payload that the store has.
    fn script(&self) -> String {
        let payload =
            "SELECT headers, body, body_bytes FROM payload JOIN event ON row = event LIMIT 1";
        let row = self
            .runtime
            .block_on(async { self.cluster.admin().await.query_one(payload, &[]).await.unwrap() });
        let hex = |place| HEXLOWER.encode(row.get::<_, &[u8]>(place));
        let fill = |value: String| format!("array_fill({value}, ARRAY[{BATCH}])");
        let text = |value| fill(format!("'{value}'::text"));
        let (zeros, no, numbers) = (fill("0::bigint".into()), fill("false".into()), numbers());
        let list = |item: &str| {
            let items: Vec<String> = (1..=BATCH).map(|n| format!("{item}{n:012}")).collect();
            format!("replace('{{{}}}', 'X', :tx)", items.join(","))
        };
        let null = |kind| fill(format!("NULL::{kind}"));
        let values = [
            text("stripe"),
            format!("{}::text[]", list("evt_X_")),
            zeros.clone(),
            text("a.b"),
            null("bytea"),
            // At places of its index that have no order, as those of real bodies.
            format!(
                "(SELECT array_agg(sha256(convert_to(id, 'UTF8'))) FROM unnest({}::text[]) AS id)",
                list("X")
            ),
            no.clone(),
            no.clone(),
            no.clone(),
            fill("now_ms()".to_owned()),
            fill(format!("{}::bigint", row.get::<_, i64>(2))),
            fill(format!("'\\x{}'::bytea", hex(0))),
            fill(format!("'\\x{}'::bytea", hex(1))),
            null("bigint"),
            numbers.clone(),
            numbers,
            format!("{}::uuid[]", list("X-0000-7000-8000-")),
            text("h"),
            text("ready"),
            null("text"),
            null("text"),
            zeros,
            null("bigint"),
            null("bigint"),
            null("text"),
            null("text"),
            no,
        ];
        let (_, store) = SOURCE.split_once("const STORE: &str = \"").unwrap();
        let mut store = store.split_once("\";").unwrap().0.to_owned();
        for (place, value) in values.iter().enumerate().rev() {
            let (before, after) = store.split_once(&format!("${}::", place + 1)).unwrap();
            let (_, after) = after.split_once("[]").unwrap();
            store = format!("{before}{value}{after}");
        }
        // The events have just come.
        let store = store.replace("$28", "false");
        let Session { node, id, .. } = self.session;
        let script = format!(
            "\\set tx :tx + 1\n\\startpipeline\nBEGIN READ WRITE;\nSELECT fence('{node}', '{id}');\n\
             SELECT set_config('lock_timeout', '200ms', true);\n{store};\nCOMMIT;\n\\endpipeline\n"
        );
        let path = self.cluster.server.write("batch.sql", &script);
        path.to_str().unwrap().to_owned()
    }

    fn stored(&self) -> usize {
        self.runtime.block_on(self.cluster.count("event")).try_into().unwrap()
    }

    /// The events per second that pgbench stores.
    fn pgbench(&self, script: &str) -> f64 {
        let count = EVENTS / BATCH / self.divide;
        // Eight digits, as an id's first part has.
        let first = 10_000_000 + self.sent.replace(self.sent.get() + count);
        let before = self.stored();
        let output = Command::new(installed("pgbench").unwrap())
            .args(["--no-vacuum", "--protocol=prepared", "--client=1", "--host=127.0.0.1"])
            .args(["--username", ROLE, "--file", script])
            .arg(format!("--port={}", self.cluster.server.port))
            .arg(format!("--transactions={count}"))
            .arg(format!("--define=tx={first}"))
            .arg("app")
            .env("PGPASSWORD", PASSWORD)
            .env("PGSSLMODE", "disable")
            .env("PGOPTIONS", "-c search_path=hooklatch -c client_min_messages=warning -c jit=off")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{wrong}");
        assert_eq!(self.stored() - before, BATCH * count, "{wrong}");
        let (_, rate) = said.split_once("tps = ").unwrap();
        let rate: f64 = rate.split_once(' ').unwrap().0.parse().unwrap();
        rate * BATCH as f64
    }
}

/// The numbers of a batch, from 1.
fn numbers() -> String {
    let numbers: Vec<String> = (1..=BATCH).map(|number| number.to_string()).collect();
    format!("'{{{}}}'::bigint[]", numbers.join(","))
}

/// A caller: sends the next event when the last one is answered. Returns the time of each answer.
async fn call(writer: Writer, events: Arc<Mutex<std::vec::IntoIter<Accept>>>) -> Vec<Duration> {
    let mut times = Vec::new();
    loop {
        let Some(event) = events.lock().unwrap().next() else { return times };
        let begun = Instant::now();
        let answer = writer.accept(event, tokio::time::Instant::now() + PATIENCE).await;
        times.push(begun.elapsed());
        assert_eq!(answer, Ok(CREATED));
    }
}

fn succeeded(facts: &Facts) -> Completion {
    Completion {
        job: facts.job,
        attempt: facts.attempt,
        outcome: Outcome::Succeeded,
        counts: true,
        next: Next::Succeeded,
        finished_at: Clock::system().now(),
        record: Record::default(),
        answer: None,
    }
}
