//! What the store decides, as pure functions: an engine reads the facts that a function asks for, and makes the writes
//! that it names.
//!
//! Nothing here knows SQL, reads a clock or does I/O. A decision that one guarded statement makes stays in that statement.

pub(crate) mod backfill;
pub(crate) mod conditions;
pub(crate) mod delivery;
pub(crate) mod end;
pub(crate) mod group;
pub(crate) mod ids;
pub(crate) mod job_move;
pub(crate) mod key;
pub(crate) mod listing;
pub(crate) mod new_job;
pub(crate) mod nodes;
pub(crate) mod notice;
pub(crate) mod pace;
pub(crate) mod recovery;
pub(crate) mod resolve;
