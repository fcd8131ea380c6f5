//! Admin: the reading verbs of [`Admin`](handle::Admin), one file each.
//!
//! A listing looks at a bounded number of rows, as on SQLite. Its statements are planned for the values that they are
//! given, so `$n IS NULL OR …` is a filter that costs nothing where it is not given. A look at another table for each
//! row is a scalar subquery: of `EXISTS` the server may make a walk over that whole table.

mod body;
mod check;
mod filter;
mod find;
mod follow;
pub(super) mod handle;
pub(in super::super) mod history;
mod list;
pub(super) mod nodes;
mod rows;
mod running;
mod select;
mod show;
mod status;
mod stuck;
