//! Jobs: the verbs of [`Jobs`](handle::Jobs), one file each.

pub(crate) mod claim;
pub(crate) mod claim_dedup;
pub(crate) mod complete;
mod epoch;
pub(crate) mod expire;
pub(crate) mod handle;
mod notices;
pub(crate) mod recover;
pub(crate) mod vain_reads;
