//! Holds signals back while nothing catches them: at a start, and between two programs of one process.
//!
//! The kernel keeps a blocked signal, and what is blocked, while a program is executed. Must stay true: a process that
//! starts commands or threads which must get signals has released them before.

use nix::sys::signal::SigSet;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

/// The signals that a receiver or a runner catches.
fn caught() -> SigSet {
    SIGHUP | SIGINT | SIGTERM | SIGUSR2
}

/// Holds back this thread's signals, and those of the threads and programs that it starts, until [`release_signals`]. Call
/// it while the process has one thread.
pub fn hold_signals() {
    // It fails only for an unknown operation.
    let _held = caught().thread_block();
}

/// Delivers what has arrived, and what arrives from now on.
pub fn release_signals() {
    let _released = caught().thread_unblock();
}
