//! Why a store has not moved.

use std::path::PathBuf;

use tokio_postgres::Error;

use crate::store::node::open_error::OpenError;
use crate::store::postgres::{ConnectError, Doubt, Refusal};

/// Why the store has not moved. Each text ends with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the database is not empty: table {0} has rows; name one in which no receiver has run")]
    NotEmpty(String),
    /// The file is a copy from before its move.
    #[error(
        "the database has this store already, and this file was not marked: it is an old copy; delete it"
    )]
    Old,
    /// A move to another database may be committed.
    #[error("{path} was being moved to {to}, and this is another database; name that one")]
    OtherDatabase { path: PathBuf, to: String },
    /// A row of SQLite that PostgreSQL cannot have.
    #[error("a row of table {table} cannot be moved: {detail}; nothing has changed")]
    Row { table: String, detail: String },
    /// PostgreSQL does not have what SQLite has.
    #[error("the copy of table {0} differs from the file; nothing has changed")]
    Differs(&'static str),
    #[error("nothing has changed: {0}")]
    NotCommitted(Refusal),
    #[error(
        "it is not known whether the store has moved: {0}; run the same command again: it finds out, and finishes the move"
    )]
    Unknown(Doubt),
    #[error(
        "the store has moved, and the file could not be marked: {0}; run the same command again"
    )]
    Unmarked(String),
}

impl From<Error> for MoveError {
    fn from(error: Error) -> Self {
        MoveError::NotCommitted(Refusal::of(&error))
    }
}
