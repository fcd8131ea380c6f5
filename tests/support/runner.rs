//! The runner of a store: who it is, and its end with the test's.

use std::os::unix::net::UnixStream;
use std::path::Path;

use hooklatch::runner::folder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Longer than the grace of the commands in these tests.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// The runner that listens for the store at `database`, if one does.
pub(crate) fn runner(database: &Path) -> Option<Pid> {
    let peer = UnixStream::connect(socket(database)).ok()?;
    Some(rustix::net::sockopt::socket_peercred(&peer).ok()?.pid)
}

/// The socket that it listens on.
pub(crate) fn socket(database: &Path) -> std::path::PathBuf {
    folder::socket(&folder::of(database))
}

/// SIGKILL, and waits until it has ended.
pub(crate) fn kill_runner(database: &Path) {
    kill(runner(database).expect("no runner listens"));
}

/// The same for one that was found earlier.
pub(crate) fn kill(runner: Pid) {
    let pidfd = pidfd_open(runner, PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
    assert_eq!(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE)), Ok(1));
}

/// Ends the runner, if there is one, with all that it runs: what a test began must not outlive it.
pub(crate) fn end_runner(database: &Path) {
    let Some(pid) = runner(database) else { return };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The first one drains, the second ends what runs.
    for signal in [Signal::TERM, Signal::INT] {
        let _ended = pidfd_send_signal(&pidfd, signal);
    }
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE)) != Ok(1) {
        let _ended = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
