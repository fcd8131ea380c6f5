//! A runner's folder: who may enter it, the lock that makes its holder the only runner, the socket.
//!
//! A runner that a receiver launches has its folder next to the store, so that two stores never share a runner.
//! Only its user can enter, and a group that an administrator has set; that also protects the socket inside.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::UnixListener;

use crate::model::RunnerName;

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Other users could send commands, or the owner could remove the folder.
    #[error(
        "the runner's folder {path} is not only its user's and group's (owner {owner}, mode \
         {mode:o}): chown it to user {user} and chmod o= it"
    )]
    Open {
        path: PathBuf,
        owner: u32,
        mode: u32,
        /// The runner's own user.
        user: u32,
    },
    /// Another runner is there (R2).
    #[error("another runner works in {0}")]
    Held(PathBuf),
    #[error("failed to use {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl FolderError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| FolderError::Io { path, source }
    }
}

/// The folder of the default runner of the store at `database`: the same path with `.runner` added.
pub fn of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".runner");
    path.into()
}

/// The socket of the default runner in its [folder](of).
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// The socket that has its runner's name, in that runner's folder or in a folder of sockets.
pub fn named_socket(folder: &Path, name: &RunnerName) -> PathBuf {
    folder.join(format!("{name}.socket"))
}

/// Creates the folder if it does not exist, checks it, and takes its lock, which the runner holds for life.
///
/// The lock is close-on-exec: a child holds it too until its program begins. So the process that gets it after
/// a runner's death finds every child with its environment set.
pub(super) fn take(folder: &Path) -> Result<File, FolderError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FolderError::io(folder)(error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(FolderError::io(folder))?;
    let (owner, mode, user) = (found.uid(), found.mode() & 0o7777, geteuid().as_raw());
    if owner != user || mode & 0o007 != 0 || !found.is_dir() {
        return Err(FolderError::Open { path: folder.to_owned(), owner, mode, user });
    }
    let path = folder.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(FolderError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FolderError::Held(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(FolderError::io(&path)(error)),
    }
}

/// Listens at `path` in the folder whose lock the caller holds. Replaces a dead runner's socket.
pub(super) fn listen(path: &Path) -> Result<UnixListener, FolderError> {
    let bound = || {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
        Ok(listener)
    };
    bound().map_err(FolderError::io(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_private_and_has_one_holder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = of(&parent.path().join("store.db"));
        let lock = take(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert!(matches!(take(&folder), Err(FolderError::Held(_))));
        drop(lock);
        drop(take(&folder).unwrap());
        fs::set_permissions(&folder, Permissions::from_mode(0o750)).unwrap();
        drop(take(&folder).unwrap());
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(take(&folder), Err(FolderError::Open { mode: 0o755, .. })));
    }
}
