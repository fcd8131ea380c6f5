//! The receiver process on a scratch site and the runner that it launches.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use tokio::time::{sleep, timeout};

use super::PATIENCE;
use super::site::Site;
use crate::exit::{Exit, Failure};
use crate::runner::folder;

/// How often a process that starts or ends is looked at.
const POLL: Duration = Duration::from_millis(10);

/// What a receiver gets of the operator's environment: nothing that could configure it, or make it
/// take itself for part of a service manager's unit.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// A running receiver. Dropped, it gets SIGKILL and is waited for.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Receiver {
    /// Starts one that appends to `receiver.log`, and waits until it serves.
    pub(crate) async fn start(site: &Site) -> Result<Self, Failure> {
        let log_path = site.path("receiver.log");
        let spawn = || {
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path)?;
            let logged = log.metadata()?.len();
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["serve", "--log", "info", "--config"]);
            command.arg(site.config()).env_clear();
            for name in ENVIRONMENT {
                command.envs(std::env::var_os(name).map(|value| (name, value)));
            }
            // Its own group: Ctrl-C reaches this process alone, which then stops the receiver.
            command.process_group(0).stdin(Stdio::null()).stderr(log);
            // SAFETY: prctl is safe to call between fork and exec.
            unsafe { command.pre_exec(end_with_parent) };
            Ok((command.spawn()?, logged))
        };
        let (child, logged) = spawn().map_err(|error: io::Error| {
            Failure::new(Exit::Io, format!("failed to start the receiver: {error}"))
        })?;
        let mut receiver = Receiver { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let serves = timeout(PATIENCE, async {
            while let Ok(None) = receiver.child.try_wait() {
                if let Some(address) = serving_address(&log_path, logged) {
                    return Some(address);
                }
                sleep(POLL).await;
            }
            None
        });
        if let Ok(Some(address)) = serves.await {
            receiver.address = address;
            return Ok(receiver);
        }
        Err(Failure::new(Exit::Unavailable, "the receiver does not serve")
            .help(format!("its last words are in {}", log_path.display())))
    }

    /// SIGTERM, and waits for its end, which must be a good one.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        // An error means that it has ended, which `try_wait` then reports.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = async {
            while let Ok(None) = self.child.try_wait() {
                sleep(POLL).await;
            }
        };
        let _ = timeout(PATIENCE, end).await;
        let why = match self.child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => format!("ended with {status}"),
            Ok(None) => "did not end".to_owned(),
            Err(error) => format!("cannot be waited for ({error})"),
        };
        let message = format!("the receiver {why} when stopped");
        Err(Failure::new(Exit::Unavailable, message))
    }
}

/// SIGTERM for this process when its parent ends, which may be by SIGKILL.
fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Both fail where it has ended and was waited for, as after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the line `serving` that is in the log behind its first `start` bytes.
fn serving_address(log: &Path, start: u64) -> Option<SocketAddr> {
    let text = fs::read(log).ok()?;
    let lines = text.get(usize::try_from(start).ok()?..)?.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let serving = fields.into_iter().find(|fields| fields["message"] == "serving")?;
    serving["address"].as_str()?.parse().ok()
}

/// A runner, held by a descriptor: its process number may be reused, the descriptor cannot be.
pub(crate) struct Runner(OwnedFd);

impl Runner {
    /// The runner of the store at `database`, where one listens.
    pub(super) fn find(database: &Path) -> Option<Self> {
        let mut stream = UnixStream::connect(folder::socket(&folder::of(database))).ok()?;
        let pid = socket_peercred(&stream).ok()?.pid;
        let runner = Runner(pidfd_open(pid, PidfdFlags::empty()).ok()?);
        // While the connection stands, its listener lives and the number is still its own.
        stream.set_nonblocking(true).ok()?;
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(runner),
            _ => None,
        }
    }

    /// SIGKILL, and waits for its end.
    pub(crate) async fn kill(&self) -> Result<(), Failure> {
        if self.ends_after(Signal::KILL, PATIENCE).await {
            return Ok(());
        }
        Err(Failure::new(Exit::Unavailable, "the runner does not die"))
    }

    /// SIGTERM, after which it ends where nothing runs; the second one ends what runs.
    pub(super) async fn stop(&self) -> Result<(), Failure> {
        for wait in [Duration::from_secs(1), PATIENCE] {
            if self.ends_after(Signal::TERM, wait).await {
                return Ok(());
            }
        }
        Err(Failure::new(Exit::Unavailable, "the runner does not end"))
    }

    async fn ends_after(&self, signal: Signal, wait: Duration) -> bool {
        // An error means that it has ended already.
        let _ = pidfd_send_signal(&self.0, signal);
        let ended = || {
            let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
            matches!(poll(&mut watched, Some(&Timespec::default())), Ok(1..))
        };
        let end = async {
            while !ended() {
                sleep(POLL).await;
            }
        };
        timeout(wait, end).await.is_ok()
    }
}
