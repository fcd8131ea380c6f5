//! Admin: the verbs of [`Admin`](handle::Admin), one file each.

pub(super) mod handle;
