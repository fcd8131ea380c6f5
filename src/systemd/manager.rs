//! Notifies the service manager of the service's state: ready, status, alive, stopping (sd_notify(3)).
//!
//! `serve` and the runner call it. Must stay true: a manager that does not read its socket costs only
//! the message and does not stop the service; without a manager every call does nothing.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as Unconnected};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getpid;
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::variables::{ADDRESS, Variable, WATCHDOG_MICROS, WATCHDOG_PROCESS};

/// How long a message may wait in a full socket queue. It is dropped after that; a later message
/// replaces it.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two status lines: for each one the manager sends a message to every process that
/// watches units.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// How often a long stop extends the manager's stop timeout.
const STOP_EXTEND_EVERY: Duration = Duration::from_secs(15);

/// How much each message extends the stop timeout.
const STOP_EXTEND_BY: Duration = Duration::from_secs(60);

/// The service manager, if there is one. Clones share its socket.
#[derive(Debug, Clone, Default)]
pub struct Manager(Option<Arc<Connection>>);

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    watchdog: Option<Duration>,
}

/// The error for a manager's socket that cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("failed to connect to the service manager at {ADDRESS}={address}: {source}")]
pub struct NoManager {
    /// The value of the environment variable.
    address: String,
    source: io::Error,
}

/// Extends the manager's stop timeout until it is dropped.
#[derive(Debug)]
pub struct Stopping(#[expect(dead_code, reason = "held")] JoinSet<()>);

impl Manager {
    /// The manager that the environment names, if it names one. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The environment names a socket that cannot be connected to.
    pub fn find(variable: Variable<'_>) -> Result<Manager, NoManager> {
        let Some(address) = variable(ADDRESS).filter(|address| !address.is_empty()) else {
            return Ok(Manager(None));
        };
        let text = |name| variable(name).and_then(OsStr::to_str);
        // Without a process id the watchdog period is for any process (sd_watchdog_enabled(3)).
        let ours =
            text(WATCHDOG_PROCESS).is_none_or(|pid| pid == getpid().as_raw_pid().to_string());
        let micros = text(WATCHDOG_MICROS).and_then(|micros| micros.parse().ok());
        let watchdog = micros.filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        let socket = connect(address)
            .map_err(|source| NoManager { address: address.display().to_string(), source })?;
        Ok(Manager(Some(Arc::new(Connection { socket, watchdog }))))
    }

    /// The watchdog period: the caller must call [`Manager::alive`] more often than this. `None` if the
    /// watchdog is off.
    pub fn watchdog(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|connection| connection.watchdog)
    }

    /// Reports that the service serves: after the start, and again after a reload or a re-execution.
    pub async fn ready(&self) {
        self.send("READY=1").await;
    }

    /// Resets the watchdog.
    pub async fn alive(&self) {
        self.send("WATCHDOG=1").await;
    }

    /// Sets the line that `systemctl status` shows.
    pub async fn status(&self, line: &str) {
        // A newline would begin another assignment.
        let line = line.replace(|c: char| c.is_control(), " ");
        self.send(&format!("STATUS={line}")).await;
    }

    /// Reports changes of the line, at most one per [`STATUS_PAUSE`]; it always reports the last one.
    /// Returns when the sender is dropped.
    pub async fn keep_status(self, mut line: watch::Receiver<String>) {
        if self.0.is_none() {
            return;
        }
        loop {
            let now = line.borrow_and_update().clone();
            self.status(&now).await;
            sleep(STATUS_PAUSE).await;
            if line.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reports that the service stops. While the caller keeps the result, the manager's stop timeout is
    /// extended in small steps, so that the configured stop limit applies and not the unit's. The
    /// manager kills a service that hangs one minute after the last extension.
    pub async fn stopping(&self) -> Stopping {
        self.send("STOPPING=1").await;
        let mut extending = JoinSet::new();
        if self.0.is_some() {
            let manager = self.clone();
            extending.spawn(async move {
                loop {
                    let micros = STOP_EXTEND_BY.as_micros();
                    manager.send(&format!("EXTEND_TIMEOUT_USEC={micros}")).await;
                    sleep(STOP_EXTEND_EVERY).await;
                }
            });
        }
        Stopping(extending)
    }

    async fn send(&self, message: &str) {
        let Some(connection) = &self.0 else { return };
        let sent = timeout(SEND_TIMEOUT, connection.socket.send(message.as_bytes())).await;
        if let Err(error) = sent.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            tracing::warn!(%error, message, "failed to notify the service manager");
        }
    }
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = Unconnected::unbound()?;
    match address.as_bytes() {
        [b'/', ..] => socket.connect(address)?,
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => return Err(io::Error::other("it is neither a path nor an abstract name")),
    }
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}
