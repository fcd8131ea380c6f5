//! The operations of the API, a file for each kind of thing.

pub(super) mod events;
pub(super) mod handlers;
pub(super) mod jobs;
pub(super) mod quarantine;
pub(super) mod receiver;
