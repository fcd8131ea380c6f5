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
use crate::store::Admin;
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
        if let Some(source) = sources.iter().find(|source| source.refuse_proxied) {
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
pub(super) async fn tend(manager: &Manager, store: &Admin) -> JoinSet<()> {
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
async fn look(store: Admin, told: watch::Sender<String>, beat: Option<Duration>) {
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
async fn feed(store: Admin, manager: Manager) {
    let Some(limit) = manager.watchdog() else { return };
    while store.writer_answers().await {
        manager.alive().await;
        sleep(limit / 2).await;
    }
}

async fn line(store: &Admin) -> String {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clock::Clock;
    use crate::limits::Limits;
    use crate::store::{Settings, Store, hold_writer};
    use std::ffi::{OsStr, OsString};
    use std::os::unix::net::UnixDatagram;

    /// Far over two beats.
    const PATIENCE: Duration = Duration::from_secs(20);
    const WATCHDOG: Duration = Duration::from_millis(200);

    /// What a service manager's socket hears.
    struct Ear(UnixDatagram);

    impl Ear {
        fn hears(&self) -> Option<String> {
            let mut message = [0; 4096];
            let length = self.0.recv(&mut message).ok()?;
            Some(String::from_utf8(message[..length].to_vec()).unwrap())
        }

        /// The next messages until this one.
        fn until(&self, wanted: &str) -> Vec<String> {
            let mut heard = Vec::new();
            while !heard.iter().any(|one| one == wanted) {
                heard.push(self.hears().unwrap_or_else(|| panic!("no {wanted}: {heard:?}")));
            }
            heard
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_watchdog_is_fed_by_the_writers_answers_alone() {
        let folder = tempfile::tempdir().unwrap();
        let address = folder.path().join("notify");
        let ear = Ear(UnixDatagram::bind(&address).unwrap());
        ear.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let micros = OsString::from(WATCHDOG.as_micros().to_string());
        let variable = |name: &str| match name {
            "NOTIFY_SOCKET" => Some(address.as_os_str()),
            "WATCHDOG_USEC" => Some(micros.as_os_str()),
            _ => None::<&OsStr>,
        };
        let manager = Manager::find(&variable).unwrap();
        let settings = Settings { path: folder.path().join("t.db"), limits: Limits::default() };
        let store = Store::open(&settings, Clock::system()).unwrap();

        let tending = tend(&manager, &store.admin).await;
        assert_eq!(ear.hears().unwrap(), "STATUS=accepting");
        assert_eq!(ear.hears().unwrap(), "READY=1");
        for _ in 0..3 {
            ear.until("WATCHDOG=1");
        }

        let release = hold_writer(&store).await;
        // One answer may have been under way.
        ear.0.set_read_timeout(Some(WATCHDOG * 5)).unwrap();
        let heard: Vec<String> = std::iter::from_fn(|| ear.hears()).take(9).collect();
        let fed = heard.iter().filter(|one| *one == "WATCHDOG=1").count();
        assert!(fed <= 1, "it was fed while the writer hung: {heard:?}");
        ear.0.set_read_timeout(Some(PATIENCE)).unwrap();
        drop(release);
        ear.until("WATCHDOG=1");

        let stopping = manager.stopping().await;
        assert!(
            ear.until("STOPPING=1")
                .iter()
                .all(|one| one.starts_with("WATCHDOG") || one == "STOPPING=1")
        );
        ear.until("EXTEND_TIMEOUT_USEC=60000000");
        drop((stopping, tending));
        store.close().await;
    }

    #[tokio::test]
    async fn without_a_manager_nothing_is_told_and_a_wrong_one_is_named() {
        let manager = Manager::find(&|_| None).unwrap();
        manager.ready().await;
        assert_eq!(manager.watchdog(), None);
        let odd = OsString::from("vsock:2:1234");
        let error =
            Manager::find(&|name: &str| (name == "NOTIFY_SOCKET").then_some(&*odd)).unwrap_err();
        assert!(error.to_string().contains("vsock:2:1234"), "{error}");
    }
}
