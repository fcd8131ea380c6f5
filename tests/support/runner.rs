//! Finds the runner of a store, and ends it with the test.

use std::os::unix::net::UnixStream;
use std::path::Path;

use hooklatch::runner::folder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// The longest wait for a runner's end: longer than the grace of the commands in these tests.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// The process id of the runner that listens for the store at `database`, if there is one.
pub(crate) fn runner(database: &Path) -> Option<Pid> {
    let peer = UnixStream::connect(socket(database)).ok()?;
    let pid = rustix::net::sockopt::socket_peercred(&peer).ok()?.pid;
    // A test that plays the runner has made the socket itself, and its copy lives on in a child until that executes.
    (pid != getpid()).then_some(pid)
}

/// The path of the socket on which the runner listens.
pub(crate) fn socket(database: &Path) -> std::path::PathBuf {
    folder::socket(&folder::of(database))
}

/// Sends SIGKILL to the runner and waits until it has ended.
pub(crate) fn kill_runner(database: &Path) {
    kill(runner(database).expect("no runner listens"));
}

/// Like [`kill_runner`], for a runner that was found earlier.
pub(crate) fn kill(runner: Pid) {
    let pidfd = pidfd_open(runner, PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
    assert_eq!(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE)), Ok(1));
}

/// Ends the runner, if there is one, with all its commands: no process may outlive its test.
pub(crate) fn end_runner(database: &Path) {
    let Some(pid) = runner(database) else { return };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The first signal makes the runner drain, the second ends the running commands.
    for signal in [Signal::TERM, Signal::INT] {
        let _ended = pidfd_send_signal(&pidfd, signal);
    }
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE)) != Ok(1) {
        let _ended = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
