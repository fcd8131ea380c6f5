//! Ends the orphaned processes of a dead runner's commands, before their attempts are judged.
//!
//! The next runner calls it, which holds the folder's lock: at its start for the attempts in the ledger, later
//! for an attempt that a receiver asks about and no ledger has. "At most one attempt of a job runs at any time"
//! depends on it: a job must not run again while processes of its last attempt live. Every command has its
//! job and attempt in its environment, and job ids are random, so another store's command is never found.
//!
//! Out of reach, as the README says: a process group in which no process has kept this environment (`env -i`,
//! `sudo`), or in which this user may not read it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
};

use super::ledger::Process;
use super::message::Key;

/// How long one search waits for killed processes to be gone. SIGKILL takes microseconds; a process that takes
/// seconds hangs in the kernel.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The most that is read of a process's environment: Linux starts no program with more (execve(2):
/// three quarters of an 8 MiB stack).
const ENVIRONMENT_BYTES: u64 = 6 * 1024 * 1024;

/// An orphaned process of one of the attempts.
struct Orphan {
    key: Key,
    pid: Pid,
    pidfd: OwnedFd,
}

/// Kills every process of these attempts, with their process groups, and waits until they are gone. Returns the
/// attempts of which a process still lives after `patience`, or may live: they must stay `running`. The
/// ledger's process identifies a command that has removed its environment. Blocks.
pub(super) fn end(attempts: &[(Key, Option<Process>)], patience: Duration) -> Vec<Key> {
    let deadline = Instant::now() + patience;
    loop {
        // Repeatedly: a process may start another one during the search.
        let Some(found) = find(attempts) else {
            tracing::error!("cannot see what still runs: /proc does not list processes");
            return attempts.iter().map(|(key, _)| *key).collect();
        };
        for orphan in &found {
            kill(orphan);
        }
        let alive = found.iter().filter(|orphan| !has_ended(&orphan.pidfd, deadline));
        let alive: BTreeSet<Key> = alive.map(|orphan| orphan.key).collect();
        if found.is_empty() || !alive.is_empty() {
            return alive.into_iter().collect();
        }
    }
}

/// `None` if /proc does not even list this process: such a search proves nothing.
fn find(attempts: &[(Key, Option<Process>)]) -> Option<Vec<Orphan>> {
    if attempts.is_empty() {
        return Some(Vec::new());
    }
    let pids: Vec<Pid> = pids()?.collect();
    // This process itself may have such an environment, if a command started it.
    let own = pids.iter().position(|pid| *pid == getpid())?;
    let others = pids[..own].iter().chain(&pids[own + 1..]);
    Some(others.filter_map(|pid| look(*pid, attempts)).collect())
}

fn look(pid: Pid, attempts: &[(Key, Option<Process>)]) -> Option<Orphan> {
    // The descriptor first: if the number is given to another process in between, the descriptor still stands
    // for the one that is gone, and no signal reaches the new one.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let key = named(pid).filter(|key| attempts.iter().any(|(one, _)| one == key));
    let key = key.or_else(|| {
        let process = living(pid)?;
        let known = attempts.iter().find(|(_, known)| *known == Some(process))?;
        Some(known.0)
    })?;
    Some(Orphan { key, pid, pidfd })
}

/// The attempt that a process has in its environment.
fn named(pid: Pid) -> Option<Key> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment).ok()?;
    let value = |name: &str| {
        let line = environment.split(|&b| b == 0).find_map(|l| l.strip_prefix(name.as_bytes()))?;
        std::str::from_utf8(line).ok()
    };
    let (job, attempt) = (value("HOOKLATCH_JOB=")?, value("HOOKLATCH_ATTEMPT=")?);
    Some(Key { job: job.parse().ok()?, attempt: attempt.parse().ok()? })
}

/// Identifies a process that is not reaped.
pub(super) fn process(pid: Pid) -> Option<Process> {
    Some(Process { pid: pid.as_raw_pid(), start: field(&read_stat(pid)?, 22)? })
}

/// Identifies a process that has not ended; `None` if it has, or cannot be read.
pub(super) fn living(pid: Pid) -> Option<Process> {
    let has_ended = matches!(field::<char>(&read_stat(pid)?, 3)?, 'Z' | 'X');
    process(pid).filter(|_| !has_ended)
}

/// Whether a process of this group lives; true if /proc cannot be read.
pub(super) fn group_lives(number: Pid) -> bool {
    let lives = |pid| group(pid) == Some(number) && living(pid).is_some();
    pids().is_none_or(|mut pids| pids.any(lives))
}

/// Every process; `None` if /proc cannot be read.
fn pids() -> Option<impl Iterator<Item = Pid>> {
    let listing = fs::read_dir("/proc").ok()?.flatten();
    let numbers = listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(numbers.filter_map(Pid::from_raw))
}

/// A process's group; `None` for a group outside of this PID namespace, as a container's first processes may
/// have.
fn group(pid: Pid) -> Option<Pid> {
    field(&read_stat(pid)?, 5).and_then(Pid::from_raw)
}

fn read_stat(pid: Pid) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()
}

/// A field of proc_pid_stat(5), counted from 1 as there, from the third on.
fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    // The second field, in parentheses, may contain any text.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn kill(orphan: &Orphan) {
    let Key { job, attempt } = orphan.key;
    let pid = orphan.pid.as_raw_pid();
    // A stopped process does not exit by itself, so that its number and its group's are not given to others.
    let held = pidfd_send_signal(&orphan.pidfd, Signal::STOP);
    let known = group(orphan.pid).filter(|_| held.is_ok());
    let ours = group(getpid());
    if let Some(group) = known.filter(|group| !group.is_init() && Some(*group) != ours) {
        let _gone = kill_process_group(group, Signal::KILL);
    }
    match pidfd_send_signal(&orphan.pidfd, Signal::KILL) {
        Ok(()) => tracing::warn!(%job, attempt, pid, "ended a process that a dead runner left"),
        Err(error) => tracing::warn!(%job, attempt, pid, %error, "cannot end a left process"),
    }
}

/// Waits for the process's end until the deadline. Returns whether it has ended.
fn has_ended(pidfd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return matches!(ready, Ok(1..)),
        }
    }
}
