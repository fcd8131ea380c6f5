//! Executes the runner's program again in the same process: how it is upgraded (R2).
//!
//! `server` calls [`Reexec::exec`] on request, and [`resume`] in the program that was executed so. The
//! process stays, and with it the children and their exit statuses, the lock, the listening socket,
//! the pipes and the incarnation; the ledger stays where it is; what only memory had, outputs and
//! timers, goes over in a memory file. Connections are cut, and receivers come back for the list.
//!
//! What must stay true: between the reading of the table and the execution nothing else runs (the
//! runtime has one thread), so a program that cannot be executed changes nothing and the old one goes
//! on; and what is handed over has no other owner in the new program. Out of reach: a signal that
//! arrives before the new program has registered for it takes its default effect, and a new program
//! that does not understand what it is handed dies like any other.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use super::folder::Lock;
use super::incarnation::Incarnation;
use super::lifecycle::Progress;
use super::message::Key;
use super::spawn::Child;
use super::{AskedBy, Captured, descriptors, stdin, zombies};
use crate::systemd;

/// What tells the new program that it is one: the number of the memory file's descriptor.
pub const VARIABLE: &str = "HOOKLATCH_RUNNER_STATE";

/// What [`VARIABLE`] says where the new program is only to see whether it could begin.
pub const REHEARSAL: &str = "rehearsal";

/// What is handed over, in this version's form. Fields are added as optional ones.
const VERSION: u32 = 2;

/// The program as it is executed again.
#[derive(Debug, Clone)]
pub struct Reexec {
    /// Its file, which an upgrade has replaced.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
}

/// All that goes over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) version: u32,
    /// This process: another one that inherited the variable by mistake has no part in it.
    pub(super) process: i32,
    pub(super) incarnation: Incarnation,
    pub(super) lock: RawFd,
    pub(super) listener: RawFd,
    /// Whether a service manager has opened it, whose it stays.
    #[serde(default)]
    pub(super) given: bool,
    pub(super) running: Vec<(Key, Running)>,
    /// What the attempts printed that have ended.
    pub(super) settled: Vec<(Key, [Captured; 2])>,
}

/// A running command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) pid: i32,
    pub(super) pidfd: RawFd,
    pub(super) progress: Progress,
    /// Why it is to end, if that was requested.
    pub(super) cancelled: Option<AskedBy>,
    /// Standard output and standard error.
    pub(super) streams: [Printing; 2],
}

/// An output that is being read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Printing {
    pub(super) pipe: RawFd,
    /// How much of its head and of its tail is kept.
    pub(super) most: (usize, usize),
    pub(super) kept: Captured,
}

impl State {
    pub(super) fn new(
        incarnation: Incarnation,
        lock: &Lock,
        listener: &UnixListener,
        given: bool,
    ) -> Self {
        State {
            version: VERSION,
            process: getpid().as_raw_pid(),
            incarnation,
            lock: lock.number(),
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

impl Reexec {
    /// Lets the new program see whether it could begin: whether it is one for this machine, and reads
    /// this configuration. Blocks.
    ///
    /// # Errors
    /// It could not, for this reason; what it says itself is in the log.
    pub(super) fn rehearse(&self) -> io::Result<()> {
        let starting = zombies::starting();
        let mut command = self.command(REHEARSAL);
        for of_ours in systemd::VARIABLES {
            command.env_remove(of_ours);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        starting.own(child.id());
        drop(starting);
        let pid = Pid::from_child(&child);
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        match zombies::reaping(pid, || child.wait())? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("its rehearsal ended with {status}"))),
        }
    }

    fn command(&self, told: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env(VARIABLE, told);
        // This process is still the one that they name, and has the sockets: told of them twice, the new
        // program would take them over twice. The manager it may speak to.
        for of_sockets in systemd::sockets::VARIABLES {
            command.env_remove(of_sockets);
        }
        command
    }

    /// Becomes the new program. Returns only where it cannot, and why; nothing has changed then.
    ///
    /// The caller sees to it that every descriptor of `state` is open and stays so.
    pub(super) fn exec(&self, state: &State) -> io::Error {
        let written = stdin::memory().and_then(|file| {
            let mut file = BufWriter::new(file);
            serde_json::to_writer(&mut file, state)?;
            file.flush()?;
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            Ok(file)
        });
        let file = match written {
            Ok(file) => file,
            Err(error) => return error,
        };
        let all = || state.descriptors().chain([file.as_raw_fd()]);
        let inherited = all().try_for_each(|number| mark(number, FdFlags::empty()));
        let error = match inherited {
            Ok(()) => self.command(&file.as_raw_fd().to_string()).exec(),
            Err(error) => error,
        };
        let _kept = all().try_for_each(|number| mark(number, FdFlags::CLOEXEC));
        // The standard library makes it the default for the new program, and leaves it so.
        // SAFETY: no handler of ours is installed or replaced, and a flag is all that changes.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        error
    }
}

fn mark(number: RawFd, flags: FdFlags) -> io::Result<()> {
    // SAFETY: open while this process is told to become another, by the caller's word, and the borrow
    // ends with this call.
    Ok(fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, flags)?)
}

/// What the last program handed over.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) incarnation: Incarnation,
    pub(super) lock: Lock,
    pub(super) listener: UnixListener,
    pub(super) given: bool,
    pub(super) running: Vec<(Key, Child, Option<AskedBy>)>,
    pub(super) settled: Vec<(Key, [Captured; 2])>,
}

/// Takes over from the program that this process was, which said so by [`VARIABLE`].
///
/// # Errors
/// What it handed over is not to be understood. The next runner finds what is left by the ledger.
pub(super) fn resume(number: RawFd) -> io::Result<Resumed> {
    // Before anything is started: commands would inherit them.
    descriptors::mark_all();
    // SAFETY: the last program left it open for this one, and nothing else here knows the number.
    let file = unsafe { File::from_raw_fd(number) };
    let state: State = serde_json::from_reader(BufReader::new(file))?;
    if state.version != VERSION || state.process != getpid().as_raw_pid() {
        return Err(io::Error::other("it was handed to another program"));
    }
    // SAFETY: each number stands once in what the last program of this very process handed over, was
    // open when it did, and has had no owner since.
    let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
    let lock = Lock::from(File::from(owned(state.lock)));
    let listener = UnixListener::from_std(owned(state.listener).into())?;
    let mut running = Vec::new();
    for (key, one) in state.running {
        let pid = Pid::from_raw(one.pid).ok_or(io::ErrorKind::InvalidData)?;
        zombies::starting().own(pid.as_raw_pid().cast_unsigned());
        let streams = one.streams.map(|one| (owned(one.pipe), one.most, one.kept));
        let child = Child::resumed(pid, owned(one.pidfd), streams, one.progress.into())?;
        running.push((key, child, one.cancelled));
    }
    let State { incarnation, given, settled, .. } = state;
    Ok(Resumed { incarnation, lock, listener, given, running, settled })
}
