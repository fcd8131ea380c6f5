//! The engine: one SQLite file, one writer thread, and readers. It knows no verb.

pub(crate) mod checkpoint;
pub(crate) mod connection;
pub(crate) mod copy;
pub(crate) mod copy_task;
pub(crate) mod handle;
mod hold_all;
pub(crate) mod inspect;
pub(crate) mod mark;
pub(crate) mod migration_backup;
pub(crate) mod moved;
pub(crate) mod open;
mod open_error;
pub(crate) mod put_back;
pub(crate) mod queue;
pub(crate) mod readers;
pub(crate) mod restore;
pub(crate) mod schema;
pub(crate) mod shared;
pub(crate) mod verb;
pub(crate) mod writer;
