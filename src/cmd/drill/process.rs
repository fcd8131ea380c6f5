//! The processes that a drill kills and stops, each by a handle that can never mean another one.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::exit::{Exit, Failure};
use crate::runner::folder;

use super::site::Site;

/// How long a receiver may take until it serves, and any process until it has left.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a receiver gets of the operator's environment: nothing that could configure it, or make it
/// take itself for part of a service manager's unit.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// A running receiver. Dropped, it is killed.
pub(super) struct Receiver {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Receiver {
    /// Starts one and waits until it serves.
    pub(super) async fn start(site: &Site) -> Result<Self, Failure> {
        let started = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("serve").arg("--config").arg(site.config_path()).args(["--log", "info"]);
            command.env_clear();
            for name in ENVIRONMENT {
                command.envs(std::env::var_os(name).map(|value| (name, value)));
            }
            // A group of its own: Ctrl-C is for the drill, which then stops what it has started.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            let lines = child.stderr.take();
            let (serves, serving) = oneshot::channel();
            // The address is not known yet; until then this value only kills what is dropped.
            let receiver = Receiver { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
            let log = site.log_path();
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
            let follow = move || lines.map(|lines| keep_log(lines, log, serves));
            std::thread::Builder::new().name("log".to_owned()).spawn(follow)?;
            Ok((receiver, serving))
        };
        let (mut receiver, serving) = started().map_err(|error: io::Error| {
            Failure::new(Exit::Io, format!("failed to start the receiver: {error}"))
        })?;
        match timeout(PATIENCE, serving).await {
            Ok(Ok(address)) => {
                receiver.address = address;
                Ok(receiver)
            }
            _ => Err(Failure::new(Exit::Unavailable, "the receiver does not serve")
                .help(format!("its last words are in {}", site.log_path().display()))),
        }
    }

    /// SIGKILL, and waits for its end.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| {
            Failure::new(Exit::Io, format!("failed to kill the receiver: {error}"))
        })
    }

    /// SIGTERM, and waits for its end, which must be a good one.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let failed = |why: String| {
            Failure::new(Exit::Unavailable, format!("the receiver {why} when stopped"))
        };
        let process = Process::open(Pid::from_child(&self.child));
        let process = process.map_err(|error| failed(format!("cannot be watched ({error})")))?;
        process.signal(Signal::TERM);
        if !process.ended() {
            return Err(failed("did not end".to_owned()));
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(format!("ended with {status}"))),
            Err(error) => Err(failed(format!("cannot be waited for ({error})"))),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Nothing to be done for one that has ended already, as after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies a receiver's log lines to `log`, and tells its address once it serves.
fn keep_log(lines: ChildStderr, mut log: impl Write, serves: oneshot::Sender<SocketAddr>) {
    let mut serves = Some(serves);
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        // A log that cannot be written must not keep the receiver from writing on.
        let _ = writeln!(log, "{line}");
        if serves.is_some()
            && let Ok(fields) = serde_json::from_str::<serde_json::Value>(&line)
            && fields["message"] == "serving"
            && let Some(address) = fields["address"].as_str().and_then(|text| text.parse().ok())
            && let Some(serves) = serves.take()
        {
            let _ = serves.send(address);
        }
    }
}

/// A process that is held by a descriptor: its number may be given to another one, this may not.
pub(super) struct Process(OwnedFd);

impl Process {
    fn open(pid: Pid) -> io::Result<Self> {
        Ok(Process(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// The runner of the store at `database`, where one listens.
    pub(super) fn runner(database: &Path) -> Option<Self> {
        let mut stream = UnixStream::connect(folder::socket(&folder::of(database))).ok()?;
        let process = Process::open(socket_peercred(&stream).ok()?.pid).ok()?;
        // The number was that of the listener, and still is if the connection stands: only then does
        // the descriptor mean it.
        stream.set_nonblocking(true).ok()?;
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(process),
            _ => None,
        }
    }

    /// SIGKILL, and waits for its end. False where it did not come.
    pub(super) fn kill(&self) -> bool {
        self.signal(Signal::KILL);
        self.ended()
    }

    /// SIGTERM, with which it leaves where nothing runs; a second one, with which it ends what does.
    pub(super) fn stop(&self) -> bool {
        [Duration::from_secs(1), PATIENCE].into_iter().any(|wait| {
            self.signal(Signal::TERM);
            self.ends_within(wait)
        })
    }

    fn signal(&self, signal: Signal) {
        // An error means that it has ended, or shows in that it does not.
        let _ = pidfd_send_signal(&self.0, signal);
    }

    fn ended(&self) -> bool {
        self.ends_within(PATIENCE)
    }

    /// Waits for the end of a process, which its descriptor tells by being readable. Blocks.
    fn ends_within(&self, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).ok();
        let look = || poll(&mut [PollFd::new(&self.0, PollFlags::IN)], wait.as_ref());
        block_in_place(|| matches!(retry_on_intr(look), Ok(1..)))
    }
}
