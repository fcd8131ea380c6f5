//! Listening sockets that a service manager has opened for this process (sd_listen_fds(3)).
//!
//! What must stay true: a descriptor is taken over once in the life of a process, only where the manager
//! says that it is for this very process, and only after a look at what it is; and from then on it is
//! close-on-exec, so that no command keeps a port.

use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use rustix::process::getpid;

use super::Variable;

const COUNT: &str = "LISTEN_FDS";

/// Whom they are for.
const PROCESS: &str = "LISTEN_PID";

/// All that tells of sockets.
pub const VARIABLES: [&str; 4] = [COUNT, PROCESS, "LISTEN_FDNAMES", "LISTEN_PIDFDID"];

/// The first one's number (sd_listen_fds(3)); the others follow.
const FIRST: RawFd = 3;

/// Most of them: far more than anybody has addresses, and few enough to look at each.
const MOST: RawFd = 1024;

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

/// Why the sockets cannot be taken over. None is, then.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The manager's count is none.
    #[error("{COUNT} is '{0}', which is not a number of sockets up to {MOST}")]
    Count(String),
    /// It is not there at all.
    #[error("descriptor {number} of the {count} that {COUNT} tells of cannot be used: {source}")]
    Unusable {
        number: RawFd,
        count: RawFd,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be listened at for what it is needed for.
    #[error(
        "descriptor {number} is {what}, where {wanted} is needed: correct the ListenStream= of the \
         socket unit"
    )]
    Wrong {
        number: RawFd,
        what: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
}

/// Takes over the sockets that were opened for this process; none where nobody did, nor a second time.
/// To be called before anything is started: until then they are not close-on-exec.
///
/// # Errors
/// What is there is no listening socket, of which the unit's author should hear.
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
    let kinds = (FIRST..FIRST + count).map(|number| Ok((number, judge(number, count)?)));
    let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
    let owned = |(number, family)| {
        // SAFETY: the manager opened it for this process by its own word, a look has just shown a
        // listening socket, which nothing here has opened before (or it had been given another number),
        // and each number is taken over once in the life of the process.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        match family {
            Family::Tcp => Socket::Tcp(socket.into()),
            Family::Unix => Socket::Unix(socket.into()),
        }
    };
    Ok(kinds.into_iter().map(owned).collect())
}

/// Those for TCP, which a receiver serves.
///
/// # Errors
/// One of them is a Unix socket: the HTTP server takes TCP connections only.
pub fn tcp(sockets: Vec<Socket>) -> Result<Vec<TcpListener>, SocketError> {
    let listener = |(number, socket)| match socket {
        Socket::Tcp(listener) => Ok(listener),
        Socket::Unix(_) => Err(wrong(number, "a Unix socket", "a TCP socket")),
    };
    (FIRST..).zip(sockets).map(listener).collect()
}

/// The one Unix socket of a runner, where there is one.
///
/// # Errors
/// It is for TCP, or there are several.
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

#[derive(Debug, Clone, Copy)]
enum Family {
    Tcp,
    Unix,
}

/// Looks at an inherited descriptor, and keeps it from children.
fn judge(number: RawFd, count: RawFd) -> Result<Family, SocketError> {
    // SAFETY: nothing is read, written or closed through the borrow. Where the number is not open each
    // call fails with EBADF; nothing else here closes it meanwhile, since nobody here has opened it.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let unusable =
        |errno: rustix::io::Errno| SocketError::Unusable { number, count, source: errno.into() };
    fcntl_setfd(socket, FdFlags::CLOEXEC).map_err(unusable)?;
    let is = |what| wrong(number, what, "a listening stream socket");
    let family = match sockopt::socket_domain(socket) {
        Err(rustix::io::Errno::NOTSOCK) => return Err(is("no socket")),
        found => found.map_err(unusable)?,
    };
    if sockopt::socket_type(socket).map_err(unusable)? != SocketType::STREAM {
        return Err(is("a datagram or packet socket"));
    }
    if !sockopt::socket_acceptconn(socket).map_err(unusable)? {
        return Err(is("a connection (is it Accept=yes?)"));
    }
    let protocol = sockopt::socket_protocol(socket).map_err(unusable)?;
    match family {
        AddressFamily::UNIX => Ok(Family::Unix),
        AddressFamily::INET | AddressFamily::INET6
            if matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) =>
        {
            Ok(Family::Tcp)
        }
        _ => Err(is("a socket of another family")),
    }
}

fn wrong(number: RawFd, what: &'static str, wanted: &'static str) -> SocketError {
    SocketError::Wrong { number, what, wanted }
}
