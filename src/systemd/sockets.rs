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

/// A kind of listening socket that a process needs.
pub trait Listener: From<OwnedFd> {
    const KIND: &'static str;
    const WANTED: &'static str = Self::KIND;
}

impl Listener for TcpListener {
    const KIND: &'static str = "a TCP socket";
}

impl Listener for UnixListener {
    const KIND: &'static str = "a Unix socket";
    const WANTED: &'static str = "one Unix socket";
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
/// A descriptor is not a listening socket of this kind: the author of the socket unit must correct it.
pub fn take<L: Listener>(variable: Variable<'_>) -> Result<Vec<L>, SocketError> {
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

/// The one socket of a runner; `None` without any socket.
///
/// # Errors
/// As of [`take`], or there is more than one socket.
pub fn take_only<L: Listener>(variable: Variable<'_>) -> Result<Option<L>, SocketError> {
    let mut sockets = take(variable)?;
    match sockets.len() {
        0 | 1 => Ok(sockets.pop()),
        _ => Err(wrong(FIRST + 1, "a second socket", L::WANTED)),
    }
}

/// Checks an inherited descriptor, makes it close-on-exec, and becomes its owner.
fn take_one<L: Listener>(number: RawFd, count: RawFd) -> Result<L, SocketError> {
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
    let kind = match family {
        AddressFamily::UNIX => UnixListener::KIND,
        AddressFamily::INET | AddressFamily::INET6
            if matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) =>
        {
            TcpListener::KIND
        }
        _ => return Err(is("a socket of another family")),
    };
    if kind != L::KIND {
        return Err(wrong(number, kind, L::WANTED));
    }
    // SAFETY: the manager opened this descriptor for this process, as its variables say, and a listening socket
    // is there. This process did not open it, because the kernel gives new descriptors other numbers. `TAKEN`
    // ensures that each number gets one owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}

fn wrong(number: RawFd, what: &'static str, wanted: &'static str) -> SocketError {
    SocketError::Wrong { number, what, wanted }
}
