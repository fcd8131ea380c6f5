//! Why a store cannot be opened, and what an error of the system means for that.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use super::path::directory;

/// Why a store cannot be opened. Each text ends with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the store.
    #[error("{path} is in use by {holder}; one process at a time may have it: stop that one first")]
    Locked { path: PathBuf, holder: String },
    /// A newer hooklatch has migrated it, which cannot be undone.
    #[error(
        "{path} was written by a newer hooklatch ({by}, schema {schema}; this one knows {known}); install that version or a newer one"
    )]
    Newer { path: PathBuf, by: String, schema: i64, known: i64 },
    /// A store of a development build.
    #[error(
        "{path}: made by a development build; nothing reads it: keep it, start with a new path"
    )]
    Development { path: PathBuf },
    /// Its rows are in a database.
    #[error("{path} has moved to PostgreSQL; set [storage] url = \"{to}\"")]
    Moved { path: PathBuf, to: String },
    /// They may be there.
    #[error(
        "{path} was being moved to PostgreSQL, which may be done; find out, and finish it: hooklatch store move --to '{to}'"
    )]
    Moving { path: PathBuf, to: String },
    /// Its receiver would begin an empty store beside it.
    #[error(
        "{path} has a store, and storage.url names a database; move it there: hooklatch store move --to URL; or move the file away"
    )]
    NotMoved { path: PathBuf },
    /// The database that has the store cannot be used.
    #[error("{why}")]
    Database { why: String },
    /// The file is something else.
    #[error(
        "{path} is not a SQLite database; name another file as storage.path or move this one away"
    )]
    NotADatabase { path: PathBuf },
    /// A database, but not ours.
    #[error("{path} is a database of another program; name another file as storage.path")]
    Foreign { path: PathBuf },
    /// The path names a directory.
    #[error("{path} is a directory; storage.path names a file")]
    IsDirectory { path: PathBuf },
    /// The directory that should hold it does not exist.
    #[error(
        "the directory of {path} does not exist; create it, owned by the receiver's user, mode 0700"
    )]
    DirectoryMissing { path: PathBuf },
    /// This user may not write there.
    #[error("no permission to write {path}; give it and its directory to the receiver's user")]
    NoPermission { path: PathBuf },
    /// The file or its file system cannot be written.
    #[error("{path} is read-only; make the file and its file system writable")]
    ReadOnly { path: PathBuf },
    /// SQLite found it damaged.
    #[error("{path} is damaged ({detail}); restore a backup, and check the disk")]
    Damaged { path: PathBuf, detail: String },
    /// The disk has no room for the store's own files.
    #[error("no space to open {path}; free some on its file system")]
    NoSpace { path: PathBuf },
    /// A migration, or the copy before it, does not fit. Nothing is changed.
    #[error(
        "{path} is of an earlier schema and is copied before it is changed: {} are needed in its folder (the copy, where it is still to be made; as much again for the change; and the floor of limits.disk_floor_bytes), {} are free; free some there, or go back to the earlier version", ByteSize(*needed), ByteSize(*free)
    )]
    NoSpaceToMigrate {
        path: PathBuf,
        /// Bytes still to be written, and the floor.
        needed: u64,
        free: u64,
    },
    /// The database cannot grow by what a migration wrote. The migration is committed.
    #[error(
        "{path} has the new schema, and the log of that change is still to be copied into it: up to {} are needed in its folder, {} are free; free some there", ByteSize(*needed), ByteSize(*free)
    )]
    NoSpaceForLog { path: PathBuf, needed: u64, free: u64 },
    /// Anything else the system said.
    #[error("failed to open {path}: {detail}")]
    Io { path: PathBuf, detail: String },
}

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
}
