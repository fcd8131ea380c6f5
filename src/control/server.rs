//! The receiver's end of the admin socket.
//!
//! `serve` starts it once it holds the store's lock, which is what makes it safe to replace a dead
//! receiver's socket. The socket is made in a directory that nobody else can enter and moved to its
//! place when its mode is set, so there is no moment in which another user could connect.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::backup;
use super::wire::{self, WireError};
use super::{Failure, Receiver, Reply, Request, perform};
use crate::limits::Limits;
use crate::store::Admin;

/// Longest path of a Unix socket in bytes: Linux's `sun_path` has 108 with the closing zero.
const PATH_MAX_BYTES: usize = 107;

/// Why the admin socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path does not fit into a socket address.
    #[error(
        "the socket path {path} has {bytes} bytes; {PATH_MAX_BYTES} is the limit (choose a shorter storage path)"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Something that is no socket has its name.
    #[error("{0} is in the way of the admin socket and is not a socket (move it away)")]
    InTheWay(PathBuf),
    /// The system refused.
    #[error("failed to make the admin socket {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// What requests are carried out on.
#[derive(Clone)]
struct Served {
    store: Admin,
    receiver: Receiver,
}

/// The listening admin socket. Dropping it ends it too, and leaves the dead socket there.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    closing: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Serves `store`, and what its receiver knows beside it, on the Unix socket `path`, mode
/// 0600, until [`Listener::stop`]. The caller holds
/// the store's lock; a socket left there by a dead receiver is replaced. To be called inside a
/// tokio runtime.
pub fn listen(
    path: &Path,
    store: Admin,
    receiver: Receiver,
    limits: &Limits,
) -> Result<Listener, ListenError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_MAX_BYTES {
        return Err(ListenError::PathTooLong { path: path.to_owned(), bytes });
    }
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(ListenError::InTheWay(path.to_owned()));
    }
    let socket =
        bind_privately(path).map_err(|source| ListenError::Io { path: path.to_owned(), source })?;
    let (closing, closed) = watch::channel(false);
    let task = tokio::spawn(accept(socket, closed, Served { store, receiver }, limits.clone()));
    Ok(Listener { path: path.to_owned(), closing, task })
}

/// Binds beside `path` where only this user can look, then moves the socket there.
fn bind_privately(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A short name: the socket's address must not become longer than it will be.
    let private = tempfile::Builder::new()
        .prefix(".s")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(folder.unwrap_or(Path::new(".")))?;
    let hidden = private.path().join("s");
    let socket = UnixListener::bind(&hidden)?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
    fs::rename(&hidden, path)?;
    Ok(socket)
}

impl Listener {
    /// Removes the socket, lets the requests under way end within `control_wait_millis`, and returns.
    pub async fn stop(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(path = %self.path.display(), %error, "the admin socket was gone already");
        }
        self.closing.send_replace(true);
        let _ = self.task.await;
    }
}

async fn accept(
    socket: UnixListener,
    mut closing: watch::Receiver<bool>,
    served: Served,
    limits: Limits,
) {
    let wait = Limits::duration(limits.control_wait_millis);
    let limits = Arc::new(limits);
    let room = Arc::new(Semaphore::new(limits.control_connections_count as usize));
    let mut connections = JoinSet::new();
    loop {
        // A place is taken before a connection is, so that further ones wait in the kernel's queue.
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, socket.accept().await)
        };
        tokio::select! {
            _ = closing.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let (served, limits, closing) = (served.clone(), Arc::clone(&limits), closing.clone());
                    connections.spawn(async move {
                        if let Err(error) = serve(stream, closing, served, &limits).await {
                            debug!(%error, "an admin connection ended");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "failed to accept an admin connection");
                    // The usual reason is a lack of descriptors, which trying again at once does not end.
                    tokio::time::sleep(Limits::duration(100)).await;
                }
            }
        }
    }
    let _ = timeout(wait, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection: requests one after another, each within its time.
async fn serve(
    mut stream: UnixStream,
    mut closing: watch::Receiver<bool>,
    served: Served,
    limits: &Limits,
) -> Result<(), WireError> {
    let wait = Limits::duration(limits.control_wait_millis);
    loop {
        let request = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return Ok(()),
            read = timeout(wait, wire::read::<Request>(&mut stream, limits.control_request_bytes)) => read,
        };
        let (answer, last) = match request {
            Err(_) | Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(Request::Backup))) => {
                tokio::select! {
                    // A stop does not wait for a backup.
                    _ = closing.wait_for(|closing| *closing) => return Ok(()),
                    sent = backup::send(&mut stream, &served.store, limits) => sent?,
                }
                continue;
            }
            Ok(Ok(Some(request))) => {
                (perform(&served.store, Some(&served.receiver), request).await, false)
            }
            Ok(Err(WireError::Io(error))) => return Err(error.into()),
            Ok(Err(error)) => (Err(not_understood(&error)), true),
        };
        send(&mut stream, answer, limits).await?;
        if last {
            return Ok(());
        }
    }
}

async fn send(
    stream: &mut UnixStream,
    answer: Result<Reply, Failure>,
    limits: &Limits,
) -> Result<(), WireError> {
    let wait = Limits::duration(limits.control_wait_millis);
    let sent = timeout(wait, wire::write(stream, &answer, limits.control_answer_bytes)).await;
    match sent.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
        Err(error @ WireError::TooLarge { .. }) => {
            let failure: Result<Reply, Failure> =
                Err(Failure::unavailable(format!("the answer is {error} (ask for less)")));
            wire::write(stream, &failure, limits.control_answer_bytes).await
        }
        sent => sent,
    }
}

fn not_understood(error: &WireError) -> Failure {
    let version = env!("CARGO_PKG_VERSION");
    Failure::unavailable(format!(
        "the receiver (version {version}) got {error} (is it older than this command? restart it)"
    ))
}
