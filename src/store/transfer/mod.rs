//! MOVE: a store leaves its SQLite file for PostgreSQL.
//!
//! All rows are copied in one transaction, with their numbers, times and the store's identity. What must stay true: the
//! file and the database are never both usable. `moved` has the order of the mark and the commit; a run that was cut
//! off leaves a marked file, and the next run asks the database whether the move is committed: it then has the store's
//! identity.

mod copy;
mod error;
mod held;

pub use error::MoveError;
pub(super) use held::hold;
pub use held::{HeldStore, MoveResult};
