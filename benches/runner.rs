//! What a runner costs: its resident memory with 100 running commands, and how many commands it
//! starts and sees to their end in a second, against a bare loop of spawns in the same run.
//!
//! `cargo bench --bench runner`. The real program, its socket and the receiver's own client; both
//! loops run `/bin/true`, four at a time, in turns, so that whatever else the machine does falls on
//! both. Exits non-zero where a figure misses its bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hooklatch::config;
use hooklatch::limits::Limits;
use hooklatch::model::{Digest, EventType, Facts, Headers, JobId, RunnerName, Timestamp};
use hooklatch::runner::client::{Events, Sender, connect};
use hooklatch::runner::folder;
use hooklatch::runner::message::{Hello, HelloOk, Key, Start, ToReceiver, VERSION};
use sha2::{Digest as _, Sha256};

/// Commands that run while the memory is read.
const RUNNING: u32 = 100;

/// Most that the runner may hold resident then (issue of the runner: "under 8 MiB").
const MOST_KIB: u64 = 8 * 1024;

/// Commands at once in either loop.
const ABREAST: u32 = 4;

/// Commands of one round, and rounds of each loop.
const STARTS: u32 = 500;
const ROUNDS: usize = 11;

/// Least share of the bare loop's rate.
const LEAST_RATIO: f64 = 0.8;

/// An event's body of a usual size.
const BODY: &[u8] = &[b'x'; 2048];

const CONFIGURATION: &str = r#"
[storage]
path = "store.db"
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
    match resident < MOST_KIB && median >= LEAST_RATIO {
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
    // Whatever else it says is read, or it would wait for that.
    std::thread::spawn(move || lines.for_each(drop));
    runner
}

/// Four threads that spawn and wait.
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
    /// Jobs so far.
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
        let (list, say, hear) = connect(&socket, &hello, &Limits::default()).await.unwrap();
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
        let digest = self.digests.iter().find(|(name, _)| name == handler).unwrap().1;
        let body = Digest(Sha256::digest(BODY).into());
        let start = Start::new(self.list.incarnation, digest, body, &facts);
        let key = start.key;
        self.say.start(start, BODY).await.unwrap();
        key
    }

    async fn hear(&mut self) -> ToReceiver {
        self.hear.next().await.unwrap().unwrap().0
    }

    /// The next attempt that ends, forgotten.
    async fn ended(&mut self) {
        loop {
            match self.hear().await {
                ToReceiver::Ended { key, .. } => return self.say.ack(&[key]).await.unwrap(),
                ToReceiver::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// How long a round takes.
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

    /// The runner's resident KiB, before and while commands run.
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
            self.say.kill(key).await.unwrap();
        }
        for _ in 0..RUNNING {
            self.ended().await;
        }
        [before, after]
    }
}

fn resident(runner: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", runner.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
