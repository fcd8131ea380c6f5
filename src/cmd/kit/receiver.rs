//! Starts, stops and kills the receiver process on a scratch site, and the runner that it launches.
//!
//! `demo`, `drill` and the crash tests use it. Must stay true: a receiver or runner of a scratch site does
//! not outlive the command that started it, even if that command is killed.

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
use crate::exit::{Exit, Failure};
use crate::runner::folder;

/// How often a process that starts or ends is checked.
const POLL: Duration = Duration::from_millis(10);

/// The environment variables that a receiver inherits. Others could configure it, or make it believe
/// that it runs in a service manager's unit.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// A running receiver. Dropping it kills the process with SIGKILL and reaps it.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Receiver {
    /// Starts a receiver that appends to the log at `log_path`, and waits until it serves.
    pub(super) async fn start(config: &Path, log_path: &Path) -> Result<Self, Failure> {
        let spawn = || {
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log_path)?;
            let logged = log.metadata()?.len();
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["serve", "--log", "info", "--config"]);
            command.arg(config).env_clear();
            for name in ENVIRONMENT {
                command.envs(std::env::var_os(name).map(|value| (name, value)));
            }
            // A separate process group: Ctrl-C reaches only this process, which then stops the receiver.
            command.process_group(0).stdin(Stdio::null()).stderr(log);
            // The kernel sends it SIGTERM when this process ends, even by SIGKILL.
            let with_parent = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
            // SAFETY: prctl is safe to call between fork and exec.
            unsafe { command.pre_exec(with_parent) };
            Ok((command.spawn()?, logged))
        };
        let spawned: io::Result<_> = spawn();
        let (child, logged) = spawned.map_err(Failure::io("start the receiver"))?;
        let mut receiver = Receiver { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let serves = timeout(PATIENCE, async {
            while let Ok(None) = receiver.child.try_wait() {
                if let Some(address) = serving_address(log_path, logged) {
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
        Err(Exit::Unavailable
            .failure("the receiver does not serve")
            .help(format!("its last words are in {}", log_path.display())))
    }

    /// Sends SIGTERM and waits until the process has ended. Fails if it does not end with exit code 0.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        // An error means that the process has ended, which `try_wait` then reports.
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
        Err(Exit::Unavailable.failure(message))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Both calls fail if the process was already reaped, as after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the log line `serving` after the log's first `start` bytes.
fn serving_address(log: &Path, start: u64) -> Option<SocketAddr> {
    let text = fs::read(log).ok()?;
    let lines = text.get(usize::try_from(start).ok()?..)?.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let serving = fields.into_iter().find(|fields| fields["message"] == "serving")?;
    serving["address"].as_str()?.parse().ok()
}

/// A runner process, referred to by a pidfd, because its process id could be reused.
pub(crate) struct Runner(OwnedFd);

impl Runner {
    /// The runner of the store at `database`, if one listens.
    pub(super) fn find(database: &Path) -> Option<Self> {
        let mut stream = UnixStream::connect(folder::socket(&folder::of(database))).ok()?;
        let pid = socket_peercred(&stream).ok()?.pid;
        let runner = Runner(pidfd_open(pid, PidfdFlags::empty()).ok()?);
        // If the connection is still open, its listener lives, so the pidfd is that of the runner and not
        // of a process that got its id later.
        stream.set_nonblocking(true).ok()?;
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(runner),
            _ => None,
        }
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub(crate) async fn kill(&self) -> Result<(), Failure> {
        if self.ends_after(Signal::KILL, PATIENCE).await {
            return Ok(());
        }
        Err(Exit::Unavailable.failure("the runner does not die"))
    }

    /// Sends SIGTERM, which ends an idle runner. If it does not end within a second, sends a second
    /// SIGTERM, which also ends the running commands.
    pub(super) async fn stop(&self) -> Result<(), Failure> {
        for wait in [Duration::from_secs(1), PATIENCE] {
            if self.ends_after(Signal::TERM, wait).await {
                return Ok(());
            }
        }
        Err(Exit::Unavailable.failure("the runner does not end"))
    }

    async fn ends_after(&self, signal: Signal, wait: Duration) -> bool {
        // An error means that the process has already ended.
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
