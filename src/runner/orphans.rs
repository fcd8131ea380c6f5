//! Reaps what commands leave behind them: the runner is the parent of every orphan below it.
//!
//! What a command started and did not wait for goes to the nearest subreaper when the command ends
//! (PR_SET_CHILD_SUBREAPER(2const)), and not to the container's first process, which may be a
//! receiver that waits for nobody: no zombie piles up there. `server` asks for it, before the first
//! command. What must stay true: a child that this program started itself is reaped by whoever
//! started it, since its exit status is told once.
//!
//! Out of reach without a control group for each attempt: what left its command's process group goes
//! on when the attempt ends (the operator's own daemon, perhaps), and is only reaped here.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Between two looks, however many children end: a zombie costs a number and a page of the kernel's,
/// and each look reads a file per thread.
const PAUSE: Duration = Duration::from_secs(1);

/// Until a look that a start stood in the way of is taken again.
const AGAIN: Duration = Duration::from_millis(10);

/// Held to read while a child is started and not yet in [`OWN`]. Of the process, as children are.
static STARTING: RwLock<()> = RwLock::new(());

/// The children that this program started and has not reaped.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Leave to start one child. [`Starting::own`] before it is dropped.
pub(super) struct Starting(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// A child is about to be started.
pub(super) fn starting() -> Starting {
    Starting(STARTING.read().unwrap_or_else(PoisonError::into_inner))
}

impl Starting {
    /// It was started, and is reaped by whoever asked for it, inside of [`reaping`].
    pub(super) fn own(&self, pid: u32) {
        own().insert(pid.cast_signed());
    }
}

/// Reaps a child of [`Starting::own`] by `reap`, which must not block. In one step, so that the next
/// child with its number is not taken for it.
pub(super) fn reaping<T>(pid: Pid, reap: impl FnOnce() -> T) -> T {
    let mut own = own();
    let reaped = reap();
    own.remove(&pid.as_raw_pid());
    reaped
}

fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adopts orphans from now on and reaps each some time after its end; returns only where this cannot
/// be. They go to the init process then, as without.
pub(super) async fn adopt() {
    // A kernel without this file (CONFIG_PROC_CHILDREN) could not tell whom to reap.
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    if children().is_none() || set_child_subreaper(Some(getpid())).is_err() {
        return tracing::debug!("orphans of commands are left to the init process");
    }
    while ends.recv().await.is_some() {
        while !reap() {
            sleep(AGAIN).await;
        }
        sleep(PAUSE).await;
    }
}

/// Reaps the adopted children that have ended. False where a child is being started, which cannot be
/// told from an adopted one.
fn reap() -> bool {
    let Ok(_none_starts) = STARTING.try_write() else { return false };
    let own = own();
    for pid in children().unwrap_or_default() {
        if let Some(child) = Pid::from_raw(pid).filter(|_| !own.contains(&pid)) {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _alive = waitid(WaitId::Pid(child), ended);
        }
    }
    true
}

/// Every child of every thread (proc_tid_children(5)).
fn children() -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread that has just ended has none: they went to another one.
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().flat_map(str::parse::<i32>)),
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    /// In a process of its own: it would reap what other tests started.
    #[test]
    fn only_adopted_children_are_reaped() {
        const ALONE: &str = "HOOKLATCH_TEST_ORPHANS";
        let this = "runner::orphans::tests::only_adopted_children_are_reaped";
        if std::env::var_os(ALONE).is_none() {
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", this]).env(ALONE, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let ended = || {
            let child = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
            child
        };
        let mut adopted = ended();
        let starting = starting();
        let mut ours = ended();
        starting.own(ours.id());
        assert!(!reap(), "nobody knows yet whose child that is");
        drop(starting);
        assert!(reap());
        assert!(adopted.wait().is_err());
        assert_eq!(reaping(Pid::from_child(&ours), || ours.wait()).unwrap().code(), Some(7));
    }
}
