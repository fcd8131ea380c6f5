//! What changes the store without being a delivery, a claim or an end: the operator's verbs, and a node's housekeeping.
//! Each is one transaction, or several short ones where it says so, on a connection of its own.

mod accept_kept;
mod audit;
mod backfill;
mod cancel;
pub(super) mod change;
mod conditions;
mod expire;
mod found;
pub(super) mod housekeeping;
mod job_move;
pub(super) mod lost;
mod mover;
mod new_job;
pub(super) mod notice;
mod orphans;
mod pause;
mod repeat;
mod resolve;
mod roll_call;
mod unclaimable;
