//! Starts a command: environment, working directory, standard streams, process group.
//!
//! Must stay true: program and arguments are those of the settings, and nothing is added to them. It gets a new environment, no descriptor but 0 to 2, an empty signal mask and a default SIGPIPE
//! (both by the standard library), the default for every other signal ([`handle_ignored`]), and the soft file
//! limit that the receiver or the runner was started with ([`Launch`](super::launch::Launch)). If a start
//! fails, the reason names what is at fault: the program, the working directory, or the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::capture::Output;
use super::ledger::Process;
use super::lifecycle::Lifecycle;
use super::message::Refusal;
use super::{Captured, CommandSettings, descriptors, oom, orphaned, reap, script, stdin, zombies};
use crate::model::{Facts, Headers, SENDER_ID};

/// Installs a handler that does nothing for every signal that this process was started to ignore: the kernel
/// resets a handled signal to its default when a program is executed, and leaves an ignored one ignored (C6).
/// For the start of a runner.
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

/// A command's PATH unless the configuration sets one: systemd's own default, with the folders that older
/// systems keep apart.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command's LANG unless the configuration sets one: UTF-8 on every system, without the sorting and the
/// messages of a language.
const LANG: &str = "C.UTF-8";

/// A command that began and has not been reaped, so that its number and its group's are its own. The task that
/// attends to it and the table share it.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    /// Readable once the child has exited.
    pub(super) pidfd: AsyncFd<OwnedFd>,
    /// Standard output and standard error.
    pub(super) outputs: [Output; 2],
    pub(super) lifecycle: Lifecycle,
}

impl Child {
    /// Watches a child. Needs a tokio runtime's context.
    pub(super) fn new(
        pid: Pid,
        pidfd: OwnedFd,
        outputs: [Output; 2],
        lifecycle: Lifecycle,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: an `OwnedFd` stays open, as the same descriptor, for as long as it lives, and nothing takes
        // it out of the `AsyncFd`.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        Ok(Arc::new(Child { pid, pidfd, outputs, lifecycle }))
    }
}

/// The reason why no child runs.
#[derive(Debug)]
pub(super) enum NoChild {
    /// The command did not start: why, and what the operator should know.
    Refused(Refusal, String),
    /// The command started and had to be killed, because it could not be watched.
    Lost(String),
}

/// Starts the command with the values of the event, and identifies its process. Blocks, for a while if the values
/// are of a large body; needs a tokio runtime's context.
pub(super) fn spawn(
    settings: &CommandSettings,
    facts: &Facts,
) -> Result<(Arc<Child>, Option<Process>), NoChild> {
    let settings = settings.for_event(facts);
    let settings = &*settings.map_err(|why| NoChild::Refused(Refusal::Values, why.to_string()))?;
    let stdin = stdin::holding(&facts.body, settings.stdin_memory_bytes)
        .map_err(|error| no_room(&format!("the body of {} bytes", facts.body.len()), &error))?;
    let starting = zombies::starting();
    let mut child = start(settings, facts, stdin)?;
    let pid = Pid::from_child(&child);
    starting.own(pid);
    drop(starting);
    oom::give_back(pid);
    match watch(&mut child, settings) {
        Ok(child) => Ok((child, orphaned::process(pid))),
        Err(error) => {
            let _gone = kill_process_group(pid, Signal::KILL);
            let _ended = reap::wait(pid);
            reap::reap(pid);
            let reason = "killed at its start, because it could not be watched";
            Err(NoChild::Lost(format!("{reason}: {error}")))
        }
    }
}

fn start(
    settings: &CommandSettings,
    facts: &Facts,
    stdin: fs::File,
) -> Result<std::process::Child, NoChild> {
    descriptors::keep_inherited_ones();
    let empty = || not_started("the command is empty".to_owned());
    let (name, arguments) = settings.argv.split_first().ok_or_else(empty)?;
    let folder = settings.cwd.as_ref().unwrap_or(&settings.home);
    let environment = environment(settings, facts);
    let program = find(name, folder, &environment).map_err(not_started)?;
    Command::new(&program)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .current_dir(folder)
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| reason(&error, &program, folder))
}

fn watch(child: &mut std::process::Child, settings: &CommandSettings) -> io::Result<Arc<Child>> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.into();
    let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?.into();
    let (head_bytes, tail_bytes) = settings.output_bytes;
    let stdout_bytes = (settings.answer_bytes.unwrap_or(head_bytes), tail_bytes);
    let outputs = [
        Output::new(stdout, stdout_bytes, Captured::empty())?,
        Output::new(stderr, settings.output_bytes, Captured::empty())?,
    ];
    Child::new(pid, pidfd, outputs, Lifecycle::new(settings.timeout, settings.grace))
}

/// Finds a program as `execvp` would. The search of `execvp` itself gives a file without a `#!` line to a shell.
fn find(name: &str, folder: &Path, environment: &[(String, String)]) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let path = environment.iter().rev().find(|(key, _)| key == "PATH");
    let path = path.map_or(PATH, |(_, value)| value.as_str());
    let folders = path.split(':').filter(|folder| !folder.is_empty());
    let files = folders.map(|in_path| folder.join(in_path).join(name));
    let found: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    let runnable = found.iter().find(|file| access(file.as_path(), Access::EXEC_OK).is_ok());
    match (runnable, found.first()) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(file)) => Err(format!("program {} is not executable", file.display())),
        (None, None) => Err(format!("program {name} is in no folder of PATH ({path})")),
    }
}

/// The whole environment of an attempt. Later entries replace earlier ones of the same name.
fn environment(settings: &CommandSettings, facts: &Facts) -> Vec<(String, String)> {
    let fixed = [
        ("PATH", PATH.to_owned()),
        ("HOME", settings.home.to_string_lossy().into_owned()),
        ("LANG", LANG.to_owned()),
    ];
    let attempt = [
        ("HOOKLATCH_SOURCE", facts.source.to_string()),
        ("HOOKLATCH_EVENT_ID", facts.event_id.to_string()),
        ("HOOKLATCH_EVENT_TYPE", facts.event_type.to_string()),
        ("HOOKLATCH_JOB", facts.job.to_string()),
        ("HOOKLATCH_ATTEMPT", facts.attempt.to_string()),
        ("HOOKLATCH_REPLAY", facts.replays.to_string()),
        ("HOOKLATCH_RECEIVED_AT", facts.received_at.to_string()),
        ("HOOKLATCH_HANDLER", facts.handler.to_string()),
    ];
    let caller = facts.caller.clone().map(|caller| ("HOOKLATCH_CALLER", caller));
    let sender_id = facts.headers.sender_id().map(|id| ("HOOKLATCH_SENDER_ID", id.into_owned()));
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    let mut all = fixed.map(owned).to_vec();
    all.extend(settings.env.iter().cloned());
    all.extend(headers(&facts.headers));
    all.extend(attempt.into_iter().chain(caller).chain(sender_id).map(owned));
    all
}

/// A variable for each kept header, such as `HOOKLATCH_HEADER_X_GITHUB_EVENT`, if it came once and in printable ASCII.
fn headers(headers: &Headers) -> impl Iterator<Item = (String, String)> {
    let mut variables: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (header, value) in headers.iter().filter(|(header, _)| *header != SENDER_ID) {
        let name = format!("HOOKLATCH_HEADER_{}", header.to_ascii_uppercase().replace('-', "_"));
        let is_variable = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let is_printable = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        let text = (is_variable && is_printable)
            .then(|| value.iter().map(|byte| char::from(*byte)).collect());
        variables.entry(name).and_modify(|first| *first = None).or_insert(text);
    }
    variables.into_iter().filter_map(|(name, text)| Some((name, text?)))
}

/// Why a start failed, naming what is at fault: the kernel's error number is the same for a missing program and
/// for a missing folder.
fn reason(error: &io::Error, program: &Path, cwd: &Path) -> NoChild {
    use Errno as E;
    let errno = Errno::from_io_error(error);
    if matches!(errno, Some(E::AGAIN | E::NOMEM | E::MFILE | E::NFILE)) {
        return no_room("another process", error);
    }
    if let Some(fault) = folder_fault(cwd) {
        return not_started(format!("working directory {}: {fault}", cwd.display()));
    }
    let shown = program.display();
    not_started(match errno {
        Some(E::NOENT | E::NOEXEC) if cwd.join(program).exists() => {
            let fault = script::fault(&cwd.join(program), PATH).map(|fault| fault.message);
            let unknown = || "it is not a program for this machine".to_owned();
            format!("program {shown}: {}", fault.unwrap_or_else(unknown))
        }
        _ => format!("program {shown}: {error}"),
    })
}

fn not_started(reason: String) -> NoChild {
    NoChild::Refused(Refusal::CannotStart, reason)
}

fn no_room(what: &str, error: &io::Error) -> NoChild {
    let reason = format!("this machine has no room for {what} now: {error}");
    NoChild::Refused(Refusal::NoResources, reason)
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
            let refused = reason(&errno.into(), Path::new("/bin/true"), Path::new("/nowhere"));
            assert!(matches!(refused, NoChild::Refused(Refusal::NoResources, _)), "{refused:?}");
        }
    }
}
