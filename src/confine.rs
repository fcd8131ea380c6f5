//! Takes from this process, for good, the right to execute a program.
//!
//! `serve` calls it where it launches no runner: an attacker who takes over the process that faces the
//! internet can then make requests of the runner, and start nothing.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, Error, SeccompAction, SeccompFilter, TargetArch};

/// The two calls by which Linux executes a program (execve(2), execveat(2)); on x86-64 under their x32 numbers too,
/// which kernels with that ABI take from any process.
#[cfg(target_arch = "x86_64")]
const EXECUTE: [i64; 6] = {
    const X32: i64 = 0x4000_0000;
    let [execve, execveat] = [libc::SYS_execve, libc::SYS_execveat];
    [execve, execveat, X32 | 520, X32 | 545, X32 | execve, X32 | execveat]
};
#[cfg(not(target_arch = "x86_64"))]
const EXECUTE: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// From here on every thread of this process, and whatever they fork, is told EPERM by [`EXECUTE`].
///
/// # Errors
/// The machine's or the kernel's: nothing was changed.
pub fn deny_execution() -> Result<(), Error> {
    // A call without a condition matches whatever its arguments are.
    let calls: BTreeMap<_, _> = EXECUTE.map(|call| (call, Vec::new())).into();
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, denied, machine)?;
    seccompiler::apply_filter_all_threads(&BpfProgram::try_from(filter)?)
}
