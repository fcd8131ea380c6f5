//! Reports the receiver's state to its service manager.
//!
//! Must stay true: the watchdog is fed only after the store's writer has answered, because a process whose
//! writer hangs still runs; and an idle receiver looks at nothing else.

use std::net::TcpListener;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::store::Admin;
use crate::systemd::Manager;

/// The shortest time between two status lines.
const STATUS_PAUSE: Duration = Duration::from_secs(2);

/// What a service manager gives to the receiver. The default is a receiver without one.
#[derive(Debug, Default)]
pub struct Service {
    /// Listening sockets, which replace `server.listen`.
    pub sockets: Vec<TcpListener>,
    pub manager: Manager,
}

/// Reports the status to the manager and feeds its watchdog, until the returned set is dropped.
pub(super) async fn tend(manager: &Manager, store: &Admin) -> JoinSet<()> {
    let mut tending = JoinSet::new();
    let (line, lines) = watch::channel(line(store).await);
    manager.status(&lines.borrow()).await;
    manager.ready().await;
    tending.spawn(manager.clone().keep_status(lines));
    tending.spawn(watch_store(store.clone(), line, manager.watchdog()));
    tending.spawn(feed(store.clone(), manager.clone()));
    tending
}

/// Updates the status line after each change of the store, and with each beat of the watchdog, because the
/// disk can fill up without a change.
async fn watch_store(store: Admin, status: watch::Sender<String>, beat: Option<Duration>) {
    let mut changes = store.changes();
    loop {
        sleep(STATUS_PAUSE).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = beats(beat) => {}
        }
        let now = line(&store).await;
        status.send_if_modified(|last| std::mem::replace(last, now.clone()) != now);
    }
}

async fn beats(beat: Option<Duration>) {
    match beat {
        Some(limit) => sleep(limit / 2).await,
        None => std::future::pending().await,
    }
}

/// Feeds the watchdog with the writer's answers, twice within its time-out (sd_watchdog_enabled(3)).
async fn feed(store: Admin, manager: Manager) {
    let Some(limit) = manager.watchdog() else { return };
    while store.writer_answers().await {
        manager.alive().await;
        sleep(limit / 2).await;
    }
}

async fn line(store: &Admin) -> String {
    let accepts = match store.ready() {
        Ok(()) => match store.stalls().first() {
            Some(stall) => format!("accepting; {stall}"),
            None => "accepting".to_owned(),
        },
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

    /// The longest wait of a test, far over two beats.
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
