//! What an error of SQLite means for opening a store.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::store::node::open_error::OpenError;

impl OpenError {
    /// What an error of SQLite means for the database at `path`.
    pub(crate) fn from_sql(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => {
                OpenError::Damaged { path, detail: error.to_string() }
            }
            Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
            Some(ErrorCode::PermissionDenied) => OpenError::NoPermission { path },
            Some(ErrorCode::DiskFull) => OpenError::NoSpace { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked {
                path,
                holder: "a program that has it open with SQLite".to_owned(),
            },
            _ => OpenError::Io { path, detail: error.to_string() },
        }
    }
}
