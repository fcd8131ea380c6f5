//! A runner's folder: who may look into it, the lock that makes its holder the only one, the socket.
//!
//! By hand it lies beside the store, so that two stores never share a runner. Only its user, and the group
//! where an administrator made it so, can enter; the socket inside needs no other guard.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::UnixListener;

use crate::model::RunnerName;

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Others could send commands, or their owner could take the folder away.
    #[error(
        "the runner's folder {path} is not only its user's and group's (owner {owner}, mode \
         {mode:o}): chown it to user {user} and chmod o= it"
    )]
    Open {
        /// The folder.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who may do what.
        mode: u32,
        /// Who runs this.
        user: u32,
    },
    /// Another runner is there (R2).
    #[error("another runner works in {0}")]
    Held(PathBuf),
    /// The system refused.
    #[error("failed to use {path}: {source}")]
    Io {
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl FolderError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| FolderError::Io { path, source }
    }
}

/// Where the runner of the store at `database` works: the same path with `.runner` added.
pub fn of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".runner");
    path.into()
}

/// The socket of the runner that works in a folder [beside the store](of).
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// The socket called after its runner, in a folder of its own or in one of sockets.
pub fn named_socket(folder: &Path, name: &RunnerName) -> PathBuf {
    folder.join(format!("{name}.socket"))
}

/// Held for life. Close-on-exec: a child holds it too until its program begins, so whoever takes it
/// after a runner's death finds every child with its environment, where it is looked for.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Its descriptor.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<File> for Lock {
    /// The lock that this process took before it became another program.
    fn from(file: File) -> Self {
        Lock(file)
    }
}

/// Makes the folder where there is none, judges it, and takes its lock.
pub(super) fn take(folder: &Path) -> Result<Lock, FolderError> {
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
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(FolderError::Held(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(FolderError::io(&path)(error)),
    }
}

/// Listens at `path` in the folder whose lock the caller holds; a dead runner's socket is replaced.
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
