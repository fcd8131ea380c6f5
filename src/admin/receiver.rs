//! What a running receiver knows in addition to its store, and the status of both.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::handler::RunnerPool;
use crate::handler::runner_client::RunnerStatus;
use crate::model::{Name, State, Timestamp};
use crate::registration::Registrations;
use crate::store::{Admin, JobRow, Refused, Stall, StoreStatus};
use crate::traffic::{RecentTraffic, Seen, Traffic};

use super::failure::Failure;
use super::listener_info::ListenerInfo;
use super::reload::ReloadAsked;

/// What a running receiver knows in addition to its store.
#[derive(Debug, Clone)]
pub struct ReceiverState {
    pub(super) links: RunnerPool,
    traffic: Traffic,
    clock: Clock,
    started: (Timestamp, Duration),
    listeners: Arc<ArcSwap<ListenerInfo>>,
    pub(super) reloads: mpsc::Sender<ReloadAsked>,
    /// Shared with the HTTP server.
    pub registrations: Registrations,
}

impl ReceiverState {
    /// One that starts now by `clock`, and the reloads that are asked of it: they are refused once that is dropped.
    pub fn new(
        links: RunnerPool,
        traffic: Traffic,
        clock: Clock,
    ) -> (Self, mpsc::Receiver<ReloadAsked>) {
        let started = (clock.now(), clock.monotonic());
        let (reloads, asked) = mpsc::channel(1);
        let (listeners, registrations) = (Arc::default(), Registrations::default());
        (ReceiverState { links, traffic, clock, started, listeners, reloads, registrations }, asked)
    }

    /// Where it listens and how it signs, from now on.
    pub fn set_listeners(&self, listeners: ListenerInfo) {
        self.listeners.store(Arc::new(listeners));
    }

    pub(super) fn listeners(&self) -> Arc<ListenerInfo> {
        self.listeners.load_full()
    }

    pub(super) async fn await_secret(
        &self,
        source: &Name,
        word: &str,
        wait: Duration,
    ) -> Option<Zeroizing<String>> {
        self.registrations.wait(source, word, wait, &self.clock).await
    }

    pub(super) fn recent_traffic(&self) -> RecentTraffic {
        self.traffic.recent(self.started.0, self.clock.now())
    }

    fn status(&self) -> ReceiverStatus {
        let (wall, monotonic) = self.started;
        let passed = self.clock.monotonic().saturating_sub(monotonic);
        let now = self.clock.now();
        let listeners = self.listeners();
        ReceiverStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            now,
            started_at: wall,
            clock_moved_millis: now.0.saturating_sub(wall.after(passed).0),
            runners: self.links.statuses(),
            traffic: self.traffic.seen(),
            without_secret: listeners.without_secret.clone(),
            configuration: listeners.configuration.clone(),
        }
    }
}

/// How everything stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The receiver that serves; none where the store is stopped.
    pub receiver: Option<ReceiverStatus>,
    /// Why accepts are refused, where a receiver runs and refuses them.
    pub refused: Option<Refusal>,
    /// What stands still in the receiver, the worst first. A receiver of an earlier version omits it.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// What the store says; nothing while its receiver has closed it for repair.
    pub store: Option<StoreStatus>,
}

/// Why no event is accepted now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One sentence.
    pub reason: String,
    /// The disk is full, or nearly.
    pub space: bool,
}

/// What a running receiver says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceiverStatus {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its wall clock now.
    pub now: Timestamp,
    /// When it started, by that clock then.
    pub started_at: Timestamp,
    /// How far the wall clock has moved otherwise than time passed since then: a clock that was set, or
    /// a machine that slept.
    pub clock_moved_millis: i64,
    /// The runners that are needed, by name.
    pub runners: Vec<RunnerStatus>,
    /// The deliveries since then.
    pub traffic: Seen,
    /// The sources whose secrets are empty: each delivery to them is answered 401.
    pub without_secret: Vec<Name>,
    /// The digest of the configuration in force: another one than that of the files needs a reload. Without the contents
    /// of secrets. A receiver of an earlier version omits it.
    #[serde(default)]
    pub configuration: String,
}

/// Adds to each job that could be claimed that its handler cannot run, which only a receiver knows.
pub(super) fn mark_broken<'a>(
    receiver: Option<&ReceiverState>,
    jobs: impl IntoIterator<Item = &'a mut JobRow>,
) {
    let broken = receiver.map_or(Vec::new(), |receiver| receiver.traffic.broken());
    for job in jobs {
        let claimable = matches!(job.state, State::Ready | State::Waiting);
        let of_handler = broken.iter().find(|one| claimable && one.handler == job.handler);
        job.broken = of_handler.cloned();
    }
}

/// Looks at everything. `sources`: those to tell of beside the receiver's own.
pub(super) async fn look(
    store: &Admin,
    receiver: Option<&ReceiverState>,
    mut sources: Vec<Name>,
) -> Result<Status, Failure> {
    let receiver = receiver.map(ReceiverState::status);
    sources.extend(receiver.iter().flat_map(|own| own.traffic.sources.keys().cloned()));
    let refused = store
        .ready()
        .err()
        .map(|why| Refusal { reason: why.to_string(), space: matches!(why, Refused::NoSpace(_)) });
    let refused = refused.filter(|_| receiver.is_some());
    let stalls = store.stalls();
    let store = match store.status(sources).await {
        Ok(standing) => Some(standing),
        // A receiver that repairs its store has much to say all the same, the reason first of all.
        Err(_) if refused.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Status { receiver, refused, stalls, store })
}
