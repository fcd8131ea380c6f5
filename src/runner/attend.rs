//! Sees a child to its end: output, time-out, cancellation, the process group, the reap.
//!
//! The order at the end is fixed: the child has exited and is not reaped, so its number is pinned;
//! its group is killed; the pipes are read out and closed; the child is reaped; the rest of its group
//! is awaited. Background work that a command leaves in its group ends with it, and before it is told.
//! Out of reach without a control group for each attempt (C2): what left the group.

use std::convert::Infallible;
use std::future::pending;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process_group, pidfd_send_signal, test_kill_process_group};
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::capture::Stream;
use super::lifecycle::{Lifecycle, Phase};
use super::spawn::Child;
use super::{Cancellation, Ended, Exited, orphaned, reap};

/// Attends to `child` until it has been reaped.
pub(super) async fn attend(mut child: Child, cancellation: &Cancellation) -> Ended {
    let (pid, pidfd, lifecycle) = (child.pid, child.pidfd, child.lifecycle);
    let process = Process { pid, pidfd: &pidfd };
    let drained = async {
        sleep(UNREAD).await;
        tokio::join!(drain(&mut child.stdout), drain(&mut child.stderr));
        pending::<Infallible>().await
    };
    select! {
        () = process.life(&lifecycle, cancellation) => {}
        never = drained => match never {},
    }
    let asked_by = lifecycle.end();
    // It has exited itself, in whatever group it was.
    let _gone = kill_process_group(pid, Signal::KILL);
    let (stdout, stderr) = (child.stdout.finish(), child.stderr.finish());
    let reaped = reap::reap(pid);
    process.group_ended().await;
    match reaped {
        Some((status, usage)) => Ended::Exited(Exited { status, asked_by, usage, stdout, stderr }),
        None => Ended::Lost("its exit status was not to be had".to_owned()),
    }
}

/// How long nobody looks for what a command prints: most have ended before, and what they have printed lies
/// in the pipe. One that fills it at once waits so long, and not again.
const UNREAD: Duration = Duration::from_millis(5);

/// Between two tries to watch a pipe.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Reads a stream to its end.
async fn drain(stream: &mut Stream) {
    let mut told = false;
    while let Err(error) = stream.drain().await {
        if !std::mem::replace(&mut told, true) {
            tracing::error!(%error, "what a command prints cannot be read now");
        }
        sleep(UNWATCHED).await;
    }
}

/// How long the rest of a killed group may live on before that is said. SIGKILL takes microseconds.
const GROUP_PATIENCE: Duration = Duration::from_secs(5);

/// A child that is not reaped, so that its number and its group's are its own.
struct Process<'a> {
    pid: rustix::process::Pid,
    pidfd: &'a tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
}

impl Process<'_> {
    /// Returns when the child has exited, of itself or because it was asked to.
    async fn life(&self, lifecycle: &Lifecycle, cancellation: &Cancellation) {
        loop {
            let (phase, wait) = lifecycle.now();
            let (signal, next) = select! {
                // An exit that is there counts more than a timer that fired in the same moment.
                biased;
                () = self.exited() => return,
                () = sleep(wait) => phase.next(),
                why = cancellation.cancelled(), if phase == Phase::Runs => (Some(Signal::TERM), Phase::Asked(why)),
            };
            match signal {
                Some(signal) => self.signal(signal),
                None => tracing::error!(pid = self.pid.as_raw_pid(), "still alive after SIGKILL"),
            }
            lifecycle.enter(next);
        }
    }

    /// Returns once nothing of the killed group lives any more, usually at once: what is being killed
    /// still works for a moment, and another attempt may begin when this one is told.
    async fn group_ended(&self) {
        let (mut pause, mut told) = (Duration::from_millis(1), false);
        let since = tokio::time::Instant::now();
        // After the reap, since the zombie is of the group. Should the number have changed hands since,
        // somebody else's group is looked at, and not touched.
        while test_kill_process_group(self.pid) != Err(Errno::SRCH) {
            let group = self.pid;
            // Zombies of the group may wait for a parent for ever, and do no harm.
            if let Ok(false) = spawn_blocking(move || orphaned::group_lives(group)).await {
                return;
            }
            if !told && since.elapsed() > GROUP_PATIENCE {
                tracing::error!(
                    group = group.as_raw_pid(),
                    "its group is still alive after SIGKILL"
                );
                told = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn exited(&self) {
        // An error means that the runtime is shutting down: nothing is polled any more.
        let _ready = self.pidfd.readable().await;
    }

    /// Signals the group. SIGKILL also goes to the child itself, which may have left its group.
    fn signal(&self, signal: Signal) {
        let to_group = kill_process_group(self.pid, signal);
        if signal == Signal::KILL || to_group.is_err() {
            let _exited = pidfd_send_signal(self.pidfd.as_fd(), signal);
        }
    }
}
