//! Follows a child to its end: output, time-out, cancellation, the process group, the reap.
//!
//! Must stay true: the order at the end. The child has exited and is not reaped, so its number cannot be given
//! to another process; its group is killed; its outputs are read to the end; it is reaped; the rest of the
//! group is awaited. Background work that a command leaves in its group ends with the attempt, and before the
//! end is reported. Processes that left the group are out of reach: that would need a control group
//! for each attempt.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process_group, pidfd_send_signal, test_kill_process_group,
};
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::lifecycle::Phase;
use super::spawn::Child;
use super::{Cancellation, Ended, Exited, orphaned, reap};

/// How long the rest of a killed group may live before an error is logged. SIGKILL takes microseconds.
const GROUP_PATIENCE: Duration = Duration::from_secs(5);

/// Follows `child` until it has been reaped and its process group has ended.
pub(super) async fn attend(child: &Child, cancellation: &Cancellation) -> Ended {
    let [stdout, stderr] = &child.outputs;
    let drained = async {
        tokio::join!(stdout.drain(), stderr.drain());
        pending::<Infallible>().await
    };
    select! {
        () = live(child, cancellation) => {}
        never = drained => match never {},
    }
    let asked_by = child.lifecycle.end();
    // The child itself has exited, even if it had left this group. An error means that the group is empty.
    let _gone = kill_process_group(child.pid, Signal::KILL);
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    let reaped = reap::reap(child.pid);
    group_ended(child.pid).await;
    match reaped {
        Some((status, usage)) => Ended::Exited(Exited { status, asked_by, usage, stdout, stderr }),
        None => Ended::Lost("its exit status was not to be had".to_owned()),
    }
}

/// Returns when the child has exited, by itself or because it was asked to.
async fn live(child: &Child, cancellation: &Cancellation) {
    loop {
        let (phase, wait) = child.lifecycle.now();
        let (signal, next) = select! {
            // An exit counts more than a timer that fired in the same moment.
            biased;
            // An error means that the runtime is shutting down.
            _exited = child.pidfd.readable() => return,
            () = sleep(wait) => phase.next(),
            why = cancellation.cancelled(), if phase == Phase::Runs => {
                (Some(Signal::TERM), Phase::Asked(why))
            }
        };
        match signal {
            Some(signal) => send(child, signal),
            None => tracing::error!(pid = child.pid.as_raw_pid(), "still alive after SIGKILL"),
        }
        child.lifecycle.enter(next);
    }
}

/// Signals the group. SIGKILL also goes to the child itself, which may have left its group.
fn send(child: &Child, signal: Signal) {
    let to_group = kill_process_group(child.pid, signal);
    if signal == Signal::KILL || to_group.is_err() {
        let _exited = pidfd_send_signal(&child.pidfd, signal);
    }
}

/// Returns once no process of the killed group lives, which is usually at once. A killed process still works
/// for a moment, and the next attempt may begin when the end of this one is reported.
async fn group_ended(group: Pid) {
    let (mut pause, mut reported) = (Duration::from_millis(1), false);
    let since = Instant::now();
    // After the reap, because the zombie belongs to the group. If the kernel has given the number to another
    // group since, that group is looked at and not touched.
    while test_kill_process_group(group) != Err(Errno::SRCH) {
        // Zombies of the group may wait for their parent permanently, and do no harm.
        if let Ok(false) = spawn_blocking(move || orphaned::group_lives(group)).await {
            return;
        }
        if !reported && since.elapsed() > GROUP_PATIENCE {
            tracing::error!(group = group.as_raw_pid(), "its group is still alive after SIGKILL");
            reported = true;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
