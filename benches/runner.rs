//! Measures the cost of a runner: its resident memory with 100 running commands and with 1,000 ends that the
//! receiver does not read, and the commands per second that it starts and completes, compared with a plain
//! loop of spawns in the same run.
//!
//! `cargo bench --bench runner` uses the real program, its socket and the receiver's client. Both loops run
//! `/bin/true`, four at a time, in alternating rounds, so that other load of the machine affects both. It
//! exits non-zero if a figure misses its bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hooklatch::config;
use hooklatch::model::{Digest, EventType, Facts, Headers, JobId, RunnerName, Timestamp};
use hooklatch::runner::client::{Events, Sender, connect};
use hooklatch::runner::folder;
use hooklatch::runner::message::{Hello, HelloOk, Key, Start, ToReceiver, ToRunner, VERSION};
use sha2::{Digest as _, Sha256};

/// The number of commands that run while the memory is read.
const RUNNING: u32 = 100;

/// The number of ends that the receiver does not read while the memory is read (R18).
const UNREAD: u32 = 1000;

/// The most resident memory of the runner in both cases (requirement: "under 8 MiB").
const MOST_KIB: u64 = 8 * 1024;

/// The number of concurrent commands in both loops.
const ABREAST: u32 = 4;

/// The commands of one round, and the rounds of each loop.
const STARTS: u32 = 500;
const ROUNDS: usize = 11;

/// The smallest acceptable share of the plain loop's rate.
const LEAST_RATIO: f64 = 0.8;

/// The size of a typical event's body.
const BODY: &[u8] = &[b'x'; 2048];

const CONFIGURATION: &str = r#"
[storage]
path = "store.db"
[limits]
runner_attempts_count = 2000
[sources.github]
provider = "github"
secrets = ["file:nowhere"]
[handlers.sleep]
source = "github"
events = ["*"]
command = ["/bin/sleep", "1000"]
[handlers.true]
source = "github"
events = ["*"]
command = ["/bin/true"]
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("hooklatch.toml"), CONFIGURATION).unwrap();
    let mut runner = start(site.path());
    let mut receiver = Receiver::connect(site.path()).await;
    let [before, resident] = receiver.memory(&runner).await;
    println!("resident: {before} KiB idle, {resident} KiB with {RUNNING} commands");
    let unread = receiver.unread_ends(&runner, site.path()).await;
    println!("resident: {unread} KiB with {UNREAD} unread ends");
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let ours = f64::from(STARTS) / receiver.starts().await.as_secs_f64();
        let bare = f64::from(STARTS) / bare_starts().as_secs_f64();
        println!("round {round}: {ours:.0} starts/s, bare {bare:.0}, ratio {:.2}", ours / bare);
        ratios.push(ours / bare);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ROUNDS / 2];
    println!("median ratio {median:.2} ({:.2} to {:.2})", ratios[0], ratios[ROUNDS - 1]);
    runner.kill().unwrap();
    runner.wait().unwrap();
    match resident.max(unread) < MOST_KIB && median >= LEAST_RATIO {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn start(site: &Path) -> Child {
    let mut runner = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .args(["runner", "--config"])
        .arg(site.join("hooklatch.toml"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(runner.stderr.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains("running commands")).unwrap().unwrap();
    // Reads the rest of its output; otherwise the runner would block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    runner
}

/// Spawns commands and waits for them in four threads. Returns the time of a round.
fn bare_starts() -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..ABREAST {
            scope.spawn(|| {
                for _ in 0..STARTS / ABREAST {
                    let mut command = Command::new("/bin/true");
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    assert!(command.status().unwrap().success());
                }
            });
        }
    });
    begin.elapsed()
}

struct Receiver {
    list: HelloOk,
    say: Sender,
    hear: Events,
    digests: Vec<(String, Digest)>,
    /// The number of jobs so far.
    jobs: u32,
}

impl Receiver {
    async fn connect(site: &Path) -> Self {
        let hello = Hello {
            version: VERSION,
            store: uuid::Uuid::from_bytes([1; 16]),
            epoch: 1,
            runner: None,
        };
        let socket = folder::socket(&folder::of(&site.join("store.db")));
        let (list, say, hear) = connect(&socket, &hello).await.unwrap();
        let config = config::load(&site.join("hooklatch.toml")).ok().unwrap();
        let commands = config
            .resolve_commands(&config::Environment::capture(), &RunnerName::default())
            .ok()
            .unwrap();
        let digests = commands.into_iter().map(|one| (one.name.to_string(), one.digest)).collect();
        Receiver { list, say, hear, digests, jobs: 0 }
    }

    async fn start(&mut self, handler: &str) -> Key {
        self.jobs += 1;
        let mut job = [0; 16];
        job[..4].copy_from_slice(&self.jobs.to_be_bytes());
        let facts = Facts {
            handler: handler.parse().unwrap(),
            job: JobId::from_bytes(job),
            attempt: 1,
            replays: 0,
            source: "github".parse().unwrap(),
            caller: None,
            event_id: "evt_1".parse().unwrap(),
            event_type: EventType::from_raw("push"),
            received_at: Timestamp(0),
            headers: Headers::new(),
            body: bytes::Bytes::new(),
        };
        let configuration = self.digests.iter().find(|(name, _)| name == handler).unwrap().1;
        let body = Digest(Sha256::digest(BODY).into());
        let start = Start { incarnation: self.list.incarnation, configuration, body, facts };
        let key = start.key();
        self.say.start(start, BODY).await.unwrap();
        key
    }

    async fn hear(&mut self) -> ToReceiver {
        self.hear.next().await.unwrap().unwrap().0
    }

    /// Waits for the next attempt that ends, and acknowledges it so that the runner forgets it.
    async fn ended(&mut self) {
        loop {
            match self.hear().await {
                ToReceiver::Ended { key, .. } => return self.say.ack(&[key]).await.unwrap(),
                ToReceiver::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The time of a round.
    async fn starts(&mut self) -> Duration {
        let begin = Instant::now();
        for _ in 0..ABREAST {
            self.start("true").await;
        }
        for _ in ABREAST..STARTS {
            self.ended().await;
            self.start("true").await;
        }
        for _ in 0..ABREAST {
            self.ended().await;
        }
        begin.elapsed()
    }

    /// The runner's resident memory in KiB, before and while commands run.
    async fn memory(&mut self, runner: &Child) -> [u64; 2] {
        let before = resident(runner);
        let mut keys = Vec::new();
        for _ in 0..RUNNING {
            keys.push(self.start("sleep").await);
        }
        for _ in 0..RUNNING {
            match self.hear().await {
                ToReceiver::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let after = resident(runner);
        for key in keys {
            self.say.send(ToRunner::Kill { key }).await.unwrap();
        }
        for _ in 0..RUNNING {
            self.ended().await;
        }
        [before, after]
    }

    /// The runner's resident memory in KiB when commands have ended and the receiver has not read their ends.
    async fn unread_ends(&mut self, runner: &Child, site: &Path) -> u64 {
        let exits = || {
            let folder = fs::read_dir(folder::of(&site.join("store.db"))).unwrap();
            let mut files = folder.map(|entry| entry.unwrap().path());
            let ledger = files.find(|path| path.to_str().unwrap().contains("/ledger-")).unwrap();
            fs::read_to_string(ledger).unwrap().matches("\"exit\"").count()
        };
        let before = exits();
        for ended in (0..UNREAD).step_by(ABREAST as usize) {
            for _ in 0..ABREAST {
                self.start("true").await;
            }
            while exits() < before + (ended + ABREAST) as usize {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let resident = resident(runner);
        for _ in 0..UNREAD {
            self.ended().await;
        }
        resident
    }
}

fn resident(runner: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", runner.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
