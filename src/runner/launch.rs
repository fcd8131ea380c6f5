//! Launches a runner for a receiver that no service manager runs (C9).
//!
//! Must stay true: the runner shares nothing with the receiver: no terminal or session, no standard stream, no
//! descriptor. A receiver in a service manager's unit launches nothing, because the unit's stop would kill the
//! runner with its commands.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::descriptors;
use crate::systemd;

/// How to launch a runner.
#[derive(Debug, Clone)]
pub struct Launch {
    pub program: PathBuf,
    /// The configuration's main file.
    pub config: PathBuf,
    /// The store of the receiver.
    pub store: PathBuf,
    /// The file for the runner's log lines; it is emptied first.
    pub log: PathBuf,
    /// Whether a service manager runs the receiver (`INVOCATION_ID`, systemd.exec(5)).
    pub inside_a_unit: bool,
    /// The limit of open files that the receiver was started with: the runner's commands get it (C6).
    pub files: Rlimit,
}

/// Why no runner was launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The stop of the receiver's unit would kill the runner.
    #[error(
        "no runner listens, and a service manager runs this receiver: start \
         hooklatch-runner.service, or run `hooklatch runner --config {0}` as a unit of its own"
    )]
    InsideAUnit(PathBuf),
    #[error("failed to launch a runner: {0}")]
    Io(#[from] io::Error),
}

impl Launch {
    /// Launches a runner and returns when it listens or has ended; the caller finds out by connecting. Blocks.
    ///
    /// # Errors
    /// No process was started.
    pub fn run(&self) -> Result<(), LaunchError> {
        if self.inside_a_unit {
            return Err(LaunchError::InsideAUnit(self.config.clone()));
        }
        descriptors::keep_inherited_ones();
        let mut options = OpenOptions::new();
        // Appending: a runner that exists already and has the file open continues behind these lines.
        let log = options.append(true).create(true).mode(0o600).open(&self.log)?;
        log.set_len(0)?;
        let mut command = Command::new(&self.program);
        for name in systemd::VARIABLES {
            command.env_remove(name);
        }
        let mut child = command
            .arg("runner")
            .arg("--config")
            .arg(&self.config)
            .arg("--store")
            .arg(&self.store)
            .args(["--leave-when-idle", "--detached"])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        // In time for the first command: the receiver connects later.
        let pid = Pid::from_child(&child);
        if let Err(error) = prlimit(Some(pid), Resource::Nofile, self.files) {
            tracing::warn!(%error, "commands get the receiver's raised file limit");
        }
        let listens = child.stdout.take();
        // If it ends before this process, it must not stay a zombie.
        std::thread::Builder::new().name("runner".to_owned()).spawn(move || child.wait())?;
        if let Some(mut pipe) = listens {
            // The runner closes its end once it listens, and so does its death.
            pipe.read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }
}

/// Begins a new session. The launched runner calls it at its start.
///
/// # Errors
/// The process leads a process group, so it was not launched this way.
pub fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Closes the pipe that [`Launch::run`] waits at. The launched runner calls it once it listens.
///
/// # Errors
/// `/dev/null` cannot be opened.
pub(super) fn release_launcher() -> io::Result<()> {
    let nowhere = OpenOptions::new().write(true).open(Path::new("/dev/null"))?;
    Ok(rustix::stdio::dup2_stdout(&nowhere)?)
}
