//! What an error of the system or of SQLite means for a store that is being opened.

use std::io::ErrorKind;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::store::types::OpenError;

use super::path::directory;

impl OpenError {
    /// What an I/O error on `file` means for the database at `path`.
    pub(crate) fn from_io(path: &Path, file: &Path, error: &std::io::Error) -> Self {
        let (path, file) = (path.to_owned(), file.to_owned());
        match error.kind() {
            ErrorKind::NotFound if !directory(&path).is_dir() => {
                OpenError::DirectoryMissing { path }
            }
            ErrorKind::PermissionDenied => OpenError::NoPermission { path: file },
            ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path: file },
            ErrorKind::NotADirectory => OpenError::DirectoryMissing { path },
            ErrorKind::IsADirectory => OpenError::IsDirectory { path: file },
            ErrorKind::StorageFull => OpenError::NoSpace { path },
            _ => OpenError::Io { path: file, detail: error.to_string() },
        }
    }

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
