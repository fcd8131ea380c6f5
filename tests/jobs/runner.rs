//! The runner as a process of its own: real processes, a real socket, the receiver's own client.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hooklatch::config::{self, Environment};
use hooklatch::limits::Limits;
use hooklatch::model::{Digest, EventType, Facts, Headers, JobId, Name, RunnerName, Timestamp};
use hooklatch::runner::client::{ConnectError, Events, Sender, connect};
use hooklatch::runner::launch::Launch;
use hooklatch::runner::message::{
    Denial, Hello, HelloOk, Key, Listed, Refusal, Start, Stream, ToReceiver, ToRunner, VERSION,
};
use hooklatch::runner::{AskedBy, Captured, Ended, Exited, Status, Usage, folder};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Longest wait for anything: only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const STORE: Uuid = Uuid::from_bytes([1; 16]);

/// `wait` stands at a FIFO until the test lets it go; `log` leaves a line for each run.
const HANDLERS: &str = r#"
[handlers.say]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "echo $HOOKLATCH_JOB $HOOKLATCH_ATTEMPT >>ran; sha256sum; echo oops >&2"]
cwd = "SITE"
[handlers.wait]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "echo $HOOKLATCH_JOB $HOOKLATCH_ATTEMPT >>ran; read line <go; echo $line; exit 7"]
cwd = "SITE"
[handlers.slow]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "exec sleep 1000"]
cwd = "SITE"
timeout = "1s"
[handlers.shed]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "exec env -i /bin/sh -c 'read line <go; read line <go'"]
cwd = "SITE"
[handlers.prints]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "printf abcdefgh; read line <go; printf 12"]
cwd = "SITE"
[handlers.prints-much]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "head -c 300000 /dev/zero; read line <go; printf 12"]
cwd = "SITE"
[handlers.orphan]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "left=$HOOKLATCH_JOB; mkfifo $left; setsid sh -c 'echo $$; echo >$0; exec sleep 1000 >/dev/null 2>&1' $left & read line <$left; exit 3"]
cwd = "SITE"
[handlers.deaf]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "trap '' TERM; read line <go; read line <go; read line <go"]
cwd = "SITE"
grace = "100ms"
[handlers.look]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "set -- /proc/self/fd/*; exit $#"]
cwd = "SITE"
[handlers.idle]
source = "github"
events = ["*"]
command = ["/bin/sleep", "1000"]
cwd = "SITE"
# Prints as many bytes as its body says.
[handlers.chats]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "read out err; head -c $out /dev/zero; head -c $err /dev/zero >&2"]
cwd = "SITE"
# `tail` holds all of it, as a child that the shell waits for.
[handlers.large]
source = "github"
events = ["*"]
command = ["/bin/sh", "-c", "head -c 40000000 /dev/zero | tail -c 40000000 | sha256sum"]
cwd = "SITE"
[handlers.broken]
source = "github"
events = ["*"]
command = ["/nowhere/program"]
cwd = "SITE"
"#;

struct Site(tempfile::TempDir);

impl Site {
    /// The source's secret is not there: a runner never reads it.
    fn new(limits: &str) -> Self {
        let site = Site(tempfile::tempdir().unwrap());
        let folder = site.0.path().to_str().unwrap();
        let text = format!(
            "[storage]\npath = \"store.db\"\n[limits]\n{limits}\n\
             [sources.github]\nprovider = \"github\"\nsecrets = [\"file:nowhere\"]\n{}",
            HANDLERS.replace("SITE", folder)
        );
        fs::write(site.path("hooklatch.toml"), text).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, site.path("go"), 0o600.into()).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn folder(&self) -> PathBuf {
        folder::of(&self.path("store.db"))
    }

    fn ran(&self) -> usize {
        fs::read_to_string(self.path("ran")).unwrap_or_default().lines().count()
    }

    fn ledger_path(&self) -> PathBuf {
        let files = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        let is_ledger = |path: &PathBuf| path.to_str().unwrap().contains("/ledger-");
        files.into_iter().find(is_ledger).unwrap()
    }

    fn ledger(&self) -> String {
        fs::read_to_string(self.ledger_path()).unwrap()
    }

    /// Lets one `wait` go; returns when it has been heard.
    async fn go(&self) {
        let path = self.path("go");
        let write = tokio::task::spawn_blocking(move || fs::write(path, "went\n"));
        patient(write).await.unwrap().unwrap();
    }

    /// Whether no `wait` stands at the FIFO.
    fn nobody_waits(&self) -> bool {
        use rustix::fs::{Mode, OFlags, open};
        let opened = open(self.path("go"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        opened.err() == Some(rustix::io::Errno::NXIO)
    }

    fn command(&self, options: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_hooklatch")), options)
    }

    fn command_of(&self, program: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("runner").arg("--config").arg(self.path("hooklatch.toml")).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts a runner and waits until it listens.
    fn runner(&self, options: &[&str]) -> Runner {
        self.runner_of(Path::new(env!("CARGO_BIN_EXE_hooklatch")), options)
    }

    fn runner_of(&self, program: &Path, options: &[&str]) -> Runner {
        let mut child = self.command_of(program, options).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (says, heard) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if std::env::var_os("HOOKLATCH_TEST_LOG").is_some() {
                    eprintln!("{line}");
                }
                let _nobody_waits = says.send(line);
            }
        });
        let mut runner = Runner(child, heard);
        runner.listens();
        runner
    }

    async fn connect(&self, epoch: u64) -> Result<(HelloOk, Receiver), ConnectError> {
        let hello = Hello { version: VERSION, store: STORE, epoch, runner: None };
        let (list, say, hear) =
            connect(&folder::socket(&self.folder()), &hello, &Limits::default()).await?;
        let receiver = Receiver { list: list.clone(), say, hear, site: self.path("") };
        Ok((list, receiver))
    }

    async fn receiver(&self, epoch: u64) -> Receiver {
        self.connect(epoch).await.unwrap().1
    }
}

/// A runner, and the lines it logs.
struct Runner(Child, mpsc::Receiver<String>);

impl Runner {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn listens(&mut self) {
        self.says("running commands");
    }

    /// Waits for a line with this text.
    fn says(&mut self, text: &str) {
        while !self.1.recv_timeout(PATIENCE).expect("the runner does not say it").contains(text) {}
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it has left by itself.
    async fn left(mut self) -> Option<i32> {
        let wait = tokio::task::spawn_blocking(move || self.0.wait().unwrap().code());
        patient(wait).await.unwrap()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Receiver {
    list: HelloOk,
    say: Sender,
    hear: Events,
    site: PathBuf,
}

async fn patient<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not come")
}

thread_local! {
    /// Each test's own: a runner that looks for what is left of a job finds it by the job's id, whosever
    /// command it is.
    static JOBS: Uuid = Uuid::now_v7();
}

fn key(job: u8) -> Key {
    let mut id = JOBS.with(|jobs| *jobs.as_bytes());
    id[15] = job;
    Key { job: JobId::from_bytes(id), attempt: 1 }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

impl Receiver {
    /// A start as the receiver makes it from the same configuration.
    fn start_of(&self, handler: &str, job: u8, body: &[u8]) -> Start {
        let config = config::load(&self.site.join("hooklatch.toml")).ok().unwrap();
        let name: Name = handler.parse().unwrap();
        let commands =
            config.resolve_commands(&Environment::capture(), &RunnerName::default()).ok().unwrap();
        let configured = commands.into_iter().find(|command| command.name == name);
        let facts = Facts {
            handler: name,
            job: key(job).job,
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
        let configured = configured.map_or(Digest([0; 32]), |command| command.digest);
        Start::new(self.list.incarnation, configured, digest(body), &facts)
    }

    async fn start(&self, handler: &str, job: u8, body: &[u8]) {
        self.say.start(self.start_of(handler, job, body), body).await.unwrap();
    }

    async fn hear(&mut self) -> (ToReceiver, Vec<u8>) {
        patient(self.hear.next()).await.unwrap().expect("the connection ended")
    }

    async fn started(&mut self, job: u8) {
        match self.hear().await.0 {
            ToReceiver::Started { key: heard } => assert_eq!(heard, key(job)),
            other => panic!("{other:?}"),
        }
    }

    async fn ended(&mut self, job: u8) -> Ended {
        self.ended_printing(job).await.0
    }

    /// The end, and apart from it what was printed.
    async fn ended_printing(&mut self, job: u8) -> (Ended, [Captured; 2]) {
        match self.hear().await {
            (ToReceiver::Ended { key: heard, end, outputs }, body) if heard == key(job) => {
                match outputs.read(*end, body).expect("a body of another length") {
                    Ended::Exited(Exited { status, asked_by, stdout, stderr, .. }) => {
                        (asked(status, asked_by), [stdout, stderr])
                    }
                    lost => (lost, Default::default()),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// What a command that exits with 0 has printed, as text.
    async fn printed(&mut self, job: u8) -> [String; 2] {
        let (end, outputs) = self.ended_printing(job).await;
        assert_eq!(end, exited(Status::Code(0)));
        outputs.map(text)
    }

    /// What it has printed so far.
    async fn peek(&mut self, job: u8, stream: Stream) -> Option<Captured> {
        self.say.peek(key(job), stream).await.unwrap();
        match self.hear().await {
            (ToReceiver::Peeked { key: heard, stream: of, output }, body) => {
                assert_eq!((heard, of), (key(job), stream));
                output.map(|output| output.read(body).expect("a body of another length"))
            }
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&mut self, job: u8) -> Refusal {
        match self.hear().await.0 {
            ToReceiver::Refused { key: heard, reason, .. } if heard == key(job) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Returns when the runner has forgotten it.
    async fn ack(&mut self, job: u8) {
        self.say.ack(&[key(job)]).await.unwrap();
        assert_eq!(self.peek(job, Stream::Stdout).await, None);
    }

    /// Waits until the runner has ended the connection.
    async fn cut(&mut self) {
        while let Ok(Some(_)) = patient(self.hear.next()).await {}
    }
}

/// An output of which nothing was left out.
fn text(output: Captured) -> String {
    assert_eq!((output.total, output.tail.len()), (Some(output.head.len() as u64), 0));
    String::from_utf8(output.head).unwrap()
}

fn exited(status: Status) -> Ended {
    asked(status, None)
}

/// What an attempt took differs from run to run: [`Receiver::ended`] leaves it out.
fn asked(status: Status, asked_by: Option<AskedBy>) -> Ended {
    Ended::Exited(Exited::without_outputs(status, asked_by, Usage::default()))
}

/// Each attempt, and whether it has ended.
fn listed(list: &HelloOk) -> Vec<(Key, bool)> {
    list.attempts.iter().map(|Listed { key, ended, .. }| (*key, *ended)).collect()
}

#[tokio::test]
async fn an_attempt_is_started_reported_and_forgotten() {
    let site = Site::new("runner_attempts_count = 3");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    assert_eq!((receiver.list.free, receiver.list.draining), (3, false));
    assert_eq!(receiver.list.attempts, []);
    let body: Vec<u8> = (0..25_u32 << 20).map(|i| (i * 31 % 251) as u8).collect();
    for (job, body) in [(1, b"body".as_slice()), (2, b""), (3, &body)] {
        receiver.start("say", job, body).await;
        receiver.started(job).await;
        let printed = [format!("{}  -\n", digest(body)), "oops\n".to_owned()];
        assert_eq!(receiver.printed(job).await, printed);
    }
    receiver.start("say", 4, b"").await;
    assert_eq!(receiver.refused(4).await, Refusal::NoResources);
    // The room of what it has forgotten is there for whatever is said next.
    receiver.say.ack(&[key(1)]).await.unwrap();
    receiver.start("say", 5, b"").await;
    receiver.started(5).await;
    receiver.ended(5).await;
    for job in [2, 3, 5] {
        receiver.ack(job).await;
    }
    let list = site.receiver(1).await.list;
    assert_eq!((list.free, list.attempts), (3, Vec::new()));
    assert_eq!(site.ran(), 4);
}

#[tokio::test]
async fn an_end_carries_its_outputs_however_large_they_are() {
    let site = Site::new("output_head_bytes = \"1 MiB\"\noutput_tail_bytes = \"3 B\"");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    const MIB: usize = 1 << 20;
    for (job, [out, err]) in [(1, [0, 0]), (2, [1, 4096]), (3, [4097, 0]), (4, [MIB, MIB])] {
        receiver.start("chats", job, format!("{out} {err}\n").as_bytes()).await;
        receiver.started(job).await;
        let printed = receiver.printed(job).await;
        assert_eq!(printed.map(|printed| printed.len()), [out, err]);
    }
    receiver.start("chats", 5, format!("{} 0\n", 2 * MIB).as_bytes()).await;
    receiver.started(5).await;
    let (_, [stdout, _]) = receiver.ended_printing(5).await;
    let kept = (stdout.head.len(), stdout.tail.len(), stdout.total);
    assert_eq!(kept, (MIB, 3, Some(2 * MIB as u64)));
    // The next receiver is sent every end that was not acknowledged, after the list.
    for job in [2, 3] {
        receiver.ack(job).await;
    }
    drop(receiver);
    let mut receiver = site.receiver(2).await;
    assert_eq!(listed(&receiver.list), [1, 4, 5].map(|job| (key(job), true)));
    assert_eq!(receiver.printed(1).await.map(|printed| printed.len()), [0, 0]);
    assert_eq!(receiver.printed(4).await.map(|printed| printed.len()), [MIB, MIB]);
    assert_eq!(receiver.ended_printing(5).await.1[0].total, Some(2 * MIB as u64));
}

#[tokio::test]
async fn an_end_that_no_receiver_reads_is_in_memory_once() {
    const ENDS: u8 = 100;
    let site = Site::new("output_head_bytes = \"200 KB\"");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("chats", 0, b"200000 0\n").await;
    receiver.started(0).await;
    receiver.ended(0).await;
    let before = runner.resident_kib();
    for job in 1..=ENDS {
        receiver.start("chats", job, b"200000 0\n").await;
    }
    let have_ended = async {
        while site.ledger().matches("\"exit\"").count() <= usize::from(ENDS) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patient(have_ended).await;
    let grown = runner.resident_kib() - before;
    // 20 MB are kept until their Acks.
    assert!((19_000..30_000).contains(&grown), "{grown} KiB");
}

#[tokio::test]
async fn a_command_outlives_its_receiver_and_the_next_one_is_told() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut first = site.receiver(1).await;
    first.start("wait", 1, b"").await;
    first.started(1).await;
    drop(first);
    let mut second = site.receiver(2).await;
    assert_eq!(listed(&second.list), [(key(1), false)]);
    site.go().await;
    assert_eq!(second.ended(1).await, exited(Status::Code(7)));
    drop(second);
    // Not acknowledged, so told again.
    let mut third = site.receiver(3).await;
    assert_eq!(listed(&third.list), [(key(1), true)]);
    let (end, [stdout, _]) = third.ended_printing(1).await;
    assert_eq!((end, text(stdout)), (exited(Status::Code(7)), "went\n".to_owned()));
    third.ack(1).await;
    assert_eq!(site.receiver(3).await.list.attempts, []);
}

#[tokio::test]
async fn time_is_up_with_no_receiver_there() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut first = site.receiver(1).await;
    first.start("slow", 1, b"").await;
    first.started(1).await;
    drop(first);
    let mut second = site.receiver(2).await;
    let timed_out = asked(Status::Signal(15), Some(AskedBy::TimeOut));
    assert_eq!(second.ended(1).await, timed_out);
}

#[tokio::test]
async fn a_command_ends_when_it_is_asked_to() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    receiver.say.kill(key(1)).await.unwrap();
    let cancelled = asked(Status::Signal(15), Some(AskedBy::Cancelled));
    assert_eq!(receiver.ended(1).await, cancelled);
}

#[tokio::test]
async fn what_a_command_and_its_children_took_is_told() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    let mut took = async |handler: &str, job| {
        receiver.start(handler, job, b"").await;
        receiver.started(job).await;
        match receiver.hear().await.0 {
            ToReceiver::Ended { end, .. } => match *end {
                Ended::Exited(Exited { usage, .. }) => usage,
                lost => panic!("{lost:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let (little, much) = (took("say", 1).await, took("large", 2).await);
    assert!((100_000..40_000_000).contains(&little.memory_bytes), "{little:?}");
    assert!(much.memory_bytes > 40_000_000, "{much:?}");
    assert!(much.cpu_millis > little.cpu_millis, "{much:?} {little:?}");
}

#[tokio::test]
async fn the_output_of_a_running_command_can_be_looked_at() {
    let site = Site::new("output_head_bytes = \"3 B\"\noutput_tail_bytes = \"2 B\"");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("prints", 1, b"").await;
    receiver.started(1).await;
    let printed = |head: &[u8], tail: &[u8], total| {
        Some(Captured { head: head.into(), tail: tail.into(), total: Some(total) })
    };
    assert_eq!(receiver.peek(1, Stream::Stderr).await, printed(b"", b"", 0));
    // It prints, and the runner reads, in their own time.
    let seen = printed(b"abc", b"gh", 8);
    patient(async { while receiver.peek(1, Stream::Stdout).await != seen {} }).await;
    assert_eq!(receiver.peek(2, Stream::Stdout).await, None);
    site.go().await;
    receiver.ended(1).await;
    assert_eq!(receiver.peek(1, Stream::Stdout).await, printed(b"abc", b"12", 10));
}

#[tokio::test]
async fn an_older_receiver_and_another_stores_are_not_admitted() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut young = site.receiver(5).await;
    let denied = |result| match result {
        Err(ConnectError::Denied { reason, .. }) => reason,
        _ => panic!("it is admitted"),
    };
    assert_eq!(denied(site.connect(4).await), Denial::StaleEpoch);
    young.start("wait", 1, b"").await;
    young.started(1).await;
    let hello =
        Hello { version: VERSION, store: Uuid::from_bytes([2; 16]), epoch: 9, runner: None };
    let (socket, limits) = (folder::socket(&site.folder()), Limits::default());
    let other = || connect(&socket, &hello, &limits);
    let Err(ConnectError::Denied { reason, .. }) = other().await else { panic!("admitted") };
    assert_eq!(reason, Denial::OtherStore);
    let older = Hello { version: VERSION - 1, ..hello.clone() };
    let ancient = connect(&socket, &older, &limits).await;
    assert!(matches!(ancient, Err(ConnectError::Denied { reason: Denial::Version, .. })));
    // None of them disturbed the receiver that was there.
    site.go().await;
    young.ended(1).await;
    young.ack(1).await;
    // With nothing left of the first store, its replacement may come.
    other().await.unwrap();
}

#[tokio::test]
async fn what_a_dead_receiver_left_unread_is_thrown_away() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    // The runner stands still while one receiver writes and dies and the next one knocks.
    let first = site.receiver(1).await;
    runner.signal(Signal::STOP);
    first.start("say", 1, &[b'x'; 1000]).await;
    drop(first);
    let socket = folder::socket(&site.folder());
    let second = tokio::spawn(async move {
        let hello = Hello { version: VERSION, store: STORE, epoch: 2, runner: None };
        connect(&socket, &hello, &Limits::default()).await.unwrap()
    });
    tokio::task::yield_now().await;
    runner.signal(Signal::CONT);
    let (list, say, hear) = patient(second).await.unwrap();
    let mut second = Receiver { list, say, hear, site: site.path("") };
    // Whether it was read before the second was admitted is a race; that the list tells is not.
    if listed(&second.list).is_empty() {
        second.start("say", 1, b"").await;
        second.started(1).await;
        second.ended(1).await;
        assert_eq!(site.ran(), 1);
    }
}

#[tokio::test]
async fn a_receiver_that_was_followed_by_another_starts_nothing() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut first = site.receiver(1).await;
    // The same epoch: one receiver whose connection was lost and made again.
    let mut second = site.receiver(1).await;
    assert_eq!(second.list.attempts, []);
    let _cut = first.say.start(first.start_of("say", 1, b""), b"").await;
    first.cut().await;
    second.start("say", 1, b"").await;
    second.started(1).await;
    second.ended(1).await;
    second.ack(1).await;
    assert_eq!(site.ran(), 1);
}

#[tokio::test]
async fn what_is_refused_never_ran() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("nothing", 1, b"").await;
    assert_eq!(receiver.refused(1).await, Refusal::UnknownHandler);
    let start = receiver.start_of("say", 1, b"");
    let other = Start { configuration: Digest([1; 32]), ..start.clone() };
    receiver.say.start(other, b"").await.unwrap();
    assert_eq!(receiver.refused(1).await, Refusal::OtherDigest);
    let other = Start {
        incarnation: "00000000-0000-0000-0000-000000000000/00000000000000000000000000000000"
            .parse()
            .unwrap(),
        ..start.clone()
    };
    receiver.say.start(other, b"").await.unwrap();
    assert_eq!(receiver.refused(1).await, Refusal::OtherIncarnation);
    receiver.say.start(start, b"another body").await.unwrap();
    assert_eq!(receiver.refused(1).await, Refusal::BadBody);
    receiver.start("broken", 1, b"").await;
    assert_eq!(receiver.refused(1).await, Refusal::CannotStart);
    assert_eq!(site.ran(), 0);
    // Not even in the table: the job may still be started.
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    receiver.start("wait", 1, b"").await;
    assert_eq!(receiver.refused(1).await, Refusal::Busy);
    assert_eq!(site.receiver(2).await.list.attempts.len(), 1);
}

#[tokio::test]
async fn orphans_of_commands_are_the_runners_and_do_not_stay_as_zombies() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    // It leaves the command's group, so that it outlives it.
    receiver.start("orphan", 1, b"").await;
    receiver.started(1).await;
    let (end, [stdout, _]) = receiver.ended_printing(1).await;
    assert_eq!(end, exited(Status::Code(3)));
    let orphan = text(stdout).trim().to_owned();
    let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap();
    let parent = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1).unwrap();
    assert_eq!(parent, runner.0.id().to_string());
    let orphan = Pid::from_raw(orphan.parse().unwrap()).unwrap();
    kill_process(orphan, Signal::KILL).unwrap();
    // A reaped process is nobody to a signal. Nothing tells when that is.
    let reaped = async {
        while rustix::process::test_kill_process(orphan).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patient(reaped).await;
}

#[tokio::test]
async fn the_configuration_is_read_again_for_every_receiver() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let file = site.path("hooklatch.toml");
    let mut receiver = site.receiver(1).await;
    let text = fs::read_to_string(&file).unwrap().replace("sha256sum; echo oops", "echo new");
    fs::write(&file, &text).unwrap();
    // Whoever was admitted before keeps what both had read.
    receiver.start("say", 1, b"").await;
    assert_eq!(receiver.refused(1).await, Refusal::OtherDigest);
    let mut receiver = site.receiver(1).await;
    receiver.start("say", 1, b"").await;
    receiver.started(1).await;
    assert_eq!(receiver.printed(1).await[1], "new\n");
    receiver.ack(1).await;
    // One that cannot be read changes nothing.
    let start = receiver.start_of("say", 1, b"");
    fs::write(&file, text + "[nonsense]").unwrap();
    let mut receiver = site.receiver(1).await;
    receiver.say.start(start, b"").await.unwrap();
    receiver.started(1).await;
    receiver.ended(1).await;
    assert_eq!(site.ran(), 2);
}

#[tokio::test]
async fn half_a_start_is_nothing() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let frame = |message: &ToRunner, body: &[u8]| {
        let header = serde_json::to_vec(message).unwrap();
        let lengths = [header.len(), body.len()].map(|n| (n as u32).to_be_bytes());
        [lengths.as_flattened(), &header, body].concat()
    };
    let hello = frame(
        &ToRunner::Hello(Hello { version: VERSION, store: STORE, epoch: 1, runner: None }),
        b"",
    );
    let start = site.receiver(1).await.start_of("say", 1, b"body");
    let start = frame(&ToRunner::Start(Box::new(start)), b"body");
    for cut in [1, 8, 20, start.len() - 4, start.len() - 1] {
        let mut stream = UnixStream::connect(site.folder().join("socket")).unwrap();
        stream.write_all(&hello).unwrap();
        stream.write_all(&start[..cut]).unwrap();
        drop(stream);
        assert_eq!(site.receiver(1).await.list.attempts, [], "{cut}");
    }
    let mut receiver = site.receiver(1).await;
    receiver.start("say", 1, b"body").await;
    receiver.started(1).await;
    receiver.ended(1).await;
    assert_eq!(site.ran(), 1);
}

#[tokio::test]
async fn the_next_runner_ends_what_a_dead_one_left_and_answers_for_it() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    for job in [1, 2] {
        receiver.start("say", job, b"").await;
        receiver.started(job).await;
        receiver.ended(job).await;
    }
    receiver.ack(2).await;
    receiver.start("wait", 3, b"").await;
    receiver.started(3).await;
    let dead = receiver.list.incarnation;
    runner.kill();
    receiver.cut().await;

    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    assert_ne!(receiver.list.incarnation, dead);
    assert_eq!(receiver.list.answers_for, [dead]);
    assert!(receiver.list.attempts.iter().all(|listed| listed.incarnation == dead));
    assert_eq!(listed(&receiver.list), [(key(1), true), (key(3), true)]);
    assert!(site.nobody_waits());
    // What was printed died with the runner.
    let without = (exited(Status::Code(0)), [Captured::default(), Captured::default()]);
    assert_eq!(receiver.ended_printing(1).await, without);
    let lost = Ended::Lost("its runner died while it ran".to_owned());
    assert_eq!(receiver.ended(3).await, lost);
    for job in [1, 3] {
        receiver.ack(job).await;
    }
    assert_eq!(site.receiver(1).await.list.attempts, []);
}

#[tokio::test]
async fn a_command_that_shed_its_environment_is_ended_by_what_the_ledger_says() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("shed", 1, b"").await;
    receiver.started(1).await;
    // Nothing names the attempt any more once this is heard.
    site.go().await;
    runner.kill();
    let _runner = site.runner(&[]);
    assert_eq!(listed(&site.receiver(1).await.list), [(key(1), true)]);
    assert!(site.nobody_waits());
}

#[tokio::test]
async fn what_nobody_answers_for_is_searched_for_and_ended() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    // As a runner left it whose ledger is lost. No other test has these jobs: all of one user's
    // processes are looked at.
    let left = |job: u8| {
        let mut command = Command::new("sleep");
        command.arg("1000").env("HOOKLATCH_JOB", key(job).job.to_string());
        command.env("HOOKLATCH_ATTEMPT", "1").process_group(0).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let (mut sought, mut other) = (left(41), left(42));
    receiver.start("wait", 43, b"").await;
    receiver.started(43).await;
    // Of what is in the list nothing is ended and nothing said.
    for job in [43, 41, 49] {
        receiver.say.search(key(job)).await.unwrap();
    }
    let mut gone = Vec::new();
    for _ in 0..2 {
        match receiver.hear().await.0 {
            ToReceiver::Gone { key } => gone.push(key),
            other => panic!("{other:?}"),
        }
    }
    gone.sort();
    assert_eq!(gone, [key(41), key(49)]);
    assert_eq!(sought.wait().unwrap().signal(), Some(9));
    assert_eq!(other.try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
    site.go().await;
    assert_eq!(receiver.ended(43).await, exited(Status::Code(7)));
}

#[tokio::test]
async fn there_is_one_runner_in_a_folder() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let output = site.command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another runner works in"));
    // Another store has a runner of its own.
    let other = site.path("other.db");
    let _other = site.runner(&["--store", other.to_str().unwrap()]);
    assert!(Path::new(&folder::of(&other)).exists());
}

#[tokio::test]
async fn a_runner_that_stops_waits_for_its_commands_and_their_results() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut first = site.receiver(1).await;
    first.start("wait", 1, b"").await;
    first.started(1).await;
    runner.signal(Signal::TERM);
    let told = first.hear().await.0;
    assert!(matches!(told, ToReceiver::Free { slots: 0, draining: true }), "{told:?}");
    first.start("say", 2, b"").await;
    assert_eq!(first.refused(2).await, Refusal::Draining);
    drop(first);
    // A receiver that starts now can still collect.
    let mut second = site.receiver(2).await;
    assert!(second.list.draining);
    site.go().await;
    assert_eq!(second.ended(1).await, exited(Status::Code(7)));
    second.say.ack(&[key(1)]).await.unwrap();
    assert_eq!(runner.left().await, Some(0));
    assert_eq!(site.ran(), 1);
}

#[tokio::test]
async fn a_second_signal_ends_the_commands_and_the_ledger_tells() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    runner.signal(Signal::TERM);
    receiver.hear().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.left().await, Some(0));
    let _runner = site.runner(&[]);
    let stopped = asked(Status::Signal(15), Some(AskedBy::Stop));
    assert_eq!(site.receiver(1).await.ended(1).await, stopped);
}

#[tokio::test]
async fn at_the_drain_limit_what_runs_is_ended_and_the_ledger_tells() {
    let site = Site::new("runner_drain_millis = \"100ms\"");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    // It does not hear SIGTERM, so that only SIGKILL ends it.
    receiver.start("deaf", 1, b"").await;
    receiver.started(1).await;
    site.go().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.left().await, Some(0));
    assert!(site.nobody_waits());
    let _runner = site.runner(&[]);
    let stopped = asked(Status::Signal(9), Some(AskedBy::Stop));
    assert_eq!(site.receiver(1).await.ended(1).await, stopped);
}

#[tokio::test]
async fn a_command_outlives_the_upgrade_of_its_runner() {
    let site = Site::new("output_head_bytes = \"3 B\"\noutput_tail_bytes = \"2 B\"");
    let mut runner = site.runner(&[]);
    let mut first = site.receiver(1).await;
    first.start("say", 1, b"").await;
    first.started(1).await;
    first.ended(1).await;
    first.start("prints", 2, b"").await;
    first.started(2).await;
    first.start("slow", 3, b"").await;
    first.started(3).await;
    // The one that is slow runs into its time-out while this one waits.
    let seen = |peeked: Option<Captured>| peeked.is_some_and(|peeked| peeked.total == Some(8));
    patient(async { while !seen(first.peek(2, Stream::Stdout).await) {} }).await;
    for upgrade in 0..2 {
        runner.signal(Signal::USR2);
        first.cut().await;
        runner.listens();
        let mut next = site.receiver(1).await;
        assert_eq!(next.list.incarnation, first.list.incarnation);
        assert_eq!((next.list.free, next.list.draining), (253, false));
        assert_eq!(next.list.answers_for, []);
        assert_eq!(listed(&next.list)[..2], [(key(1), true), (key(2), false)], "{upgrade}");
        let (end, [_, stderr]) = next.ended_printing(1).await;
        assert_eq!(end, exited(Status::Code(0)), "{upgrade}");
        assert_eq!((stderr.head, stderr.tail), (b"oop".to_vec(), b"s\n".to_vec()));
        first = next;
    }
    assert_eq!(site.command(&[]).output().unwrap().status.code(), Some(69), "its lock is lost");
    assert_eq!(first.ended(3).await, asked(Status::Signal(15), Some(AskedBy::TimeOut)));
    site.go().await;
    let (end, [stdout, _]) = first.ended_printing(2).await;
    assert_eq!(end, exited(Status::Code(0)));
    let whole = Captured { head: b"abc".to_vec(), tail: b"12".to_vec(), total: Some(10) };
    assert_eq!(stdout, whole);
    // It is a whole runner: a new command gets none of the descriptors that were handed over.
    first.start("look", 4, b"").await;
    first.started(4).await;
    assert_eq!(first.ended(4).await, exited(Status::Code(4)));
    for job in 1..=4 {
        first.ack(job).await;
    }
    first.start("wait", 5, b"").await;
    first.started(5).await;
    first.say.kill(key(5)).await.unwrap();
    assert_eq!(first.ended(5).await, asked(Status::Signal(15), Some(AskedBy::Cancelled)));
}

#[tokio::test]
async fn a_long_output_is_whole_after_the_upgrade_and_for_the_next_receiver() {
    let site = Site::new("output_head_bytes = \"300 KiB\"");
    let mut runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("chats", 1, b"300000 0\n").await;
    receiver.started(1).await;
    receiver.ended(1).await;
    receiver.start("prints-much", 2, b"").await;
    receiver.started(2).await;
    let all = |peeked: Option<Captured>| peeked.is_some_and(|it| it.total == Some(300_000));
    patient(async { while !all(receiver.peek(2, Stream::Stdout).await) {} }).await;
    runner.signal(Signal::USR2);
    receiver.cut().await;
    runner.listens();
    let mut receiver = site.receiver(2).await;
    assert_eq!(receiver.printed(1).await[0].len(), 300_000);
    site.go().await;
    let output = receiver.printed(2).await[0].clone();
    assert_eq!((output.len(), &output[299_999..]), (300_002, "\x0012"));
}

#[tokio::test]
async fn a_program_that_cannot_begin_replaces_nothing() {
    let site = Site::new("");
    let program = site.path("program");
    fs::hard_link(env!("CARGO_BIN_EXE_hooklatch"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_hooklatch"), &program).map(drop))
        .unwrap();
    let mut runner = site.runner_of(&program, &[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    let file = site.path("hooklatch.toml");
    let text = fs::read_to_string(&file).unwrap();
    // First it is no program, then one that will not have the configuration.
    fs::rename(&program, site.path("aside")).unwrap();
    fs::write(&program, "no program").unwrap();
    runner.signal(Signal::USR2);
    runner.says("cannot execute itself again");
    fs::remove_file(&program).unwrap();
    fs::rename(site.path("aside"), &program).unwrap();
    fs::write(&file, text.clone() + "[nonsense]").unwrap();
    runner.signal(Signal::USR2);
    runner.says("cannot execute itself again");
    fs::write(&file, text).unwrap();
    // Not even the connection is another.
    site.go().await;
    assert_eq!(receiver.ended(1).await, exited(Status::Code(7)));
    receiver.ack(1).await;
    runner.signal(Signal::USR2);
    runner.listens();
}

#[tokio::test]
async fn a_program_that_goes_away_before_it_is_executed_replaces_nothing() {
    let site = Site::new("");
    let program = site.path("program");
    fs::copy(env!("CARGO_BIN_EXE_hooklatch"), &program).unwrap();
    let mut runner = site.runner_of(&program, &[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    // Written aside: what runs cannot be written to.
    let script = site.path("script");
    fs::write(&script, "#!/bin/sh\nexec rm \"$0\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&script, &program).unwrap();
    runner.signal(Signal::USR2);
    runner.says("cannot execute itself again");
    for expected in [(0, true), (255, false)] {
        match receiver.hear().await.0 {
            ToReceiver::Free { slots, draining } => assert_eq!((slots, draining), expected),
            other => panic!("{other:?}"),
        }
    }
    // As before, also in what a failed execution had changed: SIGPIPE (13) is ignored, and nothing is
    // inherited.
    let status = fs::read_to_string(format!("/proc/{}/status", runner.0.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() >> 12 & 1, 1, "{ignored}");
    receiver.start("look", 2, b"").await;
    receiver.started(2).await;
    assert_eq!(receiver.ended(2).await, exited(Status::Code(4)));
    site.go().await;
    assert_eq!(receiver.ended(1).await, exited(Status::Code(7)));
}

#[tokio::test]
async fn a_hundred_commands_cost_little_memory() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    for job in 0..100 {
        receiver.start("idle", job, b"body").await;
        receiver.started(job).await;
    }
    let resident = runner.resident_kib();
    // Not optimised, it has more code; `cargo bench --bench runner` holds the release's bound.
    assert!(resident < 24 * 1024, "{resident} KiB");
    for job in 0..100 {
        receiver.say.kill(key(job)).await.unwrap();
        receiver.ended(job).await;
    }
}

#[tokio::test]
async fn an_idle_runner_leaves_when_nobody_needs_it() {
    let site = Site::new("runner_idle_millis = \"100ms\"");
    let runner = site.runner(&["--leave-when-idle"]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    drop(receiver);
    site.go().await;
    // Nobody was told yet, so it is there, however long that takes.
    let mut receiver = site.receiver(1).await;
    receiver.ended(1).await;
    receiver.ack(1).await;
    drop(receiver);
    assert_eq!(runner.left().await, Some(0));
    assert!(!site.folder().join("socket").exists());
    // What it leaves says that nothing is left.
    let _runner = site.runner(&["--leave-when-idle"]);
    let list = site.receiver(1).await.list;
    assert_eq!((list.attempts.len(), list.answers_for.len()), (0, 1));
}

#[tokio::test]
async fn a_launched_runner_is_nobodys_child_and_leaves_when_idle() {
    let site = Site::new("runner_idle_millis = \"100ms\"");
    let launch = Launch {
        program: env!("CARGO_BIN_EXE_hooklatch").into(),
        config: site.path("hooklatch.toml"),
        store: site.path("store.db"),
        log: site.path("runner.log"),
        inside_a_unit: false,
        files: getrlimit(Resource::Nofile),
    };
    let refused = Launch { inside_a_unit: true, ..launch.clone() }.run().unwrap_err();
    assert!(refused.to_string().contains("hooklatch runner --config"), "{refused}");
    tokio::task::spawn_blocking(move || launch.run().unwrap()).await.unwrap();
    // It listens already.
    let mut receiver = site.receiver(1).await;
    let peer = UnixStream::connect(site.folder().join("socket")).unwrap();
    let runner = rustix::net::sockopt::socket_peercred(&peer).unwrap().pid;
    // It leads its session. Ours may be outside of this PID namespace.
    assert_eq!(rustix::process::getsid(Some(runner)).unwrap(), runner);
    let streams = [0, 1].map(|n| format!("/proc/{}/fd/{n}", runner.as_raw_pid()));
    let streams = streams.map(|stream| fs::read_link(stream).unwrap());
    assert_eq!(streams, ["/dev/null", "/dev/null"].map(PathBuf::from));
    receiver.start("say", 1, b"").await;
    receiver.started(1).await;
    receiver.ended(1).await;
    receiver.ack(1).await;
    let pidfd = rustix::process::pidfd_open(runner, rustix::process::PidfdFlags::empty()).unwrap();
    drop((receiver, peer));
    let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ended, Some(&limit)), Ok(1), "it does not leave");
}

#[tokio::test]
async fn a_runner_that_leaves_takes_its_socket_away_before_another_can_come() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    let site = Site::new("");
    let runner = site.runner(&[]);
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let flags = WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
    inotify::add_watch(&watch, site.folder(), flags).unwrap();
    runner.signal(Signal::TERM);
    assert_eq!(runner.left().await, Some(0));
    let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = events.next() {
        let name = event.file_name().unwrap().to_str().unwrap().to_owned();
        seen.push((name, event.events().contains(ReadFlags::DELETE)));
    }
    // The lock is given back when its file is closed.
    let position = |name: &str, gone| seen.iter().position(|one| *one == (name.to_owned(), gone));
    let (socket, lock) = (position("socket", true), position("lock", false));
    assert!(socket.is_some() && socket < lock, "{seen:?}");
}

#[tokio::test]
async fn a_launch_beside_a_runner_leaves_its_log_readable() {
    let site = Site::new("");
    let launch = Launch {
        program: env!("CARGO_BIN_EXE_hooklatch").into(),
        config: site.path("hooklatch.toml"),
        store: site.path("store.db"),
        log: site.path("runner.log"),
        inside_a_unit: false,
        files: getrlimit(Resource::Nofile),
    };
    let mut pid = None;
    for _ in 0..2 {
        let launch = launch.clone();
        tokio::task::spawn_blocking(move || launch.run().unwrap()).await.unwrap();
        let peer = UnixStream::connect(site.folder().join("socket")).unwrap();
        pid = Some(rustix::net::sockopt::socket_peercred(&peer).unwrap().pid);
    }
    let pidfd =
        rustix::process::pidfd_open(pid.unwrap(), rustix::process::PidfdFlags::empty()).unwrap();
    kill_process(pid.unwrap(), Signal::TERM).unwrap();
    let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ended, Some(&limit)), Ok(1), "it does not leave");
    let log = fs::read_to_string(site.path("runner.log")).unwrap();
    assert!(log.contains("another runner works in") && log.contains("left"), "{log:?}");
    assert!(log.lines().all(|line| line.starts_with("{") || line.starts_with("error")), "{log:?}");
}

#[tokio::test]
async fn a_runner_that_could_not_begin_again_with_its_ledger_stays() {
    let site = Site::new("");
    let mut runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    receiver.start("wait", 1, b"").await;
    receiver.started(1).await;
    // As a full disk would, it keeps the ledger from being written anew.
    let obstacle = site.folder().join("new-ledger");
    fs::create_dir(&obstacle).unwrap();
    runner.signal(Signal::USR2);
    runner.says("cannot execute itself again");
    fs::remove_dir(&obstacle).unwrap();
    for expected in [true, false] {
        let told = receiver.hear().await.0;
        assert!(matches!(told, ToReceiver::Free { draining, .. } if draining == expected));
    }
    runner.signal(Signal::USR2);
    receiver.cut().await;
    runner.listens();
    let mut receiver = site.receiver(1).await;
    site.go().await;
    assert_eq!(receiver.ended(1).await, exited(Status::Code(7)));
}

#[tokio::test]
async fn whoever_is_refused_is_told_what_mends_it() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut first = site.receiver(5).await;
    first.start("wait", 1, b"").await;
    first.started(1).await;
    let hello = |store, epoch| Hello { version: VERSION, store, epoch, runner: None };
    let others = [hello(Uuid::from_bytes([2; 16]), 9), hello(STORE, 4)];
    let mut told = Vec::new();
    for hello in &others {
        match connect(&folder::socket(&site.folder()), hello, &Limits::default()).await {
            Err(ConnectError::Denied { detail, .. }) => told.push(detail),
            _ => panic!("it is admitted"),
        }
    }
    // As it is told: stop the runner, and remove the file.
    runner.signal(Signal::TERM);
    first.hear().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.left().await, Some(0));
    let ledger = site.ledger_path();
    for detail in told {
        assert!(detail.contains(&format!("rm {}", ledger.display())), "{detail}");
    }
    fs::remove_file(ledger).unwrap();
    let _runner = site.runner(&[]);
    for hello in &others {
        let (list, ..) =
            connect(&folder::socket(&site.folder()), hello, &Limits::default()).await.unwrap();
        assert_eq!((list.attempts.len(), list.answers_for.len()), (0, 0));
    }
}

#[tokio::test]
async fn a_runner_that_has_lost_its_ledger_does_not_go_on_as_the_same() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("");
    // Takes the ledger away between the old program and the new one.
    let program = site.path("program");
    let real = env!("CARGO_BIN_EXE_hooklatch");
    let script = format!(
        "#!/bin/sh\n[ \"$HOOKLATCH_RUNNER_STATE\" = rehearsal ] || rm {}/ledger-*\nexec {real} \"$@\"\n",
        site.folder().display()
    );
    fs::copy(real, &program).unwrap();
    let runner = site.runner_of(&program, &[]);
    let mut first = site.receiver(1).await;
    first.start("say", 1, b"").await;
    first.started(1).await;
    first.ended(1).await;
    fs::write(site.path("script"), script).unwrap();
    fs::set_permissions(site.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(site.path("script"), &program).unwrap();
    runner.signal(Signal::USR2);
    // It would be believed that what it does not list never started.
    assert_eq!(runner.left().await, Some(74));
    let _runner = site.runner(&[]);
    let list = site.receiver(1).await.list;
    assert_ne!(list.incarnation, first.list.incarnation);
    assert!(!list.answers_for.contains(&first.list.incarnation));
}
