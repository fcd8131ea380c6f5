//! Takes over the listening sockets that a service manager opened for this process (sd_listen_fds(3)).
//!
//! `cmd` calls [`take`] for the receiver and for the runner. Must stay true: a descriptor is taken over once in the life of
//! a process, only if the manager names this process, and only after checking that it is a listening
//! socket. From then on it is close-on-exec, so that a handler's command does not keep the port open.

use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use rustix::process::getpid;

use super::variables::{SOCKETS_COUNT as COUNT, SOCKETS_PROCESS as PROCESS, Variable};

/// The number of the first descriptor (sd_listen_fds(3)); the others follow it.
const FIRST: RawFd = 3;

/// The most sockets: more than an appliance has addresses, and few enough to check each.
const MOST: RawFd = 1024;

/// A listening socket that the manager opened.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

/// The reason why no socket was taken over.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The manager's count is not a number, or is too large.
    #[error("{COUNT} is '{0}', which is not a number of sockets up to {MOST}")]
    Count(String),
    /// A descriptor that the manager counts is not open, or a system call on it fails.
    #[error("descriptor {number} of the {count} that {COUNT} counts cannot be used: {source}")]
    Unusable { number: RawFd, count: RawFd, source: io::Error },
    /// A descriptor is open, but is not the kind of socket that the process needs.
    #[error(
        "descriptor {number} is {what}, where {wanted} is needed: correct the ListenStream= of the \
         socket unit"
    )]
    Wrong {
        number: RawFd,
        /// What it is.
        what: &'static str,
        /// What the process needs.
        wanted: &'static str,
    },
}

/// Takes over the sockets that the manager opened for this process; empty without a manager, and in
/// every later call. Call it before starting a child process: until then the sockets are not
/// close-on-exec.
///
/// # Errors
/// A descriptor is not a listening socket: the author of the socket unit must correct it.
pub fn take(variable: Variable<'_>) -> Result<Vec<Socket>, SocketError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let text = |name| variable(name).and_then(|value| value.to_str());
    let ours = text(PROCESS).and_then(|pid| pid.parse().ok()) == Some(getpid().as_raw_pid());
    let Some(count) = text(COUNT).filter(|_| ours) else { return Ok(Vec::new()) };
    let number = count.parse().ok().filter(|count| (0..=MOST).contains(count));
    let count = number.ok_or_else(|| SocketError::Count(count.to_owned()))?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    (FIRST..FIRST + count).map(|number| take_one(number, count)).collect()
}

/// The TCP listeners, for a receiver.
///
/// # Errors
/// A socket is a Unix socket: the HTTP server accepts TCP connections only.
pub fn tcp(sockets: Vec<Socket>) -> Result<Vec<TcpListener>, SocketError> {
    let listener = |(number, socket)| match socket {
        Socket::Tcp(listener) => Ok(listener),
        Socket::Unix(_) => Err(wrong(number, "a Unix socket", "a TCP socket")),
    };
    (FIRST..).zip(sockets).map(listener).collect()
}

/// The one Unix socket of a runner; `None` without any socket.
///
/// # Errors
/// The socket is for TCP, or there is more than one.
pub fn unix(sockets: Vec<Socket>) -> Result<Option<UnixListener>, SocketError> {
    let wanted = "one Unix socket";
    let mut sockets = (FIRST..).zip(sockets);
    let listener = match sockets.next() {
        None => None,
        Some((_, Socket::Unix(listener))) => Some(listener),
        Some((number, Socket::Tcp(_))) => return Err(wrong(number, "a TCP socket", wanted)),
    };
    match sockets.next() {
        None => Ok(listener),
        Some((number, _)) => Err(wrong(number, "a second socket", wanted)),
    }
}

/// Checks an inherited descriptor, makes it close-on-exec, and becomes its owner.
fn take_one(number: RawFd, count: RawFd) -> Result<Socket, SocketError> {
    // SAFETY: the borrow is not used to read, write or close. If the number is not open, each call fails
    // with EBADF. Other code of this process does not close it meanwhile, because it did not open it.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let unusable =
        |errno: rustix::io::Errno| SocketError::Unusable { number, count, source: errno.into() };
    fcntl_setfd(socket, FdFlags::CLOEXEC).map_err(unusable)?;
    let is = |what| wrong(number, what, "a listening stream socket");
    let family = match sockopt::socket_domain(socket) {
        Err(rustix::io::Errno::NOTSOCK) => return Err(is("not a socket")),
        found => found.map_err(unusable)?,
    };
    if sockopt::socket_type(socket).map_err(unusable)? != SocketType::STREAM {
        return Err(is("a datagram or packet socket"));
    }
    if !sockopt::socket_acceptconn(socket).map_err(unusable)? {
        return Err(is("a connection (is it Accept=yes?)"));
    }
    let protocol = sockopt::socket_protocol(socket).map_err(unusable)?;
    // SAFETY: the manager opened this descriptor for this process, as its variables say, and a listening socket
    // is there. This process did not open it, because the kernel gives new descriptors other numbers. `TAKEN`
    // ensures that each number gets one owner.
    let owned = || unsafe { OwnedFd::from_raw_fd(number) };
    match family {
        AddressFamily::UNIX => Ok(Socket::Unix(owned().into())),
        AddressFamily::INET | AddressFamily::INET6
            if matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) =>
        {
            Ok(Socket::Tcp(owned().into()))
        }
        _ => Err(is("a socket of another family")),
    }
}

fn wrong(number: RawFd, what: &'static str, wanted: &'static str) -> SocketError {
    SocketError::Wrong { number, what, wanted }
}
