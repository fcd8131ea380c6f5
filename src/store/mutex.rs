//! Locks of memory that is shared by threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holder may have panicked: the writer's panic ends the process, and a reader's
/// leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
