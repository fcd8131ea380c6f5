//! Permanently removes this process's ability to execute programs.
//!
//! `serve` calls it if it does not launch a runner. An attacker who takes over the process that faces the
//! internet can then only send requests to the runner, and cannot start a program.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, Error, SeccompAction, SeccompFilter, TargetArch};

/// The two system calls that execute a program (execve(2), execveat(2)). On x86-64 also their x32
/// numbers, which a kernel with that ABI accepts from any process.
#[cfg(target_arch = "x86_64")]
const EXECUTE: [i64; 6] = {
    const X32: i64 = 0x4000_0000;
    let [execve, execveat] = [libc::SYS_execve, libc::SYS_execveat];
    [execve, execveat, X32 | 520, X32 | 545, X32 | execve, X32 | execveat]
};
#[cfg(not(target_arch = "x86_64"))]
const EXECUTE: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// Makes the calls in [`EXECUTE`] fail with EPERM in every thread of this process and in its children.
///
/// # Errors
/// The machine or the kernel does not support the filter. The process is then unchanged.
pub fn deny_execution() -> Result<(), Error> {
    // An empty list of conditions matches all arguments.
    let calls: BTreeMap<_, _> = EXECUTE.map(|call| (call, Vec::new())).into();
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, denied, machine)?;
    seccompiler::apply_filter_all_threads(&BpfProgram::try_from(filter)?)
}
