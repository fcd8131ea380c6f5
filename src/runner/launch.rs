//! Starts a runner beside a receiver that no service manager looks after (C9).
//!
//! What must stay true: nothing of the receiver reaches into the runner's life: no terminal or
//! session, no standard stream, no descriptor; and where the receiver lives in somebody's unit it
//! launches nothing, since that unit's stop would kill the runner with its commands.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::descriptors;
use crate::systemd;

/// What it takes to launch a runner.
#[derive(Debug, Clone)]
pub struct Launch {
    pub program: PathBuf,
    /// The configuration's main file.
    pub config: PathBuf,
    /// The store whose receiver is served.
    pub store: PathBuf,
    /// Where the runner's log lines go; emptied first.
    pub log: PathBuf,
    /// Whether a service manager runs the receiver (`INVOCATION_ID`, systemd.exec(5)).
    pub inside_a_unit: bool,
    /// The file limit that the receiver was started with: the runner's commands get it (C6).
    pub files: Rlimit,
}

/// Why no runner was launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The unit that the receiver is in would end it.
    #[error(
        "no runner listens, and a service manager runs this receiver: start \
         hooklatch-runner.service, or run `hooklatch runner --config {0}` as a unit of its own"
    )]
    InsideAUnit(PathBuf),
    /// The system refused.
    #[error("failed to launch a runner: {0}")]
    Io(#[from] io::Error),
}

impl Launch {
    /// Launches one and returns when it listens, or when it has given up: connecting tells. One that
    /// was there already is none of this one's business. Blocks.
    ///
    /// # Errors
    /// It was not even started.
    pub fn run(&self) -> Result<(), LaunchError> {
        if self.inside_a_unit {
            return Err(LaunchError::InsideAUnit(self.config.clone()));
        }
        descriptors::keep_inherited_ones();
        let mut options = OpenOptions::new();
        // A runner that is there after all, and has it open, writes on behind what comes now.
        let log = options.append(true).create(true).mode(0o600).open(&self.log)?;
        log.set_len(0)?;
        let mut command = Command::new(&self.program);
        for of_ours in systemd::VARIABLES {
            command.env_remove(of_ours);
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
        // Before any command: the receiver connects later.
        let pid = Pid::from_child(&child);
        if let Err(error) = prlimit(Some(pid), Resource::Nofile, self.files) {
            tracing::warn!(%error, "commands get the receiver's raised file limit");
        }
        let listens = child.stdout.take();
        // It may leave before this process does, and must not stay behind as a zombie.
        std::thread::Builder::new().name("runner".to_owned()).spawn(move || child.wait())?;
        if let Some(mut pipe) = listens {
            // It closes its end once it listens; its death closes it too.
            pipe.read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }
}

/// The launched runner's part, at its very start: a session of its own.
///
/// # Errors
/// Where it leads a process group, and so was not launched this way.
pub fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// The launched runner's part once it listens: whoever waits at its standard output goes on.
///
/// # Errors
/// Where there is no `/dev/null`.
pub(super) fn tell_launcher() -> io::Result<()> {
    let nowhere = OpenOptions::new().write(true).open(Path::new("/dev/null"))?;
    Ok(rustix::stdio::dup2_stdout(&nowhere)?)
}
