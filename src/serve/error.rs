//! Why the receiver does not start.

use std::io;
use std::net::SocketAddr;

use crate::admin;
use crate::document::Problem;
use crate::store::OpenError;

/// Why the receiver does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the configuration refers to cannot be used: every problem.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// The port that the configuration names cannot be bound.
    #[error("failed to listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    /// A listening socket, named by its address or its descriptor, cannot be used.
    #[error("failed to serve on {socket}: {error}")]
    Socket { socket: String, error: io::Error },
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The sockets of the admin API.
    #[error(transparent)]
    Admin(#[from] admin::ListenError),
}

impl Error {
    /// One of these listening sockets cannot be served.
    pub(super) fn of_sockets(addresses: &[SocketAddr], error: io::Error) -> Self {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        Error::Socket { socket: addresses.join(", "), error }
    }
}
