//! Executes the runner's program again in the same process: this is how a runner is upgraded (R2).
//!
//! `server` calls [`Reexec::exec`] on request, and [`resume`] in the new program. The process stays, and with
//! it the children and their exit statuses, the lock, the listening socket, the pipes and the incarnation; the
//! ledger stays in its file. A memory file hands over what only memory had: outputs and timers. Connections
//! are cut, and receivers connect again and get the list.
//!
//! Must stay true: nothing else runs between reading the table and executing (the runtime has one thread), so
//! if the program cannot be executed, nothing has changed and the old one goes on; and a descriptor that is
//! handed over has no other owner in the new program. Signals are held until the new program catches them. Not
//! handled: a signal that this program has caught and not yet read is lost, and a new program that cannot read the
//! memory file dies.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, getpid};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use super::capture::Output;
use super::held_signals::{hold_signals, release_signals};
use super::incarnation::Incarnation;
use super::lifecycle::Progress;
use super::message::Key;
use super::spawn::Child;
use super::{AskedBy, Captured, descriptors, reap, stdin, zombies};
use crate::systemd;

/// The variable that tells a program to take over from the one before: the number of the memory file's
/// descriptor.
pub const VARIABLE: &str = "HOOKLATCH_RUNNER_STATE";

/// The value of [`VARIABLE`] for a program that only checks whether it could begin.
pub const REHEARSAL: &str = "rehearsal";

/// The version of [`State`]. New fields are optional.
const VERSION: u32 = 2;

/// The program to execute.
#[derive(Debug, Clone)]
pub struct Reexec {
    /// The file, which an upgrade has replaced.
    pub program: PathBuf,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
}

/// The content of the memory file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) version: u32,
    /// This process. Another one, which inherited the variable by mistake, must not use it.
    pub(super) process: i32,
    pub(super) incarnation: Incarnation,
    pub(super) lock: RawFd,
    pub(super) listener: RawFd,
    /// Whether the listener is a service manager's.
    #[serde(default)]
    pub(super) given: bool,
    pub(super) running: Vec<(Key, Running)>,
    /// The outputs of attempts that have ended.
    pub(super) settled: Vec<(Key, [Captured; 2])>,
}

/// A running command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) pid: i32,
    pub(super) pidfd: RawFd,
    pub(super) progress: Progress,
    /// Why it was asked to end, if it was.
    pub(super) cancelled: Option<AskedBy>,
    /// Standard output and standard error.
    pub(super) streams: [Printing; 2],
}

/// An output that is being read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Printing {
    pub(super) pipe: RawFd,
    /// How many bytes of the head and of the tail are kept at most.
    pub(super) most: (usize, usize),
    pub(super) kept: Captured,
}

impl State {
    /// The state of a runner without attempts.
    pub(super) fn new(
        incarnation: Incarnation,
        lock: &File,
        listener: &UnixListener,
        given: bool,
    ) -> Self {
        State {
            version: VERSION,
            process: getpid().as_raw_pid(),
            incarnation,
            lock: lock.as_raw_fd(),
            listener: listener.as_raw_fd(),
            given,
            running: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let running = self.running.iter().map(|(_, one)| one);
        let theirs = running.flat_map(|one| [one.pidfd, one.streams[0].pipe, one.streams[1].pipe]);
        theirs.chain([self.lock, self.listener])
    }
}

impl Running {
    /// A command to hand over, which is to end for the reason `cancelled`. `None` if it has just exited.
    pub(super) fn new(child: &Child, cancelled: Option<AskedBy>) -> Option<Self> {
        let printing = |output: &Output| Printing {
            pipe: output.number(),
            most: output.kept_bytes(),
            kept: output.now(),
        };
        let [stdout, stderr] = &child.outputs;
        Some(Running {
            pid: child.pid.as_raw_pid(),
            pidfd: child.pidfd.as_raw_fd(),
            progress: child.lifecycle.progress()?,
            cancelled,
            streams: [printing(stdout), printing(stderr)],
        })
    }

    /// Takes the command over. `owned` makes the owner of a descriptor.
    fn resume(self, owned: impl Fn(RawFd) -> OwnedFd) -> io::Result<Arc<Child>> {
        let pid = Pid::from_raw(self.pid).ok_or(io::ErrorKind::InvalidData)?;
        zombies::starting().own(pid);
        let [stdout, stderr] =
            self.streams.map(|one| Output::new(owned(one.pipe), one.most, one.kept));
        Child::new(pid, owned(self.pidfd), [stdout?, stderr?], self.progress.into())
    }
}

impl Reexec {
    /// Lets the new program check whether it could begin: whether it is for this machine and can read this
    /// configuration. Blocks.
    ///
    /// # Errors
    /// It could not; its own messages are in the log.
    pub(super) fn rehearse(&self) -> io::Result<()> {
        let starting = zombies::starting();
        let mut command = self.command(REHEARSAL);
        for name in systemd::VARIABLES {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let pid = Pid::from_child(&child);
        starting.own(pid);
        drop(starting);
        reap::wait(pid)?;
        match zombies::reaping(pid, || child.wait())? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("its rehearsal ended with {status}"))),
        }
    }

    fn command(&self, value: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env(VARIABLE, value);
        // They name this process still: the new program would take its sockets over a second time. It may
        // notify the manager.
        for name in systemd::SOCKET_VARIABLES {
            command.env_remove(name);
        }
        command
    }

    /// Becomes the new program. Returns only if that fails; nothing has changed then.
    ///
    /// The caller ensures that every descriptor of `state` is open and stays open.
    pub(super) fn exec(&self, state: &State) -> io::Result<Infallible> {
        let mut file = BufWriter::new(stdin::memory()?);
        serde_json::to_writer(&mut file, state)?;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        let all = || state.descriptors().chain([file.as_raw_fd()]);
        let inherited = all().try_for_each(|number| mark(number, FdFlags::empty()));
        hold_signals();
        let failed = inherited.map(|()| self.command(&file.as_raw_fd().to_string()).exec());
        release_signals();
        let _kept = all().try_for_each(|number| mark(number, FdFlags::CLOEXEC));
        // The standard library has reset it to the default, for the new program.
        // SAFETY: installs and replaces no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Err(failed.unwrap_or_else(|error| error))
    }
}

fn mark(number: RawFd, flags: FdFlags) -> io::Result<()> {
    // SAFETY: the caller of `exec` keeps the descriptor open, and the borrow ends with this call.
    Ok(fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, flags)?)
}

/// What a runner begins with: new, or from the program before.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) incarnation: Incarnation,
    pub(super) lock: File,
    /// `None` if the runner still has to listen.
    pub(super) listener: Option<UnixListener>,
    /// Whether the listener is a service manager's.
    pub(super) given: bool,
    /// The commands that run, and why they were asked to end, if they were.
    pub(super) running: Vec<(Key, Arc<Child>, Option<AskedBy>)>,
    pub(super) settled: Vec<(Key, [Captured; 2])>,
}

/// Takes over from the program that this process was. `number` is the value of [`VARIABLE`].
///
/// # Errors
/// The memory file cannot be understood. The next runner finds by the ledger what is left.
pub(super) fn resume(number: RawFd) -> io::Result<Handover> {
    // Before a child is started, which would inherit them.
    descriptors::mark_all();
    // SAFETY: the last program left it open for this one, and no other code here knows the number.
    let file = unsafe { File::from_raw_fd(number) };
    let state: State = serde_json::from_reader(BufReader::new(file))?;
    if state.version != VERSION || state.process != getpid().as_raw_pid() {
        return Err(io::Error::other("it was handed to another program"));
    }
    // SAFETY: each number occurs once in the state that the last program of this very process wrote. It was
    // open then, and has had no owner since.
    let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
    let listener = UnixListener::from_std(owned(state.listener).into())?;
    let mut running = Vec::new();
    for (key, one) in state.running {
        let cancelled = one.cancelled;
        running.push((key, one.resume(owned)?, cancelled));
    }
    Ok(Handover {
        incarnation: state.incarnation,
        lock: owned(state.lock).into(),
        listener: Some(listener),
        given: state.given,
        running,
        settled: state.settled,
    })
}
