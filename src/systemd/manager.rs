//! What a service manager is told by its service: ready, how it stands, alive, stopping (sd_notify(3)).
//!
//! What must stay true: a manager that does not listen costs a message, never the work; and without one
//! every call is nothing.

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
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Variable;

/// Where the manager listens.
pub(super) const ADDRESS: &str = "NOTIFY_SOCKET";

/// Within how many microseconds it wants to hear that the service is alive (sd_watchdog_enabled(3)).
pub(super) const WATCHDOG_MICROS: &str = "WATCHDOG_USEC";

pub(super) const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// How long a message may wait in a full queue: the manager is busy, and the next one tells as much.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two lines of status: each costs the manager a message to everybody who looks at units.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// How often a stop that takes long says that it goes on, and for how long each word is good.
const STOP_BEAT: Duration = Duration::from_secs(15);
const STOP_WORD: Duration = Duration::from_secs(60);

/// The service manager, if there is one. Clones speak to the same one.
#[derive(Debug, Clone, Default)]
pub struct Manager(Option<Arc<Line>>);

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    watchdog: Option<Duration>,
}

/// Why a manager that is named cannot be told anything.
#[derive(Debug, thiserror::Error)]
#[error("the service manager at {ADDRESS}={address} cannot be told anything: {source}")]
pub struct NoManager {
    /// As the environment says.
    address: String,
    /// What the system said.
    source: io::Error,
}

/// Says that a stop goes on, until it is dropped.
#[derive(Debug)]
pub struct Stopping(Option<JoinHandle<()>>);

impl Drop for Stopping {
    fn drop(&mut self) {
        if let Some(beats) = self.0.take() {
            beats.abort();
        }
    }
}

impl Manager {
    /// No manager.
    pub fn none() -> Self {
        Manager(None)
    }

    /// The one that the environment names. Needs a tokio runtime's context.
    ///
    /// # Errors
    /// It names one that cannot be spoken to.
    pub fn find(variable: Variable<'_>) -> Result<Manager, NoManager> {
        let Some(address) = variable(ADDRESS).filter(|address| !address.is_empty()) else {
            return Ok(Manager(None));
        };
        let text = |name| variable(name).and_then(OsStr::to_str);
        // Without a process it is meant for whoever reads it.
        let ours =
            text(WATCHDOG_PROCESS).is_none_or(|pid| pid == getpid().as_raw_pid().to_string());
        let micros = text(WATCHDOG_MICROS).and_then(|micros| micros.parse().ok());
        let watchdog = micros.filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        let socket = connect(address)
            .map_err(|source| NoManager { address: address.display().to_string(), source })?;
        Ok(Manager(Some(Arc::new(Line { socket, watchdog }))))
    }

    /// Within what time [`Manager::alive`] must be said again and again, where it must.
    pub fn watchdog(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|line| line.watchdog)
    }

    /// It serves: said after the start, and again after a reload or a re-execution.
    pub async fn ready(&self) {
        self.tell("READY=1").await;
    }

    /// The watchdog need not bite.
    pub async fn alive(&self) {
        self.tell("WATCHDOG=1").await;
    }

    /// One line for people, shown by `systemctl status`.
    pub async fn status(&self, line: &str) {
        // A line's end would begin another assignment.
        let line = line.replace(|c: char| c.is_control(), " ");
        self.tell(&format!("STATUS={line}")).await;
    }

    /// Tells every change of the line, at most one a second, the last one always. Ends with its maker.
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

    /// It stops. For as long as the answer is kept, the manager's time limit for stops is put off in
    /// small steps, so that the limit of the configuration holds and not that of the unit; one that
    /// hangs is ended a minute later.
    pub async fn stopping(&self) -> Stopping {
        self.tell("STOPPING=1").await;
        let line = self.clone();
        Stopping(self.0.is_some().then(|| {
            tokio::spawn(async move {
                loop {
                    let micros = STOP_WORD.as_micros();
                    line.tell(&format!("EXTEND_TIMEOUT_USEC={micros}")).await;
                    sleep(STOP_BEAT).await;
                }
            })
        }))
    }

    async fn tell(&self, message: &str) {
        let Some(line) = &self.0 else { return };
        let sent = timeout(PATIENCE, line.socket.send(message.as_bytes())).await;
        if let Err(error) = sent.unwrap_or_else(|late| Err(late.into())) {
            tracing::warn!(%error, message, "the service manager does not listen");
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
