//! Admin: the verbs of [`Admin`](handle::Admin), one file each.

mod accept_kept;
pub(crate) mod audit;
pub(crate) mod backfill;
pub(crate) mod backup;
mod body;
mod check;
pub(crate) mod clauses;
pub(crate) mod conditions;
pub(crate) mod counts;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod gauges;
pub(crate) mod handle;
pub(crate) mod job_move;
pub(crate) mod list;
pub(crate) mod mover;
pub(crate) mod pause;
pub(crate) mod resolve;
pub(crate) mod running;
pub(crate) mod selection;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod stuck;
