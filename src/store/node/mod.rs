//! What a process has for itself beside its store, whatever the engine: the lock of its folder, the places and the
//! space of its files, and what its memory knows of its commits, of the last events, of those who wait and of what
//! stands still.

pub(crate) mod commits;
pub(crate) mod durable;
pub(crate) mod lock;
pub(crate) mod open_error;
pub(crate) mod path;
pub(crate) mod recent;
pub(crate) mod space;
pub(crate) mod stalls;
pub(crate) mod subscriptions;
