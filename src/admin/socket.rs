//! The files of the two sockets, and of the dashboard's.
//!
//! `serve` makes its two once it holds the store's lock, so it is safe to replace a dead receiver's. A
//! socket is made in a directory that only this user can enter and moved to its place when its mode is
//! set, so another user can connect at no moment.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket in bytes: Linux's `sun_path` has 108 with the closing zero.
const PATH_MAX_BYTES: usize = 107;

/// The socket of the store at `database` that serves every route.
pub fn socket_path(database: &Path) -> PathBuf {
    database.with_added_extension("sock")
}

/// The socket of the store at `database` that serves the reading routes alone.
pub fn reading_socket_path(database: &Path) -> PathBuf {
    database.with_added_extension("read.sock")
}

/// Why a socket of the API cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "the socket path {path} has {bytes} bytes; {PATH_MAX_BYTES} is the limit (choose a shorter storage path)"
    )]
    PathTooLong { path: PathBuf, bytes: usize },
    #[error("{0} is in the way of the socket and is not a socket (move it away)")]
    InTheWay(PathBuf),
    #[error("failed to make the socket {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Makes the socket `path` with this mode. Replaces a socket that is there.
pub fn bind(path: &Path, mode: u32) -> Result<UnixListener, ListenError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_MAX_BYTES {
        return Err(ListenError::PathTooLong { path: path.to_owned(), bytes });
    }
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(ListenError::InTheWay(path.to_owned()));
    }
    bind_privately(path, mode).map_err(|source| ListenError::Io { path: path.to_owned(), source })
}

fn bind_privately(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A short name: the socket's address must not become longer than it will be.
    let private = tempfile::Builder::new()
        .prefix(".s")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(folder.unwrap_or(Path::new(".")))?;
    let hidden = private.path().join("s");
    let socket = UnixListener::bind(&hidden)?;
    socket.set_nonblocking(true)?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(mode))?;
    fs::rename(&hidden, path)?;
    Ok(socket)
}
