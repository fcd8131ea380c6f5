//! The listening sockets: those that a service manager has opened, or those that the configuration names.
//!
//! `serve` opens them before it touches the store, so that a busy port changes nothing on disk.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

use crate::config::Config;

use super::error::Error;

/// The length of the kernel's queue of connections that wait to be accepted, which is Linux's default for
/// `net.core.somaxconn` (listen(2)). The standard library asks for 128; at 2,000 connections at once, more
/// than half of the clients found that queue full and waited a second to try again.
const BACKLOG: i32 = 4096;

pub(super) struct Ports {
    /// Where deliveries come in.
    pub(super) deliveries: Vec<TcpListener>,
    pub(super) addresses: Vec<SocketAddr>,
    /// Where metrics are read, if anywhere.
    pub(super) metrics: Option<(SocketAddr, TcpListener)>,
}

impl Ports {
    /// Binds the configured addresses. Inherited sockets replace `server.listen`.
    pub(super) fn bind(inherited: Vec<TcpListener>, config: &Config) -> Result<Self, Error> {
        let (deliveries, addresses) = if inherited.is_empty() {
            let listener = listen(config.server().listen)?;
            let address = address_of(&listener)?;
            (vec![listener], vec![address])
        } else {
            let addresses = inherited.iter().map(address_of).collect::<Result<Vec<_>, _>>()?;
            check_inherited(&addresses, config)?;
            (inherited, addresses)
        };
        let metrics = match config.metrics() {
            Some(address) => Some((address, listen(address)?)),
            None => None,
        };
        Ok(Ports { deliveries, addresses, metrics })
    }
}

/// Binds `address`. Connections wait in the kernel's queue until the server accepts them.
fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let bind = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error| Error::Listen { address, error })
}

/// Makes the socket non-blocking and returns its address. An error names the socket.
fn address_of(socket: &TcpListener) -> Result<SocketAddr, Error> {
    let address = socket.local_addr().map_err(|error| {
        let socket = format!("file descriptor {}", socket.as_raw_fd());
        Error::Socket { socket, error }
    })?;
    socket.set_nonblocking(true).map_err(|error| Error::of_sockets(&[address], error))?;
    Ok(address)
}

/// Loading checked the configuration against `server.listen`, not against these addresses.
fn check_inherited(addresses: &[SocketAddr], config: &Config) -> Result<(), Error> {
    let exposed = config.exposed_at(addresses);
    if !exposed.is_empty() {
        return Err(Error::Config(exposed));
    }
    for address in addresses.iter().filter(|address| !address.ip().to_canonical().is_loopback()) {
        tracing::warn!(
            %address, "the socket unit's address can be reached from other machines, without TLS"
        );
    }
    let listen = config.server().listen;
    if config.server().listen_is_set && !addresses.contains(&listen) {
        let served: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        tracing::warn!(
            "server.listen = \"{listen}\" does not count: systemd's socket unit says {}",
            served.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    #[test]
    fn a_burst_of_connections_waits_in_the_queue() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = 500.min(allowed.trim().parse().unwrap());
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        // Nothing accepts; a connection without a place would be tried again after a second.
        let short = Duration::from_millis(900);
        let waiting = (0..burst).map(|_| TcpStream::connect_timeout(&address, short));
        assert_eq!(waiting.collect::<Result<Vec<_>, _>>().unwrap().len(), burst);
    }

    #[test]
    fn an_error_names_the_inherited_socket_that_failed() {
        let file = TcpListener::from(OwnedFd::from(File::open("/dev/null").unwrap()));
        let expected = format!("failed to serve on file descriptor {}: ", file.as_raw_fd());
        let error = address_of(&file).unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{error}");
    }
}
