//! Starts a command: environment, working directory, standard streams, process group.
//!
//! What must stay true: the program gets the arguments of the configuration and nothing of a
//! delivery in them; an environment made from nothing; no descriptor but 0 to 2; an empty signal
//! mask and a default SIGPIPE (both done by the standard library); every other signal default
//! ([`handle_ignored`]); the soft file limit that receiver or runner was started with ([`Launch`](super::launch::Launch)). Where a start fails, the reason
//! names what is at fault: the program, the working directory, or the machine.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::capture::{Shared, Stream};
use super::ledger::Process;
use super::lifecycle::Lifecycle;
use super::{Captured, CommandSettings, descriptors, oom, orphaned, reap, script, stdin, zombies};
use crate::model::Facts;

/// Handles, by doing nothing, every signal that whoever started the runner has it ignore: to execute a program
/// makes a handled signal default again, and leaves an ignored one ignored (C6). For the start of a runner.
pub fn handle_ignored() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // The standard library ignores SIGPIPE itself, and makes it default for each command.
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
        // SAFETY: `now` is a whole `sigaction`, written before it is read; the handler touches nothing, and
        // replaces no other.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &mut now) == 0;
            if known && now.sa_sigaction == libc::SIG_IGN {
                now.sa_sigaction = nothing as *const () as libc::sighandler_t;
                now.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &now, std::ptr::null_mut());
            }
        }
    }
}

/// What a command's PATH is where the configuration says nothing: systemd's own default with the
/// folders that older systems keep apart.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a command's LANG is where the configuration says nothing: UTF-8 on every system, no
/// language's sorting or messages.
const LANG: &str = "C.UTF-8";

/// A child that began and has not been reaped: its number is its own and its group's.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    /// Readable once the child has exited.
    pub(super) pidfd: AsyncFd<OwnedFd>,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    pub(super) lifecycle: Lifecycle,
}

/// What the table sees of a child. The descriptors are open until its lifecycle has come to its end.
#[derive(Debug)]
pub(super) struct View {
    pub(super) pid: Pid,
    pub(super) pidfd: RawFd,
    pub(super) lifecycle: Lifecycle,
    /// Standard output and standard error: the pipe, and what is kept of it.
    pub(super) streams: [(RawFd, Shared); 2],
}

impl Child {
    /// A child with these two outputs, of which so much has been kept already.
    pub(super) fn resumed(
        pid: Pid,
        pidfd: OwnedFd,
        streams: [(OwnedFd, (usize, usize), Captured); 2],
        lifecycle: Lifecycle,
    ) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open for as long as it lives, and always the same descriptor; no
        // one takes it out of the `AsyncFd`.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        let [stdout, stderr] = streams.map(|(pipe, most, kept)| Stream::new(pipe, most, kept));
        Ok(Child { pid, pidfd, stdout: stdout?, stderr: stderr?, lifecycle })
    }

    pub(super) fn view(&self) -> View {
        let streams = [&self.stdout, &self.stderr].map(|one| (one.number(), one.kept()));
        View {
            pid: self.pid,
            pidfd: self.pidfd.as_raw_fd(),
            lifecycle: self.lifecycle.clone(),
            streams,
        }
    }
}

#[derive(Debug)]
pub(super) enum NoChild {
    /// None began, for this reason.
    NotStarted(String),
    /// None began, and only because the machine has no room for it now, for this reason.
    NoRoom(String),
    /// One began and had to be killed, because it could not be watched.
    Lost(String),
}

/// Everything a start needs, owned, so that it can be made on another thread.
#[derive(Debug)]
pub(super) struct Plan {
    argv: Vec<String>,
    cwd: PathBuf,
    env: Vec<(String, String)>,
    /// Standard output's and standard error's: head, tail.
    output_bytes: [(usize, usize); 2],
    stdin_memory_bytes: usize,
    timeout: Duration,
    grace: Duration,
}

impl Plan {
    pub(super) fn new(settings: &CommandSettings, facts: &Facts) -> Self {
        let (head_bytes, tail_bytes) = settings.output_bytes;
        let printed = (settings.answer_bytes.unwrap_or(head_bytes), tail_bytes);
        Plan {
            argv: settings.argv.clone(),
            cwd: settings.cwd.clone().unwrap_or_else(|| settings.home.clone()),
            env: environment(settings, facts),
            output_bytes: [printed, settings.output_bytes],
            stdin_memory_bytes: settings.stdin_memory_bytes,
            timeout: settings.timeout,
            grace: settings.grace,
        }
    }

    /// Starts the command, and tells it from every other process of this boot. Blocks; needs a tokio
    /// runtime's context.
    pub(super) fn spawn(&self, body: &[u8]) -> Result<(Child, Option<Process>), NoChild> {
        let stdin = stdin::holding(body, self.stdin_memory_bytes)
            .map_err(|error| no_room(&format!("the body of {} bytes", body.len()), &error))?;
        let starting = zombies::starting();
        let before = orphaned::ticks();
        let mut child = self.start(stdin)?;
        let process = orphaned::begun(Pid::from_child(&child), before);
        starting.own(child.id());
        drop(starting);
        oom::give_back(child.id());
        let child = self.attach(&mut child).map_err(|error| {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _gone = kill_process_group(pid, Signal::KILL);
                let _ended =
                    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
                reap::reap(pid);
            }
            NoChild::Lost(format!("killed at its start, because it could not be watched: {error}"))
        })?;
        Ok((child, process))
    }

    fn start(&self, stdin: fs::File) -> Result<std::process::Child, NoChild> {
        descriptors::keep_inherited_ones();
        let empty = || NoChild::NotStarted("the command is empty".to_owned());
        let (name, arguments) = self.argv.split_first().ok_or_else(empty)?;
        let program = self.find(name).map_err(NoChild::NotStarted)?;
        Command::new(&program)
            .arg0(name)
            .args(arguments)
            .env_clear()
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&self.cwd)
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| reason(&error, &program, &self.cwd))
    }

    fn attach(&self, child: &mut std::process::Child) -> io::Result<Child> {
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.into();
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?.into();
        let [out, err] = self.output_bytes;
        let streams = [(stdout, out, Captured::empty()), (stderr, err, Captured::empty())];
        Child::resumed(pid, pidfd, streams, Lifecycle::new(self.timeout, self.grace))
    }

    /// Finds a program as `execvp` would, but here: its own search hands a file without a first
    /// `#!` line to a shell.
    fn find(&self, name: &str) -> Result<PathBuf, String> {
        if name.contains('/') {
            return Ok(name.into());
        }
        let path = self.env.iter().rev().find(|(key, _)| key == "PATH");
        let path = path.map_or(PATH, |(_, value)| value.as_str());
        let folders = path.split(':').filter(|folder| !folder.is_empty());
        let files = folders.map(|folder| self.cwd.join(folder).join(name));
        let found: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
        let runnable = found.iter().find(|file| access(file.as_path(), Access::EXEC_OK).is_ok());
        match (runnable, found.first()) {
            (Some(file), _) => Ok(file.clone()),
            (None, Some(file)) => Err(format!("program {} is not executable", file.display())),
            (None, None) => Err(format!("program {name} is in no folder of PATH ({path})")),
        }
    }
}

/// The whole environment of an attempt. Later entries replace earlier ones of the same name.
fn environment(settings: &CommandSettings, facts: &Facts) -> Vec<(String, String)> {
    let fixed =
        [("PATH", PATH.to_owned()), ("HOME", text(&settings.home)), ("LANG", LANG.to_owned())];
    let told = [
        ("HOOKLATCH_SOURCE", facts.source.to_string()),
        ("HOOKLATCH_EVENT_ID", facts.event_id.to_string()),
        ("HOOKLATCH_EVENT_TYPE", facts.event_type.to_string()),
        ("HOOKLATCH_JOB", facts.job.to_string()),
        ("HOOKLATCH_ATTEMPT", facts.attempt.to_string()),
        ("HOOKLATCH_REPLAY", facts.replays.to_string()),
        ("HOOKLATCH_RECEIVED_AT", facts.received_at.to_string()),
        ("HOOKLATCH_HANDLER", facts.handler.to_string()),
    ];
    let caller = facts.caller.iter().map(|caller| ("HOOKLATCH_CALLER", caller.clone()));
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    let fixed = fixed.into_iter().map(owned);
    let told = told.into_iter().chain(caller).map(owned);
    fixed.chain(settings.env.iter().cloned()).chain(told).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Why a start failed, naming what is at fault: the kernel's number alone does not tell a missing
/// program from a missing folder.
fn reason(error: &io::Error, program: &Path, cwd: &Path) -> NoChild {
    use Errno as E;
    let errno = Errno::from_io_error(error);
    if matches!(errno, Some(E::AGAIN | E::NOMEM | E::MFILE | E::NFILE)) {
        return no_room("another process", error);
    }
    if let Some(fault) = folder_fault(cwd) {
        return NoChild::NotStarted(format!("working directory {}: {fault}", cwd.display()));
    }
    let shown = program.display();
    NoChild::NotStarted(match errno {
        Some(E::NOENT | E::NOEXEC) if cwd.join(program).exists() => {
            let fault = script::fault(&cwd.join(program), PATH).map(|fault| fault.message);
            let unknown = || "it is not a program for this machine".to_owned();
            format!("program {shown}: {}", fault.unwrap_or_else(unknown))
        }
        _ => format!("program {shown}: {error}"),
    })
}

fn no_room(what: &str, error: &io::Error) -> NoChild {
    NoChild::NoRoom(format!("this machine has no room for {what} now: {error}"))
}

fn folder_fault(folder: &Path) -> Option<String> {
    match fs::metadata(folder) {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_dir() => Some("not a directory".to_owned()),
        Ok(_) => access(folder, Access::EXEC_OK).err().map(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_room_is_not_the_programs_fault() {
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE] {
            let told = reason(&errno.into(), Path::new("/bin/true"), Path::new("/nowhere"));
            assert!(matches!(told, NoChild::NoRoom(_)), "{told:?}");
        }
    }
}
