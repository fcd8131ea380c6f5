//! Admin: the verbs of [`Admin`](handle::Admin), one file each.

pub(crate) mod backup;
pub(crate) mod drop;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod gauges;
pub(crate) mod handle;
pub(crate) mod judge;
pub(crate) mod list;
pub(crate) mod missing;
pub(crate) mod pause;
pub(crate) mod quarantine;
pub(crate) mod replay;
pub(crate) mod resolve;
pub(crate) mod running;
pub(crate) mod select;
pub(crate) mod status;
