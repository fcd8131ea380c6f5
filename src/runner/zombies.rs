//! The zombie reaper: adopts the orphans of commands and reaps them when they end.
//!
//! What a command started and did not wait for goes to the nearest subreaper when the command ends
//! (PR_SET_CHILD_SUBREAPER(2const)), and not to the container's first process, which may be a
//! receiver that waits for nobody: no zombie piles up there. `server` asks for it, before the first
//! command. What must stay true: a child that this program started itself is reaped by whoever
//! started it, since its exit status is told once.
//!
//! For a moment it is deaf to SIGCHLD, with the whole process: `adopt` is called once, and nobody else in the
//! runner waits for that signal.
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

/// From a child's end to the look that follows, however many end meanwhile: a zombie costs a number and a page
/// of the kernel's, and each look reads a file per thread.
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
        let mut pause = PAUSE;
        loop {
            let unheard = Unheard::now();
            sleep(pause).await;
            drop(unheard);
            if reap() {
                break;
            }
            pause = AGAIN;
        }
    }
}

/// While it lives the kernel sends no word of a child's end: each would wake two threads for nothing before
/// the next look, which is taken after it.
struct Unheard(Option<libc::sigaction>);

impl Unheard {
    fn now() -> Self {
        // SAFETY: all zero is the default action, no flag and an empty mask, and any action may be replaced by
        // that. Written is one whole `sigaction`, where the call succeeds.
        let heard = unsafe {
            let mut heard = std::mem::zeroed();
            let default = std::mem::zeroed();
            (libc::sigaction(libc::SIGCHLD, &default, &mut heard) == 0).then_some(heard)
        };
        Unheard(heard)
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(heard) = &self.0 {
            // SAFETY: what was in force before, the handler of the runtime.
            unsafe { libc::sigaction(libc::SIGCHLD, heard, std::ptr::null_mut()) };
        }
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
    use rustix::process::test_kill_process;
    use std::process::Command;

    /// Whether this is a process of its own for `test`, which would reap what other tests started. Where it
    /// is not, one has run it.
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
        starting.own(ours.id());
        assert!(!reap(), "nobody knows yet whose child that is");
        drop(starting);
        assert!(reap());
        assert!(adopted.wait().is_err());
        assert_eq!(reaping(Pid::from_child(&ours), || ours.wait()).unwrap().code(), Some(7));
    }

    /// Whether this process has a handler for a child's end (proc_pid_status(5)).
    fn is_heard() -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (libc::SIGCHLD - 1) != 0
    }

    #[tokio::test]
    async fn nobody_is_woken_between_two_looks_and_the_second_finds_what_ended_meanwhile() {
        if !is_alone("nobody_is_woken_between_two_looks_and_the_second_finds_what_ended_meanwhile")
        {
            return;
        }
        // Nothing tells when a handler is set.
        let until = async |heard| {
            while is_heard() != heard {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let patient = async {
            tokio::spawn(adopt());
            let end = || Pid::from_child(&Command::new("/bin/true").spawn().unwrap());
            until(true).await;
            let first = end();
            until(false).await;
            let second = end();
            until(true).await;
            for adopted in [first, second] {
                while test_kill_process(adopted).is_ok() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            // And heard is the next one too.
            end();
            until(false).await;
        };
        tokio::time::timeout(Duration::from_secs(60), patient).await.unwrap();
    }
}
