//! The handle of `control` and `metrics` on PostgreSQL.

use super::super::connection::Target;

/// For operators, from a receiver or without one: nothing here belongs to a node's session.
#[derive(Clone)]
pub struct Admin {
    pub(super) target: Target,
}
