//! The receiver as a service: the sockets that were opened for it, and what its manager is told.
//!
//! For `serve` alone. What must stay true: the manager hears that the receiver is alive only after the
//! store's writer has said so itself, since a process whose writer hangs only looks alive; and when
//! nothing happens nothing is looked at but that.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::Server;
use crate::http;
use crate::store::Store;
use crate::systemd::Manager;

use super::Error;

/// Between two looks at a store that changes all the time.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// What a service manager gives to the receiver; nothing of it where there is none.
#[derive(Debug, Default)]
pub struct Service {
    /// Listening sockets: they count instead of `server.listen`.
    pub sockets: Vec<TcpListener>,
    /// Whom to tell how the receiver is.
    pub manager: Manager,
}

/// The sockets to be served: those that were given, or else one that is bound here. Before the store is
/// touched, so that a busy port changes nothing on disk.
pub(super) fn listeners(
    given: Vec<TcpListener>,
    server: &Server,
    sources: &[http::Source],
) -> Result<Vec<TcpListener>, Error> {
    let address = server.listen;
    let failed = |error| Error::Listen { address, error };
    if given.is_empty() {
        return Ok(vec![super::listen(address).map_err(failed)?]);
    }
    let mut served: Vec<SocketAddr> = Vec::new();
    for socket in &given {
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        served.push(address);
        // The configuration was checked for the address that stands in it.
        if address.ip().to_canonical().is_loopback() {
            continue;
        }
        if let Some(source) = sources.iter().find(|source| source.scheme.is_unsigned()) {
            return Err(Error::Exposed { name: source.name.clone(), address });
        }
        tracing::warn!(
            %address, "the socket unit's address can be reached from other machines, without TLS"
        );
    }
    if server.listen_is_set && !served.contains(&address) {
        let served: Vec<String> = served.iter().map(SocketAddr::to_string).collect();
        tracing::warn!(
            "server.listen = \"{address}\" does not count: systemd's socket unit says {}",
            served.join(", ")
        );
    }
    Ok(given)
}

/// Tells the manager of a receiver that serves, until what is returned is dropped.
pub(super) async fn tend(manager: &Manager, store: &Store) -> JoinSet<()> {
    let mut tending = JoinSet::new();
    let (line, lines) = watch::channel(line(store).await);
    manager.status(&lines.borrow()).await;
    manager.ready().await;
    tending.spawn(manager.clone().keep_status(lines));
    tending.spawn(look(store.clone(), line, manager.watchdog()));
    tending.spawn(feed(store.clone(), manager.clone()));
    tending
}

/// Keeps the line as the store is: looked at after a change, and beside the watchdog's beat, since
/// space can run out without one.
async fn look(store: Store, told: watch::Sender<String>, beat: Option<Duration>) {
    let mut changes = store.changes();
    loop {
        sleep(LOOK_PAUSE).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = beats(beat) => {}
        }
        let now = line(&store).await;
        told.send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
    }
}

async fn beats(beat: Option<Duration>) {
    match beat {
        Some(limit) => sleep(limit / 2).await,
        None => std::future::pending().await,
    }
}

/// Feeds the watchdog, with the writer's answers only. Twice as often as it bites (sd_watchdog_enabled(3)).
async fn feed(store: Store, manager: Manager) {
    let Some(limit) = manager.watchdog() else { return };
    while store.writer_answers().await {
        manager.alive().await;
        sleep(limit / 2).await;
    }
}

/// How the store is, in one line.
async fn line(store: &Store) -> String {
    let accepts = match store.ready() {
        Ok(()) => "accepting".to_owned(),
        Err(why) => format!("refusing deliveries: {why}"),
    };
    match store.stuck_counts().await {
        Ok((0, 0)) => accepts,
        Ok((held, dead)) => format!("{accepts}; for a person: {held} held, {dead} dead"),
        // Closed for repair, which the first part says.
        Err(_) => accepts,
    }
}
