//! Reaps a child and reads how it ended and which resources it used: the kernel reports both only once.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::clock::Clock;

use super::{Status, Usage, zombies};

/// Waits until a child has exited, and leaves it to be reaped. Blocks.
pub(super) fn wait(pid: Pid) -> io::Result<()> {
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    Ok(())
}

/// Reaps a child that has exited; never blocks. `None` if the kernel does not report its status.
pub(super) fn reap(pid: Pid) -> Option<(Status, Usage)> {
    let mut rusage = MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    let reaped = zombies::reaping(pid, || {
        // SAFETY: wait4(2) writes one status and one whole `rusage` if it reaps.
        unsafe { libc::wait4(pid.as_raw_pid(), &mut status, libc::WNOHANG, rusage.as_mut_ptr()) }
    });
    if reaped != pid.as_raw_pid() {
        return None;
    }
    let status = match libc::WIFSIGNALED(status) {
        true => Status::Signal(libc::WTERMSIG(status)),
        false => Status::Code(libc::WEXITSTATUS(status)),
    };
    // SAFETY: written by the call; all its fields are integers, and were zero before.
    let rusage = unsafe { rusage.assume_init() };
    let cpu = time(rusage.ru_utime).saturating_add(time(rusage.ru_stime));
    let usage = Usage {
        cpu_millis: u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX),
        // In KiB on Linux (getrusage(2)).
        memory_bytes: u64::try_from(rusage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
        ended_at: Some(Clock::system().now()),
    };
    Some((status, usage))
}

fn time(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}
