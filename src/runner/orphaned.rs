//! Ends the orphaned processes of a dead runner's commands, before their attempts are judged.
//!
//! Called by the next runner, which holds the folder's lock: at its start for what the ledger tells,
//! later for what a receiver asks about and no ledger knows. "At most one attempt of a job runs at any
//! time" rests on it: a job must not run again while processes of its last attempt live. Every command
//! carries its job and attempt in its environment, and job ids are random, so no other store's command
//! is ever found.
//!
//! Out of reach, and said in the README: a process group of which no process has kept this environment
//! (`env -i`, `sudo`), or has one that this user may not read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
};
use rustix::time::{ClockId, clock_gettime};

use super::ledger::Process;
use super::message::Key;

/// How long one search waits for what it killed to be gone, before its caller may say that something
/// cannot be ended. SIGKILL takes microseconds; what takes seconds hangs in the kernel.
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

/// Kills every process of these attempts, with their process groups, and waits until they are gone.
/// Returns the attempts of which something still lives after `patience`, or may: they must stay
/// `running`. With each the process that the ledger tells, if it does: it may have shed its
/// environment. Blocks.
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

/// Nothing where /proc does not even list this process: such a search would prove nothing.
fn find(attempts: &[(Key, Option<Process>)]) -> Option<Vec<Orphan>> {
    if attempts.is_empty() {
        return Some(Vec::new());
    }
    let pids: Vec<Pid> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .collect();
    // This process may be one itself, where a command started it.
    let own = pids.iter().position(|pid| *pid == getpid())?;
    let others = pids[..own].iter().chain(&pids[own + 1..]);
    Some(others.filter_map(|pid| look(*pid, attempts)).collect())
}

fn look(pid: Pid, attempts: &[(Key, Option<Process>)]) -> Option<Orphan> {
    // The descriptor first: should the number change hands in between, it stands for a process that
    // is gone, and no signal sent by it reaches the new one.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let key = named(pid).filter(|key| attempts.iter().any(|(one, _)| one == key));
    let key = key.or_else(|| {
        let process = process(pid)?;
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

/// What tells a living process from every other of this boot. Nothing for one that has ended, reaped
/// or not.
pub(super) fn process(pid: Pid) -> Option<Process> {
    let stat = read_stat(pid)?;
    let ended = matches!(field::<char>(&stat, 3)?, 'Z' | 'X');
    (!ended).then_some(Process { pid: pid.as_raw_pid(), start: field(&stat, 22)? })
}

/// The same of a child that is not reaped and began after the clock said `before`. Where it says the same now,
/// the child began in that tick: /proc, which takes longer than all else about a start but the start itself,
/// need not be asked.
pub(super) fn begun(pid: Pid, before: u64) -> Option<Process> {
    match ticks() {
        now if now == before => Some(Process { pid: pid.as_raw_pid(), start: now }),
        _ => process(pid),
    }
}

/// The clock by which /proc tells when a process began (proc_pid_stat(5)): ticks since the boot, with those of
/// a suspended machine.
pub(super) fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let tick_nanos = 1_000_000_000 / clock_ticks_per_second();
    let nanos = 1_000_000_000 * now.tv_sec.unsigned_abs() + now.tv_nsec.unsigned_abs();
    nanos / tick_nanos
}

/// Whether a process of this group lives. It may where /proc cannot be read.
pub(super) fn group_lives(number: Pid) -> bool {
    let Ok(listing) = fs::read_dir("/proc") else { return true };
    let pids = listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids = pids.filter_map(Pid::from_raw);
    pids.any(|pid| group(pid) == Some(number) && process(pid).is_some())
}

/// A process's group. Nothing for one outside of this PID namespace, as a container's first processes
/// may have.
fn group(pid: Pid) -> Option<Pid> {
    field(&read_stat(pid)?, 5).and_then(Pid::from_raw)
}

fn read_stat(pid: Pid) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()
}

/// A field of proc_pid_stat(5), counted from 1 as there; none before the third.
fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    // The second, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn kill(orphan: &Orphan) {
    let Key { job, attempt } = orphan.key;
    let pid = orphan.pid.as_raw_pid();
    // A stopped process does not exit by itself, so its number and its group's stay its own.
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

/// Waits for the process's end, until the deadline. False where it still lives then.
fn has_ended(pidfd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return matches!(ready, Ok(1..)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn what_began_is_told_as_proc_tells_it_whether_or_not_the_clock_went_on() {
        for behind in [0, 1].repeat(20) {
            let before = ticks() - behind;
            let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_child(&child);
            let begun = begun(pid, before);
            assert!(begun.is_some() && begun == process(pid), "{begun:?}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
