//! The quarantine: deliveries that failed verification, kept apart, judged again once the secret is
//! right, and then accepted. GitHub never sends again, so a wrong secret would lose them.
//!
//! `http` hands failures over and never waits; `admin` asks for the rest. It is a separate folder
//! (`PATH.quarantine`) with its thread, bounded in files, bytes, age and rate, and no promise: it
//! costs the genuine deliveries nothing. What must stay true: only `verify` makes an accepted delivery,
//! judged at the time of arrival; a delivery is deleted here only after its event is committed, so a
//! crash between the two makes a duplicate and no loss.

mod discards;
pub(crate) mod folder;
pub(crate) mod handle;
pub(crate) mod keeper;
mod rate;
#[cfg(test)]
mod tests;
