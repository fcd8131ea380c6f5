//! A site with handlers, its runner and a receiver that is connected to it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hooklatch::config::{self, Environment};
use hooklatch::model::{Digest, EventType, Facts, Headers, JobId, Name, RunnerName, Timestamp};
use hooklatch::runner::client::{ConnectError, Events, Sender, connect};
use hooklatch::runner::launch::Launch;
use hooklatch::runner::message::{
    Hello, HelloOk, Key, Listed, Refusal, Start, Stream, ToReceiver, ToRunner, VERSION,
};
use hooklatch::runner::{AskedBy, Captured, Ended, Exited, Status, Usage, folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit, kill_process, pidfd_open};
use uuid::Uuid;

use crate::support::install;

/// Longest wait for anything: only a fault reaches it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_hooklatch");
pub(super) const STORE: Uuid = Uuid::from_bytes([1; 16]);

/// Name, shell command and further keys of each handler. `wait` reads a FIFO until the test writes to it;
/// `ran` gets a line for each run.
const HANDLERS: &[(&str, &str, &str)] = &[
    ("say", "echo $HOOKLATCH_JOB $HOOKLATCH_ATTEMPT >>ran; sha256sum; echo oops >&2", ""),
    ("wait", "echo $HOOKLATCH_JOB $HOOKLATCH_ATTEMPT >>ran; read line <go; echo $line; exit 7", ""),
    ("slow", "exec sleep 1000", "timeout = '1s'"),
    ("idle", "exec sleep 1000", ""),
    ("shed", "exec env -i /bin/sh -c 'read line <go; read line <go'", ""),
    ("prints", "printf abcdefgh; read line <go; printf 12", ""),
    ("prints-much", "head -c 300000 /dev/zero; read line <go; printf 12", ""),
    (
        "orphan",
        "left=$HOOKLATCH_JOB; mkfifo $left; \
         setsid sh -c 'echo $$; echo >$0; exec sleep 1000 >/dev/null 2>&1' $left & read line <$left; exit 3",
        "",
    ),
    ("deaf", "trap '' TERM; read line <go; read line <go; read line <go", "grace = '100ms'"),
    ("look", "set -- /proc/self/fd/*; exit $#", ""),
    // Prints as many bytes as its body says.
    ("chats", "read out err; head -c $out /dev/zero; head -c $err /dev/zero >&2", ""),
    // `tail` holds all of it, as a child that the shell waits for.
    ("large", "head -c 100000000 /dev/zero | tail -c 100000000 | sha256sum", ""),
];

pub(super) struct Site(tempfile::TempDir);

/// A runner with these limits, and a receiver of epoch 1 that is connected to it.
pub(super) async fn connected(limits: &str) -> (Site, Runner, Receiver) {
    let site = Site::new(limits);
    let runner = site.runner(&[]);
    let receiver = site.receiver(1).await;
    (site, runner, receiver)
}

impl Site {
    /// The secret's file does not exist, because a runner never reads it.
    pub(super) fn new(limits: &str) -> Self {
        let site = Site(tempfile::tempdir().unwrap());
        let mut text = format!(
            "[storage]\npath = \"store.db\"\n[limits]\n{limits}\n\
             [sources.github]\nprovider = \"github\"\nsecrets = [\"file:nowhere\"]\n"
        );
        let shell = |&(name, script, more): &(&str, &str, &str)| {
            (name.to_owned(), format!("['/bin/sh', '-c', {script:?}]\n{more}"))
        };
        let broken = ("broken".to_owned(), "['/nowhere/program']".to_owned());
        for (name, command) in HANDLERS.iter().map(shell).chain([broken]) {
            let folder = site.0.path().display();
            text += &format!(
                "[handlers.{name}]\nsource = 'github'\nevents = ['*']\ncwd = '{folder}'\ncommand = {command}\n"
            );
        }
        fs::write(site.path("hooklatch.toml"), text).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, site.path("go"), 0o600.into()).unwrap();
        site
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn folder(&self) -> PathBuf {
        folder::of(&self.path("store.db"))
    }

    /// How many commands have started.
    pub(super) fn runs(&self) -> usize {
        fs::read_to_string(self.path("ran")).unwrap_or_default().lines().count()
    }

    pub(super) fn ledger_path(&self) -> PathBuf {
        let mut files = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.to_str().unwrap().contains("/ledger-")).unwrap()
    }

    pub(super) fn ledger(&self) -> String {
        fs::read_to_string(self.ledger_path()).unwrap()
    }

    /// Releases one `wait`; returns when it has read the line.
    pub(super) async fn release(&self) {
        let path = self.path("go");
        let write = tokio::task::spawn_blocking(move || fs::write(path, "went\n"));
        patient(write).await.unwrap().unwrap();
    }

    /// Whether no command reads the FIFO.
    pub(super) fn fifo_has_no_reader(&self) -> bool {
        use rustix::fs::{Mode, OFlags, open};
        let opened = open(self.path("go"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        opened.err() == Some(rustix::io::Errno::NXIO)
    }

    pub(super) fn command(&self, program: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("runner").arg("--config").arg(self.path("hooklatch.toml")).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts a runner and waits until it listens.
    pub(super) fn runner(&self, options: &[&str]) -> Runner {
        self.runner_of(Path::new(PROGRAM), options)
    }

    pub(super) fn runner_of(&self, program: &Path, options: &[&str]) -> Runner {
        let mut child = self.command(program, options).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if std::env::var_os("HOOKLATCH_TEST_LOG").is_some() {
                    eprintln!("{line}");
                }
                let _ = sender.send(line);
            }
        });
        let mut runner = Runner(child, lines);
        runner.listens();
        runner
    }

    /// A program of the site's own, so that a test can replace it.
    pub(super) fn own_program(&self) -> PathBuf {
        let program = self.path("program");
        install(fs::File::open(PROGRAM).unwrap(), &program);
        program
    }

    /// Replaces the site's own program by renaming: a running program's file cannot be written to.
    pub(super) fn replace_program(&self, script: &str) {
        let aside = self.path("script");
        install(script.as_bytes(), &aside);
        fs::rename(aside, self.path("program")).unwrap();
    }

    pub(super) async fn connect_as(&self, hello: &Hello) -> Result<Receiver, ConnectError> {
        let socket = folder::socket(&self.folder());
        let (list, say, hear) = connect(&socket, hello).await?;
        Ok(Receiver { list, say, hear, site: self.path("") })
    }

    /// Why the runner does not admit this receiver.
    pub(super) async fn denied(&self, hello: &Hello) -> String {
        match self.connect_as(hello).await {
            Err(ConnectError::Denied(detail)) => detail,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("the runner accepts {hello:?}"),
        }
    }

    pub(super) async fn receiver(&self, epoch: u64) -> Receiver {
        self.connect_as(&hello(STORE, epoch)).await.unwrap()
    }

    pub(super) fn launch(&self) -> Launch {
        Launch {
            program: PROGRAM.into(),
            config: self.path("hooklatch.toml"),
            store: self.path("store.db"),
            log: self.path("runner.log"),
            inside_a_unit: false,
            files: getrlimit(Resource::Nofile),
        }
    }

    pub(super) fn stream(&self) -> UnixStream {
        UnixStream::connect(self.folder().join("socket")).unwrap()
    }

    /// The process that listens on the socket.
    pub(super) fn listener(&self) -> Pid {
        rustix::net::sockopt::socket_peercred(self.stream()).unwrap().pid
    }
}

pub(super) fn hello(store: Uuid, epoch: u64) -> Hello {
    Hello { version: VERSION, store, epoch, runner: None }
}

/// A runner, and the lines it logs.
pub(super) struct Runner(pub(super) Child, mpsc::Receiver<String>);

impl Runner {
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(super) fn listens(&mut self) {
        self.logs("running commands");
    }

    /// Waits for a line with this text.
    pub(super) fn logs(&mut self, text: &str) {
        while !self.1.recv_timeout(PATIENCE).expect("the runner does not log it").contains(text) {}
    }

    /// Executes itself again; returns when it listens and has closed this connection.
    pub(super) async fn upgrade(&mut self, receiver: &mut Receiver) {
        self.signal(Signal::USR2);
        receiver.until_closed().await;
        self.listens();
    }

    pub(super) fn fails_to_upgrade(&mut self) {
        self.signal(Signal::USR2);
        self.logs("cannot execute itself again");
    }

    /// The value of a line in `/proc/PID/status`.
    pub(super) fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    /// Its own memory. The pages of the program, which the kernel may drop, differ from build to build.
    pub(super) fn anonymous_kib(&self) -> u64 {
        self.status("RssAnon:").trim_end_matches(" kB").parse().unwrap()
    }

    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it has exited by itself.
    pub(super) async fn exit_code(mut self) -> Option<i32> {
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

/// Waits for the end of a process that is not a child of this one.
pub(super) struct Exit(rustix::fd::OwnedFd);

impl Exit {
    pub(super) fn of(process: Pid) -> Self {
        Exit(pidfd_open(process, PidfdFlags::empty()).unwrap())
    }

    pub(super) fn wait(self) {
        let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&limit)), Ok(1), "it does not exit");
    }
}

pub(super) struct Receiver {
    pub(super) list: HelloOk,
    pub(super) say: Sender,
    hear: Events,
    site: PathBuf,
}

pub(super) async fn patient<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not come")
}

thread_local! {
    /// Different in each test, because a runner that searches for a job's processes finds those of every
    /// runner of the same user.
    static JOBS: Uuid = Uuid::now_v7();
}

pub(super) fn key(job: u8) -> Key {
    let mut id = JOBS.with(|jobs| *jobs.as_bytes());
    id[15] = job;
    Key { job: JobId::from_bytes(id), attempt: 1 }
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

impl Receiver {
    /// A start as the receiver makes it from the same configuration.
    pub(super) fn start_of(&self, handler: &str, job: u8, body: &[u8]) -> Start {
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
        let configuration = configured.map_or(Digest([0; 32]), |command| command.digest);
        Start { incarnation: self.list.incarnation, configuration, body: digest(body), facts }
    }

    pub(super) async fn start(&self, handler: &str, job: u8, body: &[u8]) {
        self.say.start(self.start_of(handler, job, body), body).await.unwrap();
    }

    /// Starts a job and waits until it runs.
    pub(super) async fn begin(&mut self, handler: &str, job: u8, body: &[u8]) {
        self.start(handler, job, body).await;
        self.started(job).await;
    }

    /// Runs a job to any end.
    pub(super) async fn run(&mut self, handler: &str, job: u8, body: &[u8]) {
        self.begin(handler, job, body).await;
        self.ended(job).await;
    }

    pub(super) async fn hear(&mut self) -> (ToReceiver, Vec<u8>) {
        patient(self.hear.next()).await.unwrap().expect("the connection ended")
    }

    pub(super) async fn started(&mut self, job: u8) {
        match self.hear().await.0 {
            ToReceiver::Started { key: heard } => assert_eq!(heard, key(job)),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn reports(&mut self, job: u8, expected: Ended) {
        assert_eq!(self.ended(job).await, expected);
    }

    pub(super) async fn exits(&mut self, job: u8, code: u8) {
        self.reports(job, exited(code)).await;
    }

    pub(super) async fn ended(&mut self, job: u8) -> Ended {
        self.ended_printing(job).await.0
    }

    /// The end, and its outputs separately.
    pub(super) async fn ended_printing(&mut self, job: u8) -> (Ended, [Captured; 2]) {
        match self.hear().await {
            (ToReceiver::Ended { key: heard, end, outputs }, body) if heard == key(job) => {
                match outputs.read(*end, body).expect("a body of another length") {
                    Ended::Exited(Exited { status, asked_by, stdout, stderr, .. }) => {
                        (ended(status, asked_by), [stdout, stderr])
                    }
                    lost => (lost, Default::default()),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The outputs, as text, of a command that exits with 0.
    pub(super) async fn printed(&mut self, job: u8) -> [String; 2] {
        let (end, outputs) = self.ended_printing(job).await;
        assert_eq!(end, exited(0));
        outputs.map(text)
    }

    /// What it has printed so far.
    pub(super) async fn peek(&mut self, job: u8, stream: Stream) -> Option<Captured> {
        self.say.send(ToRunner::Peek { key: key(job), stream }).await.unwrap();
        match self.hear().await {
            (ToReceiver::Peeked { key: heard, stream: of, output }, body) => {
                assert_eq!((heard, of), (key(job), stream));
                output.map(|output| output.read(body).expect("a body of another length"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the runner has read so many bytes of standard output.
    pub(super) async fn until_printed(&mut self, job: u8, total: u64) {
        let read = |peeked: Option<Captured>| peeked.is_some_and(|it| it.total == Some(total));
        patient(async { while !read(self.peek(job, Stream::Stdout).await) {} }).await;
    }

    pub(super) async fn refused(&mut self, job: u8, expected: Refusal) {
        match self.hear().await.0 {
            ToReceiver::Refused { key: heard, reason, .. } if heard == key(job) => {
                assert_eq!(reason, expected);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn draining(&mut self, expected: bool) {
        match self.hear().await.0 {
            ToReceiver::Draining { draining } => assert_eq!(draining, expected),
            other => panic!("{other:?}"),
        }
    }

    /// Returns when the runner has forgotten it.
    pub(super) async fn ack(&mut self, job: u8) {
        self.say.ack(&[key(job)]).await.unwrap();
        assert_eq!(self.peek(job, Stream::Stdout).await, None);
    }

    /// Waits until the runner has closed the connection.
    pub(super) async fn until_closed(&mut self) {
        while let Ok(Some(_)) = patient(self.hear.next()).await {}
    }

    /// Each attempt in the list, and whether it has ended.
    pub(super) fn listed(&self) -> Vec<(Key, bool)> {
        self.list.attempts.iter().map(|Listed { key, ended }| (*key, *ended)).collect()
    }
}

/// An output that is complete.
pub(super) fn text(output: Captured) -> String {
    assert_eq!((output.total, output.tail.len()), (Some(output.head.len() as u64), 0));
    String::from_utf8(output.head).unwrap()
}

pub(super) fn exited(code: u8) -> Ended {
    ended(Status::Code(code.into()), None)
}

pub(super) fn signalled(signal: u8, asked_by: AskedBy) -> Ended {
    ended(Status::Signal(signal.into()), Some(asked_by))
}

/// Resource usage differs from run to run, so [`Receiver::ended`] leaves it out.
pub(super) fn ended(status: Status, asked_by: Option<AskedBy>) -> Ended {
    Ended::Exited(Exited::without_outputs(status, asked_by, Usage::default()))
}
