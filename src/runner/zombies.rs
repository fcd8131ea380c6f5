//! The zombie reaper: adopts the orphans of commands and reaps them when they end.
//!
//! A process that a command started and did not wait for goes to the nearest subreaper when the command ends
//! (PR_SET_CHILD_SUBREAPER(2const)), instead of to the container's first process, which may be a receiver that
//! reaps nothing. `server` calls [`adopt`] before the first command. Must stay true: a child that this program
//! started is reaped by the code that started it, because the kernel reports its exit status once.
//!
//! Out of reach without a control group for each attempt: a process that left its command's group goes on when
//! the attempt ends (the operator's own daemon, perhaps), and is only reaped here.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// From a child's end to the search that follows, however many end meanwhile: a zombie costs a number and a page
/// of the kernel, and each search reads a file per thread.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause before a search that the start of a child prevented is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Held for reading while a child is being started and is not yet in [`OWN`].
static STARTING: RwLock<()> = RwLock::new(());

/// The children that this program started and has not reaped.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Permission to start one child. Call [`Starting::own`] before it is dropped.
pub(super) struct Starting(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// Waits for the permission to start a child.
pub(super) fn starting() -> Starting {
    Starting(STARTING.read().unwrap_or_else(PoisonError::into_inner))
}

impl Starting {
    /// Notes the child that was started. The caller reaps it, inside of [`reaping`].
    pub(super) fn own(&self, pid: Pid) {
        own().insert(pid.as_raw_pid());
    }
}

/// Reaps a child of [`Starting::own`] by `reap`, which must not block. In one step, so that the next
/// child with its number is not mistaken for it.
pub(super) fn reaping<T>(pid: Pid, reap: impl FnOnce() -> T) -> T {
    let mut own = own();
    let reaped = reap();
    own.remove(&pid.as_raw_pid());
    reaped
}

fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adopts orphans from now on, and reaps each some time after its end. Returns only if that is impossible; the
/// orphans then go to the init process, as without it.
pub(super) async fn adopt() {
    // A kernel without this file (CONFIG_PROC_CHILDREN) does not say which children there are.
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    if children().is_none() || set_child_subreaper(Some(getpid())).is_err() {
        return tracing::debug!("orphans of commands are left to the init process");
    }
    while ends.recv().await.is_some() {
        sleep(PAUSE).await;
        while !reap() {
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// Reaps the adopted children that have ended. Returns false while a child is being started, which cannot be
/// told from an adopted one.
fn reap() -> bool {
    let Ok(_none_starts) = STARTING.try_write() else { return false };
    let own = own();
    for child in children().unwrap_or_default() {
        if !own.contains(&child.as_raw_pid()) {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _alive = waitid(WaitId::Pid(child), ended);
        }
    }
    true
}

/// Every child of every thread (proc_tid_children(5)).
fn children() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                let numbers =
                    list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
                found.extend(numbers.filter_map(Pid::from_raw));
            }
            Err(_) if thread.path().exists() => return None,
            // A thread that has just ended has no children: they went to another thread.
            Err(_) => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::process::test_kill_process;
    use std::process::Command;

    /// Whether this is a separate process for `test`, which would reap the children of other tests. If it is
    /// not, starts one.
    fn is_alone(test: &str) -> bool {
        const ALONE: &str = "HOOKLATCH_TEST_ORPHANS";
        let is_alone = std::env::var_os(ALONE).is_some();
        if !is_alone {
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let this = format!("runner::zombies::tests::{test}");
            let output = alone.args(["--exact", &this]).env(ALONE, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        is_alone
    }

    #[test]
    fn only_adopted_children_are_reaped() {
        if !is_alone("only_adopted_children_are_reaped") {
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
        starting.own(Pid::from_child(&ours));
        assert!(!reap(), "a child may be starting");
        drop(starting);
        assert!(reap());
        assert!(adopted.wait().is_err());
        assert_eq!(reaping(Pid::from_child(&ours), || ours.wait()).unwrap().code(), Some(7));
    }

    #[tokio::test]
    async fn children_that_end_during_the_pause_of_a_search_are_reaped_too() {
        if !is_alone("children_that_end_during_the_pause_of_a_search_are_reaped_too") {
            return;
        }
        let patient = async {
            tokio::spawn(adopt());
            // Lets it register for the signal.
            tokio::task::yield_now().await;
            for _ in 0..3 {
                let child = Pid::from_child(&Command::new("/bin/true").spawn().unwrap());
                while test_kill_process(child).is_ok() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), patient).await.unwrap();
    }
}
