//! Keeps inherited descriptors from commands.
//!
//! Every descriptor that this program opens is close-on-exec. Inherited ones are not, such as systemd's
//! listening sockets, and a command that outlives the receiver would keep the port open.

use std::os::fd::BorrowedFd;
use std::sync::Once;

use rustix::io::{FdFlags, fcntl_setfd};

/// Marks every descriptor above 2 close-on-exec, once in the life of the process: inherited ones are open from
/// the start.
pub(super) fn keep_inherited_ones() {
    static ONCE: Once = Once::new();
    ONCE.call_once(mark_all);
}

/// Marks every descriptor above 2 now.
pub(super) fn mark_all() {
    let Ok(listing) = std::fs::read_dir("/proc/self/fd") else {
        tracing::warn!("commands may inherit descriptors: /proc/self/fd cannot be read");
        return;
    };
    let numbers = listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number: &i32| *number > 2) {
        // SAFETY: the number was open a moment ago. If another thread has closed it since, the call fails, or
        // marks a newer descriptor that is marked already. The borrow ends with this statement, and nothing is
        // read, written or closed through it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _gone = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
}
